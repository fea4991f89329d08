"""OVANet: one-versus-all heads learn from the source how near is near enough (Saito and Saenko 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid, normalize, one_hot

from osls._core.parameters import inherit_parameters
from osls._core.saving import saveable
from osls.baselines.deep import Batch, DeepAdapter, Fit, Phase, source_loss
from osls.baselines.open_set_losses import entropy


def hardest_negative(logits: Tensor, y: Tensor) -> Tensor:
    r"""One-versus-all loss: the own class's head says yes, and of the others only the most wrong one counts.

    Half of :math:`-\log p_y - \min_{j \ne y} \log(1 - p_j)`, averaged over the rows.
    """
    own = one_hot(y, logits.shape[1]).bool()
    positive = -logsigmoid(logits[own])
    negative = (-logsigmoid(-logits)).masked_fill(own, 0.0).amax(dim=1)
    return 0.5 * (positive + negative).mean()


def open_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the binary heads, which the target's rows are trained to lower."""
    proba = logits.sigmoid()
    return entropy(torch.stack([proba, 1 - proba], dim=-1)).mean()


class UnitDirections(nn.Linear):
    """The difference of two linear outputs a class, each with weights of length one."""

    def __init__(self, width: int, k: int):
        super().__init__(width, 2 * k, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        yes, no = linear(x, normalize(self.weight, dim=1)).chunk(2, dim=1)
        return yes - no


@saveable
@inherit_parameters
class OVANet(DeepAdapter):
    r"""A classifier, and for each class a binary head that learns the margin between the source's classes.

    A head is trained on its own class and on the rows of other classes that it takes for its own: the
    distance between known classes becomes the threshold. On the target the heads' entropy is minimised, so
    that each row comes clearly inside or outside. A row is novel if the head of its most probable class
    says no.

    Parameters
    ----------
    certainty : float, default=0.1
        Weight of the target's entropy.
    align : bool, default=True
        False drops the loss on the target.
    threshold : float, optional
        Smallest probability that the class's head gives to a known row; 0.5 in the paper.
    network, max_steps, patience, callback, novel_label, device, random_state
        As in :class:`osls.baselines.deep.DeepAdapter`.

    Notes
    -----
    As in the authors' code, source and target go through the network separately, each with its own batch
    statistics. The authors draw the classes of the source equally often, set the heads' weights to length
    one before each step, and give the classifier no bias; here the rows are drawn as they are, the lengths
    are divided out, and the classifier has a bias.

    References
    ----------
    .. [1] Saito, Saenko. OVANet: One-vs-All Network for Universal Domain Adaptation. ICCV 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import OVANet
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OVANet(max_steps=100, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.target_proba_.shape
    (150, 3)
    """

    short_name: ClassVar[str] = "ovanet"
    one_pass: ClassVar[bool] = False

    def __init__(self, *, certainty: float = 0.1, **shared: Any):
        super().__init__(**shared)
        self.certainty = certainty

    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        return {"classifier": nn.Linear(width, k), "open": UnitDirections(width, k)}

    def _phases(self) -> Sequence[Phase]:
        return [Phase("one versus all", 1.0, self._loss)]

    def _loss(self, fit: Fit, batch: Batch) -> Tensor:
        heads = fit.net["open"]
        loss = source_loss(fit, batch) + hardest_negative(heads(batch.source), batch.y)
        return loss + self.certainty * open_entropy(heads(batch.target)) if self.align else loss

    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        proba = net["classifier"](features).softmax(dim=1)
        best = proba.argmax(dim=1, keepdim=True)
        return proba, net["open"](features).sigmoid().gather(1, best)[:, 0]
