"""The base class of all mixture proportion estimators."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import Floats
from osls.mixture.bootstrap import bootstrap_interval, thin
from osls.mixture.sample import Sample, check_probabilities, check_scores


class MixtureEstimator(BaseEstimator):  # type: ignore[misc]
    """Estimate alpha in p_unlabelled = alpha * p_positive + (1 - alpha) * p_negative from scores.

    A score is any number that is larger for examples that look positive. Estimators that need probabilities
    set ``_needs_probability``; they raise an error for scores outside [0, 1].

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval for it, computed when first asked for; see :meth:`interval`.
    """

    alpha_: float
    # The (thinned) samples that the bootstrap resamples, and the factor that scales its spread to all scores.
    _samples: tuple[Sample, Sample]
    _shrink: float
    _needs_probability = False

    def fit(
        self,
        positive_scores: ArrayLike,
        unlabeled_scores: ArrayLike,
        positive_weight: ArrayLike | None = None,
        unlabeled_weight: ArrayLike | None = None,
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
        unlabeled_weight : array-like of shape (m,), optional
            The same for the unlabelled examples.

        Returns
        -------
        self
        """
        return self.fit_samples(
            _checked_sample(positive_scores, positive_weight, "positive"),
            _checked_sample(unlabeled_scores, unlabeled_weight, "unlabeled"),
        )

    def fit_samples(self, positive: Sample, unlabeled: Sample) -> Self:
        """Fit to two samples, which may be counts instead of rows (:mod:`osls.streaming`)."""
        if self._needs_probability:
            check_probabilities(positive.scores, "positive_scores")
            check_probabilities(unlabeled.scores, "unlabeled_scores")
        self._fit(positive, unlabeled)
        *samples, self._shrink = thin(positive, unlabeled)
        self._samples = (samples[0], samples[1])
        self.__dict__.pop("interval_", None)
        return self

    @abstractmethod
    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        """Set ``alpha_`` and whatever else the method learns from validated samples."""

    def interval(
        self, level: float = 0.95, *, n_boot: int = 200, random_state: int = 0
    ) -> tuple[float, float]:
        """Bootstrap interval for ``alpha_``; see :mod:`osls.mixture.bootstrap` for the formula.

        Parameters
        ----------
        level : float, default=0.95
            Nominal coverage.
        n_boot : int, default=200
            Number of resamples, each of at most 10,000 positive and 10,000 unlabelled scores.
        random_state : int, default=0
            Seed: the same scores give the same interval.

        Returns
        -------
        low, high : float
            At least as wide as the Dvoretzky-Kiefer-Wolfowitz band if a sample has fewer than 30 scores or
            many resamples give exactly 0 or 1; (0, 1) if all scores are equal.

        Notes
        -----
        The interval covers sampling noise only. Where negatives score as high as the best positives, every
        estimator here is too high, and so is its interval.
        """
        check_is_fitted(self)

        def estimate(positive: Sample, unlabeled: Sample) -> float:
            replicate = clone(self)
            replicate._fit(positive, unlabeled)
            return float(replicate.alpha_)

        return bootstrap_interval(
            estimate,
            self._samples,
            self.alpha_,
            shrink=self._shrink,
            level=level,
            n_boot=n_boot,
            random_state=random_state,
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


def _checked_sample(scores: ArrayLike, weight: ArrayLike | None, side: str) -> Sample:
    array = check_scores(scores, f"{side}_scores")
    if weight is None:
        return Sample(array)
    weights = _check_weight(weight, len(array), side)
    # Drop scores of weight zero: they must not widen the score range, or be the only rows of a resample.
    return Sample(array, weights) if weights.all() else Sample(array, weights).take(weights > 0)


def _check_weight(weight: ArrayLike, n: int, side: str) -> Floats:
    array = np.asarray(weight, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(
            f"{side}_weight must have one entry for each of the {n} {side}_scores; got shape {array.shape}."
        )
    if not np.isfinite(array).all() or (array < 0).any() or array.sum() <= 0:
        raise ValueError(f"{side}_weight must be finite, non-negative and not all zero.")
    return array
