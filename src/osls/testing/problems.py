"""The adapter under test: fresh copies of it, and one fit that the checks share."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from osls._core.arrays import AnyArray, Floats, Ints
from osls.base import OpenSetAdapter
from osls.datasets.simulate import OSLSProblem, simulate_osls

__all__ = ["Subject", "blobs", "calibrated_scores", "mixed_scores", "small_problem"]


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


class Subject:
    """An adapter, whoever wrote it.

    Copies are scikit-learn's clones where there are parameters to clone by, and deep copies otherwise. A
    ``random_state`` that is no fixed number is set to 0, since most promises are about the same seed.
    """

    def __init__(self, estimator: Any):
        self.name = type(estimator).__name__
        self._unfitted = self.copy(estimator)
        parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
        if "random_state" in parameters and not isinstance(parameters["random_state"], int):
            self._unfitted.set_params(random_state=0)

    @staticmethod
    def copy(estimator: Any) -> Any:
        """Return an unfitted adapter with the same parameters."""
        return clone(estimator) if hasattr(estimator, "get_params") else deepcopy(estimator)

    @property
    def inherits(self) -> bool:
        """Whether the validation and the published attributes come from OpenSetAdapter."""
        return isinstance(self._unfitted, OpenSetAdapter)

    def fresh(self) -> Any:
        """Return an adapter that nobody has fitted."""
        return self.copy(self._unfitted)

    @cached_property
    def problem(self) -> OSLSProblem:
        """Three known classes and a novel one, far apart."""
        return small_problem()

    @cached_property
    def given(self) -> dict[str, AnyArray]:
        """Copies of the problem's arrays; what ``fitted`` was fitted to."""
        return {key: value.copy() for key, value in self.problem.training_data().items()}

    @cached_property
    def fitted(self) -> Any:
        """The adapter, fitted to the problem; checks must not change it."""
        return self.fresh().fit(**self.given)

    def fit(self, **changes: Any) -> Any:
        """Return a fresh adapter fitted to the problem with other arguments."""
        return self.fresh().fit(**{**self.problem.training_data(), **changes})
