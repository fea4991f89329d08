"""Checks of an adapter as an estimator: errors for invalid input, copies of it, inherited behaviour."""

from __future__ import annotations

import pickle  # nosec B403  # what is unpickled here was pickled two lines before
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from osls.testing.running import ContractError, Subject, close, demand, demand_error, same


def errors_name_values_that_are_not_finite(subject: Subject) -> None:
    """NaN, unless the adapter's tags allow it, and infinity, in the source and in the target."""
    # An adapter need not be made with scikit-learn's base classes.
    tags = getattr(subject.fitted, "__sklearn_tags__", None)
    allowed = tags is not None and tags().input_tags.allow_nan
    for argument in ("X", "X_target"):
        for value in (np.inf,) if allowed else (np.nan, np.inf):
            X = subject.problem.training_data()[argument].copy()
            X[3, 1] = value
            what = f"{value} in {argument}"
            demand_error(lambda: subject.fit(**{argument: X}), (argument,), what)  # noqa: B023


def errors_name_empty_tables(subject: Subject) -> None:
    """No rows."""
    problem = subject.problem
    demand_error(
        lambda: subject.fit(X=problem.X_source[:0], y=problem.y_source[:0]), ("X",), "X without rows"
    )
    demand_error(lambda: subject.fit(X_target=problem.X_target[:0]), ("X_target",), "X_target without rows")


def errors_name_tables_that_do_not_fit(subject: Subject) -> None:
    """Other columns in the target or at prediction; another number of labels."""
    problem = subject.problem
    narrow = problem.X_target[:, :4]
    demand_error(lambda: subject.fit(X_target=narrow), ("X_target",), "X_target with a column less than X")
    wrong = problem.X_test[:, :3]
    demand_error(lambda: subject.fitted.predict(wrong), ("X",), "predict with two columns less than fit")
    demand_error(lambda: subject.fit(y=problem.y_source[:-1]), (), "y with a label less than X has rows")


def errors_name_labels_that_are_none(subject: Subject) -> None:
    """Labels that are missing or that are measurements."""
    demand_error(lambda: subject.fit(y=None), ("y",), "y=None")
    demand_error(lambda: subject.fit(y=subject.problem.y_source + 0.5), ("y",), "continuous y")


def errors_name_words_among_the_features(subject: Subject) -> None:
    """Text where numbers are expected."""
    for argument in ("X", "X_target"):
        words = subject.problem.training_data()[argument].astype(str).astype(object) + "a"
        demand_error(lambda: subject.fit(**{argument: words}), (argument,), f"words in {argument}")  # noqa: B023


def predicting_before_fitting_is_an_error(subject: Subject) -> None:
    """An unfitted adapter must raise an error with a message."""
    try:
        subject.fresh().predict_proba(subject.problem.X_test)
    except Exception as error:
        message = str(error)
    else:
        message = ""
    demand(message, "predict_proba before fit raises no error, or one without a message.")


_INPUT_CHECKS = (
    errors_name_values_that_are_not_finite,
    errors_name_empty_tables,
    errors_name_tables_that_do_not_fit,
    errors_name_labels_that_are_none,
    errors_name_words_among_the_features,
    predicting_before_fitting_is_an_error,
)


def clones_are_unfitted(subject: Subject) -> None:
    """A copy of the parameters, and nothing else."""
    if hasattr(subject.fitted, "get_params"):
        kept = hasattr(subject.copy(subject.fitted), "classes_")
        demand(not kept, "sklearn.base.clone copies classes_: it is a parameter, or __init__ sets it.")


def pickles_predict_alike(subject: Subject) -> None:
    """Through pickle and back."""
    try:
        copy = pickle.loads(pickle.dumps(subject.fitted))  # nosec B301  # our own bytes
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ContractError(f"the fitted adapter cannot be pickled ({error}).") from error
    _demand_alike(subject, copy, "an unpickled copy")


def saved_models_predict_alike(subject: Subject) -> None:
    """Through ``save`` and :func:`osls.load`; saving a class unknown to osls fails and leaves no files."""
    from osls.persist import ModelError, load

    if not hasattr(subject.fitted, "save"):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        try:
            subject.fitted.save(path)
        except ModelError as error:
            demand(
                not type(subject.fitted).__module__.startswith("osls."), f"save raises ModelError: {error}"
            )
            demand(not list(Path(folder).iterdir()), "save raises ModelError but leaves files behind.")
            return
        _demand_alike(subject, load(path), "a saved and loaded copy")


def _demand_alike(subject: Subject, copy: Any, what: str) -> None:
    X = subject.problem.X_test
    same(copy.classes_, subject.fitted.classes_, f"classes_ of {what}")
    same(copy.target_marginal_, subject.fitted.target_marginal_, f"target_marginal_ of {what}")
    same(copy.predict_proba(X), subject.fitted.predict_proba(X), f"predict_proba of {what}")


_COPY_CHECKS = (clones_are_unfitted, pickles_predict_alike, saved_models_predict_alike)

EVERYONES = (*_INPUT_CHECKS, *_COPY_CHECKS)


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
    """The score is the accuracy over k+1 classes; any unknown label counts as novel."""
    X, y = subject.problem.X_test, subject.problem.y_test
    accuracy = np.mean(subject.fitted.predict(X) == y)
    close(subject.fitted.score(X, y), accuracy, "score", _ROUNDING)
    close(subject.fitted.score(X, np.where(y == -1, 99, y)), accuracy, "score with other names", _ROUNDING)


def without_a_target_it_warns_and_keeps_the_source_mix(subject: Subject) -> None:
    """It is then a classifier of the known classes."""
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
    """Nine rows are too few to estimate a mix."""
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


INHERITED = (
    importance_weights_are_the_ratio_of_the_mixes,
    novelty_score_is_the_last_column,
    score_counts_unknown_labels_as_novel,
    without_a_target_it_warns_and_keeps_the_source_mix,
    novel_label_is_the_callers_choice,
    a_target_of_nine_rows_is_refused,
    it_works_in_a_pipeline,
)
