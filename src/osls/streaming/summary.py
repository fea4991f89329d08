"""A sample of scores in a few hundred kilobytes: update, merge, store."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from osls._core.arrays import AnyArray, Floats
from osls.mixture.sample import check_probabilities, check_scores
from osls.streaming.counts import EMPTY, CountedSample, GridCounts, add_counts, coarsen, count_keys, keys_of

CAPACITY = 1 << 14
_FORMAT = "osls.ScoreSummary/2"


class ScoreSummary:
    """A summary of fixed size of any number of scores, as the input of mixture estimators.

    Parameters
    ----------
    capacity : int, default=16384
        Largest number of cells. A sample with fewer distinct scores is kept exactly; for a larger one the
        counts are exact on a grid that is fine near 0 and near 1 (see :mod:`osls.streaming.counts`). Mean,
        smallest and largest score are always exact.

    Attributes
    ----------
    n : int
        Number of scores seen, without those of weight zero.
    cells : GridCounts
        Their counts.

    Notes
    -----
    Summaries of the parts of a sample, merged in any order and any grouping, hold the same counts as one
    summary of the whole (weights and the mean: up to rounding). Memory is that of ``capacity`` cells, 16
    bytes each (24 with weights), and one batch.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.streaming import ScoreSummary
    >>> rng = np.random.default_rng(0)
    >>> whole, parts = rng.random(50_000), [ScoreSummary() for _ in range(5)]
    >>> for part, scores in zip(parts, np.split(whole, 5)):
    ...     _ = part.update(scores)
    >>> merged = parts[0]
    >>> for part in parts[1:]:
    ...     merged = merged.merge(part)
    >>> merged == ScoreSummary().update(whole)
    True
    >>> merged.n, ScoreSummary.from_bytes(merged.to_bytes()) == merged
    (50000, True)
    """

    def __init__(self, capacity: int = CAPACITY):
        if capacity < 2:
            raise ValueError(f"capacity must be at least 2 cells; got {capacity}.")
        self.capacity = capacity
        self.n = 0
        self.counts = EMPTY
        self._total = 0.0
        self._lowest, self._highest = np.inf, -np.inf

    def update(self, scores: ArrayLike, weight: ArrayLike | None = None) -> Self:
        """Add scores, optionally with weights (1 by default)."""
        if np.size(scores) == 0:
            return self
        array = check_scores(scores, "scores")
        check_probabilities(array, "scores")
        weights = None if weight is None else _check_weight(weight, len(array))
        if weights is not None and not weights.all():
            array, weights = array[weights > 0], weights[weights > 0]
        if len(array) == 0:
            return self
        batch = count_keys(keys_of(array), weights, self.capacity, self.counts.level)
        self.counts = add_counts(self.counts, batch, self.capacity)
        self.n += len(array)
        total = array.sum(dtype=np.float64) if weights is None else array @ weights
        self._total += float(total)
        self._lowest = min(self._lowest, float(array.min()))
        self._highest = max(self._highest, float(array.max()))
        return self

    def merge(self, other: ScoreSummary) -> Self:
        """Add all scores that another summary of the same capacity has seen."""
        if not isinstance(other, ScoreSummary):
            raise TypeError(f"can only merge a ScoreSummary; got {type(other).__name__}.")
        if other.capacity != self.capacity:
            raise ValueError(
                f"cannot merge summaries of capacity {self.capacity} and {other.capacity}: "
                "create all parts with the same capacity."
            )
        self.counts = add_counts(self.counts, other.counts, self.capacity)
        self.n += other.n
        self._total += other._total
        self._lowest = min(self._lowest, other._lowest)
        self._highest = max(self._highest, other._highest)
        return self

    def empty(self) -> ScoreSummary:
        """Return a summary of the same capacity that has seen nothing."""
        return ScoreSummary(self.capacity)

    def sample(self, level: int = 0) -> CountedSample:
        """Return the counts as a weighted sample, on the grid of ``level`` if that is coarser."""
        counts = coarsen(self.counts, max(level, self.counts.level))
        return CountedSample(
            counts.middle, counts.mass, counts.squares, self.n, exact_mean=self.mean, exact_range=self.range
        )

    # -- Statistics ---------------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """Sum of the weights; the number of scores if they have none."""
        return float(self.counts.mass.sum())

    @property
    def effective_n(self) -> float:
        """Effective sample size: how many equally weighted scores are as informative."""
        return self.counts.effective_n

    @property
    def mean(self) -> float:
        """Mean score, by weight; exact."""
        return self._total / self.weight if self.n else float("nan")

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest score; exact."""
        return self._lowest, self._highest

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same counts and range, and the same mean up to rounding."""
        if not isinstance(other, ScoreSummary):
            return NotImplemented
        mine, theirs = self.counts, other.counts
        return (
            (self.capacity, self.n, self.range) == (other.capacity, other.n, other.range)
            and mine.level == theirs.level
            and np.array_equal(mine.number, theirs.number)
            and np.allclose(mine.mass, theirs.mass, rtol=1e-12, atol=0)
            and np.allclose(mine.squares, theirs.squares, rtol=1e-12, atol=0)
            and bool(np.isclose(self._total, other._total, rtol=1e-10, atol=0))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        low, high = self.range
        return f"ScoreSummary(n={self.n}, cells={len(self.counts.number)}, from {low:g} to {high:g})"

    # -- Storing ------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return bytes from which :meth:`from_bytes` restores the summary exactly, without pickle."""
        counts = self.counts
        head = {"capacity": self.capacity, "n": self.n, "total": self._total, "range": self.range}
        weighted = {} if counts.square is None else {"square": counts.square}
        return pack(
            _FORMAT, head | {"level": counts.level}, number=counts.number, mass=counts.mass, **weighted
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> ScoreSummary:
        """Restore what :meth:`to_bytes` returned."""
        state = unpack(data, _FORMAT)
        summary = cls(state["capacity"])
        summary.counts = GridCounts(state["level"], state["number"], state["mass"], state.get("square"))
        summary.n, summary._total = state["n"], state["total"]
        summary._lowest, summary._highest = state["range"]
        return summary


def pack(kind: str, head: Mapping[str, Any], **arrays: AnyArray) -> bytes:
    """Return plain values and arrays as compressed bytes of a format of this name."""
    buffer = io.BytesIO()
    text = json.dumps({"format": kind, **head}).encode()
    named: dict[str, Any] = {"head": np.frombuffer(text, dtype=np.uint8), **arrays}
    np.savez(buffer, **named)
    return zlib.compress(buffer.getvalue(), level=1)


def unpack(data: bytes, kind: str) -> dict[str, Any]:
    """Return what :func:`pack` was given, values and arrays together."""
    try:
        with np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False) as stored:
            state = dict(stored)
    except (zlib.error, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"not a stored summary, or one that was cut short ({error}).") from None
    head: dict[str, Any] = json.loads(state.pop("head").tobytes())
    if head.get("format") != kind:
        raise ValueError(f"not a stored summary: expected the format {kind!r}.")
    return head | state


class Mergeable(Protocol):
    """A summary that can be merged with another."""

    def merge(self, other: Any) -> Any: ...

    def empty(self) -> Any: ...


S = TypeVar("S", bound=Mergeable)


def merge_all(summaries: Iterable[S]) -> S:
    """Merge summaries of one type into a new one, without changing them."""
    merged: S | None = None
    for summary in summaries:
        if merged is None:
            merged = summary.empty()
        merged.merge(summary)
    if merged is None:
        raise ValueError("summaries is empty; pass at least one summary.")
    return merged


def _check_weight(weight: ArrayLike, n: int) -> Floats:
    array = np.asarray(weight, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(f"weight must have one entry for each of the {n} scores; got shape {array.shape}.")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("weight must be finite and non-negative.")
    return array
