"""Losses and weights of the open set adaptation methods, as pure functions of tensors.

A domain logit is positive for "looks like source". Probabilities have one row per example.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot, softplus

from osls.pu.losses import Surrogate, loss_as_negative


class _Reversal(torch.autograd.Function):
    """Identity forwards, minus ``strength`` times the gradient backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return -ctx.strength * gradients[0], None


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    """Return x, but flip the sign of its gradient: the layers before it maximise the loss."""
    out: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return out


def reversal_strength(progress: float) -> float:
    """Strength of the reversal by the share of training done: 2 / (1 + exp(-10 p)) - 1 (Ganin 2016)."""
    return 2 / (1 + math.exp(-10 * progress)) - 1


def entropy(proba: Tensor) -> Tensor:
    """Entropy of each row, in nats."""
    return -(proba * proba.clamp_min(1e-10).log()).sum(dim=-1)


def normalised_entropy(proba: Tensor) -> Tensor:
    """Entropy divided by its maximum log k, in [0, 1]; always 0 with one class."""
    return entropy(proba) / max(math.log(proba.shape[-1]), 1e-10)


def boundary_loss(unknown: Tensor, boundary: float) -> Tensor:
    """Cross-entropy of P(unknown) to the constant ``boundary`` (Saito 2018); minimal at P = boundary."""
    unknown = unknown.clamp(1e-6, 1 - 1e-6)
    return -(boundary * unknown.log() + (1 - boundary) * (1 - unknown).log()).mean()


def domain_loss(
    source: Tensor, target: Tensor, source_weight: Tensor | float = 1.0, target_weight: Tensor | float = 1.0
) -> Tensor:
    """Weighted logistic loss of domain logits, source against target."""
    return (source_weight * softplus(-source)).mean() + (target_weight * softplus(target)).mean()


def min_max(values: Tensor) -> Tensor:
    """Values shifted and scaled to [0, 1]; equal values become 0."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp_min(1e-10)


def unit_mean_weight(values: Tensor) -> Tensor:
    """Min-max weights of mean one (You 2019), so that every batch has the same total weight."""
    scaled = min_max(values)
    return scaled / scaled.mean().clamp_min(1e-10)


def one_versus_rest(logits: Tensor, y: Tensor) -> Tensor:
    """Logistic loss of k binary classifiers, summed over the classes (Liu 2019)."""
    truth = one_hot(y, logits.shape[1]).to(logits.dtype)
    return binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(dim=1).mean()


def extremes(similarity: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Row numbers of the ``share`` least and of the ``share`` most similar, at least one each."""
    count = max(1, round(share * len(similarity)))
    order = similarity.argsort(stable=True)
    return order[:count], order[-count:]


def k_positive_unlabeled(source: Tensor, y: Tensor, target: Tensor, kept: Tensor) -> Tensor:
    """Mean over k heads of CVIR's two terms: class j is head j's positive, its kept target rows negative.

    Logits are (..., rows, k) and ``kept`` marks the target's (row, head) pairs. With class-balanced source
    rows, the mean over the rows' own heads is the mean over heads of the mean over positives. A head that
    kept no row of the batch has no negative term.
    """
    positive = softplus(-source.gather(-1, y.unsqueeze(-1))).mean()
    negative = (kept * softplus(target)).sum(dim=-2) / kept.sum(dim=-2).clamp_min(1)
    return positive + negative.mean()


def k_unbiased(
    source: Tensor, y: Tensor, target: Tensor, alpha: Tensor, *, surrogate: Surrogate, clipped: bool
) -> Tensor:
    """Mean over k heads of the unbiased PU risk (uPU), clipped at zero where that is asked for (nnPU).

    ``alpha`` has the share of each head's class. The formulas are :func:`osls.pu.losses.upu` and
    :func:`osls.pu.losses.nnpu`; a head without a positive in the batch has only the target's term.
    """
    own = one_hot(y, source.shape[-1]).to(source.dtype)
    count = own.sum(dim=-2).clamp_min(1)
    as_positive = (own * loss_as_negative(-source, surrogate)).sum(dim=-2) / count
    as_negative = (own * loss_as_negative(source, surrogate)).sum(dim=-2) / count
    rest = loss_as_negative(target, surrogate).mean(dim=-2) - alpha * as_negative
    return (alpha * as_positive + (rest.clamp_min(0) if clipped else rest)).mean()


class Uncertainty(NamedTuple):
    """Uncertainties of an ensemble (Fu 2020); on a clear row, confidence is high and the others are low."""

    entropy: Tensor
    consistency: Tensor
    confidence: Tensor


def ensemble_uncertainty(proba: Tensor) -> Uncertainty:
    """Uncertainties from (members, n, k) probabilities.

    The mean normalised entropy; the standard deviation between members, averaged over the classes; the
    mean of the members' largest probabilities.
    """
    return Uncertainty(
        normalised_entropy(proba).mean(dim=0), proba.std(dim=0).mean(dim=1), proba.amax(dim=2).mean(dim=0)
    )


def entropy_separation(proba: Tensor, centre: float, margin: float) -> Tensor:
    """Push entropies away from ``centre`` if they are more than ``margin`` away from it (Saito 2020).

    A row nearer to the centre is still ambiguous and has no loss.
    """
    distance = (entropy(proba) - centre).abs()
    return -torch.where(distance > margin, distance, torch.zeros_like(distance)).mean()


def neighbour_similarities(features: Tensor, bank: Tensor, rows: Tensor, temperature: float) -> Tensor:
    """Similarity logits of a batch to the memory bank and to itself, (batch, bank + batch).

    Features have unit length. The bank's copies of the batch's rows are out of date, and a row is not its own
    neighbour; both get the smallest possible similarity, -1.
    """
    stored = (features @ bank.T).index_fill(1, rows, -1.0)
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    current = (features @ features.T).masked_fill(itself, -1.0)
    return torch.cat([stored, current], dim=1) / temperature
