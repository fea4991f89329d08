"""Change what the known classes look like in the target, on purpose: what label shift rules out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from osls._core.arrays import AnyArray, Floats, RandomState
from osls.datasets.simulate import OSLSProblem


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
