"""Columns of any type to features."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls.app.tables.encoder import TableEncoder
    from osls.app.tables.pictures import PictureEncoder

__all__ = ["PictureEncoder", "TableEncoder"]

_HOME = {"PictureEncoder": "pictures", "TableEncoder": "encoder"}


def __getattr__(name: str) -> Any:
    # Resolved on first use: a command that only checks its input does not wait for scikit-learn.
    if name in _HOME:
        return getattr(import_module(f"osls.app.tables.{_HOME[name]}"), name)
    raise AttributeError(f"module 'osls.app.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
