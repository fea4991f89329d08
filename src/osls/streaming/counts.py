r"""Counts of scores on nested grids: exact for few distinct scores, otherwise as fine as the capacity allows.

A score p in [0, 1] is placed by the binary digits of p (below one half) or of 1 - p (above). So a grid is
logarithmic towards both ends: distances to 0 and to 1 are resolved to the same *relative* width. Best bins
lie there, and so do the scores of confident models. Level 0 separates any two different numbers; each
further level merges the cells in pairs. With at most 16,384 cells, a cell is rarely wider than 1/256 of its
distance from the nearer end.

The level is the lowest at which no more than ``capacity`` cells are occupied. It depends only on the scores,
and a part of the scores never needs a higher level than the whole. So the counts of a whole do not depend on
how it was split, nor on the order in which the parts were merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from osls._core.arrays import Floats, Ints
from osls.mixture.sample import Sample

_HALF = int(np.float64(0.5).view(np.int64))
# Cell numbers within a range this wide are counted by bincount, others after sorting.
_DENSE = 1 << 20


def keys_of(scores: Floats) -> Ints:
    """Integers in the order of the scores, dense where scores are near 0 or 1.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.streaming.counts import keys_of, scores_of
    >>> scores = np.array([0.0, 1e-9, 0.3, 0.5, 0.75, 1 - 1e-9, 1.0])
    >>> bool((np.diff(keys_of(scores)) > 0).all()), bool((scores_of(keys_of(scores)) == scores).all())
    (True, True)
    """
    p = np.asarray(scores, dtype=np.float64)
    # 1 - p is exact for p in [1/2, 1]; abs() because the bits of -0.0 differ from those of 0.0.
    digits = np.abs(np.where(p < 0.5, p, 1 - p)).view(np.int64)
    return np.where(p < 0.5, digits, 2 * _HALF - digits)


def scores_of(keys: Ints) -> Floats:
    """Invert :func:`keys_of`."""
    low = keys < _HALF
    near = np.where(low, keys, 2 * _HALF - keys).view(np.float64)
    return np.where(low, near, 1 - near)


@dataclass(frozen=True)
class GridCounts:
    """Occupied cells of one level, by rising score.

    Attributes
    ----------
    level : int
        A cell holds the scores whose keys agree except in the last ``level`` binary digits.
    number : int array
        The keys without those digits.
    mass : float array
        Sum of the weights in each cell; the number of rows if there are no weights.
    square : float array or None
        Sum of the squared weights; None if all weights are 1.
    """

    level: int
    number: Ints
    mass: Floats
    square: Floats | None = None

    @property
    def squares(self) -> Floats:
        """Sums of squared weights, also where all weights are 1."""
        return self.mass if self.square is None else self.square

    @property
    def effective_n(self) -> float:
        """Effective sample size: how many rows of equal weight are as informative as all cells together."""
        return float(self.mass.sum() ** 2 / self.squares.sum()) if len(self.mass) else 0.0

    def sample(self, level: int | None = None) -> Sample:
        """Return the counts, on the grid of a higher level if one is given, as a weighted sample.

        A cell's score is its middle, so that a threshold separates the same cells in samples of one level.
        """
        counts = self if level is None else coarsen(self, level)
        return Sample(counts.middle, counts.mass, counts.squares)

    @property
    def lower_edge(self) -> Floats:
        """Smallest score that belongs to each cell."""
        return scores_of(self.number << self.level)

    @property
    def middle(self) -> Floats:
        """Half way between the smallest and the largest score that belong to each cell."""
        last = ((self.number + 1) << self.level) - 1
        return (self.lower_edge + scores_of(np.minimum(last, 2 * _HALF))) / 2


EMPTY = GridCounts(0, np.empty(0, dtype=np.int64), np.empty(0))


def count_keys(keys: Ints, weight: Floats | None, capacity: int, level: int = 0) -> GridCounts:
    """Count keys, at least one, at ``level`` or the lowest level above it that ``capacity`` allows."""
    columns = (None,) if weight is None else (weight, weight**2)
    number, sums = _sum_by_number(keys >> level, *columns)
    return fit_capacity(GridCounts(level, number, *sums), capacity)


def add_counts(first: GridCounts, second: GridCounts, capacity: int) -> GridCounts:
    """Join two counts, at the lowest level that both and ``capacity`` allow."""
    level = max(first.level, second.level)
    parts = coarsen(first, level), coarsen(second, level)
    number = np.concatenate([part.number for part in parts])
    if len(number) == 0:
        return parts[0]
    columns = [np.concatenate([part.mass for part in parts])]
    if first.square is not None or second.square is not None:
        columns.append(np.concatenate([part.squares for part in parts]))
    number, sums = _sum_by_number(number, *columns)
    return fit_capacity(GridCounts(level, number, *sums), capacity)


def coarsen(cells: GridCounts, level: int) -> GridCounts:
    """Return the same counts on the grid of a higher level."""
    if level == cells.level or len(cells.number) == 0:
        return GridCounts(level, cells.number, cells.mass, cells.square)
    number = cells.number >> (level - cells.level)
    starts = _starts(number)
    square = None if cells.square is None else np.add.reduceat(cells.square, starts)
    return GridCounts(level, number[starts], np.add.reduceat(cells.mass, starts), square)


def fit_capacity(cells: GridCounts, capacity: int) -> GridCounts:
    """Coarsen to the lowest level with at most ``capacity`` cells."""
    if len(cells.number) <= capacity:
        return cells
    # Two neighbours become one cell as soon as all digits in which they differ are dropped.
    differing = cells.number[1:] ^ cells.number[:-1]
    decisive = np.partition(differing, -capacity)[-capacity]
    return coarsen(cells, cells.level + int(decisive).bit_length())


def _sum_by_number(numbers: Ints, *columns: Floats | None) -> tuple[Ints, list[Floats]]:
    """Distinct numbers in rising order, and the sums of each column over them; counts for a column None."""
    lowest = numbers.min()
    if numbers.max() - lowest < min(_DENSE, 16 * len(numbers)):
        address = numbers - lowest
        occupied = np.flatnonzero(np.bincount(address))
        sums = [np.bincount(address, weights=c)[occupied].astype(np.float64) for c in columns]
        return np.asarray(occupied + lowest), [*sums]
    if all(column is None for column in columns):
        numbers = np.sort(numbers)
        starts = _starts(numbers)
        return numbers[starts], [np.diff(starts, append=len(numbers)).astype(np.float64) for _ in columns]
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    starts = _starts(numbers)
    return numbers[starts], [
        np.add.reduceat(np.ones(len(numbers)) if c is None else c[order], starts) for c in columns
    ]


def _starts(rising: Ints) -> Ints:
    """Positions at which a new number begins."""
    return np.flatnonzero(np.append(True, rising[1:] != rising[:-1]))


@dataclass(frozen=True)
class CountedSample(Sample):
    """Counts by grid cell, with the mean and the range of the scores, which are known exactly.

    Attributes
    ----------
    scores, weight, square : arrays of shape (cells,)
        The cells' middles, rising; the weight in each; the sum of the squared weights.
    n_rows : int
        Number of rows that were counted.
    exact_mean : float
        Mean score of the rows.
    exact_range : (float, float)
        Smallest and largest score of the rows.
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
        """Resample as many rows from the cells; the rows of a cell are taken as equally weighted."""
        rows = self.rows
        total = rows.sum()
        return self._with_rows(rng.multinomial(max(1, round(total)), rows / total))

    def thinned(self, probability: Floats, rng: np.random.Generator) -> CountedSample:
        """Keep each row of a cell with the cell's probability."""
        return self._with_rows(rng.binomial(np.round(self.rows).astype(np.int64), probability))

    def _with_rows(self, rows: Ints) -> CountedSample:
        """Return a sample with ``rows`` rows in each cell."""
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
        # The new mean is the exact mean plus the change in the mean of the cells' positions.
        moved = np.average(position, weights=smaller.weight)
        moved -= np.average(self._positions(), weights=self.weight)
        return replace(smaller, exact_mean=float(np.clip(self.mean + moved, *ends)), exact_range=ends)

    def _positions(self) -> Floats:
        """One score for each cell: its middle; for the outermost ones the smallest and the largest score."""
        position = np.clip(self.scores, self.lowest, self.highest)
        position[0], position[-1] = self.lowest, self.highest
        return position
