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
from osls._core.parameters import AtLeast, Between, Constraint
from osls._core.progress import History
from osls._core.saving import saveable
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.baselines.deep import Callback
from osls.baselines.open_set_losses import k_positive_unlabeled
from osls.baselines.rejection import reject
from osls.mixture import BestBins, bbe_by_class
from osls.training.choose import LearnerSpec, choose_network
from osls.training.learners import NetworkLearner
from osls.training.predictors import Networks
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Trainer, as_tensor, seeded


@saveable
class KPU(OpenSetAdapter):
    r"""One network with k heads; head j separates class j from the rest of the target.

    Each head alternates BBE for its class's share and CVIR for its classifier, after a warm start by domain
    discrimination. A row goes to the head with the highest score, or is novel if none reaches 1/2; the novel
    share is one minus the sum of the classes' shares. BBE tends to overestimate, and k overestimates add up:
    with many classes the novel share comes out near zero.

    As everywhere in the package, the networks are cross-fitted (unless ``n_folds=1``): shares, kept rows and
    the target's probabilities are out-of-fold.

    Parameters
    ----------
    network : "auto", "mlp", "convnet" or factory
        The network, as the discriminator of :class:`osls.PULSE`; it has k outputs.
    warm_start : float, default=0.5
        Share of the steps in which all target rows count as negatives of every head.
    delta, gamma : float
        Of :class:`osls.mixture.BBE`.
    callback : callable, optional
        Called after each epoch with its number and the target's current probabilities.
    n_folds, max_steps, novel_label, device, random_state
        As in :class:`osls.baselines.SourceOnly`. With one fold the kept rows come from the network that was
        trained on them, as in the paper.

    Attributes
    ----------
    class_shares_ : array of shape (k,)
        BBE's share of each class in the target; their sum can exceed one.

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
        "n_folds": AtLeast(1),
        "max_steps": AtLeast(1, optional=True),
    }

    def __init__(
        self,
        *,
        network: LearnerSpec = "auto",
        warm_start: float = 0.5,
        delta: float = 0.1,
        gamma: float = 0.01,
        callback: Callback | None = None,
        n_folds: int = 5,
        max_steps: int | None = None,
        novel_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
    ):
        self.network = network
        self.warm_start = warm_start
        self.delta = delta
        self.gamma = gamma
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
        heads, scores, bins = self._alternate(learner, task, fold)
        learned = {"class_shares_": bins.alpha, "_predictor": heads}
        return Adaptation(bins.marginal, _rest(bins.alpha), best_head(expit(scores)), learned=learned)

    def _alternate(self, learner: NetworkLearner, task: Task, fold: Ints) -> tuple[Heads, Floats, BestBins]:
        """Train the heads; return them, the target's logits and the classes' best bins."""
        n, all_rows, n_folds = len(task.y), np.arange(len(fold)), int(fold.max()) + 1
        y = torch.from_numpy(task.y).to(learner.device)
        balanced = 1 / np.bincount(task.y)[task.y]
        source_weight = np.concatenate([balanced, np.zeros(len(fold) - n)])
        target_weight = (all_rows >= n).astype(float)
        schedule = learner.schedule
        epoch = max(1, max(n, len(fold) - n) // schedule.batch_size)
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
            kept = torch.ones(len(fold) - n, task.k, dtype=torch.bool, device=learner.device)

            def loss_of_next_batch() -> Tensor:
                size = schedule.batch_size
                rows = torch.stack(
                    [torch.cat([s.next(size), t.next(size)]) for s, t in zip(source, target, strict=True)]
                )
                rows = rows.to(learner.device)
                # One forward pass for both sides: separate batch statistics would hide their difference.
                logits = networks(learner.rows[rows])
                return k_positive_unlabeled(
                    logits[:, :size], y[rows[:, :size]], logits[:, size:], kept[rows[:, size:] - n]
                )

            for loss in trainer.epochs(loss_of_next_batch, schedule.ends(epoch)):
                scores = predictor.held_out_logits(learner.rows, scorer)
                scores_s, scores_t = scores[:n][out[:n]], scores[n:][out[n:]]
                bins = bbe_by_class(scores_s, task.y[out[:n]], scores_t, delta=self.delta, gamma=self.gamma)
                warm = trainer.steps_done < self.warm_start * schedule.steps
                if not warm:
                    kept[torch.from_numpy(ranked)] = torch.from_numpy(
                        _keep(scores[n:][ranked], bins.alpha)
                    ).to(learner.device)
                self._record("warm start" if warm else "cvir", loss, bins, scores[n:], task.history)
        return Heads(predictor), scores[n:], bins

    def _record(self, step: str, loss: float, bins: BestBins, scores: Floats, history: History) -> None:
        epoch, novel = len(history) + 1, _rest(bins.alpha)
        marginal = with_novel(bins.marginal, novel).tolist()
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
            device=self.device,
            complaint=f"network must be a neural network, because k heads share it; got {self.network!r}.",
        )


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
