"""Small problems on which the checks run: well separated classes, a second or less to fit."""

from __future__ import annotations

import numpy as np

from osls._typing import AnyArray, Floats, Ints
from osls.datasets.simulate import OSLSProblem, simulate_osls

__all__ = ["blobs", "calibrated_scores", "mixed_scores", "small_problem"]


def blobs(seed: int = 0, sizes: tuple[int, ...] = (120, 120, 120, 120)) -> tuple[AnyArray, Ints]:
    """Return rows and classes of up to five Gaussian classes in five dimensions, 6 standard deviations apart.

    Examples
    --------
    >>> from osls.testing import blobs
    >>> X, y = blobs(sizes=(20, 30))
    >>> X.shape, X.dtype.name, y.tolist().count(1)
    ((50, 5), 'float32', 30)
    """
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [6, 0], [0, 6], [6, 6], [12, 3]])[: len(sizes)]
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(y), 5))
    X[:, :2] += centres[y]
    return X.astype(np.float32), y


def small_problem() -> OSLSProblem:
    """Return the problem that most checks share: three known classes of 120 rows, one novel."""
    return simulate_osls(*blobs(), novel=[3], random_state=0)


def mixed_scores(seed: int, n: int, m: int, alpha: float) -> tuple[Floats, Floats]:
    """Return n scores of positives, and m of which a share alpha is positive and the rest scores lower."""
    rng = np.random.default_rng(seed)
    k = round(alpha * m)
    return rng.beta(6, 2, n), np.r_[rng.beta(6, 2, k), rng.beta(1, 6, m - k)]


def calibrated_scores(seed: int, n: int, m: int, alpha: float) -> tuple[Floats, Floats]:
    """Return scores of separable classes by a discriminator that knows alpha: 1 / (1 + alpha), or 0."""
    rng = np.random.default_rng(seed)
    k, c = round(alpha * m), 1 / (1 + alpha)
    noise = rng.uniform(-0.02, 0.02, n + k)
    return c + noise[:n], np.r_[c + noise[n:], np.zeros(m - k)]
