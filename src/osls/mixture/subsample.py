r"""Subsampling: use what is known about some unlabelled examples.

Write :math:`p_u(x) = \alpha p_p(x) + (1 - \eta(x))\, p_u(x)` with eta the posterior of being positive. Keep
each unlabelled example with a probability :math:`a(x) \ge \eta(x)`. The kept ones have the density

.. math:: \tilde p_u(x) = \frac{a(x)\, p_u(x)}{c}
    = \frac{\alpha}{c}\, p_p(x) + \frac{a(x) - \eta(x)}{c}\, p_u(x),
    \qquad c = E_u[a(x)] ,

again a mixture with the same positives, of share alpha / c, but with fewer negatives. So c times any
estimate on the kept examples estimates alpha. Its limit is never higher than without subsampling, and it is
exact if a(x) = eta(x) for some x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import clone

from osls._core.arrays import Floats
from osls._core.saving import saveable
from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import BBE
from osls.mixture.sample import Sample


@saveable
class Subsample(MixtureEstimator):
    """SuMPE: thin out unlabelled examples that are known not to be positive too often, then estimate.

    Parameters
    ----------
    acceptance : callable, optional
        From scores to probabilities of keeping them, an *upper bound* on the posterior of being positive: 1
        where nothing is known. To pickle the estimator, pass a module-level function. By default 1
        everywhere, so the estimate is that of ``base``.
    base : MixtureEstimator, optional
        The estimator for the kept examples; BBE by default.
    n_draws : int, default=5
        Number of random subsamples; the median of their estimates is returned.
    random_state : int, default=0
        Seed of the subsampling.

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval, computed when first asked for.
    accepted_ : float
        c, the mean acceptance over the unlabelled sample.

    Notes
    -----
    The knowledge has to come from outside, for instance from a labelled source in which some
    scores hold negatives, or from a known ceiling on the posterior. Where ``acceptance`` is *below* the
    posterior, positives are discarded and the estimate is too low; with 1 everywhere the estimate is that of
    ``base``.

    References
    ----------
    .. [1] Zhu, Fjeldsted, Holland, Landon, Lintereur, Scott. Mixture Proportion Estimation Beyond
       Irreducibility. ICML 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import BBE, Subsample
    >>> rng = np.random.default_rng(0)
    >>> positive = rng.random(4000)
    >>> unlabeled = np.r_[rng.random(2000), rng.random(1000), np.zeros(1000)]  # half; 2 of 3 above zero
    >>> round(BBE().fit(positive, unlabeled).alpha_, 1)
    0.7
    >>> round(Subsample(lambda score: np.where(score > 0.5, 2 / 3, 1.0)).fit(positive, unlabeled).alpha_, 1)
    0.5
    """

    accepted_: float

    def __init__(
        self,
        acceptance: Callable[[Floats], Floats] | None = None,
        base: MixtureEstimator | None = None,
        n_draws: int = 5,
        random_state: int = 0,
    ):
        self.acceptance = acceptance
        self.base = base
        self.n_draws = n_draws
        self.random_state = random_state

    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        if self.n_draws < 1:
            raise ValueError(f"n_draws must be at least 1; got {self.n_draws}.")
        # Sorted, so that the rows kept for a given seed do not depend on the order of the input.
        unlabeled = unlabeled.in_order()
        keep = self._acceptance(unlabeled.scores)
        rng = np.random.default_rng(self.random_state)
        base = BBE() if self.base is None else self.base
        draws = []
        for _ in range(self.n_draws):
            kept = unlabeled.thinned(keep, rng)
            # If no row is kept, then none was likely to be positive.
            draws.append(clone(base).fit_samples(positive, kept).alpha_ if len(kept.scores) else 0.0)
        self.accepted_ = float(np.average(keep, weights=unlabeled.weight))
        self.alpha_ = float(self.accepted_ * np.median(draws))

    def _acceptance(self, scores: Floats) -> Floats:
        if self.acceptance is None:
            return np.ones(len(scores))
        keep = np.asarray(self.acceptance(scores), dtype=np.float64)
        if keep.shape != scores.shape or not ((keep >= 0) & (keep <= 1)).all():
            raise ValueError("acceptance must return one probability in [0, 1] for each score.")
        return keep
