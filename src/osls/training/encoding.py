"""Rows as a network wants them: dense, float32, of comparable scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

from osls._typing import AnyArray

__all__ = ["Encoder"]

# Sparse input wider than this is compressed by a truncated SVD before a network sees it.
_MAX_DENSE_COLUMNS = 1024
_COMPONENTS = 256
_CLIP = 8.0


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
        axes = 0 if dense.ndim == 2 else (0, 1, 2, 3)
        self._mean = dense.mean(axis=axes, dtype=np.float64).astype(np.float32)
        std = dense.std(axis=axes, dtype=np.float64)
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
        scaled = (self._dense(X) - self._mean) / self._scale
        return np.asarray(np.clip(scaled, -_CLIP, _CLIP, out=scaled))

    def _dense(self, X: Any) -> AnyArray:
        if self._svd is not None:
            X = self._svd.transform(X)
        elif sparse.issparse(X):
            X = X.toarray()
        return np.asarray(X, dtype=np.float32)
