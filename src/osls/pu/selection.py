r"""Evaluate a PU classifier without negative examples, to choose epochs and hyperparameters.

Both estimates use p_u = alpha p_p + (1 - alpha) p_n: the value on unlabelled rows, minus the positives' part.
Use rows that the model was not trained on; on its training rows the estimates are too optimistic.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from osls.mixture.sample import check_scores


def unbiased_risk(
    positive_logits: ArrayLike,
    unlabeled_logits: ArrayLike,
    alpha: float,
    *,
    loss: Literal["zero-one", "logistic"] = "zero-one",
    positive_weight: ArrayLike | None = None,
) -> float:
    r"""Estimate the risk of "positive where the logit is above zero" on the unlabelled population.

    .. math:: \hat R = \alpha \hat E_p[\ell(z, +1)] + \hat E_u[\ell(z, -1)] - \alpha \hat E_p[\ell(z, -1)]

    Parameters
    ----------
    positive_logits, unlabeled_logits : array-like of shape (n,) and (m,)
        Log-odds of "positive" for held-out rows.
    alpha : float
        Share of positives among the unlabelled rows.
    loss : {"zero-one", "logistic"}, default="zero-one"
        The zero-one risk is the error rate. The logistic risk also depends on confidence, and varies more.
    positive_weight : array-like of shape (n,), optional
        Importance weights of the positive rows (any scale).

    Returns
    -------
    float
        Unbiased, hence sometimes below zero when the true risk is small.

    References
    ----------
    .. [1] du Plessis, Niu, Sugiyama. Convex Formulation for Learning from Positive and Unlabeled Data.
       ICML 2015.

    Examples
    --------
    >>> from osls.pu.selection import unbiased_risk
    >>> unbiased_risk([2.0, 1.0, -1.0, 3.0], [2.0, -1.0, -2.0, -3.0], alpha=0.5)  # 1/8 + 1/4 - 3/8
    0.0
    """
    positive = check_scores(positive_logits, "positive_logits")
    unlabeled = check_scores(unlabeled_logits, "unlabeled_logits")
    _check_alpha(alpha, upper=1.0)
    weight = None if positive_weight is None else np.asarray(positive_weight, dtype=np.float64)
    # ``difference`` is l(z, +1) - l(z, -1): the positives enter the risk only through it.
    if loss == "zero-one":
        as_negative, difference = unlabeled > 0, np.where(positive > 0, -1.0, 1.0)
    elif loss == "logistic":
        as_negative, difference = np.logaddexp(0, unlabeled), -positive
    else:
        raise ValueError(f"loss must be 'zero-one' or 'logistic'; got {loss!r}.")
    return float(np.mean(as_negative) + alpha * np.average(difference, weights=weight))


def pu_auc(positive_scores: ArrayLike, unlabeled_scores: ArrayLike, alpha: float) -> float:
    r"""Estimate the area under the ROC curve of positives against negatives.

    A positive scores above an unlabelled row with probability AUC_pu = alpha / 2 + (1 - alpha) AUC_pn (ties
    count one half), because it scores above half of the unlabelled positives. Hence

    .. math:: AUC_{pn} = (AUC_{pu} - \alpha / 2) / (1 - \alpha) .

    For a given alpha it orders models as AUC_pu does, so an error in alpha does not change which is best.

    Parameters
    ----------
    positive_scores, unlabeled_scores : array-like of shape (n,) and (m,)
        Scores of held-out rows, larger for rows that look positive.
    alpha : float
        Share of positives among the unlabelled rows, below 1.

    Returns
    -------
    float
        Not clipped to [0, 1], so that good models can still be compared: noise, or an alpha that is too
        large, can push it above 1.

    References
    ----------
    .. [1] Menon, van Rooyen, Ong, Williamson. Learning from Corrupted Binary Labels via Class-Probability
       Estimation. ICML 2015.

    Examples
    --------
    >>> from osls.pu.selection import pu_auc
    >>> pu_auc([0.9, 0.4], [0.9, 0.4, 0.5, 0.1], alpha=0.5)  # negatives 0.5 and 0.1: 3 of 4 pairs
    0.75
    """
    positive = check_scores(positive_scores, "positive_scores")
    unlabeled = np.sort(check_scores(unlabeled_scores, "unlabeled_scores"))
    _check_alpha(alpha, upper=np.nextafter(1.0, 0.0))
    below = np.searchsorted(unlabeled, positive, side="left")
    up_to = np.searchsorted(unlabeled, positive, side="right")
    auc = float(np.mean((below + up_to) / (2 * len(unlabeled))))
    return (auc - alpha / 2) / (1 - alpha)


def _check_alpha(alpha: float, *, upper: float) -> None:
    if not 0 <= alpha <= upper:
        end = "1]" if upper == 1 else "1): with alpha = 1 there is no negative to rank"
        raise ValueError(f"alpha must lie in [0, {end}; got {alpha}.")
