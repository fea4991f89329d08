"""The share of positives from two summaries, by any mixture estimator, with its bootstrap interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from osls.mixture import BBE, MixtureEstimator
from osls.streaming.counts import keys_of, scores_of
from osls.streaming.summary import ScoreSummary


@dataclass(frozen=True)
class Share:
    """An estimated share of positives.

    Attributes
    ----------
    alpha : float
        The estimate, in [0, 1].
    interval : tuple of float or None
        Its bootstrap interval.
    level : float
        The interval's level.
    threshold : float or None
        Where BBE's top bin begins.
    """

    alpha: float
    interval: tuple[float, float] | None
    level: float
    threshold: float | None = None


def estimate_share(
    positive: ScoreSummary,
    unlabeled: ScoreSummary,
    estimator: MixtureEstimator | None = None,
    *,
    level: float = 0.95,
    n_boot: int = 200,
    random_state: int = 0,
) -> Share:
    """Estimate the share of positives among unlabelled scores from summaries of the two samples.

    Parameters
    ----------
    positive : ScoreSummary
        Scores of held-out positives, weighted if they were re-weighted.
    unlabeled : ScoreSummary
        Scores of the unlabelled sample by the same model.
    estimator : MixtureEstimator, optional
        The method and its parameters; BBE by default. It is not fitted.
    level : float, default=0.95
        Nominal coverage of the interval.
    n_boot : int, default=200
        Number of resamples; 0 for no interval.
    random_state : int, default=0
        Seed of the resampling.

    Returns
    -------
    Share

    Notes
    -----
    While a summary is exact (no more distinct scores than its capacity), the estimate is the same as on the
    scores, except for the randomness of Subsample. Beyond that, each score is replaced by its cell's middle;
    mean, smallest and largest score stay exact. So Elkan-Noto remains exact with ``quantile=1``, and BBE
    uses only thresholds between cells. With weights, a ``quantile`` below 1 counts positives by their
    effective sample size, not by rows.

    A resample is multinomial over the cells. Each cell stands for as many equal rows as its sums of weights
    and of squared weights imply.

    Examples
    --------
    >>> from osls.streaming import ScoreSummary, estimate_share
    >>> positive = ScoreSummary().update([0.9, 0.8]).update([0.7, 0.6])
    >>> unlabeled = ScoreSummary().update([0.9, 0.7]).merge(ScoreSummary().update([0.2, 0.1]))
    >>> share = estimate_share(positive, unlabeled)
    >>> share.alpha, share.threshold
    (0.5, 0.6)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1); got {level}.")
    if n_boot < 0:
        raise ValueError(f"n_boot must not be negative; got {n_boot}.")
    fitted = clone(BBE() if estimator is None else estimator)
    fitted.fit([0.5], [0.5])  # raises an error if its parameters are invalid
    for name, summary in (("positive", positive), ("unlabeled", unlabeled)):
        if summary.n == 0:
            raise ValueError(f"{name} has seen no score; update it first.")
    # One grid for both, so that a threshold separates the same scores in each.
    grid = max(positive.counts.level, unlabeled.counts.level)
    fitted.fit_samples(positive.sample(grid), unlabeled.sample(grid))
    interval = fitted.interval(level, n_boot=n_boot, random_state=random_state) if n_boot else None
    threshold = getattr(fitted, "threshold_", None)
    if threshold is not None:
        threshold = float(scores_of(keys_of(np.array([threshold])) >> grid << grid)[0])
    return Share(float(fitted.alpha_), interval, level, threshold)
