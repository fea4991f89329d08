r"""The linear programme behind open set label shift.

The novel class has a non-negative density, so the known classes cannot exceed the target in any region:

.. math:: \sum_j \pi_j\, p_j(b) \le p_t(b) \quad \text{for every region } b, \qquad \pi \ge 0, \quad
    \sum_j \pi_j \le 1 .

With one pure region per class (strong positivity), the mix that explains those regions fully is the true one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp

from osls._core.arrays import Bools, Floats

# Branch and bound stops after this many nodes; an incomplete search can only make the range wider.
_MAX_NODES = 20_000
_ROUNDING = 1e-9


class MixRange(NamedTuple):
    """Lowest and highest share of the novel class, and of each known class (rows of ``classes``)."""

    novel: tuple[float, float]
    classes: Floats


def largest_mix(class_shares: Floats, target_shares: Floats, objective: Floats | None = None) -> Floats:
    """Maximise a linear function of the known classes' mix over all mixes that the target has room for.

    Parameters
    ----------
    class_shares : array of shape (regions, k)
        Share of each known class that falls into each region.
    target_shares : array of shape (regions,)
        Share of the target in each region, plus slack for sampling if any.
    objective : array of shape (k,), optional
        What to maximise; by default the target mass explained in the given regions. (The plain sum of shares
        would drop a class that overlaps other classes' regions in favour of those classes.)

    Returns
    -------
    array of shape (k,)
        The mix; zeros are always feasible.
    """
    if objective is None:
        objective = class_shares.sum(axis=0)
    return _maximise(objective, *_room(class_shares, target_shares))


def mix_range(
    class_shares: Floats,
    target_shares: Floats,
    slack: float | Floats = 0.0,
    class_slack: float | Floats = 0.0,
    pure: Bools | None = None,
) -> MixRange:
    r"""Range of the novel share and of every class over all mixes that the target has room for.

    .. math:: \sum_j \pi_j (p_j(b) - e_j(b)) \le p_t(b) + e_t(b) \quad \text{for every region } b

    and, in the regions that are known to hold nothing novel, also

    .. math:: \sum_j \pi_j (p_j(b) + e_j(b)) \ge p_t(b) - e_t(b) .

    Parameters
    ----------
    class_shares, target_shares : arrays of shape (regions, k) and (regions,)
        As in :func:`largest_mix`.
    slack, class_slack : float or arrays of the shapes of the shares, default=0
        How far the target's shares e_t and the classes' shares e_j may be from the population's. If all
        of them hold at once with probability 1 - delta, the ranges hold at once with that probability.
    pure : bool array of shape (regions,), optional
        Regions without novel mass. Without any, no mix can be told from an all-novel target: every class
        may be absent and the novel share may be 1.

    Returns
    -------
    MixRange
        The ends are attained: without slack the ranges are sharp.

    Examples
    --------
    >>> import numpy as np
    >>> classes = np.array([[0.8, 0.0], [0.2, 0.5], [0.0, 0.5], [0.0, 0.0]])
    >>> target = np.array([0.32, 0.23, 0.15, 0.3])
    >>> mix_range(classes, target).classes.round(3)
    array([[0. , 0.4],
           [0. , 0.3]])
    >>> pure = np.array([True, False, True, False])
    >>> mix_range(classes, target, slack=0.008, pure=pure).classes.round(3)
    array([[0.39 , 0.41 ],
           [0.284, 0.316]])
    """
    least = np.maximum(class_shares - class_slack, 0.0)
    rows, room = _room(least, target_shares + slack)
    k = class_shares.shape[1]
    each, total = np.eye(k), np.ones(k)
    if pure is None or not pure.any():
        # Smaller shares than those of a feasible mix are feasible: only the least novel share needs linprog.
        low, most_novel = np.zeros(k), 1.0
        alone = np.divide(room[:, None], rows, out=np.full(rows.shape, np.inf), where=rows > 0)
        high = np.asarray(alone.min(axis=0))
    else:
        rows = np.vstack([rows, -(class_shares + class_slack)[pure]])
        room = np.append(room, -(target_shares - slack)[pure])
        low = np.array([_maximise(-e, rows, room)[j] for j, e in enumerate(each)])
        most_novel = 1 - float(_maximise(-total, rows, room).sum())
        high = np.array([_maximise(e, rows, room)[j] for j, e in enumerate(each)])
    least_novel = 1 - float(_maximise(total, rows, room).sum())
    return MixRange((max(0.0, least_novel), most_novel), np.column_stack([low, high]))


def maximal_range(class_shares: Floats, target_shares: Floats) -> MixRange:
    r"""Range over the *maximal* mixes: those in which no known class could take a larger share.

    A mix is maximal if and only if every class j meets a region with p_j(b) > 0 that is full,
    sum_i pi_i p_i(b) = p_t(b): then the novel class has no part that looks like a known class
    (irreducibility). The maximal mixes are a union of faces, not a convex set, so a binary z_b marks the
    full regions:

    .. math:: p_t(b)\, z_b \le \sum_j \pi_j\, p_j(b) \le p_t(b), \qquad
        \sum_{b:\, p_j(b) > 0} z_b \ge 1 \quad \text{for every class } j .

    The upper ends of the classes and the lower end of the novel share are those of :func:`mix_range`,
    because a strictly positive objective is maximised at a maximal mix.

    Examples
    --------
    >>> import numpy as np
    >>> classes = np.array([[0.75, 0.25], [0.25, 0.75], [0.0, 0.0]])
    >>> low, high = maximal_range(classes, np.array([0.4, 0.4, 0.2])).novel
    >>> round(low, 3), round(high, 3)  # both classes .4 each; or one class alone, .533
    (0.2, 0.467)
    """
    everything = mix_range(class_shares, target_shares)
    largest = everything.classes[:, 1]
    if (class_shares @ largest <= target_shares + _ROUNDING * class_shares.max(axis=1)).all():
        # All classes can have their largest share at once: this is the only maximal mix.
        return MixRange((everything.novel[0], everything.novel[0]), np.column_stack([largest, largest]))
    k = class_shares.shape[1]
    used = class_shares.max(axis=1) > 0
    scale = class_shares[used].max(axis=1)
    shares, room = class_shares[used] / scale[:, None], target_shares[used] / scale
    # No mix with sum(pi) <= 1 fills a region with room for more than the largest share, here 1.
    fillable = room <= 1 + _ROUNDING
    shares, room = shares[fillable], room[fillable]
    n = len(room)
    constraints = [
        LinearConstraint(np.hstack([shares, np.zeros((n, n))]), ub=room),
        LinearConstraint(np.hstack([shares, -np.diag(room)]), lb=0.0),
        LinearConstraint(np.hstack([np.zeros((k, k)), (shares > 0).T]), lb=1.0),
    ]
    integrality = np.append(np.zeros(k), np.ones(n))

    def smallest(objective: Floats) -> float:
        solution = milp(
            np.append(objective, np.zeros(n)),
            constraints=constraints,
            integrality=integrality,
            bounds=(0, 1),
            options={"mip_rel_gap": 0.0, "node_limit": _MAX_NODES},
        )
        if solution.mip_dual_bound is None:
            raise RuntimeError(f"the programme for the maximal mixes failed: {solution.message}")
        return max(0.0, float(solution.mip_dual_bound))

    low = np.minimum([smallest(e) for e in np.eye(k)], largest)
    most_novel = max(1 - smallest(np.ones(k)), everything.novel[0])
    return MixRange((everything.novel[0], most_novel), np.column_stack([low, largest]))


def _room(class_shares: Floats, target_shares: Floats) -> tuple[Floats, Floats]:
    """Rows and right-hand sides of the constraints: room in every region, and a total of at most one."""
    return np.vstack([class_shares, np.ones(class_shares.shape[1])]), np.append(target_shares, 1.0)


def _maximise(objective: Floats, rows: Floats, room: Floats) -> Floats:
    solution = linprog(-objective, A_ub=rows, b_ub=room, bounds=(0, 1))
    if solution.status == 2:
        raise ValueError(
            "no mix fills the pure regions without overfilling another: pure marks a region that holds "
            "novel mass, or slack is too small."
        )
    if not solution.success:
        raise RuntimeError(f"the linear programme for the class mix failed: {solution.message}")
    return np.asarray(solution.x)
