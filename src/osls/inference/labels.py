"""Labels that a person gives to rows of the target: which rows to ask for, and what follows from the answers.

Labels of chosen rows are not a random sample, so nothing is counted with them: they say what a class looks
like, and the novel part is split by the rows that look so.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.saving import saveable
from osls._core.validation import is_missing, list_labels
from osls.inference.discovery import Discovery, group_shares

__all__ = [
    "NOT_NEW",
    "Origin",
    "Suggestion",
    "choose_rows",
    "collect_labels",
    "combine_named",
    "spread_labels",
]

# The label that says "this row is of a known class, whichever the model finds".
NOT_NEW = "(not new)"
# Of the suggested rows, the part that lies between groups, or between novel and known.
_AT_BORDERS = 0.1


@saveable
@dataclass(frozen=True)
class Origin:
    """The answer and the groups before anything was absorbed, and all labels given since."""

    classes: AnyArray
    target_proba: Floats
    target_marginal: Floats
    interval: Floats
    found: Discovery
    rows: Ints
    labels: tuple[Any, ...]


@dataclass(frozen=True)
class Suggestion:
    """A target row whose label would help, and why."""

    row: int
    group: int
    reason: str


def collect_labels(start: Origin, rows: Sequence[int], y: Sequence[Any], m: int) -> dict[int, Any]:
    """Check labels and add them to those given before; a conflict is an error that names the row."""
    if len(rows) == 0:
        raise ValueError("y: there is no label to absorb; give at least one.")
    places = np.asarray(rows)
    if places.dtype.kind not in "iu" or places.ndim != 1:
        raise ValueError(
            "rows must be positions in the target, whole numbers; for a mask, np.flatnonzero(mask)."
        )
    y = list_labels(y)
    if len(places) != len(y):
        raise ValueError(f"there are {len(places)} rows but {len(y)} labels; give each row one.")
    labels = dict(zip(start.rows.tolist(), start.labels, strict=True))
    names = [*start.classes.tolist(), NOT_NEW, *labels.values()]
    now: dict[int, Any] = {}
    for row, name in zip(places.tolist(), y, strict=True):
        if is_missing(name):
            raise ValueError(f"row {row} has no label; leave it out, or give it one.")
        if not 0 <= row < m:
            raise ValueError(f"there is no row {row} in the target, which has {m} rows.")
        if now.setdefault(row, name) != name:
            raise ValueError(f"row {row} has two labels, {now[row]!r} and {name!r}; keep one of them.")
        twin = next((other for other in names if other != name and _spelled(other) == _spelled(name)), None)
        if twin is not None:
            raise ValueError(
                f"the label {name!r} differs from the class {twin!r} by case or blanks only; "
                "write both alike, or give it another name."
            )
        names.append(name)
    return labels | now


def _spelled(name: Any) -> Any:
    """A name without what a person hardly ever means: case, blanks, Unicode form; numbers by their text."""
    return " ".join(unicodedata.normalize("NFKC", str(name)).split()).casefold()


def with_classes(classes: AnyArray, new: Sequence[Any]) -> AnyArray:
    """The known classes, the new ones, and the novel label last."""
    *known, novel = classes.tolist()
    together = [*known, *new, novel]
    if classes.dtype.kind == "O" or len({isinstance(name, str) for name in together}) > 1:
        return np.array(together, dtype=object)
    return np.array(together)


def spread_labels(rows: Floats, group: Ints, given: Ints, number: Ints, novel: int) -> Ints:
    """Return a class for each target row that was called novel or labelled, -1 for the others.

    A row takes the class of the nearest labelled row of its group, so that a group with labels of two classes
    is split. Groups without labels stay novel.

    Parameters
    ----------
    rows : array of shape (m, d)
        Target rows in the space of the groups.
    group : array of shape (m,)
        Their groups, -1 for those not called novel.
    given, number : arrays of int
        Positions of the labelled rows, and the numbers of their classes.
    novel : int
        The number of the novel class.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.labels import spread_labels
    >>> rows, group = np.array([[0.0], [1.0], [8.0], [9.0], [30.0], [2.0]]), np.array([0, 0, 0, 0, 1, -1])
    >>> spread_labels(rows, group, np.array([0, 3]), np.array([5, 6]), 7).tolist()
    [5, 5, 6, 6, 7, -1]
    """
    spread = np.where(group >= 0, novel, -1)
    for j in np.unique(group[given]):
        members, seeds = np.flatnonzero(group == j), group[given] == j
        if j >= 0:
            nearest = NearestNeighbors(n_neighbors=1).fit(rows[given[seeds]])
            spread[members] = number[seeds][nearest.kneighbors(rows[members], return_distance=False)[:, 0]]
    spread[given] = number
    return np.asarray(spread)


def new_mix(start: Origin, pseudo: Ints, count: int, level: float) -> tuple[Floats, Floats]:
    """Shares and intervals of all classes: the novel part is split, what was known stays.

    Rows that turn out to be of a known class move their share of the novel part there.
    """
    known = len(start.classes) - 1
    novel = start.target_proba.argmax(axis=1) == known
    weight = np.where(novel, start.target_proba[:, -1], 0.0)
    owner = np.where(novel, np.maximum(pseudo, 0), 0)
    alpha = float(start.target_marginal[-1])
    shares, intervals = group_shares(weight, np.eye(count)[owner], alpha, start.interval[-1], level)
    base = np.concatenate([start.target_marginal[:-1], np.zeros(count - known)])
    bounds = np.concatenate([start.interval[:-1], np.zeros((count - known, 2))])
    below = np.hypot(base - bounds[:, 0], shares - intervals[:, 0])
    above = np.hypot(bounds[:, 1] - base, intervals[:, 1] - shares)
    total = base + shares
    return total, np.clip(np.column_stack([total - below, total + above]), 0.0, 1.0)


def combine_named(before: Floats, named: Floats) -> Floats:
    """Mean of two answers: the named classes', and the fit's with its P(novel) split as that answer says.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.labels import combine_named
    >>> combine_named(np.array([[0.2, 0.8]]), np.array([[0.0, 0.75, 0.25]]))
    array([[0.1  , 0.675, 0.225]])
    """
    k = before.shape[1] - 1
    new = named[:, k:]
    total = new.sum(axis=1, keepdims=True)
    # Without any opinion on the new classes the rest stays novel.
    split = np.where(total > 0, new / np.where(total > 0, total, 1), np.eye(new.shape[1])[-1])
    return np.asarray((named + np.column_stack([before[:, :k], before[:, k:] * split])) / 2)


# -- Rows worth a label -----------------------------------------------------------------------------


def choose_rows(found: Discovery, rows: Floats, proba: Floats, n: int, given: set[int]) -> list[Suggestion]:
    """Choose up to ``n`` target rows that were not given yet, the best first.

    ``rows`` has the target rows in the space of the groups, ``proba`` their probabilities. Most are typical
    rows of parts of the novel rows, the more the larger a group is; parts are found in all novel rows at
    once, since groups may be wrong. The others are the most undecided ones.
    """
    border = [each for each in _at_borders(found, proba, n) if each.row not in given][: int(_AT_BORDERS * n)]
    at_border = {each.row for each in border}
    typical = _typical(found, rows, n - len(border), given | at_border)
    return typical + border


def _typical(found: Discovery, rows: Floats, n: int, given: set[int]) -> list[Suggestion]:
    """The rows nearest to the centres of parts; of each group in turn, the largest part first."""
    called = np.array(sorted(set(np.flatnonzero(found.group >= 0).tolist()) - given), dtype=np.int64)
    if len(called) == 0:
        return []
    parts = min(len(called), n)
    with threadpool_limits(1):
        centres = KMeans(parts, n_init=3, random_state=0).fit(rows[called])
    nearest = called[centres.transform(rows[called]).argmin(axis=0)]
    largest = np.argsort(-np.bincount(centres.labels_, minlength=parts), kind="stable")
    by_group: list[list[Suggestion]] = [[] for _ in found.groups]
    for row in dict.fromkeys(nearest[largest].tolist()):
        mine = by_group[found.group[row]]
        words = "typical of a part of group" if mine else "typical of group"
        mine.append(Suggestion(row, int(found.group[row]), f"{words} {found.group[row] + 1}"))
    longest = max(map(len, by_group))
    return [mine[i] for i in range(longest) for mine in by_group if i < len(mine)]


def _at_borders(found: Discovery, proba: Floats, count: int) -> list[Suggestion]:
    """Rows between two groups, and rows that may be novel or known, by how undecided they are."""
    two = np.sort(found.membership, axis=1)[:, -2:] if len(found) > 1 else np.ones((len(proba), 2))
    between = (1 - (two[:, -1] - two[:, 0])) * proba[:, -1] if len(found) > 1 else np.zeros(len(proba))
    edge = 1 - np.abs(2 * proba[:, -1] - 1)
    group = found.membership.argmax(axis=1)
    chosen = []
    for row in np.argsort(-np.maximum(between, edge), kind="stable")[: 2 * count]:
        doubt = "between two groups" if between[row] > edge[row] else "as probably new as known"
        chosen.append(Suggestion(int(row), int(group[row]), f"undecided: {doubt}"))
    return chosen
