"""CoLOR: as few false alarms on the source as a recall on the target allows (Chaudhari et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from osls._core.arrays import AnyArray, Floats
from osls._core.parameters import AtLeast, Between, Constraint
from osls._core.saving import saveable
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.baselines.both_sides import fold_of_both, train_on_both
from osls.baselines.rejection import predicted_mix, reject
from osls.baselines.source_only import NeverNovel
from osls.training.choose import LearnerSpec, choose_network
from osls.training.learners import NetworkLearner
from osls.training.predictors import Networks
from osls.training.sampling import assign_folds
from osls.training.trainer import Device, as_tensor

# The recalls in steps of a tenth; the authors stop at .45.
_RECALLS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Lagrangian:
    r"""The loss of all heads, with a multiplier :math:`\lambda_i \ge 0` for each head's recall.

    .. math:: E_s[\log(1 + e^{z_i})] + \lambda_i (a_i - E_t[\sigma(c z_i)])

    The network lowers it. After each step the multipliers rise by what the recall, counted, falls short of
    :math:`a_i`, or fall. The cross-entropy of the classes is added once for each head.

    Parameters
    ----------
    recalls : sequence of float
        :math:`a_i`.
    members : int
        Networks that are trained together.
    k : int
        Known classes; the logits of the heads come after theirs.
    sharpness, dual_rate : float
        c, and the learning rate of the multipliers (Adam's).
    """

    def __init__(
        self,
        recalls: Sequence[float],
        members: int,
        k: int,
        *,
        sharpness: float,
        dual_rate: float,
        device: torch.device,
    ):
        self._k, self._sharpness = k, sharpness
        self._wanted = torch.tensor(recalls, dtype=torch.float32, device=device)
        self.multipliers = torch.ones(members, len(recalls), device=device)
        self._dual = torch.optim.Adam([self.multipliers], lr=dual_rate, maximize=True)

    def __call__(self, source: Tensor, y: Tensor, target: Tensor) -> Tensor:
        heads_source, heads_target = source[..., self._k :], target[..., self._k :]
        false_alarms = softplus(heads_source).mean(dim=1)
        recall = (self._sharpness * heads_target).sigmoid().mean(dim=1)
        classes = source[..., : self._k].flatten(0, 1)
        supervised = len(source) * cross_entropy(classes, y.flatten())
        constrained = (false_alarms + self.multipliers.clone() * (self._wanted - recall)).sum()
        self._ascend((heads_target.detach() > 0).float().mean(dim=1))
        return constrained / len(self._wanted) + supervised

    def _ascend(self, recall: Tensor) -> None:
        self.multipliers.grad = self._wanted - recall
        self._dual.step()
        self.multipliers.clamp_(min=0)


def choose_head(false_alarms: Floats, recall: Floats, allowed: float) -> int:
    """Return the head of highest recall among those with few false alarms; else that with the fewest."""
    fine = false_alarms <= allowed
    return int(np.where(fine, recall, -1.0).argmax() if fine.any() else false_alarms.argmin())


@saveable
class CoLOR(OpenSetAdapter):
    r"""One head for each of several recalls, trained under a constraint; the boldest reliable one decides.

    The network classifies the source. Each of its other outputs is a detector that must call at least the
    share :math:`a_i` of the target novel, and is trained to call no source row novel. Of the detectors with
    few false alarms on held-out source rows, the one that calls most of the target novel is used.

    No share is estimated from densities, which is why the method is meant for a target whose known classes
    look a little different (background shift).

    Parameters
    ----------
    recalls : sequence of float, default=(0.02, 0.05, 0.1, 0.2, ..., 0.9)
        :math:`a_i`. The authors' grid ends at 0.45; with a larger novel share none of its heads is right.
    false_alarms : float, default=0.01
        Largest share of held-out source rows that the chosen head may call novel.
    sharpness : float, default=2.0
        Factor of the logits in the smooth recall.
    dual_rate : float, default=0.02
        Learning rate of the multipliers.
    network : "auto", "mlp", "convnet" or factory
        As in :class:`osls.baselines.KPU`. For a linear head on features that are given, pass
        ``lambda shape, n: torch.nn.Linear(shape[0], n)``.
    n_folds, max_steps, novel_label, device, random_state
        As in :class:`osls.baselines.KPU`; at least two folds.

    Attributes
    ----------
    recall_ : float
        The :math:`a_i` of the chosen head.

    Notes
    -----
    The authors keep the best head of all epochs on one held-out part; here the head is chosen once, at the
    end, by out-of-fold outputs. Their optimiser, penalty and clipping of gradients are replaced by those
    that all networks here have.

    References
    ----------
    .. [1] Chaudhari, Wald, Saria. Open-Set Domain Adaptation Under Background Distribution Shift: Challenges
       and A Provably Efficient Solution. TMLR 2025, arXiv:2512.01152.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import CoLOR
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CoLOR(max_steps=100, n_folds=2, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.target_proba_.shape
    (150, 3)
    """

    short_name: ClassVar[str] = "color"
    recall_: float

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "false_alarms": Between(0, 1, closed=True),
        "sharpness": Between(0, np.inf),
        "dual_rate": Between(0, np.inf),
        "n_folds": AtLeast(2),
        "max_steps": AtLeast(1, optional=True),
        "device": Device(),
    }

    def __init__(
        self,
        *,
        recalls: Sequence[float] = _RECALLS,
        false_alarms: float = 0.01,
        sharpness: float = 2.0,
        dual_rate: float = 0.02,
        network: LearnerSpec = "auto",
        n_folds: int = 5,
        max_steps: int | None = None,
        novel_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
    ):
        self.recalls = recalls
        self.false_alarms = false_alarms
        self.sharpness = sharpness
        self.dual_rate = dual_rate
        self.network = network
        self.n_folds = n_folds
        self.max_steps = max_steps
        self.novel_label = novel_label
        self.device = device
        self.random_state = random_state

    def _adapt(self, task: Task) -> Adaptation:
        if len(self.recalls) == 0 or not all(0 < recall < 1 for recall in self.recalls):
            raise ValueError(f"recalls must be one or more numbers between 0 and 1; got {self.recalls!r}.")
        n, fold = len(task.y), fold_of_both(task, self.n_folds)
        learner = self._learner(stack_rows(task.X, task.X_target))
        loss = Lagrangian(
            self.recalls,
            int(fold.max()) + 1,
            task.k,
            sharpness=self.sharpness,
            dual_rate=self.dual_rate,
            device=learner.device,
        )
        networks, logits = train_on_both(learner, task, fold, task.k + len(self.recalls), loss)
        called = logits[:, task.k :] > 0
        head = choose_head(called[:n].mean(axis=0), called[n:].mean(axis=0), self.false_alarms)
        detector = ChosenHead(networks, task.k, head)
        proba = detector.proba(logits[n:])
        learned = {"_predictor": detector, "recall_": float(self.recalls[head])}
        return Adaptation(*predicted_mix(proba, task.source_marginal), proba, learned=learned)

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        n_folds = check_folds(task.y, task.classes, self.n_folds, len(task.y))
        fold = assign_folds(task.y, n_folds, task.rng, task.copy_of)
        seed = int(task.rng.integers(2**31))
        models = self._learner(task.X).cross_fit(task.y, np.ones(len(task.y)), fold, task.k, seed)
        learned = {"_predictor": NeverNovel(models.predictor)}
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned=learned)

    def _learner(self, X: AnyArray) -> NetworkLearner:
        return choose_network(
            self.network,
            X,
            max_steps=self.max_steps,
            device=self.device,
            complaint=f"network must be a neural network, because all heads share it; got {self.network!r}.",
        )


@saveable
@dataclass(frozen=True)
class ChosenHead:
    """Networks with k outputs for the classes, of whose other outputs one decides what is novel."""

    networks: Networks
    k: int
    head: int

    def predict_proba(self, X: AnyArray) -> Floats:
        logits = self.networks.logits(as_tensor(self.networks.encoder(X), self.networks.device))
        return self.proba(logits.mean(axis=0))

    def proba(self, logits: Floats) -> Floats:
        """Return probabilities of all k + 1 classes."""
        logits = logits.astype(np.float64)
        return reject(softmax(logits[:, : self.k], axis=1), 1 - expit(logits[:, self.k + self.head]))
