"""What every adapter promises, checked on all of them."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import osls.baselines
from conftest import ADAPTERS, FOREST, blobs
from osls import PULSE
from osls.base import OpenSetAdapter
from osls.baselines import SourceOnly
from osls.datasets import simulate_osls

EXTRA_COLUMN = "classes_ and predict_proba have one entry more than y has classes: the novel one"
NOT_APPLICABLE = {
    "check_classifiers_classes": EXTRA_COLUMN,
    "check_classifiers_train": EXTRA_COLUMN,
    "check_estimator_sparse_array": EXTRA_COLUMN,
    "check_estimator_sparse_matrix": EXTRA_COLUMN,
}


@pytest.fixture(scope="module", params=ADAPTERS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name, problem):
    return clone(ADAPTERS[name]).fit(**problem.training_data())


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


def test_answers_are_distributions(fitted, problem):
    k = len(problem.classes)
    np.testing.assert_array_equal(fitted.classes_, [*problem.classes, -1])
    assert fitted.target_marginal_.shape == (k + 1,)
    assert fitted.target_marginal_.sum() == pytest.approx(1)
    assert (fitted.target_marginal_ >= 0).all()
    assert fitted.novel_prevalence_ == fitted.target_marginal_[-1]
    assert fitted.importance_weights_.shape == (k,)
    for proba, rows in (
        (fitted.target_proba_, problem.X_target),
        (fitted.predict_proba(problem.X_test), problem.X_test),
    ):
        assert proba.shape == (len(rows), k + 1)
        assert (proba >= 0).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(fitted.target_labels_, fitted.classes_[fitted.target_proba_.argmax(axis=1)])
    np.testing.assert_array_equal(
        fitted.novelty_score(problem.X_test), fitted.predict_proba(problem.X_test)[:, -1]
    )


def test_importance_weights_are_the_marginal_ratio(fitted, problem):
    known = fitted.target_marginal_[:-1] / (1 - fitted.novel_prevalence_)
    np.testing.assert_allclose(fitted.importance_weights_, known / problem.source_marginal)


def test_score_counts_unknown_labels_as_novel(fitted, problem):
    renamed = np.where(problem.y_test == -1, 99, problem.y_test)
    assert fitted.score(problem.X_test, renamed) == fitted.score(problem.X_test, problem.y_test)
    assert fitted.score(problem.X_test, problem.y_test) == np.mean(
        fitted.predict(problem.X_test) == problem.y_test
    )


def test_same_seed_same_answer_and_inputs_untouched(name, fitted, problem):
    data = problem.training_data()
    before = {key: value.copy() for key, value in data.items()}
    again = clone(ADAPTERS[name]).fit(**data)
    np.testing.assert_array_equal(again.target_proba_, fitted.target_proba_)
    np.testing.assert_array_equal(again.predict_proba(problem.X_test), fitted.predict_proba(problem.X_test))
    for key, value in data.items():
        np.testing.assert_array_equal(value, before[key])


def test_global_random_state_is_neither_read_nor_changed(name, fitted, problem):
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    again = clone(ADAPTERS[name]).fit(**problem.training_data())
    np.testing.assert_array_equal(again.target_proba_, fitted.target_proba_)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    torch.testing.assert_close(torch.rand(1), drawn)


def test_target_labels_are_unreachable(name, fitted, problem):
    corrupted = replace(
        problem, y_target=np.full_like(problem.y_target, 77), y_test=np.full_like(problem.y_test, 77)
    )
    again = clone(ADAPTERS[name]).fit(**corrupted.training_data())
    np.testing.assert_array_equal(again.target_proba_, fitted.target_proba_)


def test_pickle_gives_the_same_predictions(fitted, problem):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(problem.X_test), fitted.predict_proba(problem.X_test))


def test_renaming_classes_renames_the_answer(name, fitted, problem):
    # The order of the names is that of the numbers, so that the same random numbers are drawn.
    names = np.array(["ant", "bee", "cat"])
    again = clone(ADAPTERS[name]).fit(problem.X_source, names[problem.y_source], X_target=problem.X_target)
    assert again.classes_.tolist() == ["ant", "bee", "cat", "novel"]
    np.testing.assert_array_equal(again.target_proba_, fitted.target_proba_)
    assert set(again.predict(problem.X_test)) <= set(again.classes_)


def test_containers_agree(name, fitted, problem):
    X, y, Xt = problem.X_source, problem.y_source, problem.X_target
    columns = [f"x{i}" for i in range(X.shape[1])]
    tables = {
        "float64": (X.astype(np.float64), Xt.astype(np.float64)),
        "pandas": (pd.DataFrame(X, columns=columns), pd.DataFrame(Xt, columns=columns)),
        "polars": (pl.DataFrame(X, schema=columns), pl.DataFrame(Xt, schema=columns)),
        "torch": (torch.from_numpy(X), torch.from_numpy(Xt)),
    }
    for kind, (source, target) in tables.items():
        again = clone(ADAPTERS[name]).fit(source, y, X_target=target)
        np.testing.assert_array_equal(again.target_proba_, fitted.target_proba_, err_msg=kind)
        assert again.predict(target).shape == (len(Xt),)


def test_sparse_agrees_with_dense(name, fitted, problem):
    again = clone(ADAPTERS[name]).fit(
        sparse.csr_matrix(problem.X_source), problem.y_source, X_target=sparse.csr_matrix(problem.X_target)
    )
    assert again.novel_prevalence_ == pytest.approx(fitted.novel_prevalence_, abs=0.05)
    assert again.predict(sparse.csr_matrix(problem.X_test)).shape == problem.y_test.shape


def test_one_row_can_be_predicted(fitted, problem):
    assert fitted.predict(problem.X_test[:1]).shape == (1,)


def test_works_in_a_pipeline(name, problem):
    with config_context(enable_metadata_routing=True):
        adapter = clone(ADAPTERS[name]).set_fit_request(X_target=True)
        pipeline = make_pipeline(StandardScaler(), adapter, transform_input=["X_target"])
        pipeline.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
        assert pipeline.predict_proba(problem.X_test).shape == (len(problem.X_test), 4)


@pytest.mark.parametrize(
    ("sizes", "novel"),
    [((120, 120, 120), 0), ((120, 120), [1]), ((200, 200, 6), [2]), ((60, 200, 90), [2])],
    ids=["no novel class", "one known class", "tiny novel class", "unequal"],
)
def test_edge_problems(name, sizes, novel):
    p = simulate_osls(*blobs(sizes=sizes), novel=novel, random_state=0)
    model = clone(ADAPTERS[name]).fit(**p.training_data())
    assert model.target_marginal_.sum() == pytest.approx(1)
    assert model.predict_proba(p.X_test).shape == (len(p.X_test), len(p.classes) + 1)


def test_a_class_absent_from_the_target(name):
    X, y = blobs()
    source, target = y != 3, (y != 0)
    model = clone(ADAPTERS[name]).fit(X[source], y[source], X_target=X[target])
    assert model.target_marginal_[0] < 0.1


class TestBadInput:
    def fit(self, name, problem, **changes):
        data = {**problem.training_data(), **changes}
        return clone(ADAPTERS[name]).fit(**data)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @pytest.mark.parametrize("argument", ["X", "X_target"])
    def test_not_finite(self, name, problem, argument, value):
        X = problem.training_data()[argument].copy()
        X[3, 1] = value
        with pytest.raises(ValueError, match=f"Input {argument} contains"):
            self.fit(name, problem, **{argument: X})

    def test_empty(self, name, problem):
        with pytest.raises(ValueError, match="0 sample"):
            self.fit(name, problem, X=problem.X_source[:0], y=problem.y_source[:0])
        with pytest.raises(ValueError, match="0 sample"):
            self.fit(name, problem, X_target=problem.X_target[:0])

    def test_other_columns(self, name, problem):
        with pytest.raises(ValueError, match="X_target has 4 features but X has 5"):
            self.fit(name, problem, X_target=problem.X_target[:, :4])

    def test_small_target(self, name, problem):
        with pytest.raises(ValueError, match="X_target has 9 rows; at least 10"):
            self.fit(name, problem, X_target=problem.X_target[:9])

    def test_label_that_is_the_novel_one(self, name, problem):
        with pytest.raises(ValueError, match="pass another one as novel_label"):
            self.fit(name, problem, y=np.where(problem.y_source == 0, -1, problem.y_source))

    def test_novel_label_of_the_users_own(self, name, problem):
        model = clone(ADAPTERS[name]).set_params(novel_label=42).fit(**problem.training_data())
        assert model.classes_[-1] == 42
        assert 42 in model.predict(problem.X_target) or model.novel_prevalence_ == 0

    def test_no_labels(self, name, problem):
        with pytest.raises(ValueError, match="requires y to be passed"):
            self.fit(name, problem, y=None)

    def test_words_in_the_features(self, name, problem):
        with pytest.raises(ValueError, match="could not convert string"):
            self.fit(name, problem, X=problem.X_source.astype(str).astype(object) + "a")

    def test_continuous_labels(self, name, problem):
        with pytest.raises(ValueError, match="continuous"):
            self.fit(name, problem, y=problem.y_source + 0.5)

    def test_class_with_one_sample(self, name, problem):
        y = problem.y_source.copy()
        y[0] = 7
        with pytest.raises(ValueError, match="class 7 has 1 sample in y"):
            self.fit(name, problem, y=y)

    def test_predict_with_other_columns(self, fitted, problem):
        with pytest.raises(ValueError, match="5 features"):
            fitted.predict(problem.X_test[:, :3])


def test_class_smaller_than_the_folds_is_a_warning(problem):
    y = problem.y_source.copy()
    y[:3] = 7
    with pytest.warns(UserWarning, match="fewer than n_folds=5; using 3 folds"):
        clone(ADAPTERS["pulse-trees"]).fit(problem.X_source, y, X_target=problem.X_target)


def test_without_a_target_it_warns_and_keeps_the_source_mix(name, problem):
    with pytest.warns(UserWarning, match="X_target was not given"):
        model = clone(ADAPTERS[name]).fit(problem.X_source, problem.y_source)
    np.testing.assert_allclose(model.target_marginal_[:-1], problem.source_marginal)
    assert model.novel_prevalence_ == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.mean(model.predict(problem.X_source) == problem.y_source) > 0.9
