"""Sets of labels, "novel" among them, that hold the true class with a given probability.

A known class looks in the target as it did in the source, whatever its share. So the probability that the
model gives a row's own class has the same distribution on both sides, class by class: a class belongs to the
set of a row unless fewer than 1 - level of its held-out source rows had as little. This is label-conditional
conformal prediction [1]_: it holds for every known class under any label shift and for any model, as long as
p(x|y) stays.

The novel class has no labelled rows, so there is no such guarantee for it. It belongs to the set of a row
where the model gives it as much as to the surest ``level`` of what it calls novel in the target; if the model
is wrong about which rows are novel, so is the set.

References
----------
.. [1] Vovk, Gammerman, Shafer. Algorithmic Learning in a Random World, section 4.5. Springer, 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from osls._core.arrays import Bools, Floats, Ints, effective_size
from osls._core.saving import saveable

# Held-out rows of one class that are kept; more would hardly move a quantile.
_MAX_KEPT = 2_000


@saveable
@dataclass(frozen=True)
class PredictionSets:
    """What :meth:`osls.PULSE.predict_set` compares a row's probabilities with.

    Attributes
    ----------
    known : tuple of k arrays
        For each known class the probabilities of that class for its held-out source rows, sorted.
    novel : array
        Probabilities of the novel class for target rows, sorted.
    """

    known: tuple[Floats, ...]
    novel: Floats

    @classmethod
    def learn(cls, y: Ints, source_proba: Floats, target_proba: Floats, weight: Floats | None = None) -> Self:
        """Keep what is needed of the held-out probabilities, each of shape (rows, k + 1).

        ``weight`` says how much each source row counts: of a class, as many quantiles are kept as its rows
        are worth.

        Examples
        --------
        >>> import numpy as np
        >>> from osls.inference.prediction_sets import PredictionSets
        >>> y = np.repeat([0, 1], 50)
        >>> sure = np.linspace(0.5, 0.99, 50)
        >>> source = np.column_stack([np.append(sure, 1 - sure), np.append(1 - sure, sure), np.zeros(100)])
        >>> sets = PredictionSets.learn(y, source, np.array([[0.0, 0.1, 0.9], [1.0, 0.0, 0.0]]))
        >>> sets.of(np.array([[0.9, 0.1, 0.0], [0.52, 0.48, 0.0], [0.0, 0.1, 0.9]]), level=0.9)
        array([[ True, False, False],
               [False, False, False],
               [False, False,  True]])
        """
        k = source_proba.shape[1] - 1
        members = [np.flatnonzero(y == j) for j in range(k)]
        known = tuple(
            _sorted(source_proba[rows, j], None if weight is None else weight[rows])
            for j, rows in enumerate(members)
        )
        return cls(known, _thinned(np.sort(target_proba[:, -1])))

    def of(self, proba: Floats, level: float) -> Bools:
        """Return which of the k + 1 classes belong to the set of each row."""
        limits = [_conformal_limit(scores, level) for scores in self.known]
        return np.asarray(proba >= np.append(limits, self._novel_limit(level)))

    def _novel_limit(self, level: float) -> float:
        """Smallest probability among the surest rows that hold ``level`` of the novel class by the model."""
        held = np.cumsum(self.novel[::-1])
        if not held[-1] > 0:
            return np.inf
        return float(self.novel[::-1][np.searchsorted(held, level * held[-1] * (1 - 1e-12))])


def _conformal_limit(scores: Floats, level: float) -> float:
    """Largest limit that a new row of the class stays below with a probability of at most 1 - level."""
    rank = int((len(scores) + 1) * (1 - level) * (1 + 1e-12))
    return float(scores[rank - 1]) if rank >= 1 else -np.inf


def _sorted(scores: Floats, weight: Floats | None) -> Floats:
    """Sort scores; of weighted ones, return the quantiles of as many rows as they are worth."""
    if weight is None:
        return _thinned(np.sort(scores))
    order = np.argsort(scores)
    middle = np.cumsum(weight[order]) - weight[order] / 2
    rows = max(1, int(effective_size(weight)))
    ranks = (np.arange(rows) + 0.5) / rows * weight.sum()
    return _thinned(scores[order][np.searchsorted(middle, ranks).clip(max=len(scores) - 1)])


def _thinned(ordered: Floats) -> Floats:
    if len(ordered) <= _MAX_KEPT:
        return ordered
    return np.asarray(np.quantile(ordered, (np.arange(_MAX_KEPT) + 0.5) / _MAX_KEPT))
