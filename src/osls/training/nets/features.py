"""Backbones without a head: rows to features, for methods that put several heads on the same features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from osls._core.saving import kept_as
from osls.training.nets.resnet import SmallResNet

__all__ = ["ConvFeatures", "FeatureFactory", "MLPFeatures", "discriminator_head", "new_features"]

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
