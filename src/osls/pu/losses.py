"""Objectives of learning from positives and unlabelled examples, as pure functions of logits.

A logit is positive for "looks like the positive (known) class"; the loss is the logistic one.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["cvir", "nnpu", "pvu", "upu"]


def _as_positive(logits: Tensor) -> Tensor:
    """Mean loss of calling these examples positive."""
    return softplus(-logits).mean()


def _as_negative(logits: Tensor) -> Tensor:
    """Mean loss of calling these examples negative."""
    return softplus(logits).mean()


def pvu(positive: Tensor, unlabeled: Tensor) -> Tensor:
    """Domain discrimination, lines 4-7 of Algorithm 3: every unlabelled example counts as negative."""
    return _as_positive(positive) + _as_negative(unlabeled)


def upu(positive: Tensor, unlabeled: Tensor, alpha: float) -> Tensor:
    """Unbiased PU risk (du Plessis et al. 2015): the negatives' loss is unlabelled minus positives."""
    return alpha * _as_positive(positive) + _as_negative(unlabeled) - alpha * _as_negative(positive)


def nnpu(positive: Tensor, unlabeled: Tensor, alpha: float) -> Tensor:
    """Non-negative PU risk (Kiryo et al. 2017): the estimate of the negatives' loss stops at zero."""
    negative = _as_negative(unlabeled) - alpha * _as_negative(positive)
    return alpha * _as_positive(positive) + negative.clamp_min(0)


def cvir(positive: Tensor, kept: Tensor, alpha: float) -> Tensor:
    """Conditional value ignoring risk: positives, and the unlabelled examples that the keep rule kept.

    ``kept`` is a (1 - alpha) share of the unlabelled examples, so E_u[w l] = (1 - alpha) E_kept[l].
    """
    return alpha * _as_positive(positive) + (1 - alpha) * _as_negative(kept)
