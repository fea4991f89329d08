"""Practical intervals for an estimated mix: bootstrap over out-of-fold scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from osls._core.arrays import Floats, Ints

__all__ = ["bootstrap_mix", "normal_interval"]

# Rows in a replicate at most; larger data is resampled thinner and the spread scaled back.
_MAX_ROWS = 20_000


def bootstrap_mix(
    estimate: Callable[[Ints, Ints], Floats],
    y_source: Ints,
    n_target: int,
    *,
    repeats: int,
    rng: np.random.Generator,
) -> tuple[Floats, float]:
    """Re-estimate the mix on resampled rows, source rows by class.

    ``estimate`` takes row numbers of the source and of the target and repeats every step from scores to mix,
    the label shift weights included, so that their uncertainty is carried along.

    Returns
    -------
    replicates : array of shape (repeats, k + 1)
    scale : float
        Factor by which the replicates' spread has to be multiplied (1 unless the data was thinned).
    """
    thin = min(1.0, _MAX_ROWS / (len(y_source) + n_target))
    members = [np.flatnonzero(y_source == j) for j in range(int(y_source.max()) + 1)]
    target_size = max(2, round(thin * n_target))
    replicates = []
    for _ in range(repeats):
        source = np.concatenate([rng.choice(rows, max(2, round(thin * len(rows)))) for rows in members])
        replicates.append(estimate(source, rng.integers(n_target, size=target_size)))
    return np.array(replicates), float(np.sqrt(thin))


def normal_interval(point: Floats, replicates: Floats, scale: float, level: float) -> Floats:
    """Point ± z times the replicates' spread, within [0, 1]; shape (k + 1, 2).

    The spread is half the distance between the 16th and 84th percentile: a best bin that jumps in a few
    replicates should not decide the width.
    """
    low, high = np.quantile(replicates, [0.1587, 0.8413], axis=0)
    half_width = norm.ppf(0.5 + level / 2) * scale * (high - low) / 2
    return np.asarray(np.clip(np.column_stack([point - half_width, point + half_width]), 0.0, 1.0))
