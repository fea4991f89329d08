"""Conditional value ignoring risk (Algorithm 3): train on positives and on rows that look least positive.

There are two versions. :func:`alternate` is the paper's: one network, warm-started by domain discrimination,
whose losses on its own training rows decide which rows are kept, epoch by epoch. It can also start from the
source classifier's network, which then learns one more class. :func:`refit` trains new models for a few
rounds, ranks the rows by out-of-fold scores, and keeps the novel share fixed; it works with any learner, and
neither memorises the target nor drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import expit, logsumexp, softmax
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.arrays import Bools, Floats, Ints, keep_as_novel
from osls._core.progress import History
from osls.mixture.base import MixtureEstimator
from osls.pu import losses
from osls.pu.selection import unbiased_risk
from osls.training.learners import Learner, NetworkLearner, continue_from
from osls.training.predictors import Predictor
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Trainer, seeded


@dataclass(frozen=True)
class PUProblem:
    """The single PU problem that PULSE makes of an OSLS problem, on pooled rows (source, then target)."""

    y_source: Ints
    source_weight: Floats
    n_target: int
    copy_of: Ints | None = None

    @property
    def n_source(self) -> int:
        return len(self.y_source)

    @property
    def n_classes(self) -> int:
        return int(self.y_source.max()) + 1


@dataclass(frozen=True)
class Discriminator:
    """A known-versus-novel classifier: P(known) of the target rows, and a predictor (novel, known).

    One that started from the source classifier predicts the known classes and then the novel one:
    ``by_class`` holds these probabilities of the target rows. ``held_out_scores`` and ``held_out_by_class``
    are the same for held-out source rows (all of them, if every row was held out once).
    """

    target_scores: Floats
    predictor: Predictor
    novel_share: float
    held_out_scores: Floats = field(default_factory=lambda: np.empty(0))
    by_class: Floats | None = None
    held_out_by_class: Floats | None = None

    @property
    def target_proba(self) -> Floats:
        """Probabilities of the target rows, in the predictor's format."""
        return _in_columns(self.target_scores) if self.by_class is None else self.by_class

    @property
    def held_out_proba(self) -> Floats:
        """Probabilities of the held-out source rows, in the predictor's format."""
        return _in_columns(self.held_out_scores) if self.held_out_by_class is None else self.held_out_by_class


def _in_columns(known: Floats) -> Floats:
    """Probabilities of (novel, known) from those of "known"."""
    return np.column_stack([1 - known, known])


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
    """CVIR by cross-fitted refits, with the novel share fixed.

    Each round keeps the rows with the lowest out-of-fold scores, trains known against kept with the target's
    proportions as class weights, and computes out-of-fold scores again. It stops early when less than half a
    percent of the target rows enter or leave the kept set.
    """
    n, m = problem.n_source, problem.n_target
    domain = np.repeat([1, 0], [n, m])
    known_weight = problem.source_weight / problem.source_weight.sum() * (1 - novel_share)
    kept = keep_as_novel(target_scores, novel_share)
    for round_ in range(1, rounds + 1):
        weight = np.concatenate([known_weight, kept / kept.sum() * novel_share]) * (n + m)
        strata = np.concatenate([problem.y_source, problem.y_source.max() + 1 + kept])
        fold = assign_folds(strata, n_folds, rng, problem.copy_of)
        models = learner.cross_fit(domain, weight, fold, 2, seed=int(rng.integers(2**31)))
        scores = models.scores[n:, 1]
        previous, kept = kept, keep_as_novel(scores, novel_share)
        changed = float(np.mean(previous != kept))
        history.append({"step": "cvir", "round": round_, "kept": int(kept.sum()), "changed": changed})
        if changed < 0.005:
            break
    return Discriminator(scores, models.predictor, novel_share, models.scores[:n, 1])


def alternate(
    learner: NetworkLearner,
    problem: PUProblem,
    held_out: Bools,
    mixture: MixtureEstimator,
    *,
    rng: np.random.Generator,
    history: History,
    on_epoch: Callable[[Floats, float], None] = lambda known, novel_share: None,
    source_network: nn.Module | None = None,
    tolerance: float = 1e-3,
    patience: int = 5,
) -> Discriminator:
    """Algorithm 3 as printed: warm start, then alternate BBE on held-out rows and CVIR epochs.

    ``on_epoch`` is called after each epoch with P(known) of the target rows and the novel share. With a
    ``source_network`` the discriminator starts from its weights and keeps its classes: it separates each of
    them, not only their union, from the rows kept as novel. This saves training, and learning the classes as
    well keeps the network from memorising the source rows.
    """
    with seeded(int(rng.integers(2**31))) as generator:
        training = _Alternation(learner, problem, held_out, mixture, generator, on_epoch, source_network)
        warm = _warm_start(training, history)
        return _alternate_from(training, warm, history, tolerance, patience)


def _warm_start(training: _Alternation, history: History) -> _Validated:
    """Lines 3-8. Train longer than needed, then go back to the epoch of least unbiased validation risk."""
    # A network that already separates the known classes needs less training to rank the target.
    warm_share = 1 / 4 if training.keeps_classes else 1 / 2
    warm_epochs = max(1, int(warm_share * training.schedule.steps / training.epoch_steps))
    risks, alphas, snapshots = [], [], {}
    for i in range(warm_epochs):
        training.train_epoch(training.target_train)
        now = training.validate()
        risks.append((training.risk_of(now, 0.0), training.risk_of(now, 1.0)))
        alphas.append(now.alpha)
        snapshots[i] = (_copy_state(training.network), now)
        snapshots = {j: snapshots[j] for j in _possible_best(risks)}
    best = _least_risk(risks, float(np.median(alphas)), snapshots)
    state, now = snapshots[best]
    training.network.load_state_dict(state)
    history.append({"step": "warm start", "epochs": warm_epochs, "chosen": best + 1})
    return now


def _alternate_from(
    training: _Alternation, now: _Validated, history: History, tolerance: float, patience: int
) -> Discriminator:
    """Lines 9-16. Keep the lowest-loss 1 - alpha of the training target, train an epoch, estimate again."""
    n, target_train = training.n, training.target_train
    least, last_start = max(1, len(target_train) // 100), training.schedule.steps - training.epoch_steps
    previous, calm = np.inf, 0
    while training.trainer.steps_done <= last_start and calm < patience:
        kept = target_train[keep_as_novel(now.target[target_train - n], 1 - now.alpha, least=least)]
        loss = training.train_epoch(kept)
        now = training.validate()
        error = float(np.mean(now.source < 0) + np.mean(now.target[kept - n] >= 0))
        history.append({"step": "cvir", "alpha": now.alpha, "kept": len(kept), "loss": loss, "error": error})
        calm = calm + 1 if abs(previous - error) < tolerance else 0
        previous = error
    by_class = tuple(np.asarray(softmax(outputs, axis=1)) for outputs in (now.outputs, now.source_outputs))
    return Discriminator(
        expit(now.target),
        training.predictor,
        1 - now.alpha,
        expit(now.source),
        *(by_class if training.keeps_classes else ()),
    )


class _Alternation:
    """The network of Algorithm 3 and its rows: trains for one epoch, then validates on held-out rows."""

    def __init__(
        self,
        learner: NetworkLearner,
        problem: PUProblem,
        held_out: Bools,
        mixture: MixtureEstimator,
        generator: torch.Generator,
        on_epoch: Callable[[Floats, float], None],
        source_network: nn.Module | None,
    ):
        n, m, k = problem.n_source, problem.n_target, problem.n_classes
        self.n, self.learner, self.mixture, self.on_epoch = n, learner, mixture, on_epoch
        self._generator = generator
        self.keeps_classes = source_network is not None
        if source_network is None:
            self.network, self.schedule = learner.new_networks(1, 1), learner.schedule.longer(2)
        else:
            self.network, self.schedule = learner.new_networks(1, k + 1), learner.schedule
            continue_from(source_network, self.network)
        self.predictor = learner.predictor(self.network, 1)
        self.trainer = Trainer(self.network, self.schedule)
        # The held-out source is resampled too (step 4): by importance weights, which add no sampling noise.
        source_out = np.flatnonzero(held_out[:n])
        self._validation_weight = problem.source_weight[source_out]
        self._source_out = learner.rows[torch.from_numpy(source_out).to(learner.device)]
        self._target_out = held_out[n:]
        self.target_train = n + np.flatnonzero(~held_out[n:])
        self._labels = torch.from_numpy(np.append(problem.y_source, np.full(m, k))).to(learner.device)
        weight = np.append(np.where(held_out[:n], 0.0, problem.source_weight), np.zeros(m))
        self._source_sampler = EpochSampler(weight, generator)
        steps = max(1, max(len(self._source_sampler), len(self.target_train)) // self.schedule.batch_size)
        # At most half of all steps, so that one epoch of warm start and one of CVIR always fit.
        self.epoch_steps = min(steps, max(1, self.schedule.steps // 2))

    def train_epoch(self, negatives: Ints) -> float:
        """Train the source rows against these rows of the pool; return the mean loss."""
        all_rows = np.arange(len(self.learner.rows))
        sampler = EpochSampler(np.isin(all_rows, negatives).astype(float), self._generator)
        size = self.schedule.batch_size
        self.learner.advance(self.epoch_steps / self.schedule.steps)

        def loss_of_next_batch() -> Tensor:
            # One forward pass for both sides: separate batch statistics would hide their difference.
            rows = torch.cat([self._source_sampler.next(size), sampler.next(size)]).to(self.learner.device)
            out: Tensor = self.network(self.learner.rows[rows].unsqueeze(0))[0]
            if self.keeps_classes:
                return cross_entropy(out, self._labels[rows])
            return losses.pvu(out[:size, 0], out[size:, 0])

        return self.trainer.run(loss_of_next_batch, self.epoch_steps)

    def validate(self) -> _Validated:
        """Score the held-out source and the target, and estimate the share of known rows."""
        out = self.predictor.logits(self.learner.rows[self.n :])[0]
        out_s = self.predictor.logits(self._source_out)[0]
        scores_s, scores_t = _known_logit(out_s), _known_logit(out)
        self.mixture.fit(scores_s, scores_t[self._target_out], self._validation_weight)
        self.on_epoch(expit(scores_t), 1 - self.mixture.alpha_)
        return _Validated(scores_s, scores_t, out_s, out, self.mixture.alpha_)

    def risk_of(self, scored: _Validated, alpha: float) -> float:
        """Unbiased logistic risk on the held-out rows."""
        return unbiased_risk(
            scored.source,
            scored.target[self._target_out],
            alpha,
            loss="logistic",
            positive_weight=self._validation_weight,
        )


class _Validated(NamedTuple):
    """After an epoch: logits of "known" for held-out source rows and target rows, the outputs behind them,
    and alpha.
    """

    source: Floats
    target: Floats
    source_outputs: Floats
    outputs: Floats
    alpha: float


def _known_logit(logits: Floats) -> Floats:
    """Logit of "known" from a single output, or from those of the known classes and the novel one."""
    logits = logits.astype(np.float64)
    if logits.shape[1] == 1:
        return logits[:, 0]
    return np.asarray(logsumexp(logits[:, :-1], axis=1) - logits[:, -1])


def _copy_state(network: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


# Unbiased risks of an epoch's logits for alpha = 0 and alpha = 1; the risk is linear in alpha.
_Risks = tuple[float, float]


def _least_risk(risks: Sequence[_Risks], alpha: float, among: Iterable[int]) -> int:
    return min(among, key=lambda i: (1 - alpha) * risks[i][0] + alpha * risks[i][1])


def _possible_best(risks: Sequence[_Risks]) -> set[int]:
    """Return the epochs of least risk for some alpha; only their weights need to be kept."""
    epochs = range(len(risks))
    return {_least_risk(risks, alpha, epochs) for alpha in np.linspace(0, 1, 101)}
