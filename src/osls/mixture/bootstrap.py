r"""Intervals for a mixture proportion by the bootstrap.

With :math:`\hat\alpha^*_b` the estimate on the b-th resample of both samples and q the quantiles of
:math:`\hat\alpha^*_b - \hat\alpha`, the interval is

.. math:: \hat\alpha \pm \max(q_{1-\delta/2},\ -q_{\delta/2}), \qquad \delta = 1 - \text{level},

clipped to [0, 1]: the smallest symmetric interval that contains both the basic interval, which corrects the
downward bias of a minimum over noisy ratios, and the percentile interval, which is better near 0 and 1.

Clipping hides variation from the bootstrap. Where a sample is small, or many resamples give exactly 0 or
1, the interval is widened to contain :math:`\hat\alpha \pm \epsilon` with the two samples'
Dvoretzky-Kiefer-Wolfowitz bands, :math:`\epsilon = \sqrt{\log(4/\delta) / 2n} + \sqrt{\log(4/\delta) /
2m}`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from osls._core.arrays import Ints, dkw_radius
from osls.mixture.sample import Sample

# Larger resamples only cost time: the spread of smaller ones is rescaled to the full size.
_CAP = 10_000
_SMALL = 30
_CLIPPED = 0.05


def thin(positive: Sample, unlabeled: Sample) -> tuple[Sample, Sample, float]:
    """Keep at most 10,000 rows of each sample, drawn without replacement and with a fixed seed.

    The variance of an estimate is a / n + b / m, so thinning multiplies it by at least the smaller of the two
    size ratios. The factor that is returned last undoes only that one, so the interval is rather too wide
    than too narrow. Counts are not thinned: they have few entries already.
    """
    if positive.square is not None or unlabeled.square is not None:
        return positive, unlabeled, 1.0
    # Copies: later changes to the caller's arrays must not reach the interval.
    if max(positive.n, unlabeled.n) <= _CAP:
        return positive.copy(), unlabeled.copy(), 1.0
    rng = np.random.default_rng(0)
    p_rows, u_rows = _some_rows(positive.n, rng), _some_rows(unlabeled.n, rng)
    shrink = float(np.sqrt(max(len(p_rows) / positive.n, len(u_rows) / unlabeled.n)))
    return positive.take(p_rows), unlabeled.take(u_rows), shrink


def _some_rows(n: int, rng: np.random.Generator) -> Ints:
    return rng.choice(n, _CAP, replace=False, shuffle=False) if n > _CAP else np.arange(n)


def bootstrap_interval(
    estimate: Callable[[Sample, Sample], float],
    samples: tuple[Sample, Sample],
    alpha: float,
    *,
    shrink: float = 1.0,
    level: float = 0.95,
    n_boot: int = 200,
    random_state: int = 0,
) -> tuple[float, float]:
    """Lower and upper end of an interval for the share of positives.

    Parameters
    ----------
    estimate : callable
        From a positive and an unlabelled sample to a share in [0, 1].
    samples : pair of Sample
        What to resample.
    alpha : float
        The estimate on all scores, the centre of the interval.
    shrink : float, default=1.0
        Factor from the spread of an estimate on ``samples`` to that on all scores.
    level : float, default=0.95
        Nominal coverage.
    n_boot : int, default=200
        Number of resamples.
    random_state : int, default=0
        Seed of the resampling.

    Returns
    -------
    low, high : float
        (0, 1) if all scores are equal, because they carry no information then.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1); got {level}.")
    if n_boot < 1:
        raise ValueError(f"n_boot must be at least 1; got {n_boot}.")
    positive, unlabeled = samples
    if min(positive.lowest, unlabeled.lowest) == max(positive.highest, unlabeled.highest):
        return 0.0, 1.0
    rng = np.random.default_rng(random_state)
    draws = np.array([estimate(positive.resampled(rng), unlabeled.resampled(rng)) for _ in range(n_boot)])
    deviation = draws - estimate(positive, unlabeled)
    reach = np.abs(np.quantile(deviation, [(1 - level) / 2, (1 + level) / 2])).max()
    sizes = positive.effective_n, unlabeled.effective_n
    if min(sizes) < _SMALL or np.mean((draws <= 0) | (draws >= 1)) > _CLIPPED:
        reach = max(reach, sum(dkw_radius(size, 1 - level) for size in sizes))
    reach *= shrink
    return float(max(0.0, alpha - reach)), float(min(1.0, alpha + reach))
