"""Separate to adapt (Liu et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.parameters import inherit_parameters
from osls._core.saving import saveable
from osls.baselines.backprop_oda import most_probable
from osls.baselines.deep import Batch, DeepAdapter, Fit, Phase, source_loss
from osls.baselines.open_set_losses import (
    domain_loss,
    entropy,
    extremes,
    one_versus_rest,
    reversal_strength,
    reverse_gradient,
)
from osls.training.nets.features import discriminator_head


@saveable
@inherit_parameters
class SeparateToAdapt(DeepAdapter):
    """Separate the target into known and novel first, then align the known part and learn the novel one.

    Separation: k binary classifiers learn the source classes, and a binary separator learns to separate the
    target rows most similar to a class from those least similar to any class. Its P(known) are then the
    target's weights. Adaptation: a (k+1)-way classifier on features that are aligned adversarially with
    those weights; at the end its last class is trained on the most novel rows of each batch.

    Parameters
    ----------
    extreme : float, default=1/16
        Share of a batch that counts as certainly novel, and as certainly known (2 of 32 for the authors).
    alignment, confidence, novelty : float, default=0.3, 0.1, 0.3
        Weights of the adversarial loss, of the entropy of target rows, and of the novel class's loss.
    original : bool, default=False
        True: as the authors have it, see the notes.
    align : bool, default=True
        False drops the adversarial loss.
    threshold : float, optional
        As in :class:`osls.baselines.BackpropODA`; 0.5 is the most probable of the k+1 classes.
    network, max_steps, patience, callback, novel_label, device, random_state
        As in :class:`osls.baselines.deep.DeepAdapter`.

    Notes
    -----
    The authors' features are pre-trained and hardly change after the separation. Here they are trained from
    scratch and do change, so the separator's weights are computed once, on the features it was trained on.
    Also, the rows most similar to *any* class, which the authors take as certainly known, are here all of the
    one or two easiest classes: the separator learns those against the rest, and ranks the novel rows hardly
    lower than the known ones. So each class selects its own rows. ``original=True`` goes back to the authors'
    rule in both: the rows most similar to any class, and weights by the features before each epoch.

    References
    ----------
    .. [1] Liu, Cao, Long, Wang, Yang. Separate to Adapt: Open Set Domain Adaptation via Progressive
       Separation. CVPR 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import SeparateToAdapt
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SeparateToAdapt(max_steps=200, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.target_proba_.shape
    (150, 3)
    """

    short_name: ClassVar[str] = "sta"

    def __init__(
        self,
        *,
        extreme: float = 1 / 16,
        alignment: float = 0.3,
        confidence: float = 0.1,
        novelty: float = 0.3,
        original: bool = False,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.extreme = extreme
        self.alignment = alignment
        self.confidence = confidence
        self.novelty = novelty
        self.original = original

    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        return {
            "classifier": nn.Linear(width, k + 1),
            "similarity": nn.Linear(width, k),
            "separator": nn.Sequential(
                nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1), nn.Flatten(0)
            ),
            "discriminator": discriminator_head(width),
        }

    def _phases(self) -> Sequence[Phase]:
        # 500, 400, 1500 and 400 steps in the authors' code.
        return [
            Phase("similarity", 0.18, self._learn_similarity),
            Phase("separation", 0.14, self._separate),
            Phase("adaptation", 0.54, self._adapt_known, self._hold_weights),
            Phase("novel class", 0.14, self._learn_novel, self._hold_weights),
        ]

    def _learn_similarity(self, fit: Fit, batch: Batch) -> Tensor:
        return source_loss(fit, batch) + one_versus_rest(fit.net["similarity"](batch.source), batch.y)

    def _separate(self, fit: Fit, batch: Batch) -> Tensor:
        similarity = fit.net["similarity"](batch.target).detach()
        novel, known = extremes(similarity.amax(dim=1), self.extreme)
        if not self.original:
            known = similarity.argmax(dim=0).unique()
        separator, features = fit.net["separator"], batch.target.detach()
        return self._learn_similarity(fit, batch) + domain_loss(
            separator(features[known]), separator(features[novel])
        )

    def _hold_weights(self, fit: Fit) -> None:
        """Weigh the target rows by the separator: once, or (``original``) anew before every epoch."""
        if self.original or "known_weight" not in fit.kept:
            fit.kept["known_weight"] = fit.score_target(fit.net["separator"]).sigmoid()

    def _adapt_known(self, fit: Fit, batch: Batch, progress: float | None = None) -> Tensor:
        weight: Tensor = fit.kept["known_weight"][batch.target_rows]
        proba = fit.net["classifier"](batch.target).softmax(dim=1)
        loss = source_loss(fit, batch) + self.confidence * (weight * entropy(proba)).mean()
        if self.align:
            strength = reversal_strength(batch.progress if progress is None else progress)
            loss = loss + self.alignment * domain_loss(
                fit.net["discriminator"](reverse_gradient(batch.source, strength)),
                fit.net["discriminator"](reverse_gradient(batch.target, strength)),
                target_weight=weight,
            )
        return loss

    def _learn_novel(self, fit: Fit, batch: Batch) -> Tensor:
        novel, _ = extremes(fit.kept["known_weight"][batch.target_rows], self.extreme)
        logits = fit.net["classifier"](batch.target[novel])
        last = torch.full_like(novel, fit.k)
        return self._adapt_known(fit, batch, progress=1.0) + self.novelty * cross_entropy(logits, last)

    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        return most_probable(net["classifier"](features))
