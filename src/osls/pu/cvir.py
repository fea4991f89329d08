"""Conditional value ignoring risk (Algorithm 3): train on positives and on rows that look least positive.

There are two versions. :func:`alternate` is the paper's: one network, warm-started by domain discrimination,
whose losses on its own training rows decide which rows are kept, epoch by epoch. It can also start from the
source classifier's network, which then learns one more class. :func:`refit` trains new models for a few
rounds, ranks the rows by out-of-fold scores, and keeps the novel share fixed; it works with any learner, and
neither memorises the target nor drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit, logit, logsumexp, softmax
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.arrays import Bools, Floats, Ints, keep_as_novel
from osls._core.progress import History
from osls.mixture.base import MixtureEstimator
from osls.pu import losses
from osls.pu.selection import unbiased_risk
from osls.training.learners import FoldTask, Learner, NetworkLearner, continue_from, cross_fit_all
from osls.training.predictors import Constant, Predictor, Shifted
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Trainer, seeded

# P(novel) that averages to no more above the novel share agrees with it; on ordinary data it is nearer.
_AGREES = 0.05
# Scores of trees can be 0 and 1, which no odds would change.
_LEAST = 1e-3


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

    @classmethod
    def all_known(cls, problem: PUProblem, novel_share: float) -> Self:
        """Call every row known."""
        always = Constant((0.0, 1.0))
        return cls(np.ones(problem.n_target), always, novel_share, np.ones(problem.n_source))

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
    fold: Ints | None = None,
    start: Predictor | None = None,
) -> Discriminator:
    """CVIR by cross-fitted refits, with the novel share fixed.

    Each round keeps the rows with the lowest out-of-fold scores, trains known against kept with the target's
    proportions as class weights, and computes out-of-fold scores again. It stops early when less than half a
    percent of the target rows enter or leave the kept set. If known rows are called novel in the end, the
    odds are shifted (:func:`agreeing`).

    With ``start``, models that were cross-fitted on the folds ``fold``, the networks of each round go on from
    those of the last. The folds stay the same, so no network has seen a row of its fold in any round.
    """
    n, m = problem.n_source, problem.n_target
    domain = np.repeat([1, 0], [n, m])
    known_weight = problem.source_weight / problem.source_weight.sum() * (1 - novel_share)
    kept = keep_as_novel(target_scores, novel_share)
    for round_ in range(1, rounds + 1):
        weight = np.concatenate([known_weight, kept / kept.sum() * novel_share]) * (n + m)
        if start is None or fold is None:
            strata = np.concatenate([problem.y_source, problem.y_source.max() + 1 + kept])
            fold = assign_folds(strata, n_folds, rng, problem.copy_of)
        task = FoldTask(domain, weight, fold, 2, int(rng.integers(2**31)), start, ranked=True)
        (models,) = cross_fit_all([(learner, task)])
        start = None if start is None else models.predictor
        scores = models.scores[n:, 1]
        previous, kept = kept, keep_as_novel(scores, novel_share)
        changed = float(np.mean(previous != kept))
        history.append({"step": "cvir", "round": round_, "kept": int(kept.sum()), "changed": changed})
        if changed < 0.005:
            break
    found = Discriminator(scores, models.predictor, novel_share, models.scores[:n, 1])
    return agreeing(found, problem.source_weight)


def agreeing(found: Discriminator, source_weight: Floats) -> Discriminator:
    """Shift the odds of "known" so that P(novel) averages to the novel share, if known rows are called novel.

    With a dozen source rows a class, rows that no model was trained on look newer than they are, and many
    more would be called novel than the share says. Held-out source rows show it: they are called novel too.
    If these account for half of what P(novel) is too large by, the odds are shifted. If they do not, it may
    be the share that is wrong, and nothing is done. With more rows the two agree by themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.pu.cvir import Discriminator, agreeing
    >>> from osls.training.predictors import Constant
    >>> doubted = Discriminator(np.full(9, 0.5), Constant((0.5, 0.5)), 0.2, np.full(4, 0.6))
    >>> found = agreeing(doubted, np.ones(4))
    >>> [round(float(v), 4) for v in (found.target_scores[0], found.predictor.odds, found.held_out_scores[0])]
    [0.8, 4.0, 0.8571]
    """
    known = 1 - found.novel_share
    excess = known - float(found.target_scores.mean())
    explained = known * float(np.average(1 - found.held_out_scores, weights=source_weight))
    if excess <= _AGREES or explained < excess / 2 or not _LEAST < known < 1 - _LEAST:
        return found

    def shifted(scores: Floats, log_odds: float) -> Floats:
        return np.asarray(expit(logit(np.clip(scores, _LEAST, 1 - _LEAST)) + log_odds))

    log_odds = float(brentq(lambda b: shifted(found.target_scores, b).mean() - known, -20.0, 20.0))
    return replace(
        found,
        target_scores=shifted(found.target_scores, log_odds),
        held_out_scores=shifted(found.held_out_scores, log_odds),
        predictor=Shifted(found.predictor, float(np.exp(log_odds))),
    )


def alternate(
    learner: NetworkLearner,
    problem: PUProblem,
    held_out: Bools,
    mixture: MixtureEstimator,
    *,
    rng: np.random.Generator,
    history: History,
    objective: str = "cvir",
    on_epoch: Callable[[Floats, float], None] = lambda known, novel_share: None,
    source_network: nn.Module | None = None,
    tolerance: float = 1e-3,
    patience: int = 5,
) -> Discriminator:
    """Algorithm 3, line by line: warm start, then alternate the share's estimate and CVIR epochs.

    Parameters
    ----------
    learner, problem : NetworkLearner, PUProblem
        The network bound to the pooled rows, and the rows' sides, classes and weights (the re-sampling).
    held_out : array of bool
        Which rows of the pool are validation data.
    mixture : MixtureEstimator
        In BBE's place, if it is another.
    rng, history
        Source of seeds; where every epoch is recorded.
    objective : str, default="cvir"
        A name in :data:`osls.pu.losses.OBJECTIVES`, minimised in line 13. Those that do not keep rows train
        on all target rows with the current alpha.
    on_epoch : callable, optional
        Called after each epoch with P(known) of the target rows and the novel share.
    source_network : Module, optional
        The discriminator starts from its weights and keeps its classes: it separates each of them, not only
        their union, from the rows kept as novel. This saves training, and learning the classes as well keeps
        the network from memorising the source rows.
    tolerance, patience : float, int
        The error of line 12 has converged when it moved less than ``tolerance`` in ``patience`` epochs in a
        row. Training ends with the schedule's steps in any case.
    """
    with seeded(int(rng.integers(2**31))) as generator:
        # Lines 1 and 2: a network, an optimiser; all target rows are negatives.
        training = _Alternation(
            learner,
            problem,
            held_out,
            mixture,
            losses.OBJECTIVES[objective],
            generator,
            on_epoch,
            source_network,
        )
        # Lines 3-9: domain discrimination, and a first alpha.
        now = _warm_start(training, history)
        # Lines 10 and 11: rank the target, keep its lowest 1 - alpha.
        kept = training.keep(now)
        converged = _Converged(tolerance, patience)
        # Line 12.
        while not converged(error := training.error(now, kept)) and training.has_another_epoch:
            # Lines 13 and 14: an epoch, and a new alpha.
            loss = training.train_epoch(kept, now.alpha)
            now = training.validate()
            history.append(
                {"step": "cvir", "alpha": now.alpha, "kept": len(kept), "loss": loss, "error": error}
            )
            # Lines 15 and 16: rank and keep again.
            kept = training.keep(now)
        return training.discriminator(now)


def _warm_start(training: _Alternation, history: History) -> _Validated:
    """Lines 3-9. Train longer than needed, then go back to the epoch of least unbiased validation risk.

    Only the weights go back, as in the authors' code: the optimiser's state and its rate go on.
    """
    # A network that already separates the known classes needs less training to rank the target.
    warm_share = 1 / 4 if training.keeps_classes else 1 / 2
    warm_epochs = max(1, int(warm_share * training.schedule.steps / training.epoch_steps))
    risks, alphas, snapshots = [], [], {}
    for i in range(warm_epochs):
        training.warm_up_epoch()
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


class _Converged:
    """Whether a number has moved less than ``tolerance`` in ``patience`` calls in a row."""

    def __init__(self, tolerance: float, patience: int):
        self.tolerance, self.patience = tolerance, patience
        self._previous, self._calm = np.inf, 0

    def __call__(self, value: float) -> bool:
        self._calm = self._calm + 1 if abs(self._previous - value) < self.tolerance else 0
        self._previous = value
        return self._calm >= self.patience


class _Alternation:
    """The network of Algorithm 3 and its rows: trains for one epoch, then validates on held-out rows."""

    def __init__(
        self,
        learner: NetworkLearner,
        problem: PUProblem,
        held_out: Bools,
        mixture: MixtureEstimator,
        objective: losses.Objective,
        generator: torch.Generator,
        on_epoch: Callable[[Floats, float], None],
        source_network: nn.Module | None,
    ):
        n, m, k = problem.n_source, problem.n_target, problem.n_classes
        self.n, self.learner, self.mixture, self.on_epoch = n, learner, mixture, on_epoch
        self._objective, self._generator = objective, generator
        self.keeps_classes = source_network is not None
        self.network = learner.new_networks(1, 1 if source_network is None else k + 1)
        if source_network is not None:
            continue_from(source_network, self.network)
        self.predictor = learner.predictor(self.network, 1)
        # The held-out source is resampled too (step 4): by importance weights, which add no sampling noise.
        source_out = np.flatnonzero(held_out[:n])
        self._validation_weight = problem.source_weight[source_out]
        self._source_out = learner.rows[torch.from_numpy(source_out).to(learner.device)]
        self._target_out = held_out[n:]
        self.target_train = n + np.flatnonzero(~held_out[n:])
        self._labels = torch.from_numpy(np.append(problem.y_source, np.full(m, k))).to(learner.device)
        weight = np.append(np.where(held_out[:n], 0.0, problem.source_weight), np.zeros(m))
        self._source_sampler = EpochSampler(weight, generator)
        # An epoch shows every training row of the larger side once.
        trained = max(len(self._source_sampler), len(self.target_train))
        self.schedule = learner.schedule.over(trained)
        self.trainer = Trainer(self.network, self.schedule)
        steps = max(1, trained // self.schedule.batch_size)
        # At most half of all steps, so that one epoch of warm start and one of CVIR always fit.
        self.epoch_steps = min(steps, max(1, self.schedule.steps // 2))

    @property
    def has_another_epoch(self) -> bool:
        """Whether the schedule has enough steps left."""
        return self.trainer.steps_done + self.epoch_steps <= self.schedule.steps

    def warm_up_epoch(self) -> None:
        """Lines 4-7: train the source rows against all training rows of the target."""
        self._train_epoch(self.target_train, lambda known, other: losses.pvu(known, other))

    def train_epoch(self, kept: Ints, alpha: float) -> float:
        """Line 13: train an epoch on the objective, against the kept rows or all; return the mean loss."""
        rows = kept if self._objective.keeps else self.target_train
        return self._train_epoch(rows, lambda known, other: self._objective.loss(known, other, alpha))

    def _train_epoch(self, negatives: Ints, loss_of: Callable[[Tensor, Tensor], Tensor]) -> float:
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
            return loss_of(out[:size, 0], out[size:, 0])

        return self.trainer.run(loss_of_next_batch, self.epoch_steps)

    def validate(self) -> _Validated:
        """Lines 9 and 14: score the held-out source and the target, and estimate the share of known rows."""
        out = self.predictor.logits(self.learner.rows[self.n :])[0]
        out_s = self.predictor.logits(self._source_out)[0]
        scores_s, scores_t = _known_logit(out_s), _known_logit(out)
        known_s, known_t = expit(scores_s), expit(scores_t)
        self.mixture.fit(known_s, known_t[self._target_out], self._validation_weight)
        self.on_epoch(known_t, 1 - self.mixture.alpha_)
        return _Validated(scores_s, scores_t, out_s, out, self.mixture.alpha_)

    def keep(self, now: _Validated) -> Ints:
        """Lines 10-11 and 15-16: the 1 - alpha of the target's training rows with the least loss as novel.

        Never less than a hundredth of them: a network without negatives could not find any again.
        """
        scores, least = now.target[self.target_train - self.n], max(1, len(self.target_train) // 100)
        return self.target_train[keep_as_novel(scores, 1 - now.alpha, least=least)]

    def error(self, now: _Validated, kept: Ints) -> float:
        """Line 12: errors on the re-sampled held-out source, plus errors on the rows kept as novel."""
        on_source = np.average(now.source < 0, weights=self._validation_weight)
        return float(on_source + np.mean(now.target[kept - self.n] >= 0))

    def discriminator(self, now: _Validated) -> Discriminator:
        """Line 17: the network as it is, and the novel share."""
        known = expit(now.target), self.predictor, 1 - now.alpha, expit(now.source)
        if not self.keeps_classes:
            return Discriminator(*known)
        by_class = (np.asarray(softmax(outputs, axis=1)) for outputs in (now.outputs, now.source_outputs))
        return Discriminator(*known, *by_class)

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
