"""The base class of all closed-set label shift estimators."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import Floats, Ints
from osls.shift.calibration import Calibration, Calibrator, fit_calibrator

_SUM_TOLERANCE = 1e-3


class LabelShiftEstimator(BaseEstimator):  # type: ignore[misc]
    """Estimate w(j) = p_target(y = j) / p_source(y = j) from a classifier's outputs, assuming equal p(x | y).

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        The ratios w, non-negative.
    target_marginal_ : ndarray of shape (k,)
        Estimated class shares of the target, summing to one.
    source_marginal_ : ndarray of shape (k,)
        Class shares of ``y_source``.
    calibrator_ : Calibrator
        The map that was fitted to the source rows and is applied to all probabilities.
    """

    calibration: Calibration
    weights_: Floats
    target_marginal_: Floats
    source_marginal_: Floats
    calibrator_: Calibrator

    def fit(self, proba_source: ArrayLike, y_source: ArrayLike, proba_target: ArrayLike) -> Self:
        """Estimate the target's class shares.

        Parameters
        ----------
        proba_source : array-like of shape (n, k)
            Probabilities of labelled source rows that the classifier was not trained on.
        y_source : array-like of shape (n,)
            Their class indices 0..k-1.
        proba_target : array-like of shape (m, k)
            Probabilities of unlabelled target rows.

        Returns
        -------
        self
        """
        source = check_proba(proba_source, "proba_source")
        target = check_proba(proba_target, "proba_target")
        if source.shape[1] != target.shape[1]:
            raise ValueError(
                f"proba_source has {source.shape[1]} columns and proba_target {target.shape[1]}; "
                "both must come from the same classifier."
            )
        y = _check_classes(y_source, *source.shape)
        self.calibrator_ = fit_calibrator(source, y, self.calibration)
        self.source_marginal_ = np.bincount(y, minlength=source.shape[1]) / len(y)
        self._fit(self.calibrator_(source), y, self.calibrator_(target))
        return self

    @abstractmethod
    def _fit(self, source: Floats, y: Ints, target: Floats) -> None:
        """Set ``weights_`` and ``target_marginal_`` from validated, calibrated probabilities."""

    def _set_weights(self, weights: Floats) -> None:
        """Store weights, and the target marginal that they imply."""
        self.weights_ = weights
        mass = weights * self.source_marginal_
        self.target_marginal_ = mass / mass.sum() if mass.sum() > 0 else self.source_marginal_

    def correct(self, proba: ArrayLike) -> Floats:
        """Probabilities under the target's class shares: calibrated, times the weights, normalised.

        A row whose weighted classes all have probability zero keeps its calibrated probabilities.
        """
        check_is_fitted(self)
        rows = check_proba(proba, "proba")
        if rows.shape[1] != len(self.weights_):
            raise ValueError(f"proba has {rows.shape[1]} columns; fit saw {len(self.weights_)}.")
        calibrated = self.calibrator_(rows)
        weighted = calibrated * self.weights_
        total = weighted.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, weighted / np.where(total > 0, total, 1.0), calibrated))


def confusion(source: Floats, y: Ints, *, soft: bool) -> Floats:
    """Joint shares C[i, j] of output i and class j on the source."""
    return np.asarray(_outputs(source, soft).T @ np.eye(source.shape[1])[y] / len(y))


def output_shares(proba: Floats, *, soft: bool) -> Floats:
    """Shares of the outputs: mean probabilities if soft, else of the predicted classes."""
    return np.asarray(_outputs(proba, soft).mean(axis=0))


def _outputs(proba: Floats, soft: bool) -> Floats:
    return proba if soft else np.eye(proba.shape[1])[proba.argmax(axis=1)]


def check_proba(proba: ArrayLike, name: str) -> Floats:
    """Return a matrix of probabilities, each row summing to one; otherwise raise an error that says why."""
    array = np.asarray(proba, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] < 2:
        raise ValueError(
            f"{name} must be a matrix with a row for each example and at least two columns; "
            f"got shape {array.shape}."
        )
    total = array.sum(axis=1)
    if not np.isfinite(total).all():
        raise ValueError(f"{name} contains NaN or infinite values; drop or replace those rows.")
    if array.min() < 0 or np.abs(total - 1).max() > _SUM_TOLERANCE:
        raise ValueError(
            f"{name} must hold probabilities, each row summing to one; "
            "if these are logits, pass their softmax."
        )
    return np.asarray(array / total[:, None])


def _check_classes(y_source: ArrayLike, n: int, k: int) -> Ints:
    y = np.asarray(y_source)
    if y.shape != (n,):
        raise ValueError(f"y_source has shape {y.shape} for {n} rows of proba_source.")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= k:
        raise ValueError(f"y_source must hold class indices 0..{k - 1}, the columns of proba_source.")
    missing = np.flatnonzero(np.bincount(y, minlength=k) == 0)
    if len(missing):
        raise ValueError(f"y_source has no example of class {missing[0]}; every column needs at least one.")
    return y
