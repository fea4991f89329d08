"""The one error of saving and loading."""

from __future__ import annotations

__all__ = ["ModelError", "in_short"]


class ModelError(ValueError):
    """A model that cannot be saved, or a folder that cannot or must not be loaded; the message says why."""


def in_short(error: BaseException) -> str:
    """Return what another library said, on one line and not at length."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said if len(said) <= 300 else said[:297] + '...'}"
