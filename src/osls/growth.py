"""From "something new" to named classes: discover groups, suggest rows to label, absorb the labels.

A class for adapters that keep the rows they were fitted on. Labels that a person gives to chosen rows are not
a random sample, so nothing is counted with them (:mod:`osls.inference.labels`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import AnyArray, Bools, Floats, Ints
from osls._core.copies import hash_rows
from osls._core.progress import no_progress
from osls._core.saving import saveable
from osls._core.validation import check_rows, check_target, list_labels, stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.inference.discovery import Discovery, Parts, class_parts, describe_groups
from osls.inference.labels import (
    NOT_NEW,
    Origin,
    Suggestion,
    choose_rows,
    collect_labels,
    combine_named,
    new_mix,
    spread_labels,
    with_classes,
)
from osls.inference.partition import group_rows
from osls.inference.space import Space, telling_view
from osls.training.embed import column_space, learnt_space
from osls.training.learners import FoldModels
from osls.training.predictors import Predictor
from osls.training.roles import Roles
from osls.training.sampling import assign_folds

__all__ = ["NOT_NEW", "Growing", "Suggestion"]

# Folds of the models that learn absorbed classes, unless the adapter has a number of its own.
_FOLDS = 5


@dataclass(frozen=True)
class FitRows:
    """The rows of a fit: source, its classes as numbers, target. They are not saved with a model."""

    X: AnyArray
    y: Ints
    X_target: AnyArray


@saveable
@dataclass(frozen=True)
class Grown:
    """The predictor of a model that absorbed classes.

    Attributes
    ----------
    before : Predictor
        Of the fit: the known classes, then novel.
    named : Predictor
        Of the known classes, the absorbed ones, then what is still novel.
    """

    before: Predictor
    named: Predictor

    def predict_proba(self, X: AnyArray) -> Floats:
        return combine_named(self.before.predict_proba(X), self.named.predict_proba(X))


class Growing(OpenSetAdapter):
    """An adapter that finds groups among its novel rows and can learn them as classes."""

    level: float
    n_folds: int | None
    unsaved: ClassVar[tuple[str, ...]] = ("_rows", "_view")

    _rows: FitRows
    _view: Space
    _found: Discovery | None
    _origin: Origin | None
    _digest: int

    @property
    @abstractmethod
    def _roles(self) -> Roles:
        """The models of the adapter; its discriminator's also learns the absorbed classes."""

    def _publish(self, task: Task, classes: AnyArray, adaptation: Adaptation) -> None:
        super()._publish(task, classes, adaptation)
        self._keep(FitRows(task.X, task.y, task.X_target))
        self._found = self._origin = None
        self._digest = _digest(task.X_target)

    def _keep(self, rows: FitRows) -> None:
        self._rows = rows
        self.__dict__.pop("_view", None)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled model does not carry the data that it was fitted on.
        return {name: value for name, value in super().__getstate__().items() if name not in self.unsaved}

    def recall(self, X: Any, y: Any, X_target: Any) -> Self:
        """Give a loaded model the rows it was fitted on, which are not saved with it.

        :meth:`discover`, :meth:`suggest` and :meth:`absorb` need them. The arguments are those of ``fit``.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        target = check_target(self, X_target, X)
        classes = self.classes_ if self._origin is None else self._origin.classes
        known = classes[:-1].tolist()
        number = {name: j for j, name in enumerate(known)}
        labels = list_labels(y)
        if len(labels) != X.shape[0]:
            raise ValueError(f"y has {len(labels)} labels for the {X.shape[0]} rows of X.")
        other = next((name for name in labels if name not in number), None)
        if other is not None:
            raise ValueError(f"y: the model was not fitted on a class {other!r}; pass the y of its fit.")
        if target.shape[0] != len(self.target_proba_) or _digest(target) != self._digest:
            raise ValueError("X_target: these are not the rows that the model was fitted on; pass those.")
        self._keep(FitRows(X, np.array([number[name] for name in labels]), target))
        return self

    def _sentence(self) -> str:
        if self._origin is not None and self.novel_prevalence_ == 0:
            return "All that was found to be new has a name now."
        return super()._sentence()

    # -- Discover -----------------------------------------------------------------------------------

    def discover(self) -> Discovery:
        """Return the groups that the rows called novel fall into, with their shares and intervals.

        The number of groups follows from the data (:mod:`osls.inference.partition`); one is as possible as
        several. Known classes that fall into two parts are its ``parts``: they are not new. The result is
        kept, and saved with the model.
        """
        check_is_fitted(self)
        if self._found is None:
            self._found = self._discover()
        return self._found

    def _discover(self) -> Discovery:
        proba = self.target_proba_
        novel = proba.argmax(axis=1) == proba.shape[1] - 1
        membership: Floats = np.zeros((len(proba), 0))
        if novel.any():
            membership = group_rows(self._space(), self._kept_rows().y, _called(proba, novel))
        interval = getattr(self, "novel_interval_", (self.novel_prevalence_,) * 2)
        classes = self.classes_[:-1].tolist()
        level = getattr(self, "level", 0.95)
        return describe_groups(
            proba, membership, self.novel_prevalence_, interval, level, classes, novel, self._parts()
        )

    def _parts(self) -> tuple[Parts, ...]:
        """Known classes in two parts; those that the source has, if others were absorbed since."""
        if not hasattr(self, "_rows"):
            return ()
        names = (self.classes_ if self._origin is None else self._origin.classes)[:-1].tolist()
        number = {name: j for j, name in enumerate(names)}
        answers = np.array([number.get(name, -1) for name in self.target_labels_.tolist()], dtype=np.int64)
        return class_parts(self._space(), self._rows.y, answers, names, level=getattr(self, "level", 0.95))

    def _kept_rows(self) -> FitRows:
        rows: FitRows | None = getattr(self, "_rows", None)
        if rows is None:
            raise ValueError(
                "the rows of the fit are not saved with a model; give them back with "
                "model.recall(X, y, X_target) first."
            )
        return rows

    def _space(self) -> Space:
        """All rows of the fit, source first, in the space in which groups are found."""
        if "_view" not in vars(self):
            rows = self._kept_rows()
            pool = stack_rows(rows.X, rows.X_target)
            views = [column_space(pool), column_space(pool, scaled=False)]
            learnt = learnt_space(self._classifier(), pool)
            self._view = Space.of(telling_view(views, rows.y), learnt, rows.y)
        return self._view

    def _classifier(self) -> Any:
        """The model of the known classes inside the predictor."""
        before = self._predictor.before if isinstance(self._predictor, Grown) else self._predictor
        return getattr(before, "classifier", before)

    # -- Suggest ------------------------------------------------------------------------------------

    def suggest(self, n: int = 10) -> Ints:
        """Return the positions of up to ``n`` target rows whose labels would help most, the best first.

        Most are typical rows of parts of what is novel, the more the larger a group: they name a group and
        show whether it is one thing. The others lie between groups, or between novel and known.
        """
        return np.array([each.row for each in self.suggestions(n)], dtype=np.int64)

    def suggestions(self, n: int = 10) -> list[Suggestion]:
        """Return the rows of :meth:`suggest` with the reason for each."""
        if not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n must be a whole number, at least 1; got {n!r}.")
        found = self.discover()
        given = set() if self._origin is None else set(self._origin.rows.tolist())
        if not len(found):
            return []
        rows = self._space()[len(self._kept_rows().y) :].joint
        return choose_rows(found, rows, self.target_proba_, n, given)

    # -- Absorb -------------------------------------------------------------------------------------

    def absorb(self, X: Any, y: Any) -> Self:
        """Return a fitted model that knows the classes in ``y`` as well, for the same target.

        The labels may be new names, known classes ("this is really class c"), the novel label (it stays
        new) or :data:`osls.growth.NOT_NEW`. Shares are not counted from them: the rows were chosen. This
        model is not changed.

        Parameters
        ----------
        X : array-like
            Rows of the target.
        y : array-like
            Their labels.

        Examples
        --------
        >>> import numpy as np
        >>> from osls import PULSE
        >>> rng = np.random.default_rng(0)
        >>> centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])
        >>> y = np.repeat(["a", "b"], 100)
        >>> X = centres[np.repeat([0, 1], 100)] + rng.normal(size=(200, 2))
        >>> truth = np.repeat(["a", "b", "c", "d"], [80, 80, 70, 40])
        >>> X_target = centres[np.repeat(np.arange(4), [80, 80, 70, 40])] + rng.normal(size=(270, 2))
        >>> model = PULSE(source_classifier="trees", discriminator="trees", random_state=0)
        >>> model = model.fit(X, y, X_target=X_target)
        >>> rows = model.suggest(4)
        >>> model = model.absorb(X_target[rows], truth[rows])
        >>> model.classes_.tolist()
        ['a', 'b', 'c', 'd', 'novel']
        >>> bool((model.target_labels_ == truth).mean() > 0.97)
        True
        """
        check_is_fitted(self)
        target = self._kept_rows().X_target
        X = check_rows(self, X, reset=False)
        labels = list_labels(y)
        if X.shape[0] != len(labels):
            raise ValueError(f"X has {X.shape[0]} rows but y has {len(labels)} labels.")
        position = {int(value): i for i, value in reversed(list(enumerate(hash_rows(target))))}
        rows = [position.get(int(value), -1) for value in hash_rows(X)]
        if -1 in rows:
            raise ValueError(
                f"X: row {rows.index(-1)} is not one of the target that the model was fitted on."
            )
        return self.absorb_rows(rows, labels)

    def absorb_rows(self, rows: Sequence[int], y: Sequence[Any]) -> Self:
        """Do what :meth:`absorb` does, for rows of the target that are given by their positions."""
        check_is_fitted(self)
        kept, start = self._kept_rows(), self._start()
        labels = collect_labels(start, rows, y, kept.X_target.shape[0])
        new = {name for name in labels.values() if name not in (*start.classes.tolist(), NOT_NEW)}
        # Numbers and words have no order among each other.
        classes = with_classes(start.classes, sorted(new, key=lambda name: (isinstance(name, str), name)))
        pseudo = self._spread(labels, classes, start)
        given = np.array(sorted(labels), dtype=np.int64)
        models = self._learn(kept, start, classes, pseudo)
        proba = combine_named(start.target_proba, models.scores[len(kept.y) :])
        proba[given] = np.eye(len(classes))[pseudo[given]]
        share, interval = new_mix(start, pseudo, len(classes), getattr(self, "level", 0.95))
        origin = replace(start, rows=given, labels=tuple(labels[row] for row in given.tolist()))
        return self._grown(classes, share, interval, proba, models, origin)

    def _start(self) -> Origin:
        """The answer that labels are added to: that of the fit, with the labels absorbed so far."""
        if self._origin is not None:
            return self._origin
        none = np.empty(0, dtype=np.int64)
        interval = getattr(self, "marginal_interval_", np.repeat(self.target_marginal_[:, None], 2, axis=1))
        found = self.discover()
        return Origin(self.classes_, self.target_proba_, self.target_marginal_, interval, found, none, ())

    def _spread(self, labels: dict[int, Any], classes: AnyArray, start: Origin) -> Ints:
        """Return a class for each target row that was called novel or labelled, -1 for the others."""
        names = classes.tolist()
        known = len(start.classes) - 1
        given = np.array(sorted(labels), dtype=np.int64)
        likely = start.target_proba[:, :known].argmax(axis=1)
        # Rows that are "not new" pass that on, and each is then of the known class that is likely for it.
        number = [-2 if labels[r] == NOT_NEW else names.index(labels[r]) for r in given.tolist()]
        rows = self._space()[len(self._kept_rows().y) :].joint
        spread = spread_labels(rows, start.found.group, given, np.array(number), len(names) - 1)
        return np.asarray(np.where(spread == -2, likely, spread))

    def _learn(self, kept: FitRows, start: Origin, classes: AnyArray, pseudo: Ints) -> FoldModels:
        """Cross-fit one classifier of all classes on source rows and on target rows that have a class."""
        n, m = len(kept.y), len(pseudo)
        rng = np.random.default_rng(int(self._digest % 2**31))
        # The order of the classes is that of the start: its known ones, then the new ones, then novel.
        y = np.concatenate([kept.y, np.maximum(pseudo, 0)])
        known, alpha = start.target_marginal[:-1], float(start.target_marginal[-1])
        mix = known / np.maximum(np.bincount(kept.y, minlength=len(known)), 1)
        used = pseudo >= 0
        weight = np.concatenate([mix[kept.y], used * alpha / max(1, int(used.sum()))]) * (n + m)
        strata = np.concatenate([kept.y, np.where(used, pseudo, len(classes))])
        fold = assign_folds(strata, self.n_folds or _FOLDS, rng)
        learner = self._roles.discriminating(stack_rows(kept.X, kept.X_target), no_progress)
        return learner.cross_fit(y, weight, fold, len(classes), seed=int(rng.integers(2**31)))

    def _grown(
        self,
        classes: AnyArray,
        share: Floats,
        interval: Floats,
        proba: Floats,
        models: FoldModels,
        origin: Origin,
    ) -> Self:
        """Return a new model with this answer."""
        model: Self = clone(self)
        for name in ("n_features_in_", "feature_names_in_", "diagnostics_", "_rows", "_digest", "_view"):
            if name in vars(self):
                setattr(model, name, getattr(self, name))
        model.classes_ = classes
        model.target_marginal_ = share
        model.novel_prevalence_ = float(share[-1])
        model.marginal_interval_ = interval
        model.novel_interval_ = (float(interval[-1, 0]), float(interval[-1, 1]))
        y = self._kept_rows().y
        counts = np.bincount(y, minlength=len(classes) - 1) / len(y)
        # An absorbed class had no rows in the source, so it has no weight either.
        model.importance_weights_ = np.where(counts > 0, share[:-1] / np.where(counts > 0, counts, 1), np.nan)
        model.target_proba_ = proba
        model.target_labels_ = classes[proba.argmax(axis=1)]
        model.history_ = [*self.history_, {"step": "absorb", "labels": len(origin.rows)}]
        before = self._predictor.before if isinstance(self._predictor, Grown) else self._predictor
        model._predictor = Grown(before, models.predictor)
        model._found, model._origin = None, origin
        return model

    def as_source(self) -> tuple[AnyArray, AnyArray]:
        """Return labelled rows for the next fit: the source, and target rows of the absorbed classes.

        Target rows are drawn by their probability of the class, not by a threshold: rows at its border belong
        to its looks, too.
        """
        check_is_fitted(self)
        kept, start = self._kept_rows(), self._start()
        known = len(start.classes) - 1
        rng = np.random.default_rng(int(self._digest % 2**31))
        drawn = (self.target_proba_.cumsum(axis=1) > rng.random((len(self.target_proba_), 1))).argmax(axis=1)
        new = np.flatnonzero((drawn >= known) & (drawn < len(self.classes_) - 1))
        rows = stack_rows(kept.X, kept.X_target[new])
        return rows, np.append(start.classes[:-1][kept.y], self.classes_[drawn[new]])


def _called(proba: Floats, novel: Bools) -> Floats:
    """P(novel) of the rows called novel, at least a half; zero of the others."""
    return np.where(novel, np.maximum(proba[:, -1], 0.5 + 1e-9), 0.0)


def _digest(X: AnyArray) -> int:
    """A number that other rows, or the same ones in another order, would hardly have."""
    hashes = hash_rows(X)
    return int((hashes * np.arange(1, len(hashes) + 1, dtype=np.uint64)).sum(dtype=np.uint64) >> np.uint64(1))
