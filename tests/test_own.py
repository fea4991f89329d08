"""Benchmarks on one's own table, with methods of one's own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from osls.app.bench.methods import find_method
from osls.app.cli import app
from osls.testing import blobs

METHOD = """
from osls.baselines import SourceOnly

class Mine(SourceOnly):
    def __init__(self, *, source_classifier="trees", n_folds=2, novel_label=None, random_state=None):
        super().__init__(source_classifier=source_classifier, n_folds=n_folds, novel_label=novel_label,
                         random_state=random_state)
"""


@pytest.fixture
def folder(tmp_path):
    X, y = blobs(sizes=(40, 40, 40))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    frame = frame.assign(kind=np.array(["a", "b", "c"])[y]).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "method.py").write_text(METHOD)
    return tmp_path


def invoke(folder, *words: str):
    shared = ["--data", str(folder / "mine.csv"), "--draws", "1", "--out", str(folder / "out")]
    return CliRunner().invoke(app, ["bench", *shared, *words])


def test_every_class_is_held_out_in_turn(folder):
    method = f"{folder / 'method.py'}:Mine"
    result = invoke(folder, "--label", "kind", "--methods", method)
    assert result.exit_code == 0, result.output
    (written,) = (folder / "out").iterdir()
    assert written.name.startswith("mine-")
    assert written.name in result.output
    runs = pd.read_csv(written)
    assert runs["held out"].tolist() == ["a", "b", "c"]
    assert (runs["method"] == method).all()
    # It never calls anything novel: its error is the whole share.
    np.testing.assert_allclose(runs["error"], runs["novel_true"])
    assert runs["accuracy"].between(0.2, 0.9).all()
    assert "all, mean" in result.output


def test_a_second_table_does_not_replace_the_first(folder):
    asked = ["--label", "kind", "--methods", f"{folder / 'method.py'}:Mine"]
    assert invoke(folder, *asked).exit_code == 0
    first = {path: path.read_bytes() for path in (folder / "out").iterdir()}
    frame = pd.read_csv(folder / "mine.csv")
    frame.assign(x0=frame["x0"] + 1).to_csv(folder / "mine.csv", index=False)
    assert invoke(folder, *asked).exit_code == 0
    assert invoke(folder, *asked).exit_code == 0  # the same again: the same file
    assert len(list((folder / "out").iterdir())) == 2
    assert {path: path.read_bytes() for path in first} == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "mine.csv: which column holds the classes? Name it with --label."),
        (["--label", "kin"], "did you mean 'kind'"),
        (["--label", "kind", "--methods", "puls"], "did you mean"),
        (
            ["--label", "kind", "--novel", "2"],
            "--novel: of a file of your own each class is held out in turn",
        ),
        (["--label", "kind", "--methods", "no_such:Thing"], "no_such cannot be imported"),
        (["--label", "kind", "--methods", "no_such.py:Thing"], "cannot be imported"),
        (["--label", "kind", "--methods", "osls.metrics:accuracy"], "no subclass of"),
        (["--label", "kind", "--methods", "broken.py:Thing"], "cannot be imported (SyntaxError: "),
        (["--label", "kind", "--methods", "raises.py:Thing"], "cannot be imported (RuntimeError: no GPU)"),
        (
            ["--label", "kind", "--methods", "raises.py"],
            "which class of that file? Write raises.py:MyAdapter",
        ),
    ],
)
def test_what_cannot_be_compared(folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    (folder / "broken.py").write_text("class Thing(:\n")
    (folder / "raises.py").write_text("raise RuntimeError('no GPU')\n")
    result = invoke(folder, *words)
    assert result.exit_code == 2
    assert message in result.output


FAILING = """
import numpy as np
from osls.base import Adaptation, OpenSetAdapter

class Raises(OpenSetAdapter):
    def __init__(self, *, novel_label=None, random_state=None):
        self.novel_label = novel_label
        self.random_state = random_state

    def _adapt(self, task):
        raise RuntimeError("no GPU")

class NotANumber(Raises):
    def _adapt(self, task):
        proba = np.full((task.X_target.shape[0], task.k + 1), np.nan)
        return Adaptation(task.source_marginal, 0.0, proba)
"""


def test_a_method_that_fails_does_not_take_the_others_with_it(folder):
    (folder / "failing.py").write_text(FAILING)
    names = [
        f"{folder / file}:{name}"
        for file, name in (("failing.py", "Raises"), ("failing.py", "NotANumber"), ("method.py", "Mine"))
    ]
    result = invoke(folder, "--label", "kind", "--methods", ",".join(names))
    assert result.exit_code == 1
    assert "RuntimeError: no GPU" in result.output
    assert "not finite numbers" in result.output
    (written,) = (folder / "out").iterdir()
    runs = pd.read_csv(written).set_index("method")
    assert runs.loc[names[:2], "accuracy"].isna().all()
    assert runs.loc[names[2], "accuracy"].between(0.2, 0.9).all()


def test_two_classes_are_too_few(folder):
    (folder / "mine.csv").write_text("x,kind\n" + "1,a\n2,b\n" * 20)
    result = invoke(folder, "--label", "kind")
    assert result.exit_code == 2
    assert "two classes" in result.output


def test_methods_by_import_path():
    assert find_method("osls.baselines:KPU").adapter is find_method("k-pu").adapter
