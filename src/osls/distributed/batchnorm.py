"""Batch normalisation over the whole batch, where each process holds a part of it.

Left to themselves, two processes would each normalise by their own half of a batch. That is another model:
noisier, and more so the more processes there are. torch has this for GPUs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["synced_batch_norm"]


@contextmanager
def synced_batch_norm(network: nn.Module) -> Iterator[None]:
    """Inside the block, the network's layers of batch normalisation share their statistics."""
    layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            # The class's own comes to light again, so the network can be pickled.
            del layer.forward


class _Sum(torch.autograd.Function):
    """Sum over the processes; what each loses by the sum, all of them lose together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        total = gradient[0].clone()
        distributed.all_reduce(total)
        return total


def _forward(layer: _BatchNorm, x: Tensor) -> Tensor:
    if not layer.training:
        return type(layer).forward(layer, x)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    size = x.new_tensor([x.numel() / x.shape[1]])
    # Around the running mean, which all share: squares of large numbers would lose digits.
    origin = torch.zeros_like(x[:1].mean(axes)) if layer.running_mean is None else layer.running_mean
    shifted = x - origin.reshape(shape)
    sums: Tensor = _Sum.apply(torch.cat([shifted.sum(axes), shifted.square().sum(axes), size]))  # type: ignore[no-untyped-call]
    count = sums[-1].detach()
    mean, square = (sums[:-1] / count).chunk(2)
    variance = (square - mean.square()).clamp_min(0.0)
    if layer.running_mean is not None and layer.running_var is not None:
        _remember(layer, (mean + origin).detach(), (variance * count / (count - 1).clamp_min(1)).detach())
    normed = (shifted - mean.reshape(shape)) * torch.rsqrt(variance + layer.eps).reshape(shape)
    if layer.affine:
        normed = normed * layer.weight.reshape(shape) + layer.bias.reshape(shape)
    return normed


def _remember(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics, as the layer itself would."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    rate = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean, rate)
    layer.running_var.lerp_(variance, rate)
