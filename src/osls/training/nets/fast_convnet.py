"""A plain convnet that learns small colour images with few operations, after airbench (Jordan, 2024).

Three ideas make it fast to train: the first layer is fixed, because the principal components of small
patches are the same in all photographs; every convolution starts as the identity; and images are pooled
before they are normalised, so that most of the work is in the convolutions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from osls._core.saving import kept_as
from osls.training.nets.augment import RandomShiftFlip


@kept_as("network")
class FastConvFeatures(nn.Module):
    """The body of the convnet: images (n, channels, height, width) to ``out_features`` numbers each.

    Parameters
    ----------
    in_channels : int
        Channels of the images.
    width : int, default=64
        Channels of the first of three stages; the others have four times as many.
    augment : bool, default=True
        Shift and mirror the images in training (:class:`osls.training.nets.RandomShiftFlip`); in evaluation
        the features are the mean over an image and its mirror image.

    References
    ----------
    .. [1] Jordan. 94% on CIFAR-10 in 3.29 Seconds on a Single GPU. 2024.

    Examples
    --------
    >>> import torch
    >>> from osls.training.nets.fast_convnet import FastConvFeatures
    >>> body = FastConvFeatures(3, width=4)
    >>> tuple(body(torch.rand(2, 3, 32, 32)).shape), body.out_features
    ((2, 16), 16)
    """

    def __init__(self, in_channels: int, width: int = 64, augment: bool = True):
        super().__init__()
        self.arguments = (in_channels, width, augment)
        self.out_features = 4 * width
        self.augment = RandomShiftFlip(2) if augment else None
        self.body = nn.Sequential(
            Patches(in_channels),
            _stage(8 * in_channels, width),
            _stage(width, 4 * width),
            _stage(4 * width, 4 * width),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor
        if self.augment is None:
            out = self.body(x)
        elif self.training:
            out = self.body(self.augment(x))
        else:
            out = (self.body(x) + self.body(x.flip(3))) / 2
        return out


class Patches(nn.Module):
    """Patches of 2 x 2 pixels in a fixed basis, standardised, each component with both signs.

    It has no trainable parameters. The basis is Haar's in space and, with three channels, sum and differences
    in colour. It is close to the principal components of photographs, so the standardised outputs are nearly
    uncorrelated.
    """

    basis: Tensor

    def __init__(self, in_channels: int):
        super().__init__()
        one = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
        space = torch.einsum("ia,jb->ijab", one, one).reshape(4, 2, 2)
        colour = torch.eye(in_channels)
        if in_channels == 3:
            colour = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
            colour = colour / colour.norm(dim=1, keepdim=True)
        basis = torch.einsum("sab,oc->socab", space, colour).reshape(4 * in_channels, in_channels, 2, 2)
        self.register_buffer("basis", basis)
        self.scale = nn.BatchNorm2d(4 * in_channels, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.scale(nn.functional.conv2d(x, self.basis))
        return nn.functional.gelu(torch.cat([out, -out], dim=1))


def _stage(n_in: int, n_out: int) -> nn.Sequential:
    """Two convolutions; the image is halved after the first."""
    return nn.Sequential(
        _convolution(n_in, n_out),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.BatchNorm2d(n_out),
        nn.GELU(),
        _convolution(n_out, n_out),
        nn.BatchNorm2d(n_out),
        nn.GELU(),
    )


def _convolution(n_in: int, n_out: int) -> nn.Conv2d:
    """Return a convolution whose first outputs are its inputs."""
    layer = nn.Conv2d(n_in, n_out, kernel_size=3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[: min(n_in, n_out)])
    return layer
