"""The space in which rows are compared: columns and what models learnt, in units of a known class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from osls._core.arrays import Floats, Ints

__all__ = ["Space", "telling_view"]

_SHRINKAGE = 0.2
# What the models learnt counts so much in a distance, beside the columns.
_LEARNT = 0.3
# A view of the columns is judged by so many labelled rows at most, and by so many neighbours of each.
_JUDGED_ROWS = 2000
_JUDGES = 5


@dataclass(frozen=True)
class Space:
    """Rows by their columns and by what the models learnt, both in units of a known class."""

    columns: Floats
    learnt: Floats

    @classmethod
    def of(cls, columns: Floats, learnt: Floats, y: Ints) -> Space:
        """Measure rows by the known classes ``y`` of the first of them.

        Columns lose the correlations that they have within classes. What the models learnt is only scaled:
        its directions are already weighted by what they tell. The variance within classes adds up to one in
        each of the two.

        Examples
        --------
        >>> import numpy as np
        >>> from osls.inference.space import Space
        >>> rows = np.random.default_rng(0).normal(size=(100, 2)) * [9, 1]
        >>> space = Space.of(rows, rows[:, :1], np.zeros(100, dtype=int))
        >>> bool(np.allclose(space.columns.var(axis=0).sum(), 1)), space.joint.shape
        (True, (100, 3))
        """
        columns = columns @ within_class_scale(columns[: len(y)], y)
        return cls(_in_units(columns, y), _in_units(learnt, y))

    @property
    def joint(self) -> Floats:
        """Both, in the proportion in which they count in a distance."""
        return np.column_stack([self.columns, _LEARNT * self.learnt])

    def __getitem__(self, rows: Any) -> Space:
        return Space(self.columns[rows], self.learnt[rows])


def telling_view(views: Sequence[Floats], y: Ints) -> Floats:
    """Return the view in which the neighbours of a labelled row are most often of its class.

    Each class counts alike. Without two classes nothing is told, and the first view is as good as any.

    Parameters
    ----------
    views : sequence of arrays
        The same rows in different columns; the labelled ones first.
    y : array of shape (n,)
        Known classes of the first rows.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.space import telling_view
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 50)
    >>> noise, telling = rng.normal(size=(100, 1)), rng.normal(size=(100, 1)) + 9 * y[:, None]
    >>> telling_view([noise, telling], y) is telling
    True
    """
    judged = np.random.default_rng(0).permutation(len(y))[:_JUDGED_ROWS]
    if len(np.unique(y[judged])) < 2 or len(judged) <= _JUDGES:
        return views[0]
    with threadpool_limits(1):
        return max(views, key=lambda view: _told(view[judged], y[judged]))


def _told(rows: Floats, y: Ints) -> float:
    """Mean share of neighbours of a row's own class, in units of a class."""
    if rows.shape[1] == 0:
        return 0.0
    scaled = rows @ within_class_scale(rows, y)
    near = NearestNeighbors(n_neighbors=_JUDGES).fit(scaled).kneighbors(return_distance=False)
    own = (y[near] == y[:, None]).mean(axis=1)
    return float(np.mean([own[y == c].mean() for c in np.unique(y)]))


def within_class_scale(rows: Floats, y: Ints) -> Floats:
    """Return the matrix that makes the covariance within classes the identity, shrunk to be invertible.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.space import within_class_scale
    >>> rows = np.array([[-3.0, 0.0], [3.0, 0.0], [7.0, -1.0], [13.0, 1.0]])
    >>> scaled = rows @ within_class_scale(rows, np.array([0, 0, 1, 1]))
    >>> bool(np.linalg.norm(scaled[1] - scaled[0]) < 3)
    True
    """
    within = _within(rows, y)
    value, vector = np.linalg.eigh(shrunk(within.T @ within / len(within), _SHRINKAGE))
    return np.asarray(vector / np.sqrt(value))


def _within(rows: Floats, y: Ints) -> Floats:
    """Rows minus the mean of their class."""
    number = np.unique(y, return_inverse=True)[1]
    means = np.stack([rows[number == c].mean(axis=0) for c in range(number.max() + 1)])
    return np.asarray(rows - means[number])


def _in_units(rows: Floats, y: Ints) -> Floats:
    total = float(_within(rows[: len(y)], y).var(axis=0).sum())
    return rows / np.sqrt(total) if total > 0 else rows


def shrunk(covariance: Floats, share: float) -> Floats:
    """Move a covariance this far towards a multiple of the identity, so that it can be inverted."""
    d = len(covariance)
    level = np.trace(covariance) / max(d, 1) + 1e-12
    return np.asarray((1 - share) * covariance + share * level * np.eye(d))
