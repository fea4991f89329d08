r"""Best Bin Estimation (Algorithms 2 and 4 of the paper).

With q(c) the share of a sample that scores at least c, BBE looks for the *top bin* [c, 1] that holds
(almost) only positives and returns the ratio of the two shares there,

.. math:: \hat\alpha = \hat q_u(\hat c) / \hat q_p(\hat c), \qquad
    \hat c = \arg\min_c \frac{\hat q_u(c) + (1 + \gamma)\,\epsilon}{\hat q_p(c)}, \qquad
    \epsilon = \sqrt{\frac{\log(4/\delta)}{2 n_u}} + \sqrt{\frac{\log(4/\delta)}{2 n_p}} .

(Algorithm 4 as printed swaps the two shares in its definition; its step 3 and the text are right.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from osls._core.arrays import Floats, dkw_radius
from osls._core.saving import saveable
from osls.mixture.base import MixtureEstimator
from osls.mixture.by_class import ClassShares, fit_by_class
from osls.mixture.sample import Sample

# Thresholds of the coarse grid; samples with fewer thresholds are searched completely.
_COARSE = 2048


@saveable
class BinCurve(NamedTuple):
    """The criterion that BBE minimised, by threshold, from the smallest top bin to the largest."""

    threshold: Floats
    ratio: Floats
    upper_bound: Floats
    positive_share: Floats
    unlabeled_share: Floats


@saveable
class BBE(MixtureEstimator):
    r"""Best Bin Estimation of the share of positives among unlabelled examples.

    Parameters
    ----------
    delta : float, default=0.1
        Level of the confidence term.
    gamma : float, default=0.01
        Its inflation.

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval, computed when first asked for.
    threshold_ : float
        Lowest score of the top bin.
    upper_bound_ : float
        The minimised upper confidence bound, at most 1.
    curve_ : BinCurve
        The criterion by threshold. Samples of more than a few thousand positives are searched by
        branch and bound; their curve is the coarse grid and every threshold that was refined.

    Notes
    -----
    Between two neighbouring positive scores only the unlabelled share changes, and it falls as the
    threshold rises; so the positive scores are all the thresholds that matter. Constant scores carry
    no information and give alpha = 1, the trivial bound.

    References
    ----------
    .. [1] Garg, Wu, Smola, Balakrishnan, Lipton. Mixture Proportion Estimation and PU Learning:
       A Modern Approach. NeurIPS 2021.

    Examples
    --------
    >>> from osls.mixture import BBE
    >>> bbe = BBE().fit([0.9, 0.8, 0.7, 0.6], [0.9, 0.7, 0.2, 0.1])
    >>> bbe.alpha_, bbe.threshold_
    (0.5, 0.6)
    """

    threshold_: float
    upper_bound_: float
    curve_: BinCurve

    def __init__(self, delta: float = 0.1, gamma: float = 0.01):
        self.delta = delta
        self.gamma = gamma

    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        if not 0 < self.delta < 1 or not 0 <= self.gamma < 1:
            raise ValueError(f"delta and gamma must lie in (0, 1); got {self.delta} and {self.gamma}.")
        tail_p, tail_u = _Tail(positive), _Tail(unlabeled)
        bands = [dkw_radius(sample.effective_n, self.delta) for sample in (unlabeled, positive)]
        slack = (1 + self.gamma) * sum(bands)

        def evaluate(thresholds: Floats) -> BinCurve:
            q_p, q_u = tail_p.share_at_least(thresholds), tail_u.share_at_least(thresholds)
            return BinCurve(thresholds, q_u / q_p, (q_u + slack) / q_p, q_p, q_u)

        self.curve_ = _refine(evaluate, tail_p.distinct_descending, slack)
        best = int(np.argmin(self.curve_.upper_bound))
        self.alpha_ = float(min(1.0, self.curve_.ratio[best]))
        self.threshold_ = float(self.curve_.threshold[best])
        self.upper_bound_ = float(min(1.0, self.curve_.upper_bound[best]))


class _Tail:
    """The share of a (weighted) sample at or above a threshold."""

    def __init__(self, sample: Sample):
        if sample.weight is None:
            self.scores = np.sort(sample.scores)
            self.cumulative = None
        else:
            order = np.argsort(sample.scores)
            self.scores = sample.scores[order]
            self.cumulative = np.append(0.0, np.cumsum(sample.weight[order]))
            self.cumulative /= self.cumulative[-1]

    @property
    def distinct_descending(self) -> Floats:
        """The scores of positive weight, in descending order: the candidate thresholds."""
        scores = self.scores
        if self.cumulative is not None:
            scores = scores[np.diff(self.cumulative) > 0]
        return scores[::-1]

    def share_at_least(self, thresholds: Floats) -> Floats:
        below = np.searchsorted(self.scores, thresholds, side="left")
        if self.cumulative is None:
            return np.asarray(1 - below / len(self.scores))
        return np.asarray(1 - self.cumulative[below])


def _refine(evaluate, thresholds: Floats, slack: float) -> BinCurve:  # type: ignore[no-untyped-def]
    """Minimise the upper bound over all thresholds exactly, by branch and bound.

    Inside a block of thresholds both shares are monotone, so (share of unlabelled at its first +
    slack) / (share of positives at its last) bounds the criterion from below. Only blocks whose
    bound beats the best value seen are opened.
    """
    step = -(-len(thresholds) // _COARSE)
    corners = np.append(np.arange(0, len(thresholds) - 1, step), len(thresholds) - 1)
    curve: BinCurve = evaluate(thresholds[corners])
    if step > 1:
        floor = (curve.unlabeled_share[:-1] + slack) / curve.positive_share[1:]
        opened = np.flatnonzero(floor < curve.upper_bound.min())
        wanted = np.zeros(len(thresholds), dtype=bool)
        wanted[corners] = True
        for block in opened:
            wanted[corners[block] : corners[block + 1]] = True
        curve = evaluate(thresholds[np.flatnonzero(wanted)])
    first = np.append(True, curve.threshold[1:] != curve.threshold[:-1])
    return BinCurve(*(column[first] for column in curve))


@dataclass(frozen=True)
class BestBins(ClassShares):
    """What Algorithm 2 finds for each of the k known classes: shares, and the bins they were read from."""

    threshold: Floats
    upper_bound: Floats


def bbe_by_class(
    proba_source: ArrayLike,
    y_source: ArrayLike,
    proba_target: ArrayLike,
    weight: Floats | None = None,
    *,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> BestBins:
    """Algorithm 2: one BBE per class, on the columns of a k-way classifier's output.

    Parameters
    ----------
    proba_source : array-like of shape (n, k)
        Held-out source scores; column j scores class j.
    y_source : array-like of shape (n,)
        Class indices 0..k-1.
    proba_target : array-like of shape (m, k)
        Target scores of the same classifier.
    weight : array of shape (n,), optional
        How much each source row counts.
    delta, gamma : float
        As in :class:`BBE`.

    Returns
    -------
    BestBins
        Unnormalised shares of the target by class, and the bins they were read from.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import bbe_by_class
    >>> source = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
    >>> target = np.array([[0.9, 0.1], [0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
    >>> bbe_by_class(source, [0, 0, 1, 1], target).marginal
    array([0.75, 0.25])
    """
    mixture = BBE(delta=delta, gamma=gamma)
    fits = fit_by_class(proba_source, y_source, proba_target, mixture, weight)
    return BestBins(
        alpha=np.array([f.alpha_ for f in fits]),
        threshold=np.array([f.threshold_ for f in fits]),
        upper_bound=np.array([f.upper_bound_ for f in fits]),
    )
