"""Missing values and words in the rows that PULSE is given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags

import osls
from osls import PULSE
from osls.testing import blobs
from osls.training.predictors import Offsets

FEW = {"n_folds": 3, "rounds": 1, "n_bootstrap": 10, "random_state": 0}
BOOSTING = HistGradientBoostingClassifier(max_iter=10)


@pytest.fixture(scope="module")
def problem():
    X, y = blobs(sizes=(90, 90, 90))
    X[np.random.default_rng(1).random(X.shape) < 0.05] = np.nan
    labelled = (y < 2) & (np.arange(len(y)) % 2 == 0)
    return X[labelled], y[labelled], X[~labelled]


@pytest.mark.parametrize("model", [BOOSTING, "trees"], ids=["boosting", "trees"])
def test_missing_values_pass_if_both_models_take_them(problem, model, tmp_path):
    X, y, X_target = problem
    fitted = PULSE(source_classifier=model, discriminator=model, **FEW).fit(X, y, X_target=X_target)
    proba = fitted.predict_proba(X_target)
    assert np.isfinite(proba).all()
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(osls.load(tmp_path / "model").predict_proba(X_target), proba)


@pytest.mark.parametrize("models", [("trees", "auto"), (LogisticRegression(), BOOSTING), ("mlp", "mlp")])
def test_missing_values_are_refused_if_one_model_does_not(problem, models):
    X, y, X_target = problem
    model = PULSE(source_classifier=models[0], discriminator=models[1], **FEW)
    assert not get_tags(model).input_tags.allow_nan
    with pytest.raises(ValueError, match="X contains NaN"):
        model.fit(X, y, X_target=X_target)
    with pytest.raises(ValueError, match="X_target contains NaN"):
        model.fit(np.nan_to_num(X), y, X_target=X_target)


def test_infinite_values_never_pass(problem):
    X, y, X_target = problem
    bad = np.where(np.isnan(X), np.inf, X)
    with pytest.raises(ValueError, match="infinity"):
        PULSE(source_classifier=BOOSTING, discriminator=BOOSTING, **FEW).fit(bad, y, X_target=X_target)


def test_a_column_far_from_zero_keeps_its_digits_beside_missing_values():
    values = np.array([[1e9 + 0.25], [np.nan], [1e9 + 0.5], [1e9 + 0.75]])
    encoded = Offsets(values)(values).ravel()
    assert len(np.unique(encoded[[0, 2, 3]])) == 3
    assert np.isnan(encoded[1])


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, lambda d: pd.DataFrame(d).astype({"city": "category"})]
)
def test_words_are_named_with_their_column(make):
    table = make({"age": np.arange(20.0), "city": ["Oslo", "Rome"] * 10})
    model = PULSE(source_classifier=ExtraTreesClassifier(5), discriminator=ExtraTreesClassifier(5), **FEW)
    with pytest.raises(ValueError, match=r"X: the column 'city' holds words.*osls\.adapt.*TableVectorizer"):
        model.fit(table, [0, 1] * 10, X_target=table)
    with pytest.raises(ValueError, match="X_target: the column 'city' holds words"):
        model.fit(pd.DataFrame({"age": np.arange(20.0), "city": 1.0}), [0, 1] * 10, X_target=table)
