"""What a loader returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from osls._typing import AnyArray

__all__ = ["Labelled", "named_classes"]


@dataclass(frozen=True)
class Labelled:
    """Rows, their classes as numbers, and the names of the classes.

    ``X`` is a float32 table, a CSR matrix, or uint8 images of shape (n, height, width, 3). Unpacks as
    ``X, y = ...``.
    """

    X: AnyArray
    y: AnyArray
    class_names: tuple[str, ...]

    def __iter__(self) -> Iterator[AnyArray]:
        yield self.X
        yield self.y


def named_classes(y: AnyArray, names: Sequence[str] | AnyArray | None = None) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers where there are no names."""
    found = np.unique(y) if names is None or len(names) == 0 else names
    return tuple(str(name) for name in found)
