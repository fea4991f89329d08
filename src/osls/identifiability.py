r"""Whether the target's class mix is identified (section 4 of the paper and its appendix).

On a finite domain let A be the matrix of the known classes' p(x|y=j), one row per cell x, and b the target's
p_t(x). A mix pi leaves the residual b - A pi and the share 1 - sum(pi) to the novel class. Three sets of
mixes are of interest, each a subset of the one before:

1. *Feasible*, no assumption: F = {pi >= 0, A pi <= b}. (Summed over x the last gives sum(pi) <= 1.) F has
   pi = 0 and, with pi, every smaller mix. So every class may be absent and the novel share may be 1; only
   the other ends carry information. The largest share of class j is min_x p_t(x) / p(x|y=j), which BBE
   estimates; the smallest novel share is the solution of a linear programme. Both are sharp. F is one point
   only if it is {0}.
2. *Maximal*, if the novel class is irreducible (no part of it is distributed like a known class): no class
   can take a larger share. Since A >= 0, this says that every class j has a full cell, (A pi)(x) = p_t(x),
   with p(x|y=j) > 0. This is a union of faces of F; a mixed-integer linear programme finds its ends. It is
   one point if and only if the classes' largest shares u_j = min_x p_t(x) / p(x|y=j) are feasible together,
   A u <= b; and then every class with u_j > 0 has a full cell without any other such class. So irreducibility
   alone identifies the mix only under strong positivity, which is checked in linear time.
3. *Weak positivity*, the paper's solutions: the full cells X_wp have a matrix of full column rank. These
   are the vertices of {A pi <= b} (no sign constraint) that are non-negative: finitely many, found among
   the k-subsets of cells. They are maximal: from A_wp pi' <= b_wp = A_wp pi and pi' >= pi follows
   A_wp (pi' - pi) = 0. If every cell with known mass is full (separability), {A pi <= b} is a cone with one
   vertex, so there is one solution.

The programme's smallest novel share belongs to a solution whenever its optimum has k independent full cells.
It is smaller than that of every solution if the optimum needs some pi_j = 0 instead. The largest novel share
among the solutions is not a linear programme: finding it means searching the vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog

from osls._core.arrays import Bools, Floats, Ints
from osls.shift.programme import MixRange, largest_mix, maximal_range, mix_range

__all__ = ["Identifiability", "Solution", "check", "independence_gap", "strictly_linearly_independent"]

_SUM = 1e-6  # how far a distribution's sum may be from one
_ZERO = 1e-12  # smaller probabilities are rounding errors
_RANK = 1e-7  # smallest singular value of a full-rank matrix whose rows have maximum one
_SAME = 1e-6  # solutions closer than this count as one
_CHUNK = 8192
_TRIES = 32


@dataclass(frozen=True, eq=False)
class Solution:
    """A class mix that satisfies weak positivity.

    Attributes
    ----------
    marginal : array of shape (k + 1,)
        Shares of the known classes and, last, of the novel class.
    novel_conditional : array of shape (cells,) or None
        p_t(x | novel); None if the novel share is 0.
    subdomain : tuple of int
        The largest X_wp: all cells that hold known mass and nothing novel.
    """

    marginal: Floats
    novel_conditional: Floats | None
    subdomain: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What :func:`check` finds.

    Attributes
    ----------
    identified : bool or None
        Whether weak positivity, if it is assumed, leaves one mix; None if undecided within the limit.
    reason : str
        Why, in plain words.
    weak_positivity : bool or None
        Some mix satisfies it (Proposition 1); None if undecided within the limit.
    strong_positivity, separability : bool
        Some mix satisfies the sufficient condition of Proposition 2; that mix is then the only solution.
    solutions : tuple of Solution or None
        All solutions, smallest novel share first; None if there are too many subdomains to try.
    feasible : MixRange
        Sharp ranges without any assumption, by linear programming.
    weak : MixRange or None
        Ranges over ``solutions``; None if there is no solution or they are not known.
    p_x_given_y, p_target : arrays
        The problem.
    """

    identified: bool | None
    reason: str
    weak_positivity: bool | None
    strong_positivity: bool
    separability: bool
    solutions: tuple[Solution, ...] | None
    feasible: MixRange
    weak: MixRange | None
    p_x_given_y: Floats = field(repr=False)
    p_target: Floats = field(repr=False)

    @property
    def novel_range(self) -> tuple[float, float]:
        """Sharp range of the novel share without any assumption; its upper end is always 1."""
        return self.feasible.novel

    @property
    def class_ranges(self) -> Floats:
        """Sharp range of each known class without any assumption; the lower ends are always 0."""
        return self.feasible.classes

    @cached_property
    def irreducible(self) -> MixRange:
        """Sharp ranges if no part of the novel class is distributed like a known class.

        The search can be slow with hundreds of cells, so it runs on first access.
        """
        return maximal_range(self.p_x_given_y, self.p_target)


def check(
    p_x_given_y: ArrayLike, p_target: ArrayLike, *, tol: float = 1e-9, max_subsets: int = 200_000
) -> Identifiability:
    """Decide whether a discrete problem determines the target's class mix; if not, give its ranges.

    Parameters
    ----------
    p_x_given_y : array-like of shape (cells, k)
        Column j is the distribution of known class j.
    p_target : array-like of shape (cells,)
        The distribution of the target.
    tol : float, default=1e-9
        A cell is full if its residual is at most this share of the largest p(x|y) in it.
    max_subsets : int, default=200_000
        Largest number of k-subsets of cells to enumerate.

    Returns
    -------
    Identifiability

    References
    ----------
    .. [1] Garg, Balakrishnan, Lipton. Domain Adaptation under Open Set Label Shift. NeurIPS 2022,
       Propositions 1 and 2, Examples 1 and 2.
    .. [2] Blanchard, Lee, Scott. Semi-supervised novelty detection. JMLR 2010 (irreducibility).

    Examples
    --------
    The paper's Example 2:

    >>> from osls.identifiability import check
    >>> answer = check([[0.5, 0.2], [0.3, 0.4], [0.1, 0.35], [0.1, 0.05]], [0.24, 0.2, 0.35, 0.21])
    >>> answer.identified, answer.strong_positivity, answer.separability
    (True, False, False)
    >>> answer.solutions[0].marginal.round(6), answer.solutions[0].subdomain
    (array([0.4, 0.2, 0.4]), (0, 1))
    """
    classes, target = _check_distributions(p_x_given_y, p_target)
    cells = _Cells.of(classes, target, tol)
    feasible = mix_range(classes, target)
    largest = feasible.classes[:, 1]
    one_maximal = bool(cells.has_room_for(largest[None])[0])
    strong = one_maximal and cells.each_class_alone(largest)
    separable = cells.all_full()

    mixes = _enumerate(cells, max_subsets)
    known = mixes if mixes is not None else _search(cells, classes, target)
    weak = _range_of(mixes) if mixes is not None and len(mixes) else None
    identified, reason = _verdict(
        strong, one_maximal, separable, known, mixes is not None, cells.full_rank(), feasible
    )
    return Identifiability(
        identified=identified,
        reason=reason,
        weak_positivity=True if len(known) else (None if mixes is None else False),
        strong_positivity=strong,
        separability=separable,
        solutions=None if mixes is None else tuple(cells.describe(m, classes, target) for m in mixes),
        feasible=feasible,
        weak=weak,
        p_x_given_y=classes,
        p_target=target,
    )


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells with known mass; rows are scaled to maximum one, so that one tolerance fits all."""

    index: Ints
    shares: Floats
    room: Floats
    tol: float

    @classmethod
    def of(cls, classes: Floats, target: Floats, tol: float) -> _Cells:
        index = np.flatnonzero(classes.max(axis=1) > 0)
        scale = classes[index].max(axis=1)
        return cls(index, classes[index] / scale[:, None], target[index] / scale, tol)

    def has_room_for(self, mixes: Floats) -> Bools:
        return np.asarray((mixes @ self.shares.T <= self.room + self.tol).all(axis=1))

    def full(self, mix: Floats) -> Bools:
        return np.asarray(self.shares @ mix >= self.room - self.tol)

    def full_rank(self, which: Bools | None = None) -> bool:
        rows = self.shares if which is None else self.shares[which]
        k = self.shares.shape[1]
        return len(rows) >= k and bool(np.linalg.svd(rows, compute_uv=False)[-1] > _RANK)

    def each_class_alone(self, mix: Floats) -> bool:
        """Whether every class has a full cell that no other class visits."""
        alone = self.full(mix) & (np.count_nonzero(self.shares, axis=1) == 1)
        return bool((self.shares[alone] > 0).any(axis=0).all())

    def all_full(self) -> bool:
        mix = np.linalg.lstsq(self.shares, self.room)[0]
        return bool(self.full_rank() and self.full(mix).all() and self.accepts(mix[None])[0])

    def accepts(self, mixes: Floats) -> Bools:
        return self.has_room_for(mixes) & (mixes >= -self.tol).all(axis=1)

    def describe(self, mix: Floats, classes: Floats, target: Floats) -> Solution:
        novel = 1 - float(mix.sum())
        subdomain = tuple(self.index[self.full(mix)].tolist())
        if novel <= self.tol:
            return Solution(np.append(mix, 0.0), None, subdomain)
        residual = np.maximum(target - classes @ mix, 0.0)
        residual[list(subdomain)] = 0.0
        return Solution(np.append(mix, novel), residual / residual.sum(), subdomain)


def _enumerate(cells: _Cells, max_subsets: int) -> Floats | None:
    """Return every non-negative vertex of {A pi <= b}, or None if there are too many subsets to try."""
    n, k = cells.shares.shape
    if comb(n, k) > max_subsets:
        return None
    accepted: list[Floats] = [np.empty((0, k))]
    for subset in _chunks(n, k):
        square = cells.shares[subset]
        regular = np.linalg.svd(square, compute_uv=False)[:, -1] > _RANK
        mixes = np.linalg.solve(square[regular], cells.room[subset[regular]][..., None])[..., 0]
        accepted.append(mixes[cells.accepts(mixes)])
    return _distinct(np.concatenate(accepted))


def _chunks(n: int, k: int) -> Iterator[Ints]:
    subsets = combinations(range(n), k)
    while chunk := list(islice(subsets, _CHUNK)):
        yield np.array(chunk)


def _search(cells: _Cells, classes: Floats, target: Floats) -> Floats:
    """Return some solutions, found by linear programmes.

    A solution maximises every positive combination of its full rows, so combinations of k rows are tried.
    """
    k = classes.shape[1]
    rng = np.random.default_rng(0)
    rows = rng.integers(len(cells.shares), size=(_TRIES, k))
    accepted: list[Floats] = [np.empty((0, k))]
    for objective in [np.ones(k), *cells.shares[rows].sum(axis=1)]:
        mix = largest_mix(classes, target, objective)
        full = cells.shares @ mix >= cells.room - _RANK
        if cells.full_rank(full):
            # The programme is accurate to about 1e-7; its full cells determine the vertex exactly.
            exact = np.linalg.lstsq(cells.shares[full], cells.room[full])[0][None]
            accepted.append(exact[cells.accepts(exact)])
    return _distinct(np.concatenate(accepted))


def _distinct(mixes: Floats) -> Floats:
    """Drop repeated rows; smallest novel share first."""
    kept = []
    while len(mixes):
        kept.append(mixes[0])
        mixes = mixes[np.abs(mixes - mixes[0]).max(axis=1) > _SAME]
    if not kept:
        return mixes
    rows = np.clip(kept, 0.0, 1.0)
    # Rounded, so that ties are broken by the classes' shares and not by rounding errors.
    order = np.lexsort((*rows.T[::-1], -rows.sum(axis=1).round(9)))
    return np.asarray(rows[order])


def _range_of(mixes: Floats) -> MixRange:
    novel = np.clip(1 - mixes.sum(axis=1), 0.0, 1.0)
    return MixRange((float(novel.min()), float(novel.max())), np.stack([mixes.min(0), mixes.max(0)], axis=1))


def _verdict(
    strong: bool,
    one_maximal: bool,
    separable: bool,
    known: Floats,
    complete: bool,
    independent: bool,
    feasible: MixRange,
) -> tuple[bool | None, str]:
    at_least = f"Without any assumption the novel share is at least {feasible.novel[0]:.3g}."
    if strong:
        return (
            True,
            "Strong positivity: every known class has a cell that neither another nor novelty visits.",
        )
    if one_maximal:
        return True, (
            "Every known class either has a cell that no other present class and no novelty visits, "
            "or is ruled out by a cell that the target never visits."
        )
    if separable:
        return True, "Separability: the novel class visits no cell of the known classes."
    if len(known) > 1:
        novel = _range_of(known).novel
        count = f"{len(known)}" if complete else f"at least {len(known)}"
        return False, (
            f"Weak positivity holds for {count} different mixes, with novel shares from {novel[0]:.3g} to "
            f"{novel[1]:.3g}; nothing in the data prefers one. {at_least}"
        )
    if not independent:
        return False, (
            "The known classes are linearly dependent, so their shares can be traded against each other. "
            + at_least
        )
    if not complete:
        return None, (
            f"Undecided: too many subdomains to try them all; raise max_subsets or merge cells. {at_least}"
        )
    if len(known) == 0:
        return False, (
            "No mix satisfies weak positivity: under every mix the novel class visits so many cells that "
            f"the rest cannot tell the known classes apart. {at_least}"
        )
    return True, (
        "Only one mix satisfies weak positivity. Neither strong positivity nor separability holds, so the "
        f"answer rests on that assumption. {at_least}"
    )


def _check_distributions(p_x_given_y: ArrayLike, p_target: ArrayLike) -> tuple[Floats, Floats]:
    """Return both as new float arrays; otherwise raise an error that names the argument and the reason."""
    classes = _check_numbers(p_x_given_y, "p_x_given_y")
    target = _check_numbers(p_target, "p_target")
    if classes.ndim != 2 or classes.size == 0:
        raise ValueError(
            "p_x_given_y must be a matrix, one row per cell and one column per known class; "
            f"got shape {classes.shape}."
        )
    if target.shape != classes.shape[:1]:
        raise ValueError(
            f"p_target must have one entry for each of the {len(classes)} rows of p_x_given_y; "
            f"got shape {target.shape}."
        )
    sums = classes.sum(axis=0)
    if np.abs(sums - 1).max() > _SUM:
        rows_are = np.abs(classes.sum(axis=1) - 1).max() <= _SUM
        hint = "its rows do, so pass its transpose" if rows_are else "divide each by its sum"
        raise ValueError(f"every column of p_x_given_y must sum to 1; got {sums.tolist()}: {hint}.")
    if abs(target.sum() - 1) > _SUM:
        raise ValueError(f"p_target must sum to 1; got {target.sum()}. Divide it by its sum.")
    classes[classes < _ZERO] = 0.0
    target[target < _ZERO] = 0.0
    return classes, target


def _check_numbers(values: ArrayLike, name: str) -> Floats:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinite values; drop or replace them.")
    if (array < 0).any():
        raise ValueError(f"{name} contains negative values; probabilities and densities have none.")
    return array


def independence_gap(densities: ArrayLike, weights: ArrayLike | None = None) -> float:
    r"""Distance of the known classes' densities from being linearly dependent, in [0, 1].

    .. math:: \min_{\max_y |v_y| = 1} \int \Bigl| \sum_y p(x|y)\, v_y \Bigr|\, dx

    By symmetry some v_j is 1, which leaves k linear programmes.

    Parameters
    ----------
    densities : array-like of shape (points, k)
        Densities of the k classes at the points of a grid, e.g. of the subdomain X_wp.
    weights : array-like of shape (points,), optional
        Length, area or volume that each point stands for; by default so that every density integrates
        to one on average.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-6, 7, 261)
    >>> normal = np.exp(-((x[:, None] - [0.0, 1.0]) ** 2) / 2) / np.sqrt(2 * np.pi)
    >>> round(independence_gap(normal, np.full(261, 0.05)), 3)  # v = (1, -1) has 0.766
    0.683
    """
    values = _check_numbers(densities, "densities")
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"densities must be a matrix, one row per point and one column per class; got {values.shape}."
        )
    n, k = values.shape
    if weights is None:
        weight = np.full(n, k / max(values.sum(), _ZERO))
    else:
        weight = _check_numbers(weights, "weights")
    if weight.shape != (n,):
        raise ValueError(f"weights must have one entry for each of the {n} points; got shape {weight.shape}.")
    # Points without mass add nothing; |.| is split into two non-negative parts.
    mass = values * weight[:, None]
    mass = mass[mass.max(axis=1) > 0]
    if len(mass) == 0:
        return 0.0
    eye = sparse.eye_array(len(mass))
    equal = sparse.hstack([sparse.csr_array(mass), -eye, eye], format="csr")
    cost = np.append(np.zeros(k), np.ones(2 * len(mass)))
    gaps = []
    for j in range(k):
        bounds = [(1 if y == j else -1, 1) for y in range(k)] + [(0, None)] * (2 * len(mass))
        solution = linprog(cost, A_eq=equal, b_eq=np.zeros(len(mass)), bounds=bounds)
        if not solution.success:
            raise RuntimeError(f"the linear programme for the independence gap failed: {solution.message}")
        gaps.append(float(solution.fun))
    return max(0.0, min(gaps))


def strictly_linearly_independent(
    densities: ArrayLike, weights: ArrayLike | None = None, *, tol: float = 1e-4
) -> bool:
    r"""Whether no v != 0 makes :math:`\int |\sum_y p(x|y) v_y| dx` vanish, judged on a grid.

    Changing densities on a set of measure zero must not matter. On a grid a single point has the measure
    of its weight, so ``tol`` should exceed the mass that one point can hold.

    Parameters
    ----------
    densities, weights : array-like
        As in :func:`independence_gap`.
    tol : float, default=1e-4
        Gaps up to this count as dependence.

    Examples
    --------
    >>> strictly_linearly_independent([[1.0, 0.5], [1.0, 1.5]], [0.5, 0.5])
    True
    >>> strictly_linearly_independent([[1.0, 0.5, 0.75], [1.0, 1.5, 1.25]], [0.5, 0.5])
    False
    """
    return independence_gap(densities, weights) > tol
