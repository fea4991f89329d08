r"""Calibration of a classifier's probabilities on held-out rows.

All maps are of the form :math:`\tilde p \propto \exp(s \odot \log p + b)` and minimise the log loss:
*temperature* has one scale for all classes and no bias, *bias* has a bias per class and no scale,
*bias-corrected temperature* (BCTS) has one scale and a bias per class, *vector scaling* has a scale and a
bias per class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from osls._core.arrays import Floats, Ints, effective_size
from osls._core.saving import saveable

Calibration = Literal["none", "temperature", "vector", "bcts", "bias"]

FLOOR = 1e-3
# Where nothing is wrong, any larger exponent would fit better.
_MOST = 8.0
# A class that no tree votes for has probability 0. With a lower floor such outliers would dominate the fit.
_FLOOR_FOR_BIAS = 1e-6


def fit_temperature(proba: Floats, y: Ints, weight: Floats | None = None) -> float:
    """Inverse temperature b of least log loss for probabilities proportional to p^b."""
    logits = np.log(np.maximum(proba, FLOOR))
    rows = np.arange(len(y))

    def loss(log_beta: float) -> float:
        likelihood = log_softmax(np.exp(log_beta) * logits, axis=1)[rows, y]
        return -float(np.average(likelihood, weights=weight))

    return float(np.exp(minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").x))


def fit_pool(one: Floats, two: Floats, y: Ints, weight: Floats) -> tuple[float, float]:
    """Exponents a, b >= 0 of least log loss for probabilities proportional to p^a q^b.

    The temperatures of two classifiers at once, and how much each counts.
    """
    logs = [np.log(np.maximum(proba, FLOOR)) for proba in (one, two)]
    rows, total = np.arange(len(y)), weight.sum()

    def loss(exponents: Floats) -> tuple[float, Floats]:
        log_p = log_softmax(exponents[0] * logs[0] + exponents[1] * logs[1], axis=1)
        expected = [(np.exp(log_p) * log).sum(axis=1) - log[rows, y] for log in logs]
        return -float(weight @ log_p[rows, y]) / total, np.array([weight @ e for e in expected]) / total

    start, bounds = np.array([0.5, 0.5]), [(0.0, _MOST), (0.0, _MOST)]
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return float(found[0]), float(found[1])


def pool(one: Floats, two: Floats, exponents: tuple[float, float]) -> Floats:
    """Return probabilities proportional to p^a q^b.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.shift.calibration import pool
    >>> pool(np.array([[0.5, 0.5]]), np.array([[0.8, 0.2]]), (1.0, 2.0)).round(3)  # 16 to 1
    array([[0.941, 0.059]])
    """
    logs = [a * np.log(np.maximum(proba, FLOOR)) for proba, a in zip((one, two), exponents, strict=True)]
    return np.asarray(softmax(logs[0] + logs[1], axis=1))


@saveable
@dataclass(frozen=True)
class Calibrator:
    """A fitted map from probabilities to calibrated ones; ``scale`` None leaves them as they are."""

    scale: Floats | None = None
    bias: Floats | None = None
    floor: float = _FLOOR_FOR_BIAS

    def __call__(self, proba: Floats) -> Floats:
        """Calibrate rows of probabilities."""
        if self.scale is None or self.bias is None:
            return proba
        return np.asarray(softmax(self.scale * _centred_log(proba, self.floor) + self.bias, axis=1))


def fit_calibrator(
    proba: Floats,
    y: Ints,
    method: Calibration,
    weight: Floats | None = None,
    *,
    penalty: float = 0.0,
    floor: float = _FLOOR_FOR_BIAS,
) -> Calibrator:
    """Fit a calibration map on held-out rows.

    Parameters
    ----------
    proba : array of shape (n, k)
        Probabilities of rows that the classifier was not trained on.
    y : array of shape (n,)
        Their class indices 0..k-1.
    method : {"none", "temperature", "vector", "bcts", "bias"}
        The map.
    weight : array of shape (n,), optional
        How much each row counts.
    penalty : float, default=0.0
        How much the squares of the biases cost, in rows: with few rows a class the biases would otherwise be
        as uncertain as the counts of its mistakes. With 0 the mean probabilities are the class shares.
    floor : float, default=1e-6
        Smaller probabilities count as this one where there are biases.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger. On Calibration of Modern Neural Networks. ICML 2017.
    .. [2] Alexandari, Kundaje, Shrikumar. Maximum Likelihood with Bias-Corrected Calibration is
       Hard-To-Beat at Label Shift Adaptation. ICML 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.shift.calibration import fit_calibrator
    >>> proba, y = np.array([[0.9, 0.1]] * 4), np.array([0, 0, 0, 1])  # 0.9 is right three times in four
    >>> fit_calibrator(proba, y, "bcts")(proba[:1]).round(2)
    array([[0.75, 0.25]])
    """
    if method not in get_args(Calibration):
        raise ValueError(f"calibration must be one of {', '.join(get_args(Calibration))}; got {method!r}.")
    k = proba.shape[1]
    if method == "none":
        return Calibrator()
    if method == "temperature":
        return Calibrator(np.full(k, fit_temperature(proba, y, weight)), np.zeros(k), FLOOR)
    weight = np.ones(len(y)) if weight is None else weight
    n_scales = {"bias": 0, "bcts": 1, "vector": k}[method]
    return _fit_with_bias(proba, y, weight, n_scales, penalty, floor)


def _fit_with_bias(
    proba: Floats, y: Ints, weight: Floats, n_scales: int, penalty: float, floor: float
) -> Calibrator:
    logits = _centred_log(proba, floor)
    k = logits.shape[1]
    share = (weight / weight.sum())[:, None]
    truth = np.eye(k)[y] * share
    cost = penalty / effective_size(weight)

    def parts_of(theta: Floats) -> tuple[Floats, Floats]:
        scale = theta[:n_scales] if n_scales else np.ones(1)
        return np.broadcast_to(scale, k), theta[n_scales:]

    def loss_of(theta: Floats) -> tuple[float, Floats]:
        scale, bias = parts_of(theta)
        log_p = log_softmax(scale * logits + bias, axis=1)
        wrong = np.exp(log_p) * share - truth
        by_scale = (wrong * logits).sum(axis=0)
        gradient = by_scale if n_scales == k else by_scale.sum(keepdims=True)[:n_scales]
        loss = cost * float(bias @ bias) / 2 - float((log_p * truth).sum())
        return loss, np.append(gradient, wrong.sum(axis=0) + cost * bias)

    bounds = [(0.0, _MOST)] * n_scales + [(None, None)] * k
    start = np.repeat([1.0, 0.0], [n_scales, k])
    theta = minimize(loss_of, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-12}).x
    scale, bias = parts_of(theta)
    return Calibrator(scale.copy(), bias, floor)


def _centred_log(proba: Floats, floor: float) -> Floats:
    """Log-probabilities with mean zero over the classes: scales per class need a fixed origin."""
    log = np.log(np.maximum(proba, floor))
    return np.asarray(log - log.mean(axis=1, keepdims=True))
