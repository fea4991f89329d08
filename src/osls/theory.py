r"""The paper's guarantees for Best Bin Estimation as functions, with the constants that its proofs imply.

For one class let q_p(c) and q_u(c) be the shares of the class and of the target that score at least c,
c* = argmin q_u / q_p, alpha* = q_u(c*) / q_p(c*) <= 1, and let the Dvoretzky-Kiefer-Wolfowitz bands
|q^ - q| <= eps hold for both samples, all thresholds at once. The proof of Theorem 1 gives in three steps:

1. The chosen bin is not too small, q^_p(c^) >= gamma / (2 + gamma) * q^_p(c*).
2. Not too high: alpha^ <= alpha* + (2 + gamma) / q^_p(c*) * (eps_u + eps_p).
3. Not too low: q_u(c^) >= alpha* q_p(c^) gives alpha^ >= alpha* - (eps_u + alpha* eps_p) / q^_p(c^), and with
   the first step alpha^ >= alpha* - (2 + gamma) / (gamma q^_p(c*)) * (eps_u + eps_p).

With n, m >= 2 log(4/delta) / q_p(c*)^2 also q^_p(c*) >= q_p(c*) / 2, hence

.. math:: |\hat\alpha - \alpha^*| \le \frac{4 + 2\gamma}{\gamma\, q_p(c^*)}\,(\epsilon_u + \epsilon_p) .

(The paper prints a factor 5 + 2 gamma on eps_p in step 3. It bounds the *empirical* ratio at c^ where its
inequality has the population's; the step above needs neither, and is tighter.) At the default gamma = 0.01
the constant is 402 / q_p(c*): the theorem gives the rate; :func:`bbe_interval` gives usable numbers.

References
----------
.. [1] Garg, Balakrishnan, Lipton. Domain Adaptation under Open Set Label Shift. NeurIPS 2022, Theorems 1
   and 3 (the latter in the appendix, "Extension of Theorem 1").
.. [2] Massart. The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality. Ann. Probab. 1990.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from osls._core.arrays import Floats, dkw_radius, effective_size
from osls.mixture.sample import check_scores

__all__ = ["Bound", "Interval", "bbe_interval", "dkw_radius", "theorem1_bound", "theorem3_bound"]


class Bound(NamedTuple):
    """An error bound: the bias of impure bins (or wrong weights), and the deviation by sampling."""

    bias: float
    deviation: float

    @property
    def total(self) -> float:
        """Sum of bias and deviation."""
        return self.bias + self.deviation


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def theorem1_bound(
    p_target: ArrayLike,
    top_class: ArrayLike,
    top_rest: ArrayLike,
    n_by_class: ArrayLike,
    m: int,
    *,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> Bound:
    r"""Theorem 1: sum over the known classes of the error of class-wise BBE, before normalisation.

    .. math:: \|\hat p_t - p_t\|_1 \le \sum_j (1 - p_t(j)) \frac{q_{-j}(c^*_j)}{q_j(c^*_j)} +
        \sum_j \frac{4 + 2\gamma}{\gamma\, q_j(c^*_j)} \left( \sqrt{\frac{\log(4k/\delta)}{2m}} +
        \sqrt{\frac{\log(4k/\delta)}{2 n_j}} \right)

    with probability 1 - delta, if every BBE runs with delta / k. It bounds the error of the novel share,
    one minus their sum, too.

    Parameters
    ----------
    p_target : array-like of shape (k,)
        True shares of the known classes in the target.
    top_class, top_rest : array-like of shape (k,)
        Population shares of class j, and of everything else in the target, in class j's best bin.
    n_by_class : array-like of shape (k,)
        Number of source examples of each class.
    m : int
        Number of target examples.
    delta, gamma : float
        As in BBE; gamma must be positive here.

    Returns
    -------
    Bound
        The deviation is infinite where the theorem does not apply: with fewer than
        2 log(4k/delta) / q_j(c*)^2 examples of a class or of the target.

    Examples
    --------
    >>> bound = theorem1_bound([0.3, 0.3], [0.5, 0.5], [0.0, 0.01], [10**8, 10**8], 10**8)
    >>> round(bound.bias, 3), round(bound.deviation, 3)
    (0.014, 0.476)
    """
    _check_delta(delta)
    p = _shares(p_target, "p_target")
    q, rest = _shares(top_class, "top_class", len(p)), _shares(top_rest, "top_rest", len(p))
    n = np.asarray(n_by_class, dtype=np.float64)
    if n.shape != p.shape:
        raise ValueError(f"n_by_class must have one count for each of the {len(p)} classes; got {n.shape}.")
    if p.sum() > 1 + 1e-9:
        raise ValueError(f"p_target holds the known classes only and cannot sum to {p.sum():.3g} > 1.")
    if not (q > 0).all():
        raise ValueError("top_class must be positive: a bin without rows of its class gives no estimate.")
    deviations = [_deviation(q[j], float(n[j]), m, delta / len(p), gamma) for j in range(len(p))]
    return Bound(float(((1 - p) * rest / q).sum()), float(sum(deviations)))


def theorem3_bound(
    novel: float,
    top_known: float,
    top_reweighted: float,
    top_novel: float,
    n: int,
    m: int,
    *,
    delta: float = 0.1,
    gamma: float = 0.01,
) -> Bound:
    r"""Theorem 3: error of the novel share from the domain discriminator's best bin.

    .. math:: |\hat p_t(k+1) - p_t(k+1)| \le (1 - p_t(k+1)) \frac{|q'_s(c^*) - \tilde q'_s(c^*)|}
        {\tilde q'_s(c^*)} + p_t(k+1) \frac{q_{k+1}(c^*)}{\tilde q'_s(c^*)} +
        \frac{4 + 2\gamma}{\gamma\, \tilde q'_s(c^*)} \left( \sqrt{\frac{\log(4/\delta)}{2m}} +
        \sqrt{\frac{\log(4/\delta)}{2n}} \right)

    with probability 1 - delta. Take c* = argmin of the target's share over the re-weighted source's, which
    is what BBE looks for. The paper takes the minimum of q_{k+1} over it instead: the same bin if the
    weights are right; if they are wrong, its first term can be zero there and the bound false.

    Parameters
    ----------
    novel : float
        True novel share.
    top_known, top_reweighted, top_novel : float
        Population shares in the best bin: of the known part of the target, of the source as re-weighted
        by the *estimated* class mix, and of the novel class.
    n, m : int
        Numbers of re-sampled source and of target examples.
    delta, gamma : float
        As in :func:`theorem1_bound`.

    Examples
    --------
    >>> bound = theorem3_bound(0.2, 0.5, 0.48, 0.01, 10**8, 10**8)
    >>> round(bound.bias, 3), round(bound.deviation, 3)
    (0.038, 0.227)
    """
    shares = [novel, top_known, top_reweighted, top_novel]
    novel, known, source, impurity = _shares(shares, "novel, top_known, top_reweighted, top_novel").tolist()
    if not source > 0:
        raise ValueError("top_reweighted must be positive: a bin without source rows gives no estimate.")
    bias = (1 - novel) * abs(known - source) / source + novel * impurity / source
    return Bound(float(bias), _deviation(source, n, m, delta, gamma))


def bbe_interval(
    positive_scores: ArrayLike,
    unlabeled_scores: ArrayLike,
    delta: float = 0.1,
    *,
    pure_bin: float = 0.25,
    positive_weight: ArrayLike | None = None,
) -> Interval:
    r"""Finite-sample interval for the share of positives among unlabelled examples (conservative).

    The unlabelled rows include the positives, alpha q_p(c) <= q_u(c), so with probability 1 - delta

    .. math:: \alpha \le \min_c \frac{\hat q_u(c) + \epsilon_u}{\hat q_p(c) - \epsilon_p}

    whatever the scores are. No data can bound alpha from below without an assumption (see
    :mod:`osls.identifiability`). If the top bin that holds the share ``pure_bin`` of the positives has no
    negatives, so has every bin inside it, and there alpha q_p = q_u:

    .. math:: \alpha \ge \max_{c:\ \hat q_p(c) + \epsilon_p < \text{pure\_bin}}
        \frac{\hat q_u(c) - \epsilon_u}{\hat q_p(c) + \epsilon_p} .

    Parameters
    ----------
    positive_scores, unlabeled_scores : array-like of shape (n,) and (m,)
        Scores of held-out examples, larger for what looks positive.
    delta : float, default=0.1
        The interval misses alpha with at most this probability; both ends hold together.
    pure_bin : float in [0, 1], default=0.25
        Share of the positives that is assumed to score above every negative; 0 assumes nothing and gives
        the lower end 0. So does a value below eps (with only a few hundred examples).
    positive_weight : array-like of shape (n,), optional
        Importance weights. The bands then use the effective sample size, which is an approximation.

    Returns
    -------
    Interval

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> positive = rng.uniform(0, 1, 20_000)
    >>> unlabeled = np.where(rng.random(20_000) < 0.4, rng.uniform(0, 1, 20_000), rng.uniform(0, 0.5, 20_000))
    >>> low, high = bbe_interval(positive, unlabeled, pure_bin=0.5)
    >>> round(low, 2), round(high, 2)
    (0.37, 0.42)
    """
    low, high = _purity_ends(positive_scores, unlabeled_scores, delta, pure_bin, positive_weight)
    # Ends that contradict each other disprove the pure bin; without it only the upper end is left.
    return Interval(low if low <= high else 0.0, high)


def bbe_contradiction(
    positive_scores: ArrayLike,
    unlabeled_scores: ArrayLike,
    delta: float = 0.1,
    *,
    pure_bin: float = 0.25,
    positive_weight: ArrayLike | None = None,
) -> float:
    """By how much the lower end of :func:`bbe_interval` exceeds the upper one; at most zero if they agree.

    A positive value has a probability of at most ``delta`` if the positives look alike on both sides and the
    bin is pure: more of the unlabelled rows look like the best positives than any share of them explains.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> positive, copies = rng.uniform(0, 1, 5000), rng.uniform(0.9, 1, 1000)
    >>> bbe_contradiction(positive, np.append(copies, rng.uniform(0, 0.5, 1000))) > 0
    True
    """
    low, high = _purity_ends(positive_scores, unlabeled_scores, delta, pure_bin, positive_weight)
    return low - high


def _purity_ends(
    positive_scores: ArrayLike,
    unlabeled_scores: ArrayLike,
    delta: float,
    pure_bin: float,
    positive_weight: ArrayLike | None,
) -> tuple[float, float]:
    """The two ends of :func:`bbe_interval`, each on its own."""
    if not 0 <= pure_bin <= 1:
        raise ValueError(f"pure_bin must lie in [0, 1]; got {pure_bin}.")
    positive = check_scores(positive_scores, "positive_scores")
    unlabeled = np.sort(check_scores(unlabeled_scores, "unlabeled_scores"))
    weight = np.ones(len(positive)) if positive_weight is None else np.asarray(positive_weight, np.float64)
    if weight.shape != positive.shape or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            f"positive_weight must hold one finite, non-negative weight for each of the {len(positive)} "
            f"positive_scores; got shape {weight.shape}."
        )
    if weight.sum() <= 0:
        raise ValueError("positive_weight must not be all zero.")
    eps_p = dkw_radius(effective_size(weight), delta)
    eps_u = dkw_radius(len(unlabeled), delta)
    order = np.argsort(positive)
    positive, below = positive[order], np.append(0.0, np.cumsum(weight[order]) / weight.sum())

    def shares(side: Literal["left", "right"]) -> tuple[Floats, Floats]:
        """Shares of both samples at or above (side left) or strictly above each positive score."""
        p = 1 - below[np.searchsorted(positive, positive, side=side)]
        u = 1 - np.searchsorted(unlabeled, positive, side=side) / len(unlabeled)
        return np.maximum(p, 0.0), u

    # Between two neighbouring positives only q_u changes: it is smallest at the upper positive score and
    # largest just above the lower one.
    q_p, q_u = shares("left")
    usable = q_p > eps_p
    high = min(1.0, float(((q_u[usable] + eps_u) / (q_p[usable] - eps_p)).min(initial=1.0)))
    q_p, q_u = shares("right")
    inside = q_p + eps_p < pure_bin
    low = float(((q_u[inside] - eps_u) / (q_p[inside] + eps_p)).max(initial=0.0))
    return low, high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1); got {delta}.")


def _deviation(top_positive: float, n: float, m: float, delta: float, gamma: float) -> float:
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma must lie in (0, 1] for the guarantee; got {gamma}.")
    radius = dkw_radius(m, delta) + dkw_radius(n, delta)
    # Below the least size the band is wider than half the bin.
    if max(dkw_radius(m, delta), dkw_radius(n, delta)) > top_positive / 2:
        return float("inf")
    return (4 + 2 * gamma) / (gamma * top_positive) * radius


def _shares(values: ArrayLike, name: str, k: int | None = None) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or (k is not None and len(array) != k):
        expected = "one share per known class" if k is None else f"{k} entries, one per known class"
        raise ValueError(f"{name} must be one-dimensional with {expected}; got shape {array.shape}.")
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"{name} must lie in [0, 1]; got {array.tolist()}.")
    return array
