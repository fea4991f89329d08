"""Find known classes that the features cannot separate; only the sum of their shares is known."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata

from osls._core.arrays import Floats, Ints
from osls.shift.scores import HeldOutScores

# Two classes are separable if the AUC of one against the other exceeds 1/2 by both a margin and three
# standard errors. Classes with fewer than _MIN_ROWS rows are not tested.
_NOTICEABLE = 0.07
_STANDARD_ERRORS = 3.0
_MIN_ROWS = 8


def pairwise_area(scores: HeldOutScores) -> tuple[Floats, Floats]:
    """Return the AUC of each class against each other class, and its standard error under equality.

    Parameters
    ----------
    scores : HeldOutScores
        The source classifier's probabilities of held-out source rows are used.

    Returns
    -------
    area, error : arrays of shape (k, k)
        The AUC is 1 on the diagonal and where a class has fewer than eight rows.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.separation import pairwise_area
    >>> from osls.shift.scores import HeldOutScores
    >>> y = np.repeat([0, 1], 9)
    >>> proba = np.column_stack([1 - y, y]) * 0.8 + 0.1
    >>> empty = np.empty((0, 2))
    >>> pairwise_area(HeldOutScores(y, proba, empty, proba, empty))[0]
    array([[1., 1.],
           [1., 1.]])
    """
    k = scores.class_source.shape[1]
    area, error = np.ones((k, k)), np.zeros((k, k))
    members = [np.flatnonzero(scores.y == j) for j in range(k)]
    for i in range(k):
        for j in range(i):
            n, m = len(members[i]), len(members[j])
            if min(n, m) < _MIN_ROWS:
                continue
            proba = scores.class_source[np.append(members[i], members[j])][:, [i, j]]
            rank = rankdata(proba[:, 0] / np.maximum(proba.sum(axis=1), 1e-300))
            area[i, j] = area[j, i] = (rank[:n].sum() - n * (n + 1) / 2) / (n * m)
            error[i, j] = error[j, i] = np.sqrt((1 / n + 1 / m) / 12)
    return area, error


def inseparable_groups(scores: HeldOutScores) -> list[Ints]:
    """Return groups of two or more classes that the features cannot separate."""
    return groups_of(*pairwise_area(scores))


def groups_of(area: Floats, error: Floats) -> list[Ints]:
    """Return the same from what :func:`pairwise_area` found."""
    alike = area - 0.5 <= np.maximum(_NOTICEABLE, _STANDARD_ERRORS * error)
    _, group = connected_components(alike, directed=False)
    groups = [np.flatnonzero(group == g) for g in range(group.max() + 1)]
    return [members for members in groups if len(members) > 1]


def share_out(marginal: Floats, source_marginal: Floats, groups: list[Ints]) -> Floats:
    """Divide the sum of each group in the source's proportions, because the data cannot determine them.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.separation import share_out
    >>> share_out(np.array([0.6, 0.0, 0.4]), np.array([0.25, 0.25, 0.5]), [np.array([0, 1])])
    array([0.3, 0.3, 0.4])
    """
    shared = marginal.copy()
    for members in groups:
        part = source_marginal[members]
        shared[members] = marginal[members].sum() * part / part.sum()
    return shared


def widen(interval: Floats, sum_interval: Floats, members: Ints) -> None:
    """Widen the intervals of a group's classes, in place: from zero to the whole sum of the group."""
    interval[members, 0] = 0.0
    interval[members, 1] = np.maximum(interval[members, 1], sum_interval[1])
