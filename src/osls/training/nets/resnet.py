"""ResNet-9: the residual network that learns CIFAR fastest for its accuracy, also on a CPU."""

from __future__ import annotations

from torch import Tensor, nn

from osls._core.saving import kept_as
from osls.training.nets.augment import RandomShiftFlip

__all__ = ["ResNet9Features", "ResidualBlock", "SmallResNet", "conv_block"]


def conv_block(n_in: int, n_out: int) -> nn.Sequential:
    """Convolve, normalise, rectify."""
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
    )


class ResidualBlock(nn.Module):
    """Two convolutions, and what went around them."""

    def __init__(self, width: int):
        super().__init__()
        self.body = nn.Sequential(conv_block(width, width), conv_block(width, width))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


@kept_as("network")
class SmallResNet(nn.Module):
    """Three stages of convolution and pooling, each with a residual pair; (n, c, h, w) -> (n, classes)."""

    def __init__(self, in_channels: int, n_classes: int, width: int = 32):
        super().__init__()
        self.arguments = (in_channels, n_classes, width)
        self.features = nn.Sequential(
            conv_block(in_channels, width),
            nn.MaxPool2d(2, ceil_mode=True),
            ResidualBlock(width),
            conv_block(width, 2 * width),
            nn.MaxPool2d(2, ceil_mode=True),
            ResidualBlock(2 * width),
            conv_block(2 * width, 4 * width),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(4 * width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(x))
        return out


@kept_as("network")
class ResNet9Features(nn.Module):
    """The body of a ResNet-9: images (n, channels, height, width) to ``out_features`` numbers each.

    Parameters
    ----------
    in_channels : int
        Channels of the images.
    width : int, default=64
        Channels of the first layer; the last has eight times as many.
    augment : bool, default=True
        Shift and mirror the images in training (:class:`osls.training.nets.augment.RandomShiftFlip`).

    Examples
    --------
    >>> import torch
    >>> from osls.training.nets.resnet import ResNet9Features
    >>> body = ResNet9Features(3, width=4)
    >>> tuple(body(torch.zeros(2, 3, 32, 32)).shape), body.out_features
    ((2, 32), 32)
    """

    def __init__(self, in_channels: int, width: int = 64, augment: bool = True):
        super().__init__()
        self.arguments = (in_channels, width, augment)
        self.out_features = 8 * width
        self.body = nn.Sequential(
            RandomShiftFlip() if augment else nn.Identity(),
            conv_block(in_channels, width),
            conv_block(width, 2 * width),
            nn.MaxPool2d(2),
            ResidualBlock(2 * width),
            conv_block(2 * width, 4 * width),
            nn.MaxPool2d(2),
            conv_block(4 * width, 8 * width),
            nn.MaxPool2d(2),
            ResidualBlock(8 * width),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out
