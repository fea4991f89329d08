"""The share of positives from two summaries: BBE, Elkan-Noto and DEDPUL, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from osls._core.arrays import Floats, Ints
from osls.mixture import BBE, DEDPUL, ElkanNoto, MixtureEstimator
from osls.mixture.bbe import _dkw
from osls.mixture.bootstrap import _CLIPPED, _SMALL
from osls.mixture.dedpul import (
    _CELLS,
    _LARGEST_RATIO,
    _POINTS,
    _count,
    _density,
    _logits,
    _quantile_cells,
    _smooth_rising,
    em_share,
)
from osls.mixture.elkan_noto import _divide
from osls.streaming.counts import Cells, coarsen, scores_of
from osls.streaming.summary import ScoreSummary

__all__ = ["Share", "best_bin", "estimate_share", "share_from"]


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
    estimator : BBE, ElkanNoto or DEDPUL, optional
        The method and its parameters; BBE by default. It is not fitted.
    level : float, default=0.95
        Nominal coverage of the interval.
    n_boot : int, default=200
        Resamples behind it; 0 for no interval.
    random_state : int, default=0
        Their seed.

    Returns
    -------
    Share

    Notes
    -----
    While a summary is exact (no more distinct scores than its capacity) BBE and Elkan-Noto give what the
    estimators give on the scores. Beyond, Elkan-Noto remains exact with ``quantile=1``; BBE looks only at
    thresholds between cells, and DEDPUL takes each score for its cell's middle. With weights, a ``quantile``
    below 1 counts positives by how much their weights say, not by rows.

    A resample is multinomial over the cells, each taken for so many equal rows that its sum of squared
    weights is right.

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
    estimator = BBE() if estimator is None else estimator
    clone(estimator).fit([0.5], [0.5])  # says what is wrong with its parameters
    for name, summary in (("positive", positive), ("unlabeled", unlabeled)):
        if summary.n == 0:
            raise ValueError(f"{name} has seen no score; update it first.")
    alpha, threshold = _estimate(estimator, positive, unlabeled)
    interval = None
    if n_boot:
        interval = _interval(estimator, positive, unlabeled, alpha, level, n_boot, random_state)
    return Share(alpha, interval, level, threshold)


def best_bin(positive: Cells, unlabeled: Cells, bbe: BBE) -> tuple[float, int, int]:
    """BBE over the edges of cells: the share, and the level and number of the lowest cell of the top bin."""
    level = max(positive.level, unlabeled.level)
    p, u = coarsen(positive, level), coarsen(unlabeled, level)
    slack = (1 + bbe.gamma) * (_dkw(bbe.delta, u.effective_n) + _dkw(bbe.delta, p.effective_n))
    # As in the exact search: edges below positives are all that matters, and the highest wins a tie.
    edges = p.number[::-1]
    q_p, q_u = share_from(p, edges), share_from(u, edges)
    with np.errstate(divide="ignore"):
        best = int(np.argmin((q_u + slack) / q_p))
    return float(min(1.0, q_u[best] / q_p[best])), level, int(edges[best])


def share_from(cells: Cells, number: Ints | int) -> Floats:
    """Share of the mass in the cells from ``number`` (of the same level) upwards."""
    below = np.append(0.0, np.cumsum(cells.mass))
    return np.asarray(1 - below[np.searchsorted(cells.number, number)] / below[-1])


def _estimate(
    estimator: MixtureEstimator, positive: ScoreSummary, unlabeled: ScoreSummary
) -> tuple[float, float | None]:
    """The share, and BBE's threshold."""
    if isinstance(estimator, BBE):
        alpha, level, number = best_bin(positive.cells, unlabeled.cells, estimator)
        return alpha, float(scores_of(np.array([number << level]))[0])
    if isinstance(estimator, ElkanNoto):
        return _elkan_noto(estimator, positive, unlabeled), None
    if isinstance(estimator, DEDPUL):
        return _dedpul(estimator, positive, unlabeled), None
    raise TypeError(
        f"{type(estimator).__name__} cannot be estimated from summaries; use BBE, ElkanNoto or DEDPUL."
    )


def _elkan_noto(estimator: ElkanNoto, positive: ScoreSummary, unlabeled: ScoreSummary) -> float:
    if estimator.form == "ratio":
        odds = estimator.size_ratio * _divide(positive.mean, unlabeled.mean)
    elif estimator.form == "mean":
        odds = _divide(positive.mean, 1 - positive.mean)
    else:
        largest = _quantile((positive, unlabeled), estimator.quantile)
        odds = _divide(largest, 1 - largest)
    return float(min(1.0, _divide(estimator.size_ratio, odds)))


def _quantile(summaries: Sequence[ScoreSummary], quantile: float) -> float:
    """Quantile of the scores in all summaries, the lower of two neighbours."""
    if quantile == 1:
        return max(summary.range[1] for summary in summaries)
    position = np.concatenate([summary.positions for summary in summaries])
    order = np.argsort(position)
    rows = np.concatenate([summary.cells.rows for summary in summaries])[order]
    rank = np.floor(quantile * (rows.sum() - 1))
    return float(position[order][np.searchsorted(np.cumsum(rows), rank, side="right")])


def _dedpul(estimator: DEDPUL, positive: ScoreSummary, unlabeled: ScoreSummary) -> float:
    p, u = _logits(positive.positions), _logits(unlabeled.positions)
    low, high = min(p[0], u[0]), max(p[-1], u[-1])
    if low == high:
        return 1.0
    centres = np.linspace(low, high, _CELLS)
    u_count = _count(u, centres, unlabeled.cells.mass)
    f_p = _density(_count(p, centres, positive.cells.mass), centres, estimator.bandwidth_positive)
    f_u = _density(u_count, centres, estimator.bandwidth_unlabeled)
    at = _quantile_cells(u_count, min(unlabeled.n, _POINTS))
    ratio = np.minimum(f_p[at] / np.maximum(f_u[at], np.finfo(float).tiny), _LARGEST_RATIO)
    halfway = _logits((positive.mean + unlabeled.mean) / 2)
    ratio = _smooth_rising(ratio, free=int(np.sum(centres[at] < halfway)))
    return em_share(ratio, max_gap=estimator.max_gap, tol=estimator.tol, max_iter=estimator.max_iter)


def _interval(
    estimator: MixtureEstimator,
    positive: ScoreSummary,
    unlabeled: ScoreSummary,
    alpha: float,
    level: float,
    n_boot: int,
    seed: int,
) -> tuple[float, float]:
    """The interval of :mod:`osls.mixture.bootstrap`, from resampled counts."""
    if min(positive.range[0], unlabeled.range[0]) == max(positive.range[1], unlabeled.range[1]):
        return 0.0, 1.0
    rng = np.random.default_rng(seed)
    draws = np.array(
        [_estimate(estimator, positive.resampled(rng), unlabeled.resampled(rng))[0] for _ in range(n_boot)]
    )
    reach = np.abs(np.quantile(draws - alpha, [(1 - level) / 2, (1 + level) / 2])).max()
    sizes = positive.effective_n, unlabeled.effective_n
    if min(sizes) < _SMALL or np.mean((draws <= 0) | (draws >= 1)) > _CLIPPED:
        reach = max(reach, sum(np.sqrt(np.log(4 / (1 - level)) / (2 * size)) for size in sizes))
    return float(max(0.0, alpha - reach)), float(min(1.0, alpha + reach))
