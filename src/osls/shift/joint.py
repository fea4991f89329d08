"""Joint estimate of all known shares, from one model of the k source classes *and* the target.

Class-wise BBE on a source classifier (Algorithm 2) counts for a known class every row that the classifier
takes for it, novel rows included. Here column k of a cross-fitted (k+1)-way model is the target itself, so
its outputs order the rows by p_j / p_t, which is the optimal order for finding a pure bin of class j. The
bins are then solved jointly, so that rows of one class in another class's bin are not counted twice. The
paper names this step, a direct estimate of the joint marginal, as future work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from osls._core.arrays import Floats, Ints
from osls.mixture.bbe import bbe_by_class
from osls.shift.programme import MixRange, mix_range

_TINY = 1e-6


class JointEstimate(NamedTuple):
    """Shares of the known classes, unnormalised, and their standard errors."""

    mix: Floats
    error: Floats


def joint_estimate(
    scores_source: Floats,
    y_source: Ints,
    scores_target: Floats,
    weight: Floats | None = None,
    *,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> JointEstimate:
    """Estimate the shares of the k known classes jointly, with standard errors for fixed bins.

    Parameters
    ----------
    scores_source : array of shape (n, k + 1)
        Out-of-fold probabilities of the (k+1)-way model for the source rows; the last column is the target.
    y_source : array of shape (n,)
        Class indices 0..k-1.
    scores_target : array of shape (m, k + 1)
        The same for the target rows.
    weight : array of shape (n,), optional
        How much each source row counts.
    delta, gamma : float
        As in BBE.
    """
    bins = _best_bins(scores_source, y_source, scores_target, weight, delta, gamma)
    counts = (bins.class_counts, bins.class_sizes, bins.target_counts, len(scores_target))
    mix = solve_bins(*counts, bins.alpha)
    if not mix.sum() > 0:
        mix = bins.alpha
    # Least squares with rows of unit variance: the covariance is the inverse of their cross products.
    rows = (bins.class_counts / bins.class_sizes) / _bin_errors(mix, *counts)[:, None]
    return JointEstimate(mix, np.sqrt(np.diag(np.linalg.pinv(rows.T @ rows))))


def joint_range(
    scores_source: Floats,
    y_source: Ints,
    scores_target: Floats,
    weight: Floats | None = None,
    *,
    level: float = 0.95,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> Floats:
    r"""Bounds for all shares, the novel one last, that hold at once with probability ``level``.

    The linear programme of :mod:`osls.shift.programme` over the same bins. Its slack is the
    Dvoretzky-Kiefer-Wolfowitz bands of the k + 1 samples along the k columns:
    :math:`\epsilon = \sqrt{\log(2k(k+1)/(1-level)) / 2n}` holds for every threshold, so the bins may be
    chosen on the same rows. The bins are assumed to hold nothing novel (strong positivity). If no mix fills
    them all, the range without this assumption is returned: only upper ends for the known classes and a lower
    end for the novel share.

    Parameters
    ----------
    scores_source, y_source, scores_target, weight, delta, gamma
        As in :func:`joint_estimate`.
    level : float, default=0.95
        Probability that all bounds hold.

    Returns
    -------
    array of shape (k + 1, 2)
    """
    bins = _best_bins(scores_source, y_source, scores_target, weight, delta, gamma)
    k, m = len(bins.class_sizes), len(scores_target)
    log = np.log(2 * k * (k + 1) / (1 - level))
    shares, target = bins.class_counts / bins.class_sizes, bins.target_counts / m
    class_slack = np.broadcast_to(np.sqrt(log / (2 * bins.class_sizes)), shares.shape)
    slack = np.full(k, np.sqrt(log / (2 * m)))
    try:
        range_ = mix_range(shares, target, slack, class_slack, pure=np.ones(k, dtype=bool))
    except ValueError:
        range_ = mix_range(shares, target, slack, class_slack)
    return _rows(range_)


class _Bins(NamedTuple):
    """The best bin of every class, and how many rows of each class and of the target it holds.

    Rows of unequal weight count as the number of equal ones that they are worth.
    """

    alpha: Floats
    class_counts: Floats
    class_sizes: Floats
    target_counts: Ints


def _best_bins(
    scores_source: Floats,
    y_source: Ints,
    scores_target: Floats,
    weight: Floats | None,
    delta: float,
    gamma: float,
) -> _Bins:
    k = scores_source.shape[1] - 1
    ratio_source, ratio_target = _class_to_target(scores_source), _class_to_target(scores_target)
    bins = bbe_by_class(ratio_source, y_source, ratio_target, weight, delta=delta, gamma=gamma)
    inside = ratio_source >= bins.threshold
    weight = np.ones(len(y_source)) if weight is None else weight
    order = np.argsort(y_source, kind="stable")
    first = np.searchsorted(y_source[order], np.arange(k))

    def by_class(values: Floats) -> Floats:
        return np.add.reduceat(values[order], first, axis=0)

    total = by_class(weight)
    sizes = total**2 / by_class(weight**2)
    shares = by_class(inside * weight[:, None]) / total[:, None]
    target_counts = (ratio_target >= bins.threshold).sum(axis=0)
    return _Bins(bins.alpha, shares.T * sizes, sizes, target_counts)


def _rows(bounds: MixRange) -> Floats:
    return np.asarray(np.clip(np.vstack([bounds.classes, bounds.novel]), 0.0, 1.0))


def solve_bins(
    class_counts: Floats, class_sizes: Floats, target_counts: Ints, target_size: int, start: Floats
) -> Floats:
    r"""Non-negative mix that explains the target's mass in every bin, up to sampling error.

    In pure bins :math:`\sum_j \pi_j p_j(b) = p_t(b)` holds for all b, the case of equality of the programme
    in :mod:`osls.shift.programme`. Sample shares deviate by noise, so each equation is divided by its
    standard error. A strict :math:`\le` would be fragile: if the target lacks class i, a single source row of
    class j in the bin of class i would force the share of class j to zero.

    Parameters
    ----------
    class_counts : array of shape (bins, k)
        Source rows of each class in each bin.
    class_sizes : array of shape (k,)
        Source rows of each class.
    target_counts : array of shape (bins,)
        Target rows in each bin.
    target_size : int
        Target rows.
    start : array of shape (k,)
        First guess, for the standard errors.
    """
    shares, target = class_counts / class_sizes, target_counts / target_size
    mix = start
    for _ in range(3):
        error = _bin_errors(mix, class_counts, class_sizes, target_counts, target_size)
        mix, _ = nnls(shares / error[:, None], target / error)
    return np.asarray(mix)


def _bin_errors(
    mix: Floats, class_counts: Floats, class_sizes: Floats, target_counts: Ints, target_size: int
) -> Floats:
    """Standard error of what a mix leaves unexplained in each bin."""
    # Add half a row, so that the error of an empty bin is not zero.
    smooth = (class_counts + 0.5) / (class_sizes + 1)
    smooth_target = (target_counts + 0.5) / (target_size + 1)
    variance = smooth_target * (1 - smooth_target) / target_size
    variance = variance + (mix**2 * smooth * (1 - smooth) / class_sizes).sum(axis=1)
    return np.asarray(np.sqrt(variance))


def domain_score(scores: Floats, mix: Floats) -> Floats:
    """P(source | x) if the source had the class mix ``mix`` and were as large as the target.

    The (k+1)-way model was trained with equal class weights, so any mix can be scored without training
    again: p'_s / p_t = sum_j mix_j p_j / p_t.
    """
    known = scores[:, :-1] @ mix
    return np.asarray(known / (known + scores[:, -1] + _TINY))


def _class_to_target(scores: Floats) -> Floats:
    known, target = scores[:, :-1], scores[:, -1:]
    return np.asarray(known / (known + target + _TINY))
