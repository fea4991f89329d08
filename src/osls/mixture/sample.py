"""Weighted samples of scores, as rows or as counts: the input of a mixture estimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from osls._core.arrays import AnyArray, Floats
from osls._core.saving import saveable


@saveable
@dataclass(frozen=True)
class Sample:
    """Scores with weights.

    Attributes
    ----------
    scores : array of shape (n,)
        Finite numbers, in any order.
    weight : array of shape (n,), optional
        How much each score counts; all the same if None. Never zero.
    square : array of shape (n,), optional
        Sum of the squared weights of the rows behind each score; ``weight ** 2`` if None, as it is where an
        entry is one row.
    """

    scores: Floats
    weight: Floats | None = None
    square: Floats | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.scores)

    @property
    def weights(self) -> Floats:
        """The weights, also where all are one."""
        return np.ones(len(self.scores)) if self.weight is None else self.weight

    @property
    def squares(self) -> Floats:
        """Sums of squared weights."""
        return np.square(self.weights) if self.square is None else self.square

    @property
    def rows(self) -> Floats:
        """How many rows each entry stands for, if the rows of an entry have equal weights."""
        return np.ones(len(self.scores)) if self.square is None else self.weights**2 / self.square

    @property
    def effective_n(self) -> float:
        """Effective sample size: how many rows of equal weight are as informative."""
        if self.weight is None:
            return float(len(self.scores))
        return float(self.weight.sum() ** 2 / self.squares.sum())

    @property
    def mean(self) -> float:
        """Mean score, by weight."""
        if self.weight is None:
            return float(self.scores.mean(dtype=np.float64))
        return float(np.average(self.scores.astype(np.float64, copy=False), weights=self.weight))

    @property
    def lowest(self) -> float:
        """Smallest score."""
        return float(self.scores.min())

    @property
    def highest(self) -> float:
        """Largest score."""
        return float(self.scores.max())

    def share_at_least(self, threshold: float) -> float:
        """Share of the weight at or above a threshold."""
        return float(self.weights[self.scores >= threshold].sum() / self.weights.sum())

    def copy(self) -> Sample:
        """Return the same sample in arrays of its own."""
        weight, square = self.weight, self.square
        return Sample(
            self.scores.copy(),
            None if weight is None else weight.copy(),
            None if square is None else square.copy(),
        )

    def take(self, rows: AnyArray) -> Sample:
        """Return some of the entries, by number or by mask."""
        weight, square = self.weight, self.square
        return Sample(
            self.scores[rows],
            None if weight is None else weight[rows],
            None if square is None else square[rows],
        )

    def in_order(self) -> Sample:
        """Return the same sample by rising score."""
        return self.take(np.argsort(self.scores, kind="stable"))

    def highest_rows(self, count: int) -> Sample:
        """Return the ``count`` rows that score highest."""
        order = np.argsort(self.scores, kind="stable")[::-1]
        rows = self.rows[order]
        # An entry may stand for several rows; only some of them may be among the ``count`` highest.
        share = np.clip(count - (np.cumsum(rows) - rows), 0.0, rows) / rows
        order, share = order[share > 0], share[share > 0]
        return Sample(self.scores[order], share * self.weights[order], share * self.squares[order])

    def scaled(self, factor: float) -> Sample:
        """Return the same scores with ``factor`` times the weight."""
        return Sample(self.scores, factor * self.weights, factor**2 * self.squares)

    def joined(self, other: Sample) -> Sample:
        """Return both samples as one."""
        return Sample(
            np.append(self.scores, other.scores),
            np.append(self.weights, other.weights),
            np.append(self.squares, other.squares),
        )

    def resampled(self, rng: np.random.Generator) -> Sample:
        """Draw as many rows again, with replacement."""
        return self.take(rng.integers(len(self.scores), size=len(self.scores)))

    def thinned(self, probability: Floats, rng: np.random.Generator) -> Sample:
        """Keep each row with its own probability, one for each entry of ``scores``."""
        return self.take(rng.random(len(self.scores)) < probability)


def check_scores(scores: ArrayLike, name: str) -> Floats:
    """Return one-dimensional finite floats, or raise an error that says what is wrong with ``name``."""
    array = np.asarray(scores)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one score per row; got shape {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} is empty; pass at least one score.")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers, not {array.dtype}.")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    # The sum is one pass without a temporary array; the exact check runs only if the sum is not finite.
    if not np.isfinite(array.sum(dtype=np.float64)) and not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinite values; drop or replace those rows.")
    return array


def check_probabilities(scores: Floats, name: str) -> None:
    """Raise an error for scores outside [0, 1] that says how to turn logits into probabilities."""
    low, high = float(scores.min()), float(scores.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"{name} must be probabilities in [0, 1] of being positive; got values from {low:g} to {high:g}. "
            "If these are logits, pass 1 / (1 + exp(-logits))."
        )
