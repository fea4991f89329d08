"""k-PU: the reduction of open set label shift to one PU problem per class (section 5 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import Tensor

from osls._core.arrays import AnyArray, Bools, Floats, Ints, keep_as_novel, with_novel
from osls._core.parameters import AtLeast, Between, Constraint, OneOf
from osls._core.progress import History
from osls._core.saving import saveable
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.baselines.deep import Callback
from osls.baselines.open_set_losses import k_positive_unlabeled, k_unbiased
from osls.baselines.rejection import reject
from osls.mixture import BBE, ClassShares, MixtureEstimator, shares_by_class
from osls.pu import losses
from osls.training.choose import LearnerSpec, choose_network
from osls.training.learners import NetworkLearner
from osls.training.predictors import Networks
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Device, Plateau, Trainer, as_tensor, seeded

_OBJECTIVES = ("cvir", "pvu", "upu", "nnpu", "upu-sigmoid", "nnpu-sigmoid")


@saveable
class KPU(OpenSetAdapter):
    r"""One network with k heads; head j separates class j from the rest of the target.

    Each head alternates an estimate of its class's share (BBE) and an epoch of its classifier (CVIR), after a
    warm start by domain discrimination. A row goes to the head with the highest score, or is novel if none
    reaches 1/2; the novel share is one minus the sum of the classes' shares. BBE tends to overestimate, and k
    overestimates add up: with many classes the novel share comes out near zero.

    As everywhere in the package, the networks are cross-fitted (unless ``n_folds=1``): shares, kept rows and
    the target's probabilities are out-of-fold.

    Parameters
    ----------
    network : "auto", "mlp", "convnet" or factory
        The network, as the discriminator of :class:`osls.PULSE`; it has k outputs.
    warm_start : float, default=0.5
        Share of the steps in which all target rows count as negatives of every head.
    mixture : mixture estimator, optional
        How each class's share is estimated; default :class:`osls.mixture.BBE`.
    objective : {"cvir", "pvu", "upu", "nnpu", "upu-sigmoid", "nnpu-sigmoid"}, default="cvir"
        How the heads are trained after the warm start.
        ``KPU(mixture=DEDPUL(), objective="nnpu")`` is the paper's "k-PU (alternative)".
    patience : int, optional
        Stop when the accuracy on held-out source rows, by the head of the highest score, has not increased
        for so many epochs after the warm start (the paper's rule); by default all steps are taken.
    callback : callable, optional
        Called after each epoch with its number and the target's current probabilities.
    n_folds, max_steps, novel_label, device, random_state
        As in :class:`osls.baselines.SourceOnly`. With one fold the kept rows come from the network that was
        trained on them, as in the paper.

    Attributes
    ----------
    class_shares_ : array of shape (k,)
        The estimated share of each class in the target, as it is: their sum can exceed one. In
        ``target_marginal_`` it cannot.

    References
    ----------
    .. [1] Garg, Balakrishnan, Lipton. Domain Adaptation under Open Set Label Shift. NeurIPS 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import KPU
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KPU(max_steps=100, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.class_shares_.shape
    (2,)
    """

    short_name: ClassVar[str] = "k-pu"

    class_shares_: Floats

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "warm_start": Between(0, 1),
        "objective": OneOf(_OBJECTIVES),
        "patience": AtLeast(1, optional=True),
        "n_folds": AtLeast(1),
        "max_steps": AtLeast(1, optional=True),
        "device": Device(),
    }

    def __init__(
        self,
        *,
        network: LearnerSpec = "auto",
        warm_start: float = 0.5,
        mixture: MixtureEstimator | None = None,
        objective: str = "cvir",
        patience: int | None = None,
        callback: Callback | None = None,
        n_folds: int = 5,
        max_steps: int | None = None,
        novel_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
    ):
        self.network = network
        self.warm_start = warm_start
        self.mixture = mixture
        self.objective = objective
        self.patience = patience
        self.callback = callback
        self.n_folds = n_folds
        self.max_steps = max_steps
        self.novel_label = novel_label
        self.device = device
        self.random_state = random_state

    def _adapt(self, task: Task) -> Adaptation:
        m = task.X_target.shape[0]
        learner = self._learner(stack_rows(task.X, task.X_target))
        n_folds = check_folds(task.y, task.classes, self.n_folds, m, least=1)
        fold = assign_folds(np.concatenate([task.y, np.full(m, task.k)]), n_folds, task.rng, task.copy_of)
        heads, scores, shares = self._alternate(learner, task, fold)
        learned = {"class_shares_": shares.alpha, "_predictor": heads}
        return Adaptation(shares.marginal, _rest(shares.alpha), best_head(expit(scores)), learned=learned)

    def _alternate(
        self, learner: NetworkLearner, task: Task, fold: Ints
    ) -> tuple[Heads, Floats, ClassShares]:
        """Train the heads; return them, the target's logits and the classes' shares."""
        n, all_rows, n_folds = len(task.y), np.arange(len(fold)), int(fold.max()) + 1
        balanced = 1 / np.bincount(task.y)[task.y]
        source_weight = np.concatenate([balanced, np.zeros(len(fold) - n)])
        target_weight = (all_rows >= n).astype(float)
        trained = max(int(np.sum(side != 0)) for side in (fold[:n], fold[n:]))
        schedule = learner.schedule.over(trained)
        with seeded(int(task.rng.integers(2**31))) as generator:
            networks = learner.new_networks(n_folds, task.k)
            predictor = learner.predictor(networks, n_folds)
            trainer = Trainer(networks, schedule)
            source, target = (
                [EpochSampler(np.where(fold == f, 0, weight), generator) for f in range(n_folds)]
                for weight in (source_weight, target_weight)
            )
            # All target rows are scored; the shares come from held-out rows. With one fold, held-out rows are
            # left out of the ranking: they are never trained on.
            scorer, out = np.where(all_rows >= n, np.maximum(fold, 0), fold), fold >= 0
            ranked = np.ones(len(fold) - n, dtype=bool) if n_folds > 1 else ~out[n:]
            loss = _HeadsLoss(self.objective, task, len(fold) - n, learner.device)

            def loss_of_next_batch() -> Tensor:
                size = schedule.batch_size
                rows = torch.stack(
                    [torch.cat([s.next(size), t.next(size)]) for s, t in zip(source, target, strict=True)]
                )
                rows = rows.to(learner.device)
                # One forward pass for both sides: separate batch statistics would hide their difference.
                logits = networks(learner.rows[rows])
                # The mean over members, times their number, trains each as if it were alone.
                return n_folds * loss(logits, rows, n, size)

            ceased = Plateau(schedule.patience)
            for mean_loss in trainer.epochs(loss_of_next_batch, schedule.ends(schedule.epoch(trained))):
                scores = predictor.held_out_logits(learner.rows, scorer)
                scores_s, y_s = scores[:n][out[:n]], task.y[out[:n]]
                shares = shares_by_class(expit(scores_s), y_s, expit(scores[n:][out[n:]]), self._mixture())
                warm = trainer.steps_done < self.warm_start * schedule.steps
                if not warm:
                    loss.learn(scores[n:], ranked, shares.alpha)
                self._record("warm start" if warm else "cvir", mean_loss, shares, scores[n:], task.history)
                if not warm and ceased(float(np.mean(scores_s.argmax(axis=1) == y_s))):
                    break
        return Heads(predictor), scores[n:], shares

    def _mixture(self) -> MixtureEstimator:
        return BBE() if self.mixture is None else self.mixture

    def _record(self, step: str, loss: float, shares: ClassShares, scores: Floats, history: History) -> None:
        epoch, novel = len(history) + 1, _rest(shares.alpha)
        marginal = with_novel(shares.marginal, novel).tolist()
        history.append(
            {"step": step, "epoch": epoch, "loss": loss, "novel_share": novel, "target_marginal": marginal}
        )
        if self.callback is not None:
            self.callback(epoch, best_head(expit(scores)))

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        learner = self._learner(task.X)
        n_folds = check_folds(task.y, task.classes, self.n_folds, len(task.y), least=1)
        fold = assign_folds(task.y, n_folds, task.rng, task.copy_of)
        models = learner.cross_fit(task.y, np.ones(len(task.y)), fold, task.k, int(task.rng.integers(2**31)))
        # The predictor of a network learner is always Networks.
        heads = Heads(cast(Networks, models.predictor), closed=True)
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned={"_predictor": heads})

    def _learner(self, X: AnyArray) -> NetworkLearner:
        return choose_network(
            self.network,
            X,
            max_steps=self.max_steps,
            patience=self.patience,
            device=self.device,
            complaint=f"network must be a neural network, because k heads share it; got {self.network!r}.",
        )


class _HeadsLoss:
    """The loss of all heads on a batch: domain discrimination, until it has been told the shares."""

    def __init__(self, objective: str, task: Task, n_target: int, device: torch.device):
        self._objective = objective
        self._y = torch.from_numpy(task.y).to(device)
        self._kept = torch.ones(n_target, task.k, dtype=torch.bool, device=device)
        self._alpha: Tensor | None = None

    def learn(self, scores: Floats, ranked: Bools, shares: Floats) -> None:
        """Rank the target rows anew for each head, given the shares of the classes."""
        device = self._kept.device
        self._alpha = torch.from_numpy(shares).float().to(device)
        if losses.OBJECTIVES[self._objective].keeps:
            self._kept[torch.from_numpy(ranked)] = torch.from_numpy(_keep(scores[ranked], shares)).to(device)

    def __call__(self, logits: Tensor, rows: Tensor, n: int, size: int) -> Tensor:
        """Loss of logits (members, 2 size, heads) of rows: ``size`` source rows, then target rows."""
        source, target, y = logits[:, :size], logits[:, size:], self._y[rows[:, :size]]
        if self._alpha is None or self._objective in ("cvir", "pvu"):
            return k_positive_unlabeled(source, y, target, self._kept[rows[:, size:] - n])
        name, _, sigmoid = self._objective.partition("-")
        surrogate: losses.Surrogate = "sigmoid" if sigmoid else "logistic"
        return k_unbiased(source, y, target, self._alpha, surrogate=surrogate, clipped=name == "nnpu")


@saveable
@dataclass(frozen=True)
class Heads:
    """Networks whose output j is the logit of "class j"; ``closed`` if no row can be novel."""

    networks: Networks
    closed: bool = False

    def predict_proba(self, X: AnyArray) -> Floats:
        logits = self.networks.logits(as_tensor(self.networks.encoder(X), self.networks.device))
        if self.closed:
            proba = softmax(logits, axis=2).mean(axis=0)
            return reject(proba, np.ones(len(proba)))
        return best_head(expit(logits).mean(axis=0))


def best_head(scores: Floats) -> Floats:
    """Give a row to the head with the highest score, or to the novel class if none reaches 1/2."""
    return reject(scores, scores.max(axis=1))


def _rest(shares: Floats) -> float:
    """One minus the sum of the shares, at least 0."""
    return max(0.0, 1 - float(shares.sum()))


def _keep(scores: Floats, shares: Floats) -> Bools:
    """Mark, for each head, the target rows that remain its negatives: all but the share of its class."""
    return np.column_stack([keep_as_novel(s, 1 - a) for s, a in zip(scores.T, shares, strict=True)])
