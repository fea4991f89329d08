"""The contract of every mixture proportion estimator: how much of the unlabelled sample is positive?"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from osls._typing import Floats

__all__ = ["MixtureEstimator", "check_scores"]


def check_scores(scores: ArrayLike, name: str) -> Floats:
    """Return one-dimensional finite floating-point scores, or say which argument is wrong and how."""
    array = np.asarray(scores)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one score a row; got shape {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} is empty; pass at least one score.")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers, not {array.dtype}.")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    # A sum is one pass without a temporary; only a suspicious sum pays for the exact check.
    if not np.isfinite(array.sum(dtype=np.float64)) and not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinite values; drop or replace those rows.")
    return array


class MixtureEstimator(BaseEstimator):  # type: ignore[misc]
    """Estimate alpha in p_unlabelled = alpha * p_positive + (1 - alpha) * p_negative from scores.

    A score is any number that is larger for examples that look positive.
    """

    alpha_: float

    def fit(
        self,
        positive_scores: ArrayLike,
        unlabeled_scores: ArrayLike,
        positive_weight: ArrayLike | None = None,
    ) -> Self:
        """Estimate the share of positives among the unlabelled examples.

        Parameters
        ----------
        positive_scores : array-like of shape (n,)
            Scores of held-out positive examples.
        unlabeled_scores : array-like of shape (m,)
            Scores of unlabelled examples that the scoring model was not trained on.
        positive_weight : array-like of shape (n,), optional
            Importance weights of the positive examples (any scale).

        Returns
        -------
        self
        """
        positive = check_scores(positive_scores, "positive_scores")
        unlabeled = check_scores(unlabeled_scores, "unlabeled_scores")
        weight = None if positive_weight is None else _check_weight(positive_weight, len(positive))
        self._fit(positive, unlabeled, weight)
        return self

    @abstractmethod
    def _fit(self, positive: Floats, unlabeled: Floats, weight: Floats | None) -> None:
        """Set ``alpha_`` and whatever else the method learns from validated scores."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _check_weight(weight: ArrayLike, n: int) -> Floats:
    array = np.asarray(weight, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(
            f"positive_weight must have one entry for each of the {n} positive_scores; "
            f"got shape {array.shape}."
        )
    if not np.isfinite(array).all() or (array < 0).any() or array.sum() <= 0:
        raise ValueError("positive_weight must be finite, non-negative and not all zero.")
    return array
