r"""How accurate answers for the target are, without its labels.

Under label shift the share of right answers within a known class is the same in the source and in the
target, and held-out source rows show it. Novel rows are right where they are called novel; of the target rows
that are called novel, those that the known classes account for are subtracted. With the estimated mix
:math:`\pi` this gives

.. math:: \sum_j \pi_j P(\hat y = j | y = j) + P_t(\hat y = \text{novel})
    - \sum_j \pi_j P(\hat y = \text{novel} | y = j) .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable

_SIMULATIONS = 500


@saveable
@dataclass(frozen=True)
class ExpectedAccuracy:
    """Expected share of right answers in the target, with an interval, and by class.

    Attributes
    ----------
    overall : float
        Over all rows.
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
    right_novel = _right_novel(mix, lost / sizes, called_novel)
    by_class = np.append(right / sizes, right_novel / mix[-1] if mix[-1] > 0 else np.nan)
    spread = np.diff(interval, axis=1)[:, 0] / 2 / norm.ppf(0.5 + level / 2)
    draws = []
    for _ in range(_SIMULATIONS):
        # Never all zero, however wide the intervals are.
        shares = np.maximum(mix + spread * rng.normal(size=k + 1), 1e-9)
        shares /= shares.sum()
        # Right, called novel, or another class: Dirichlet with half a row each for what was not seen.
        counts = np.column_stack([right, lost, sizes - right - lost]) + 0.5
        rates = rng.gamma(counts)
        rates /= rates.sum(axis=1, keepdims=True)
        called = rng.binomial(len(answers_target), called_novel) / len(answers_target)
        draws.append(shares[:-1] @ rates[:, 0] + _right_novel(shares, rates[:, 1], called))
    overall = float(mix[:-1] @ by_class[:-1] + right_novel)
    # Around the estimate: half a row each would shift the simulated centre in small classes.
    low, high = np.quantile(np.array(draws) - np.median(draws), [0.5 - level / 2, 0.5 + level / 2]) + overall
    return ExpectedAccuracy(overall, (float(max(low, 0.0)), float(min(high, 1.0))), by_class)


def _as_rows(y: Ints, weight: Floats | None, k: int) -> Floats:
    """Scale weights so that those of a class sum to the number of equal rows that they are worth."""
    if weight is None:
        return np.ones(len(y))
    total, squares = (np.bincount(y, values, minlength=k) for values in (weight, weight**2))
    return np.asarray(weight * (total / squares)[y])


def _right_novel(mix: Floats, lost: Floats, called_novel: float) -> float:
    """Share of the target that is novel and called so."""
    return float(np.clip(called_novel - mix[:-1] @ lost, 0.0, mix[-1]))
