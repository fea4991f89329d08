r"""The share of positives after a change of it, by matching kernel mean embeddings.

Before the change the share :math:`\pi` is known, and with it a sample :math:`P = \pi P_+ + (1 - \pi) P_-`;
afterwards there is a sample :math:`P' = \pi' P_+ + (1 - \pi') P_-`. Then
:math:`P' - P = \gamma (P_+ - P)` with :math:`\gamma = (\pi' - \pi) / (1 - \pi)`, and with the embeddings
:math:`\mu` of the three distributions the best :math:`\gamma` in the norm of the kernel's space is

.. math:: \gamma = \frac{\langle \mu' - \mu,\; \mu_+ - \mu \rangle}{\|\mu_+ - \mu\|^2} .
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import euclidean_distances

from osls._core.arrays import Floats
from osls._core.parameters import Between, Constraint, check_parameters
from osls._core.saving import saveable

# Rows whose median distance sets the kernel's width.
_FOR_WIDTH = 500


@saveable
class KernelPrior(BaseEstimator):  # type: ignore[misc]
    """Share of positives in a later sample, from one whose share is known: a closed form.

    It reads features, or scores as tables of one column, and needs no classifier. It is not a
    :class:`MixtureEstimator`: those have no sample of known share.

    Parameters
    ----------
    prior : float
        Share of positives in the earlier sample.
    gamma : float, optional
        Of the Gaussian kernel :math:`e^{-gamma |x - y|^2}`; by default one over the median squared distance
        among (500 of) the earlier rows.

    Attributes
    ----------
    alpha_ : float
        Share of positives in the later sample, in [0, 1].

    References
    ----------
    .. [1] Mielniczuk, Rejchel, Teisseyre. Prior shift estimation for positive unlabeled data through the lens
       of kernel embedding. arXiv:2502.21194, 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.mixture import KernelPrior
    >>> positive, earlier, later = [[1.0]], [[1.0], [0.0]], [[1.0], [1.0], [1.0], [0.0]]
    >>> round(KernelPrior(prior=0.5).fit(positive, earlier, later).alpha_, 6)
    0.75
    """

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "prior": Between(0, 1),
        "gamma": Between(0, np.inf, optional=True),
    }
    alpha_: float

    def __init__(self, prior: float = 0.5, gamma: float | None = None):
        self.prior = prior
        self.gamma = gamma

    def fit(self, positive: ArrayLike, earlier: ArrayLike, later: ArrayLike) -> Self:
        """Estimate the share.

        Parameters
        ----------
        positive : array-like of shape (n, columns)
            Rows that are positive.
        earlier : array-like of shape (m, columns)
            Rows of which the share ``prior`` is positive.
        later : array-like of shape (l, columns)
            Rows whose share of positives is wanted.

        Returns
        -------
        self
        """
        check_parameters(self)
        given = {"positive": positive, "earlier": earlier, "later": later}
        sides = {name: _check_table(rows, name) for name, rows in given.items()}
        gamma = _width(sides["earlier"]) if self.gamma is None else self.gamma
        move = _inner(sides, gamma, "later", "positive")
        length = _inner(sides, gamma, "positive", "positive")
        ratio = move / length if length > 0 else 0.0
        self.alpha_ = float(np.clip(self.prior + ratio * (1 - self.prior), 0.0, 1.0))
        return self


def _inner(sides: dict[str, Floats], gamma: float, first: str, second: str) -> float:
    """Inner product of two embeddings, each minus that of the earlier sample."""

    def mean(one: str, other: str) -> float:
        return float(np.exp(-gamma * euclidean_distances(sides[one], sides[other], squared=True)).mean())

    return mean(first, second) - mean(first, "earlier") - mean("earlier", second) + mean("earlier", "earlier")


def _width(rows: Floats) -> float:
    squared = euclidean_distances(rows[:: 1 + len(rows) // _FOR_WIDTH], squared=True)
    distances = squared[np.triu_indices_from(squared, k=1)]
    median = float(np.median(distances)) if len(distances) else 0.0
    return 1 / median if median > 0 else 1.0


def _check_table(rows: Any, name: str) -> Floats:
    table = np.asarray(rows, dtype=np.float64)
    if table.ndim != 2 or not len(table) or not np.isfinite(table).all():
        raise ValueError(f"{name} must be a table of finite numbers with at least one row.")
    return table
