"""Known classes that look a little different now: make the source look like the target before anything else.

Label shift rules such a change out, and a discriminator that is good enough finds every one of them: all rows
of the target then look novel. Two things help against changes that are small. Each known class is moved and
stretched, column by column, towards the target rows that it is most like. And both sides are blurred, so that
nothing finer than the error of this can tell them apart. The constants were chosen on digits, penbased,
drybean and satimage.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier

from osls._core.arrays import AnyArray, Bools, Floats, Ints

__all__ = ["align_looks"]

_ROUNDS = 2
_TREES = 100
# A class is moved to the target rows that are as sure to be of it as this part of its own rows, if there are
# so many; with few of them only part of the way.
_SURE, _LEAST_ROWS, _TRUSTED_ROWS = 0.8, 5, 20
# Rows further away than this times the distance of all but a twentieth of the class's own are something else.
_FARTHEST = 1.5
# Largest move in a round, in standard deviations within classes, and largest stretch. What looks more
# different is another class.
_MOVE, _STRETCH = 0.4, 1.5
# Standard deviation of the blur, in those within classes.
BLUR = 0.3


def align_looks(X: Floats, y: Ints, X_target: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return both sides, with the classes of the source moved to where they are in the target, and blurred.

    Parameters
    ----------
    X, X_target : arrays of shapes (n, d) and (m, d)
        Rows of numbers.
    y : array of shape (n,)
        Classes 0 to k - 1 of the source rows.
    rng : Generator
        Source of the trees' seed and of the blur.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.shift.alignment import align_looks
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 200)
    >>> X = rng.normal(size=(400, 2)) + 8 * y[:, None]
    >>> target = rng.normal(size=(400, 2)) + 8 * y[:, None] + [0.5, 0]
    >>> moved, _ = align_looks(X, y, target, rng)
    >>> bool(np.all(np.abs((moved - X).mean(axis=0) - [0.5, 0]) < 0.2))
    True
    """
    X, X_target = X.astype(np.float64), X_target.astype(np.float64)
    spread = within_class_spread(X, y)
    for _ in range(_ROUNDS):
        X = _moved(X, y, X_target, spread, int(rng.integers(2**31)))
    blur = BLUR * spread
    return X + blur * rng.normal(size=X.shape), X_target + blur * rng.normal(size=X_target.shape)


def align_table(
    X: AnyArray, y: Ints, X_target: AnyArray, rng: np.random.Generator
) -> tuple[AnyArray, AnyArray]:
    """Do the same to any rows that are a dense table without missing values, and keep their type."""
    if sparse.issparse(X) or X.ndim != 2 or np.isnan(X).any():
        raise ValueError("align=True moves columns of numbers; give dense rows without missing values.")
    moved, target = align_looks(X, y, X_target, rng)
    return moved.astype(X.dtype), target.astype(X.dtype)


def within_class_spread(X: Floats, y: Ints) -> Floats:
    """Standard deviation of each column within classes, each class with the same weight."""
    return np.asarray(np.sqrt(np.mean([X[y == j].var(axis=0) for j in np.unique(y)], axis=0)))


def _moved(X: Floats, y: Ints, X_target: Floats, spread: Floats, seed: int) -> Floats:
    """One round: classify both sides, and move each class to the target rows that are like it."""
    trees = ExtraTreesClassifier(
        _TREES, min_samples_leaf=2, bootstrap=True, oob_score=True, random_state=seed
    ).fit(X, y)
    # The trees that were trained on a row know its class; those that were not are asked.
    own = np.nan_to_num(trees.oob_decision_function_)
    new = trees.predict_proba(X_target)
    moved = X.copy()
    for j in np.unique(y):
        rows = np.flatnonzero(y == j)
        chosen = rows[own[rows].argmax(axis=1) == j]
        if len(chosen) < _LEAST_ROWS:
            continue
        # The same rule on both sides, so that it selects the same part of the class.
        sure = np.quantile(own[chosen, j], 1 - _SURE)
        chosen = chosen[own[chosen, j] >= sure]
        like = (new.argmax(axis=1) == j) & (new[:, j] >= sure)
        like[like] = _near(X_target[like], X[rows], spread)
        if like.sum() >= _LEAST_ROWS:
            moved[rows] = carried(X[rows], X[chosen], X_target[like], spread)
    return moved


def _near(rows: Floats, of_class: Floats, spread: Floats) -> Bools:
    """Whether rows are about as far from the mean of a class as its own rows are."""
    scale = np.hypot(of_class.std(axis=0), 0.1 * spread) + 1e-12

    def distance(some: Floats) -> Floats:
        # No single column decides.
        far = np.clip((some - of_class.mean(axis=0)) / scale, -5, 5)
        return np.asarray(np.square(far).mean(axis=1))

    return np.asarray(distance(rows) <= _FARTHEST * np.quantile(distance(of_class), 0.95))


def carried(rows: Floats, before: Floats, now: Floats, spread: Floats) -> Floats:
    """Move and stretch rows as ``before`` has to be to have the means and deviations of ``now``.

    Examples
    --------
    Twenty rows are trusted half of the way: from 0 towards 0.4 it is 0.2.

    >>> import numpy as np
    >>> from osls.shift.alignment import carried
    >>> before, now = np.zeros((20, 1)), np.full((20, 1), 0.4)
    >>> carried(np.array([[0.0], [1.0]]), before, now, np.ones(1)).ravel().round(6).tolist()
    [0.2, 1.2]
    """
    trust = len(now) / (len(now) + _TRUSTED_ROWS)
    before, now = _winsorised(before), _winsorised(now)
    centre = before.mean(axis=0)
    move = np.clip(trust * (now.mean(axis=0) - centre), -_MOVE * spread, _MOVE * spread)
    one, other = before.std(axis=0), now.std(axis=0)
    varied = (one > 1e-6 * spread) & (other > 1e-6 * spread)
    stretch = np.where(varied, other / np.where(varied, one, 1.0), 1.0) ** trust
    return np.asarray(centre + move + np.clip(stretch, 1 / _STRETCH, _STRETCH) * (rows - centre))


def _winsorised(rows: Floats) -> Floats:
    return np.asarray(np.clip(rows, *np.quantile(rows, [0.05, 0.95], axis=0)))
