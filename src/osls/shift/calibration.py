"""Calibration of a classifier's probabilities on held-out rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from osls._typing import Floats, Ints

__all__ = ["fit_temperature", "scale"]

_FLOOR = 1e-3


def fit_temperature(proba: Floats, y: Ints) -> float:
    """Inverse temperature b of least log loss for probabilities proportional to p^b."""
    logits = np.log(np.maximum(proba, _FLOOR))
    rows = np.arange(len(y))

    def loss(log_beta: float) -> float:
        return -float(log_softmax(np.exp(log_beta) * logits, axis=1)[rows, y].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").x))


def scale(proba: Floats, inverse_temperature: float) -> Floats:
    """Sharpen (> 1) or soften (< 1) probabilities."""
    return np.asarray(softmax(inverse_temperature * np.log(np.maximum(proba, _FLOOR)), axis=1))
