"""Algorithm 2 with any mixture estimator: the share of each known class, one class at a time."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from osls._core.arrays import Floats
from osls.mixture.base import MixtureEstimator

_Estimator = TypeVar("_Estimator", bound=MixtureEstimator)


@dataclass(frozen=True)
class ClassShares:
    """Shares of the target by known class, each estimated on its own: their sum can exceed one."""

    alpha: Floats

    @property
    def marginal(self) -> Floats:
        """The class proportions among the known classes, normalised to one (Algorithm 2's output)."""
        total = self.alpha.sum()
        return self.alpha / total if total > 0 else np.full_like(self.alpha, 1 / len(self.alpha))


def shares_by_class(
    proba_source: ArrayLike,
    y_source: ArrayLike,
    proba_target: ArrayLike,
    mixture: MixtureEstimator,
    weight: Floats | None = None,
) -> ClassShares:
    """Estimate each class's share from its own column, as Algorithm 2 does with BBE.

    Parameters
    ----------
    proba_source : array-like of shape (n, k)
        Held-out source scores; column j scores class j.
    y_source : array-like of shape (n,)
        Class indices 0..k-1.
    proba_target : array-like of shape (m, k)
        Target scores of the same classifier.
    mixture : MixtureEstimator
        Cloned for each class.
    weight : array of shape (n,), optional
        How much each source row counts.

    Returns
    -------
    ClassShares
        The shares as they were estimated, and normalised.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import ElkanNoto, shares_by_class
    >>> source = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])
    >>> target = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.0, 0.0]])
    >>> shares_by_class(source, [0, 0, 1, 1], target, ElkanNoto()).alpha.round(3)
    array([0.75 , 0.083])
    """
    fits = fit_by_class(proba_source, y_source, proba_target, mixture, weight)
    return ClassShares(np.array([fit.alpha_ for fit in fits]))


def fit_by_class(
    proba_source: ArrayLike,
    y_source: ArrayLike,
    proba_target: ArrayLike,
    mixture: _Estimator,
    weight: Floats | None = None,
) -> list[_Estimator]:
    """Return one fitted estimator per class."""
    source, target = np.asarray(proba_source), np.asarray(proba_target)
    y = np.asarray(y_source)
    if source.ndim != 2 or target.ndim != 2 or source.shape[1] != target.shape[1]:
        raise ValueError(
            "proba_source and proba_target must be matrices with the same number of columns; "
            f"got shapes {source.shape} and {target.shape}."
        )
    if len(y) != len(source):
        raise ValueError(f"y_source has {len(y)} entries for {len(source)} rows of proba_source.")
    # Cloned once: sklearn's clone takes longer than a fit to a few thousand rows.
    template, fits = clone(mixture), []
    for j in range(source.shape[1]):
        mine = y == j
        members = source[mine, j]
        if len(members) == 0:
            raise ValueError(f"y_source has no example of class {j}; every column needs at least one.")
        own = None if weight is None else weight[mine]
        fits.append(copy(template).fit(members, target[:, j], own))
    return fits
