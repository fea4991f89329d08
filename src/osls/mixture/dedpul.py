r"""DEDPUL: the ratio of two densities of scores, and an EM over the prior.

On the unlabelled scores let :math:`r = \hat f_p / \hat f_u` be the ratio of kernel densities, estimated on
the logits of the scores and smoothed so that it rises with the score. A share alpha gives an unlabelled
example the posterior :math:`\min(1, \alpha r)` of being positive, and EM iterates

.. math:: \alpha \leftarrow \frac{1}{m} \sum_{i=1}^m \min(1, \alpha\, r_i)

from alpha = 1 down to the first fixed point. If noise in the ratio leaves only a trivial fixed point, the
share where the gap :math:`\alpha - \frac1m \sum_i \min(1, \alpha r_i)` bends most is returned instead.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import median_filter
from scipy.signal import fftconvolve
from scipy.signal.windows import gaussian
from scipy.special import logit

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable
from osls.mixture.base import MixtureEstimator
from osls.mixture.sample import Sample

_EDGE = 1e-5  # scores are clipped to this distance from 0 and 1, so that their logits stay within 12
_CELLS = 1 << 13  # of the grid on which the densities are convolved
_POINTS = 1000  # quantiles of the unlabelled scores at which the ratio is computed
_LARGEST_RATIO = 50.0
_FORGET = 0.2  # credit that a peak loses for each later ratio below it


@saveable
class DEDPUL(MixtureEstimator):
    r"""Share of positives by the difference of estimated densities (Ivanov 2019).

    Parameters
    ----------
    bandwidth_positive : float, default=0.1
        Width of the kernel for the positive scores, in standard deviations of their logits.
    bandwidth_unlabeled : float, default=0.05
        The same for the unlabelled scores.
    max_gap : float, default=0.05
        Where EM finds no fixed point: the largest gap between a share and its mean posterior.
    tol : float, default=1e-5
        EM stops when a step is smaller.
    max_iter : int, default=1000
        Largest number of EM steps.

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval, computed when first asked for.
    ratio_ : ndarray
        The smoothed density ratio at equally spaced quantiles of the unlabelled scores, rising.

    Notes
    -----
    Scores must be probabilities of being positive; their densities are estimated on logits, so the answer
    depends on their scale (BBE's does not). The densities are convolved by FFT on a fixed grid and the ratio
    is computed at no more than 1,000 quantiles, so the cost is that of reading the scores once. Constant
    scores give alpha = 1, the trivial bound.

    The smoothing follows the author's code. Ratios are clipped at 50 and smoothed by a short running median.
    Above the point halfway between the two mean scores the ratio is made non-decreasing. A running median
    over a tenth of the sample follows. Then earlier peaks are kept as long as enough later ratios reach
    them.

    References
    ----------
    .. [1] Ivanov. DEDPUL: Difference-of-Estimated-Densities-based Positive-Unlabeled Learning.
       arXiv:1902.06965, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import DEDPUL
    >>> rng = np.random.default_rng(0)
    >>> unlabeled = np.r_[rng.beta(6, 2, 400), rng.beta(1, 6, 600)]
    >>> round(DEDPUL().fit(rng.beta(6, 2, 1000), unlabeled).alpha_, 1)
    0.4
    """

    ratio_: Floats
    _needs_probability = True

    def __init__(
        self,
        bandwidth_positive: float = 0.1,
        bandwidth_unlabeled: float = 0.05,
        max_gap: float = 0.05,
        tol: float = 1e-5,
        max_iter: int = 1000,
    ):
        self.bandwidth_positive = bandwidth_positive
        self.bandwidth_unlabeled = bandwidth_unlabeled
        self.max_gap = max_gap
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        if min(self.bandwidth_positive, self.bandwidth_unlabeled) <= 0:
            raise ValueError("bandwidth_positive and bandwidth_unlabeled must be positive.")
        halfway = (positive.mean + unlabeled.mean) / 2
        low = float(_logits(min(positive.lowest, unlabeled.lowest)))
        high = float(_logits(max(positive.highest, unlabeled.highest)))
        if low == high:
            self.ratio_, self.alpha_ = np.ones(1), 1.0
            return
        centres = np.linspace(low, high, _CELLS)
        p_count, u_count = _count(positive, centres), _count(unlabeled, centres)
        f_p = _density(p_count, centres, self.bandwidth_positive)
        f_u = _density(u_count, centres, self.bandwidth_unlabeled)
        at = _quantile_cells(u_count, min(unlabeled.n, _POINTS))
        ratio = np.minimum(f_p[at] / np.maximum(f_u[at], np.finfo(float).tiny), _LARGEST_RATIO)
        self.ratio_ = _smooth_rising(ratio, free=int(np.sum(centres[at] < _logits(halfway))))
        self.alpha_ = em_share(self.ratio_, max_gap=self.max_gap, tol=self.tol, max_iter=self.max_iter)


def _logits(scores: Floats | float) -> Floats:
    return np.asarray(logit(np.clip(np.asarray(scores, dtype=np.float64), _EDGE, 1 - _EDGE)))


def _count(sample: Sample, centres: Floats) -> Floats:
    """How much of a sample's weight is nearest to each cell's centre."""
    # Clipped because the centre of a histogram bin may lie outside the range of the scores in it.
    values = np.clip(_logits(sample.scores), centres[0], centres[-1])
    cell = ((values - centres[0]) / (centres[1] - centres[0]) + 0.5).astype(np.intp)
    return np.bincount(cell, weights=sample.weight, minlength=len(centres)).astype(np.float64)


def _density(count: Floats, centres: Floats, bandwidth: float) -> Floats:
    """Kernel density at the cells' centres, up to the cells' width, by convolution with a Gaussian."""
    share = count / count.sum()
    mean = share @ centres
    spread = np.sqrt(share @ (centres - mean) ** 2) / (centres[1] - centres[0])
    # Equal scores have no spread; half a cell keeps their density finite and in place.
    sigma = max(bandwidth * spread, 0.5)
    reach = min(int(np.ceil(6 * sigma)), len(count) - 1)
    kernel = gaussian(2 * reach + 1, sigma)
    return np.asarray(np.maximum(fftconvolve(share, kernel / kernel.sum(), mode="same"), 0.0))


def _quantile_cells(count: Floats, points: int) -> Ints:
    """Cells of equally spaced quantiles of a binned sample, rising; every score if ``points`` is its size."""
    ranks = (np.arange(points) + 0.5) / points * count.sum()
    return np.asarray(np.searchsorted(np.cumsum(count), ranks, side="right"))


def _smooth_rising(ratio: Floats, free: int) -> Floats:
    """Smooth a density ratio, given by rising score, into a rising one.

    Parameters
    ----------
    ratio : array of shape (points,)
        Ratios at equally spaced quantiles of the unlabelled scores.
    free : int
        How many of the first may fall; from there on the ratio is made to rise.
    """
    ratio = _running_median(ratio, 5)
    ratio[free:] = np.maximum.accumulate(ratio[free:])
    ratio = _running_median(ratio, len(ratio) // 20)
    return np.sort(_keep_peaks(ratio))


def _running_median(values: Floats, reach: int) -> Floats:
    """Median over ``reach`` neighbours on either side; near the ends over as many as there are on both."""
    reach = min(reach, (len(values) - 1) // 2)
    if reach == 0:
        return values.copy()
    smooth = median_filter(values, 2 * reach + 1, mode="nearest")
    smooth[:reach] = _median_of_beginnings(values[: 2 * reach], reach)
    smooth[-reach:] = _median_of_beginnings(values[: -2 * reach - 1 : -1], reach)[::-1]
    return np.asarray(smooth)


def _median_of_beginnings(values: Floats, n: int) -> Floats:
    """Medians of the first 1, 3, ..., 2n - 1 values: the rest are replaced by as many +inf as -inf."""
    column = np.arange(2 * n - 1)
    padding = np.where(column % 2 == 0, -np.inf, np.inf)
    inside = column <= 2 * np.arange(n)[:, None]
    return np.asarray(np.median(np.where(inside, values[: 2 * n - 1], padding), axis=1))


def _keep_peaks(ratio: Floats) -> Floats:
    """Raise each ratio to the largest earlier one that still has credit.

    A ratio enters with a credit of one, gains one whenever a later ratio reaches it and loses a fifth
    whenever one falls short; without credit it is forgotten.
    """
    # Only a ratio that some later one falls short of can raise anything.
    later_low = np.minimum.accumulate(ratio[::-1])[::-1]
    peaks = np.flatnonzero(ratio[:-1] > later_low[1:])
    if len(peaks) == 0:
        return ratio
    height, column = ratio[peaks, None], np.arange(len(ratio))
    change = np.where(ratio >= height, 1.0, -_FORGET)
    change[column <= peaks[:, None]] = 0.0
    remembered = np.minimum.accumulate(1 + np.cumsum(change, axis=1), axis=1) > 0
    remembered &= column >= peaks[:, None]
    highest = np.where(remembered[:, :-1], height, -np.inf).max(axis=0)
    return np.append(ratio[0], np.maximum(ratio[1:], highest))


def em_share(
    ratio: Floats, *, max_gap: float = 0.05, tol: float = 1e-5, max_iter: int = 1000, step: float = 1e-3
) -> float:
    """The share of positives that agrees with its own mean posterior.

    Parameters
    ----------
    ratio : array of shape (points,)
        Density ratios of positives to unlabelled at unlabelled scores.
    max_gap, tol, max_iter : float, float, int
        As in :class:`DEDPUL`.
    step : float, default=1e-3
        Step of the grid on which the bend is searched for.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture.dedpul import em_share
    >>> em_share(np.repeat([0.0, 2.0], 50))
    0.5
    """
    ratio = np.sort(ratio)
    if ratio[-1] < 1:
        # No posterior is ever clipped, so EM would shrink alpha to 0: return its first step instead.
        return float(ratio.mean())
    head, n = np.append(0.0, np.cumsum(ratio)), len(ratio)

    def mean_posterior(share: Floats) -> Floats:
        below = np.searchsorted(ratio, 1 / np.maximum(share, 1e-12))
        return np.asarray((share * head[below] + n - below) / n)

    share = 1.0
    for _ in range(max_iter):
        mean = float(mean_posterior(np.asarray(share)))
        if abs(share - mean) < tol or share * ratio[-1] < 1:
            break
        share = mean
    novel = np.arange(0, 1, step)
    gap = (1 - novel) - mean_posterior(1 - novel)
    allowed = np.flatnonzero(gap[1:-1] < max_gap)
    bend = 1 - novel[1:-1][allowed[np.argmax(np.diff(gap, 2)[allowed])]]
    converged = bend <= share or (np.sum(gap < 0) > 1 and share > step)
    return float(share if converged else bend)
