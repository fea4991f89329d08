"""Elkan and Noto's correction: positive against negative from a positive-versus-unlabelled classifier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from osls._typing import AnyArray, Floats
from osls.training.predictors import Predictor

__all__ = ["CorrectedDiscriminator", "correct_domain_score"]


def correct_domain_score(domain_score: ArrayLike, alpha: float, ratio: float = 1.0) -> Floats:
    r"""Probability that an unlabelled row is positive, by Bayes' rule.

    .. math:: P(y = 1 \mid x) = \alpha\, p_p(x) / p_u(x) = \min\Big\{1,\;
        \alpha\, \frac{m}{n}\, \frac{f(x)}{1 - f(x)}\Big\}

    The ratio of densities cannot exceed 1 / alpha, but an estimate of it can: that is cut off.

    Parameters
    ----------
    domain_score : array-like of shape (rows,)
        f(x), the probability of "positive sample" against "unlabelled sample".
    alpha : float
        Share of positives among the unlabelled rows.
    ratio : float, default=1.0
        m / n, unlabelled to positive weight in f's training; 1 if both sides weighed the same.

    Returns
    -------
    array of shape (rows,)
        In [0, 1].

    References
    ----------
    .. [1] Elkan, Noto. Learning Classifiers from Only Positive and Unlabeled Data. KDD 2008.

    Examples
    --------
    >>> from osls.pu.elkan_noto import correct_domain_score
    >>> correct_domain_score([0.0, 0.5, 0.9, 1.0], alpha=0.5)
    array([0. , 0.5, 1. , 1. ])
    """
    f = np.asarray(domain_score, dtype=np.float64)
    # a f / (1 - f) >= 1 exactly where a f >= 1 - f: no division by zero at f = 1.
    scaled, rest = alpha * ratio * f, 1 - f
    certain = scaled >= rest
    return np.where(certain, 1.0, scaled / np.where(certain, 1.0, rest))


@dataclass(frozen=True)
class CorrectedDiscriminator:
    """A domain discriminator, whose last column is f, that answers (negative, positive)."""

    predictor: Predictor
    alpha: float

    def predict_proba(self, X: AnyArray) -> Floats:
        positive = correct_domain_score(self.predictor.predict_proba(X)[:, 1], self.alpha)
        return np.column_stack([1 - positive, positive])
