r"""The largest bin that no smaller one contradicts: BBE's ratio, its bin chosen by Lepski's rule.

The ratio h(q) of the two shares in the top bin that holds a share q of the positives is alpha plus what the
negatives in it add, so it can only grow with q; its noise shrinks with q. BBE takes the bin with the smallest
upper bound. Where positives and negatives are well separated, many bins are nearly pure, and the one that
looks best is the one whose noise happens to be lowest: the estimate is then too low, and PULSE's novel share
too high. Here a bin is rejected only if a smaller one shows that negatives have entered it,

.. math:: h(q) > h(q') + z \sqrt{\sigma^2(q') - \sigma^2(q)} \quad \text{for some } q' < q ,

and the largest bin that is not rejected gives the estimate. For nested bins the root is the standard
deviation of the difference. With overlap the rule ends at small bins, as BBE does. With a few dozen rows the
ratios of small bins jump, and BBE, whose penalty is larger, is the safer choice.
"""

from __future__ import annotations

import numpy as np

from osls._core.arrays import Floats
from osls._core.saving import saveable
from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import BinCurve, Tail
from osls.mixture.sample import Sample

_BINS = 200


@saveable
class LargestBin(MixtureEstimator):
    """Share of positives among unlabelled examples, from the largest top bin that no smaller one contradicts.

    Parameters
    ----------
    z : float, default=2.0
        How many standard deviations a bin's ratio must exceed that of a smaller bin to be rejected.
    smallest : float, default=0.4
        The smallest bin holds at least this share of the positives. Smaller ones are too noisy to contradict
        anything, and there are many of them.

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval, computed when first asked for.
    threshold_ : float
        Lowest score of the bin.
    curve_ : BinCurve
        Ratio by threshold; ``upper_bound`` is the ratio plus ``z`` standard deviations.

    References
    ----------
    .. [1] Lepski. On a problem of adaptive estimation in Gaussian white noise. 1991.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import BBE, LargestBin
    >>> rng = np.random.default_rng(0)
    >>> positive = rng.uniform(0.3, 1, size=400)
    >>> unlabeled = np.r_[rng.uniform(0.3, 1, size=360), rng.uniform(0, 0.3, size=240)]  # 0.6 are positive
    >>> [round(float(estimator.fit(positive, unlabeled).alpha_), 2) for estimator in (BBE(), LargestBin())]
    [0.6, 0.6]
    """

    threshold_: float
    curve_: BinCurve

    def __init__(self, z: float = 2.0, smallest: float = 0.4):
        self.z = z
        self.smallest = smallest

    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        if not self.z > 0 or not 0 < self.smallest <= 1:
            raise ValueError(
                f"z must be positive and smallest lie in (0, 1]; got {self.z} and {self.smallest}."
            )
        thresholds = _thresholds(positive, self.smallest)
        q_p, variance_p = _shares(positive, thresholds)
        q_u, variance_u = _shares(unlabeled, thresholds)
        ratio = q_u / q_p
        variance = (variance_u + ratio**2 * variance_p) / q_p**2
        # Bins by size, the smallest first: does bin i contradict the larger bin j?
        apart = np.sqrt(np.maximum(variance[:, None] - variance[None, :], 0.0))
        contradicted = np.triu(ratio[None, :] > ratio[:, None] + self.z * apart, k=1).any(axis=0)
        best = int(np.flatnonzero(~contradicted)[-1])
        self.curve_ = BinCurve(thresholds, ratio, ratio + self.z * np.sqrt(variance), q_p, q_u)
        self.alpha_ = float(min(1.0, ratio[best]))
        self.threshold_ = float(thresholds[best])


def _thresholds(sample: Sample, smallest: float) -> Floats:
    """Lowest scores of at most ``_BINS`` top bins, from the one of share ``smallest`` to the one of all."""
    order = np.argsort(sample.scores)[::-1]
    held = np.cumsum(sample.weights[order])
    wanted = np.searchsorted(held, np.linspace(smallest, 1, _BINS) * held[-1])
    found = sample.scores[order][np.minimum(wanted, len(order) - 1)]
    return np.asarray(np.unique(found)[::-1])


def _shares(sample: Sample, thresholds: Floats) -> tuple[Floats, Floats]:
    """Share of the weight at or above each threshold, and the variance of that share."""
    share = Tail(sample).share_at_least(thresholds)
    squares = Tail(Sample(sample.scores, sample.squares)).share_at_least(thresholds)
    spread = (1 - share) ** 2 * squares + share**2 * (1 - squares)
    return share, spread / sample.effective_n
