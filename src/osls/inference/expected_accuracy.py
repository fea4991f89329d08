r"""How accurate answers for the target are, without its labels.

Under label shift the share of right answers within a known class is the same in the source and in the
target, and held-out source rows show it. Novel rows are right where they are called novel; of the target rows
that are called novel, those that the known classes account for are subtracted. With the estimated mix
:math:`\pi` this gives

.. math:: \sum_j \pi_j P(\hat y = j | y = j) + P_t(\hat y = \text{novel})
    - \sum_j \pi_j P(\hat y = \text{novel} | y = j) .

The estimate is the mean of this over the mixes that the intervals allow, not its value at the estimated mix:
a share that is reported as 0 because novelty is not significant, with an interval up to 0.4, would otherwise
promise an accuracy that hardly any of these mixes gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable

_SIMULATIONS = 1000


@saveable
@dataclass(frozen=True)
class ExpectedAccuracy:
    """Expected share of right answers in the target, with an interval, and by class.

    Attributes
    ----------
    overall : float
        Over all rows: the mean over the mixes that the intervals of the shares allow.
    interval : tuple of two floats
        Its interval, with the uncertainty of the mix and of the held-out rows.
    by_class : array of shape (k + 1,)
        Within each class, the novel one last (nan if its share is zero).
    """

    overall: float
    interval: tuple[float, float]
    by_class: Floats

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.overall:.3f} ({low:.3f} to {high:.3f})"


def expected_accuracy(
    y: Ints,
    answers_source: Ints,
    answers_target: Ints,
    mix: Floats,
    interval: Floats,
    *,
    level: float,
    rng: np.random.Generator,
    weight: Floats | None = None,
) -> ExpectedAccuracy:
    """Estimate the accuracy of ``answers_target``.

    Parameters
    ----------
    y : array of shape (n,)
        True classes of held-out source rows, 0..k-1.
    answers_source, answers_target : arrays of shape (n,) and (m,)
        The answers for them and for the target rows, 0..k; k is "novel".
    mix, interval : arrays of shape (k + 1,) and (k + 1, 2)
        The estimated mix of the target and its interval.
    level : float
        Level of both intervals.
    rng : Generator
        Random stream of the simulation behind the interval.
    weight : array of shape (n,), optional
        How much each source row counts.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.expected_accuracy import expected_accuracy
    >>> y = np.repeat([0, 1], 100)
    >>> answers = np.where(np.arange(200) % 10 == 0, 2, y)  # a tenth of the known rows is called novel
    >>> mix = np.array([0.3, 0.2, 0.5])
    >>> target = np.repeat([0, 1, 2], [27, 18, 55])
    >>> found = expected_accuracy(
    ...     y, answers, target, mix, np.column_stack([mix, mix]), level=0.95, rng=np.random.default_rng(0)
    ... )
    >>> round(found.overall, 3), found.by_class.round(3)
    (0.95, array([0.9, 0.9, 1. ]))
    """
    k = len(mix) - 1
    each = _as_rows(y, weight, k)
    sizes = np.bincount(y, each, minlength=k)
    right = np.bincount(y, each * (answers_source == y), minlength=k)
    lost = np.bincount(y, each * (answers_source == k), minlength=k)
    called_novel = float(np.mean(answers_target == k))
    by_class = np.append(right / sizes, np.nan)
    if mix[-1] > 0:
        by_class[-1] = _right_novel(mix, lost / sizes, called_novel) / mix[-1]
    shares = _possible_mixes(mix, interval, level, rng)
    overall = float(_accuracy(shares, right / sizes, lost / sizes, called_novel).mean())
    # Right, called novel, or another class: Dirichlet with half a row each for what was not seen.
    counts = np.column_stack([right, lost, sizes - right - lost]) + 0.5
    rates = rng.gamma(counts, size=(_SIMULATIONS, *counts.shape))
    rates /= rates.sum(axis=2, keepdims=True)
    called = rng.binomial(len(answers_target), called_novel, _SIMULATIONS) / len(answers_target)
    draws = _accuracy(shares, rates[..., 0], rates[..., 1], called)
    # Around the estimate: half a row each would shift the simulated centre in small classes.
    ends = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2]) - draws.mean() + overall
    low, high = np.clip(ends, 0.0, 1.0).tolist()
    return ExpectedAccuracy(overall, (low, high), by_class)


def _possible_mixes(mix: Floats, interval: Floats, level: float, rng: np.random.Generator) -> Floats:
    """Draw mixes as their intervals say: normal around each share, with its own spread to either side."""
    noise = rng.normal(size=(_SIMULATIONS, len(mix)))
    down, up = np.maximum(mix - interval[:, 0], 0), np.maximum(interval[:, 1] - mix, 0)
    # Never all zero, however wide the intervals are.
    shares = np.maximum(mix + np.where(noise > 0, up, down) / norm.ppf(0.5 + level / 2) * noise, 1e-9)
    # The novel share as drawn; the known classes divide the rest.
    novel = np.minimum(shares[:, -1:], 1.0)
    known = shares[:, :-1] / shares[:, :-1].sum(axis=1, keepdims=True)
    return np.asarray(np.hstack([known * (1 - novel), novel]))


def _accuracy(mix: Floats, right: Floats, lost: Floats, called_novel: Floats | float) -> Floats:
    """Share of right answers; mixes one a row, rates the same for all or one row each."""
    known = np.sum(mix[..., :-1] * right, axis=-1)
    return np.asarray(known + _right_novel(mix, lost, called_novel))


def _as_rows(y: Ints, weight: Floats | None, k: int) -> Floats:
    """Scale weights so that those of a class sum to the number of equal rows that they are worth."""
    if weight is None:
        return np.ones(len(y))
    total, squares = (np.bincount(y, values, minlength=k) for values in (weight, weight**2))
    return np.asarray(weight * (total / squares)[y])


def _right_novel(mix: Floats, lost: Floats, called_novel: Floats | float) -> Floats:
    """Share of the target that is novel and called so; one mix, or one a row."""
    return np.asarray(np.clip(called_novel - np.sum(mix[..., :-1] * lost, axis=-1), 0.0, mix[..., -1]))
