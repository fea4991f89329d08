"""Checks of what an adapter inherits from OpenSetAdapter, and might break by overriding it."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from osls.testing.running import close, demand, demand_error, same
from osls.testing.subject import Subject

__all__ = ["CHECKS"]

_ROUNDING = 1e-9


def importance_weights_are_the_ratio_of_the_mixes(subject: Subject) -> None:
    """Target share among the known classes over source share."""
    known = subject.fitted.target_marginal_[:-1] / max(1 - subject.fitted.novel_prevalence_, 1e-300)
    expected = known / subject.problem.source_marginal
    close(subject.fitted.importance_weights_, expected, "importance_weights_", _ROUNDING)


def novelty_score_is_the_last_column(subject: Subject) -> None:
    """Of ``predict_proba``."""
    X = subject.problem.X_test
    same(subject.fitted.novelty_score(X), subject.fitted.predict_proba(X)[:, -1], "novelty_score")


def score_counts_unknown_labels_as_novel(subject: Subject) -> None:
    """It is the accuracy over k+1 classes, whatever the novel ones are called."""
    X, y = subject.problem.X_test, subject.problem.y_test
    accuracy = np.mean(subject.fitted.predict(X) == y)
    close(subject.fitted.score(X, y), accuracy, "score", _ROUNDING)
    close(subject.fitted.score(X, np.where(y == -1, 99, y)), accuracy, "score with other names", _ROUNDING)


def without_a_target_it_warns_and_keeps_the_source_mix(subject: Subject) -> None:
    """Then it is a classifier of the known classes."""
    problem, model = subject.problem, subject.fresh()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(problem.X_source, problem.y_source)
    told = any("X_target" in str(warning.message) for warning in caught)
    demand(told, "fit without X_target does not warn that X_target was not given.")
    close(
        model.target_marginal_[:-1], problem.source_marginal, "target_marginal_ without X_target", _ROUNDING
    )
    same(model.novel_prevalence_, 0, "novel_prevalence_ without X_target")
    accuracy = np.mean(model.predict(problem.X_source) == problem.y_source)
    demand(accuracy > 0.9, f"without X_target, {accuracy:.0%} of the source rows are classified rightly.")


def novel_label_is_the_callers_choice(subject: Subject) -> None:
    """-1 by default; never one of the known classes."""
    same(subject.fitted.classes_[-1], -1, "the last of classes_, for whole numbers as classes")
    model = subject.fresh().set_params(novel_label=42).fit(**subject.problem.training_data())
    same(model.classes_[-1], 42, "the last of classes_, for novel_label=42")
    taken = np.where(subject.problem.y_source == 0, -1, subject.problem.y_source)
    demand_error(lambda: subject.fit(y=taken), ("novel_label",), "a known class that is the novel label")


def a_target_of_nine_rows_is_refused(subject: Subject) -> None:
    """No mix can be read from it."""
    few = subject.problem.X_target[:9]
    demand_error(lambda: subject.fit(X_target=few), ("X_target", "9", "10"), "X_target of nine rows")


def it_works_in_a_pipeline(subject: Subject) -> None:
    """With ``transform_input``, the target goes through the same steps as the source."""
    problem = subject.problem
    with config_context(enable_metadata_routing=True):
        adapter = subject.fresh().set_fit_request(X_target=True)
        pipeline = make_pipeline(StandardScaler(), adapter, transform_input=["X_target"])
        pipeline.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
        shape = pipeline.predict_proba(problem.X_test).shape
    demand(shape == (len(problem.X_test), len(problem.classes) + 1), f"predict_proba has shape {shape}.")


CHECKS = (
    importance_weights_are_the_ratio_of_the_mixes,
    novelty_score_is_the_last_column,
    score_counts_unknown_labels_as_novel,
    without_a_target_it_warns_and_keeps_the_source_mix,
    novel_label_is_the_callers_choice,
    a_target_of_nine_rows_is_refused,
    it_works_in_a_pipeline,
)
