"""Checks of an adapter's results, and of invariances: to global seeds, row order, class names, table types.

The same data in the same order with the same seed must give exactly the same numbers, also with new class
names that sort in the same order. Another order of the target's rows, or of the classes, leads to other
random numbers (folds, batches, initial weights), so there the mix only has to agree to within 0.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from osls._core.arrays import AnyArray
from osls.datasets.simulate import OSLSProblem, simulate_osls
from osls.testing.running import ContractError, Subject, blobs, close, demand, same

_ATTRIBUTES = ("classes_", "target_marginal_", "novel_prevalence_", "target_proba_", "target_labels_")
_ROUNDING = 1e-5


def answers_are_distributions(subject: Subject) -> None:
    """Shapes, sums and signs of all fitted attributes and predictions."""
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
    """Its share falls from a third to less than a sixth."""
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


ANSWERS = (
    answers_are_distributions,
    answers_agree_with_each_other,
    no_novel_class,
    a_tiny_novel_class,
    one_known_class,
    classes_of_unequal_size,
    a_class_absent_from_the_target,
)


_NOISE = 0.15
_NAMES = np.array(["ant", "bee", "cat"])


def same_seed_same_answer(subject: Subject) -> None:
    """A clone's fit, to arrays that may not be written to, gives the same numbers."""
    data = {key: value.copy() for key, value in subject.problem.training_data().items()}
    for value in data.values():
        value.flags.writeable = False
    what = "a second fit with the same seed, to read-only arrays"
    _demand_same(subject, subject.copy(subject.fitted).fit(**data), what)


def inputs_are_left_alone(subject: Subject) -> None:
    """Neither fit nor predict_proba writes into what it is given."""
    rows = subject.problem.X_test.copy()
    subject.fitted.predict_proba(rows)
    for key, value in subject.problem.training_data().items():
        same(subject.given[key], value, f"{key} after fit")
    same(rows, subject.problem.X_test, "X after predict_proba")


def fitting_again_forgets(subject: Subject) -> None:
    """What an earlier fit learned leaves no trace."""
    problem, model = subject.problem, subject.fresh()
    fewer = problem.y_source != problem.classes[-1]
    model.fit(problem.X_source[fewer], problem.y_source[fewer], X_target=problem.X_target[::2])
    _demand_same(subject, model.fit(**problem.training_data()), "a fit after a fit to other data")


def global_random_state_is_neither_read_nor_changed(subject: Subject) -> None:
    """Seeds are parameters."""
    import torch

    def seed() -> None:
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)

    def draw() -> tuple[float, float]:
        return float(np.random.random()), float(torch.rand(1))  # noqa: NPY002

    before = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            seed()
            _demand_same(subject, subject.fit(), "a fit under another global random state")
            drawn = draw()
            seed()
            demand(drawn == draw(), "fit or predict_proba changes the global random state.")
    finally:
        np.random.set_state(before)  # noqa: NPY002


def rows_are_judged_one_by_one(subject: Subject) -> None:
    """A row's prediction does not depend on the other rows or on their order."""
    X = subject.problem.X_test
    proba = subject.fitted.predict_proba(X)
    close(subject.fitted.predict_proba(X[::-1].copy()), proba[::-1], "rows in reverse order", _ROUNDING)
    close(subject.fitted.predict_proba(X[:1]), proba[:1], "one row alone", _ROUNDING)


def order_of_target_rows_hardly_matters(subject: Subject) -> None:
    """Predictions follow their rows; the mix changes by no more than the noise of another seed."""
    order = np.random.default_rng(1).permutation(len(subject.problem.X_target))
    model = subject.fit(X_target=subject.problem.X_target[order])
    _demand_close_mix(model.target_marginal_, subject, "target_marginal_ for shuffled target rows")
    agreeing = float(np.mean(model.target_labels_ == subject.fitted.target_labels_[order]))
    demand(
        agreeing > 1 - _NOISE,
        f"only {agreeing:.0%} of target_labels_ follow their rows when the target is shuffled.",
    )


def target_labels_cannot_be_passed(subject: Subject) -> None:
    """``fit`` has no argument that takes them."""
    from inspect import signature

    names = set(signature(subject.fresh().fit).parameters)
    hidden = {name for name in names if "target" in name.lower() and name != "X_target"}
    demand("X_target" in names, f"fit has no argument X_target; it has {sorted(names)}.")
    demand(not hidden, f"fit takes {sorted(hidden)}: only X_target may describe the target.")


def new_names_in_the_same_order_change_nothing(subject: Subject) -> None:
    """The names sort in the order of the numbers, so the same random numbers are drawn."""
    model = subject.fit(y=_NAMES[subject.problem.y_source])
    same(model.classes_[:-1], _NAMES, "classes_ of classes with names")
    same(model.target_proba_, subject.fitted.target_proba_, "target_proba_ of classes with names")
    unknown = set(np.unique(model.predict(subject.problem.X_test)).tolist()) - set(model.classes_.tolist())
    demand(not unknown, f"predict answers {sorted(map(str, unknown))}, which classes_ does not have.")


def renaming_classes_permutes_the_answer(subject: Subject) -> None:
    """Reversing the names reverses the mix. There is no novel class here, to keep the mix simple."""
    X, y = blobs(sizes=(300, 200, 120))
    problem = simulate_osls(X, y, novel=0, source_fraction=(0.3, 0.4), test_size=0, random_state=0)
    mixes = []
    for names in (_NAMES, _NAMES[::-1]):
        model = subject.fresh().fit(problem.X_source, names[problem.y_source], X_target=problem.X_target)
        mix = dict(zip(model.classes_.tolist(), model.target_marginal_.tolist(), strict=True))
        mixes.append([mix[name] for name in names.tolist()])
    close(mixes[1], mixes[0], "target_marginal_ by class, after the names were reversed", _NOISE)


def kinds_of_tables_agree(subject: Subject) -> None:
    """float64, pandas, polars and torch hold the same numbers, so they give the same answers."""
    for kind, convert in _converters(subject.problem.X_source.shape[1]):
        model = subject.fit(X=convert(subject.problem.X_source), X_target=convert(subject.problem.X_target))
        # Double precision has digits that single precision has not.
        tolerance = 1e-5 if subject.inherits else 1e-3
        close(model.target_proba_, subject.fitted.target_proba_, f"target_proba_ from {kind}", tolerance)
        predicted = np.asarray(model.predict(convert(subject.problem.X_test)))
        demand(
            predicted.shape == subject.problem.y_test.shape,
            f"predict from {kind} has shape {predicted.shape}.",
        )


def sparse_rows_agree_or_are_refused(subject: Subject) -> None:
    """CSR matrices give about the same mix; an adapter that cannot read them says so."""
    source, target = (sparse.csr_matrix(X) for X in (subject.problem.X_source, subject.problem.X_target))
    try:
        model = subject.fit(X=source, X_target=target)
    except (TypeError, ValueError) as error:
        if subject.inherits or "parse" not in str(error):
            raise ContractError(f"a CSR matrix raises {type(error).__name__}: {error}") from error
        return
    _demand_close_mix(model.target_marginal_, subject, "target_marginal_ from CSR matrices")
    predicted = np.asarray(model.predict(sparse.csr_matrix(subject.problem.X_test)))
    demand(predicted.shape == subject.problem.y_test.shape, f"predict from CSR has shape {predicted.shape}.")


def _converters(width: int) -> Iterator[tuple[str, Any]]:
    import pandas as pd
    import torch

    columns = [f"x{i}" for i in range(width)]
    yield "float64 in columns", lambda X: np.asfortranarray(X, dtype=np.float64)
    yield "a pandas DataFrame", lambda X: pd.DataFrame(X, columns=columns)
    try:
        import polars as pl
    except ImportError:
        pass
    else:
        yield "a polars DataFrame", lambda X: pl.DataFrame(X, schema=columns)
    yield "a torch tensor", torch.from_numpy


def _demand_same(subject: Subject, model: Any, what: str) -> None:
    X = subject.problem.X_test
    same(model.target_marginal_, subject.fitted.target_marginal_, f"target_marginal_ of {what}")
    same(model.target_proba_, subject.fitted.target_proba_, f"target_proba_ of {what}")
    same(model.predict_proba(X), subject.fitted.predict_proba(X), f"predict_proba of {what}")


def _demand_close_mix(mix: AnyArray, subject: Subject, what: str) -> None:
    close(mix, subject.fitted.target_marginal_, what, _NOISE)


SYMMETRIES = (
    same_seed_same_answer,
    inputs_are_left_alone,
    fitting_again_forgets,
    global_random_state_is_neither_read_nor_changed,
    rows_are_judged_one_by_one,
    order_of_target_rows_hardly_matters,
    target_labels_cannot_be_passed,
    new_names_in_the_same_order_change_nothing,
    renaming_classes_permutes_the_answer,
    kinds_of_tables_agree,
    sparse_rows_agree_or_are_refused,
)
