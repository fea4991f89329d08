"""Groups inside the novel part of a target: how many, how large, and which rows.

How rows fall into groups is mathematics of its own (:mod:`osls.inference.partition`). Here is the answer that
follows: the share of each group with its interval, its rows, and the known class that it resembles. A known
class that falls into two parts is told too. Both are labelled, so neither is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from osls._core.arrays import Bools, Floats, Ints
from osls._core.saving import saveable
from osls.inference.partition import halve_classes
from osls.inference.space import Space

if TYPE_CHECKING:
    from osls.pulse import PULSE

__all__ = ["Discovery", "Group", "Parts", "class_parts", "discover", "group_shares"]


@saveable
@dataclass(frozen=True)
class Group:
    """Target rows that are novel in the same way.

    Attributes
    ----------
    share : float
        Its share of the target.
    interval : tuple of two floats
        Interval for it, at the level of the fit.
    rows : array of int
        Positions in the target of the rows called novel that belong to it, the most typical first.
    purity : float
        Mean probability that these rows are novel and of this group.
    nearest : object
        The known class that most of them resemble; None if there is no such class.
    """

    share: float
    interval: tuple[float, float]
    rows: Ints
    purity: float
    nearest: Any = None


@saveable
@dataclass(frozen=True)
class Parts:
    """A known class that falls into two parts. Both are among its labelled rows, so neither is new.

    Attributes
    ----------
    name : object
        The class.
    source, target : tuples of two floats
        The parts of its labelled rows, the larger first, and of the target rows that were called so.
    interval : tuple of two floats
        Interval of the first part in the target, at the level of the fit.
    rows : tuple of two arrays of int
        Positions in the target of the rows of each part.
    moved : bool
        Whether the parts have other proportions in the target than in the source. Then the class does not
        look as it did, which the estimated shares take for granted.
    """

    name: Any
    source: tuple[float, float]
    target: tuple[float, float]
    interval: tuple[float, float]
    rows: tuple[Ints, Ints]
    moved: bool


@saveable
@dataclass(frozen=True)
class Discovery:
    """The groups of a target.

    Attributes
    ----------
    groups : tuple of Group
        The largest first; none if no row was called novel.
    group : array of shape (m,)
        The group of each target row, counted from 0; -1 for rows that were not called novel.
    membership : array of shape (m, groups)
        Probability of each group, given that the row is novel.
    parts : tuple of Parts
        Known classes that fall into two parts.
    """

    groups: tuple[Group, ...]
    group: Ints
    membership: Floats
    parts: tuple[Parts, ...] = ()

    def __len__(self) -> int:
        return len(self.groups)

    def among(self, positions: Ints, m: int) -> Discovery:
        """Return the same groups for ``m`` rows of which these are the rows at ``positions``."""
        group, membership = np.full(m, -1), np.zeros((m, len(self)))
        group[positions], membership[positions] = self.group, self.membership
        groups = tuple(replace(each, rows=positions[each.rows]) for each in self.groups)
        parts = tuple(
            replace(each, rows=(positions[each.rows[0]], positions[each.rows[1]])) for each in self.parts
        )
        return Discovery(groups, group, membership, parts)


def discover(model: PULSE) -> Discovery:
    """Return the groups that the novel rows of a fitted model's target fall into.

    The same as ``model.discover()``, see :meth:`osls.PULSE.discover`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from osls import PULSE, discover
    >>> from osls.datasets import simulate_osls
    >>> problem = simulate_osls(*load_digits(return_X_y=True), novel=[0, 4], random_state=0)
    >>> model = PULSE(source_classifier="trees", discriminator="trees", rounds=1, random_state=0)
    >>> model = model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
    >>> found = discover(model)
    >>> len(found)
    2
    >>> bool(abs(sum(group.share for group in found.groups) - model.novel_prevalence_) < 1e-9)
    True
    """
    return model.discover()


# -- Parts of known classes -------------------------------------------------------------------------


def class_parts(
    space: Space, y: Ints, answers: Ints, classes: Sequence[Any], *, level: float = 0.95, seed: int = 0
) -> tuple[Parts, ...]:
    """Find the known classes that fall into two parts, and how large these are on either side.

    Parameters
    ----------
    space : Space
        The n source rows, then the m target rows.
    y : array of shape (n,)
        Known classes of the source rows, 0..k-1.
    answers : array of shape (m,)
        What the target rows were called; other values than 0..k-1 are of no known class.
    classes : sequence
        Names of the k classes.
    level : float, default=0.95
        Level of the intervals.
    seed : int
        Seed of the draws of rows.

    Examples
    --------
    Class "a" has two heaps; in the target one of them has become rare.

    >>> import numpy as np
    >>> from osls.inference.discovery import class_parts
    >>> from osls.inference.space import Space
    >>> heap = np.repeat([0, 1, 2, 0, 1, 2], [60, 60, 90, 90, 10, 90])
    >>> rows = np.array([[0, 0], [12, 0], [0, 12]])[heap] + np.random.default_rng(0).normal(size=(400, 2))
    >>> kind = (heap == 2).astype(int)
    >>> (found,) = class_parts(Space.of(rows, rows, kind[:210]), kind[:210], kind[210:], ["a", "b"])
    >>> found.name, np.sort(found.target).round(2).tolist(), found.moved
    ('a', [0.1, 0.9], True)
    """
    found = halve_classes(space, y, answers, len(classes), seed=seed)
    return tuple(
        compare_parts(classes[c], source, target, np.flatnonzero(answers == c), level)
        for c, (source, target) in found.items()
    )


def compare_parts(name: Any, source: Ints, target: Ints, rows: Ints, level: float) -> Parts:
    """Count the parts of a class on both sides; ``rows`` are the positions of its target rows."""
    first = int(2 * source.sum() > len(source))
    before = float(np.mean(source == first))
    now = float(np.mean(target == first)) if len(target) else before
    # A row more of each, so that an empty part has an error too.
    smooth = (np.sum(target == first) + 1) / (len(target) + 2)
    error = smooth * (1 - smooth) / (len(target) + 2)
    z = norm.ppf(0.5 + level / 2)
    low, high = np.clip(now + np.array([-z, z]) * np.sqrt(error), 0.0, 1.0).tolist()
    difference = np.sqrt(error + before * (1 - before) / len(source))
    return Parts(
        name,
        (before, 1 - before),
        (now, 1 - now),
        (low, high),
        (rows[target == first], rows[target != first]),
        bool(abs(now - before) > z * difference),
    )


# -- Shares -----------------------------------------------------------------------------------------


def group_shares(
    novelty: Floats, membership: Floats, share: float, interval: Sequence[float], level: float
) -> tuple[Floats, Floats]:
    r"""Share of each group in the target, and its interval.

    With fraction :math:`f_g` of the novel part, the mean membership weighted by novelty, the share is
    :math:`\alpha f_g`. Its variance adds that of :math:`\alpha` (from its interval, each side by itself) and
    that of the fraction: of drawing so many novel rows, and of rows whose group is in doubt.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.discovery import group_shares
    >>> novelty, membership = np.repeat([1.0, 0.0], [40, 60]), np.eye(2)[np.repeat([0, 1], [30, 70])]
    >>> shares, intervals = group_shares(novelty, membership, 0.4, (0.3, 0.5), 0.95)
    >>> shares
    array([0.3, 0.1])
    >>> intervals.round(3)
    array([[0.208, 0.392],
           [0.041, 0.159]])
    """
    total = float(novelty.sum())
    if membership.shape[1] == 0 or total == 0:
        return np.zeros(membership.shape[1]), np.zeros((membership.shape[1], 2))
    fraction = np.clip(novelty @ membership / total, 0.0, 1.0)
    drawn = fraction * (1 - fraction) / total
    doubt = np.square(novelty) @ (membership * (1 - membership)) / total**2
    noise = norm.ppf(0.5 + level / 2) * share * np.sqrt(drawn + doubt)
    below = np.hypot(fraction * (share - interval[0]), noise)
    above = np.hypot(fraction * (interval[1] - share), noise)
    shares = share * fraction
    return shares, np.clip(np.column_stack([shares - below, shares + above]), 0.0, 1.0)


def describe_groups(
    proba: Floats,
    membership: Floats,
    share: float,
    interval: Sequence[float],
    level: float,
    classes: Sequence[Any],
    novel: Bools,
    parts: tuple[Parts, ...] = (),
) -> Discovery:
    """Put shares, rows, purity and the nearest known class of every group together.

    ``proba`` has the known classes and then the novel one; ``novel`` marks the rows called novel.
    """
    # Rows not called novel would be counted for whichever group is next to the known classes.
    shares, intervals = group_shares(proba[:, -1] * novel, membership, share, interval, level)
    group = np.where(novel, membership.argmax(axis=1), -1) if membership.shape[1] else np.full(len(proba), -1)
    groups = []
    for j in range(membership.shape[1]):
        rows = np.flatnonzero(group == j)
        typical = membership[rows, j] * proba[rows, -1]
        rows = rows[np.argsort(-typical, kind="stable")]
        bounds = (float(intervals[j, 0]), float(intervals[j, 1]))
        nearest = _nearest(proba[rows, :-1], classes)
        purity = float(typical.mean()) if len(rows) else 0.0
        groups.append(Group(float(shares[j]), bounds, rows, purity, nearest))
    return Discovery(tuple(groups), group, membership, parts)


def _nearest(known: Floats, classes: Sequence[Any]) -> Any:
    """The known class that the classifier would choose for most of the rows, if it had to."""
    if known.shape[1] < 2 or not len(known):
        return None
    votes = np.bincount(known.argmax(axis=1)[known.sum(axis=1) > 0], minlength=known.shape[1])
    best = int(votes.argmax())
    return classes[best] if votes[best] > 0.5 * len(known) else None
