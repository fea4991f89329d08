"""Multilayer perceptrons, several of the same shape trained as one stack."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from osls._core.saving import kept_as

__all__ = ["StackedMLP"]


class _StackedLinear(nn.Module):
    """One linear layer for each member of a stack, as a single batched product."""

    def __init__(self, members: int, n_in: int, n_out: int):
        super().__init__()
        bound = math.sqrt(3 / n_in)
        self.weight = nn.Parameter(torch.empty(members, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class _StackedBatchNorm(nn.Module):
    """Batch normalisation of each member by its own batch."""

    def __init__(self, members: int, width: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(members * width)

    def forward(self, x: Tensor) -> Tensor:
        members, batch, width = x.shape
        if not self.training:
            # A known scale and shift a column: nothing has to be rearranged for it.
            mean, variance = self.norm.running_mean, self.norm.running_var
            assert mean is not None
            assert variance is not None
            scale = self.norm.weight / torch.sqrt(variance + self.norm.eps)
            shift = self.norm.bias - scale * mean
            return torch.addcmul(shift.view(members, 1, width), x, scale.view(members, 1, width))
        flat = x.transpose(0, 1).reshape(batch, members * width)
        normed: Tensor = self.norm(flat)
        return normed.reshape(batch, members, width).transpose(0, 1)


class _SharedDropout(nn.Module):
    """Dropout with one mask for all members: they see different rows, and drawing masks is dear on a CPU."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        mask = torch.rand(x.shape[1:], device=x.device) >= self.rate
        return x * (mask / (1 - self.rate))


@kept_as("network")
class StackedMLP(nn.Module):
    """``members`` independent MLPs that share nothing but the call.

    Cross-fitting trains the same network once a fold. On small data a step's cost is overhead, not
    arithmetic, so the folds are trained together: input (members, batch, features), output
    (members, batch, classes).
    """

    def __init__(
        self, members: int, n_features: int, n_classes: int, hidden: tuple[int, ...], dropout: float
    ):
        super().__init__()
        # Kept in all networks of ours, so that a saved one can be built again.
        self.arguments = (members, n_features, n_classes, hidden, dropout)
        layers: list[nn.Module] = []
        width = n_features
        for size in hidden:
            layers += [
                _StackedLinear(members, width, size),
                _StackedBatchNorm(members, size),
                nn.ReLU(),
                _SharedDropout(dropout),
            ]
            width = size
        self.layers = nn.Sequential(*layers, _StackedLinear(members, width, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out
