"""Rows that are copies of each other: they must share a fold, and none should stand on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from osls._core.arrays import AnyArray, Ints

_CHUNK = 1_000_000
# With fewer distinct rows (as a share of all) the table has a few categories, and equal rows are no copies.
_LEAST_DISTINCT = 0.3


def copies_among(*parts: AnyArray) -> Ints:
    """For each of the pooled rows, the number of the first row that equals it.

    In a table of a few categories independent rows are equal by chance; there every row counts as its own.

    Examples
    --------
    >>> import numpy as np
    >>> from osls._core.copies import copies_among
    >>> copies_among(np.array([[1.5], [2.5], [1.5]]), np.array([[2.5], [3.5]]))
    array([0, 1, 0, 1, 4])
    """
    hashes = np.concatenate([hash_rows(part) for part in parts])
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) < _LEAST_DISTINCT * len(hashes):
        return np.arange(len(hashes))
    return np.asarray(first[group])


@dataclass(frozen=True)
class SharedRows:
    """Target rows that stand in the source as well.

    Attributes
    ----------
    count : int
        How many.
    share : float
        The same as a share of the target.
    by_chance : float
        Share of the source rows that have a copy among the other source rows: what chance would give.
    example : tuple of two ints, optional
        Row numbers, in the source and in the target, of one such pair.
    """

    count: int
    share: float
    by_chance: float
    example: tuple[int, int] | None = None


def shared_rows(copy_of: Ints, n_source: int) -> SharedRows:
    """Count the target rows that are copies of source rows, from the pool's :func:`copies_among`."""
    source, target = copy_of[:n_source], copy_of[n_source:]
    both = np.flatnonzero(target < n_source)
    repeated = float(np.mean(np.bincount(source, minlength=n_source)[source] > 1))
    example = (int(target[both[0]]), int(both[0])) if len(both) else None
    return SharedRows(len(both), len(both) / max(1, len(target)), repeated, example)


def hash_rows(X: AnyArray) -> NDArray[np.uint64]:
    """64-bit hashes; equal rows have equal ones, dense or sparse. Zeros count nothing."""
    if sparse.issparse(X):
        return _hash_sparse(X)
    flat = X.reshape(len(X), int(np.prod(X.shape[1:])))
    factor = _factors(flat.shape[1])
    step = max(1, _CHUNK // max(1, flat.shape[1]))
    chunks = [(_bits(flat[i : i + step]) * factor).sum(axis=1) for i in range(0, len(flat), step)]
    return np.concatenate([np.empty(0, dtype=np.uint64), *chunks])


def _hash_sparse(X: Any) -> NDArray[np.uint64]:
    product = _bits(X.data) * _factors(X.shape[1])[X.indices]
    total = np.append(np.uint64(0), np.cumsum(product, dtype=np.uint64))
    return np.asarray(total[X.indptr[1:]] - total[X.indptr[:-1]])


def _factors(columns: int) -> NDArray[np.uint64]:
    # A fixed seed: the hashes of both sides must agree. Odd factors lose no bit of the value.
    return np.random.default_rng(0).integers(2**63, size=columns, dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )


def _bits(values: AnyArray) -> NDArray[np.uint64]:
    # Adding zero turns -0.0 into 0.0, which equals it.
    bits = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    mixed = bits.view(np.uint64)
    # The low bits of short decimal numbers are all zero; fold the high ones into them.
    return np.asarray((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15))
