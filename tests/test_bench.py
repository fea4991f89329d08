"""The benchmark: its rows, its resumption after a kill, its table, its command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from osls.bench.methods import METHODS, find_method
from osls.bench.runner import Run, draw_problem, pending, read_rows, run_all, run_one
from osls.bench.table import summarise
from osls.cli import app
from osls.datasets import DATASETS, load_dataset


def test_a_run_is_one_complete_row():
    row = run_one(Run("digits", "source-only", draw=0))
    assert row["error"] is None
    assert row["acc_novel"] == 0
    assert row["novel_estimate"] == 0
    assert row["mpe_novel"] == row["novel_true"] > 0
    assert set(row["versions"]) == {"python", "osls", "numpy", "scipy", "scikit-learn", "torch"}
    assert row["seconds"] > 0
    json.dumps(row)


def test_a_draw_is_the_same_problem_for_every_method_and_differs_from_the_next():
    one, two = (draw_problem(Run("digits", m, draw=3)) for m in ("pulse", "oracle"))
    np.testing.assert_array_equal(one.X_target, two.X_target)
    assert len(draw_problem(Run("digits", "pulse", draw=4)).X_target) != len(one.X_target)


def test_number_of_novel_classes_can_be_set():
    assert len(draw_problem(Run("digits", "pulse", draw=0, novel=0)).classes) == 10
    assert len(draw_problem(Run("digits", "pulse", draw=0, novel=9)).classes) == 1


def test_failing_runs_are_recorded_and_tried_again(tmp_path):
    path = tmp_path / "runs.jsonl"
    bad = Run("digits", "source-only", draw=0, novel=10)
    rows = list(run_all([bad], path, jobs=1))
    assert "at least one class must stay known" in rows[0]["error"]
    assert pending([bad], path) == [bad]
    assert summarise(read_rows(path))[0]["Draws"] == "0 (+1 failed)"


def test_half_a_line_is_ignored_and_not_glued_to_the_next(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = Run("digits", "source-only", draw=0, novel=10)
    path.write_text('{"data": "digits", "meth')
    assert read_rows(path) == []
    list(run_all([run], path, jobs=1))
    assert len(read_rows(path)) == 1


def test_table_has_mean_spread_worst_and_regret():
    base = {
        "data": "d",
        "error": None,
        "acc_seen": 1.0,
        "acc_novel": float("nan"),
        "test_acc_all": 1.0,
        "mpe_seen": 0.0,
        "seconds": 1.0,
    }
    rows = [
        {**base, "method": "a", "draw": 0, "acc_all": 0.8, "mpe_novel": 0.1},
        {**base, "method": "a", "draw": 1, "acc_all": 0.6, "mpe_novel": 0.3},
        {**base, "method": "oracle", "draw": 0, "acc_all": 0.9, "mpe_novel": 0.0},
        {**base, "method": "oracle", "draw": 1, "acc_all": 0.9, "mpe_novel": 0.0},
    ]
    line = summarise(rows)[0]
    assert line["Acc (all)"] == "0.700\n±0.100\n(0.600)"
    assert line["MPE (novel)"] == "0.200\n±0.100\n(0.300)"
    assert line["Regret"] == "0.200\n±0.100\n(0.300)"
    assert line["Acc (novel)"] == "-"


@pytest.mark.parametrize("name", [m for m in METHODS if m in ("source-only", "pulse-trees")])
def test_methods_do_not_see_target_labels(name):
    problem = draw_problem(Run("digits", name, draw=0))
    problem = replace(problem, X_source=problem.X_source[:300], y_source=problem.y_source[:300])
    corrupted = replace(problem, y_target=problem.y_target[::-1], y_test=problem.y_test[::-1])
    answers = [find_method(name)(p, 0) for p in (problem, corrupted)]
    np.testing.assert_array_equal(answers[0].target_labels, answers[1].target_labels)
    np.testing.assert_array_equal(answers[0].target_marginal, answers[1].target_marginal)


def test_oracle_knows():
    problem = draw_problem(Run("digits", "oracle", draw=0))
    small = replace(problem, X_target=problem.X_target[:300], y_target=problem.y_target[:300])
    answers = METHODS["oracle"](small, 0)
    assert np.mean(answers.test_labels == small.y_test) > 0.85


def test_workers_end_with_their_parent(tmp_path):
    """kill -9 of the parent alone: its workers must not go on computing."""
    command = [sys.executable, "-m", "osls.cli", "bench", "--methods", "pulse-trees", "--draws", "9"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    out = tmp_path / "runs.jsonl"
    process = subprocess.Popen([*command, "--jobs", "1", "--out", str(out)], start_new_session=True, **quiet)

    def members() -> list[str]:
        listed = subprocess.run(["ps", "-o", "pid=", "-g", str(process.pid)], capture_output=True, text=True)
        return listed.stdout.split()

    deadline = time.monotonic() + 60
    while len(members()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while members() and time.monotonic() < deadline:
        time.sleep(0.2)
    left = members()
    if left:
        os.killpg(process.pid, signal.SIGKILL)
    assert left == []


def test_command_resumes_after_a_kill(tmp_path):
    """kill -9 in the middle, then the same command: everything is there once."""
    out = tmp_path / "runs.jsonl"
    command = [sys.executable, "-m", "osls.cli", "bench", "--methods", "source-only", "--draws", "4"]
    command += ["--jobs", "1", "--out", str(out)]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while len(read_rows(out)) < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = len(read_rows(out))
    assert 1 <= before < 4
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{before} of 4 runs" in finished.stdout
    assert "source-only" in finished.stdout
    assert sorted(row["draw"] for row in read_rows(out)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digitz"], "Did you mean 'digits'"),
        (["--methods", "puls"], "Did you mean 'pulse'"),
        (["--data", "nothing-like-it"], "unknown data set"),
    ],
)
def test_unknown_names_end_with_a_hint(arguments, message, tmp_path):
    result = CliRunner().invoke(app, ["bench", "--out", str(tmp_path / "r.jsonl"), *arguments])
    assert result.exit_code == 2
    assert message in result.output


class TestData:
    def test_folder_must_be_named(self, monkeypatch):
        monkeypatch.delenv("OSLS_DATA", raising=False)
        with pytest.raises(FileNotFoundError, match="OSLS_DATA"):
            load_dataset("letter").load()

    def test_missing_text_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setenv("OSLS_DATA", str(tmp_path))
        with pytest.raises(FileNotFoundError, match="20news-bydate_py3"):
            load_dataset("newsgroups").load()

    def test_missing_file_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setenv("OSLS_DATA", str(tmp_path))
        with pytest.raises(FileNotFoundError, match=r"letter\.npz"):
            load_dataset("letter").load()

    def test_both_layouts(self, monkeypatch, tmp_path):
        monkeypatch.setenv("OSLS_DATA", str(tmp_path))
        np.savez(tmp_path / "letter.npz", X=np.ones((4, 2)), y=np.arange(4))
        images = np.full((2, 3, 3), 255, np.uint8)
        np.savez(tmp_path / "mnist.npz", X_train=images, y_train=[0, 1], X_test=images[:1], y_test=[2])
        X, y = DATASETS["letter"].load()
        assert X.dtype == np.float32
        assert y.tolist() == [0, 1, 2, 3]
        X, y = DATASETS["mnist"].load()
        assert X.shape == (3, 9)
        assert X.max() == 1
        assert y.tolist() == [0, 1, 2]
