"""Multilayer perceptrons, several trained as one stack; a convnet for texts; bodies without a head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from osls._core.saving import kept_as
from osls.training.nets.resnet import SmallResNet


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
            # In evaluation it is a fixed scale and shift per column, which needs no reshaping.
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
    """Dropout with one mask for all members: they see different rows, and masks are slow to draw on a CPU."""

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

    Cross-fitting trains the same network once per fold. On small data the cost of a step is overhead, not
    arithmetic, so the folds are trained together: input (members, batch, features), output
    (members, batch, classes).
    """

    def __init__(
        self, members: int, n_features: int, n_classes: int, hidden: tuple[int, ...], dropout: float
    ):
        super().__init__()
        # All networks of osls have this attribute, so that a saved one can be built again.
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

    def some(self, members: Sequence[int]) -> StackedMLP:
        """Return a stack of these members alone, with their weights.

        Examples
        --------
        >>> import torch
        >>> from osls.training.nets import StackedMLP
        >>> stack, rows = StackedMLP(3, 2, 4, (5,), 0.0), torch.ones(3, 7, 2)
        >>> bool(torch.equal(stack.some([1, 2])(rows[1:]), stack(rows)[1:]))
        True
        """
        count, *shape = self.arguments
        picked = {
            name: _by_member(whole, count)[list(members)].flatten(0, 1) if whole.ndim else whole.clone()
            for name, whole in self.state_dict().items()
        }
        return _stack_of(picked, len(members), *shape)

    @classmethod
    def joined(cls, parts: Sequence[StackedMLP]) -> StackedMLP:
        """Return one stack of the members of several, the opposite of :meth:`some`."""
        states = [part.state_dict() for part in parts]
        whole = {
            name: torch.cat([state[name] for state in states]) if first.ndim else first.clone()
            for name, first in states[0].items()
        }
        return _stack_of(whole, sum(part.arguments[0] for part in parts), *parts[0].arguments[1:])


def _stack_of(weights: dict[str, Tensor], members: int, *shape: Any) -> StackedMLP:
    # Made without memory, so that no weights are drawn: that would advance the caller's random state.
    with torch.device("meta"):
        stack = StackedMLP(members, *shape)
    stack.load_state_dict(weights, assign=True)
    return stack


def _by_member(tensor: Tensor, members: int) -> Tensor:
    """View a tensor whose first axis counts members, or the columns of one after the other, by member."""
    return tensor.view(members, -1, *tensor.shape[1:])


# A function of one row's shape; the module it makes says in ``out_features`` how many numbers it returns.
FeatureFactory = Callable[[tuple[int, ...]], nn.Module]

_MANY_ROWS = 4000


@kept_as("network")
class MLPFeatures(nn.Sequential):
    """Two hidden layers for tables, those of the default classifier."""

    def __init__(self, n_features: int, width: int, dropout: float = 0.25):
        layers: list[nn.Module] = []
        for n_in in (n_features, width):
            layers += [nn.Linear(n_in, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout)]
        super().__init__(*layers)
        self.arguments = (n_features, width, dropout)
        self.out_features = width


@kept_as("network")
class ConvFeatures(nn.Module):
    """The body of the small residual convnet for images."""

    def __init__(self, in_channels: int):
        super().__init__()
        self.arguments = (in_channels,)
        network = SmallResNet(in_channels, 1)
        self.body = network.features
        self.out_features = network.head.in_features

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def new_features(factory: FeatureFactory | None, row_shape: tuple[int, ...], n_rows: int) -> nn.Module:
    """Build the user's backbone, or the default one for the shape of the rows."""
    if factory is None:
        if len(row_shape) == 1:
            return MLPFeatures(row_shape[0], 128 if n_rows < _MANY_ROWS else 256)
        return ConvFeatures(row_shape[0])
    features: Any = factory(row_shape)
    if not isinstance(getattr(features, "out_features", None), int):
        raise TypeError(
            "network must be a function input_shape -> torch.nn.Module with an integer attribute "
            f"out_features, the number of features it returns; got {features!r}."
        )
    return features  # type: ignore[no-any-return]


def discriminator_head(width: int, dropout: float = 0.5) -> nn.Module:
    """Two hidden layers and one logit: the domain discriminator of the adversarial methods."""
    return nn.Sequential(
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, 1),
        nn.Flatten(0),
    )


_FILTERS, _KERNEL, _POOL = 128, 5, 5


class TextCNNFeatures(nn.Module):
    """Maps rows of token ids (0 is padding) to 128 features.

    Parameters
    ----------
    vectors : Tensor of shape (words, dimensions)
        One vector per word, such as GloVe's, to start from.
    frozen : bool, default=False
        Keep them as they are; the paper's authors train them.

    Examples
    --------
    >>> import torch
    >>> from osls.training.nets.features import TextCNNFeatures
    >>> body = TextCNNFeatures(torch.randn(50, 8))
    >>> tuple(body(torch.randint(50, (2, 200)).float()).shape)
    (2, 128)
    """

    def __init__(self, vectors: Tensor, frozen: bool = False):
        super().__init__()
        # A parameter also if frozen, so that it is saved with the network.
        self.vectors = nn.Parameter(vectors.float(), requires_grad=not frozen)
        self.body = nn.Sequential(
            nn.Conv1d(vectors.shape[1], _FILTERS, _KERNEL),
            nn.ReLU(),
            nn.MaxPool1d(_POOL),
            nn.Conv1d(_FILTERS, _FILTERS, _KERNEL),
            nn.ReLU(),
            nn.MaxPool1d(_POOL),
            nn.Conv1d(_FILTERS, _FILTERS, _KERNEL),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(_FILTERS, _FILTERS),
            nn.ReLU(),
        )
        self.out_features = _FILTERS

    def forward(self, words: Tensor) -> Tensor:
        # Rows arrive as float32, which holds whole numbers up to 16 million exactly.
        out: Tensor = self.body(self.vectors[words.to(torch.int64)].transpose(1, 2))
        return out
