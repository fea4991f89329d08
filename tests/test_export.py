"""Models outside of osls: as ONNX, and behind MLflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import osls
from conftest import FOREST
from osls import PULSE
from osls.app.cli import app
from osls.app.export import to_onnx
from osls.app.mlflow import log_model
from osls.base import Combined
from osls.training.predictors import Blended, Constant, Pooled, Shifted

QUICK = {"n_folds": 2, "rounds": 1, "n_bootstrap": 5, "random_state": 0, "max_steps": 80}


def make_rows(n, kinds, rng):
    """A table with numbers (some missing, one far from zero), words, dates and ids."""
    kind = rng.choice(kinds, n)
    age = rng.normal(20 + 25.0 * kind, 4)
    age[rng.random(n) < 0.1] = np.nan
    colours = np.array(["red", "blue", "green", None, "violet"], dtype=object)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    frame = pd.DataFrame(
        {
            "patient": [f"p{i:05d}" for i in range(n)],
            "age": age,
            "seen": rng.normal(1.7e9 + 500 * kind, 80),
            "colour": colours[np.minimum(rng.poisson(kind + 0.5, n), 4)],
            "day": day,
        }
    )
    return frame, kind


@pytest.fixture(scope="module")
def answer():
    rng = np.random.default_rng(0)
    (source, y), (target, _) = make_rows(300, [0, 1], rng), make_rows(300, [0, 1, 2], rng)
    return osls.adapt(source.assign(kind=np.array(["cold", "flu"])[y]), target, label="kind", fast=True)


@pytest.fixture(scope="module")
def more():
    return make_rows(500, [0, 1, 2], np.random.default_rng(1))[0]


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    X = rng.normal(size=(180, 3)) + 3 * np.eye(3)[y] + [0, 0, 1e6]
    return X, y, np.concatenate([X[:120] + 0.01, rng.normal(size=(60, 3)) - 4 + [0, 0, 1e6]])


def answered(content: bytes, inputs):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["label", "probabilities"], inputs)


def columns_of(frame):
    """A table as the inputs of the graph."""
    days = (frame["day"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    return {
        "age": frame[["age"]].to_numpy(np.float64),
        "seen": frame[["seen"]].to_numpy(np.float64),
        "colour": frame[["colour"]].astype(object).where(frame[["colour"]].notna(), "").to_numpy(),
        "day": days.to_numpy(np.float64)[:, None],
    }


class TestOnnx:
    @pytest.mark.parametrize(
        ("one", "other"),
        [("auto", "auto"), ("mlp", "linear"), (RandomForestClassifier(10), FOREST), ("linear", "mlp")],
        ids=["blend", "mlp-linear", "forests", "linear-mlp"],
    )
    def test_arrays_get_the_same_answers(self, blobs, one, other):
        X, y, target = blobs
        model = PULSE(source_classifier=one, discriminator=other, **QUICK).fit(X, y, X_target=target)
        rows = np.random.default_rng(2).normal(size=(400, 3)) * 4 + [0, 0, 1e6]
        label, proba = answered(to_onnx(model), {"X": rows})
        np.testing.assert_allclose(proba, model.predict_proba(rows), atol=1e-5)
        assert np.mean(label == model.predict(rows)) > 0.995
        assert label.dtype == np.int64

    def test_two_classes_by_name(self, blobs):
        X, y, target = blobs
        names = np.array(["a", "b"])[(y > 0).astype(int)]
        model = PULSE(source_classifier="linear", discriminator="linear", **QUICK)
        model.fit(X, names, X_target=target)
        label, proba = answered(to_onnx(model), {"X": target})
        np.testing.assert_allclose(proba, model.predict_proba(target), atol=1e-5)
        assert set(label) <= {"a", "b", "novel"}

    def test_a_fitted_classifier_and_one_class(self, blobs):
        X, y, target = blobs
        fitted = LogisticRegression(max_iter=500).fit(X - X.mean(axis=0), y[::-1])
        fitted.intercept_ -= fitted.coef_ @ X.mean(axis=0)
        for source, labels in ((fitted, y), (ExtraTreesClassifier(5).fit(X, y), y), (FOREST, np.zeros(180))):
            model = PULSE(source_classifier=source, discriminator=FOREST, **QUICK)
            model.fit(X, labels.astype(int), X_target=target)
            _, proba = answered(to_onnx(model), {"X": target})
            np.testing.assert_allclose(proba, model.predict_proba(target), atol=1e-5)

    def test_missing_values_go_the_same_way(self, blobs):
        X, y, target = blobs
        rows = np.where(np.random.default_rng(3).random(X.shape) < 0.2, np.nan, X)
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(rows, y, X_target=target)
        _, proba = answered(to_onnx(model), {"X": rows})
        np.testing.assert_allclose(proba, model.predict_proba(rows), atol=1e-5)

    def test_tables_with_categories_and_dates_too(self, answer, more):
        expected = answer.adapted.predict(more)
        label, proba = answered(to_onnx(answer.adapted), columns_of(more))
        np.testing.assert_allclose(proba[:, -1], expected["novel"], atol=1e-5)
        np.testing.assert_allclose(proba[:, 0], expected["p_cold"], atol=1e-5)
        assert np.mean(label == expected["predicted"]) > 0.995

    def test_words_that_were_never_seen_are_rare(self, answer, more):
        strange = more.assign(colour="ultraviolet")
        _, proba = answered(to_onnx(answer.adapted), columns_of(strange))
        np.testing.assert_allclose(proba, answer.adapted.predict_proba(strange), atol=1e-5)

    def test_a_discriminator_of_all_classes_by_hand(self, blobs):
        """As recipe="fine-tune" has it: opinions .5 .3 .2 shifted by 1, 1, 2, beside .8 .2 weighted 1, 1."""
        X, y, target = blobs
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(X, y > 0, X_target=target)
        combined = Combined(
            Constant((0.8, 0.2)), Constant((0.5, 0.3, 0.2)), np.ones(2), np.array([1.0, 1.0, 2.0])
        )
        model._predictor = combined
        _, proba = answered(to_onnx(model), {"X": target[:2]})
        own = np.array([0.5, 0.3, 0.4]) / 1.2
        other = np.array([0.8 * (1 - own[2]), 0.2 * (1 - own[2]), own[2]])
        expected = (own + other) / 2
        np.testing.assert_allclose(proba, np.tile(expected, (2, 1)), atol=1e-6)
        np.testing.assert_allclose(combined.predict_proba(target[:2]), proba, atol=1e-6)

    def test_blends_by_hand(self, blobs):
        X, y, target = blobs
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(X, y > 0, X_target=target)
        parts = Constant((0.2, 0.8)), Constant((0.6, 0.4))
        for share, first in ((0.25, 0.5), (1.0, 0.2), (0.0, 0.6)):
            model._predictor = Combined(Blended(*parts, share), Constant((0.0, 1.0)), np.ones(2))
            assert answered(to_onnx(model), {"X": target[:1]})[1][0, 0] == pytest.approx(first)

    def test_pools_by_hand(self, blobs):
        X, y, target = blobs
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(X, y > 0, X_target=target)
        # Odds 1 : 4 and, to the power of a half, 4 : 1: 1 : 2.
        pooled = Pooled(Constant((0.2, 0.8)), Constant((0.8, 0.2)), (1.0, 0.5))
        model._predictor = Combined(pooled, Constant((0.0, 1.0)), np.ones(2))
        assert answered(to_onnx(model), {"X": target[:1]})[1][0, 0] == pytest.approx(1 / 3)

    def test_shifted_odds_by_hand(self, blobs):
        # Novel against known 1 : 1, the odds of known times three: 1/4 novel.
        X, y, target = blobs
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(X, y > 0, X_target=target)
        model._predictor = Combined(Constant((1.0, 0.0)), Shifted(Constant((0.5, 0.5)), 3.0), np.ones(2))
        assert answered(to_onnx(model), {"X": target[:1]})[1][0, -1] == pytest.approx(0.25)
        assert model.predict_proba(target[:1])[0, -1] == pytest.approx(0.25)

    def test_what_cannot_be_exported_is_named(self, answer, blobs):
        X, y, target = blobs
        boosted = PULSE(
            source_classifier=HistGradientBoostingClassifier(max_iter=3), discriminator=FOREST, **QUICK
        )
        with pytest.raises(ValueError, match="a HistGradientBoostingClassifier cannot be exported to ONNX"):
            to_onnx(boosted.fit(X, y, X_target=target))
        grown = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(X, y, X_target=target)
        grown = grown.absorb(target[:1], [7])
        with pytest.raises(ValueError, match="a model that absorbed classes cannot be exported"):
            to_onnx(grown)
        with pytest.raises(TypeError, match="not a LogisticRegression"):
            to_onnx(LogisticRegression())
        words = pd.DataFrame({"note": [f"some words {i} of {i % 7}" for i in range(60)]})
        encoder = osls.app.tables.table_encoder.TableEncoder(texts=["note"], text="tfidf").fit(words, words)
        with pytest.raises(ValueError, match="reads the text 'note'"):
            to_onnx(replace(answer.adapted, encoder=encoder))
        pictures = osls.app.tables.pictures.PictureEncoder()
        with pytest.raises(ValueError, match="models of pictures cannot be exported"):
            to_onnx(replace(answer.adapted, encoder=pictures))

    def test_the_command(self, answer, more, tmp_path):
        answer.write(tmp_path / "run")
        out = tmp_path / "model.onnx"
        done = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(out)])
        assert done.exit_code == 0, done.output
        assert "colour: texts" in done.output
        assert "days since 1970" in done.output
        label, _ = answered(out.read_bytes(), columns_of(more))
        assert len(label) == 500
        again = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(out)])
        assert again.exit_code == 2
        wrong = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(tmp_path / "model.bin")])
        assert wrong.exit_code == 2
        assert "change the extension" in wrong.output


def test_mlflow_logs_and_loads(answer, more, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    # The skinny package has no other store on disk.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run():
        info = log_model(answer.adapted)
    found = mlflow.pyfunc.load_model(info.model_uri).predict(more)
    pd.testing.assert_frame_equal(found, answer.adapted.predict(more))
    kept = {path.suffix for path in (tmp_path / "mlruns").rglob("*") if path.is_file()}
    assert not kept & {".pkl", ".pickle"}
    with pytest.raises(TypeError, match=r"give answer\.adapted"):
        log_model(PULSE())
