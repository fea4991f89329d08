r"""Objectives of learning from positives and unlabelled examples, as pure functions of logits.

A logit is positive for "looks like the positive (known) class". With l(z, +1) = s(-z) and l(z, -1) = s(z),
s(z) = log(1 + e^z) is the logistic surrogate, the paper's, and s(z) = 1 / (1 + e^-z) the sigmoid one. Every
objective averages over the last axis, so a stack of networks, (members, batch), gives one loss per member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

Surrogate = Literal["logistic", "sigmoid"]


def _as_positive(logits: Tensor, surrogate: Surrogate = "logistic") -> Tensor:
    """Mean loss of calling these examples positive."""
    return _as_negative(-logits, surrogate)


def _as_negative(logits: Tensor, surrogate: Surrogate = "logistic") -> Tensor:
    """Mean loss of calling these examples negative."""
    return loss_as_negative(logits, surrogate).mean(dim=-1)


def loss_as_negative(logits: Tensor, surrogate: Surrogate = "logistic") -> Tensor:
    """Loss of calling each of these examples negative, l(z, -1); l(z, +1) is the same of -z."""
    return softplus(logits) if surrogate == "logistic" else torch.sigmoid(logits)


def pvu(positive: Tensor, unlabeled: Tensor) -> Tensor:
    """Domain discrimination, lines 4-7 of Algorithm 3: every unlabelled example counts as negative."""
    return _as_positive(positive) + _as_negative(unlabeled)


def upu(positive: Tensor, unlabeled: Tensor, alpha: float, surrogate: Surrogate = "logistic") -> Tensor:
    r"""Unbiased PU risk: the negatives' loss is that of the unlabelled minus that of the positives.

    .. math:: \alpha E_p[\ell(z, +1)] + E_u[\ell(z, -1)] - \alpha E_p[\ell(z, -1)]

    With the logistic surrogate it has no lower bound: a model that separates the training positives from
    the unlabelled rows can lower it without limit. The sigmoid surrogate is bounded, but its minimiser is
    not a probability.

    References
    ----------
    .. [1] du Plessis, Niu, Sugiyama. Convex Formulation for Learning from Positive and Unlabeled Data.
       ICML 2015.

    Examples
    --------
    >>> import torch
    >>> from osls.pu import losses
    >>> round(losses.upu(torch.zeros(2), torch.zeros(3), 0.5).item(), 3)  # log 2
    0.693
    """
    return alpha * _as_positive(positive, surrogate) + _negative_part(positive, unlabeled, alpha, surrogate)


def nnpu(positive: Tensor, unlabeled: Tensor, alpha: float, surrogate: Surrogate = "logistic") -> Tensor:
    r"""Non-negative PU risk: the estimate of the negatives' loss is clipped at zero.

    .. math:: \alpha E_p[\ell(z, +1)] + \max\{E_u[\ell(z, -1)] - \alpha E_p[\ell(z, -1)],\, 0\}

    This is the paper's maximum. Kiryo et al. train with a variant of its gradient that *ascends* on the
    second term while that is negative; here that term then has no gradient.

    References
    ----------
    .. [1] Kiryo, Niu, du Plessis, Sugiyama. Positive-Unlabeled Learning with Non-Negative Risk
       Estimator. NeurIPS 2017.

    Examples
    --------
    >>> import torch
    >>> from osls.pu import losses
    >>> round(losses.nnpu(torch.zeros(2), torch.full((3,), -9.0), 0.5).item(), 3)  # only log(2) / 2 is left
    0.347
    """
    negative = _negative_part(positive, unlabeled, alpha, surrogate)
    return alpha * _as_positive(positive, surrogate) + negative.clamp_min(0)


def _negative_part(positive: Tensor, unlabeled: Tensor, alpha: float, surrogate: Surrogate) -> Tensor:
    """Estimate (1 - alpha) E_n[l(z, -1)] without a negative example."""
    return _as_negative(unlabeled, surrogate) - alpha * _as_negative(positive, surrogate)


def cvir(positive: Tensor, kept: Tensor, alpha: float) -> Tensor:
    """Conditional value ignoring risk: positives, and the unlabelled examples that the keep rule kept.

    ``kept`` is a (1 - alpha) share of the unlabelled examples, so E_u[w l] = (1 - alpha) E_kept[l].
    """
    return alpha * _as_positive(positive) + (1 - alpha) * _as_negative(kept)


def cvir_with_penalty(positive: Tensor, kept: Tensor, alpha: float, penalty: float = 1.0) -> Tensor:
    r"""CVIR with an extra supervised loss on the positives (the appendix on general separable data).

    .. math:: L_{CVIR} + \lambda E_p[\ell(z, +1)]

    On general separable data CVIR can get stuck where the positives that it kept by mistake have logits of
    zero: the loss on labelled positives raises these logits, the loss on kept rows lowers them. With a large
    enough penalty they rise, and the next keep rule drops them.

    Examples
    --------
    >>> import torch
    >>> from osls.pu import losses
    >>> round(losses.cvir_with_penalty(torch.zeros(2), torch.zeros(3), 0.5, penalty=2.0).item(), 3)  # 3 log 2
    2.079
    """
    return cvir(positive, kept, alpha) + penalty * _as_positive(positive)


def keep_lowest(unlabeled: Tensor, share: float) -> Tensor:
    """Return the lowest ``share`` of the logits along the last axis, at least one: CVIR's keep rule.

    Ranking by the loss of calling a row negative is the same as ranking by its logit.
    """
    count = min(max(1, round(share * unlabeled.shape[-1])), unlabeled.shape[-1])
    return unlabeled.topk(count, dim=-1, largest=False).values


# (logits of positives, logits of the other rows, alpha) -> one loss per member.
Loss = Callable[[Tensor, Tensor, float], Tensor]


@dataclass(frozen=True)
class Objective:
    """A loss, and on which unlabelled rows: all, or with ``keeps`` those that CVIR's keep rule kept."""

    loss: Loss
    keeps: bool = False

    def on_batch(self, positive: Tensor, unlabeled: Tensor, alpha: float) -> Tensor:
        """Return the loss of a batch, whose own rows are ranked if some are to be kept."""
        others = keep_lowest(unlabeled, 1 - alpha) if self.keeps else unlabeled
        return self.loss(positive, others, alpha)


def _both_sides(positive: Tensor, others: Tensor, alpha: float) -> Tensor:
    return pvu(positive, others)


# "cvir" gives both sides the same weight, as lines 4-7 of Algorithm 3 do. The surrogate is the logistic one
# unless a name says otherwise; Kiryo et al. and the authors' code use the sigmoid one.
OBJECTIVES: dict[str, Objective] = {
    "cvir": Objective(_both_sides, keeps=True),
    "pvu": Objective(_both_sides),
    "upu": Objective(upu),
    "nnpu": Objective(nnpu),
    "upu-sigmoid": Objective(partial(upu, surrogate="sigmoid")),
    "nnpu-sigmoid": Objective(partial(nnpu, surrogate="sigmoid")),
    "cvir-penalty": Objective(cvir_with_penalty, keeps=True),
}
