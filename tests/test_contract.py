"""What every adapter promises, checked on all of them; the promises themselves are in ``osls.testing``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

import osls.baselines
from conftest import ADAPTERS, FOREST
from osls import PULSE
from osls.base import OpenSetAdapter
from osls.baselines import SourceOnly
from osls.datasets import simulate_osls
from osls.testing import adapter_checks

# Of 226 target rows one split holds out 45, from which the novel share is estimated: see below for more rows.
ONE_SPLIT = ("pulse-fine-tune", "k-pu-one-split")
CONTRACT = [
    pytest.param(check, id=f"{name}-{title}")
    for name, adapter in ADAPTERS.items()
    for title, check in adapter_checks(adapter)
]

EXTRA_COLUMN = "classes_ and predict_proba have one entry more than y has classes: the novel one"
NOT_APPLICABLE = {
    "check_classifiers_classes": EXTRA_COLUMN,
    "check_classifiers_train": EXTRA_COLUMN,
    "check_estimator_sparse_array": EXTRA_COLUMN,
    "check_estimator_sparse_matrix": EXTRA_COLUMN,
    # Its data has one row of a class, and folds are drawn by row; tests/test_sample_weight.py has the same.
    "check_sample_weight_equivalence_on_dense_data": "folds and forests are drawn at random, row by row",
    "check_sample_weight_equivalence_on_sparse_data": "folds and forests are drawn at random, row by row",
}


def test_discovery_misses_no_adapter():
    every = {c for c in vars(osls.baselines).values() if isinstance(c, type)} | {PULSE}
    assert {type(a) for a in ADAPTERS.values()} == {c for c in every if issubclass(c, OpenSetAdapter)}


@pytest.mark.filterwarnings("ignore:X_target was not given")
@pytest.mark.filterwarnings("ignore:class .* has .* samples in y")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        PULSE(source_classifier=FOREST, n_folds=2, random_state=0),
        PULSE(source_classifier="mlp", max_steps=60, n_folds=2, random_state=0),
        SourceOnly(source_classifier=FOREST, n_folds=2, random_state=0),
    ],
    expected_failed_checks=lambda estimator: NOT_APPLICABLE,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", CONTRACT)
def test_contract(check):
    check()


@pytest.mark.parametrize("name", ONE_SPLIT)
def test_one_split_of_more_rows_is_not_noisy(name):
    X, y = make_blobs([1000] * 4, centers=4 * np.eye(4), random_state=0)
    p = simulate_osls(X, y, novel=[3], random_state=0)
    order = np.random.default_rng(1).permutation(len(p.X_target))
    first, second = (
        clone(ADAPTERS[name]).fit(p.X_source, p.y_source, X_target=rows).target_marginal_
        for rows in (p.X_target, p.X_target[order])
    )
    np.testing.assert_allclose(first, second, atol=0.08)


@pytest.mark.parametrize("name", ADAPTERS)
def test_class_with_one_sample(name, problem):
    y = problem.y_source.copy()
    y[0] = 7
    with pytest.raises(ValueError, match="class 7 has 1 sample in y"):
        clone(ADAPTERS[name]).fit(problem.X_source, y, X_target=problem.X_target)


def test_class_smaller_than_the_folds_is_a_warning(problem):
    y = problem.y_source.copy()
    y[:3] = 7
    model = clone(ADAPTERS["pulse-trees"]).set_params(n_folds=5)
    with pytest.warns(UserWarning, match="fewer than n_folds=5; using 3 folds"):
        model.fit(problem.X_source, y, X_target=problem.X_target)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.full((9, 5), np.nan), "y": np.arange(9)}, "Input X contains NaN"),
        ({"X": np.zeros((0, 5)), "y": []}, "X: Found array with 0 sample"),
        ({"X_target": np.zeros((0, 5))}, "X_target: Found array with 0 sample"),
        ({"X_target": np.zeros((20, 4))}, "X_target has 4 features but X has 5"),
        ({"X_target": np.zeros((9, 5))}, "X_target has 9 rows; at least 10"),
        ({"y": None}, "requires y to be passed"),
    ],
)
def test_what_the_common_errors_say(changes, message, problem):
    with pytest.raises(ValueError, match=message):
        clone(ADAPTERS["source-only"]).fit(**{**problem.training_data(), **changes})


@pytest.mark.parametrize("sides", [("X", "X_target"), ("X",), ("X_target",)], ids=" and ".join)
def test_either_side_may_be_sparse(sides, problem):
    data = problem.training_data()
    model = SourceOnly(source_classifier="linear", n_folds=2, random_state=0)
    expected = clone(model).fit(**data).target_marginal_
    found = clone(model).fit(**{k: sparse.csr_matrix(v) if k in sides else v for k, v in data.items()})
    np.testing.assert_allclose(found.target_marginal_, expected, atol=0.05)
