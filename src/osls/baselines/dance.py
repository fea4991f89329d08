"""DANCE: domain adaptative neighbourhood clustering by entropy optimisation (Saito et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from osls._core.parameters import inherit_parameters
from osls._core.saving import saveable
from osls.baselines.deep import Batch, DeepAdapter, Fit, Phase, source_loss
from osls.baselines.open_set_losses import (
    entropy,
    entropy_separation,
    neighbour_similarities,
    normalised_entropy,
)


class CosineClassifier(nn.Module):
    """Similarity of unit features to unit class prototypes, over a temperature."""

    def __init__(self, width: int, k: int, temperature: float):
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(k, width) / math.sqrt(width))
        self.temperature = temperature

    def forward(self, features: Tensor) -> Tensor:
        return linear(normalize(features), normalize(self.prototypes)) / self.temperature


class MemoryBank:
    """The most recent features of every target row, scaled to unit length."""

    def __init__(self, features: Tensor, momentum: float):
        self.features = normalize(features)
        self.momentum = momentum

    def update(self, rows: Tensor, features: Tensor) -> None:
        """Move the rows' features towards the new ones; momentum 0 replaces them."""
        mixed = self.momentum * self.features[rows] + (1 - self.momentum) * features.detach()
        # Not in place: the backward pass of this step still needs the old tensor.
        self.features = self.features.index_copy(0, rows, normalize(mixed))


@saveable
@inherit_parameters
class DANCE(DeepAdapter):
    r"""Cluster the target around the known classes and around itself, and separate by entropy.

    Each target row is pulled towards its nearest neighbours, class prototypes or other target rows in a
    memory bank, by minimising the entropy of its similarities to them (neighbourhood clustering). Rows whose
    class entropy is more than a margin above or below :math:`\rho = \log(k) / 2` are pushed further away
    from it (entropy separation). At the end, rows with an entropy above :math:`\rho` are novel.

    With one known class the entropy is always zero and no row can be novel.

    Parameters
    ----------
    eta : float, default=0.05
        Weight of the two losses on the target.
    margin : float, default=0.5
        Margin of the entropy separation.
    temperature : float, default=0.05
        Temperature of all similarities.
    momentum : float, default=0.0
        Momentum of the memory bank.
    align : bool, default=True
        False drops the entropy separation (section E.5 of the OSLS paper).
    threshold : float, optional
        Smallest score 1 - H / log k of a known row; 0.5 is the paper's rule H <= log(k) / 2.
    network, max_steps, patience, callback, novel_label, device, random_state
        As in :class:`osls.baselines.deep.DeepAdapter`.

    References
    ----------
    .. [1] Saito, Kim, Sclaroff, Saenko. Universal Domain Adaptation through Self Supervision. NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import DANCE
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DANCE(max_steps=100, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> bool(0 <= model.known_score_.min() <= model.known_score_.max() <= 1)
    True
    """

    balanced: ClassVar[bool] = True

    def __init__(
        self,
        *,
        eta: float = 0.05,
        margin: float = 0.5,
        temperature: float = 0.05,
        momentum: float = 0.0,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.eta = eta
        self.margin = margin
        self.temperature = temperature
        self.momentum = momentum

    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        return {"classifier": CosineClassifier(width, k, self.temperature)}

    def _phases(self) -> Sequence[Phase]:
        return [Phase("clustering", 1.0, self._loss, self._fill_bank)]

    def _fill_bank(self, fit: Fit) -> None:
        if "bank" not in fit.kept:
            fit.kept["bank"] = MemoryBank(fit.score_target(nn.Identity()), self.momentum)

    def _loss(self, fit: Fit, batch: Batch) -> Tensor:
        bank: MemoryBank = fit.kept["bank"]
        logits = fit.net["classifier"](batch.target)
        features = normalize(batch.target)
        neighbours = neighbour_similarities(features, bank.features, batch.target_rows, self.temperature)
        clustering = entropy(torch.cat([logits, neighbours], dim=1).softmax(dim=1)).mean()
        bank.update(batch.target_rows, features)
        loss = source_loss(fit, batch) + self.eta * clustering
        if self.align:
            separation = entropy_separation(logits.softmax(dim=1), math.log(fit.k) / 2, self.margin)
            loss = loss + self.eta * separation
        return loss

    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        proba = net["classifier"](features).softmax(dim=1)
        return proba, 1 - normalised_entropy(proba)
