"""Open set domain adaptation by backpropagation (Saito et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from osls._core.parameters import inherit_parameters
from osls._core.saving import saveable
from osls.baselines.deep import Batch, DeepAdapter, Fit, Phase, source_loss
from osls.baselines.open_set_losses import boundary_loss, reversal_strength, reverse_gradient


@saveable
@inherit_parameters
class BackpropODA(DeepAdapter):
    r"""A (k+1)-way classifier; adversarial training moves target rows towards or away from its last class.

    The classifier is trained to give target rows the probability t = 1/2 of the unknown class. The features
    are trained, by gradient reversal, to move that probability away from t, so each row becomes clearly known
    or clearly unknown. The prediction is the most probable of the k+1 classes.

    Parameters
    ----------
    boundary : float, default=0.5
        t.
    strength : float, default=1.0
        Strength of the gradient reversal at the end of its usual schedule; constant in the authors' code,
        where the features are pre-trained.
    align : bool, default=True
        False drops the loss on the target. Then the unknown class is not trained, and no row is novel.
    threshold : float, optional
        Smallest p / (p + p_unknown) of a known row, with p the probability of its best known class; 0.5
        predicts the most probable class.
    network, max_steps, patience, callback, novel_label, device, random_state
        As in :class:`osls.baselines.deep.DeepAdapter`.

    References
    ----------
    .. [1] Saito, Yamamoto, Ushiku, Harada. Open Set Domain Adaptation by Backpropagation. ECCV 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import BackpropODA
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BackpropODA(max_steps=200, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.target_proba_.shape
    (150, 3)
    """

    def __init__(self, *, boundary: float = 0.5, strength: float = 1.0, **shared: Any):
        super().__init__(**shared)
        self.boundary = boundary
        self.strength = strength

    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        return {"classifier": nn.Linear(width, k + 1)}

    def _phases(self) -> Sequence[Phase]:
        return [Phase("adversarial", 1.0, self._loss)]

    def _loss(self, fit: Fit, batch: Batch) -> Tensor:
        loss = source_loss(fit, batch)
        if self.align:
            strength = self.strength * reversal_strength(batch.progress)
            unknown = fit.net["classifier"](reverse_gradient(batch.target, strength)).softmax(dim=1)[:, -1]
            loss = loss + boundary_loss(unknown, self.boundary)
        return loss

    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        return most_probable(net["classifier"](features))


def most_probable(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Known classes' probabilities, and a score of at least 1/2 where one of them is the most probable."""
    proba = logits.softmax(dim=1)
    known = proba[:, :-1]
    best = known.amax(dim=1)
    return known, best / (best + proba[:, -1])
