"""A fit forgets the one before it, and publishes nothing until it has found everything."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from conftest import ADAPTERS
from osls import PULSE

FITTED_ON_A_TARGET = (
    "novel_interval_",
    "marginal_interval_",
    "novelty_pvalue_",
    "diagnostics_",
    "novel_bound_",
)


def learned(model) -> set[str]:
    return {name for name in vars(model) if name.endswith("_")}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_second_fit_without_a_target_keeps_nothing_of_the_first(name, problem):
    model = clone(ADAPTERS[name]).fit(**problem.training_data())
    with pytest.warns(UserWarning, match="X_target was not given"):
        model.fit(problem.X_source, problem.y_source)
    with pytest.warns(UserWarning, match="X_target was not given"):
        fresh = clone(ADAPTERS[name]).fit(problem.X_source, problem.y_source)
    assert learned(model) == learned(fresh)
    assert not any(hasattr(model, attribute) for attribute in FITTED_ON_A_TARGET)
    np.testing.assert_array_equal(model.predict_proba(problem.X_test), fresh.predict_proba(problem.X_test))


def test_a_fit_that_fails_leaves_the_earlier_one_as_it_was(problem):
    class Failing(PULSE):
        def _answer(self, *given):
            super()._answer(*given)
            raise RuntimeError("late")

    model = clone(ADAPTERS["pulse-trees"]).fit(**problem.training_data())
    before, answers = learned(model), model.predict_proba(problem.X_test)
    model.__class__ = Failing
    with pytest.raises(RuntimeError, match="late"):
        model.fit(problem.X_source, problem.y_source, X_target=problem.X_target[::2])
    assert learned(model) == before
    assert len(model.target_labels_) == len(problem.X_target)
    np.testing.assert_array_equal(model.predict_proba(problem.X_test), answers)


@pytest.mark.parametrize("wrong", ["X", "y", "X_target"])
def test_a_fit_on_wrong_rows_leaves_the_columns_of_the_earlier_one(problem, wrong):
    data = problem.training_data()
    model = clone(ADAPTERS["source-only"]).fit(**data)
    before, answers = learned(model), model.predict_proba(problem.X_test)
    other = {name: value[:, :3] if value.ndim == 2 else value for name, value in data.items()}
    other[wrong] = data[wrong][:5] if wrong == "y" else other[wrong] * np.nan
    with pytest.raises(ValueError, match=wrong):
        model.fit(**other)
    assert learned(model) == before
    np.testing.assert_array_equal(model.predict_proba(problem.X_test), answers)


def test_history_is_that_of_the_last_fit(problem):
    model = clone(ADAPTERS["pulse-trees"])
    first = model.fit(**problem.training_data()).history_
    assert model.fit(**problem.training_data()).history_ == first
    assert model.history_ is not first
