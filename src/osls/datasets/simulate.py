"""Make an open set label shift problem from any labelled data set, and one that breaks the assumption.

:func:`change_looks` changes what the known classes look like in the target: what label shift rules out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from osls._core.arrays import AnyArray, Bools, Floats, Ints, RandomState
from osls._core.validation import append_novel_label


@dataclass(frozen=True)
class OSLSProblem:
    """Labelled source, unlabelled target, and, separately, the true labels and mix for evaluation.

    ``y_target``, ``y_test`` and ``target_marginal`` are for metrics only. An estimator gets
    :meth:`training_data`.
    """

    X_source: AnyArray
    y_source: AnyArray
    X_target: AnyArray
    X_test: AnyArray
    classes: AnyArray
    source_marginal: Floats
    novel_label: Any
    y_target: AnyArray = field(repr=False)
    y_test: AnyArray = field(repr=False)
    target_marginal: Floats = field(repr=False)

    def training_data(self) -> dict[str, AnyArray]:
        """Return the arguments of an adapter's ``fit``; no label of the target is among them."""
        return {"X": self.X_source, "y": self.y_source, "X_target": self.X_target}


def simulate_osls(
    X: Any,
    y: Any,
    novel: int | Sequence[Any] = 1,
    source_fraction: tuple[float, float] = (0.2, 1.0),
    *,
    source_rows: tuple[int, int] | None = None,
    source_marginal: Sequence[float] | None = None,
    target_marginal: Sequence[float] | None = None,
    test_size: float = 0.2,
    novel_label: Any = None,
    random_state: RandomState = None,
) -> OSLSProblem:
    """Split a labelled data set into source, target and test as the paper does.

    Each known class gives a random part of its rows to the source and the rest to the target; the
    novel classes go to the target whole, as one class.

    Parameters
    ----------
    X : array or CSR matrix of n rows
        Features.
    y : array-like of shape (n,)
        Classes.
    novel : int or list of classes, default=1
        The classes that the source does not have, or how many to choose at random. 0 or [] for none;
        all but one for PU learning.
    source_fraction : (low, high), default=(0.2, 1.0)
        The part of each class that goes to the source is drawn uniformly from this range.
    source_rows : (low, high), optional
        In place of ``source_fraction``: how many rows each class gives to the source, drawn uniformly from
        low to high.
    source_marginal : sequence of k shares, optional
        Wanted class mix of the source, in the order of the known classes.
    target_marginal : sequence of k + 1 shares, optional
        Wanted class mix of the target, the novel class last. Rows that do not fit are left out.
    test_size : float, default=0.2
        Part of the target rows that is set aside as an i.i.d. test set.
    novel_label : object, optional
        As in the adapters.
    random_state : int, RandomState instance or None
        Seed.

    Returns
    -------
    OSLSProblem

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from osls.datasets import simulate_osls
    >>> problem = simulate_osls(*load_digits(return_X_y=True), novel=2, random_state=0)
    >>> len(problem.classes), len(problem.target_marginal)
    (8, 9)
    """
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    y = np.asarray(y)
    if X.shape[0] != len(y):
        raise ValueError(f"X has {X.shape[0]} rows but y has {len(y)} labels.")
    if not 0 <= test_size < 1:
        raise ValueError(f"test_size must lie in [0, 1); got {test_size}.")
    rng = check_random_state(random_state)
    classes, is_novel = _choose_novel(y, novel, rng)
    named = append_novel_label(classes, novel_label)
    # Row numbers of each known class and, last, of the novel one, in random order.
    groups = [rng.permutation(np.flatnonzero(y == c)) for c in classes]
    groups.append(rng.permutation(np.flatnonzero(is_novel)))
    if source_rows is not None:
        counts = _few_rows(groups, source_rows, source_marginal, rng)
    else:
        counts = _source_counts(groups, source_fraction, source_marginal, target_marginal, rng)
    source = np.concatenate([g[:c] for g, c in zip(groups, counts, strict=True)])
    rest = [g[c:] for g, c in zip(groups, counts, strict=True)]
    if target_marginal is not None:
        rest = _match(rest, _check_marginal(target_marginal, len(groups), "target_marginal"))
    pool = rng.permutation(np.concatenate(rest))
    source = rng.permutation(source)
    n_test = round(test_size * len(pool))
    test, target = pool[:n_test], pool[n_test:]
    if len(source) == 0 or len(target) == 0:
        raise ValueError("source or target came out empty; use more rows or another split.")

    def labels(rows: Ints) -> AnyArray:
        index = np.where(is_novel[rows], len(classes), np.searchsorted(classes, y[rows]))
        return named[np.minimum(index, len(classes))]

    return OSLSProblem(
        X_source=X[source],
        y_source=y[source],
        X_target=X[target],
        X_test=X[test],
        classes=classes,
        source_marginal=np.array([np.mean(y[source] == c) for c in classes]),
        novel_label=named[-1],
        y_target=labels(target),
        y_test=labels(test),
        target_marginal=np.array([np.mean(labels(target) == c) for c in named]),
    )


def change_looks(problem: OSLSProblem, strength: float, random_state: RandomState = None) -> OSLSProblem:
    r"""Move and stretch each known class of the target, each column by an amount of its own.

    A row of class j becomes :math:`\mu_j + e^{s\, b_j} (x - \mu_j) + s\, a_j\, \sigma` with s the strength,
    :math:`a_j, b_j` standard normal for each column, :math:`\mu_j` the class's mean in the source and
    :math:`\sigma` the columns' standard deviations within the source's classes. Source and novel rows stay
    as they are.

    Parameters
    ----------
    problem : OSLSProblem
        A problem on a dense table.
    strength : float
        s, at least 0. At 0.1 a class moves by a tenth of its spread in each column.
    random_state : int, RandomState instance or None
        Seed of the changes.

    Returns
    -------
    OSLSProblem
        With other ``X_target`` and ``X_test``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.datasets import change_looks, simulate_osls
    >>> problem = simulate_osls(*load_iris(return_X_y=True), novel=[2], random_state=0)
    >>> changed = change_looks(problem, 0.2, random_state=0)
    >>> moved = (changed.X_target != problem.X_target).any(axis=1)
    >>> bool((moved == (problem.y_target != problem.novel_label)).all())
    True
    """
    if not strength >= 0:
        raise ValueError(f"strength must be at least 0; got {strength}.")
    if sparse.issparse(problem.X_target) or problem.X_target.ndim != 2:
        raise ValueError("problem must be a dense table: looks are changed column by column.")
    rng = check_random_state(random_state)
    X, y = problem.X_source.astype(np.float64), problem.y_source
    means = np.array([X[y == label].mean(axis=0) for label in problem.classes])
    spread = np.sqrt(np.square(X - means[np.searchsorted(problem.classes, y)]).mean(axis=0))
    offset = strength * rng.normal(size=means.shape) * spread
    scale = np.exp(strength * rng.normal(size=means.shape))

    def changed(rows: AnyArray, labels: AnyArray) -> Floats:
        out = rows.astype(np.float64)
        for j, label in enumerate(problem.classes.tolist()):
            own = labels == label
            out[own] = means[j] + scale[j] * (out[own] - means[j]) + offset[j]
        return out.astype(rows.dtype if rows.dtype.kind == "f" else np.float64)

    return replace(
        problem,
        X_target=changed(problem.X_target, problem.y_target),
        X_test=changed(problem.X_test, problem.y_test),
    )


def _choose_novel(
    y: AnyArray, novel: int | Sequence[Any], rng: np.random.RandomState
) -> tuple[AnyArray, Bools]:
    every = np.unique(y)
    if isinstance(novel, int | np.integer):
        if not 0 <= novel < len(every):
            raise ValueError(f"novel={novel} of {len(every)} classes; at least one class must stay known.")
        chosen = rng.choice(every, size=novel, replace=False)
    else:
        chosen = np.asarray(list(novel), dtype=every.dtype) if len(novel) else every[:0]
        unknown = np.setdiff1d(chosen, every)
        if len(unknown):
            raise ValueError(f"novel names {unknown[0]!r}, which is not a class in y.")
        if len(np.unique(chosen)) >= len(every):
            raise ValueError("novel names every class in y; at least one must stay known.")
    return np.setdiff1d(every, chosen), np.isin(y, chosen)


def _source_counts(
    groups: list[Ints],
    fraction: tuple[float, float],
    source_marginal: Sequence[float] | None,
    target_marginal: Sequence[float] | None,
    rng: np.random.RandomState,
) -> list[int]:
    """How many rows of each class go to the source; none of the novel one."""
    sizes = np.array([len(g) for g in groups[:-1]])
    if source_marginal is None:
        low, high = fraction
        if not 0 < low <= high <= 1:
            raise ValueError(f"source_fraction must satisfy 0 < low <= high <= 1; got {fraction}.")
        wanted = rng.uniform(low, high, size=len(sizes)) * sizes
    else:
        shares = _check_marginal(source_marginal, len(sizes), "source_marginal")
        demand = shares
        if target_marginal is not None:
            # As many target rows as source rows, both taken from the same classes.
            demand = shares + _check_marginal(target_marginal, len(groups), "target_marginal")[:-1]
        total = np.min(sizes[demand > 0] / demand[demand > 0])
        # Without a wanted target mix, half of the scarcest class is left for the target.
        wanted = shares * total * (0.5 if target_marginal is None else 1.0)
    # Every known class must be in the source.
    return [*(int(max(1, round(w))) for w in wanted), 0]


def _few_rows(
    groups: list[Ints],
    rows: tuple[int, int],
    source_marginal: Sequence[float] | None,
    rng: np.random.RandomState,
) -> list[int]:
    """How many rows of each class go to the source, given the range; none of the novel one."""
    low, high = rows
    if not 1 <= low <= high:
        raise ValueError(f"source_rows must satisfy 1 <= low <= high; got {rows}.")
    if source_marginal is not None:
        raise ValueError("source_rows and source_marginal both set the rows of a class; pass one of them.")
    wanted = rng.randint(low, high + 1, size=len(groups) - 1).tolist()
    return [*(min(count, len(group)) for count, group in zip(wanted, groups, strict=False)), 0]


def _match(groups: list[Ints], shares: Floats) -> list[Ints]:
    """Drop rows so that the groups' sizes have the wanted proportions."""
    sizes = np.array([len(g) for g in groups])
    total = np.min(sizes[shares > 0] / shares[shares > 0])
    return [g[: round(total * s)] for g, s in zip(groups, shares, strict=True)]


def _check_marginal(shares: Sequence[float], length: int, name: str) -> Floats:
    array = np.asarray(shares, dtype=np.float64)
    if array.shape != (length,) or (array < 0).any() or not np.isclose(array.sum(), 1):
        raise ValueError(f"{name} must be {length} non-negative shares that sum to 1; got {shares!r}.")
    return array
