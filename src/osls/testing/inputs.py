"""Checks of how an adapter refuses: with a ValueError that names the argument."""

from __future__ import annotations

import numpy as np

from osls.testing.running import demand, demand_error
from osls.testing.subject import Subject

__all__ = ["CHECKS"]


def errors_name_values_that_are_not_finite(subject: Subject) -> None:
    """NaN and infinity, in the source and in the target."""
    for argument in ("X", "X_target"):
        for value in (np.nan, np.inf):
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
    """Other columns in the target, or in what is to be predicted; another number of labels."""
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
    """An adapter without a fit has nothing to say."""
    try:
        subject.fresh().predict_proba(subject.problem.X_test)
    except Exception as error:
        message = str(error)
    else:
        message = ""
    demand(message, "predict_proba before fit raises no error, or one without a message.")


CHECKS = (
    errors_name_values_that_are_not_finite,
    errors_name_empty_tables,
    errors_name_tables_that_do_not_fit,
    errors_name_labels_that_are_none,
    errors_name_words_among_the_features,
    predicting_before_fitting_is_an_error,
)
