"""Estimate the class mix of a batch, and test whether it has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import rel_entr
from scipy.stats import norm

from osls._core.arrays import Floats
from osls.inference.mix import normal_interval
from osls.shift.mlls import em_marginal

# Largest bootstrap replicate; larger batches use subsamples of this size, and their spread is scaled down.
_MAX_ROWS = 5_000
# Smaller probabilities are clipped: they tell more about the model than about the row.
_FLOOR = 1e-4


@dataclass(frozen=True)
class Moments:
    """Means and mean squares of the columns, and the number of rows."""

    mean: Floats
    square: Floats
    rows: float

    @classmethod
    def of(cls, rows: Floats) -> Self:
        """Moments of an array."""
        return cls(rows.mean(axis=0), np.square(rows).mean(axis=0), len(rows))


def batch_mix(
    ratio: Floats, start: Floats, *, level: float, repeats: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Mix of maximum likelihood, and an interval for each share by a bootstrap over the rows.

    Parameters
    ----------
    ratio : array of shape (m, k)
        p(j | x_i) / p(j) under the mix that the probabilities assume.
    start : array of shape (k,)
        That mix.
    level : float
        Level of the intervals.
    repeats : int
        Bootstrap replicates.
    rng : Generator
        Their random stream.
    """
    ratio = np.maximum(ratio, _FLOOR)
    point, _ = em_marginal(ratio, start, 1e-6, 1000)
    m = len(ratio)
    size = min(m, _MAX_ROWS)
    near = np.maximum(point, 1e-6)
    replicates = [em_marginal(ratio[rng.integers(m, size=size)], near, 1e-5, 200)[0] for _ in range(repeats)]
    interval = normal_interval(point, np.array(replicates), float(np.sqrt(size / m)), level)
    # If no row has the class, the bootstrap has no spread: use the binomial limit for zero of m rows.
    least = 1 - ((1 - level) / 2) ** (1 / m)
    interval[:, 1] = np.maximum(interval[:, 1], least)
    interval[:, 0] = np.minimum(interval[:, 0], 1 - least)
    return point, interval


def widened(share: Floats, interval: Floats, fitted: Floats, fit_interval: Floats) -> Floats:
    """Add the uncertainty of the fit to the intervals of a batch: independent errors, so squares add up.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.batches import widened
    >>> widened(np.array([0.5]), np.array([[0.46, 0.53]]), np.array([0.3]), np.array([[0.27, 0.34]]))
    array([[0.45, 0.55]])
    """
    ends = np.hypot(interval - share[:, None], fit_interval - fitted[:, None]) * [-1.0, 1.0]
    return np.asarray(np.clip(share[:, None] + ends, 0.0, 1.0))


def even_out(proba: Floats, marginal: Floats) -> Floats:
    """Factors per class that make the mean of the reference's probabilities equal to its mix.

    A model may give a class too much probability, or too little. With these factors the estimate on the
    reference rows is the reference mix, and so is, up to noise, that on a batch without a change.
    """
    seen = marginal > 0
    rows = np.maximum(proba[:, seen], _FLOOR)
    weight = np.ones(seen.sum())
    for _ in range(200):
        posterior = rows * weight
        mean = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
        # A factor above ten means that the model is unreliable, which a correction would only hide.
        weight = np.clip(weight * marginal[seen] / mean, 0.1, 10.0)
    factors = np.ones(len(marginal))
    factors[seen] = weight
    return factors


def chance_of_difference(here: Moments, reference: Moments) -> Floats:
    r"""p-values, by column, of the hypothesis that two means of numbers in [0, 1] have one expectation.

    With :math:`e^{-E}` Hoeffding's bound for a known variance, the chance is about
    :math:`2 \Phi(-\sqrt{2 E})`: E is a log likelihood ratio, and its signed root nearly normal far into the
    tails. As for counts, the difference is first taken to be half a row smaller (Yates).

    Parameters
    ----------
    here : Moments
        Rows of a batch.
    reference : Moments
        Rows to compare them with; infinitely many if their mean is known exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.batches import Moments, chance_of_difference
    >>> heads = Moments(np.array([0.9]), np.array([0.9]), 20)
    >>> coin = Moments(np.array([0.5]), np.array([0.5]), np.inf)
    >>> chance_of_difference(heads, coin).round(5)  # 0.00040 by the binomial distribution
    array([0.00037])
    """
    weight = 0.0 if np.isinf(reference.rows) else here.rows / (here.rows + reference.rows)
    centre = weight * here.mean + (1 - weight) * reference.mean
    square = weight * here.square + (1 - weight) * reference.square
    variance = centre * (1 - centre) if weight == 0 else square - centre**2
    difference = here.mean - reference.mean
    smaller = np.maximum(0.0, np.abs(difference) - 0.5 / here.rows - 0.5 / reference.rows)
    difference = np.sign(difference) * smaller
    exponent = here.rows * _exponent((1 - weight) * difference, centre, variance)
    if weight > 0:
        exponent = exponent + reference.rows * _exponent(-weight * difference, centre, variance)
    return np.asarray(2 * norm.sf(np.sqrt(2 * exponent)))


def _exponent(deviation: Floats, centre: Floats, variance: Floats) -> Floats:
    """Hoeffding's exponent per row, for a mean of numbers in [0, 1] that is ``deviation`` off its centre."""
    reach = np.maximum(np.where(deviation > 0, 1 - centre, centre), 1e-12)
    # A floor on the variance: nearly constant probabilities would make a tiny change significant.
    variance = np.maximum(variance, 0.05 * centre * (1 - centre)) + 1e-15
    total = reach**2 + variance
    q = variance / total
    p = np.minimum(1.0, (variance + reach * np.abs(deviation)) / total)
    return np.asarray(np.maximum(0.0, rel_entr(p, q) + rel_entr(1 - p, 1 - q)))
