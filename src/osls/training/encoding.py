"""Rows as a network wants them: dense, float32, of comparable scale."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

from osls._core.arrays import AnyArray
from osls._core.saving import saveable

__all__ = ["Encoder", "Verbatim", "encoder_for"]

# Sparse input wider than this is compressed by a truncated SVD before a network sees it.
_MAX_DENSE_COLUMNS = 1024
_COMPONENTS = 256
_CLIP = 8.0


@saveable
class Encoder:
    """Standardise the columns of tables (dense or CSR) and scale the pixels of images.

    Fitted on source and target rows together, without labels.
    """

    def __init__(self, X: AnyArray):
        self._svd: TruncatedSVD | None = None
        if sparse.issparse(X) and X.shape[1] > _MAX_DENSE_COLUMNS:
            components = min(_COMPONENTS, min(X.shape) - 1)
            self._svd = TruncatedSVD(components, random_state=0).fit(X)
        dense = self._dense(X)
        # Of one encoded row.
        self.row_shape: tuple[int, ...] = dense.shape[1:]
        axes = 0 if dense.ndim == 2 else (0, 1, 2, 3)
        self._mean = dense.mean(axis=axes, dtype=np.float64).astype(np.float32)
        std = _spread(dense, self._mean, axes)
        # A column that hardly varies beside the others (a corner pixel) must not be blown up to unit noise.
        floor = 0.05 * float(np.mean(std)) if dense.ndim == 2 and self._comparable(std) else 0.0
        std = np.maximum(std, floor)
        self._scale = np.where(std > 0, std, 1.0).astype(np.float32)

    @staticmethod
    def _comparable(std: AnyArray) -> bool:
        """Columns in one unit (pixels, components, expression) rather than a table of mixed units."""
        positive = std[std > 0]
        return len(positive) >= 32 and float(np.quantile(positive, 0.9) / np.median(positive)) < 10

    def __call__(self, X: AnyArray) -> AnyArray:
        scaled = self._dense(X) - self._mean
        scaled /= self._scale
        return np.asarray(np.clip(scaled, -_CLIP, _CLIP, out=scaled))

    def get_state(self) -> dict[str, Any]:
        """Return what was fitted, by name."""
        return {"svd": self._svd, "row_shape": self.row_shape, "mean": self._mean, "scale": self._scale}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return an encoder as it was when :meth:`get_state` was called."""
        encoder = cls.__new__(cls)
        encoder._svd, encoder.row_shape = state["svd"], state["row_shape"]
        encoder._mean, encoder._scale = state["mean"], state["scale"]
        return encoder

    def _dense(self, X: Any) -> AnyArray:
        if self._svd is not None:
            X = self._svd.transform(X)
        elif sparse.issparse(X):
            X = X.toarray()
        return np.asarray(X, dtype=np.float32)


def _spread(dense: AnyArray, mean: AnyArray, axes: int | tuple[int, ...]) -> AnyArray:
    """Return the standard deviation along the axes, a few rows at a time: it needs double precision."""
    pieces = np.array_split(dense, 1 + len(dense) // 4096)
    total = sum(np.square(piece - mean.astype(np.float64)).sum(axis=axes) for piece in pieces)
    return np.asarray(np.sqrt(total / (dense.size / mean.size)))


@saveable
class Verbatim(Encoder):
    """Rows as they are: word numbers, say, which the network looks up."""

    def __init__(self, X: AnyArray) -> None:
        self._svd = None
        self.row_shape = X.shape[1:]

    def __call__(self, X: AnyArray) -> AnyArray:
        return self._dense(X)

    def get_state(self) -> dict[str, Any]:
        return {"row_shape": self.row_shape}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        encoder = cls.__new__(cls)
        encoder._svd, encoder.row_shape = None, state["row_shape"]
        return encoder


def encoder_for(factory: Any, X: AnyArray) -> Encoder:
    """Return the usual encoder of the rows, or none for a network factory with ``verbatim = True``."""
    return Verbatim(X) if getattr(factory, "verbatim", False) else Encoder(X)
