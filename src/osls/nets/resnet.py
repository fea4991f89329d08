"""A small residual convnet for images, trainable on a CPU in minutes."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["ResidualBlock", "SmallResNet", "conv_block"]


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
