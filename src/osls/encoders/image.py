"""Images to features: EfficientNet-Lite0, a Hugging Face or timm model in a local folder, or any callable."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from osls._typing import AnyArray
from osls.encoders.base import Encoder
from osls.encoders.vision import Backbone, find_backbone

__all__ = ["ImageEncoder", "image_encoder"]


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
    batch_size: int = 64,
    device: str = "auto",
) -> ImageEncoder:
    """Return a frozen encoder of images.

    Parameters
    ----------
    name : "efficientnet", path or callable, default="efficientnet"
        EfficientNet-Lite0 (1280 features, weights in the extra ``encoders``); or a folder with a Hugging Face
        or timm model in safetensors format; or a function from images to an array.
    size : int, optional
        Side in pixels that images are resized to; 64 for EfficientNet, else the model's own.
    batch_size : int, default=64
        Images encoded at once.
    device : str, default="auto"
        A torch device.

    Returns
    -------
    ImageEncoder
        A callable that takes n images and returns a float32 array of shape (n, dim). Images are paths, or an
        array of shape (n, H, W, 3), (n, 3, H, W) or (n, H, W), of uint8 or of floats in [0, 1].

    Examples
    --------
    >>> from osls.encoders import image_encoder
    >>> image_encoder("efficientnet").dim
    1280
    """
    if callable(name):
        return ImageEncoder(name, name=getattr(name, "__qualname__", type(name).__name__))
    if batch_size < 1 or (size is not None and size < 8):
        raise ValueError(
            f"size must be at least 8 pixels, batch_size at least 1; got {size} and {batch_size}."
        )
    model = _VisionModel(find_backbone(name, size), batch_size, device)
    backbone = model.backbone
    return ImageEncoder(model, name=backbone.name, dim=backbone.dim, identity=lambda: model.identity)


class _VisionModel:
    """Resize, scale the pixels as in training, and run the network without its head."""

    def __init__(self, backbone: Backbone, batch_size: int, device: str):
        self.backbone = backbone
        self.batch_size = batch_size
        self.device = device

    @cached_property
    def identity(self) -> str:
        return f"image:{self.backbone.identity}:v1"

    @cached_property
    def _loaded(self) -> tuple[Any, Callable[[Any, Any], Any], Any]:
        import torch

        from osls.training.core import resolve_device

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
                parts.append(apply(network, batch).float().cpu().numpy())
        return np.concatenate(parts) if parts else np.zeros((0, self.backbone.dim or 0), dtype=np.float32)

    def _batch(self, images: Any) -> Any:
        """Return pixels as a float tensor (n, 3, size, size) in the scale of the network's training."""
        import torch

        size = self.backbone.size
        if not isinstance(images, np.ndarray):
            from osls.datasets.images import read_image

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
    """Bring images to (n, 3, H, W); grey ones get three equal channels."""
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
