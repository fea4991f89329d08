"""Universal adaptation network (You et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from osls._core.parameters import inherit_parameters
from osls._core.saving import saveable
from osls.baselines.deep import Batch, DeepAdapter, Fit, Phase, source_loss
from osls.baselines.open_set_losses import (
    domain_loss,
    normalised_entropy,
    reversal_strength,
    reverse_gradient,
    unit_mean_weight,
)
from osls.training.nets.features import discriminator_head


@saveable
@inherit_parameters
class UAN(DeepAdapter):
    r"""Adversarial alignment weighted by how transferable each row looks.

    A discriminator d' that does not train the features and the classifier's entropy H give the weights
    :math:`w_s = H / \log k - d'` and :math:`w_t = d' - H / \log k`, scaled to [0, 1] and to mean one within
    a batch; a second discriminator aligns the weighted sides through gradient reversal. A target row with
    :math:`w_t < w_0 = -0.5` is novel.

    d' is at least 0, so at the paper's w_0 a row can only be novel if its entropy exceeds half of log k. Most
    classifiers are confident on the novel rows, which are then missed even if d' detects them.

    Parameters
    ----------
    source_temperature : float, default=10.0
        Softens the classifier in w_s; otherwise its entropy on its own training rows would be near 0.
    align : bool, default=True
        False drops the adversarial loss; d' stays, because the rule for novel rows needs it.
    threshold : float, optional
        w_0, in [-1, 1].
    network, max_steps, patience, callback, novel_label, device, random_state
        As in :class:`osls.baselines.deep.DeepAdapter`.

    References
    ----------
    .. [1] You, Long, Cao, Wang, Jordan. Universal Domain Adaptation. CVPR 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import UAN
    >>> X, y = load_iris(return_X_y=True)
    >>> model = UAN(max_steps=100, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> bool(-1 <= model.known_score_.min() <= model.known_score_.max() <= 1)
    True
    """

    own_threshold: ClassVar[float] = -0.5
    score_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    balanced: ClassVar[bool] = True

    def __init__(self, *, source_temperature: float = 10.0, **shared: Any):
        super().__init__(**shared)
        self.source_temperature = source_temperature

    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        return {
            "classifier": nn.Linear(width, k),
            "discriminator": discriminator_head(width),
            "separate": discriminator_head(width),
        }

    def _phases(self) -> Sequence[Phase]:
        return [Phase("adversarial", 1.0, self._loss)]

    def _loss(self, fit: Fit, batch: Batch) -> Tensor:
        net = fit.net
        # Detached: d' learns from the features but must not change them.
        separate = net["separate"](batch.source.detach()), net["separate"](batch.target.detach())
        loss = source_loss(fit, batch) + domain_loss(*separate)
        if not self.align:
            return loss
        source_entropy = normalised_entropy(
            (net["classifier"](batch.source).detach() / self.source_temperature).softmax(dim=1)
        )
        target_entropy = normalised_entropy(net["classifier"](batch.target).detach().softmax(dim=1))
        strength = reversal_strength(batch.progress)
        return loss + domain_loss(
            net["discriminator"](reverse_gradient(batch.source, strength)),
            net["discriminator"](reverse_gradient(batch.target, strength)),
            unit_mean_weight(source_entropy - separate[0].detach().sigmoid()),
            unit_mean_weight(separate[1].detach().sigmoid() - target_entropy),
        )

    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        proba = net["classifier"](features).softmax(dim=1)
        return proba, net["separate"](features).sigmoid() - normalised_entropy(proba)
