"""From tables, texts and pictures to an answer, in Python and on the command line."""

from __future__ import annotations

import ast
import io
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import jsonschema
import numpy as np
import pandas as pd
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier
from typer.testing import CliRunner

from answers import text_corpus
from osls import PULSE
from osls.app.adapt import adapt, print_answer
from osls.app.answer import Answer, mix_schema
from osls.app.cli import app
from osls.app.files import InputError, read_table
from osls.app.options import ALL_CORES, MIN_ROWS, AdaptOptions, MonitorOptions, ReadOptions, read_options
from osls.app.output import AdaptAnswer
from osls.app.predict import Adapted
from osls.app.tables.pictures import PictureEncoder
from osls.persist import load, save

FOREST = ExtraTreesClassifier(15)
QUICK = {"source_classifier": FOREST, "discriminator": FOREST, "n_folds": 3, "rounds": 1, "n_bootstrap": 10}


def clinic(n: int, shares: dict[str, float], seed: int) -> pd.DataFrame:
    """Patients of three kinds with numbers, a category, a date and missing values."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(list(shares), n, p=list(shares.values()))
    centre = pd.Series({"cold": 0.0, "flu": 8.0, "measles": 16.0})[kind].to_numpy()
    frame = pd.DataFrame(
        {
            "fever": centre + rng.normal(size=n),
            "spots": np.where(
                kind == "measles", "many", rng.choice(["none", "few", "many"], n, p=[0.6, 0.38, 0.02])
            ),
            "cough": (centre + rng.normal(size=n)).round(2),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D"),
            "kind": kind,
        }
    )
    frame.loc[rng.random(n) < 0.1, "cough"] = np.nan
    return frame


SOURCE = clinic(300, {"cold": 0.7, "flu": 0.3}, 0)
TARGET = clinic(400, {"cold": 0.2, "flu": 0.5, "measles": 0.3}, 1)
TRUTH = TARGET.pop("kind").replace("measles", "novel").to_numpy()


@pytest.fixture(scope="module")
def answer() -> AdaptAnswer:
    return adapt(SOURCE, TARGET.assign(patient=[f"p{i}" for i in range(400)]), "kind", id="patient", **QUICK)


# -- adapt ------------------------------------------------------------------------------------------


class TestAnswer:
    def test_the_mix_is_right(self, answer):
        assert answer.classes == ("cold", "flu", "novel")
        truth = [np.mean(name == TRUTH) for name in answer.classes]
        np.testing.assert_allclose(answer.target_share, truth, atol=0.08)
        np.testing.assert_allclose(answer.source_share[:2].sum(), 1)
        assert np.mean(answer.predictions["predicted"] == TRUTH) > 0.9

    def test_predictions_carry_the_id_and_sum_to_one(self, answer):
        assert list(answer.predictions.columns) == [
            "row",
            "patient",
            "predicted",
            "novel",
            "group",
            "p_cold",
            "p_flu",
        ]
        assert answer.predictions["patient"].tolist() == [f"p{i}" for i in range(400)]
        total = answer.predictions[["novel", "p_cold", "p_flu"]].sum(axis=1)
        np.testing.assert_allclose(total, 1, atol=1e-5)

    def test_parts_are_aligned(self, answer):
        assert answer.features_target.shape == (400, len(answer.feature_names))
        pd.testing.assert_frame_equal(answer.target_rows, TARGET, check_dtype=False)
        assert "patient" not in answer.feature_names
        assert answer.source_rows["kind"].tolist() == SOURCE["kind"].tolist()

    def test_it_speaks(self, answer):
        assert "of the new data is something your labels do not cover" in answer.summary()
        html = answer._repr_html_()
        assert html.count("<tr>") == 4
        assert "flu" in html
        assert "Verdict: " in html
        assert html.count("class='novel'") == 1
        assert "http" not in html

    def test_hostile_names_are_escaped(self, answer):
        hostile = "<script>alert(1)</script>"
        html = replace(answer, classes=(hostile, "b", "novel"), warnings=(hostile,))._repr_html_()
        assert "<script" not in html

    def test_the_mix_follows_its_schema(self, answer):
        jsonschema.Draft202012Validator.check_schema(mix_schema())
        mix = json.loads(answer.to_json())
        jsonschema.validate(mix, mix_schema())
        assert mix["rows"] == {"source": 300, "source_fitted": 300, "target": 400, "target_fitted": 400}
        assert sum(row["rows_predicted"] for row in mix["classes"]) == 400
        mix["classes"][0]["target_share"] = 1.5
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(mix, mix_schema())

    def test_a_saved_model_predicts_the_same(self, answer, tmp_path):
        save(answer.adapted, tmp_path / "model")
        again = load(tmp_path / "model")
        assert isinstance(again, Adapted)
        rows = TARGET.iloc[::-1].assign(patient="q")
        pd.testing.assert_frame_equal(again.predict(rows), answer.adapted.predict(rows))
        assert again.classes == answer.classes
        assert again.metadata["n_source"] == 300

    def test_write(self, answer, tmp_path):
        answer.write(tmp_path / "run")
        names = {path.name for path in (tmp_path / "run").iterdir()}
        assert names == {"predictions.parquet", "predictions.csv", "mix.json", "report.html", "model"}
        with pytest.raises(InputError, match="exists already"):
            answer.write(tmp_path / "run")
        answer.write(tmp_path / "run", overwrite=True)

    def test_no_rows_have_no_predictions(self, answer):
        found = answer.adapted.predict(TARGET[:0])
        assert len(found) == 0
        assert {"predicted", "novel", "p_cold", "p_flu"} <= set(found.columns)

    def test_without_diagnostics_no_verdict_is_printed(self, answer):
        def printed(answer: Answer) -> str:
            text = io.StringIO()
            print_answer(answer, Path("run"), 1.0, Console(file=text))
            return text.getvalue()

        assert "Verdict:" in printed(answer)
        assert "Verdict:" not in printed(replace(answer, diagnostics=None))


def test_polars_and_paths_give_the_same_answer(tmp_path):
    SOURCE.to_parquet(tmp_path / "source.parquet")
    TARGET.to_csv(tmp_path / "target.csv", index=False)
    from_pandas = adapt(SOURCE, TARGET, "kind", **QUICK)
    from_polars = adapt(polars.from_pandas(SOURCE), polars.from_pandas(TARGET), "kind", **QUICK)
    from_files = adapt(tmp_path / "source.parquet", str(tmp_path / "target.csv"), "kind", **QUICK)
    pd.testing.assert_frame_equal(from_pandas.predictions, from_polars.predictions)
    np.testing.assert_allclose(from_files.target_share, from_pandas.target_share, atol=1e-3)


@pytest.mark.parametrize("name", ["predicted", "group", "p_flu", "row"])
def test_an_id_that_nobody_named_does_not_stand_in_for_an_answer(name, tmp_path):
    sides = (
        side.assign(**{name: [f"{len(side)}-{i}" for i in range(len(side))]}) for side in (SOURCE, TARGET)
    )
    answer = adapt(*sides, label="kind", **QUICK)
    made = ["predicted", "novel", "group", "p_cold", "p_flu"]
    assert answer.predictions.columns.tolist() == ["row", *made]
    answer.write(tmp_path / "run")
    assert pd.read_parquet(tmp_path / "run" / "predictions.parquet").columns.tolist() == ["row", *made]
    assert (answer.predictions["row"].iloc[0] == "400-0") == (name == "row")


def test_large_sides_are_sampled_and_every_row_is_answered():
    found = adapt(SOURCE, TARGET, "kind", max_rows=250, **QUICK)
    assert len(found.predictions) == len(found.target_rows) == found.features_target.shape[0] == 400
    assert found.settings["n_target_fitted"] == 250
    assert 250 <= found.settings["n_source_fitted"] < 300
    assert any("250 of the 400 target rows" in warning for warning in found.warnings)
    assert np.mean(found.predictions["predicted"] == TRUTH) > 0.9
    # Rows of the fit have the answers of models that did not see them, the others those of the final model.
    fitted = found.model.target_proba_[:, -1].astype(np.float32)
    given = found.predictions["novel"].to_numpy()
    final = found.adapted.predict(TARGET)["novel"].to_numpy()
    same = given == final
    assert same.sum() >= 150
    assert np.isin(given[~same], fitted).all()


def test_rare_classes_survive_the_sampling():
    rare = SOURCE.assign(kind=["rare"] * 6 + SOURCE["kind"].tolist()[6:])
    found = adapt(rare, TARGET, "kind", max_rows=40, **QUICK)
    assert "rare" in found.classes
    assert found.source_share[found.classes.index("rare")] == pytest.approx(6 / 300)


def test_one_class_if_asked_for_in_python():
    colds = SOURCE[SOURCE["kind"] == "cold"]
    with pytest.raises(InputError, match="allow_one_class=True"):
        adapt(colds, TARGET, "kind", **QUICK)
    found = adapt(colds, TARGET, "kind", allow_one_class=True, **QUICK)
    assert found.classes == ("cold", "novel")
    assert abs(found.target_share[-1] - np.mean(TRUTH != "cold")) < 0.15


def test_whole_numbers_as_labels_keep_their_names():
    found = adapt(SOURCE.assign(kind=np.where(SOURCE["kind"] == "flu", 2.0, 1.0)), TARGET, "kind", **QUICK)
    assert found.classes == ("1", "2", "novel")


def test_the_targets_label_is_not_looked_at():
    labelled = TARGET.assign(kind=TRUTH)
    with pytest.raises(InputError, match="--ignore-target-label"):
        adapt(SOURCE, labelled, "kind", **QUICK)
    one = adapt(SOURCE, labelled, "kind", ignore_target_label=True, **QUICK)
    two = adapt(SOURCE, labelled.assign(kind=TRUTH[::-1]), "kind", ignore_target_label=True, **QUICK)
    pd.testing.assert_frame_equal(one.predictions, two.predictions)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"level": 2.0}, ValueError, "level"),
        ({"method": "pulze"}, ValueError, "method"),
        ({"text": "bert"}, ValueError, "text"),
        ({"images": "vit"}, ValueError, "images"),
        ({"n_fold": 3}, TypeError, "n_fold"),
        ({"max_rows": 19}, ValueError, "max_rows must be at least 20"),
        ({"max_rows": 50.5}, ValueError, "max_rows must be a whole number"),
        ({"random_state": -1}, ValueError, "seed must lie between 0"),
        ({"random_state": None}, ValueError, "random_state must be a whole number"),
        ({"n_jobs": 0}, ValueError, "n_jobs must not be 0"),
        ({"method": PULSE(), "rounds": 2}, ValueError, "rounds has no effect"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        adapt(SOURCE, TARGET, "kind", **arguments)


def test_warnings_of_the_fit_are_kept():
    few = pd.concat([SOURCE[SOURCE["kind"] == "cold"], SOURCE[SOURCE["kind"] == "flu"].head(2)])
    found = adapt(few, TARGET, "kind", **{**QUICK, "n_folds": 3})
    assert any("'flu' has 2 samples" in warning for warning in found.warnings)


def test_another_method_and_its_own_names():
    model = PULSE(random_state=0, novel_label="new", level=0.8, **QUICK)
    found = adapt(SOURCE, TARGET, "kind", method=model)
    assert found.classes == ("cold", "flu", "new")
    assert found.level == 0.8
    assert not hasattr(model, "classes_")


# -- The line that repeats a run --------------------------------------------------------------------

# What a shell can pass on: no NUL, and nothing that is not UTF-8.
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
BOTH = {
    "label": st.none() | NAMES,
    "id": st.lists(NAMES, max_size=3).map(tuple),
    "level": st.floats(0.001, 0.999),
    "random_state": st.integers(0, 2**32 - 1),
    "text": st.sampled_from(["auto", "tfidf", "minilm", "both"]),
    "images": st.sampled_from(["auto", "efficientnet", "scratch"]),
    "ignore": st.lists(NAMES, max_size=3).map(tuple),
    "novel_label": NAMES,
    "ignore_target_label": st.booleans(),
    "allow_one_class": st.booleans(),
    "effort": st.sampled_from(["balanced", "quick", "best"]),
    "max_rows": st.integers(MIN_ROWS, 10**9),
}
IN_PYTHON = {
    **BOTH,
    "method": st.sampled_from(["pulse", "pulse-paper"]),
    "n_jobs": st.none() | st.integers(1, 64) | st.integers(-8, -1),
    "verbose": st.booleans(),
    "parameters": st.dictionaries(
        st.sampled_from(["n_folds", "rounds", "max_steps", "shift", "temperature"]),
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    ),
}
ON_THE_COMMAND_LINE = {**BOTH, "n_jobs": st.just(ALL_CORES) | st.integers(1, 64)}
PATHS = st.lists(NAMES.filter(bool).map(Path), min_size=3, max_size=3)


class Asked(Exception):  # noqa: N818  # a way out, not an error
    """Raised in place of reading and fitting, with what was asked for."""


def asked(*given, **more):
    raise Asked(*given, *more.values())


@settings(deadline=None)
@given(st.builds(AdaptOptions, **IN_PYTHON))
def test_the_call_says_every_option(options):
    line = options.as_python()
    call = ast.parse(line, mode="eval").body
    assert [word.id for word in call.args] == ["source", "target"]
    arguments = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    with patch("osls.app.adapt.fit_rows", asked), pytest.raises(Asked) as caught:
        adapt("source", "target", **arguments)
    assert caught.value.args == ("source", "target", options)


@settings(deadline=None, max_examples=30)
@given(st.builds(AdaptOptions, **ON_THE_COMMAND_LINE), PATHS)
def test_the_command_says_every_option(options, paths):
    reading = read_options(";", "latin-1", ",", ["one", "two"])
    name, *words = shlex.split(options.as_command(*paths, reading))
    assert name == "osls"
    with patch("osls.app.adapt.run_adapt", asked):
        result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, Asked), result.output
    assert result.exception.args == (*map(str, paths[:2]), paths[2], options, reading, False, False)


@settings(deadline=None)
@given(
    st.builds(
        MonitorOptions,
        model=NAMES.filter(bool).map(Path),
        batches=st.lists(NAMES.filter(lambda name: name and name[0] != "-"), max_size=2).map(tuple),
        watch=st.none() | NAMES.filter(bool).map(Path),
        every=st.floats(0.1, 100),
        state=NAMES.filter(bool).map(Path),
        out=NAMES.filter(bool).map(Path),
        against=st.sampled_from(["fit", "first"]),
        level=st.floats(0.001, 0.999),
        seed=st.integers(0, 2**32 - 1),
        reading=st.builds(ReadOptions, encoding=st.none() | NAMES, table=st.none() | NAMES),
    ).filter(lambda options: not str(options.model).startswith("-"))
)
def test_the_command_of_a_monitor_says_every_option(options):
    with patch("osls.app.watch.run_monitor", asked):
        result = CliRunner().invoke(app, shlex.split(options.as_command())[1:])
    assert isinstance(result.exception, Asked), result.output
    assert result.exception.args == (options,)


def test_defaults_are_not_said():
    assert AdaptOptions().as_python() == "osls.adapt(source, target)"
    paths = Path("old.csv"), Path("new.csv"), Path("run")
    line = AdaptOptions(label="a b", n_jobs=ALL_CORES).as_command(*paths)
    assert line == "osls adapt --source old.csv --target new.csv --out run --label 'a b'"


@pytest.mark.parametrize(
    "changes", [{"method": "pulse-paper"}, {"n_jobs": -2}, {"parameters": {"rounds": 2}}]
)
def test_what_the_command_cannot_say(changes):
    with pytest.raises(ValueError, match="repeat it in Python"):
        AdaptOptions(**{"n_jobs": ALL_CORES, **changes}).as_command(Path("a"), Path("b"), Path("c"))


# -- Folders ----------------------------------------------------------------------------------------


def paint(folder: Path, n: int) -> None:
    """Striped pictures: the source has 2n of two directions, the target 2.5n, among them n of both."""
    rng = np.random.default_rng(0)
    stripes = np.indices((24, 24)) // 4 % 2
    kinds = {"flat": stripes[0], "steep": stripes[1], "both": stripes[0] ^ stripes[1]}
    for where, kind, count in (
        ("source/flat", "flat", n),
        ("source/steep", "steep", n),
        ("target", "flat", n // 2),
        ("target", "steep", n),
        ("target", "both", n),
    ):
        (folder / where).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            noisy = 200 * kinds[kind] + rng.integers(0, 50, (24, 24))
            Image.fromarray(noisy.astype(np.uint8)).save(folder / where / f"{kind}{i}.png")


def test_pictures_by_the_frozen_encoder(tmp_path):
    pytest.importorskip("efficientnet_lite_pytorch")
    paint(tmp_path, 40)
    linear = {**QUICK, "source_classifier": "linear", "discriminator": "linear"}
    found = adapt(tmp_path / "source", tmp_path / "target", **linear)
    assert found.kind == "images"
    assert found.features_target.shape == (100, 1280)
    assert found.target_share[-1] == pytest.approx(0.4, abs=0.1)
    is_new = found.predictions["file"].str.contains("both")
    assert np.mean((found.predictions["predicted"] == "novel") == is_new) > 0.9


def test_pictures_from_scratch(tmp_path):
    paint(tmp_path, 8)
    frame = read_table(tmp_path / "target")
    pixels = PictureEncoder(images="scratch").fit(frame, frame).transform(frame)
    assert pixels.shape == (20, 3, 32, 32)
    assert 0 <= pixels.min() < pixels.max() <= 1
    found = adapt(
        tmp_path / "source", tmp_path / "target", images="scratch", n_folds=2, rounds=1, max_steps=4
    )
    assert found.predictions.shape == (20, 7)


def test_texts_in_folders(tmp_path):
    rng = np.random.default_rng(0)
    for where, topic in (
        ("source/cooking", "cooking"),
        ("source/chess", "chess"),
        ("target", "cooking"),
        ("target", "chess"),
        ("target", "sailing"),
    ):
        (tmp_path / where).mkdir(parents=True, exist_ok=True)
        for i, text in enumerate(text_corpus(rng, topic, 60)):
            (tmp_path / where / f"{topic}{i}.txt").write_text(text)
    quick = {**QUICK, "source_classifier": "linear", "discriminator": "linear"}
    found = adapt(tmp_path / "source", tmp_path / "target", text="tfidf", **quick)
    assert found.kind == "text"
    assert found.settings["text_column"] == "text"
    assert found.target_share[-1] == pytest.approx(1 / 3, abs=0.1)
    assert list(found.target_rows.columns) == ["text"]


def test_of_sampled_texts_every_row_is_encoded():
    rng = np.random.default_rng(0)
    source = [(text, topic) for topic in ("cooking", "chess") for text in text_corpus(rng, topic, 40)]
    target = [text for topic in ("cooking", "chess", "sailing") for text in text_corpus(rng, topic, 30)]
    quick = {**QUICK, "source_classifier": "linear", "discriminator": "linear"}
    found = adapt(
        pd.DataFrame(source, columns=["note", "topic"]),
        pd.DataFrame({"note": target}),
        "topic",
        text="tfidf",
        max_rows=60,
        **quick,
    )
    assert sparse.issparse(found.features_target)
    assert found.features_target.shape[0] == len(found.predictions) == 90


# -- The command line -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A folder with the files of a run that sampled its target."""
    folder = tmp_path_factory.mktemp("of the clinic")
    SOURCE.to_csv(folder / "labelled.csv", index=False)
    target = TARGET.assign(patient=range(400))
    target.to_parquet(folder / "new.parquet")
    target.to_csv(folder / "new.csv", index=False)
    words = [
        "adapt",
        "--source",
        folder / "labelled.csv",
        "--label",
        "kind",
        "--target",
        folder / "new.parquet",
    ]
    words += [
        "--out",
        folder / "run",
        "--id",
        "patient",
        "--fast",
        "--max-rows",
        250,
        "--jobs",
        1,
        "--ignore",
        "seen",
    ]
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, (result.output, result.exception)
    (folder / "printed.txt").write_text(result.stdout)
    return folder


class TestCommandLine:
    def test_it_says_what_it_found(self, run):
        printed = (run / "printed.txt").read_text()
        assert "of the new data is something your labels do not cover" in printed
        assert "95% interval" in printed
        assert "fitted on 250 of the 400 target rows" in printed
        assert "report.html" in printed

    def test_the_folder_is_complete(self, run):
        names = {path.name for path in (run / "run").iterdir()}
        assert names == {"predictions.parquet", "predictions.csv", "mix.json", "report.html", "model"}
        assert not [path for path in run.iterdir() if path.name.startswith(".")]
        assert "something your labels do not cover" in (run / "run" / "report.html").read_text()

    def test_mix_json(self, run):
        mix = json.loads((run / "run" / "mix.json").read_text())
        jsonschema.validate(mix, mix_schema())
        assert mix["rows"] == {"source": 300, "source_fitted": 250, "target": 400, "target_fitted": 250}
        assert sum(row["rows_predicted"] for row in mix["classes"]) == 400
        assert any("250 of the 400" in warning for warning in mix["warnings"])
        assert "--max-rows 250" in mix["command"]
        assert "--seed" not in mix["command"]

    def test_predictions(self, run):
        found = pd.read_parquet(run / "run" / "predictions.parquet")
        assert found["patient"].tolist() == list(range(400))
        assert np.mean(found["predicted"] == TRUTH) > 0.9
        again = pd.read_csv(run / "run" / "predictions.csv")
        np.testing.assert_allclose(again["novel"], found["novel"], rtol=1e-5)

    def test_a_fresh_process_predicts_the_same_from_another_format(self, run, tmp_path):
        outs = tmp_path / "a.parquet", tmp_path / "b.csv"
        words = [
            ["predict", str(run / "run" / "model"), str(run / rows), "--out", str(out)]
            for rows, out in zip(("new.parquet", "new.csv"), outs, strict=True)
        ]
        fresh = [sys.executable, "-m", "osls.app.cli", *words[0]]
        done = subprocess.run(fresh, capture_output=True, text=True, check=True)
        assert "400 rows predicted" in done.stdout
        assert CliRunner().invoke(app, words[1]).exit_code == 0
        one, two = pd.read_parquet(outs[0]), pd.read_csv(outs[1])
        assert one["patient"].tolist() == two["patient"].tolist() == list(range(400))
        np.testing.assert_allclose(one["novel"], two["novel"], rtol=1e-5)
        here = load(run / "run" / "model").predict(pd.read_parquet(run / "new.parquet"))
        pd.testing.assert_frame_equal(one, here)

    @pytest.mark.parametrize(
        ("rows", "out", "message"),
        [
            ("new.parquet", "p.xlsx", ".parquet or .csv"),
            ("missing.csv", "p.csv", "no such file"),
            ("labelled.csv", "printed.txt/p.csv", "cannot be written"),
            ("short.csv", "p.csv", "'cough'"),
            ("words.csv", "p.csv", "row 3"),
        ],
    )
    def test_what_predict_refuses(self, run, rows, out, message):
        TARGET[["fever", "spots"]].to_csv(run / "short.csv", index=False)
        wrong = TARGET.astype({"fever": object})
        wrong.loc[2, "fever"] = "hot"
        wrong.to_csv(run / "words.csv", index=False)
        before = sorted(path.name for path in run.iterdir())
        words = ["predict", str(run / "run" / "model"), str(run / rows), "--out", str(run / out)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
        assert sorted(path.name for path in run.iterdir()) == before

    def test_predict_says_what_the_model_does_not_know(self, run, tmp_path):
        # Several batches make one note, and the answers in Python come with the same one.
        TARGET.assign(fever=np.nan).to_csv(tmp_path / "cold.csv", index=False)
        words = ["predict", run / "run", tmp_path / "cold.csv", "--out", tmp_path / "p.csv"]
        result = CliRunner().invoke(app, [*map(str, words)])
        assert result.exit_code == 0
        assert "cold.csv: there is no value at all of 'fever'. Medians stand" in result.stderr
        assert result.stderr.count("\n") == 1
        with pytest.warns(UserWarning, match="the rows: there is no value at all of 'fever'"):
            load(run / "run" / "model").predict(TARGET.assign(fever=np.nan))
        words[2] = run / "new.csv"
        assert CliRunner().invoke(app, [*map(str, words), "--overwrite"]).stderr == ""

    def test_predict_refuses_what_is_no_model(self, run, tmp_path):
        save(PULSE(), tmp_path / "bare")
        for folder in (tmp_path / "nothing", run, tmp_path / "bare"):
            words = ["predict", str(folder), str(run / "new.csv"), "--out", str(tmp_path / "p.csv")]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 2
            assert str(folder) in result.stderr
        assert "holds a PULSE without the columns it was fitted on" in result.stderr
        assert not (tmp_path / "p.csv").exists()

    def test_predict_refuses_a_folder_of_something_else(self, run, tmp_path):
        (tmp_path / "letters" / "old").mkdir(parents=True)
        (tmp_path / "letters" / "old" / "a.txt").write_text("dear all")
        words = ["predict", run / "run" / "model", tmp_path / "letters", "--out", tmp_path / "p.csv"]
        result = CliRunner().invoke(app, [*map(str, words)])
        assert result.exit_code == 2
        assert "letters: there is no column 'fever'" in result.stderr

    def test_on_a_terminal_it_says_what_it_does(self, run, tmp_path, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        words = ["adapt", "--source", run / "labelled.csv", "--label", "kinds", "--target", run / "new.csv"]
        result = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "run")])
        assert result.exit_code == 2
        assert "Reading" in result.stderr

    def test_one_class_if_asked_for(self, run, tmp_path):
        SOURCE[SOURCE["kind"] == "cold"].to_csv(tmp_path / "one.csv", index=False)
        words = ["adapt", "--source", tmp_path / "one.csv", "--label", "kind", "--target", run / "new.csv"]
        words += [
            "--out",
            tmp_path / "run",
            "--fast",
            "--allow-one-class",
            "--ignore",
            "patient",
            "--jobs",
            1,
        ]
        result = CliRunner().invoke(app, [*map(str, words)])
        assert result.exit_code == 0, result.output
        mix = json.loads((tmp_path / "run" / "mix.json").read_text())
        assert [row["name"] for row in mix["classes"]] == ["cold", "novel"]


def test_a_bad_row_outside_the_sample_is_found_before_the_fit(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("trained")

    monkeypatch.setattr(PULSE, "fit", refuse)
    many = pd.concat([TARGET] * 5, ignore_index=True)
    many.loc[7, "fever"] = np.inf
    many.to_csv(tmp_path / "many.csv", index=False)
    seeds = range(3)  # the row is in one sample of six, so not in all of these
    for seed in seeds:
        with pytest.raises(InputError, match=r"many\.csv: column 'fever' .*inf in row 8"):
            adapt(SOURCE, tmp_path / "many.csv", "kind", max_rows=200, random_state=seed)
