"""The contract of every mixture proportion estimator: how much of the unlabelled sample is positive?"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import Floats
from osls.mixture.bootstrap import Scores, bootstrap_interval, thin

__all__ = ["MixtureEstimator", "check_probabilities", "check_scores"]


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


def check_probabilities(scores: Floats, name: str) -> None:
    """Complain about scores outside [0, 1]; say how to turn logits into probabilities."""
    low, high = float(scores.min()), float(scores.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"{name} must be probabilities in [0, 1] of being positive; got values from {low:g} to {high:g}. "
            "If these are logits, pass 1 / (1 + exp(-logits))."
        )


class MixtureEstimator(BaseEstimator):  # type: ignore[misc]
    """Estimate alpha in p_unlabelled = alpha * p_positive + (1 - alpha) * p_negative from scores.

    A score is any number that is larger for examples that look positive. Estimators that read more into it
    set ``_needs_probability``; those refuse scores outside [0, 1].

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval for it, computed when first asked for; see :meth:`interval`.
    """

    alpha_: float
    _scores: Scores
    _needs_probability = False

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
        if weight is not None and not weight.all():
            # Scores without weight say nothing; nor may they stretch a range or be all that is resampled.
            positive, weight = positive[weight > 0], weight[weight > 0]
        if self._needs_probability:
            check_probabilities(positive, "positive_scores")
            check_probabilities(unlabeled, "unlabeled_scores")
        self._fit(positive, unlabeled, weight)
        self._scores = thin(positive, unlabeled, weight)
        self.__dict__.pop("interval_", None)
        return self

    @abstractmethod
    def _fit(self, positive: Floats, unlabeled: Floats, weight: Floats | None) -> None:
        """Set ``alpha_`` and whatever else the method learns from validated scores."""

    def interval(
        self, level: float = 0.95, *, n_boot: int = 200, random_state: int = 0
    ) -> tuple[float, float]:
        """Bootstrap interval for ``alpha_``; see :mod:`osls.mixture.bootstrap` for the formula.

        Parameters
        ----------
        level : float, default=0.95
            Nominal coverage.
        n_boot : int, default=200
            Number of resamples, each an estimate on at most 10,000 scores a side.
        random_state : int, default=0
            Seed: the same scores give the same interval.

        Returns
        -------
        low, high : float
            At least as wide as the Dvoretzky-Kiefer-Wolfowitz band if a sample has fewer than 30 scores or
            the estimate sticks to 0 or 1; (0, 1) if all scores are equal.

        Notes
        -----
        It speaks of sampling noise alone. Where negatives hide among the best-scoring positives every
        estimator here is too high, and its interval too.
        """
        check_is_fitted(self)

        def estimate(positive: Floats, unlabeled: Floats, weight: Floats | None) -> float:
            replicate = clone(self)
            replicate._fit(positive, unlabeled, weight)
            return float(replicate.alpha_)

        return bootstrap_interval(
            estimate, self._scores, self.alpha_, level=level, n_boot=n_boot, random_state=random_state
        )

    @cached_property
    def interval_(self) -> tuple[float, float]:
        """The 95 % interval with the default settings."""
        return self.interval()

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
