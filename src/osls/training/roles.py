"""The models of a fit: which learner plays which part, and what it learns.

The source classifier learns the known classes. The discriminator's learner first tells the source's classes
from the target, as the *joint* model, and then known from novel (:mod:`osls.pu`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from torch import nn

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.progress import Advance, History
from osls.shift.calibration import FLOOR, Calibration, Calibrator, fit_calibrator
from osls.training.choose import LearnerSpec, as_fitted, choose_learner, choose_network, is_network
from osls.training.effort import EFFORTS, Plan
from osls.training.learners import Fitted, FoldModels, FoldTask, Learner, NetworkLearner
from osls.training.predictors import Calibrated, Constant, Networks, Predictor
from osls.training.sampling import assign_folds

__all__ = ["Roles", "calibrated", "calibrated_joint", "class_work", "joint_task", "network_of"]

# What the biases of a calibration cost, in rows, and how many rows it looks at.
_BIAS_PENALTY = 1.0
_CALIBRATED_ON = 50_000
# Scores below it would count as equal.
_LEAST = 1e-12


@dataclass(frozen=True)
class Roles:
    """Which model is the source classifier and which the discriminator, and how they are trained.

    The attributes are parameters of :class:`osls.PULSE`.
    """

    source_classifier: LearnerSpec
    discriminator: LearnerSpec
    recipe: str
    objective: str
    effort: str
    n_folds: int | None
    rounds: int | None
    n_bootstrap: int | None
    max_steps: int | None
    patience: int | None
    device: str
    n_jobs: int | None

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Read the attributes off an estimator that has them as parameters."""
        return cls(**{each.name: getattr(estimator, each.name) for each in fields(cls)})

    @property
    def warm(self) -> bool:
        """Whether the discriminator's networks go on from those of the joint model."""
        return EFFORTS[self.effort].warm

    def plan(self, n_rows: int = 0) -> Plan:
        """Return how often the fit does what, for a source and a target of ``n_rows`` rows together."""
        effort = EFFORTS[self.effort]
        return Plan(
            effort.folds_for(n_rows) if self.n_folds is None else self.n_folds,
            effort.rounds if self.rounds is None else self.rounds,
            effort.n_bootstrap if self.n_bootstrap is None else self.n_bootstrap,
            effort.divisions_for(n_rows),
        )

    def both(self, pool: AnyArray, classes: AnyArray, advance: Advance) -> tuple[Learner, Learner]:
        """Return the learners of the source classifier and of the discriminator."""
        learner = self.discriminating(pool, advance)
        return self._beside(learner, pool, classes, advance), learner

    def both_by_epoch(
        self, pool: AnyArray, classes: AnyArray, advance: Advance
    ) -> tuple[Learner, NetworkLearner]:
        """Return the same for a recipe whose discriminator is trained epoch by epoch."""
        learner = self._network(
            pool,
            advance,
            f"recipe={self.recipe!r} trains its discriminator epoch by epoch and needs a network; "
            f"discriminator={self.discriminator!r} is not one. Use recipe='cross-fit' for it.",
        )
        return self._beside(learner, pool, classes, advance), learner

    def source(self, X: AnyArray, classes: AnyArray, advance: Advance) -> Learner:
        """Return the learner of the source classifier; one that is fitted is used as it is."""
        return as_fitted(self.source_classifier, X, classes) or self._source(X, advance)

    def discriminating(self, X: AnyArray, advance: Advance, n_rows: int | None = None) -> Learner:
        """Return the learner of the discriminator; ``X`` may be a sample of ``n_rows`` rows."""
        return self._choose(self.discriminator, X, advance, n_rows)

    def network(self, X: AnyArray, advance: Advance) -> NetworkLearner:
        """Return the discriminator's learner for an objective that only networks can be trained with."""
        return self._network(
            X,
            advance,
            f"objective={self.objective!r} is trained by gradient descent and needs a network; "
            f"discriminator={self.discriminator!r} is not one. objective='cvir' takes any model.",
        )

    def check_fine_tuning(self, X: AnyArray, classes: AnyArray) -> None:
        """Raise an error unless the source classifier is a network to train, and its objective CVIR."""
        if self.objective != "cvir":
            raise ValueError(
                "recipe='fine-tune' trains its discriminator as a classifier of k + 1 classes, with "
                "objective='cvir'; use recipe='paper' or 'cross-fit' for another."
            )
        if as_fitted(self.source_classifier, X, classes) or not is_network(self.source_classifier):
            raise ValueError(
                "recipe='fine-tune' continues training the source classifier's network; "
                f"source_classifier={self.source_classifier!r} is not one. Use recipe='cross-fit' for it."
            )

    def _network(self, X: AnyArray, advance: Advance, complaint: str) -> NetworkLearner:
        """Return the learner of the discriminator, or raise ``complaint`` if that is not a network."""
        return self._choose_network(self.discriminator, X, advance, complaint=complaint)

    def _beside(self, learner: Learner, pool: AnyArray, classes: AnyArray, advance: Advance) -> Learner:
        """Return the source classifier's learner: the discriminator's, if both ask for the same model."""
        one, other = self.source_classifier, self.discriminator
        same = one is other or (isinstance(one, str) and one == other)
        return as_fitted(one, pool, classes) or (learner if same else self._source(pool, advance))

    def _source(self, X: AnyArray, advance: Advance) -> Learner:
        """Return a new source classifier's learner; with one split a network trains as long as the other."""
        spec = self.source_classifier
        if self.recipe != "cross-fit" and is_network(spec):
            return self._choose_network(spec, X, advance)
        return self._choose(spec, X, advance)

    def _choose(self, spec: LearnerSpec, X: AnyArray, advance: Advance, n_rows: int | None = None) -> Learner:
        return choose_learner(
            spec,
            X,
            max_steps=self.max_steps,
            patience=self.patience,
            device=self.device,
            n_jobs=self.n_jobs,
            advance=advance,
            effort=EFFORTS[self.effort],
            n_rows=n_rows,
        )

    def _choose_network(
        self, spec: LearnerSpec, X: AnyArray, advance: Advance, **complaint: str
    ) -> NetworkLearner:
        return choose_network(
            spec,
            X,
            max_steps=self.max_steps,
            patience=self.patience,
            device=self.device,
            advance=advance,
            **complaint,
        )


def class_work(
    learner: Learner, y: Ints, weight: Floats, fold: Ints, n_classes: int, rng: np.random.Generator
) -> tuple[Learner, FoldTask]:
    """What the source classifier learns: the classes of the source rows.

    ``fold`` is that of the pool; its target rows are scored, never trained on.
    """
    m = len(fold) - len(y)
    if n_classes == 1:
        learner = Fitted(np.empty((len(fold), 0)), Constant((1.0,)))
    y = np.concatenate([y, np.zeros(m, dtype=np.int64)])
    weight = np.concatenate([weight, np.zeros(m)])
    return learner, FoldTask(y, weight, fold, n_classes, int(rng.integers(2**31)))


def joint_task(
    y: Ints,
    weight: Floats,
    n_target: int,
    n_folds: int,
    rng: np.random.Generator,
    copy_of: Ints | None,
    divisions: int = 1,
) -> FoldTask:
    """What the joint model learns: the source's classes against the target, all with equal weight."""
    k = int(y.max()) + 1
    y = np.concatenate([y, np.full(n_target, k)])
    weight = np.concatenate([weight, np.ones(n_target)])
    weight *= len(y) / (k + 1) / np.bincount(y, weight)[y]
    fold = assign_folds(y, n_folds, rng, copy_of)
    seed = int(rng.integers(2**31))
    # Generators of their own: learners that have no use for other divisions give the same with or without.
    generators = [np.random.default_rng([seed, i]) for i in range(1, divisions)]
    again = tuple(assign_folds(y, n_folds, generator, copy_of) for generator in generators)
    # Its scores are all that is needed of it, but its networks may go on learning known against novel.
    return FoldTask(y, weight, fold, k + 1, seed, ranked=True, keep=False, again=again)


def calibrated(
    models: FoldModels, y: Ints, weight: Floats, fold: Ints, history: History, *, calibrate: bool
) -> FoldModels:
    """Note the accuracy of the source classifier on held-out rows, and with ``calibrate`` calibrate it there.

    A bias for each class, and not a temperature alone: with another mix of classes a class whose probability
    is too small on average is told too rarely, and its share is estimated too small.
    """
    if models.scores.shape[1] == 1:
        return models
    out = np.flatnonzero(fold[: len(y)] >= 0)
    known = models.scores[out], y[out], weight[out]
    calibrator = _calibrator(*known, "bcts", floor=FLOOR) if calibrate else Calibrator()
    scores = calibrator(models.scores)
    accuracy = float(np.average(scores[out].argmax(axis=1) == y[out], weights=weight[out]))
    temperature = 1.0 if calibrator.scale is None else 1 / max(float(calibrator.scale[0]), 1e-12)
    history.append({"step": "source classifier", "accuracy": accuracy, "temperature": temperature})
    return FoldModels(scores, Calibrated(models.predictor, calibrator))


def calibrated_joint(models: FoldModels, task: FoldTask) -> Floats:
    """Return the out-of-fold scores of the joint model with a bias for each class.

    A domain score is a sum over the classes, so that none may have too much or too little probability beside
    the others. Without a scale the rows of a class keep their order, and with it its purest bin.
    """
    return _calibrator(models.scores, task.y, task.weight, "bias", floor=_LEAST)(models.scores)


def _calibrator(scores: Floats, y: Ints, weight: Floats, method: Calibration, floor: float) -> Calibrator:
    rows = np.flatnonzero(weight > 0)
    if len(rows) > _CALIBRATED_ON:
        rows = np.random.default_rng(0).permutation(rows)[:_CALIBRATED_ON]
    chosen = scores[rows], y[rows], method, weight[rows]
    return fit_calibrator(*chosen, penalty=_BIAS_PENALTY, floor=floor)


def network_of(classifier: Predictor) -> nn.Module:
    """Return the source classifier's network, to train further; a constant one (k = 1) has no network."""
    inner = classifier.predictor if isinstance(classifier, Calibrated) else classifier
    return inner.networks if isinstance(inner, Networks) else nn.Identity()
