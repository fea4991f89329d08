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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import resample
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.progress import Advance, no_progress
from osls._core.saving import kept_as, saveable
from osls.training.nets import SmallResNet, StackedMLP
from osls.training.predictors import (
    Blended,
    Encoder,
    Networks,
    Offsets,
    Predictor,
    SklearnModels,
    encoder_for,
)
from osls.training.sampling import EpochSampler
from osls.training.trainer import Schedule, Trainer, as_tensor, scoring_chunk, seeded

NetworkFactory = Callable[[tuple[int, ...], int], nn.Module]


@saveable
@dataclass(frozen=True)
class FoldModels:
    """The outcome of one cross-fitting: out-of-fold scores of the pool, and a predictor for new rows."""

    scores: Floats
    predictor: Predictor


class Learner(ABC):
    """A model family bound to the pooled rows. One cross-fitting is one unit of progress."""

    @abstractmethod
    def cross_fit(self, y: Ints, weight: Floats, fold: Ints, n_classes: int, seed: int) -> FoldModels:
        """Train one model per fold and score the pool."""


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
        advance: Advance = no_progress,
    ):
        self.encoder = encoder_for(factory, X)
        self.rows = as_tensor(self.encoder(X), device)
        self.schedule = schedule
        self.device = device
        self._factory = factory
        self._dropout = dropout
        self.advance = advance

    def new_networks(self, members: int, n_outputs: int) -> nn.Module:
        """Return new networks as one module, (members, batch, ...) -> (members, batch, outputs)."""
        shape = tuple(self.rows.shape[1:])
        networks: nn.Module
        if self._factory is None:
            width = 128 if len(self.rows) < 4000 else 256
            networks = StackedMLP(members, shape[0], n_outputs, (width, width), self._dropout)
        else:
            networks = Members([self._factory(shape, n_outputs) for _ in range(members)])
        return networks.to(self.device)

    def predictor(self, networks: nn.Module, members: int) -> Networks:
        """Bind trained networks to the encoding of their rows."""
        return Networks(self.encoder, networks, members, self.device)

    def cross_fit(self, y: Ints, weight: Floats, fold: Ints, n_classes: int, seed: int) -> FoldModels:
        members = int(fold.max()) + 1
        labels = torch.from_numpy(y).to(self.device)
        with seeded(seed) as generator:
            networks = self.new_networks(members, n_classes)
            trainer = Trainer(networks, self.schedule)
            samplers = [EpochSampler(np.where(fold == f, 0.0, weight), generator) for f in range(members)]

            def loss_of_next_batch() -> Tensor:
                batch = torch.stack([s.next(self.schedule.batch_size) for s in samplers]).to(self.device)
                logits = networks(self.rows[batch])
                # The members share no parameters, so the sum of their mean losses trains each independently.
                return members * cross_entropy(logits.flatten(0, 1), labels[batch].flatten())

            ends = self.schedule.ends(100)
            for _ in trainer.epochs(loss_of_next_batch, ends):
                self.advance(1 / len(ends))
        predictor = self.predictor(networks, members)
        scores = np.asarray(softmax(predictor.held_out_logits(self.rows, fold), axis=1))
        # Rows that belong to no fold get the mean prediction of all members.
        for free in np.array_split(np.flatnonzero(fold < 0), 1 + len(fold) // scoring_chunk(self.device)):
            scores[free] = predictor.mean_proba(self.rows[free])
        return FoldModels(scores, predictor)


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


def _fits(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether the shapes are equal, except that one axis may be longer."""
    grown = [b - a for a, b in zip(old, new, strict=False)]
    return len(old) == len(new) and min(grown, default=0) >= 0 and sum(map(bool, grown)) <= 1


@kept_as("function")
def convnet(input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
    """Build the default network for images."""
    return SmallResNet(input_shape[0], n_outputs)


class SklearnLearner(Learner):
    """Any scikit-learn classifier, cloned for each fold."""

    def __init__(
        self,
        X: AnyArray,
        estimator: ClassifierMixin,
        *,
        standardise: bool = False,
        early_stop: bool = False,
        advance: Advance = no_progress,
    ):
        # A pipeline gets the rows unchanged, because its own steps may need them.
        as_given = X.ndim != 2 or isinstance(estimator, Pipeline)
        self.encoder = None if as_given else Encoder(X, common=True) if standardise else Offsets(X)
        self.X = X if self.encoder is None else self.encoder(X)
        self.estimator = estimator
        # Whether max_iter is meant to stop the estimator early, so that its warning is suppressed.
        self.early_stop = early_stop
        self.advance = advance

    def cross_fit(self, y: Ints, weight: Floats, fold: Ints, n_classes: int, seed: int) -> FoldModels:
        models = []
        n_folds = int(fold.max()) + 1
        for f in range(n_folds):
            rows = np.flatnonzero((fold != f) & (weight > 0))
            with warnings.catch_warnings():
                if self.early_stop:
                    warnings.simplefilter("ignore", ConvergenceWarning)
                models.append(self._fit(rows, y, weight, seed + f))
            self.advance(1 / n_folds)
        all_models = SklearnModels(models, n_classes, self.encoder)
        scores = np.zeros((len(fold), n_classes))
        for f in range(-1, n_folds):
            mine = fold == f
            if mine.any():
                scorer = all_models if f < 0 else SklearnModels([models[f]], n_classes)
                scores[mine] = scorer.of_encoded(self.X[mine])
        return FoldModels(scores, all_models)

    def _fit(self, rows: Ints, y: Ints, weight: Floats, seed: int) -> Any:
        if len(np.unique(y[rows])) == 1:
            # Some classifiers cannot be fitted to a single class.
            return DummyClassifier(strategy="prior").fit(self.X[rows], y[rows])
        model = clone(self.estimator)
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=seed % 2**32)
        if has_fit_parameter(model, "sample_weight"):
            return model.fit(self.X[rows], y[rows], sample_weight=weight[rows] / weight[rows].mean())
        # The classifier takes no sample_weight: resample the rows by weight, keeping one row of every class.
        drawn = resample(rows, sample_weight=weight[rows], random_state=seed % 2**32)
        drawn = np.union1d(drawn, rows[np.unique(y[rows], return_index=True)[1]])
        return model.fit(self.X[drawn], y[drawn])


class Fitted(Learner):
    """A source classifier that is already fitted; it must not have been trained on the rows passed to fit."""

    def __init__(self, X: AnyArray, predictor: Predictor):
        self.X = X
        self.predictor = predictor

    def cross_fit(self, y: Ints, weight: Floats, fold: Ints, n_classes: int, seed: int) -> FoldModels:
        return FoldModels(self.predictor.predict_proba(self.X), self.predictor)


class Blend(Learner):
    """A weighted mean of two model families; the out-of-fold log loss chooses the weight.

    Networks and trees make different errors, and which suits a data set better is not known beforehand.
    The loss on the held-out labels of the task (never the target's classes) decides.
    """

    def __init__(self, first: Learner, second: Learner):
        self.first = first
        self.second = second

    def cross_fit(self, y: Ints, weight: Floats, fold: Ints, n_classes: int, seed: int) -> FoldModels:
        one = self.first.cross_fit(y, weight, fold, n_classes, seed)
        two = self.second.cross_fit(y, weight, fold, n_classes, seed)
        known = np.flatnonzero((weight > 0) & (fold >= 0))
        true_one, true_two = one.scores[known, y[known]], two.scores[known, y[known]]

        def loss(share: float) -> float:
            mixed = share * true_one + (1 - share) * true_two
            return -float(np.average(np.log(np.maximum(mixed, 1e-3)), weights=weight[known]))

        share = min((0.0, 0.25, 0.5, 0.75, 1.0), key=loss)
        return FoldModels(
            share * one.scores + (1 - share) * two.scores,
            Blended(one.predictor, two.predictor, share),
        )
