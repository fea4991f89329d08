"""Held-out and out-of-fold scores, from which a class mix is estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from osls._core.arrays import Floats, Ints
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
    """

    y: Ints
    class_source: Floats
    class_target: Floats
    domain_source: Floats
    domain_target: Floats

    @property
    def source_marginal(self) -> Floats:
        """p_s(y) of the held-out rows."""
        return np.bincount(self.y, minlength=self.class_source.shape[1]) / len(self.y)

    @property
    def accuracy(self) -> float:
        """Accuracy of the source classifier on the held-out source rows."""
        return float(np.mean(self.class_source.argmax(axis=1) == self.y))

    def weights(self, mix: Floats) -> Floats:
        """Importance weights of the source rows that give the source the class mix ``mix``."""
        return (mix / self.source_marginal)[self.y]

    def domain(self, mix: Floats) -> tuple[Floats, Floats]:
        """P(source | x) of source and target rows, for a source re-weighted to the mix ``mix``."""
        if self.domain_source.ndim == 1:
            return self.domain_source, self.domain_target
        return domain_score(self.domain_source, mix), domain_score(self.domain_target, mix)

    def take(self, source: Ints, target: Ints) -> HeldOutScores:
        """Return the scores of some of the rows."""
        return HeldOutScores(
            self.y[source],
            self.class_source[source],
            self.class_target[target],
            self.domain_source[source],
            self.domain_target[target],
        )
