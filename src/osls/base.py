"""The base class of all open set adapters: validate, fit, and predict as a (k+1)-way classifier."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import AnyArray, Floats, Ints, with_novel
from osls._core.copies import SharedRows, copies_among, shared_rows
from osls._core.notebook import ClassLine, mix_html
from osls._core.parameters import Constraint, check_parameters
from osls._core.progress import History
from osls._core.saving import saveable
from osls._core.validation import (
    append_novel_label,
    apply_weight,
    check_folds,
    check_rows,
    check_target,
    check_weight,
    list_labels,
    refuse_other_types,
    stack_rows,
)
from osls.inference.diagnostics import Diagnostics, TrustWarning, Verdict
from osls.training.predictors import Predictor
from osls.training.sampling import Split

__all__ = ["Adaptation", "Callback", "Combined", "OpenSetAdapter", "Task", "combine", "combine_opinions"]


# What scikit-learn's validation sets on an estimator before anything is learned.
_SET_BY_VALIDATION = ("n_features_in_", "feature_names_in_")
# Called after an epoch with its number and the target's probabilities.
Callback = Callable[[int, Floats], None]


@dataclass(frozen=True)
class Task:
    """What an adapter is given: labelled source rows, unlabelled target rows, and a random stream."""

    X: AnyArray
    y: Ints
    X_target: AnyArray
    classes: AnyArray
    rng: np.random.Generator
    # For each of the pooled rows (source, then target) the first row that equals it.
    copy_of: Ints | None = None
    # What each step of the fit did; adapters append to it, and it becomes ``history_``.
    history: History = field(default_factory=list)
    # How much each source row counts, 1 on average; None if all count the same.
    weight: Floats | None = None

    @property
    def k(self) -> int:
        """Number of known classes."""
        return len(self.classes)

    @property
    def source_marginal(self) -> Floats:
        """p_s(y)."""
        return np.bincount(self.y, self.weight, minlength=self.k) / len(self.y)

    @property
    def pool(self) -> AnyArray:
        """Source rows, then target rows; a new copy, so that its memory is freed after use."""
        return stack_rows(self.X, self.X_target)

    @property
    def shared(self) -> SharedRows | None:
        """Target rows that are copies of source rows, if copies were looked for."""
        return None if self.copy_of is None else shared_rows(self.copy_of, len(self.y))

    @property
    def copies(self) -> tuple[Ints, Ints] | None:
        """The first equal row of each source and of each target row; None if no row of a side has a copy."""
        if self.copy_of is None:
            return None
        source, target = self.copy_of[: len(self.y)], self.copy_of[len(self.y) :]
        distinct = len(np.unique(source)) == len(source) and len(np.unique(target)) == len(target)
        return None if distinct else (source, target)

    @property
    def row_weight(self) -> Floats:
        """How much each source row counts."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    def split(self) -> Split:
        """Hold out a fifth of the source and of the target."""
        m = self.X_target.shape[0]
        check_folds(self.y, self.classes, 2, m)
        return Split.draw(self.y, m, self.rng, self.copy_of)

    def weights_for(self, marginal: Floats) -> Floats:
        """Weights of the source rows that turn its class mix into ``marginal``."""
        return np.asarray((marginal / self.source_marginal)[self.y] * self.row_weight)

    def follow(
        self, class_proba: Floats, marginal: Floats, callback: Callback | None
    ) -> Callable[[Floats, float], None]:
        """Return what notes the mix after each epoch, and passes the target's probabilities on."""
        epochs = 0

        def note(known: Floats, novel_share: float) -> None:
            nonlocal epochs
            epochs += 1
            mix = with_novel(marginal, novel_share).tolist()
            self.history.append({"step": "epoch", "epoch": epochs, "target_marginal": mix})
            if callback is not None:
                callback(epochs, combine(known, class_proba, marginal / self.source_marginal))

        return note


@dataclass(frozen=True)
class Adaptation:
    """Everything a fit learned; the adapter sets its attributes only when this is complete.

    Attributes
    ----------
    known_marginal : array of shape (k,)
        The mix among the known classes.
    novel_share : float
        The share of the target that belongs to no known class.
    target_proba : array of shape (m, k + 1)
        Probabilities of the target rows.
    interval : array of shape (k + 1, 2), optional
        An interval for each class's share.
    learned : mapping from name to value
        The adapter's further attributes: public ones, which end in ``_``, and what predicting needs.
    """

    known_marginal: Floats
    novel_share: float
    target_proba: Floats
    interval: Floats | None = None
    learned: Mapping[str, Any] = field(default_factory=dict)


def combine(known: Floats, class_proba: Floats, importance: Floats) -> Floats:
    """Step 6 of Algorithm 1: split P(known) among the re-weighted classes; the rest goes to the novel one."""
    weighted = class_proba * importance
    total = weighted.sum(axis=1, keepdims=True)
    # If all classes of positive weight have probability zero, use the classifier's probabilities unchanged.
    weighted = np.where(total > 0, weighted / np.where(total > 0, total, 1), class_proba)
    proba = np.column_stack([known[:, None] * weighted, 1 - known])
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def combine_opinions(proba: Floats, class_proba: Floats, importance: Floats) -> Floats:
    """Step 6 with a discriminator of all k + 1 classes: the mean of its answer and of :func:`combine`.

    ``proba``, of shape (m, k + 1) and any scale, gives P(novel) in both.
    """
    own = proba / np.maximum(proba.sum(axis=1, keepdims=True), 1e-12)
    both = combine(1 - own[:, -1], class_proba, importance) + own
    return np.asarray(both / both.sum(axis=1, keepdims=True))


@saveable
@dataclass(frozen=True)
class Combined:
    """Step 6: a (k+1)-way classifier from the source classifier and the discriminator.

    Attributes
    ----------
    classifier, discriminator : Predictor
        A model of the known classes, and one of known against novel (fine-tuned: of all k + 1 classes).
    importance : array of shape (k,)
        Label shift weights.
    prior_shift : array of shape (k + 1,), optional
        Factors that correct a discriminator with k + 1 outputs for the class mix (fine-tuning).
    """

    classifier: Predictor
    discriminator: Predictor
    importance: Floats
    prior_shift: Floats | None = None

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.combine(self.discriminator.predict_proba(X), self.classifier.predict_proba(X))

    def combine(self, discriminated: Floats, class_proba: Floats) -> Floats:
        """Return probabilities of all k + 1 classes from the two models' answers."""
        if self.prior_shift is None:
            return combine(discriminated[:, 1], class_proba, self.importance)
        # This discriminator has k + 1 outputs and was trained with half of the weight on the novel class.
        return combine_opinions(discriminated * self.prior_shift, class_proba, self.importance)


@contextmanager
def _columns_of_the_last_fit(estimator: BaseEstimator) -> Iterator[None]:
    """Put back what validation has set if the fit fails: a model that was fitted before still predicts."""
    before = {name: getattr(estimator, name) for name in _SET_BY_VALIDATION if hasattr(estimator, name)}
    try:
        yield
    except BaseException:
        for name in _SET_BY_VALIDATION:
            if name in before:
                setattr(estimator, name, before[name])
            elif hasattr(estimator, name):
                delattr(estimator, name)
        raise


class OpenSetAdapter(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the adapters; a subclass writes :meth:`_adapt` and :meth:`_adapt_to_nothing`.

    Subclasses have at least the parameters ``novel_label`` and ``random_state``. What they learn goes into an
    :class:`Adaptation`. With ``_predictor`` among its ``learned`` attributes, an object whose
    ``predict_proba`` answers for all k + 1 classes, nothing else is needed to predict.
    """

    novel_label: Any
    random_state: Any
    # Parameter name -> constraint; the constraints of the parent classes apply as well.
    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {}

    classes_: AnyArray
    target_marginal_: Floats
    novel_prevalence_: float
    importance_weights_: Floats
    target_proba_: Floats
    target_labels_: AnyArray
    marginal_interval_: Floats
    novel_interval_: tuple[float, float]
    history_: History
    _predictor: Any

    def fit(self, X: Any, y: Any, X_target: Any = None) -> Self:
        """Adapt to the target.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, features), or images (n, channels, height, width)
            Labelled source rows.
        y : array-like of shape (n,)
            Their classes.
        X_target : like X, of m rows
            Unlabelled target rows. Without it there is nothing to adapt to: the estimator warns and
            behaves as a classifier of the known classes with the source's mix.

        Returns
        -------
        self
        """
        return self._fit(X, y, X_target)

    def _fit(self, X: Any, y: Any, X_target: Any, sample_weight: Any = None) -> Self:
        """Validate, adapt, publish; a subclass whose ``fit`` takes weights passes them on."""
        check_parameters(self)
        with _columns_of_the_last_fit(self):
            columns = getattr(X, "columns", None)
            X, y = check_rows(self, X, y, reset=True)
            X, y, weight = apply_weight(X, y, sample_weight)
            known, encoded = np.unique(y, return_inverse=True)
            classes = append_novel_label(known, self.novel_label)
            rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
            target = None if X_target is None else check_target(self, X_target, X, columns)
            if target is None:
                warnings.warn(
                    "X_target was not given: nothing to adapt to, so the source mix is kept and no row is "
                    "called novel. Pass the unlabelled rows as fit(X, y, X_target=...).",
                    UserWarning,
                    stacklevel=3,
                )
            target_rows = X[:0] if target is None else target
            task = Task(X, encoded, target_rows, known, rng, copies_among(X, target_rows), weight=weight)
            adaptation = self._adapt(task) if target is not None else self._adapt_to_nothing(task)
            if not np.isfinite(adaptation.target_proba).all():
                raise ValueError(
                    f"{type(self).__name__} found probabilities of target rows that are not finite numbers; "
                    "if a model was passed in, look at its predict_proba."
                )
        self._forget()
        self._publish(task, classes, adaptation)
        verdict = self._verdict()
        if verdict is not None and verdict.status == "do not trust":
            warnings.warn(
                f"Do not trust this answer. {' '.join(verdict.reasons)}", TrustWarning, stacklevel=3
            )
        return self

    def _verdict(self) -> Verdict | None:
        """The verdict of the diagnostics; None before the fit, and for adapters without diagnostics."""
        diagnostics: Diagnostics | None = getattr(self, "diagnostics_", None)
        return None if diagnostics is None else diagnostics.verdict

    def __str__(self) -> str:
        verdict = self._verdict()
        return repr(self) if verdict is None else f"{self!r}\nVerdict: {verdict}"

    def _html_repr(self) -> str:
        """What notebooks show: the mix after a fit, before it the parameters as scikit-learn does."""
        if not hasattr(self, "target_marginal_") or not len(self.target_labels_):
            return str(super()._html_repr())
        verdict = self._verdict()
        reasons = () if verdict is None else verdict.reasons
        stop = verdict is not None and verdict.status == "do not trust"
        return mix_html(
            "Do not trust these figures." if stop else self._sentence(),
            self._class_lines(),
            level=float(getattr(self, "level", 0.95)),
            verdict=None if verdict is None else verdict.status,
            reason=" ".join(reasons) if stop else "",
            closing=f"{type(self).__name__}: predict(X) answers for more rows, save(path) keeps it.",
            notes=() if stop else reasons,
        )

    def _sentence(self) -> str:
        if self.novel_prevalence_ == 0:
            return "Nothing new was found in the target."
        interval = getattr(self, "novel_interval_", None)
        ends = "" if interval is None else f" ({100 * interval[0]:.0f} to {100 * interval[1]:.0f}%)"
        return (
            f"{100 * self.novel_prevalence_:.0f}%{ends} of the target is something the labels do not cover."
        )

    def _class_lines(self) -> list[ClassLine]:
        """A line for each class: its share before and now, and how many target rows were called so."""
        known = self.target_marginal_[:-1] / max(1 - self.novel_prevalence_, 1e-12)
        # A class of weight zero says nothing of its share in the source.
        before = [
            share / weight if weight > 0 else None
            for share, weight in zip(known.tolist(), self.importance_weights_.tolist(), strict=True)
        ]
        interval: Any = getattr(self, "marginal_interval_", None)
        counts = np.bincount(self.target_proba_.argmax(axis=1), minlength=len(self.classes_)).tolist()
        return [
            ClassLine(
                str(name),
                (*before, 0.0)[j],
                float(self.target_marginal_[j]),
                None if interval is None else (float(interval[j, 0]), float(interval[j, 1])),
                counts[j],
                novel=j == len(known),
            )
            for j, name in enumerate(self.classes_.tolist())
        ]

    @abstractmethod
    def _adapt(self, task: Task) -> Adaptation:
        """Learn from source and target."""

    @abstractmethod
    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        """Learn from the source alone."""

    def _predict_proba(self, X: AnyArray) -> Floats:
        """Return (n, k+1) probabilities of validated rows."""
        proba: Floats = self._predictor.predict_proba(X)
        return proba

    def _forget(self) -> None:
        """Delete what an earlier fit learned, except what this fit's validation has just set."""
        learned = [name for name in vars(self) if name.endswith("_") and name not in _SET_BY_VALIDATION]
        for name in learned:
            delattr(self, name)

    def _publish(self, task: Task, classes: AnyArray, adaptation: Adaptation) -> None:
        self.classes_ = classes
        self.history_ = task.history
        self.novel_prevalence_ = float(adaptation.novel_share)
        self.target_marginal_ = with_novel(adaptation.known_marginal, adaptation.novel_share)
        self.importance_weights_ = adaptation.known_marginal / task.source_marginal
        if adaptation.interval is not None:
            low, high = adaptation.interval[-1].tolist()
            self.marginal_interval_, self.novel_interval_ = adaptation.interval, (low, high)
        self.target_proba_ = adaptation.target_proba
        self.target_labels_ = classes[adaptation.target_proba.argmax(axis=1)]
        for name, value in adaptation.learned.items():
            setattr(self, name, value)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the k known classes and, last, of the novel one.

        Rows that were in ``X_target`` have better answers in ``target_proba_``: where folds are used, those
        come from models that did not see the row.
        """
        check_is_fitted(self)
        return self._predict_proba(check_rows(self, X, reset=False))

    def predict(self, X: Any) -> AnyArray:
        """Most probable of the k+1 classes."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def novelty_score(self, X: Any) -> Floats:
        """Probability that a row belongs to none of the known classes."""
        return self.predict_proba(X)[:, -1]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """(k+1)-way accuracy; every label in y that is not a known class counts as novel."""
        best = self.predict_proba(X).argmax(axis=1)
        labels = list_labels(y)
        if len(labels) != len(best):
            raise ValueError(f"y has {len(labels)} labels for the {len(best)} rows of X.")
        known = {name: j for j, name in enumerate(self.classes_[:-1].tolist())}
        refuse_other_types(labels, known)
        truth = np.array([known.get(label, len(known)) for label in labels])
        weight = None if sample_weight is None else check_weight(sample_weight, len(best))
        if weight is not None and not weight.any():
            raise ValueError("sample_weight is zero in every row; give some rows weight.")
        return float(np.average(best == truth, weights=weight))

    def save(
        self,
        path: str | Path,
        *,
        trusted: Sequence[str | type] = (),
        factories: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        """Save to a folder that :func:`osls.load` reads; see :func:`osls.persist.save`."""
        from osls.persist import save

        save(self, path, trusted=trusted, factories=factories)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = False
        return tags
