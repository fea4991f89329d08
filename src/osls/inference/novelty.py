"""Is there anything new at all?"""

from __future__ import annotations

import numpy as np

from osls._typing import Floats

__all__ = ["novelty_pvalue"]

_SIMULATIONS = 400
_MAX_SIMULATED = 4000


def novelty_pvalue(source: Floats, target: Floats, weight: Floats, *, seed: int = 0) -> float:
    """p-value of "re-weighted source and target score alike" against "the target has more low scores".

    The statistic is the largest standardised excess of the target below a threshold. Under the null
    it depends on ranks alone, so its distribution is simulated from uniform scores of the same
    (effective) sizes.
    """
    n = float(weight.sum() ** 2 / np.square(weight).sum())
    m = len(target)
    observed = _largest_excess(source, target, weight, n)
    shrink = max(1.0, (n + m) / _MAX_SIMULATED)
    n_sim, m_sim = max(2, int(n / shrink)), max(2, int(m / shrink))
    rng = np.random.default_rng(seed)
    ones = np.ones(n_sim)
    null = [
        _largest_excess(rng.random(n_sim), rng.random(m_sim), ones, float(n_sim)) for _ in range(_SIMULATIONS)
    ]
    return float((1 + np.sum(np.asarray(null) >= observed)) / (1 + _SIMULATIONS))


def _largest_excess(source: Floats, target: Floats, weight: Floats, n: float) -> float:
    m = len(target)
    order = np.argsort(np.concatenate([source, target]), kind="stable")
    scores = np.concatenate([source, target])[order]
    below_s = np.cumsum(np.concatenate([weight / weight.sum(), np.zeros(m)])[order])
    below_t = np.cumsum(np.concatenate([np.zeros(len(source)), np.full(m, 1 / m)])[order])
    last = np.append(scores[1:] != scores[:-1], False)
    pooled = np.clip((n * below_s + m * below_t) / (n + m), 0.0, 1.0)
    # Below a handful of rows the normal approximation of a share is no guide.
    usable = last & (pooled * (n + m) >= 10) & ((1 - pooled) * (n + m) >= 10)
    if not usable.any():
        return 0.0
    spread = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return float(np.max((below_t - below_s)[usable] / spread[usable]))
