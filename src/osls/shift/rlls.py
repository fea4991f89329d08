r"""Regularised learning under label shift.

The equations of BBSE, solved for the change :math:`\theta = w - 1` with a penalty on its norm:

.. math:: \min_{\theta \ge -1}\ \|C \theta - (\mu_t - \mu_s)\|_2 + \lambda \|\theta\|_2, \qquad
    \lambda = 3 \kappa \Big(\frac{2 \log(2k/\delta)}{3 n} + \sqrt{\frac{2 \log(2k/\delta)}{n}}\Big) .
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear, minimize_scalar

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable
from osls.shift.base import LabelShiftEstimator, confusion, output_shares
from osls.shift.calibration import Calibration

# Range of the penalty weight, as logarithms: from no penalty to practically no change.
_LOG_WEIGHTS = (-40.0, 10.0)


@saveable
class RLLS(LabelShiftEstimator):
    r"""Label shift weights by a regularised inversion of the confusion matrix.

    Parameters
    ----------
    soft : bool, default=False
        Count mean probabilities rather than predicted classes.
    strength : float, default=0.01
        :math:`\kappa`, the factor on the theoretical penalty; 0.01 is the authors' choice.
    delta : float, default=0.05
        Level of the penalty's bound.
    calibration : {"none", "temperature", "vector", "bcts", "bias"}, default="none"
        How the probabilities are first calibrated, on the source rows.

    Attributes
    ----------
    weights_, target_marginal_, source_marginal_, calibrator_
        As in :class:`~osls.shift.base.LabelShiftEstimator`.
    penalty_ : float
        :math:`\lambda`.

    References
    ----------
    .. [1] Azizzadenesheli, Liu, Yang, Anandkumar. Regularized Learning for Domain Adaptation under
       Label Shifts. ICLR 2019.

    Examples
    --------
    >>> from osls.shift import RLLS
    >>> source, y = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [0, 0, 1, 1]
    >>> target = [[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]]
    >>> RLLS(strength=1).fit(source, y, target).target_marginal_  # four rows are no evidence of a shift
    array([0.5, 0.5])
    """

    penalty_: float

    def __init__(
        self,
        soft: bool = False,
        strength: float = 0.01,
        delta: float = 0.05,
        calibration: Calibration = "none",
    ):
        self.soft = soft
        self.strength = strength
        self.delta = delta
        self.calibration = calibration

    def _fit(self, source: Floats, y: Ints, target: Floats) -> None:
        if self.strength < 0 or not 0 < self.delta < 1:
            raise ValueError(
                "strength must not be negative and delta lie in (0, 1); "
                f"got {self.strength} and {self.delta}."
            )
        matrix = confusion(source, y, soft=self.soft)
        log = 2 * np.log(2 * len(matrix) / self.delta) / len(y)
        self.penalty_ = float(3 * self.strength * (log / 3 + np.sqrt(log)))
        change = output_shares(target, soft=self.soft) - matrix.sum(axis=1)
        self._set_weights(1 + least_norms(matrix, change, self.penalty_))


def least_norms(matrix: Floats, vector: Floats, penalty: float) -> Floats:
    r"""Minimise :math:`\|A\theta - b\|_2 + \lambda\|\theta\|_2` over :math:`\theta \ge -1`.

    Neither norm is squared, so neither is smooth at zero. But no theta makes both norms smaller than at the
    minimiser, so the minimiser also minimises a weighted sum of *squares* for some weight: a search over that
    one-parameter family of bounded least-squares problems finds it.
    """
    k = matrix.shape[1]

    def at(log_weight: float) -> Floats:
        stacked = np.vstack([matrix, np.exp(log_weight / 2) * np.eye(k)])
        right = np.append(vector, np.zeros(k))
        return np.asarray(lsq_linear(stacked, right, bounds=(-1, np.inf), method="bvls").x)

    def cost(theta: Floats) -> float:
        return float(np.linalg.norm(matrix @ theta - vector) + penalty * np.linalg.norm(theta))

    inner = minimize_scalar(
        lambda t: cost(at(t)), bounds=_LOG_WEIGHTS, method="bounded", options={"xatol": 1e-6}
    )
    return min((np.zeros(k), at(inner.x), at(_LOG_WEIGHTS[0])), key=cost)
