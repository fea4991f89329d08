"""A summary of (k+1)-way predictions, of a few megabytes, from which the mix can be estimated again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from osls._core.arrays import Floats
from osls.shift.base import check_proba
from osls.streaming.summary import CAPACITY, ScoreSummary, pack, unpack

# With more classes, only the squares of the probabilities are matched, not all products of two.
_MAX_PAIRS = 40
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class RowSample:
    """Rows with the smallest priorities, by rising priority."""

    priority: NDArray[np.uint64]
    rows: NDArray[np.float32]

    @staticmethod
    def empty(n_classes: int) -> RowSample:
        """Return a sample without rows."""
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
    """Weights of mean one (some may be negative), and the features behind them; None if all rows are kept.

    The error of a weighted mean is that of the mean of the part that the features do not explain.
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
    # Probabilities sum to one, so the features are linearly dependent: lstsq picks one solution.
    gram = features.T @ features / len(features)
    return np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-10)[0])


def _priorities(rows: Floats, first: int) -> NDArray[np.uint64]:
    """Pseudo-random numbers from a row's content and its position: no seed, and the same in every run.

    With the content only, equal rows would all be kept or all be left out.
    """
    with np.errstate(over="ignore"):
        mixed = np.arange(first, first + len(rows), dtype=np.uint64) * _ODD[0]
        for column in np.ascontiguousarray(rows.T, dtype=np.float64).view(np.uint64):
            mixed = _scramble(mixed ^ column)
    return mixed


def _scramble(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One round of splitmix64: each bit of x changes about half of the bits of the result."""
    x = x + _ODD[0]
    x = (x ^ (x >> np.uint64(30))) * _ODD[1]
    x = (x ^ (x >> np.uint64(27))) * _ODD[2]
    return np.asarray(x ^ (x >> np.uint64(31)))


_FORMAT = "osls.ProbabilitySummary/2"
_SAMPLE_NUMBERS = 1 << 20  # of all sampled rows together


class ProbabilitySummary:
    """A summary of rows of probabilities: of the k known classes and, last, of the novel one.

    Parameters
    ----------
    n_classes : int
        k + 1.
    capacity : int, default=16384
        Largest number of cells per column, as in :class:`ScoreSummary`.

    Attributes
    ----------
    n : int
        Rows seen.
    columns : list of ScoreSummary
        For each known class, the summary of its probability; last, that of the probability of being known.
    sample : RowSample
        A sample of the rows (all, while they are few); see :mod:`osls.streaming.probabilities`.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.streaming import ProbabilitySummary
    >>> rows = np.array([[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]])
    >>> one, other = ProbabilitySummary(3).update(rows[:1]), ProbabilitySummary(3).update(rows[1:])
    >>> one.merge(other).mean.round(2)
    array([0.5 , 0.15, 0.35])
    """

    def __init__(self, n_classes: int, capacity: int = CAPACITY):
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, the novel class included; got {n_classes}.")
        self.n_classes = n_classes
        self.capacity = capacity
        self.n = 0
        self.columns = [ScoreSummary(capacity) for _ in range(n_classes)]
        self.sample = RowSample.empty(n_classes)
        self._total = np.zeros(n_classes)
        self._product = np.zeros((n_classes, n_classes))

    @property
    def _sample_size(self) -> int:
        return int(np.clip(_SAMPLE_NUMBERS // self.n_classes, 8192, 65536))

    def update(self, proba: ArrayLike) -> Self:
        """Add rows of probabilities."""
        if np.size(proba) == 0:
            return self
        rows = check_proba(proba, "proba")
        if rows.shape[1] != self.n_classes:
            raise ValueError(f"proba has {rows.shape[1]} columns; this summary has {self.n_classes} classes.")
        for j, column in enumerate(self.columns):
            column.update(rows[:, j] if j < self.n_classes - 1 else 1 - rows[:, j])
        batch = draw_sample(rows, self._sample_size, first=self.n)
        self.sample = add_samples(self.sample, batch, self._sample_size)
        self.n += len(rows)
        self._total += rows.sum(axis=0)
        self._product += rows.T @ rows
        return self

    def merge(self, other: ProbabilitySummary) -> Self:
        """Add all rows that another summary of the same shape has seen."""
        if not isinstance(other, ProbabilitySummary):
            raise TypeError(f"can only merge a ProbabilitySummary; got {type(other).__name__}.")
        if (other.n_classes, other.capacity) != (self.n_classes, self.capacity):
            raise ValueError(
                f"cannot merge summaries of {self.n_classes} and {other.n_classes} classes, "
                f"capacity {self.capacity} and {other.capacity}: create all parts alike."
            )
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            mine.merge(theirs)
        self.sample = add_samples(self.sample, other.sample, self._sample_size)
        self.n += other.n
        self._total = self._total + other._total
        self._product = self._product + other._product
        return self

    def empty(self) -> ProbabilitySummary:
        """Return a summary of the same shape that has seen nothing."""
        return ProbabilitySummary(self.n_classes, self.capacity)

    @property
    def mean(self) -> Floats:
        """Mean probabilities."""
        return self._total / max(self.n, 1)

    @property
    def mean_product(self) -> Floats:
        """Mean products of any two of a row's probabilities."""
        return self._product / max(self.n, 1)

    def __repr__(self) -> str:
        return f"ProbabilitySummary({self.n_classes}, n={self.n}, sample={len(self.sample.rows)})"

    def to_bytes(self) -> bytes:
        """Return bytes from which :meth:`from_bytes` restores the summary exactly, without pickle."""
        columns = [np.frombuffer(column.to_bytes(), dtype=np.uint8) for column in self.columns]
        return pack(
            _FORMAT,
            {"n_classes": self.n_classes, "capacity": self.capacity, "n": self.n},
            priority=self.sample.priority,
            rows=self.sample.rows,
            total=self._total,
            product=self._product,
            **{f"column_{j}": column for j, column in enumerate(columns)},
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> ProbabilitySummary:
        """Restore what :meth:`to_bytes` returned."""
        state = unpack(data, _FORMAT)
        summary = cls(state["n_classes"], state["capacity"])
        columns = [state[f"column_{j}"] for j in range(summary.n_classes)]
        summary.columns = [ScoreSummary.from_bytes(column.tobytes()) for column in columns]
        summary.n, summary.sample = state["n"], RowSample(state["priority"], state["rows"])
        summary._total, summary._product = state["total"], state["product"]
        return summary
