"""``osls.testing`` on adapters that other people might write: sound ones pass, broken ones are told why."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array

from osls.base import Adaptation, OpenSetAdapter
from osls.mixture import BBE, MixtureEstimator
from osls.testing import (
    ContractError,
    adapter_checks,
    check_adapter,
    check_mixture_estimator,
    mixture_checks,
)


def distances(X, centres):
    X = X.toarray() if hasattr(X, "toarray") else X
    return np.linalg.norm(X[:, None] - centres, axis=2)


def answers(X, centres, cutoff):
    """Nearest centre; novel beyond the cutoff."""
    far = distances(X, centres)
    known = 1 / (1 + np.exp(4 * (far.min(axis=1) - cutoff)))
    near = np.exp(-far + far.min(axis=1, keepdims=True))
    return np.column_stack([known[:, None] * near / near.sum(axis=1, keepdims=True), 1 - known])


def centres_of(X, y, k):
    X = X.toarray() if hasattr(X, "toarray") else X
    return np.array([X[y == j].mean(axis=0) for j in range(k)], dtype=np.float32)


class Nearest(OpenSetAdapter):
    """A user's adapter in the template of the package."""

    def __init__(self, novel_label=None, random_state=None):
        self.novel_label = novel_label
        self.random_state = random_state

    def _adapt(self, task):
        self._centres = centres_of(task.X, task.y, task.k)
        self._cutoff = np.quantile(distances(task.X, self._centres).min(axis=1), 0.99)
        proba = self._predict_proba(task.X_target)
        share = proba.mean(axis=0)
        return Adaptation(share[:-1] / share[:-1].sum(), share[-1], proba)

    def _adapt_to_nothing(self, task):
        self._centres, self._cutoff = centres_of(task.X, task.y, task.k), 1e3
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)))

    def _predict_proba(self, X):
        return answers(X, self._centres, self._cutoff)


class Duck:
    """An adapter that inherits from nothing and reads dense tables only."""

    def fit(self, X, y, X_target):
        if y is None:
            raise ValueError("y is None; pass labels.")
        if np.asarray(y).dtype.kind == "f":
            raise ValueError("y must be classes, not numbers with fractions.")
        self.width = None
        X, X_target = self.check(X, "X"), self.check(X_target, "X_target")
        if X.shape[1] != X_target.shape[1] or len(X) != len(y):
            raise ValueError("X_target must have X's columns, and y a label for each row.")
        known, codes = np.unique(np.asarray(y), return_inverse=True)
        textual = known.dtype.kind == "U"
        self.classes_ = np.array([*known.tolist(), "novel" if textual else -1])
        self.width = X.shape[1]
        self.centres = centres_of(X, codes, len(known))
        self.cutoff = np.quantile(distances(X, self.centres).min(axis=1), 0.99)
        self.target_proba_ = self.predict_proba(X_target)
        self.target_labels_ = self.classes_[self.target_proba_.argmax(axis=1)]
        self.target_marginal_ = self.target_proba_.mean(axis=0)
        self.novel_prevalence_ = self.target_marginal_[-1]
        return self

    def check(self, X, name):
        X = X.numpy() if hasattr(X, "numpy") else X
        try:
            X = check_array(X, input_name=name, dtype=np.float32)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if self.width not in (None, X.shape[1]):
            raise ValueError(f"X has {X.shape[1]} columns; fit had {self.width}.")
        return X

    def predict_proba(self, X):
        if not hasattr(self, "centres"):
            raise ValueError("call fit first.")
        return answers(self.check(X, "X"), self.centres, self.cutoff)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.parametrize("adapter", [Nearest(), Duck()], ids=["in the template", "duck-typed"])
def test_a_sound_adapter_of_somebody_else_passes(adapter):
    check_adapter(adapter)
    assert not hasattr(adapter, "classes_"), "the caller's instance stays unfitted"


def test_checks_have_distinct_names_and_those_of_the_base_are_for_its_subclasses():
    inherited, own = ([name for name, _ in adapter_checks(each)] for each in (Nearest(), Duck()))
    assert len(set(inherited)) == len(inherited) >= 30
    assert set(own) < set(inherited)


# -- Broken adapters, each in one way ---------------------------------------------------------------


class DoesNotSumToOne(Nearest):
    def _predict_proba(self, X):
        return super()._predict_proba(X) * 0.9


class WritesIntoItsInput(Duck):
    def fit(self, X, y, X_target):
        super().fit(X, y, X_target)
        if isinstance(X_target, np.ndarray):
            X_target *= 1.5
        return self


class DrawsFromTheGlobalState(Nearest):
    def _adapt(self, task):
        found = super()._adapt(task)
        np.random.random()  # noqa: NPY002
        return found


class IgnoresItsSeed(Nearest):
    def _adapt(self, task):
        found = super()._adapt(task)
        self._cutoff += np.random.default_rng().normal() * 1e-3
        return found


class TakesTargetLabels(Duck):
    def fit(self, X, y, X_target, y_target=None):
        return super().fit(X, y, X_target)


class JudgesRowsByTheirNeighbours(Nearest):
    def _predict_proba(self, X):
        proba = super()._predict_proba(X)
        proba[:, -1] *= 1 + X.max() / 100
        return proba / proba.sum(axis=1, keepdims=True)


class RemembersEarlierFits(Nearest):
    def _adapt(self, task):
        adaptation = super()._adapt(task)
        self._largest = max(getattr(self, "_largest", 0), self._cutoff)
        self._cutoff = self._largest + 0.1 * hasattr(self, "_seen")
        self._seen = True
        return adaptation


class CannotBePickled(Nearest):
    def _adapt(self, task):
        self._function = lambda: None
        return super()._adapt(task)


class SwallowsMissingValues(Duck):
    def check(self, X, name):
        return super().check(np.nan_to_num(X) if isinstance(X, np.ndarray) and X.dtype != object else X, name)


class ForgetsTheNovelClass(Duck):
    def fit(self, X, y, X_target):
        super().fit(X, y, X_target)
        self.classes_ = self.classes_[:-1]
        return self


class AnswersInAnotherOrder(Duck):
    def fit(self, X, y, X_target):
        super().fit(X, y, X_target)
        order = np.argsort(self.target_proba_[:, 0])
        self.target_proba_, self.target_labels_ = self.target_proba_[order], self.target_labels_[order]
        return self


class FixesClassZero(Duck):
    """Believes that the first class is always half of everything."""

    def fit(self, X, y, X_target):
        super().fit(X, y, X_target)
        self.target_marginal_[0] += self.target_marginal_.sum()
        self.target_marginal_ /= self.target_marginal_.sum()
        self.novel_prevalence_ = self.target_marginal_[-1]
        return self


class Crashes(Duck):
    def fit(self, X, y, X_target):
        raise ZeroDivisionError("no luck")


BROKEN = [
    (DoesNotSumToOne, "answers are distributions", "sums of the rows against 1"),
    (WritesIntoItsInput, "inputs are left alone", "X_target after fit"),
    (DrawsFromTheGlobalState, "global random state", "changes the global random state"),
    (IgnoresItsSeed, "same seed same answer", "predict_proba of a second fit"),
    (TakesTargetLabels, "target labels cannot be passed", "y_target"),
    (JudgesRowsByTheirNeighbours, "rows are judged one by one", "one row alone"),
    (RemembersEarlierFits, "fitting again forgets", "a fit after a fit to other data"),
    (CannotBePickled, "pickles predict alike", "cannot be pickled"),
    (SwallowsMissingValues, "errors name values that are not finite", "no error was raised"),
    (ForgetsTheNovelClass, "answers are distributions", "3 entries for 3 known classes"),
    (AnswersInAnotherOrder, "order of target rows hardly matters", "follow their rows"),
    (FixesClassZero, "renaming classes permutes the answer", "after the names were reversed"),
    (Crashes, "answers are distributions", "stopped with ZeroDivisionError: no luck"),
]


@pytest.mark.parametrize(("adapter", "promise", "words"), BROKEN, ids=[each[0].__name__ for each in BROKEN])
def test_a_broken_adapter_is_told_which_promise_it_breaks(adapter, promise, words):
    with pytest.raises(ContractError) as caught:
        check_adapter(adapter())
    told = [line for line in str(caught.value).splitlines() if f"{adapter.__name__}, {promise}" in line]
    assert len(told) == 1, str(caught.value)
    assert words in told[0]


def test_one_check_alone_names_the_adapter_too():
    with pytest.raises(ContractError, match="DoesNotSumToOne, answers are distributions: target_proba_"):
        dict(adapter_checks(DoesNotSumToOne()))["answers are distributions"]()


def test_what_is_no_adapter_is_refused_at_once():
    with pytest.raises(TypeError, match="pass an instance"):
        check_adapter(Nearest)
    with pytest.raises(ContractError, match="BBE has no method predict and no predict_proba"):
        check_adapter(BBE())
    with pytest.raises(TypeError, match="pass an instance"):
        check_mixture_estimator(BBE)
    with pytest.raises(ContractError, match="object has no method fit"):
        check_mixture_estimator(object())


# -- Mixture estimators -----------------------------------------------------------------------------


class MeanRatio:
    """A sound estimator that inherits from nothing."""

    def fit(self, positive_scores, unlabeled_scores):
        positive, unlabeled = (
            self.check(scores, name)
            for scores, name in (
                (positive_scores, "positive_scores"),
                (unlabeled_scores, "unlabeled_scores"),
            )
        )
        self.alpha_ = self.estimate(np.sort(positive), np.sort(unlabeled))
        return self

    def estimate(self, positive, unlabeled):
        return min(1.0, unlabeled.mean() / positive.mean())

    def check(self, scores, name):
        scores = np.asarray(scores)
        if scores.size == 0 or scores.dtype.kind not in "fi" or not np.isfinite(scores).all():
            raise ValueError(f"{name} must be finite numbers.")
        return scores


class Unbounded(MeanRatio):
    def estimate(self, positive, unlabeled):
        return 2 * unlabeled.mean() / positive.mean()


class UpsideDown(MeanRatio):
    def estimate(self, positive, unlabeled):
        return 1 - super().estimate(positive, unlabeled)


class SortsInPlace(MeanRatio):
    def fit(self, positive_scores, unlabeled_scores):
        if isinstance(positive_scores, np.ndarray) and positive_scores.flags.writeable:
            positive_scores.sort()
        return super().fit(positive_scores, unlabeled_scores)


class ReadsTheOrder(MeanRatio):
    def fit(self, positive_scores, unlabeled_scores):
        super().fit(positive_scores, unlabeled_scores)
        self.alpha_ = min(1.0, self.alpha_ * (0.5 + float(positive_scores[0]) / 2))
        return self


class Silent(MeanRatio):
    def check(self, scores, name):
        return np.asarray(scores, dtype=float)


class BadWeights(MixtureEstimator, BaseEstimator):
    """Counts rows where it should add up weights."""

    def _fit(self, positive, unlabeled):
        self.alpha_ = float(min(1.0, positive.weights.mean() * unlabeled.mean / positive.mean))


BROKEN_MIXTURES = [
    (Unbounded, "alpha is a share", "a share lies in [0, 1]"),
    (UpsideDown, "more positives give a larger share", "where 0.8 is"),
    (SortsInPlace, "inputs are left alone", "positive_scores after fit"),
    (ReadsTheOrder, "order of scores does not matter", "shuffled scores"),
    (Silent, "errors name the scores", "positive_scores"),
    (BadWeights, "equal weights change nothing", "under equal weights"),
]


def test_a_sound_mixture_estimator_of_somebody_else_passes():
    check_mixture_estimator(MeanRatio())
    assert len(dict(mixture_checks(MeanRatio()))) < len(dict(mixture_checks(BBE())))


@pytest.mark.parametrize(
    ("estimator", "promise", "words"), BROKEN_MIXTURES, ids=[each[0].__name__ for each in BROKEN_MIXTURES]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a mean of nothing, which is the point of one of them
def test_a_broken_mixture_estimator_is_told_which_promise_it_breaks(estimator, promise, words):
    with pytest.raises(ContractError) as caught:
        check_mixture_estimator(estimator())
    told = [line for line in str(caught.value).splitlines() if f"{estimator.__name__}, {promise}" in line]
    assert len(told) == 1, str(caught.value)
    assert words in told[0]
