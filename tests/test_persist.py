"""Models on disk: the same answers in another process, whole after a crash, no foreign code."""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree

import osls
import osls.baselines
import osls.mixture
from conftest import ADAPTERS, blobs
from osls import PULSE
from osls._core.names import exported_classes
from osls._core.saving import saveable
from osls._core.writing import draft_beside
from osls.app.predict import Adapted
from osls.app.tables.table_encoder import TableEncoder
from osls.base import OpenSetAdapter
from osls.baselines import DANCE, SourceOnly
from osls.datasets import simulate_osls
from osls.inference.diagnostics import Check, Diagnostics
from osls.mixture import BBE, DEDPUL, MixtureEstimator, Subsample
from osls.persist import ModelError, load, save
from osls.persist import tree as registry
from osls.persist.folder import drafting
from osls.pu import PUClassifier
from osls.shift import BBSE, LabelShiftEstimator

SMALL_FOREST = ExtraTreesClassifier(3, max_depth=5)


# -- Small problems ---------------------------------------------------------------------------------


def rows(kind: str) -> tuple[dict[str, object], object]:
    """Training data and new rows: a table, a wide CSR matrix (compressed for networks), or images."""
    problem = simulate_osls(*blobs(sizes=(24, 24, 24, 24)), novel=[3], random_state=0)
    data = problem.training_data()

    def shaped(X):
        if kind == "csr":
            wide = np.zeros((len(X), 1100), dtype=np.float32)
            wide[:, :5], wide[:, -5:] = np.maximum(X, 0), X > 3
            return sparse.csr_matrix(wide)
        return np.repeat(X, 4, axis=1)[:, :16].reshape(-1, 1, 4, 4) if kind == "images" else X

    data = {name: value if name == "y" else shaped(value) for name, value in data.items()}
    return data, shaped(problem.X_test)


def quick(adapter, kind: str):
    """The adapter with the least training, and with networks where trees cannot read the rows."""
    params = adapter.get_params(deep=False)
    # At level 1 something is always new, so that there are discriminators to save.
    small = {"max_steps": 5, "n_folds": 2, "n_bootstrap": 3, "novel_level": 1.0}
    changes = {name: value for name, value in small.items() if name in params}
    for part in ("source_classifier", "discriminator"):
        if part in params and kind == "images":
            changes[part] = "convnet"
        elif isinstance(params.get(part), BaseEstimator):
            changes[part] = SMALL_FOREST
    if kind == "images" and "max_steps" not in params and "novel_share" in params:
        # Its network only estimates the share and is not kept; it cannot be told to train for a moment.
        changes["novel_share"] = 0.25
    return clone(adapter).set_params(**changes)


PREDICT_ALL = """
import sys
from pathlib import Path
import numpy as np
import osls
import scipy.sparse
for folder in sorted(Path(sys.argv[1]).iterdir()):
    X = np.load(folder / "rows.npy")
    X = scipy.sparse.csr_matrix(X) if folder.name.endswith("csr") else X
    np.save(folder / "answers.npy", osls.load(folder / "model").predict_proba(X))
"""


@functools.singledispatch
def same(first, second) -> None:
    """Assert that two objects are equal to the bit, types and private parts included."""
    if hasattr(first, "__dict__") and not hasattr(first, "__qualname__"):
        left_out = {"owner", *getattr(first, "unsaved", ())}
        parts = set(vars(first)) - left_out
        assert parts == set(vars(second)) - left_out
        for name in parts:
            same_type(vars(first)[name], vars(second)[name])
    else:
        assert repr(first) == repr(second)


def same_type(first, second) -> None:
    assert type(first) is type(second)
    same(first, second)


@same.register
def _(first: np.ndarray, second) -> None:
    assert first.dtype == second.dtype
    if first.flags.forc:
        assert first.flags.f_contiguous == second.flags.f_contiguous
    if first.dtype == object:
        assert first.shape == second.shape
        same(first.ravel().tolist(), second.ravel().tolist())
    else:
        np.testing.assert_array_equal(first, second, strict=True)


@same.register
def _(first: torch.Tensor, second) -> None:
    assert first.dtype == second.dtype
    assert torch.equal(first, second)


@same.register
def _(first: torch.nn.Module, second) -> None:
    same_type(dict(first.state_dict()), dict(second.state_dict()))
    assert repr(first) == repr(second)


@same.register
def _(first: dict, second) -> None:
    assert list(map(repr, first)) == list(map(repr, second))
    for one, two in zip(first.values(), second.values(), strict=True):
        same_type(one, two)


@same.register(list)
@same.register(tuple)
def _(first, second) -> None:
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        same_type(one, two)


@same.register
def _(first: Tree, second) -> None:
    same_type(first.__getstate__(), second.__getstate__())


@same.register
def _(first: np.random.RandomState, second) -> None:
    same_type(first.get_state(legacy=False), second.get_state(legacy=False))


@same.register
def _(first: np.random.Generator, second) -> None:
    same_type(first.bit_generator.state, second.bit_generator.state)


def around(value, path: Path, **options):
    """Save, load, compare."""
    save(value, path, **options)
    again = load(path, **options)
    same_type(value, again)
    return again


@pytest.fixture(scope="module")
def linear():
    """A small fitted model: names as classes, arrays, and scikit-learn's parts."""
    X, y = blobs(sizes=(30, 30, 30))
    model = PULSE(source_classifier="linear", discriminator=SMALL_FOREST, n_folds=2, random_state=0)
    return model.fit(X[:60], np.array(["a", "b"])[y[:60]], X_target=X)


@pytest.fixture
def folder(linear, tmp_path):
    linear.save(tmp_path / "model")
    return tmp_path / "model"


# -- Round trips ------------------------------------------------------------------------------------


def test_every_adapter_answers_the_same_in_a_fresh_process(tmp_path):
    expected = {}
    for kind in ("table", "csr", "images"):
        data, X_new = rows(kind)
        for name, adapter in ADAPTERS.items():
            place = tmp_path / f"{name}-{kind}"
            model = quick(adapter, kind).fit(**data)
            model.save(place / "model")
            np.save(place / "rows.npy", X_new.toarray() if kind == "csr" else X_new)
            expected[place] = model.predict_proba(X_new)
            same_type(model, load(place / "model"))
    # One process for all: starting it takes longer than reading them.
    subprocess.run([sys.executable, "-c", PREDICT_ALL, str(tmp_path)], check=True)
    for place, proba in expected.items():
        np.testing.assert_array_equal(np.load(place / "answers.npy"), proba, err_msg=place.name)


def test_public_attributes_survive(linear, folder):
    again = load(folder)
    assert again.classes_.tolist() == ["a", "b", "novel"]
    for name in ("target_marginal_", "target_proba_", "target_labels_", "marginal_interval_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(linear, name), strict=True)
    assert again.novel_interval_ == linear.novel_interval_
    assert again.history_ == linear.history_
    assert again.get_params().keys() == linear.get_params().keys()


def test_a_loaded_model_can_be_fitted_again(linear, folder):
    data, _ = rows("table")
    again, fresh = load(folder).fit(**data), clone(linear).fit(**data)
    np.testing.assert_array_equal(again.target_proba_, fresh.target_proba_)


def test_default_blend_and_diagnostics(tmp_path):
    data, X_new = rows("csr")
    model = PULSE(max_steps=5, n_folds=2, n_bootstrap=3, random_state=np.random.RandomState(3)).fit(**data)
    check = Check("bin", float("nan"), 0.5, True, "fine")
    model.diagnostics_ = Diagnostics((check,), {"curve": (np.arange(3.0), np.array([1, np.inf, np.nan]))})
    again = around(model, tmp_path / "m")
    assert again.diagnostics_.verdict.status == "no violation seen"
    np.testing.assert_array_equal(again.predict_proba(X_new), model.predict_proba(X_new))


@pytest.mark.filterwarnings("ignore:X_target was not given")
@pytest.mark.parametrize("model", [DANCE(max_steps=5), SourceOnly(source_classifier=SMALL_FOREST)])
def test_models_without_a_target(model, tmp_path):
    data, X_new = rows("table")
    fitted = clone(model).fit(data["X"], data["y"])
    np.testing.assert_array_equal(
        around(fitted, tmp_path / "m").predict_proba(X_new), fitted.predict_proba(X_new)
    )


@pytest.mark.parametrize("objective", ["cvir", "nnpu", "elkan-noto"])
def test_pu_classifier(objective, tmp_path):
    X, y = blobs(sizes=(40, 40))
    part = "mlp" if objective == "nnpu" else SMALL_FOREST
    model = PUClassifier(
        objective, discriminator=part, mixture=DEDPUL(), max_steps=5, n_folds=2, random_state=0
    )
    model.fit(X[y == 0], X)
    np.testing.assert_array_equal(around(model, tmp_path / "m").predict_proba(X), model.predict_proba(X))


def test_mixture_and_shift_estimators(tmp_path):
    rng = np.random.default_rng(0)
    bbe = BBE().fit(rng.random(50), rng.random(60))
    assert around(bbe, tmp_path / "bbe").interval_ == bbe.interval_
    proba = rng.dirichlet([1, 1], 40)
    around(BBSE(calibration="bcts").fit(proba, np.arange(40) % 2, proba), tmp_path / "bbse")
    around(PULSE(mixture=DEDPUL()), tmp_path / "unfitted")


def test_a_fitted_source_classifier_is_saved_once(tmp_path):
    data, X_new = rows("table")
    given = make_pipeline(StandardScaler(), LogisticRegression()).fit(data["X"], data["y"])
    model = quick(PULSE(source_classifier=given, discriminator=SMALL_FOREST, random_state=0), "table")
    model.set_params(source_classifier=given).fit(**data)
    again = around(model, tmp_path / "m")
    assert again._predictor.classifier.predictor.estimator is again.source_classifier
    # A scaler and a regression, not two of each; the trees as a parameter, and two folds of them.
    assert len(list((tmp_path / "m/sklearn").iterdir())) == 2 + 1 + 2
    np.testing.assert_array_equal(again.predict_proba(X_new), model.predict_proba(X_new))


def test_a_pipeline_with_routing(tmp_path):
    data, X_new = rows("table")
    with config_context(enable_metadata_routing=True):
        adapter = SourceOnly(source_classifier=SMALL_FOREST, random_state=0).set_fit_request(X_target=True)
        model = make_pipeline(StandardScaler(), adapter, transform_input=["X_target"]).fit(**data)
        again = around(model, tmp_path / "m")
        again.fit(**data)
    np.testing.assert_array_equal(again.predict_proba(X_new), model.predict_proba(X_new))


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        HistGradientBoostingClassifier(max_iter=2),
        HistGradientBoostingClassifier(max_iter=2, early_stopping=True),
        CalibratedClassifierCV(GaussianNB(), cv=2),
        CalibratedClassifierCV(GaussianNB(), cv=2, method="isotonic"),
        VotingClassifier([("bayes", GaussianNB())], voting="soft"),
        MLPClassifier(max_iter=2, early_stopping=True, n_iter_no_change=1),
        MLPClassifier(max_iter=2, solver="lbfgs"),
        KNeighborsClassifier(),
        KNeighborsClassifier(algorithm="brute"),
        KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
        CalibratedClassifierCV(KNeighborsClassifier(), cv=2),
        LinearDiscriminantAnalysis(),
        LinearSVC(),
        LogisticRegressionCV(cv=2, max_iter=5),
        Perceptron(),
        RidgeClassifier(),
        SGDClassifier(loss="log_loss", max_iter=5),
        RandomForestClassifier(2),
        DecisionTreeClassifier(),
        make_pipeline(MinMaxScaler(), PCA(2), LogisticRegression()),
        make_pipeline(RobustScaler(), Normalizer(), QuantileTransformer(n_quantiles=5), LinearSVC()),
        make_pipeline(SimpleImputer(), PowerTransformer(), MaxAbsScaler(), LinearSVC()),
        VotingClassifier([("inner", make_pipeline(StandardScaler(), LinearSVC()))]),
        make_pipeline(ColumnTransformer([("a", StandardScaler(), [0, 1])]), LinearSVC()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::FutureWarning")
def test_estimators_of_many_kinds(estimator, classes, tmp_path):
    X, y = blobs(sizes=(40,) * classes)
    fitted = clone(estimator).fit(X, y)
    save(fitted, tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    if hasattr(fitted, "predict_proba"):
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("estimator", [GradientBoostingClassifier(n_estimators=2), SVC()])
def test_estimators_whose_contents_cannot_be_checked_must_be_named(estimator, tmp_path):
    X, y = blobs(sizes=(40, 40))
    fitted = clone(estimator).fit(X, y)
    with pytest.raises(ModelError, match="pass trusted=") as caught:
        save(fitted, tmp_path / "m")
    trusted = ast.literal_eval(re.search(r"trusted=(\[.*?\])", str(caught.value)).group(1))
    save(fitted, tmp_path / "m", trusted=trusted)
    with pytest.raises(ModelError, match=f"{type(estimator).__name__}.* not trusted"):
        load(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m", trusted=trusted).predict(X), fitted.predict(X))


def test_an_adapter_with_the_encoder_of_its_table(tmp_path):
    frame = pd.DataFrame({"age": [41, None, 30, 52] * 5, "city": ["Oslo", "Rome", "Oslo", None] * 5})
    encoder = TableEncoder().fit(frame, frame)
    X, y = encoder.transform(frame), np.array(["old", "young"] * 10)
    adapter = SourceOnly(source_classifier="linear", n_folds=2, random_state=0).fit(X, y, X_target=X)
    bundle = Adapted(encoder, adapter, ("old", "young", "novel"), "table", "group", metadata={"seed": 0})
    save(bundle, tmp_path / "m")
    again = load(tmp_path / "m")
    pd.testing.assert_frame_equal(again.predict(frame), bundle.predict(frame))
    assert again.metadata == {"seed": 0}


# -- Values -----------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.int8, st.integers(-128, 127)),
    st.builds(np.str_, st.text(max_size=3)),
    st.builds(np.bool_, st.booleans()),
)
arrays = st.builds(
    lambda shape, dtype: np.arange(np.prod(shape)).reshape(shape).astype(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["?", "i1", "u8", "f2", "f4", ">f8", "c16", "U7", "S3", "M8[ns]", "O"]),
)
keys = st.one_of(st.text(max_size=3), st.integers(), st.none(), st.tuples(st.integers(), st.text(max_size=2)))
trees = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=12,
)


# Many trees an example: writing to the disk takes longer than all else.
@settings(max_examples=25, deadline=None)
@given(several=st.lists(trees, max_size=10))
def test_plain_trees_come_back_as_they_were(several, tmp_path_factory):
    around(several, tmp_path_factory.mktemp("tree") / "m")


@pytest.mark.parametrize(
    "value",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["a", 1, 1.0, True, None, float("nan"), (1, "x")], dtype=object),
        np.array([["b", "a"], ["a", "b\0"]], dtype=object),
        np.array(2.5),
        np.float64("nan"),
        np.datetime64("2020-02-29"),
        np.bytes_(b"a\0"),
        -0.0,
        10**400,
        "\ud800",
        torch.arange(4, dtype=torch.bfloat16),
        torch.device("cpu"),
        np.random.RandomState(1),
        np.random.default_rng(2),
        np.random.Generator(np.random.Philox(3)),
        (np.memmap, "stands for an array"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_particular_values(value, tmp_path):
    if isinstance(value, tuple):
        stored = np.memmap(tmp_path / "file", dtype=np.float32, mode="w+", shape=(3,))
        save(stored, tmp_path / "m")
        assert type(load(tmp_path / "m")) is np.ndarray
    else:
        around(value, tmp_path / "m")


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_matrices(kind, tmp_path):
    matrix = kind(np.eye(3, 4))
    again = around(matrix, tmp_path / "m")
    np.testing.assert_array_equal(again.toarray(), np.eye(3, 4))


def test_one_array_under_two_names_stays_one(tmp_path):
    array = np.arange(1000.0)
    again = around({"a": array, "b": [array]}, tmp_path / "m")
    assert again["a"] is again["b"][0]
    again["a"][0] = 5  # and is writable
    assert (tmp_path / "m/tensors.safetensors").stat().st_size < 9000


def test_what_cannot_be_saved_is_named(tmp_path):
    loop: list[object] = []
    loop.append(loop)
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    for value, words in [
        (loop, "contains itself"),
        (deep, "recursion"),
        ({"x": {1, 2}}, r"model\['x'\] is of type builtins.set"),
        (1j, "complex"),
        (np.zeros(2, dtype="i4,i4"), "dtype"),
        (10**10_000, "JSON"),
        (sparse.csc_matrix(np.eye(2)), "csc_matrix"),
        (torch.nn.Linear(1, 1), "Linear"),
        (np.void(b"ab"), r"model is a scalar of dtype \|V2, which osls cannot save"),
    ]:
        with pytest.raises(ModelError, match=words):
            save(value, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match=r"pass trusted=\['x.Y'\]"):
        save(1, tmp_path / "m", trusted="x.Y")


def test_an_attribute_of_the_user_is_named(tmp_path):
    shift = BBSE()
    shift.note = "mine"
    with pytest.raises(ModelError, match="note is neither a parameter nor set by fit; delete it"):
        save(shift, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_neither_saving_nor_loading_touches_the_random_state(tmp_path):
    data, _ = rows("images")
    model = quick(ADAPTERS["dance"], "images").fit(**data)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    save(model, tmp_path / "m")
    load(tmp_path / "m")
    assert torch.equal(torch.rand(1), expected)


# -- The registry -----------------------------------------------------------------------------------


def test_everything_that_is_exported_can_be_saved():
    for package, base in (
        (osls.baselines, OpenSetAdapter),
        (osls.mixture, MixtureEstimator),
        (osls.shift, LabelShiftEstimator),
    ):
        for exported in exported_classes(package, base).values():
            assert registry.tag_of(exported) == exported.__name__


@pytest.mark.parametrize("kind", ["class", "function", "network"])
def test_tags_are_short_names_that_lead_back_to_what_they_name(kind):
    known = registry.everything(kind)
    assert known
    for tag, thing in known.items():
        assert tag.isidentifier()
        assert registry.find(tag, kind, "here") is thing
        assert registry.tag_of(thing, kind) == tag


def test_two_classes_of_one_name_cannot_both_be_saved():
    with pytest.raises(TypeError, match=r"two things would be saved as 'PULSE'.*osls\.pulse"):
        saveable(type("PULSE", (), {}))
    assert registry.tag_of(type("PULSE", (), {})) is None


# -- Functions and types of the user's --------------------------------------------------------------


def tanh_net(input_shape, n_outputs):
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(int(np.prod(input_shape)), n_outputs), torch.nn.Tanh()
    )


def relu_net(input_shape, n_outputs):
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(int(np.prod(input_shape)), n_outputs), torch.nn.ReLU()
    )


class Body(torch.nn.Module):
    def __init__(self, input_shape):
        super().__init__()
        self.linear = torch.nn.Linear(input_shape[0], 4)
        self.out_features = 4

    def forward(self, x):
        return self.linear(x)


@pytest.mark.parametrize("kind", ["table", "images"])
def test_networks_of_the_user_are_rebuilt_by_named_functions(kind, tmp_path):
    data, X_new = rows(kind)
    model = PULSE(
        source_classifier=tanh_net, discriminator=relu_net, max_steps=5, n_folds=2, random_state=0
    ).fit(**data)
    with pytest.raises(
        ModelError, match=r"model.discriminator is a function of yours.*factories={'relu_net'"
    ):
        model.save(tmp_path / "m")
    # Both make networks of the same shapes: which made which is told by what they answer.
    factories = {"relu": relu_net, "tanh": tanh_net}
    model.save(tmp_path / "m", factories=factories)
    again = load(tmp_path / "m", factories=factories)
    np.testing.assert_array_equal(again.predict_proba(X_new), model.predict_proba(X_new))
    assert again.source_classifier is tanh_net
    with pytest.raises(ModelError, match=r"needs your function 'tanh': pass it as load"):
        load(tmp_path / "m", factories={"relu": relu_net})
    with pytest.raises(ModelError, match=r"size mismatch|Missing key"):
        load(tmp_path / "m", factories={**factories, "tanh": lambda *_: torch.nn.Linear(1, 1)})
    model.set_params(source_classifier="auto", discriminator="auto")
    with pytest.raises(ModelError, match="none of factories= rebuilds"):
        model.save(tmp_path / "m", factories={"relu": relu_net, "broken": lambda *_: 1 / 0})
    with pytest.raises(ModelError, match="a network that a function of yours made"):
        model.save(tmp_path / "m")


def test_a_backbone_of_the_user(tmp_path):
    data, X_new = rows("table")
    model = DANCE(network=Body, max_steps=5, random_state=0).fit(**data)
    again = around(model, tmp_path / "m", factories={"body": Body})
    np.testing.assert_array_equal(again.predict_proba(X_new), model.predict_proba(X_new))
    with pytest.raises(ModelError, match="needs your function 'body'"):
        load(tmp_path / "m")


def test_other_functions_of_the_user(tmp_path):
    accept = {"accept": np.ones_like}
    around(Subsample(np.ones_like), tmp_path / "m", factories=accept)
    with pytest.raises(ModelError, match=r"model.acceptance is a function of yours"):
        save(Subsample(lambda score: score), tmp_path / "m")


class Majority(ClassifierMixin, BaseEstimator):
    """An estimator that nobody but this test knows."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.share_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        return np.tile(self.share_, (X.shape[0], 1))


@pytest.mark.parametrize("names", [[Majority], [f"{Majority.__module__}.Majority"]])
def test_types_of_the_user_must_be_trusted(names, tmp_path):
    data, X_new = rows("table")
    model = SourceOnly(source_classifier=Majority(), random_state=0).fit(**data)
    with pytest.raises(
        ModelError, match=r"Majority, which is not on the list.*pass trusted=\['.*Majority'\]"
    ):
        model.save(tmp_path / "m")
    model.save(tmp_path / "m", trusted=names)
    with pytest.raises(ModelError, match="Majority, which is not trusted"):
        load(tmp_path / "m")
    again = load(tmp_path / "m", trusted=names)
    np.testing.assert_array_equal(again.predict_proba(X_new), model.predict_proba(X_new))


# -- Damage -----------------------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_any_changed_byte_is_noticed(folder):
    rng = np.random.default_rng(0)
    for path in files_of(folder):
        whole = path.read_bytes()
        spots = {0, len(whole) - 1, *rng.integers(len(whole), size=10).tolist()}
        for spot in spots:
            flipped = bytearray(whole)
            flipped[spot] ^= 1 << int(rng.integers(8))
            path.write_bytes(flipped)
            with pytest.raises(ModelError):
                load(folder)
        path.write_bytes(whole)
    load(folder)


def test_truncated_grown_empty_and_missing_files_are_noticed(folder):
    for path in files_of(folder):
        whole = path.read_bytes()
        for wrong in (whole[:-1], whole[: len(whole) // 2], b"", whole + b" "):
            path.write_bytes(wrong)
            with pytest.raises(ModelError, match=path.name):
                load(folder)
        path.unlink()
        with pytest.raises(ModelError, match=path.name):
            load(folder)
        path.mkdir()
        with pytest.raises(ModelError, match=path.name):
            load(folder)
        path.rmdir()
        path.write_bytes(whole)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.json").write_text('{"name": "a web app"}')
    (tmp_path / "run/model").mkdir(parents=True)
    (tmp_path / "run/model/manifest.json").write_text("{}")
    for name, words in [
        ("nowhere", "does not exist"),
        ("nowhere/deep/m", "does not exist"),
        ("file", "is not a folder"),
        ("empty", "it has no manifest.json"),
        ("other", "has another format"),
        ("run", r"Pass .*run.model, which is one\."),
    ]:
        with pytest.raises(ModelError, match=words):
            load(tmp_path / name)


def reseal(folder: Path, change=lambda manifest: None) -> None:
    """Change a manifest as somebody would who knows the format: all digests are right again."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    for name, entry in dict(manifest["files"]).items():
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            entry |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    text = json.dumps({**manifest, "sha256": "0" * 64})
    text = text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1)
    (folder / "manifest.json").write_text(text)


def find_node(tree, test):
    """The first JSON object in a tree that passes a test."""
    if isinstance(tree, dict) and test(tree):
        return tree
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return next((found for item in inner if (found := find_node(item, test)) is not None), None)


def test_resealing_alone_is_accepted(linear, folder):
    reseal(folder)
    same_type(load(folder), linear)


def put(**entries):
    return lambda manifest: manifest.update(entries)


def in_array(**entries):
    def change(manifest):
        find_node(manifest["object"], lambda node: node.get("$") == "array" and "shape" in node).update(
            entries
        )

    return change


def in_object(**entries):
    return lambda manifest: manifest["object"].update(entries)


def in_fitted(name, node):
    return lambda manifest: manifest["object"]["fitted"].update({name: node})


def replaced(old, new):
    return lambda manifest: manifest.update(json.loads(json.dumps(manifest).replace(old, new)))


def list_file(name):
    return lambda manifest: manifest["files"].update({name: {"sha256": "0" * 64, "bytes": 1}})


HUGE = 10**15
ONE_CLASS = {"$": "object", "of": "Constant"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(version=3, osls="9.9"), r"format version 3, and this osls reads up to 2: upgrade.*9\.9"),
        (put(version=1), "format version 1, from before the first release"),
        (put(version=0), "format version is 0"),
        (put(version="1"), "format version is '1'"),
        (put(format="x"), "has another format"),
        (put(files=[]), "lists no files"),
        (list_file("../../etc/passwd"), "no saved model contains"),
        (list_file("/etc/passwd"), "no saved model contains"),
        (list_file("sklearn/../manifest.json"), "no saved model contains"),
        (list_file("sklearn/0.pkl"), "no saved model contains"),
        (list_file("sklearn/77.skops"), r"not used by the model|missing"),
        (put(files={"tensors.safetensors": {"bytes": -1, "sha256": ""}}), None),
        (
            put(files={"sklearn/77.skops": {"bytes": -1, "sha256": ""}}),
            "does not say how large sklearn/77.skops",
        ),
        (put(files={"sklearn/77.skops": 3}), "does not say how large sklearn/77.skops"),
        (
            in_fitted("_metadata_request", {"$": "routing", "requests": {"transform": {}}}),
            "metadata of the method 'transform', which has none",
        ),
        (put(object={"$": "sklearn", "file": "../x"}), "does not list it"),
        (put(object={"$": "os.system", "args": ["true"]}), r"type tag 'os.system'"),
        (put(object={"of": "x"}), "type tag None"),
        (put(object={"$": ["x"]}), "damaged"),
        (put(object={"$": "same", "#": 3}), "not read before"),
        (put(object={"$": "float", "value": "1e9"}), "must be nan, inf"),
        (put(object={"$": "function", "of": "os:system"}), r"'os:system', which is not a type"),
        (put(object={"$": "function", "name": "f"}), "needs your function 'f'"),
        (put(object={"$": "array", "tensor": "no"}), "lacks"),
        (put(object={"$": "dict", "items": [[[], 1]]}), "damaged"),
        (put(object={"$": "scalar", "dtype": "<f8", "value": "00"}), "its dtype has 8"),
        (put(object={"$": "scalar", "dtype": "|O8", "value": "0" * 16}), r"dtype '\|O8'"),
        (put(object={"$": "scalar", "dtype": "|b1", "value": "07"}), "neither true nor false"),
        (put(object={"$": "scalar", "dtype": "<U1", "value": "ffffffff"}), "impossible characters"),
        (put(object={**ONE_CLASS, "fields": {}}), "has no 'proba'"),
        (put(object={**ONE_CLASS, "fields": {"proba": 1, "x": 2}}), "unknown 'x'"),
        (in_object(of="builtins:eval"), "not a type that"),
        (in_object(of="subprocess:Popen", params={"args": ["true"]}), "not a type that"),
        (in_object(of=7), "not a type that"),
        (in_object(of="Encoder"), "damaged"),
        (in_object(params={"evil": 1}), "unknown 'evil'"),
        (in_fitted("__class__", 1), "not a name that fit sets"),
        (in_fitted("predict", 1), "not a name that fit sets"),
        (in_fitted("_predict_proba", 1), "not a name that fit sets"),
        (in_array(shape=[HUGE, HUGE]), "elements are stored"),
        (in_array(shape=[-1]), "at least 0"),
        (in_array(shape=[2.5]), "at least 0"),
        (in_array(shape="x"), "at least 0"),
    ],
)
def test_a_manifest_with_right_digests_and_wrong_content_is_refused(change, words, folder):
    reseal(folder, change)
    with pytest.raises(ModelError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_names_that_are_not_listed_are_refused(tmp_path):
    save(np.array(["a", "b"], dtype=object), tmp_path / "m")
    reseal(tmp_path / "m", in_object(values=["a"]))
    with pytest.raises(ModelError, match="values that it does not list"):
        load(tmp_path / "m")


def test_texts_of_another_width_are_refused(tmp_path):
    save(np.array(["a", "b"]), tmp_path / "m")
    reseal(tmp_path / "m", in_object(dtype="<U3"))
    with pytest.raises(ModelError, match="holds 8 bytes, no multiple of its dtype <U3"):
        load(tmp_path / "m")


def test_endless_nesting_is_refused(folder):
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(ModelError, match="nested more than"):
        load(folder)
    (folder / "manifest.json").write_text(text)
    reseal(folder, put(object=functools.reduce(lambda inner, _: [inner], range(900), 1)))
    with pytest.raises(ModelError, match="nested more than"):
        load(folder)


class Touch:
    """Unpickling this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["tensors.safetensors", "sklearn/0.skops"])
def test_a_pickle_in_place_of_a_file_is_not_opened(name, folder, tmp_path):
    payload = pickle.dumps(Touch(tmp_path / "touched"))
    pickle.loads(payload)
    (tmp_path / "touched").unlink()
    (folder / name).write_bytes(payload)
    reseal(folder)
    with pytest.raises(ModelError, match="is not a s"):
        load(folder)
    assert not (tmp_path / "touched").exists()


def rewrite_part(folder: Path, change) -> None:
    """Pass every member of every skops archive through ``change(name, bytes)``, and put the digests right."""
    for path in (folder / "sklearn").iterdir():
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, change(name, data))
    reseal(folder)


def npy(array, **options) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def call_system(name, data):
    if name != "schema.json":
        return data
    schema = json.loads(data)
    schema["content"]["content"]["C"] = {
        "__class__": "system", "__module__": "posix", "__loader__": "FunctionNode"
    }  # fmt: skip
    return json.dumps(schema).encode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (call_system, "posix.system, which is not trusted"),
        (lambda n, d: d if n == "schema.json" else npy(np.array([{}]), allow_pickle=True), "damaged"),
        (lambda n, d: b"{}" if n == "schema.json" else d, "damaged"),
        (lambda n, d: d + b" " * 20_000_000 if n == "schema.json" else d, "claims to unpack to"),
    ],
    ids=["system", "pickle", "empty", "bomb"],
)
def test_hostile_archives_are_refused(change, words, tmp_path):
    X, y = blobs(sizes=(20, 20))
    save(LogisticRegression().fit(X, y), tmp_path / "m")
    rewrite_part(tmp_path / "m", change)
    with pytest.raises(ModelError, match=words):
        load(tmp_path / "m")


def change_nodes(field, value):
    def change(name, data):
        if not name.endswith(".npy"):
            return data
        array = np.load(io.BytesIO(data))
        if array.dtype.names and field in array.dtype.names:
            array[field][0] = value
            return npy(array)
        return data

    return change


@pytest.mark.parametrize(
    ("estimator", "field", "value"),
    [
        (SMALL_FOREST, "left_child", 10**6),
        (SMALL_FOREST, "right_child", -7),
        (SMALL_FOREST, "left_child", 0),
        (SMALL_FOREST, "feature", 5),
        (HistGradientBoostingClassifier(max_iter=2), "left", 10**6),
        (HistGradientBoostingClassifier(max_iter=2), "feature_idx", 5),
        (HistGradientBoostingClassifier(max_iter=2), "is_categorical", 1),
    ],
    ids=lambda value: value if isinstance(value, str | int) else type(value).__name__,
)
def test_trees_that_lead_outside_are_refused(estimator, field, value, tmp_path):
    X, y = blobs(sizes=(40, 40))
    save(clone(estimator).fit(X, y), tmp_path / "m")
    rewrite_part(tmp_path / "m", change_nodes(field, value))
    with pytest.raises(ModelError, match=r"point outside|do not fit together"):
        load(tmp_path / "m")


def test_boosting_without_nodes_is_refused(tmp_path):
    def empty(name, data):
        array = np.load(io.BytesIO(data)) if name.endswith(".npy") else np.empty(0)
        return npy(array[:0]) if array.dtype.names else data

    X, y = blobs(sizes=(40, 40))
    save(HistGradientBoostingClassifier(max_iter=2).fit(X, y), tmp_path / "m")
    rewrite_part(tmp_path / "m", empty)
    with pytest.raises(ModelError, match="do not fit together"):
        load(tmp_path / "m")


def test_a_sparse_matrix_that_cannot_lead_outside_is_accepted(tmp_path):
    X, y = blobs(sizes=(20, 20))
    model = LogisticRegression().fit(X, y)
    model.coef_ = sparse.coo_matrix(model.coef_)
    trusted = [sparse.coo_matrix]
    save(model, tmp_path / "m", trusted=trusted)
    again = load(tmp_path / "m", trusted=trusted)
    assert again.coef_.format == "coo"
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_networks_of_impossible_size_are_refused_before_they_are_made(tmp_path):
    data, _ = rows("table")
    model = quick(ADAPTERS["pulse-mlp"], "table").fit(**data)
    save(model, tmp_path / "m")

    def enlarge(manifest):
        stack = find_node(manifest["object"], lambda node: "arguments" in node)
        stack["arguments"][1] = 10**13

    reseal(tmp_path / "m", enlarge)
    with pytest.raises(ModelError, match="size mismatch") as caught:
        load(tmp_path / "m")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("pulse-mlp", "members", 0, "is not a stack of networks with an encoder"),
        ("pulse-mlp", "encoder", 1, "is not a stack of networks with an encoder"),
        ("backprop-oda", "heads", {"classs": {}}, r"has the heads \['classs'\] where \["),
    ],
)
def test_networks_with_other_parts_are_refused(name, key, value, words, tmp_path):
    data, _ = rows("table")
    save(quick(ADAPTERS[name], "table").fit(**data), tmp_path / "m")
    reseal(tmp_path / "m", lambda m: find_node(m["object"], lambda node: key in node).update({key: value}))
    with pytest.raises(ModelError, match=words):
        load(tmp_path / "m")


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_a_model_from_a_gpu_comes_to_the_cpu(tmp_path):
    data, X_new = rows("table")
    for name in ("pulse-mlp", "cmu"):
        model = quick(ADAPTERS[name], "table").fit(**data)
        save(model, tmp_path / "m")
        reseal(tmp_path / "m", replaced('"device": "cpu"', '"device": "cuda:0"'))
        assert '"cuda:0"' in (tmp_path / "m/manifest.json").read_text()
        np.testing.assert_array_equal(load(tmp_path / "m").predict_proba(X_new), model.predict_proba(X_new))


def test_random_states_that_read_outside_are_refused(tmp_path):
    save(np.random.RandomState(0), tmp_path / "m")
    reseal(
        tmp_path / "m", lambda m: m.update(json.loads(json.dumps(m).replace('["pos", 624]', '["pos", -9]')))
    )
    with pytest.raises(ModelError, match=r"pos=-9, outside of 0\.\.624"):
        load(tmp_path / "m")
    save(np.random.RandomState(0), tmp_path / "m")
    reseal(tmp_path / "m", replaced('"MT19937"', '"MT19938"'))
    with pytest.raises(ModelError, match="not the state of a random generator of numpy"):
        load(tmp_path / "m")


def test_another_scikit_learn_is_said_once(folder):
    reseal(folder, lambda manifest: manifest["libraries"].update({"scikit-learn": "1.2.3"}))
    with pytest.warns(UserWarning, match=r"saved with scikit-learn 1\.2\.3 and is loaded with") as caught:
        load(folder)
    assert len(caught) == 1


def test_the_manifest_names_versions(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["osls"] == osls.__version__
    assert manifest["libraries"]["skops"] == skops.__version__
    assert set(manifest["files"]) == {str(p.relative_to(folder)) for p in files_of(folder)} - {
        "manifest.json"
    }


# -- Whole or not at all ----------------------------------------------------------------------------


def test_saving_replaces_a_model_and_nothing_else(tmp_path):
    save(1, tmp_path / "m")
    save(2, tmp_path / "m")
    assert load(tmp_path / "m") == 2
    (tmp_path / "empty").mkdir()
    save(3, tmp_path / "empty")
    assert load(str(tmp_path / "empty")) == 3
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").touch()
    (tmp_path / "letter").touch()
    for name in ("photos", "letter"):
        with pytest.raises(ModelError, match=name):
            save(4, tmp_path / name)
    (tmp_path / "link").symlink_to("m")
    save(5, tmp_path / "link")
    assert load(tmp_path / "m") == 5
    assert {path.name for path in tmp_path.iterdir()} == {"m", "empty", "photos", "letter", "link"}
    assert (tmp_path / "photos/cat.jpg").exists()


def test_a_failed_save_leaves_the_earlier_model(tmp_path):
    save([1], tmp_path / "a/m")
    with pytest.raises(ModelError):
        save([np.zeros(10**5), {1, 2}], tmp_path / "a/m")
    assert load(tmp_path / "a/m") == [1]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["m"]


def test_a_draft_that_somebody_deletes_leaves_the_earlier_model(tmp_path):
    save(1, tmp_path / "m")
    with pytest.raises(FileNotFoundError), drafting(tmp_path / "m") as draft:
        shutil.rmtree(draft.path)
    assert load(tmp_path / "m") == 1


def test_of_two_that_save_at_once_the_later_one_counts(tmp_path, monkeypatch):
    target, rename, others = tmp_path / "m", os.rename, []

    def slow(source, destination):
        # Another process saves between the two renames of this one.
        if Path(destination) == target and not others:
            others.append(1)
            save(1, target)
        rename(source, destination)

    monkeypatch.setattr("osls.persist.folder.os.rename", slow)
    save(2, target)
    assert others == [1]
    assert load(target) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_what_processes_of_other_machines_left_is_swept_after_a_day(tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "elsewhere")
        old, young = draft_beside(tmp_path / "m"), draft_beside(tmp_path / "m")
    for path in (old, young, tmp_path / ".m.newer"):
        path.mkdir()
    os.utime(old, (0, 0))
    os.utime(tmp_path / ".m.newer", (0, 0))
    save(1, tmp_path / "m")
    assert {path.name for path in tmp_path.iterdir()} == {"m", ".m.newer", young.name}


KILL = """
import os, random, shutil, signal, sys, time
import numpy as np
from osls.persist import load, save
path, random_ = sys.argv[1], random.Random(0)
models = [{"rows": np.full(20_000, i), "name": i} for i in range(2)]
save(models[0], path)

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

def check():
    found = load(path)
    assert (found["rows"] == found["name"]).all()
    return found["name"]

def forever():
    while True:
        for model in models:
            save(model, path)

# At any moment.
for _ in range(20):
    pid = child(forever)
    time.sleep(random_.uniform(0.001, 0.04))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    check()

# Before each single step.
def die_at(step):
    count = 0
    def counted(function):
        def run(*args, **options):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)
        return run
    for module, name in ((os, "mkdir"), (os, "fsync"), (os, "rename"), (os, "rmdir"), (os, "unlink")):
        setattr(module, name, counted(getattr(module, name)))
    save(models[1], path)

answers, step = set(), 0
while True:
    step += 1
    save(models[0], path)
    _, status = os.waitpid(child(lambda: die_at(step)), 0)
    answers.add((check(), os.path.exists(path)))
    if not os.WIFSIGNALED(status):
        break
print(step, sorted(answers))

# Reading goes on while somebody saves.
pid = child(forever)
seen = {check() for _ in range(40)}
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
print(sorted(seen))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_model(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILL, str(tmp_path / "m")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    steps, seen = done.stdout.splitlines()
    # Old, new, and the moment in which only the hidden copy is there.
    assert steps.endswith("[(0, False), (0, True), (1, True)]")
    assert int(steps.split()[0]) > 5
    assert seen == "[0, 1]"
