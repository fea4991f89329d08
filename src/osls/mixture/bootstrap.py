r"""Intervals for a mixture proportion by the bootstrap.

With :math:`\hat\alpha^*_b` the estimate on the b-th resample of both samples and q the quantiles of
:math:`\hat\alpha^*_b - \hat\alpha`, the interval is

.. math:: \hat\alpha \pm \max(q_{1-\delta/2},\ -q_{\delta/2}), \qquad \delta = 1 - \text{level},

cut to [0, 1]: the smallest one that holds both the basic interval, which undoes the downward bias of a
minimum over noisy ratios, and the percentile interval, which is the better one near 0 and 1.

The bootstrap cannot see what clipping hides. Where a sample is small, or many resamples end at exactly 0 or
1, the interval is widened to hold :math:`\hat\alpha \pm \epsilon` with the two samples'
Dvoretzky-Kiefer-Wolfowitz bands, :math:`\epsilon = \sqrt{\log(4/\delta) / 2n} + \sqrt{\log(4/\delta) /
2m}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from osls._core.arrays import Floats, Ints

__all__ = ["Scores", "bootstrap_interval", "thin"]

# Resampling more than this adds seconds, not information: the spread is rescaled to the full size.
_CAP = 10_000
_SMALL = 30
_CLIPPED = 0.05


class Scores(NamedTuple):
    """Two samples of scores, and the factor from the spread of an estimate on them to that on all scores."""

    positive: Floats
    unlabeled: Floats
    weight: Floats | None
    shrink: float = 1.0

    @property
    def informative(self) -> bool:
        """Whether any two scores differ."""
        return bool(np.ptp(np.append(self.positive, self.unlabeled)) > 0)

    @property
    def sizes(self) -> tuple[float, float]:
        """Numbers of positive and unlabelled scores, the first as its weights leave it."""
        w = self.weight
        n = float(len(self.positive)) if w is None else float(w.sum() ** 2 / np.square(w).sum())
        return n, float(len(self.unlabeled))


def thin(positive: Floats, unlabeled: Floats, weight: Floats | None) -> Scores:
    """Keep at most 10,000 scores of each sample, drawn without replacement and with a fixed seed.

    The variance of an estimate is a / n + b / m. Thinning multiplies it by at least the smaller of the two
    reductions, and only that one is divided out again: the interval errs on the wide side.
    """
    rng = np.random.default_rng(0)
    p_rows, u_rows = _some_rows(len(positive), rng), _some_rows(len(unlabeled), rng)
    shrink = float(np.sqrt(max(len(p_rows) / len(positive), len(u_rows) / len(unlabeled))))
    # Indexing copies: later changes to the caller's arrays must not reach the interval.
    return Scores(positive[p_rows], unlabeled[u_rows], None if weight is None else weight[p_rows], shrink)


def _some_rows(n: int, rng: np.random.Generator) -> Ints:
    return rng.choice(n, _CAP, replace=False, shuffle=False) if n > _CAP else np.arange(n)


def bootstrap_interval(
    estimate: Callable[[Floats, Floats, Floats | None], float],
    scores: Scores,
    alpha: float,
    *,
    level: float = 0.95,
    n_boot: int = 200,
    random_state: int = 0,
) -> tuple[float, float]:
    """Lower and upper end of an interval for the share of positives.

    Parameters
    ----------
    estimate : callable
        From positive scores, unlabelled scores and weights (or None) to a share in [0, 1].
    scores : Scores
        What to resample.
    alpha : float
        The estimate on all scores, the centre of the interval.
    level : float, default=0.95
        Nominal coverage.
    n_boot : int, default=200
        Number of resamples.
    random_state : int, default=0
        Seed of the resampling.

    Returns
    -------
    low, high : float
        (0, 1) if all scores are equal, for nothing is known then.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1); got {level}.")
    if n_boot < 1:
        raise ValueError(f"n_boot must be at least 1; got {n_boot}.")
    if not scores.informative:
        return 0.0, 1.0
    rng = np.random.default_rng(random_state)
    draws = np.array([estimate(*_resample(scores, rng)) for _ in range(n_boot)])
    deviation = draws - estimate(scores.positive, scores.unlabeled, scores.weight)
    reach = np.abs(np.quantile(deviation, [(1 - level) / 2, (1 + level) / 2])).max()
    if min(scores.sizes) < _SMALL or np.mean((draws <= 0) | (draws >= 1)) > _CLIPPED:
        reach = max(reach, sum(np.sqrt(np.log(4 / (1 - level)) / (2 * size)) for size in scores.sizes))
    reach *= scores.shrink
    return float(max(0.0, alpha - reach)), float(min(1.0, alpha + reach))


def _resample(scores: Scores, rng: np.random.Generator) -> tuple[Floats, Floats, Floats | None]:
    positive, unlabeled, weight, _ = scores
    p_rows = rng.integers(len(positive), size=len(positive))
    u_rows = rng.integers(len(unlabeled), size=len(unlabeled))
    return positive[p_rows], unlabeled[u_rows], None if weight is None else weight[p_rows]
