r"""Black box shift estimation.

The classifier's outputs have the same distribution within a class in source and target, so with the joint
shares :math:`C_{ij}` of output i and class j on the source and the shares :math:`\mu_i` of output i on the
target,

.. math:: C\, w = \mu, \qquad w_j = p_t(y = j) / p_s(y = j) .
"""

from __future__ import annotations

import numpy as np

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable
from osls.shift.base import LabelShiftEstimator, confusion, output_shares
from osls.shift.calibration import Calibration


@saveable
class BBSE(LabelShiftEstimator):
    """Label shift weights by inverting the confusion matrix.

    Parameters
    ----------
    soft : bool, default=False
        Count mean probabilities rather than predicted classes.
    calibration : {"none", "temperature", "vector", "bcts", "bias"}, default="none"
        How the probabilities are first calibrated, on the source rows. It affects the soft form and
        :meth:`correct`.

    Attributes
    ----------
    weights_, target_marginal_, source_marginal_, calibrator_
        As in :class:`~osls.shift.base.LabelShiftEstimator`.
    confusion_ : ndarray of shape (k, k)
        Joint shares of output (rows) and class (columns) on the source.

    Notes
    -----
    Negative solutions become zero. Where the confusion matrix is singular, as when a class is
    never predicted, the solution nearest to "no shift" is taken.

    References
    ----------
    .. [1] Lipton, Wang, Smola. Detecting and Correcting for Label Shift with Black Box Predictors. ICML 2018.

    Examples
    --------
    >>> from osls.shift import BBSE
    >>> source, y = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [0, 0, 1, 1]
    >>> BBSE().fit(source, y, [[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]]).target_marginal_
    array([0.25, 0.75])
    """

    confusion_: Floats

    def __init__(self, soft: bool = False, calibration: Calibration = "none"):
        self.soft = soft
        self.calibration = calibration

    def _fit(self, source: Floats, y: Ints, target: Floats) -> None:
        self.confusion_ = confusion(source, y, soft=self.soft)
        shift = output_shares(target, soft=self.soft) - self.confusion_.sum(axis=1)
        # The least-squares solution with the smallest w - 1: undetermined directions stay unshifted.
        change = np.linalg.lstsq(self.confusion_, shift, rcond=None)[0]
        self._set_weights(np.maximum(1 + change, 0.0))
