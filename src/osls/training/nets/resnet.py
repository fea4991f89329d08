"""ResNet-18 and ResNet-50, the paper's networks for images, as bodies without a head.

The parameters have the names that public weights use (``conv1``, ``layer1.0.conv1``, ...), so that a file of
pre-trained weights can be loaded as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from osls._core.saving import kept_as
from osls.training.nets.augment import RandomShiftFlip


def conv_block(n_in: int, n_out: int) -> nn.Sequential:
    """Convolve, normalise, rectify."""
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
    )


class ResidualBlock(nn.Module):
    """Two convolutions with a skip connection."""

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


Stem = Literal["small", "large"]


def _shortcut(n_in: int, n_out: int, stride: int) -> nn.Module:
    if stride == 1 and n_in == n_out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))


class _Basic(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, n_in: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(n_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        activated: Tensor = (out + self.downsample(x)).relu()
        return activated


class _Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1, beside a shortcut."""

    expansion = 4

    def __init__(self, n_in: int, width: int, stride: int):
        super().__init__()
        n_out = self.expansion * width
        self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, n_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(n_out)
        self.downsample = _shortcut(n_in, n_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        activated: Tensor = (out + self.downsample(x)).relu()
        return activated


_DEPTHS: dict[int, tuple[type[_Basic] | type[_Bottleneck], tuple[int, ...]]] = {
    18: (_Basic, (2, 2, 2, 2)),
    50: (_Bottleneck, (3, 4, 6, 3)),
}


class ResNetFeatures(nn.Module):
    """The body of a ResNet: images (n, channels, height, width) to ``out_features`` numbers each.

    Parameters
    ----------
    depth : {18, 50}
        Number of layers, including the head, which is left out here.
    in_channels : int
        Channels of the images.
    stem : {"small", "large"}, default="large"
        "large" begins with a 7 x 7 convolution and pooling, for images of 224 pixels; "small" with a
        3 x 3 convolution that keeps the size, as usual for the 32 pixels of CIFAR.
    width : int, default=64
        Channels of the first stage.
    shift : int, default=0
        In training, images are shifted by up to so many pixels and mirrored; 0 leaves them as they are.

    Examples
    --------
    >>> import torch
    >>> from osls.training.nets.resnet import ResNetFeatures
    >>> body = ResNetFeatures(18, in_channels=3, stem="small", width=8)
    >>> tuple(body(torch.zeros(2, 3, 16, 16)).shape), body.out_features
    ((2, 64), 64)
    """

    def __init__(self, depth: int, in_channels: int, stem: Stem = "large", width: int = 64, shift: int = 0):
        super().__init__()
        if depth not in _DEPTHS:
            raise ValueError(f"depth must be 18 or 50; got {depth}.")
        block, sizes = _DEPTHS[depth]
        self.augment = RandomShiftFlip(shift) if shift else nn.Identity()
        kernel, stride = (7, 2) if stem == "large" else (3, 1)
        self.conv1 = nn.Conv2d(in_channels, width, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if stem == "large" else nn.Identity()
        n_in = width
        for stage, blocks in enumerate(sizes):
            layers = []
            for i in range(blocks):
                layers.append(block(n_in, width * 2**stage, 2 if i == 0 and stage > 0 else 1))
                n_in = block.expansion * width * 2**stage
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.out_features = n_in

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.bn1(self.conv1(self.augment(x))).relu())
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return x.mean(dim=(2, 3))


def load_weights(body: nn.Module, path: Path) -> None:
    """Load pre-trained weights from a ``.safetensors`` or ``.pth`` file into a body, leaving out the head.

    Parameters
    ----------
    body : Module
        The network without its head.
    path : Path
        A state dict, or a checkpoint that holds one under "state_dict". Prefixes such as "module." or
        "backbone." before the first known name are ignored; "shortcut" in a name stands for "downsample".
    """
    if not path.exists():
        raise FileNotFoundError(f"the weights {path} do not exist; download them or leave weights out.")
    wanted = body.state_dict()
    given = {_without_prefix(name, wanted): value for name, value in _read(path).items()}
    missing = [name for name in wanted if name not in given and not name.endswith("num_batches_tracked")]
    if missing:
        raise ValueError(f"{path.name} has no {missing[0]!r} ({len(missing)} of {len(wanted)} are missing).")
    body.load_state_dict({name: value for name, value in given.items() if name in wanted}, strict=False)


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path))
    # weights_only: an untrusted checkpoint must not run code.
    state = torch.load(path, map_location="cpu", weights_only=True)
    return dict(state.get("state_dict", state))


def _without_prefix(name: str, wanted: dict[str, Any]) -> str:
    parts = name.replace(".shortcut.", ".downsample.").split(".")
    return next((key for i in range(len(parts)) if (key := ".".join(parts[i:])) in wanted), name)
