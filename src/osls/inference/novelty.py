"""A test of whether the target contains anything novel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from osls._core.arrays import Floats, effective_size

_SIMULATIONS = 400
# Pooled out-of-fold statistics are sums over pairs of folds, <D_f, D_g> + <D_g, D_f>: the model for f is
# trained on g, and the model for g on f. If each pair counted twice, the factor would be sqrt(2); the two
# models are not that alike, and 1.2 is what keeps the level (benchmarks/novelty.py).
_CROSS_FITTING = 1.2
_MAX_SIMULATED = 4000


@dataclass(frozen=True)
class NoveltyTest:
    """Result of the test of "nothing in the target is novel"."""

    pvalue: float
    statistic: float
    critical: float
    detectable_share: float


def novelty_test(
    source: Floats,
    target: Floats,
    weight: Floats | None = None,
    *,
    sizes: tuple[float, float] | None = None,
    cross_fitted: bool = False,
    level: float = 0.05,
    power: float = 0.8,
    seed: int = 0,
) -> NoveltyTest:
    """Test "re-weighted source and target score alike" against "the target has more low scores".

    The statistic is the larger of two: the standardised excess of the target below the best threshold, which
    finds few novel rows that look like nothing known, and the standardised sum of ranks, which finds many
    that overlap the known classes. Under the null both depend on ranks alone, so their joint distribution is
    simulated from uniform scores of the same (effective) sizes.

    Parameters
    ----------
    source, target : arrays of shape (n,) and (m,)
        Held-out domain scores, high for rows like the source's.
    weight : array of shape (n,), optional
        Importance weights of the source rows (label shift); their uncertainty is ignored.
    sizes : two of float, optional
        How many equal, independent rows the source and the target are worth; by default all rows of the
        target, and those of the source by their weights.
    cross_fitted : bool, default=False
        Whether the scores are pooled out-of-fold scores. They vary more than the scores of independent rows,
        so the statistic is scaled down.
    level, power : float
        Level and power of the smallest detectable share.
    seed : int
        Seed of the simulation.

    Returns
    -------
    NoveltyTest
        ``pvalue``; ``statistic`` and its ``critical`` value at ``level``; and ``detectable_share``, the share
        of a novel class that would be found with probability ``power`` if nine in ten of its rows scored
        below nineteen in twenty source rows.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference import novelty_test
    >>> rng = np.random.default_rng(0)
    >>> known, new = rng.beta(5, 2, size=1500), rng.beta(1, 8, size=100)
    >>> novelty_test(known[:700], known[700:]).pvalue > 0.05
    True
    >>> novelty_test(known[:700], np.append(known[700:], new)).pvalue < 0.01
    True
    """
    source, target = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    weight = np.ones(len(source)) if weight is None else np.asarray(weight, dtype=float)
    n, m = (effective_size(weight), float(len(target))) if sizes is None else sizes
    inflation = _CROSS_FITTING if cross_fitted else 1.0
    shrink = max(1.0, (n + m) / _MAX_SIMULATED)
    n_sim, m_sim = max(2, int(n / shrink)), max(2, int(m / shrink))
    rng = np.random.default_rng(seed)
    ones, simulated = np.ones(n_sim), (float(n_sim), float(m_sim))
    null = np.array(
        [_excesses(rng.random(n_sim), rng.random(m_sim), ones, *simulated) for _ in range(_SIMULATIONS)]
    )
    # In units of the first statistic: both exceed its critical value equally often by chance.
    first, second = np.maximum(np.quantile(null, 1 - level, axis=0), np.finfo(float).tiny)
    units = np.array([1.0, first / second])
    observed = float(np.max(_excesses(source, target, weight, n, m) * units)) / inflation
    largest = np.max(null * units, axis=1)
    pvalue = float((1 + np.sum(largest >= observed)) / (1 + _SIMULATIONS))
    critical = float(np.quantile(largest, 1 - level))
    needed = inflation * (max(critical, 0.0) + norm.ppf(power))
    return NoveltyTest(pvalue, observed, critical, _detectable(needed, n, m))


def _detectable(
    needed: float, n: float, m: float, *, source_below: float = 0.05, novel_below: float = 0.9
) -> float:
    """Share whose expected excess below the threshold is ``needed`` standard errors."""

    def excess(share: float) -> float:
        below = (1 - share) * source_below + share * novel_below
        pooled = (n * source_below + m * below) / (n + m)
        spread = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        return float((below - source_below) / spread - needed)

    return float(brentq(excess, 0.0, 1.0)) if excess(1.0) > 0 else 1.0


def _excesses(source: Floats, target: Floats, weight: Floats, n: float, m: float) -> Floats:
    """Largest standardised excess of the target below a threshold, and the standardised sum of its ranks."""
    scores, place = np.unique(np.concatenate([source, target]), return_inverse=True)
    mass_s = np.bincount(place[: len(source)], weight / weight.sum(), minlength=len(scores))
    mass_t = np.bincount(place[len(source) :], minlength=len(scores)) / len(target)
    below_s, below_t = np.cumsum(mass_s), np.cumsum(mass_t)
    pooled = np.clip((n * below_s + m * below_t) / (n + m), 0.0, 1.0)
    # With fewer rows the normal approximation of a share is not valid.
    usable = (pooled * (n + m) >= 10) & ((1 - pooled) * (n + m) >= 10)
    if not usable.any():
        return np.zeros(2)
    error = np.sqrt(1 / n + 1 / m)
    spread = np.sqrt(pooled[usable] * (1 - pooled[usable])) * error
    # P(target < source) and half of P(target = source); by chance one half, with Mann and Whitney's spread.
    lower = float(mass_t @ (1 - below_s + mass_s / 2))
    return np.array(
        [
            np.max((below_t - below_s)[usable] / spread),
            (lower - 0.5) * np.sqrt(12 / (1 + 1 / (n + m))) / error,
        ]
    )
