r"""Maximum likelihood label shift, by EM.

The likelihood of the target rows as a function of the target's class shares q, :math:`\sum_i \log \sum_j
q_j\, p_s(j \mid x_i) / p_s(j)`, is concave. Each step of EM re-weights the classifier's probabilities and
averages them:

.. math:: q_j \leftarrow \frac1m \sum_{i=1}^m
    \frac{p_s(j \mid x_i)\, q_j / p_s(j)}{\sum_l p_s(l \mid x_i)\, q_l / p_s(l)} .
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable
from osls.shift.base import LabelShiftEstimator
from osls.shift.calibration import Calibration


@saveable
class MLLS(LabelShiftEstimator):
    """Label shift weights by maximum likelihood (the EM of Saerens et al.) on calibrated probabilities.

    Parameters
    ----------
    calibration : {"none", "temperature", "vector", "bcts", "bias"}, default="bcts"
        How the probabilities are first calibrated, on the source rows. The likelihood assumes calibration.
    source_prior : {"predicted", "labels"}, default="predicted"
        p_s in the formula: the mean of the (calibrated) source probabilities, with which an unshifted target
        gives exactly no shift, or the class shares of the labels. BCTS and vector scaling make them equal.
    tol : float, default=1e-7
        EM stops when no share moves more.
    max_iter : int, default=1000
        Largest number of EM steps.

    Attributes
    ----------
    weights_, target_marginal_, source_marginal_, calibrator_
        As in :class:`~osls.shift.base.LabelShiftEstimator`.
    n_iter_ : int
        Steps that EM took.

    References
    ----------
    .. [1] Saerens, Latinne, Decaestecker. Adjusting the Outputs of a Classifier to New a Priori
       Probabilities: A Simple Procedure. Neural Computation, 2002.
    .. [2] Alexandari, Kundaje, Shrikumar. Maximum Likelihood with Bias-Corrected Calibration is
       Hard-To-Beat at Label Shift Adaptation. ICML 2020.

    Examples
    --------
    >>> from osls.shift import MLLS
    >>> source, y = [[0.8, 0.2], [0.8, 0.2], [0.2, 0.8], [0.2, 0.8]], [0, 0, 1, 1]
    >>> mlls = MLLS(calibration="none").fit(source, y, [[0.8, 0.2], [0.2, 0.8], [0.2, 0.8]])
    >>> mlls.target_marginal_.round(3)  # 1/3 = 0.8 q + 0.2 (1 - q)
    array([0.222, 0.778])
    """

    n_iter_: int

    def __init__(
        self,
        calibration: Calibration = "bcts",
        source_prior: Literal["predicted", "labels"] = "predicted",
        tol: float = 1e-7,
        max_iter: int = 1000,
    ):
        self.calibration = calibration
        self.source_prior = source_prior
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, source: Floats, y: Ints, target: Floats) -> None:
        if self.source_prior not in ("predicted", "labels"):
            raise ValueError(f"source_prior must be 'predicted' or 'labels'; got {self.source_prior!r}.")
        if self.max_iter < 1:
            raise ValueError(f"max_iter must be at least 1; got {self.max_iter}.")
        prior = source.mean(axis=0) if self.source_prior == "predicted" else self.source_marginal_
        # Avoids 0 / 0 for a class that never gets any probability: its share stays zero.
        prior = np.maximum(prior, np.finfo(float).tiny)
        self.target_marginal_, self.n_iter_ = em_marginal(target / prior, prior, self.tol, self.max_iter)
        self.weights_ = self.target_marginal_ / prior


def em_marginal(ratio: Floats, start: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    """Class shares of maximum likelihood, and the steps taken.

    Parameters
    ----------
    ratio : array of shape (m, k)
        p_s(j | x_i) / p_s(j); each row may have any positive scale.
    start : array of shape (k,)
        Where to start; classes with share zero stay there.
    tol : float
        Largest step to stop at.
    max_iter : int
        Largest number of steps.
    """
    share = start / start.sum()
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        # Averaging ratio / (ratio @ share) before multiplying avoids the (m, k) matrix of posteriors.
        update = share * (ratio.T @ (1 / (ratio @ share))) / len(ratio)
        moved = np.abs(update - share).max()
        share = update
        if moved < tol:
            break
    return share / share.sum(), n_iter
