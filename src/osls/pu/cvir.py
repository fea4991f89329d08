"""Conditional value ignoring risk (Algorithm 3): train on positives and on what is surely not positive.

Two ways to run it. :func:`alternate` is the paper's: one network, warm-started by domain discrimination,
whose own losses on its own training rows decide what is kept, epoch by epoch. :func:`refit` trains afresh
in a few rounds, ranks each row by models that never saw it, and holds the novel share fixed; it works with
any learner and neither memorises the target nor drifts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from osls._typing import Bools, Floats, Ints
from osls.mixture.base import MixtureEstimator
from osls.pu import losses
from osls.pu.keep import keep_as_novel
from osls.training.core import Trainer, seeded
from osls.training.history import History
from osls.training.learners import Learner, NetworkLearner
from osls.training.predictors import Predictor
from osls.training.sampling import EpochSampler, assign_folds

__all__ = ["Discriminator", "PUProblem", "alternate", "keep_as_novel", "refit"]


@dataclass(frozen=True)
class PUProblem:
    """The single PU problem that PULSE makes of an OSLS problem, on pooled rows (source, then target)."""

    y_source: Ints
    source_weight: Floats
    n_target: int

    @property
    def n_source(self) -> int:
        return len(self.y_source)


@dataclass(frozen=True)
class Discriminator:
    """A known-versus-novel classifier: P(known) of the target rows, and a predictor (novel, known)."""

    target_scores: Floats
    predictor: Predictor
    novel_share: float


def refit(
    learner: Learner,
    problem: PUProblem,
    target_scores: Floats,
    novel_share: float,
    *,
    rounds: int,
    n_folds: int,
    rng: np.random.Generator,
    history: History,
) -> Discriminator:
    """CVIR by cross-fitted refits, with the novel share held.

    Each round keeps the rows that the previous out-of-fold scores put last, trains known against kept with
    the target's proportions as class weights, and scores every row by models that did not see it. It stops
    early when less than half a percent of the target changes sides.
    """
    n, m = problem.n_source, problem.n_target
    domain = np.repeat([1, 0], [n, m])
    known_weight = problem.source_weight / problem.source_weight.sum() * (1 - novel_share)
    kept = keep_as_novel(target_scores, novel_share)
    for round_ in range(1, rounds + 1):
        weight = np.concatenate([known_weight, kept / kept.sum() * novel_share]) * (n + m)
        strata = np.concatenate([problem.y_source, problem.y_source.max() + 1 + kept])
        fold = assign_folds(strata, n_folds, rng)
        models = learner.cross_fit(domain, weight, fold, 2, seed=int(rng.integers(2**31)))
        scores = models.scores[n:, 1]
        previous, kept = kept, keep_as_novel(scores, novel_share)
        changed = float(np.mean(previous != kept))
        history.append({"step": "cvir", "round": round_, "kept": int(kept.sum()), "changed": changed})
        if changed < 0.005:
            break
    return Discriminator(scores, models.predictor, novel_share)


def alternate(
    learner: NetworkLearner,
    problem: PUProblem,
    held_out: Bools,
    mixture: MixtureEstimator,
    *,
    rng: np.random.Generator,
    history: History,
    on_epoch: Callable[[Floats, float], None] = lambda known, novel_share: None,
    tolerance: float = 1e-3,
    patience: int = 5,
) -> Discriminator:
    """Algorithm 3 to the letter: warm start, then alternate BBE on held-out rows and CVIR epochs.

    ``on_epoch`` is called after each epoch with P(known) of the target rows and the novel share.
    """
    n = problem.n_source
    source, target = np.arange(n), np.arange(n, n + problem.n_target)
    train, validate = ~held_out, held_out
    weight = np.concatenate([problem.source_weight, np.ones(problem.n_target)])
    # The held-out source is re-sampled too (step 4): as weights, which is the same without the noise.
    validation_weight = problem.source_weight[validate[:n]]
    target_train = target[train[n:]]

    with seeded(int(rng.integers(2**31))) as generator:
        network = learner.new_networks(1, 1)
        predictor = learner.predictor(network, 1)
        schedule = learner.schedule.longer(2)
        trainer = Trainer(network, schedule)
        source_sampler = EpochSampler(np.where(train & (np.arange(len(weight)) < n), weight, 0), generator)
        epoch = max(1, max(len(source_sampler), len(target_train)) // schedule.batch_size)

        def logits(rows: Tensor) -> Tensor:
            out: Tensor = network(learner.rows[rows.to(learner.device)].unsqueeze(0))
            return out[0, :, 0]

        def train_epoch(negatives: Ints) -> float:
            sampler = EpochSampler(np.isin(np.arange(len(weight)), negatives).astype(float), generator)
            size = schedule.batch_size
            learner.advance(epoch / schedule.steps)

            def loss_of_next_batch() -> Tensor:
                # One pass for both sides: batch normalisation by side would hide what sets them apart.
                out = logits(torch.cat([source_sampler.next(size), sampler.next(size)]))
                return losses.pvu(out[:size], out[size:])

            return trainer.run(loss_of_next_batch, epoch)

        def validated() -> tuple[Floats, float]:
            scores = predictor.logits(learner.rows)[0, :, 0]
            mixture.fit(scores[source[validate[:n]]], scores[target[validate[n:]]], validation_weight)
            on_epoch(expit(scores[n:]), 1 - mixture.alpha_)
            return scores, mixture.alpha_

        # Lines 3-8. Train longer than needed, then go back to the epoch of least unbiased validation risk.
        warm_epochs = max(1, schedule.steps // (2 * epoch))
        snapshots = []
        for _ in range(warm_epochs):
            train_epoch(target_train)
            scores, alpha = validated()
            snapshots.append((_copy_state(network), scores, alpha))
        alpha = float(np.median([a for *_, a in snapshots]))
        risks = [
            _unbiased_risk(s[source[validate[:n]]], validation_weight, s[target[validate[n:]]], alpha)
            for _, s, _ in snapshots
        ]
        best = int(np.argmin(risks))
        network.load_state_dict(snapshots[best][0])
        history.append({"step": "warm start", "epochs": warm_epochs, "chosen": best + 1, "risk": risks[best]})

        # Lines 9-16. Keep the lowest-loss 1 - alpha of the training target, train an epoch, estimate again.
        scores, alpha = validated()
        previous, calm = np.inf, 0
        while trainer.steps_done + epoch <= schedule.steps and calm < patience:
            least = max(1, len(target_train) // 100)
            kept = target_train[keep_as_novel(scores[target_train], 1 - alpha, least=least)]
            loss = train_epoch(kept)
            scores, alpha = validated()
            error = float(np.mean(scores[source[validate[:n]]] < 0) + np.mean(scores[kept] >= 0))
            history.append({"step": "cvir", "alpha": alpha, "kept": len(kept), "loss": loss, "error": error})
            calm = calm + 1 if abs(previous - error) < tolerance else 0
            previous = error

    return Discriminator(expit(scores[n:]), predictor, 1 - alpha)


def _copy_state(network: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def _unbiased_risk(positive: Floats, weight: Floats, unlabeled: Floats, alpha: float) -> float:
    """UPU risk of logits; with the logistic loss, l(z, +1) - l(z, -1) = -z on the positives."""
    negative = np.logaddexp(0, unlabeled).mean()
    return float(negative - alpha * np.average(positive, weights=weight))
