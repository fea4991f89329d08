"""What re-estimating a mix needs to know of (k+1)-way predictions, in a few megabytes."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from osls._typing import Floats
from osls.shift.base import check_proba
from osls.streaming.sample import RowSample, add_samples, draw_sample
from osls.streaming.summary import CAPACITY, ScoreSummary

__all__ = ["ProbabilitySummary"]

_FORMAT = "osls.ProbabilitySummary/1"
_SAMPLE_NUMBERS = 1 << 20  # of all sampled rows together


class ProbabilitySummary:
    """A summary of rows of probabilities: of the k known classes and, last, of the novel one.

    Parameters
    ----------
    n_classes : int
        k + 1.
    capacity : int, default=16384
        Most cells a column, as in :class:`ScoreSummary`.

    Attributes
    ----------
    n : int
        Rows seen.
    columns : list of ScoreSummary
        One a known class, of its probability; last, of the probability of being known at all.
    sample : RowSample
        Some whole rows (all, while they are few); see :mod:`osls.streaming.sample`.

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
        """Take in more rows of probabilities."""
        if np.size(proba) == 0:
            return self
        rows = check_proba(proba, "proba")
        if rows.shape[1] != self.n_classes:
            raise ValueError(f"proba has {rows.shape[1]} columns; this summary is of {self.n_classes}.")
        for j, column in enumerate(self.columns):
            column.update(rows[:, j] if j < self.n_classes - 1 else 1 - rows[:, j])
        batch = draw_sample(rows, self._sample_size, first=self.n)
        self.sample = add_samples(self.sample, batch, self._sample_size)
        self.n += len(rows)
        self._total += rows.sum(axis=0)
        self._product += rows.T @ rows
        return self

    def merge(self, other: ProbabilitySummary) -> Self:
        """Take in all that another summary of the same shape has seen."""
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
        """Return bytes from which :meth:`from_bytes` restores the summary exactly; no code in them."""
        head = {
            "format": _FORMAT,
            "n_classes": self.n_classes,
            "capacity": self.capacity,
            "n": self.n,
            "columns": [column.to_json() for column in self.columns],
        }
        buffer = io.BytesIO()
        np.savez(
            buffer,
            head=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8),
            priority=self.sample.priority,
            rows=self.sample.rows,
            total=self._total,
            product=self._product,
        )
        return zlib.compress(buffer.getvalue(), level=1)

    @classmethod
    def from_bytes(cls, data: bytes) -> ProbabilitySummary:
        """Restore what :meth:`to_bytes` returned."""
        with np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False) as stored:
            head: dict[str, Any] = json.loads(stored["head"].tobytes())
            if head.get("format") != _FORMAT:
                raise ValueError(f"not a stored ProbabilitySummary: expected the format {_FORMAT!r}.")
            summary = cls(head["n_classes"], head["capacity"])
            summary.n = head["n"]
            summary.columns = [ScoreSummary.from_json(text) for text in head["columns"]]
            summary.sample = RowSample(stored["priority"], stored["rows"])
            summary._total, summary._product = stored["total"], stored["product"]
        return summary
