"""Learners with one method: train one model per fold on the pooled rows, and return out-of-fold scores.

A *pool* is the source rows followed by the target rows. A learner is built on the pool and then
cross-fitted for each classification task of PULSE (classes, domains, known against novel). The tasks
differ only in labels, weights and folds:

- ``fold[i] = f``: model f is not trained on row i, and is the one that scores it;
- ``fold[i] = -1``: no restriction; the score of the row is the mean over all models;
- ``weight[i] = 0``: the row is scored but never trained on.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.special import softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import resample
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.arrays import AnyArray, Bools, Floats, Ints
from osls._core.parts import Part, run_parts, worker_count
from osls._core.progress import Advance, no_progress
from osls._core.saving import kept_as, saveable
from osls.shift.calibration import fit_pool, pool
from osls.training.nets import SmallResNet, StackedMLP
from osls.training.predictors import (
    Blended,
    Encoder,
    Networks,
    Offsets,
    Pooled,
    Predictor,
    SklearnModels,
    encoder_for,
)
from osls.training.sampling import EpochSampler
from osls.training.trainer import Plateau, Schedule, Trainer, as_tensor, scoring_chunk, seeded

NetworkFactory = Callable[[tuple[int, ...], int], nn.Module]


@saveable
@dataclass(frozen=True)
class FoldModels:
    """The outcome of one cross-fitting: out-of-fold scores of the pool, and a predictor for new rows."""

    scores: Floats
    predictor: Predictor


@dataclass(frozen=True)
class FoldTask:
    """What to cross-fit: the labels, weights and folds of the pooled rows.

    ``again`` are other divisions of the rows into folds. What a network says of a row depends on its seed
    and on the rows that it was trained on; the mean over several divisions depends less on both, also if
    those after the first take half of the steps. Forests, which are means already, gain nothing by it.
    ``start`` are models of the same learner and the same folds, which saw no row of their fold either: a
    network goes on from their weights and needs fewer steps. ``ranked`` says that the scores are only
    ranked, or averaged over many rows, so that a smaller forest will do. With ``keep=False`` only the
    scores are wanted, and a model is forgotten when it has scored its fold.
    """

    y: Ints
    weight: Floats
    fold: Ints
    n_classes: int
    seed: int
    start: Predictor | None = None
    ranked: bool = False
    keep: bool = True
    again: tuple[Ints, ...] = ()

    @property
    def n_folds(self) -> int:
        return int(self.fold.max()) + 1

    def divisions(self) -> list[FoldTask]:
        """Return a task for each division into folds."""
        tasks = [
            replace(self, fold=fold, seed=self.seed + i) for i, fold in enumerate((self.fold, *self.again))
        ]
        return [replace(task, again=()) for task in tasks]


class Learner(ABC):
    """A model family bound to the pooled rows. One cross-fitting is one unit of progress.

    A learner says which parts its work has, each independent of the others, and puts their results together.
    So the parts of several learners can be carried out at once (:func:`cross_fit_all`).
    """

    advance: Advance = staticmethod(no_progress)

    @abstractmethod
    def parts(self, task: FoldTask) -> list[Part]:
        """Return the parts of a cross-fitting."""

    def n_parts(self, task: FoldTask) -> int:
        """Number of the parts."""
        return task.n_folds

    def more_parts(self, task: FoldTask, results: Sequence[Any]) -> list[Part]:
        """Return the parts that turn out to be needed when the results of the others are known."""
        return []

    @abstractmethod
    def assemble(self, task: FoldTask, results: Sequence[Any]) -> FoldModels:
        """Put the results of the parts together."""

    def cross_fit(self, y: Ints, weight: Floats, fold: Ints, n_classes: int, seed: int) -> FoldModels:
        """Train one model per fold and score the pool."""
        return cross_fit_all([(self, FoldTask(y, weight, fold, n_classes, seed))])[0]


def cross_fit_all(work: Sequence[tuple[Learner, FoldTask]]) -> list[FoldModels]:
    """Carry out several cross-fittings whose results do not depend on each other.

    Their parts are tasks of joblib: one after the other in this process, or, inside
    ``joblib.parallel_config``, wherever its backend sends them (processes, a Dask or Ray cluster).
    """
    results = _run_by_task([learner.parts(task) for learner, task in work])
    each = list(zip(work, results, strict=True))
    more = _run_by_task([learner.more_parts(task, own) for (learner, task), own in each])
    return [
        learner.assemble(task, own + late) for ((learner, task), own), late in zip(each, more, strict=True)
    ]


def _run_by_task(parts: Sequence[list[Part]]) -> list[list[Any]]:
    """Carry out the parts of several tasks, all at once; return the results of each task."""
    results = iter(run_parts([part for own in parts for part in own]))
    return [[next(results) for _ in own] for own in parts]


class NetworkLearner(Learner):
    """Torch networks, one per fold, trained together; MLPs as a single stack."""

    def __init__(
        self,
        X: AnyArray,
        *,
        factory: NetworkFactory | None,
        schedule: Schedule,
        device: torch.device,
        dropout: float = 0.25,
        width: int = 192,
        advance: Advance = no_progress,
    ):
        self.encoder = encoder_for(factory, X)
        self.rows = as_tensor(self.encoder(X), device)
        self.schedule = schedule
        self.device = device
        self._factory = factory
        self._sparse = sparse.issparse(X)
        self._dropout = dropout
        self._width = width
        self.advance = advance
        # Called after every epoch of a cross-fitting with the networks and the folds, for those who watch it.
        self.on_epoch: Callable[[Networks, Ints], None] | None = None

    def new_networks(self, members: int, n_outputs: int, n_rows: int | None = None) -> nn.Module:
        """Return new networks as one module, (members, batch, ...) -> (members, batch, outputs).

        They are as wide as ``n_rows`` rows need, by default those of the pool.
        """
        shape = tuple(self.rows.shape[1:])
        networks: nn.Module
        if self._factory is None:
            width = 128 if (n_rows or len(self.rows)) < 4000 else self._width
            networks = StackedMLP(members, shape[0], n_outputs, (width, width), self._dropout)
        else:
            networks = Members([self._factory(shape, n_outputs) for _ in range(members)])
        return networks.to(self.device)

    def predictor(self, networks: nn.Module, members: int) -> Networks:
        """Bind trained networks to the encoding of their rows."""
        return Networks(self.encoder, networks, members, self.device)

    def n_parts(self, task: FoldTask) -> int:
        return len(self._stacks(task)) * len(self._divisions(task))

    @property
    def divides(self) -> bool:
        """Whether ``again`` is heeded: not where networks are expensive, or watched."""
        return self._factory is None and self.on_epoch is None and not self._sparse

    def _divisions(self, task: FoldTask) -> list[FoldTask]:
        return task.divisions()[: None if self.divides else 1]

    def _stacks(self, task: FoldTask) -> list[list[int]]:
        """Which folds are trained as one stack: all of them here, some by each worker of a cluster.

        One stack is cheaper than several. Their results are the same. Who watches sees all folds at once.
        """
        watched = self._factory is not None or self.on_epoch is not None or self.schedule.patience is not None
        workers = 1 if watched else min(worker_count(), task.n_folds)
        return [part.tolist() for part in np.array_split(np.arange(task.n_folds), workers)]

    def parts(self, task: FoldTask) -> list[Part]:
        """Train the folds as one stack, or as one stack for each worker; those of other divisions as well."""
        divisions = self._divisions(task)
        parts = [part for i, each in enumerate(divisions) for part in self._parts_of(each, brief=i > 0)]
        return [part._replace(share=part.share / len(divisions)) for part in parts]

    def _parts_of(self, task: FoldTask, *, brief: bool = False) -> list[Part]:
        # A network of the user's may have more than one layer that depends on the outputs.
        start = task.start if isinstance(task.start, Networks) and self._factory is None else None
        trained = int(np.sum((task.weight > 0) & (task.fold != 0)))
        schedule = self.schedule.over(trained)
        if start is not None:
            schedule = schedule.continued()
        if brief:
            schedule = schedule.brief()
        with seeded(task.seed):
            networks = self.new_networks(task.n_folds, task.n_classes)
        if start is not None:
            continue_body(start.networks, networks)
        ceased = Plateau(schedule.patience)
        watch = partial(self._after_epoch, task, ceased) if ceased or self.on_epoch else None
        ends = schedule.ends(100 if watch is None else schedule.epoch(trained))
        arrays, stacks = (self.rows, task.y, task.weight, task.fold), self._stacks(task)

        def part(folds: list[int]) -> Part:
            own = networks.some(folds) if isinstance(networks, StackedMLP) and len(stacks) > 1 else networks
            options = (folds, own, schedule, ends, watch, task.seed)
            return Part(train_stack, (*arrays, *options), self.advance, len(folds) / task.n_folds)

        return [part(folds) for folds in stacks]

    def assemble(self, task: FoldTask, results: Sequence[Any]) -> FoldModels:
        """Return the networks of the first division, and the mean scores over all."""
        divisions, size = self._divisions(task), len(self._stacks(task))
        found = [self._assemble(each, results[i * size :][:size]) for i, each in enumerate(divisions)]
        return FoldModels(np.asarray(sum(each.scores for each in found) / len(found)), found[0].predictor)

    def _assemble(self, task: FoldTask, results: Sequence[Any]) -> FoldModels:
        networks = (results[0] if len(results) == 1 else StackedMLP.joined(results)).to(self.device)
        predictor = self.predictor(networks, task.n_folds)
        scores = np.asarray(softmax(predictor.held_out_logits(self.rows, task.fold), axis=1))
        # Rows that belong to no fold get the mean prediction of all members.
        outside = np.flatnonzero(task.fold < 0)
        for free in np.array_split(outside, 1 + len(task.fold) // scoring_chunk(self.device)):
            scores[free] = predictor.mean_proba(self.rows[free])
        return FoldModels(scores, predictor)

    def _after_epoch(self, task: FoldTask, ceased: Plateau, networks: nn.Module) -> bool:
        """Show the networks to whoever watches; return whether their accuracy has ceased to increase."""
        predictor = self.predictor(networks, task.n_folds)
        if self.on_epoch is not None:
            self.on_epoch(predictor, task.fold)
        return bool(ceased) and ceased(self._held_out_accuracy(predictor, task))

    def _held_out_accuracy(self, predictor: Networks, task: FoldTask) -> float:
        """Accuracy on the labelled rows that a network was not trained on, by weight."""
        out = np.flatnonzero((task.fold >= 0) & (task.weight > 0))
        rows = self.rows[torch.from_numpy(out).to(self.device)]
        hit = predictor.held_out_logits(rows, task.fold[out]).argmax(axis=1) == task.y[out]
        return float(np.average(hit, weights=task.weight[out]))


def train_stack(
    rows: Tensor,
    y: Ints,
    weight: Floats,
    fold: Ints,
    trained: Sequence[int],
    networks: nn.Module,
    schedule: Schedule,
    ends: Sequence[int],
    watch: Callable[[nn.Module], bool] | None,
    seed: int,
    advance: Advance,
) -> nn.Module:
    """Train a network for each fold of ``trained`` on the rows outside it, until ``watch`` says it is enough.

    Batches of all folds are drawn, also of those that another stack trains: so every network sees the same
    rows, and the same dropout, however the folds are divided among stacks.
    """
    folds, labels = int(fold.max()) + 1, torch.from_numpy(y).to(rows.device)
    with seeded(seed) as generator:
        trainer = Trainer(networks, schedule)
        samplers = [EpochSampler(np.where(fold == f, 0.0, weight), generator) for f in range(folds)]

        def loss_of_next_batch() -> Tensor:
            drawn = [sampler.next(schedule.batch_size) for sampler in samplers]
            batch = torch.stack([drawn[f] for f in trained]).to(rows.device)
            logits = networks(rows[batch])
            # The members share no parameters, so the sum of their mean losses trains each independently.
            return len(trained) * cross_entropy(logits.flatten(0, 1), labels[batch].flatten())

        for _ in trainer.epochs(loss_of_next_batch, ends):
            advance(1 / len(ends))
            if watch is not None and watch(networks):
                break
    return networks


class Members(nn.Module):
    """Networks from the user's factory, with the interface of a stack."""

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(part) for network, part in zip(self.networks, x, strict=True)])


def continue_from(network: nn.Module, other: nn.Module) -> None:
    """Copy the weights of ``network`` to ``other``, which has more outputs; the new ones stay as they are."""
    new = other.state_dict()
    with torch.no_grad():
        for name, old in network.state_dict().items():
            if name not in new or not _fits(old.shape, new[name].shape):
                raise ValueError(
                    "the source classifier and the discriminator must be networks of the same kind, so that "
                    f"one can start from the weights of the other; they differ in {name!r}."
                )
            new[name][tuple(slice(length) for length in old.shape)] = old


def continue_body(network: nn.Module, other: nn.Module) -> None:
    """Copy the weights of ``network`` to ``other``, which has other outputs: all but the last layer."""
    new = other.state_dict()
    with torch.no_grad():
        for name, old in network.state_dict().items():
            if new[name].shape == old.shape:
                new[name].copy_(old)


def _fits(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether the shapes are equal, except that one axis may be longer."""
    grown = [b - a for a, b in zip(old, new, strict=False)]
    return len(old) == len(new) and min(grown, default=0) >= 0 and sum(map(bool, grown)) <= 1


@kept_as("function")
def convnet(input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
    """Build the default network for images."""
    return SmallResNet(input_shape[0], n_outputs)


class SklearnLearner(Learner):
    """Any scikit-learn classifier, cloned for each fold.

    ``light`` is a smaller one for tasks whose scores are only ranked.
    """

    def __init__(
        self,
        X: AnyArray,
        estimator: ClassifierMixin,
        *,
        light: ClassifierMixin | None = None,
        standardise: bool = False,
        early_stop: bool = False,
        advance: Advance = no_progress,
    ):
        # A pipeline gets the rows unchanged, because its own steps may need them.
        as_given = X.ndim != 2 or isinstance(estimator, Pipeline)
        self.encoder = None if as_given else Encoder(X, common=True) if standardise else Offsets(X)
        self.X = X if self.encoder is None else self.encoder(X)
        self.estimator = estimator
        self.light = estimator if light is None else light
        # Whether max_iter is meant to stop the estimator early, so that its warning is suppressed.
        self.early_stop = early_stop
        self.advance = advance

    def parts(self, task: FoldTask) -> list[Part]:
        estimator = self.light if task.ranked else self.estimator
        options = (estimator, self.early_stop, task.keep, task.n_classes, task.seed)
        arrays = (self.X, task.y, task.weight, task.fold)
        return [
            Part(_fit_fold, (*arrays, *options, f), self.advance, 1 / task.n_folds)
            for f in range(task.n_folds)
        ]

    def assemble(self, task: FoldTask, results: Sequence[Any]) -> FoldModels:
        models = [model for model, _ in results if model is not None]
        scores, free = np.zeros((len(task.fold), task.n_classes)), task.fold < 0
        for f, (_, part) in enumerate(results):
            scores[_scored(task.fold, f)] += part
        scores[free] /= task.n_folds
        return FoldModels(scores, SklearnModels(models, task.n_classes, self.encoder))


def _fit_fold(
    X: AnyArray,
    y: Ints,
    weight: Floats,
    fold: Ints,
    estimator: ClassifierMixin,
    early_stop: bool,
    keep: bool,
    n_classes: int,
    seed: int,
    f: int,
    advance: Advance,
) -> tuple[Any, Floats]:
    """Fit the model of fold f; return it, unless it can be forgotten, and the scores that it gives."""
    rows = np.flatnonzero((fold != f) & (weight > 0))
    with warnings.catch_warnings():
        if early_stop:
            warnings.simplefilter("ignore", ConvergenceWarning)
        model = _fit_rows(X, y, weight, rows, estimator, seed + f)
    scores = SklearnModels([model], n_classes).of_encoded(X[_scored(fold, f)])
    advance()
    return model if keep else None, scores


def _scored(fold: Ints, f: int) -> Bools:
    """Which rows the model of fold f scores: those of its fold, and those that belong to none."""
    return np.asarray((fold == f) | (fold < 0))


def _fit_rows(X: AnyArray, y: Ints, weight: Floats, rows: Ints, estimator: ClassifierMixin, seed: int) -> Any:
    if len(np.unique(y[rows])) == 1:
        # Some classifiers cannot be fitted to a single class.
        return DummyClassifier(strategy="prior").fit(X[rows], y[rows])
    model = clone(estimator)
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=seed % 2**32)
    if has_fit_parameter(model, "sample_weight"):
        return model.fit(X[rows], y[rows], sample_weight=weight[rows] / weight[rows].mean())
    # The classifier takes no sample_weight: resample the rows by weight, keeping one row of every class.
    drawn = resample(rows, sample_weight=weight[rows], random_state=seed % 2**32)
    drawn = np.union1d(drawn, rows[np.unique(y[rows], return_index=True)[1]])
    return model.fit(X[drawn], y[drawn])


class Fitted(Learner):
    """A source classifier that is already fitted; it must not have been trained on the rows passed to fit."""

    def __init__(self, X: AnyArray, predictor: Predictor):
        self.X = X
        self.predictor = predictor

    def parts(self, task: FoldTask) -> list[Part]:
        return []

    def n_parts(self, task: FoldTask) -> int:
        return 0

    def assemble(self, task: FoldTask, results: Sequence[Any]) -> FoldModels:
        return FoldModels(self.predictor.predict_proba(self.X), self.predictor)


class Blend(Learner):
    """Two model families as one; the out-of-fold log loss says how much each counts.

    Networks and trees make different errors, and which suits a data set better is not known beforehand.
    The loss on the held-out labels of the task (never the target's classes) decides. Probabilities that are
    the answer are pooled: a product of powers, because each family is sure of itself in its own degree.
    Scores that are only ranked are a weighted mean, in which a family may have no weight at all; the second
    one first has to show on one fold that it has some.
    """

    def __init__(self, first: Learner, second: Learner):
        self.first = first
        self.second = second

    def parts(self, task: FoldTask) -> list[Part]:
        used = self._used(task)
        parts = [part for learner, own in used for part in learner.parts(own)]
        # Each family reports half of a unit of progress; one that is alone reports all of it.
        parts = [part._replace(share=part.share * 2 / len(used)) for part in parts]
        return parts[: self.first.n_parts(task) + 1] if self._on_trial(task) else parts

    def n_parts(self, task: FoldTask) -> int:
        return sum(learner.n_parts(own) for learner, own in self._used(task))

    def more_parts(self, task: FoldTask, results: Sequence[Any]) -> list[Part]:
        """The second family's other folds, if its scores of the first one have a weight."""
        if not self._on_trial(task):
            return []
        two = self.second.assemble(task, results[self.first.n_parts(task) :])
        others = self.second.parts(task)[1:]
        if self._share_of_first(task, results, two, task.fold == 0) < 1:
            return others
        for part in others:
            part.advance(part.share)
        return []

    def _on_trial(self, task: FoldTask) -> bool:
        return task.ranked and task.start is None and self.second.n_parts(task) > 1

    def _used(self, task: FoldTask) -> list[tuple[Learner, FoldTask]]:
        """The families to train: both, or the one that had all the weight in the models to start from."""
        start, both = task.start, (self.first, self.second)
        if start is None:
            return [(learner, task) for learner in both]
        if not isinstance(start, Blended):
            # One family was alone before.
            return [(both[isinstance(start, SklearnModels)], task)]
        shares = ((self.first, start.first, start.share), (self.second, start.second, 1 - start.share))
        return [(learner, replace(task, start=own)) for learner, own, share in shares if share > 0]

    def assemble(self, task: FoldTask, results: Sequence[Any]) -> FoldModels:
        used = self._used(task)
        if len(used) == 1:
            return used[0][0].assemble(used[0][1], results)
        n_first = self.first.n_parts(task)
        one = self.first.assemble(task, results[:n_first])
        if len(results) < self.n_parts(task):
            # The second family had no weight on the fold that it was tried on.
            return one
        two = self.second.assemble(task, results[n_first:])
        if task.ranked:
            share = self._share_of_first(task, results, two, task.fold >= 0)
            mixed = share * one.scores + (1 - share) * two.scores
            return FoldModels(mixed, Blended(one.predictor, two.predictor, share))
        known = np.flatnonzero((task.weight > 0) & (task.fold >= 0))
        exponents = fit_pool(one.scores[known], two.scores[known], task.y[known], task.weight[known])
        pooled = pool(one.scores, two.scores, exponents)
        return FoldModels(pooled, Pooled(one.predictor, two.predictor, exponents))

    def _share_of_first(self, task: FoldTask, results: Sequence[Any], two: FoldModels, rows: Bools) -> float:
        """The share of the first family in the mean of least log loss on the labels of some rows.

        It is judged by one division into folds, as the rounds of CVIR have no other: a mean over several
        would leave out a second family that they still need.
        """
        once = replace(task, again=())
        one = self.first.assemble(once, results[: self.first.n_parts(once)])
        known = np.flatnonzero(rows & (task.weight > 0))
        true_one, true_two = one.scores[known, task.y[known]], two.scores[known, task.y[known]]

        def loss(share: float) -> float:
            mixed = share * true_one + (1 - share) * true_two
            return -float(np.average(np.log(np.maximum(mixed, 1e-3)), weights=task.weight[known]))

        return min((0.0, 0.25, 0.5, 0.75, 1.0), key=loss)
