r"""Regrouping: create a pure region where negatives look like positives.

Every estimator of the largest possible share, :math:`\alpha^* = \inf_x p_u(x) / p_p(x)`, is too high if the
negatives cover the support of the positives. Regrouping counts the negatives among the best-scoring
unlabelled examples A as positives, so that A holds no negatives and the new problem has a pure region. It is
unknown which examples of A are negative, so all of A is copied:

.. math:: p_{p'} \propto p_p + \phi\, p_u(\cdot \mid A), \qquad \phi = P_u(A) .
"""

from __future__ import annotations

from sklearn.base import clone

from osls._core.saving import saveable
from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import BBE
from osls.mixture.sample import Sample


@saveable
class Regroup(MixtureEstimator):
    """ReMPE (also called ReCPE): copy the best-scoring unlabelled scores to the positives, then estimate.

    Parameters
    ----------
    base : MixtureEstimator, optional
        The estimator for the regrouped samples; BBE by default.
    fraction : float, default=0.1
        Share of the unlabelled sample to copy, and the copies' weight relative to all positives. The authors
        copy 0.1 of as many unlabelled as positive examples, which is the same.

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval, computed when first asked for.
    base_ : MixtureEstimator
        The estimator that was fitted to the regrouped samples.

    Notes
    -----
    The copy always lowers the estimate. That helps where the base estimator is too high. Where a pure region
    exists already, the copies count its positives twice: with a base that uses the purest bin, the estimate
    can be as low as alpha (1 + fraction) / (1 + alpha). So use it only where overlap is known, not as a
    default; the interval does not cover this bias.

    References
    ----------
    .. [1] Yao, Liu, Han, Gong, Niu, Sugiyama, Tao. Rethinking Class-Prior Estimation for
       Positive-Unlabeled Learning. ICLR 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import BBE, Regroup
    >>> rng = np.random.default_rng(0)
    >>> positive = rng.normal(1, 1, 2000)
    >>> unlabeled = np.r_[rng.normal(1, 1, 600), rng.normal(0.5, 1.5, 1400)]  # true share 0.3
    >>> plain, regrouped = BBE().fit(positive, unlabeled), Regroup(BBE()).fit(positive, unlabeled)
    >>> bool(0.3 < regrouped.alpha_ < plain.alpha_)
    True
    """

    base_: MixtureEstimator

    def __init__(self, base: MixtureEstimator | None = None, fraction: float = 0.1):
        self.base = base
        self.fraction = fraction

    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction must lie in (0, 1); got {self.fraction}.")
        best = unlabeled.highest_rows(max(1, int(self.fraction * unlabeled.n)))
        copies = best.scaled(self.fraction * positive.weights.sum() / best.weights.sum())
        self.base_ = BBE() if self.base is None else clone(self.base)
        self.base_.fit_samples(positive.joined(copies), unlabeled)
        self.alpha_ = self.base_.alpha_
