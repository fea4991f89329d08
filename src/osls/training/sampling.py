"""Folds, and a sampler that draws epochs of rows in proportion to weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from osls._core.arrays import AnyArray, Bools, Floats, Ints


def assign_folds(
    strata: AnyArray, n_folds: int, rng: np.random.Generator, copy_of: Ints | None = None
) -> Ints:
    """Assign each row to a fold; every stratum is spread over the folds as evenly as possible.

    One fold means a single split: fold 0 is a fifth of the rows, with at least one of every stratum, and the
    training rows have -1. Rows that are copies of each other (``copy_of`` has the number of the first of
    them) share a fold: a model that was trained on a copy of a row has seen the row.
    """
    if copy_of is not None:
        return _together(assign_folds(strata, n_folds, rng), strata, copy_of[: len(strata)])
    if n_folds == 1:
        held_out = assign_folds(strata, 5, rng) == 0
        values, first = np.unique(strata, return_index=True)
        held_out[first[~np.isin(values, strata[held_out])]] = True
        return np.where(held_out, 0, -1)
    fold = np.empty(len(strata), dtype=np.int64)
    offset = 0
    for value in np.unique(strata):
        rows = rng.permutation(np.flatnonzero(strata == value))
        fold[rows] = (offset + np.arange(len(rows))) % n_folds
        # The next stratum begins where this one ended, so that small strata do not all fill fold 0.
        offset += len(rows)
    return fold


def _together(fold: Ints, strata: AnyArray, copy_of: Ints) -> Ints:
    """Move copies into the fold of the first of them, but for strata that would then lie in one fold only."""
    moved = fold[copy_of]
    for value in np.unique(strata[moved != fold]):
        rows = strata == value
        if len(np.unique(moved[rows])) < min(2, len(np.unique(fold[rows]))):
            moved[rows] = fold[rows]
    return moved


@dataclass(frozen=True)
class Split:
    """One split of a pool (``assign_folds`` with one fold), by side: which rows are held out."""

    fold: Ints
    n_source: int

    @classmethod
    def draw(cls, y: Ints, n_target: int, rng: np.random.Generator, copy_of: Ints | None = None) -> Self:
        """Hold out a fifth of the source, class by class, and of the target."""
        strata = np.concatenate([y, np.full(n_target, y.max() + 1)])
        return cls(assign_folds(strata, 1, rng, copy_of), len(y))

    @property
    def source(self) -> Bools:
        return np.asarray(self.fold[: self.n_source] == 0)

    @property
    def target(self) -> Bools:
        return np.asarray(self.fold[self.n_source :] == 0)


class EpochSampler:
    """Endless batches of row numbers in proportion to weights, an epoch at a time.

    An epoch is a systematic resample: with equal weights every row occurs exactly once; with unequal
    weights its count is the expected count, rounded down or up. That is the paper's resampling of the source
    (step 4 of Algorithm 1), repeated every epoch, with the smallest possible variance.
    """

    def __init__(self, weight: Floats, generator: torch.Generator):
        self.rows = torch.from_numpy(np.flatnonzero(weight > 0))
        if len(self.rows) == 0:
            raise ValueError("no row has a positive weight; nothing to train on.")
        cumulative = np.cumsum(weight[weight > 0], dtype=np.float64)
        self._cumulative = torch.from_numpy(cumulative / cumulative[-1])
        self._generator = generator
        self._queue = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def next(self, size: int) -> Tensor:
        """Return the next ``size`` row numbers."""
        while len(self._queue) < size:
            self._queue = torch.cat([self._queue, self._epoch()])
        batch, self._queue = self._queue[:size], self._queue[size:]
        return batch

    def _epoch(self) -> Tensor:
        n = len(self.rows)
        start = torch.rand(1, generator=self._generator, dtype=torch.float64)
        position = torch.searchsorted(self._cumulative, (torch.arange(n) + start) / n).clamp_max(n - 1)
        return self.rows[position[torch.randperm(n, generator=self._generator)]]
