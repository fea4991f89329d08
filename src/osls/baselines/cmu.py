"""CMU: calibrated multiple uncertainties (Fu et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.parameters import inherit_parameters
from osls._core.saving import saveable
from osls.baselines.deep import Batch, DeepAdapter, Fit, Phase, source_loss
from osls.baselines.open_set_losses import (
    Uncertainty,
    domain_loss,
    ensemble_uncertainty,
    min_max,
    reversal_strength,
    reverse_gradient,
)
from osls.training.nets.features import discriminator_head


class Ensemble(nn.Module):
    """Several linear classifiers on the same features, (n, width) -> (members, n, k)."""

    def __init__(self, members: int, width: int, k: int):
        super().__init__()
        self.members = nn.ModuleList(nn.Linear(width, k) for _ in range(members))

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([member(features) for member in self.members])


def known_weight(uncertainty: Uncertainty) -> Tensor:
    """Mean of the three uncertainties, each turned so that 1 means known."""
    return (1 - uncertainty.entropy + 1 - uncertainty.consistency + uncertainty.confidence) / 3


@saveable
@inherit_parameters
class CMU(DeepAdapter):
    r"""Adversarial alignment weighted by three uncertainties of an ensemble, which also find the novel rows.

    The weight of a target row is the mean of one minus the entropy, one minus the disagreement, and the
    confidence of five classifiers. The weight of a source class is the mean probability of that class over
    the target rows above the threshold. The three uncertainties come from the ensemble's probabilities, and
    each is scaled to [0, 1] over the target. A row with a weight below :math:`w_0 = 0.5` is novel.

    Parameters
    ----------
    n_classifiers : int, default=5
        Members of the ensemble.
    warm_up : float, default=0.2
        Share of the steps that train on the source only, before the weights are reliable.
    align : bool, default=True
        False drops the adversarial loss.
    threshold : float, optional
        w_0, in [0, 1].
    network, max_steps, patience, callback, novel_label, device, random_state
        As in :class:`osls.baselines.deep.DeepAdapter`.

    Notes
    -----
    The authors train each classifier with a different image augmentation. Tables have none, so here each
    classifier has its own bootstrap sample of the source.

    References
    ----------
    .. [1] Fu, Cao, Long, Wang. Learning to Detect Open Classes for Universal Domain Adaptation. ECCV 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import CMU
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CMU(max_steps=100, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> bool(0 <= model.known_score_.min() <= model.known_score_.max() <= 1)
    True
    """

    def __init__(self, *, n_classifiers: int = 5, warm_up: float = 0.2, **shared: Any):
        super().__init__(**shared)
        self.n_classifiers = n_classifiers
        self.warm_up = warm_up

    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        if self.n_classifiers < 2:
            raise ValueError(f"n_classifiers must be at least 2 to disagree; got {self.n_classifiers}.")
        return {
            "classifier": nn.Linear(width, k),
            "ensemble": Ensemble(self.n_classifiers, width, k),
            "discriminator": discriminator_head(width),
        }

    def _phases(self) -> Sequence[Phase]:
        return [
            Phase("warm-up", self.warm_up, self._learn_source, self._draw_bootstrap),
            Phase("adversarial", 1 - self.warm_up, self._loss, self._weigh_classes),
        ]

    def _draw_bootstrap(self, fit: Fit) -> None:
        """How often each source row is in each member's sample, (members, n)."""
        if "bootstrap" not in fit.kept:
            n = len(fit.source)
            drawn = torch.randint(n, (self.n_classifiers, n), device=fit.source.device)
            counts = torch.zeros(self.n_classifiers, n, device=fit.source.device)
            fit.kept["bootstrap"] = counts.scatter_add_(1, drawn, torch.ones_like(counts))

    def _ensemble_loss(self, fit: Fit, features: Tensor, batch: Batch) -> Tensor:
        logits = fit.net["ensemble"](features)
        y = batch.y.repeat(self.n_classifiers)
        each = cross_entropy(logits.flatten(0, 1), y, reduction="none").reshape(logits.shape[:2])
        weight: Tensor = fit.kept["bootstrap"][:, batch.source_rows]
        return (weight * each).mean()

    def _learn_source(self, fit: Fit, batch: Batch) -> Tensor:
        return source_loss(fit, batch) + self._ensemble_loss(fit, batch.source, batch)

    def _weigh_classes(self, fit: Fit) -> None:
        """Weigh the source classes by the target rows that look known."""
        scores = torch.from_numpy(self._score(fit.net, fit.target, self._calibrate(fit))).to(fit.source)
        threshold = self.own_threshold if self.threshold is None else self.threshold
        known = scores[scores[:, -1] >= threshold, :-1]
        # Without known rows, or with one class, all weights are equal.
        fit.kept["class_weight"] = (
            min_max(known.mean(dim=0)) if len(known) and fit.k > 1 else torch.ones(fit.k).to(fit.source)
        )

    def _loss(self, fit: Fit, batch: Batch) -> Tensor:
        # Detached: from this phase on, the ensemble's loss must not change the features.
        loss = source_loss(fit, batch) + self._ensemble_loss(fit, batch.source.detach(), batch)
        if not self.align:
            return loss
        target_proba = fit.net["ensemble"](batch.target).detach().softmax(dim=2)
        strength = reversal_strength(batch.progress)
        return loss + 0.5 * domain_loss(
            fit.net["discriminator"](reverse_gradient(batch.source, strength)),
            fit.net["discriminator"](reverse_gradient(batch.target, strength)),
            fit.kept["class_weight"][batch.y],
            known_weight(ensemble_uncertainty(target_proba)),
        )

    def _calibrate(self, fit: Fit) -> tuple[Tensor, Tensor]:
        """Return the least and the largest of each uncertainty over the target."""
        every = torch.column_stack(ensemble_uncertainty(self._ensemble_of_target(fit)))
        return every.amin(dim=0), every.amax(dim=0)

    def _ensemble_of_target(self, fit: Fit) -> Tensor:
        flat = fit.score_target(lambda features: fit.net["ensemble"](features).softmax(dim=2).transpose(0, 1))
        return flat.transpose(0, 1)

    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        low, high = calibration
        uncertainty = ensemble_uncertainty(net["ensemble"](features).softmax(dim=2))
        scaled = (torch.column_stack(uncertainty) - low) / (high - low).clamp_min(1e-10)
        score = known_weight(Uncertainty(*scaled.clamp(0, 1).unbind(dim=1)))
        return net["classifier"](features).softmax(dim=1), score
