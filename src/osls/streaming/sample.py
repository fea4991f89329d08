r"""A sample of probability *vectors* that stands for all of them, for maximum likelihood over all classes.

EM over class shares looks at whole rows of probabilities, of which no fixed set of sums is sufficient. Exact
EM therefore reads all rows once an iteration. What one pass can keep is

- the sums of all rows and of all products of two of their entries, exactly;
- a uniform sample of the rows: those with the smallest of pseudo-random priorities, so that the sample of a
  whole is made from the samples of its parts, in any order.

The sample's rows are then given weights w = 1 + b'f(row), with f the entries and their products, such that
the weighted sample has exactly the means of all rows (the regression estimator of survey sampling). What EM
averages is close to quadratic in a row, so most of the sampling error is gone: ``benchmarks/streaming.py``
has the figures. While no row had to be left out, everything is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osls._typing import Floats

__all__ = ["Calibration", "RowSample", "add_samples", "calibrate", "draw_sample"]

# Beyond so many classes only each entry's own square is matched, not all products of two.
_MAX_PAIRS = 40
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class RowSample:
    """Rows with the smallest priorities, by rising priority."""

    priority: NDArray[np.uint64]
    rows: NDArray[np.float32]

    @staticmethod
    def empty(n_classes: int) -> RowSample:
        """Return a sample of nothing."""
        return RowSample(np.empty(0, dtype=np.uint64), np.empty((0, n_classes), dtype=np.float32))


def draw_sample(rows: Floats, size: int, first: int) -> RowSample:
    """Draw from rows that are the ``first``-th and following of their stream."""
    priority = _priorities(rows, first)
    kept = np.argsort(priority, kind="stable")[:size]
    return RowSample(priority[kept], rows[kept].astype(np.float32))


def add_samples(one: RowSample, other: RowSample, size: int) -> RowSample:
    """Join two samples into one of their union."""
    priority = np.append(one.priority, other.priority)
    kept = np.argsort(priority, kind="stable")[:size]
    return RowSample(priority[kept], np.concatenate([one.rows, other.rows])[kept])


def calibrate(sample: RowSample, n: int, mean: Floats, mean_product: Floats) -> Calibration:
    """Weight the sample so that it has the means of all n rows."""
    rows = sample.rows.astype(np.float64)
    if len(rows) == n:
        return Calibration(np.ones(n), None)
    if len(mean) <= _MAX_PAIRS:
        one, other = np.triu_indices(len(mean))
    else:
        one = other = np.arange(len(mean))
    features = np.hstack([rows, rows[:, one] * rows[:, other]])
    missing = np.append(mean, mean_product[one, other]) - features.mean(axis=0)
    return Calibration(1 + features @ _solve(features, missing), features)


@dataclass(frozen=True)
class Calibration:
    """Weights of mean one (some may be negative), and what they were made from; None if all rows are there.

    The error that is left in a weighted mean is that of the mean of what the features do not explain.
    """

    weights: Floats
    features: Floats | None

    def unexplained(self, values: Floats) -> Floats:
        """Return the part of some values of the sampled rows that the features do not explain."""
        if self.features is None:
            return np.zeros_like(values)
        moment = self.features.T @ values / len(values)
        return np.asarray(values - self.features @ _solve(self.features, moment))


def _solve(features: Floats, moment: Floats) -> Floats:
    # Probabilities sum to one, so features depend on each other: least squares takes any solution.
    gram = features.T @ features / len(features)
    return np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-10)[0])


def _priorities(rows: Floats, first: int) -> NDArray[np.uint64]:
    """Pseudo-random numbers from what a row holds and where it stands: no seed, and the same on any run.

    By content alone, equal rows would all be kept or all be left out.
    """
    with np.errstate(over="ignore"):
        mixed = np.arange(first, first + len(rows), dtype=np.uint64) * _ODD[0]
        for column in np.ascontiguousarray(rows.T, dtype=np.float64).view(np.uint64):
            mixed = _scramble(mixed ^ column)
    return mixed


def _scramble(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One round of splitmix64: every digit of x moves half of the digits of the result."""
    x = x + _ODD[0]
    x = (x ^ (x >> np.uint64(30))) * _ODD[1]
    x = (x ^ (x >> np.uint64(27))) * _ODD[2]
    return np.asarray(x ^ (x >> np.uint64(31)))
