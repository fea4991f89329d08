"""Source-only: the source classifier, used without any adaptation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from osls._core.arrays import AnyArray, Floats
from osls._core.parameters import AtLeast, Constraint
from osls._core.saving import saveable
from osls._core.validation import check_folds
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.training.choose import LearnerSpec, as_fitted, choose_learner
from osls.training.learners import FoldModels
from osls.training.predictors import Constant, Predictor
from osls.training.sampling import assign_folds
from osls.training.trainer import Device


@saveable
class SourceOnly(OpenSetAdapter):
    """A classifier of the known classes that ignores the target; it never predicts "novel".

    Its mix is the share of target rows that it assigns to each class.

    Parameters
    ----------
    source_classifier : "auto" or as in :class:`osls.PULSE`
        The model.
    n_folds : int, default=5
        Number of folds; 1 trains a single model and holds out a fifth of the rows, as in the paper.
    patience : int, optional
        Networks stop when their accuracy on held-out rows has not increased for so many epochs (the paper's
        rule); by default all steps are taken.
    max_steps, novel_label, device, n_jobs, random_state
        As in :class:`osls.PULSE`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import SourceOnly
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SourceOnly(source_classifier="trees", random_state=0).fit(X, y, X_target=X)
    >>> model.novel_prevalence_
    0.0
    """

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_folds": AtLeast(1),
        "max_steps": AtLeast(1, optional=True),
        "patience": AtLeast(1, optional=True),
        "device": Device(),
    }

    def __init__(
        self,
        *,
        source_classifier: LearnerSpec = "auto",
        n_folds: int = 5,
        max_steps: int | None = None,
        patience: int | None = None,
        novel_label: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.source_classifier = source_classifier
        self.n_folds = n_folds
        self.max_steps = max_steps
        self.patience = patience
        self.novel_label = novel_label
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _adapt(self, task: Task) -> Adaptation:
        never_novel = NeverNovel(self._train(task).predictor)
        proba = never_novel.predict_proba(task.X_target)
        predicted = np.bincount(proba.argmax(axis=1), minlength=task.k + 1)[: task.k]
        return Adaptation(predicted / predicted.sum(), 0.0, proba, learned={"_predictor": never_novel})

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        learned = {"_predictor": NeverNovel(self._train(task).predictor)}
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned=learned)

    def _train(self, task: Task, *, least_folds: int = 1) -> FoldModels:
        n_folds = check_folds(task.y, task.classes, self.n_folds, len(task.y), least=least_folds)
        if task.k == 1:  # some classifiers cannot be fitted to a single class
            return FoldModels(np.ones((len(task.y), 1)), Constant((1.0,)))
        learner = as_fitted(self.source_classifier, task.X, task.classes) or choose_learner(
            self.source_classifier,
            task.X,
            max_steps=self.max_steps,
            patience=self.patience,
            device=self.device,
            n_jobs=self.n_jobs,
        )
        fold = assign_folds(task.y, n_folds, task.rng, task.copy_of)
        return learner.cross_fit(
            task.y, np.ones(len(task.y)), fold, task.k, seed=int(task.rng.integers(2**31))
        )


@saveable
@dataclass(frozen=True)
class NeverNovel:
    """A classifier of the known classes with a column of zeros for the novel one."""

    classifier: Predictor

    def predict_proba(self, X: AnyArray) -> Floats:
        proba = self.classifier.predict_proba(X)
        return np.column_stack([proba, np.zeros(len(proba))])
