"""A sample of scores of which only counts are left, as mixture estimators and their bootstrap see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from osls._core.arrays import Floats, Ints
from osls.mixture.sample import Sample

__all__ = ["CountedSample"]


@dataclass(frozen=True)
class CountedSample(Sample):
    """Counts by grid cell, with the mean and the range of the scores, which are known exactly.

    Attributes
    ----------
    scores, weight, square : arrays of shape (cells,)
        The cells' middles, rising; the weight in each; the sum of the squared weights.
    n_rows : int
        Rows behind the counts.
    exact_mean : float
        Their mean score.
    exact_range : (float, float)
        Their smallest and largest score.
    """

    n_rows: int = 0
    exact_mean: float = 0.0
    exact_range: tuple[float, float] = (0.0, 1.0)

    @property
    def n(self) -> int:
        return self.n_rows

    @property
    def mean(self) -> float:
        return self.exact_mean

    @property
    def lowest(self) -> float:
        return self.exact_range[0]

    @property
    def highest(self) -> float:
        return self.exact_range[1]

    def in_order(self) -> CountedSample:
        return self

    def resampled(self, rng: np.random.Generator) -> CountedSample:
        """Draw as many rows again, from the cells; a cell's rows count as equally heavy."""
        rows = self.rows
        total = rows.sum()
        return self._with_rows(rng.multinomial(max(1, round(total)), rows / total))

    def thinned(self, probability: Floats, rng: np.random.Generator) -> CountedSample:
        """Keep each row of a cell with the cell's probability."""
        return self._with_rows(rng.binomial(np.round(self.rows).astype(np.int64), probability))

    def _with_rows(self, rows: Ints) -> CountedSample:
        """Return a sample with so many rows in each cell."""
        kept = np.flatnonzero(rows)
        weight = (self.squares / self.weights)[kept]
        smaller = replace(
            self,
            scores=self.scores[kept],
            weight=rows[kept] * weight,
            square=rows[kept] * weight**2,
            n_rows=int(rows.sum()),
        )
        if len(kept) == 0:
            return smaller
        position = self._positions()[kept]
        ends = (float(position[0]), float(position[-1]))
        # The mean moves by as much as that of the cells' positions; the exact one is where it starts.
        moved = np.average(position, weights=smaller.weight)
        moved -= np.average(self._positions(), weights=self.weight)
        return replace(smaller, exact_mean=float(np.clip(self.mean + moved, *ends)), exact_range=ends)

    def _positions(self) -> Floats:
        """One score for each cell: its middle; for the outermost ones the smallest and the largest score."""
        position = np.clip(self.scores, self.lowest, self.highest)
        position[0], position[-1] = self.lowest, self.highest
        return position
