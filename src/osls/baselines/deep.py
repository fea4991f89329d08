"""The common part of the five open set adaptation networks; each method's file holds only its algorithm.

A method is a backbone with heads, one or more phases of training (each with a loss and a share of the steps),
and a score that is higher for rows that look known. Rows that score below a threshold are called novel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from osls._core.arrays import AnyArray, Bools, Floats
from osls._core.parameters import AtLeast, Constraint
from osls._core.progress import History
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.baselines.rejection import known_odds, predicted_mix, reject
from osls.training.nets.features import FeatureFactory, new_features
from osls.training.predictors import Encoder, encoder_for
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import (
    Device,
    Plateau,
    Schedule,
    Trainer,
    as_tensor,
    resolve_device,
    schedule_for,
    score_rows,
    seeded,
)

# Called after an epoch with its number and the target's probabilities.
Callback = Callable[[int, Floats], None]


class Batch(NamedTuple):
    """The rows of one step: features of source and target, the source's classes, and the row numbers."""

    source: Tensor
    target: Tensor
    y: Tensor
    source_rows: Tensor
    target_rows: Tensor
    progress: float


@dataclass
class Fit:
    """A fit in progress: backbone and heads, rows on the device, and what a method keeps between steps."""

    net: nn.ModuleDict
    source: Tensor
    y: Tensor
    target: Tensor
    k: int
    history: History
    held_out: Bools
    kept: dict[str, Any] = field(default_factory=dict)

    def score_target(self, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Outputs of a head on the features of every target row, in evaluation mode."""
        self.net.eval()
        out = score_rows(lambda rows: head(self.net["features"](rows)), self.target)
        return torch.from_numpy(out).to(self.target.device)

    def held_out_accuracy(self) -> float:
        """Accuracy of the classifier among the known classes, on the source rows that are held out."""
        self.net.eval()
        rows = torch.from_numpy(self.held_out).to(self.source.device)
        logits = score_rows(lambda x: self.net["classifier"](self.net["features"](x)), self.source[rows])
        return float(np.mean(logits[:, : self.k].argmax(axis=1) == self.y[rows].cpu().numpy()))


@dataclass(frozen=True)
class Phase:
    """A part of the training with its own loss and its own cycle of the learning rate."""

    name: str
    share: float
    loss: Callable[[Fit, Batch], Tensor]
    before_epoch: Callable[[Fit], None] = lambda fit: None


def source_loss(fit: Fit, batch: Batch) -> Tensor:
    """Cross-entropy of the classifier on the labelled source."""
    return cross_entropy(fit.net["classifier"](batch.source), batch.y)


class DeepAdapter(OpenSetAdapter):
    """Base of the adversarial and clustering methods; the novel share is the share of rows predicted novel.

    Parameters
    ----------
    align : bool, default=True
        False drops the loss that aligns target with source, for an ablation.
    threshold : float, optional
        The smallest score of a row that is called known; by default the method's own threshold. It applies
        at prediction, so ``set_params(threshold=...)`` works on a fitted model (``target_labels_`` does not
        change); :func:`osls.baselines.best_threshold` finds the best one, given the true labels.
    network : callable, optional
        A function ``input_shape -> torch.nn.Module`` that makes the backbone, a module with an attribute
        ``out_features``; by default an MLP for tables and a small convnet for images.
    max_steps : int, optional
        Optimiser steps; by default about thirty epochs and at least 1,000.
    patience : int, optional
        A phase of the training stops when the classifier's accuracy on a held-out fifth of the source has not
        increased for so many epochs (the paper's rule). By default all steps are taken, and no source row is
        held out.
    callback : callable, optional
        Called after each epoch with its number and the target's current probabilities. If you have the
        target's labels you can track the accuracy; the method never sees them.
    novel_label, device, random_state
        As in :class:`osls.PULSE`.

    Attributes
    ----------
    known_score_ : array of shape (m,)
        Score of each row of X_target, higher if it looks known.
    known_labels_ : array of shape (m,)
        The most probable known class of each row.
    history_ : list of dict
        One record per epoch: phase, epoch, loss, share predicted novel and predicted mix.
    """

    # Rows below this score are novel (the paper's rule), and the range of possible scores.
    own_threshold: ClassVar[float] = 0.5
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    # Whether source batches hold every class equally often.
    balanced: ClassVar[bool] = False
    # Whether both sides go through the backbone together. With two passes, batch normalisation uses separate
    # statistics and hides the difference of the sides.
    one_pass: ClassVar[bool] = True

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "max_steps": AtLeast(1, optional=True),
        "patience": AtLeast(1, optional=True),
        "device": Device(),
    }

    known_score_: Floats
    known_labels_: AnyArray
    _net: nn.ModuleDict
    _encoder: Encoder
    _calibration: Any
    _closed: bool

    def __init__(
        self,
        *,
        align: bool = True,
        threshold: float | None = None,
        network: FeatureFactory | None = None,
        max_steps: int | None = None,
        patience: int | None = None,
        callback: Callback | None = None,
        novel_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
    ):
        self.align = align
        self.threshold = threshold
        self.network = network
        self.max_steps = max_steps
        self.patience = patience
        self.callback = callback
        self.novel_label = novel_label
        self.device = device
        self.random_state = random_state

    # -- What a method implements -------------------------------------------------------------------

    @abstractmethod
    def _heads(self, width: int, k: int) -> dict[str, nn.Module]:
        """Heads on ``width`` features by name; "classifier" has at least one output per class."""

    @abstractmethod
    def _phases(self) -> Sequence[Phase]:
        """The training, in order."""

    @abstractmethod
    def _judge(self, net: nn.ModuleDict, features: Tensor, calibration: Any) -> tuple[Tensor, Tensor]:
        """Probabilities of the k known classes (up to a factor), and the score of each row."""

    def _calibrate(self, fit: Fit) -> Any:
        """Return statistics of the whole target that the score needs; None for most methods."""
        return None

    # -- The training -------------------------------------------------------------------------------

    def _adapt(self, task: Task) -> Adaptation:
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(f"threshold must be a finite number or None; got {self.threshold}.")
        fit, encoder = self._train(task, self._phases())
        calibration = self._calibrate(fit)
        scores = self._score(fit.net, fit.target, calibration)
        proba = self._answer(scores)
        learned = {
            "known_score_": scores[:, -1],
            "known_labels_": task.classes[scores[:, :-1].argmax(axis=1)],
            **_state(fit, encoder, calibration, closed=False),
        }
        return Adaptation(*predicted_mix(proba, task.source_marginal), proba, learned=learned)

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        fit, encoder = self._train(task, [Phase("source", 1.0, source_loss)])
        learned = _state(fit, encoder, None, closed=True)
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned=learned)

    def _train(self, task: Task, phases: Sequence[Phase]) -> tuple[Fit, Encoder]:
        check_folds(task.y, task.classes, 2, len(task.y))
        pool = stack_rows(task.X, task.X_target)
        device = resolve_device(self.device)
        encoder = encoder_for(self.network, pool)
        rows = as_tensor(encoder(pool), device)
        n = len(task.y)
        held_out = self._held_out(task)
        trained = max(int(np.sum(~held_out)), len(rows) - n)
        schedule = schedule_for(self.network, len(rows), steps=self.max_steps, patience=self.patience).over(
            trained
        )
        with seeded(int(task.rng.integers(2**31))) as generator:
            features = new_features(self.network, tuple(rows.shape[1:]), len(rows))
            width = int(features.out_features)  # type: ignore[arg-type]
            net = nn.ModuleDict({"features": features, **self._heads(width, task.k)}).to(device)
            y = torch.from_numpy(task.y).to(device)
            fit = Fit(net, rows[:n], y, rows[n:], task.k, task.history, held_out)
            weight = 1 / np.bincount(task.y)[task.y] if self.balanced else np.ones(n)
            weight[held_out] = 0
            draw = _Drawer(fit, weight, schedule.batch_size, generator, one_pass=self.one_pass)
            ends = np.round(np.cumsum([phase.share for phase in phases]) * schedule.steps).astype(int)
            for phase, steps in zip(phases, np.diff(ends, prepend=0).tolist(), strict=True):
                self._run(phase, fit, draw, replace(schedule, steps=max(1, steps)))
        net.eval()
        return fit, encoder

    def _held_out(self, task: Task) -> Bools:
        """Mark the source rows by which to stop: a fifth, or none if nothing is to be stopped."""
        if self.patience is None:
            return np.zeros(len(task.y), dtype=bool)
        return np.asarray(assign_folds(task.y, 1, task.rng, task.copy_of) == 0)

    def _run(self, phase: Phase, fit: Fit, draw: _Drawer, schedule: Schedule) -> None:
        trainer = Trainer(fit.net, schedule)
        epoch = schedule.epoch(max(int(np.sum(~fit.held_out)), len(fit.target)))
        ceased, started = Plateau(schedule.patience), 0

        def loss_of_next_batch() -> Tensor:
            nonlocal started
            started += 1
            return phase.loss(fit, draw((started - 1) / schedule.steps))

        phase.before_epoch(fit)
        for loss in trainer.epochs(loss_of_next_batch, schedule.ends(epoch)):
            self._record(phase.name, loss, fit)
            if ceased and ceased(fit.held_out_accuracy()):
                break
            if trainer.steps_done < schedule.steps:
                phase.before_epoch(fit)

    def _record(self, step: str, loss: float, fit: Fit) -> None:
        record: dict[str, Any] = {"step": step, "epoch": len(fit.history) + 1, "loss": loss}
        if len(fit.target):
            proba = self._answer(self._score(fit.net, fit.target, self._calibrate(fit)))
            marginal, novel = predicted_mix(proba, np.full(fit.k, 1 / fit.k))
            record |= {"novel_share": novel, "target_marginal": [*((1 - novel) * marginal).tolist(), novel]}
            if self.callback is not None:
                self.callback(record["epoch"], proba)
        fit.history.append(record)

    # -- Answers ------------------------------------------------------------------------------------

    def _score(self, net: nn.ModuleDict, rows: Tensor, calibration: Any) -> Floats:
        """Class probabilities and, last, the score of rows on the device."""
        net.eval()

        def columns(chunk: Tensor) -> Tensor:
            return torch.column_stack(self._judge(net, net["features"](chunk), calibration))

        return score_rows(columns, rows).astype(np.float64)

    def _answer(self, scores: Floats) -> Floats:
        threshold = self.own_threshold if self.threshold is None else self.threshold
        return reject(scores[:, :-1], known_odds(scores[:, -1], threshold, *self.score_range))

    def _predict_proba(self, X: AnyArray) -> Floats:
        net: nn.ModuleDict = self._net
        rows = as_tensor(self._encoder(X), next(net.parameters()).device)
        if not self._closed:
            return self._answer(self._score(net, rows, self._calibration))
        net.eval()
        k = len(self.classes_) - 1
        # Fitted without a target: the classifier of the known classes, and no row is novel.
        proba = score_rows(
            lambda chunk: net["classifier"](net["features"](chunk))[:, :k].softmax(dim=1), rows
        )
        return reject(proba.astype(np.float64), np.ones(len(proba)))


def _state(fit: Fit, encoder: Encoder, calibration: Any, *, closed: bool) -> dict[str, Any]:
    """Return what predicting needs, by the name of its attribute."""
    return {"_net": fit.net, "_encoder": encoder, "_calibration": calibration, "_closed": closed}


class _Drawer:
    """Draw a step's rows from both sides and send them through the backbone, in one pass or two."""

    def __init__(
        self, fit: Fit, source_weight: Floats, size: int, generator: torch.Generator, *, one_pass: bool
    ):
        self._fit = fit
        self._one_pass = one_pass
        self._size = size
        self._samplers = [EpochSampler(source_weight, generator)]
        if len(fit.target):
            self._samplers.append(EpochSampler(np.ones(len(fit.target)), generator))

    def __call__(self, progress: float) -> Batch:
        fit = self._fit
        drawn = [sampler.next(self._size).to(fit.source.device) for sampler in self._samplers]
        source, target = drawn[0], drawn[1] if len(drawn) > 1 else drawn[0][:0]
        sides, backbone = [fit.source[source], fit.target[target]], fit.net["features"]
        if self._one_pass or not len(target):
            of_source, of_target = backbone(torch.cat(sides)).tensor_split([self._size])
        else:
            of_source, of_target = (backbone(side) for side in sides)
        return Batch(of_source, of_target, fit.y[source], source, target, progress)
