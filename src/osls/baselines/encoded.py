"""Encoded rows as a plain table, for methods that are not networks."""

from __future__ import annotations

import numpy as np

from osls._core.arrays import AnyArray, Floats
from osls.training.predictors import Encoder


def as_table(encoder: Encoder, X: AnyArray) -> Floats:
    """Return encoded rows in double precision, those of images with one column for each pixel."""
    encoded = encoder(X)
    return encoded.reshape(len(encoded), -1).astype(np.float64)
