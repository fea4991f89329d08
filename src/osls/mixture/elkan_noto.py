r"""Elkan and Noto's estimators, from the outputs of a domain discriminator.

Let :math:`f(x)` be the probability that x came from the positive sample rather than from the unlabelled one.
With n positives and m unlabelled examples in training, :math:`f = n p_p / (n p_p + m p_u)`, which on examples
that can only be positive is the constant

.. math:: c = \frac{n}{n + \alpha m}, \qquad \text{so that} \qquad
    \alpha = \frac{n}{m} \cdot \frac{1 - c}{c} .

Elkan and Noto give three estimates of c: :math:`e_1`, the mean of f over the positives; :math:`e_2`, the
sum of f over the positives divided by the sum over both samples; :math:`e_3`, the largest f of all. For
:math:`e_2` the sizes cancel and alpha is the ratio of the means of f over the unlabelled and over the
positives. That is the paper's ratio of sums, which is printed upside down and without the sizes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from osls._core.saving import saveable
from osls.mixture.base import MixtureEstimator
from osls.mixture.sample import Sample


@saveable
class ElkanNoto(MixtureEstimator):
    r"""Share of positives from the calibrated outputs of a positive-versus-unlabelled classifier.

    Parameters
    ----------
    form : {"ratio", "mean", "max"}, default="ratio"
        What is read from the outputs f:

        - ``"ratio"`` (the paper's, their e2): mean of f over the unlabelled / mean of f over the positives;
        - ``"mean"`` (their e1): alpha = size_ratio * (1 - c) / c with c the mean of f over the positives;
        - ``"max"`` (their e3): the same with c the largest f of either sample, or its ``quantile``.
    size_ratio : float, default=1.0
        n / m, the positives' total weight in training the classifier divided by the unlabelled's; 1 if it
        was trained with balanced classes, as in this package. "ratio" does not need it.
    quantile : float, default=1.0
        For "max": the quantile of all outputs used as the maximum. At 1 a single outlier decides.

    Attributes
    ----------
    alpha_ : float
        Estimated share of positives, in [0, 1].
    interval_ : tuple of float
        95 % bootstrap interval, computed when first asked for.
    labeled_share_ : float
        The constant c that the form implies: the probability, in training, that a positive was labelled.

    Notes
    -----
    Scores must be *calibrated* probabilities of having been labelled, given by a model that was
    not trained on the scored rows. All three are exact if positives and negatives do not overlap. Where
    they do, f is below c on some positives: "mean" and "ratio" are then too high, "max" only if no region
    is purely positive, but noise in the largest output pulls it towards 0. With ``positive_weight`` means
    over the positives are weighted, and "max" leaves out positives without weight.

    If every positive scores 0, alpha is 1, the trivial bound; an output of 1 under "max" gives 0. Constant
    scores give 1 under "ratio"; the other forms take the constant as a calibrated probability.

    References
    ----------
    .. [1] Elkan, Noto. Learning Classifiers from Only Positive and Unlabeled Data. KDD 2008.

    Examples
    --------
    >>> from osls.mixture import ElkanNoto
    >>> positive, unlabeled = [0.8, 0.8], [0.8, 0.0, 0.0, 0.0]  # balanced training: c = 1 / (1 + alpha)
    >>> [round(ElkanNoto(form).fit(positive, unlabeled).alpha_, 6) for form in ("ratio", "mean", "max")]
    [0.25, 0.25, 0.25]
    """

    labeled_share_: float
    _needs_probability = True

    def __init__(
        self,
        form: Literal["ratio", "mean", "max"] = "ratio",
        size_ratio: float = 1.0,
        quantile: float = 1.0,
    ):
        self.form = form
        self.size_ratio = size_ratio
        self.quantile = quantile

    def _fit(self, positive: Sample, unlabeled: Sample) -> None:
        if self.form not in ("ratio", "mean", "max"):
            raise ValueError(f"form must be 'ratio', 'mean' or 'max'; got {self.form!r}.")
        if not self.size_ratio > 0 or not 0 < self.quantile <= 1:
            raise ValueError(
                "size_ratio must be positive and quantile lie in (0, 1]; "
                f"got {self.size_ratio} and {self.quantile}."
            )
        if self.form == "ratio":
            # c / (1 - c) = size_ratio * mean over the positives / mean over the unlabelled.
            odds = self.size_ratio * _divide(positive.mean, unlabeled.mean)
        elif self.form == "mean":
            odds = _divide(positive.mean, 1 - positive.mean)
        else:
            largest = _largest(positive, unlabeled, self.quantile)
            odds = _divide(largest, 1 - largest)
        self.labeled_share_ = 1.0 if np.isinf(odds) else odds / (1 + odds)
        self.alpha_ = float(min(1.0, _divide(self.size_ratio, odds)))


def _largest(positive: Sample, unlabeled: Sample, quantile: float) -> float:
    """Return a quantile of both samples' scores, the lower of two neighbours; each row counts once."""
    if quantile == 1:
        return max(positive.highest, unlabeled.highest)
    scores = np.append(positive.scores, unlabeled.scores)
    rows = np.append(positive.rows, unlabeled.rows)
    order = np.argsort(scores, kind="stable")
    rank = np.floor(quantile * (rows.sum() - 1))
    return float(scores[order][np.searchsorted(np.cumsum(rows[order]), rank, side="right")])


def _divide(numerator: float, denominator: float) -> float:
    """A ratio of non-negative numbers; division by zero gives infinity, and 0 / 0 gives 0."""
    if denominator > 0:
        return numerator / denominator
    return float("inf") if numerator > 0 else 0.0
