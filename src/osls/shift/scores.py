"""Held-out and out-of-fold scores, from which a class mix is estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from osls._core.arrays import Bools, Floats, Ints, effective_size
from osls.shift.joint import domain_score


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of held-out source and target rows by the models of steps 2 and 3.

    Attributes
    ----------
    y : array of shape (n,)
        Classes of the source rows.
    class_source, class_target : arrays of shape (n, k) and (m, k)
        The source classifier's probabilities.
    domain_source, domain_target : arrays
        Either the (k+1)-way model's probabilities, which can be turned into a domain score for any mix; or
        the scores, one per row, of a discriminator that was trained for one mix.
    weight : array of shape (n,), optional
        How much each source row counts (``sample_weight``).
    copies : pair of arrays of shapes (n,) and (m,), optional
        Rows of a side with the same number are copies of each other, which together say as much as one row;
        None if there are none.
    """

    y: Ints
    class_source: Floats
    class_target: Floats
    domain_source: Floats
    domain_target: Floats
    weight: Floats | None = None
    copies: tuple[Ints, Ints] | None = None

    @property
    def source_marginal(self) -> Floats:
        """p_s(y) of the held-out rows."""
        counts = np.bincount(self.y, self.weight, minlength=self.class_source.shape[1])
        return np.asarray(counts / counts.sum())

    @property
    def accuracy(self) -> float:
        """Accuracy of the source classifier on the held-out source rows."""
        hit = self.class_source.argmax(axis=1) == self.y
        return float(np.average(hit, weights=self.weight))

    def by_class(self, values: Floats | Bools) -> Floats:
        """Mean of a value of the source rows within each class."""
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        k = self.class_source.shape[1]
        counts = np.bincount(self.y, weight, minlength=k)
        return np.asarray(np.bincount(self.y, weight * values, minlength=k) / counts)

    def weights(self, mix: Floats) -> Floats:
        """Importance weights of the source rows that give the source the class mix ``mix``."""
        importance = (mix / self.source_marginal)[self.y]
        return importance if self.weight is None else importance * self.weight

    def domain(self, mix: Floats) -> tuple[Floats, Floats]:
        """P(source | x) of source and target rows, for a source re-weighted to the mix ``mix``."""
        if self.domain_source.ndim == 1:
            return self.domain_source, self.domain_target
        return domain_score(self.domain_source, mix), domain_score(self.domain_target, mix)

    def sizes(self, mix: Floats) -> tuple[float, float]:
        """How many equal, independent rows the re-weighted source and the target are worth."""
        weight, m = self.weights(mix), len(self.class_target)
        if self.copies is None:
            return effective_size(weight), float(m)
        source, target = self.copies
        sums = [np.asarray(np.bincount(*side), dtype=float) for side in ((source, weight), (target,))]
        return effective_size(sums[0]), effective_size(sums[1])

    def rows(self, mix: Floats) -> float:
        """Rows of the smaller side."""
        return min(self.sizes(mix))

    def take(self, source: Ints, target: Ints) -> HeldOutScores:
        """Return the scores of some of the rows, as independent ones."""
        return HeldOutScores(
            self.y[source],
            self.class_source[source],
            self.class_target[target],
            self.domain_source[source],
            self.domain_target[target],
            None if self.weight is None else self.weight[source],
        )
