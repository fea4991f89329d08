"""Checks of what an adapter answers: distributions, on ordinary and on extreme problems."""

from __future__ import annotations

from typing import Any

import numpy as np

from osls.datasets.simulate import OSLSProblem, simulate_osls
from osls.testing.problems import Subject, blobs
from osls.testing.running import close, demand, same

__all__ = ["CHECKS"]

_ATTRIBUTES = ("classes_", "target_marginal_", "novel_prevalence_", "target_proba_", "target_labels_")
_ROUNDING = 1e-5


def answers_are_distributions(subject: Subject) -> None:
    """Shapes, sums and signs of everything an adapter publishes."""
    _demand_answers(subject.fitted, subject.problem)
    expected = [*subject.problem.classes.tolist(), subject.fitted.classes_[-1]]
    same(subject.fitted.classes_, expected, "classes_ (the known classes, sorted, then the novel label)")


def answers_agree_with_each_other(subject: Subject) -> None:
    """Labels are the most probable classes; the novel share is the last of the mix."""
    fitted, X = subject.fitted, subject.problem.X_test
    same(
        fitted.novel_prevalence_,
        fitted.target_marginal_[-1],
        "novel_prevalence_ against target_marginal_[-1]",
    )
    best = np.asarray(fitted.classes_)[fitted.target_proba_.argmax(axis=1)]
    same(fitted.target_labels_, best, "target_labels_ against the largest of target_proba_")
    best = np.asarray(fitted.classes_)[fitted.predict_proba(X).argmax(axis=1)]
    same(fitted.predict(X), best, "predict against the largest of predict_proba")


def no_novel_class(subject: Subject) -> None:
    """Nothing in the target is new."""
    _fit_and_demand(subject, simulate_osls(*blobs(sizes=(120, 120, 120)), novel=0, random_state=0))


def a_tiny_novel_class(subject: Subject) -> None:
    """Six novel rows among four hundred."""
    _fit_and_demand(subject, simulate_osls(*blobs(sizes=(200, 200, 6)), novel=[2], random_state=0))


def one_known_class(subject: Subject) -> None:
    """Learning from positive and unlabelled rows."""
    _fit_and_demand(subject, simulate_osls(*blobs(sizes=(120, 120)), novel=[1], random_state=0))


def classes_of_unequal_size(subject: Subject) -> None:
    """One class has three times the rows of another."""
    _fit_and_demand(subject, simulate_osls(*blobs(sizes=(60, 200, 90)), novel=[2], random_state=0))


def a_class_absent_from_the_target(subject: Subject) -> None:
    """Its share falls to less than half of what it was, a third."""
    X, y = blobs()
    source, target = y != 3, y != 0
    model = subject.fresh().fit(X[source], y[source], X_target=X[target])
    share = float(model.target_marginal_[0])
    demand(
        share < 1 / 6, f"target_marginal_ gives the class that is not in the target a share of {share:.3f}."
    )


def _fit_and_demand(subject: Subject, problem: OSLSProblem) -> None:
    _demand_answers(subject.fresh().fit(**problem.training_data()), problem)


def _demand_answers(model: Any, problem: OSLSProblem) -> None:
    for name in _ATTRIBUTES:
        demand(hasattr(model, name), f"fit does not set {name}.")
    k = len(problem.classes)
    demand(len(model.classes_) == k + 1, f"classes_ has {len(model.classes_)} entries for {k} known classes.")
    _demand_distributions(np.asarray(model.target_marginal_)[None], (1, k + 1), "target_marginal_")
    rows = len(problem.X_target), len(problem.X_test)
    _demand_distributions(model.target_proba_, (rows[0], k + 1), "target_proba_")
    _demand_distributions(model.predict_proba(problem.X_test), (rows[1], k + 1), "predict_proba")
    interval = getattr(model, "marginal_interval_", None)
    if interval is not None:
        interval = np.asarray(interval)
        demand(interval.shape == (k + 1, 2), f"marginal_interval_ has shape {interval.shape}.")
        ordered = (interval >= 0).all() and (interval <= 1).all() and (interval[:, 0] <= interval[:, 1]).all()
        demand(ordered, "marginal_interval_: an end lies outside [0, 1] or the ends are the wrong way round.")


def _demand_distributions(proba: Any, shape: tuple[int, int], what: str) -> None:
    proba = np.asarray(proba)
    demand(proba.shape == shape, f"{what} has shape {proba.shape}, not {shape}.")
    demand(np.isfinite(proba).all(), f"{what} has values that are not finite.")
    demand(proba.min() >= 0, f"{what} has negative values, down to {proba.min():.3g}.")
    close(proba.sum(axis=1), np.ones(shape[0]), f"{what}, sums of the rows against 1", _ROUNDING)


CHECKS = (
    answers_are_distributions,
    answers_agree_with_each_other,
    no_novel_class,
    a_tiny_novel_class,
    one_known_class,
    classes_of_unequal_size,
    a_class_absent_from_the_target,
)
