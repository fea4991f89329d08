"""The benchmark's runs: rows, claims, a kill in the middle, two processes at once, a cluster, commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from filelock import FileLock, Timeout
from typer.testing import CliRunner

from conftest import wait_until
from dying import die_on_draw_zero
from osls.app.bench.config import config_key
from osls.app.bench.draws import draw_problem
from osls.app.bench.execute import EpochAccuracy, compact_history, run_config
from osls.app.bench.methods import run_method
from osls.app.bench.network_plans import NetworkPlan, NetworkSpec
from osls.app.bench.runner import Progress, Worker, local_workers, pending, run_all, run_study
from osls.app.bench.store import COLUMNS, Store, read_parquet
from osls.app.bench.study import parse_study, runs_of
from osls.app.cli import app

RECIPES = Path(__file__).parents[1] / "benchmarks" / "results" / "recipes"
FAST = {"name": "source-only", "parameters": {"source_classifier": "linear", "n_folds": 2}}


def content(draws: int = 3, **changes):
    """The content of a study file whose runs take a fraction of a second."""
    data = [{"name": "digits", "rows": 200, "novel": 2}]
    return {"name": "fast", "data": data, "methods": [FAST], "draws": draws} | changes


def study_of(**changes):
    return parse_study(content(**changes))


class Recorder:
    """A run that takes a while and remembers that it was run."""

    def __init__(self, seconds: float = 0.0):
        self.draws: list[int] = []
        self._seconds = seconds

    def __call__(self, config):
        self.draws.append(config["draw"])
        time.sleep(self._seconds)
        return {"error": None, "acc_all": 1.0}


def threads(n: int) -> list[Worker]:
    return [Worker(lambda: ThreadPoolExecutor(1)) for _ in range(n)]


@pytest.fixture(scope="module")
def row():
    return run_config(runs_of(study_of(draws=1))[0].config)


class TestRow:
    def test_is_complete(self, row):
        assert row["error"] is None
        assert row["acc_novel"] == 0
        assert row["novel_estimate"] == 0
        assert row["mpe_novel"] == row["novel_true"] > 0
        assert row["n_source"] + row["n_target"] + row["n_test"] == 200
        assert row["k"] == 8
        assert row["seconds"] > 0
        assert row["cpu_seconds"] > 0
        assert row["peak_memory_mb"] > 50
        versions = {"python", "osls", "numpy", "scipy", "scikit-learn", "torch"}
        assert set(json.loads(row["versions"])) == versions
        assert {"cpu", "cores", "memory_gb"} <= set(json.loads(row["hardware"]))

    def test_names_no_unknown_column(self, row):
        assert set(row) <= set(COLUMNS)

    def test_of_a_failure_has_error_and_traceback(self):
        config = runs_of(study_of(draws=1))[0].config
        row = run_config(config | {"data": config["data"] | {"novel": 10}})
        assert "at least one class must stay known" in row["error"]
        assert "simulate_osls" in row["traceback"]
        assert str(Path(__file__).parents[1]) not in row["traceback"]
        assert sys.prefix not in row["traceback"]
        assert json.loads(row["versions"])["osls"]

    def test_follows_epochs_and_finds_the_best_threshold(self):
        method = {"name": "backprop-oda", "parameters": {"max_steps": 12}}
        row = run_config(runs_of(study_of(draws=1, methods=[method]))[0].config)
        epochs = json.loads(row["history"])
        assert len(epochs) >= 3
        assert epochs[-1]["acc_all"] == pytest.approx(row["acc_all"], abs=1e-5)
        assert epochs[-1]["mpe_novel"] == pytest.approx(row["mpe_novel"], abs=1e-5)
        assert row["acc_best_threshold"] >= row["acc_all"]

    @pytest.mark.parametrize("name", ["source-only", "oracle"])
    def test_without_test_rows_has_no_test_accuracy(self, name):
        data = [{"name": "digits", "rows": 200, "novel": 2, "test_size": 0}]
        method = FAST if name == "source-only" else {"name": "oracle", "parameters": {"max_steps": 2}}
        row = run_config(runs_of(study_of(draws=1, data=data, methods=[method]))[0].config)
        assert row["error"] is None
        assert row["n_test"] == 0
        assert "test_acc_all" not in row
        assert row["acc_all"] > 0

    def test_of_epochs_that_the_history_does_not_tell_has_their_accuracy(self):
        problem = draw_problem({"name": "digits", "rows": 200, "novel": 2}, draw=0)
        accuracies = EpochAccuracy(problem)
        labels = np.array([*problem.classes.tolist(), problem.novel_label], dtype=object)
        accuracies(1, (problem.y_target.astype(object)[:, None] == labels).astype(float))
        novel = float(problem.target_marginal[-1])
        history = [{"step": "cvir", "alpha": 0.9 - novel}]
        first, second = json.loads(compact_history(history, accuracies, problem))
        assert first["mpe_novel"] == pytest.approx(0.1)
        assert second == {"epoch": 1, "acc_all": 1.0, "acc_seen": 1.0, "acc_novel": 1.0}

    def test_has_the_interval_and_whether_it_covers(self):
        method = {"name": "pulse", "parameters": {"n_folds": 2, "rounds": 1, "n_bootstrap": 10}}
        method["parameters"] |= {"source_classifier": "linear", "discriminator": "linear"}
        row = run_config(runs_of(study_of(draws=1, methods=[method]))[0].config)
        covered = row["novel_low"] <= row["novel_true"] <= row["novel_high"]
        assert row["error"] is None
        assert row["novel_covered"] is covered


class TestProblem:
    def test_a_draw_is_one_problem_and_the_next_another(self):
        data = {"name": "digits"}
        one, two = draw_problem(data, draw=3), draw_problem(data, draw=3)
        np.testing.assert_array_equal(one.X_target, two.X_target)
        assert len(draw_problem(data, draw=4).X_target) != len(one.X_target)

    def test_novel_by_number_by_class_and_by_name(self):
        assert len(draw_problem({"name": "digits", "novel": 0}, draw=0).classes) == 10
        assert len(draw_problem({"name": "digits", "novel": 9}, draw=0).classes) == 1
        for novel in ([8, 9], ["8", "9"]):
            classes = draw_problem({"name": "digits", "novel": novel}, draw=0).classes
            assert classes.tolist() == list(range(8))
        with pytest.raises(ValueError, match="unknown class 'ten'"):
            draw_problem({"name": "digits", "novel": ["ten"]}, draw=0)

    def test_sizes(self):
        problem = draw_problem({"name": "digits", "rows": 500, "target_size": 60, "test_size": 0.0}, draw=0)
        assert len(problem.y_target) == problem.X_target.shape[0] == 60
        assert len(problem.y_test) == 0
        assert problem.target_marginal.sum() == pytest.approx(1)

    @pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
    @pytest.mark.parametrize("name", ["source-only", "pulse-trees"])
    def test_methods_do_not_see_target_labels(self, name):
        problem = draw_problem({"name": "digits", "rows": 300}, draw=0)
        corrupted = replace(problem, y_target=problem.y_target[::-1], y_test=problem.y_test[::-1])
        quick = {"n_folds": 2, "source_classifier": "linear"}
        if name == "pulse-trees":
            quick |= {"discriminator": "linear", "rounds": 1, "n_bootstrap": 10}
        answers = [run_method(name, p, seed=0, parameters=quick) for p in (problem, corrupted)]
        np.testing.assert_array_equal(answers[0].target_labels, answers[1].target_labels)
        np.testing.assert_array_equal(answers[0].target_marginal, answers[1].target_marginal)

    def test_oracle_knows(self):
        problem = draw_problem({"name": "digits", "target_size": 300}, draw=0)
        network = NetworkPlan(NetworkSpec(body="mlp"))
        answers = run_method("oracle", problem, seed=0, parameters={"max_steps": 100}, network=network)
        assert np.mean(answers.test_labels == problem.y_test) > 0.85


class TestClaims:
    @staticmethod
    def acquired(folder: Path) -> FileLock | None:
        claim = Store(folder).claim("run")
        try:
            claim.acquire(timeout=0)
        except Timeout:
            return None
        return claim

    def test_of_eight_at_once_one_gets_it(self, tmp_path):
        together = threading.Barrier(8)

        def try_it(_):
            together.wait()
            return self.acquired(tmp_path)

        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(try_it, range(8)))
        assert len([claim for claim in got if claim]) == 1

    def test_of_another_process_is_respected_until_that_is_killed(self, tmp_path):
        code = f"""
from pathlib import Path
from osls.app.bench.store import Store
claim = Store(Path({str(tmp_path)!r})).claim("run")
claim.acquire()
print("mine", flush=True)
input()
"""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
            assert process.stdout.readline() == "mine\n"
            assert self.acquired(tmp_path) is None
            process.kill()
        assert self.acquired(tmp_path) is not None

    def test_released_it_can_be_had_again(self, tmp_path):
        first = self.acquired(tmp_path)
        assert self.acquired(tmp_path) is None
        first.release()
        assert self.acquired(tmp_path) is not None


class TestRunner:
    def test_each_is_run_once_and_kept(self, tmp_path):
        runs, store, run = runs_of(study_of(draws=5)), Store(tmp_path), Recorder()
        run_all(runs, store, threads(2), execute=run)
        assert sorted(run.draws) == [0, 1, 2, 3, 4]
        assert pending(runs, {row["key"]: row for row in store.rows()}) == []

    def test_two_at_once_share_the_work(self, tmp_path):
        runs, run = runs_of(study_of(draws=12)), Recorder(0.03)
        both = [
            threading.Thread(
                target=run_all, args=(runs, Store(tmp_path), threads(2)), kwargs={"execute": run}
            )
            for _ in range(2)
        ]
        for one in both:
            one.start()
        for one in both:
            one.join()
        assert sorted(run.draws) == list(range(12))
        assert len(Store(tmp_path).rows()) == 12

    def test_what_was_finished_since_planning_is_not_run_again(self, tmp_path):
        runs, store = runs_of(study_of(draws=2)), Store(tmp_path)
        run_all(runs[:1], store, threads(1), execute=Recorder())
        run, told = Recorder(), []
        run_all(runs, store, threads(1), execute=run, progress=Progress(finished=lambda c, r: told.append(c)))
        assert run.draws == [1]
        assert len(told) == 2

    def test_a_failure_is_recorded_and_the_others_go_on(self, tmp_path):
        def run(config):
            if config["draw"] == 1:
                raise MemoryError("too much")
            return {"error": None}

        run_all(runs_of(study_of()), Store(tmp_path), threads(1), execute=run)
        errors = {row["draw"]: row["error"] for row in Store(tmp_path).rows()}
        assert errors == {0: None, 1: "MemoryError: too much", 2: None}

    def test_failures_are_tried_again_only_if_asked(self, tmp_path):
        study = study_of(draws=1, data=[{"name": "digits", "novel": 10}])
        runs = runs_of(study)
        run_all(runs, Store(tmp_path), threads(1), execute=lambda config: {"error": "no"})
        rows = {row["key"]: row for row in Store(tmp_path).rows()}
        assert pending(runs, rows) == []
        again = pending(runs, rows, retry_failed=True)
        assert again == runs
        run_all(again, Store(tmp_path), threads(1), before=rows, execute=Recorder())
        assert Store(tmp_path).rows()[0]["error"] is None

    def test_a_stopped_runner_leaves_no_claim(self, tmp_path):
        def stop(run):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_all(runs_of(study_of()), Store(tmp_path), threads(1), progress=Progress(started=stop))
        runs, run = runs_of(study_of()), Recorder()
        run_all(runs, Store(tmp_path), threads(1), execute=run)
        assert len(run.draws) == 3

    def test_renamed_rows_are_not_run_again(self, tmp_path):
        runs = runs_of(study_of())
        run_all(runs, Store(tmp_path), threads(1), execute=Recorder())
        renamed = study_of(methods=[FAST | {"label": "alone"}])
        rows = run_study(renamed, tmp_path)
        assert [row["method"] for row in rows] == ["alone"] * 3
        assert [row["acc_all"] for row in rows] == [1.0] * 3
        assert [row["method"] for row in Store(tmp_path).rows()] == ["alone"] * 3

    def test_a_dead_worker_costs_one_run(self, tmp_path):
        """Real processes: one run kills its own, the next ones get a new one."""
        runs, store = runs_of(study_of(draws=2)), Store(tmp_path)
        with local_workers(1) as workers:
            run_all(runs, store, workers, execute=die_on_draw_zero)
        errors = {row["draw"]: row["error"] for row in store.rows()}
        assert errors[0].startswith("WorkerDied")
        assert errors[1] is None

    def test_on_a_dask_cluster(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        options = {"n_workers": 2, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
        with distributed.LocalCluster(**options) as cluster:
            rows = run_study(study_of(), tmp_path, scheduler=cluster.scheduler_address)
        assert [row["error"] for row in rows] == [None] * 3
        assert sorted(row["draw"] for row in rows) == [0, 1, 2]

    @pytest.mark.parametrize("before", [None, "3"])
    def test_several_workers_get_one_thread_each(self, monkeypatch, before):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if before is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", before)
        with local_workers(2) as workers:
            assert len(workers) == 2
            assert os.environ["OMP_NUM_THREADS"] == "1"
        assert os.environ.get("OMP_NUM_THREADS") == before
        with local_workers(1):
            assert os.environ.get("OMP_NUM_THREADS") == before

    def test_where_signals_cannot_be_held_back(self, tmp_path, monkeypatch):
        monkeypatch.delattr(signal, "pthread_sigmask")
        run = Recorder()
        run_all(runs_of(study_of(draws=1)), Store(tmp_path), threads(1), execute=run)
        assert run.draws == [0]

    def test_a_cluster_without_workers(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
            pytest.raises(ValueError, match="has no workers; start some with `dask worker`"),
        ):
            run_study(study_of(), tmp_path, scheduler=cluster.scheduler_address)
        assert Store(tmp_path).rows() == []

    def test_a_cluster_that_is_not_there(self, tmp_path):
        with pytest.raises(ValueError, match="no Dask scheduler answers"):
            run_study(study_of(), tmp_path, scheduler="nonsense")


class TestStore:
    def test_parquet_holds_every_row_and_survives_without_the_single_files(self, tmp_path):
        runs, store = runs_of(study_of()), Store(tmp_path)
        run_all(runs, store, threads(1), execute=Recorder())
        store.compact(each.key for each in reversed(runs))
        rows = read_parquet(store.parquet)
        assert [row["draw"] for row in rows] == [2, 1, 0]
        assert list(rows[0]) == list(COLUMNS)
        for path in (tmp_path / "runs").glob("*.json"):
            path.unlink()
        assert pending(runs, {row["key"]: row for row in store.rows()}) == []

    def test_without_rows_there_is_no_parquet(self, tmp_path):
        assert Store(tmp_path).compact() == []
        assert not Store(tmp_path).parquet.exists()

    def test_measures_that_are_absent_are_null(self, tmp_path):
        Store(tmp_path).write([{"key": "a", "acc_novel": float("nan"), "acc_all": 0.5}])
        row = Store(tmp_path).compact()[0]
        assert row["acc_novel"] is None
        assert row["acc_all"] == 0.5

    def test_committed_rows_count_as_done(self):
        rows = Store(RECIPES).rows_by_key()
        assert len(rows) == 90
        same = parse_study({"name": "s", "data": ["digits"], "methods": ["pulse", "source-only"], "draws": 5})
        assert pending(runs_of(same), rows) == []
        pulse, plain = (np.mean([rows[run.key]["acc_all"] for run in runs_of(same)[i::2]]) for i in (0, 1))
        assert pulse > plain + 0.1

    def test_key_does_not_depend_on_the_order_of_keys(self):
        assert config_key({"a": 1, "b": 2}) == config_key({"b": 2, "a": 1}) != config_key({"a": 1, "b": 3})


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "osls.app.cli", "bench", *map(str, arguments)]


def test_ctrl_c_does_not_interrupt_the_start_of_a_worker():
    """Also if it is another thread that the system gives the signal to."""
    awake, done = threading.Event(), []
    other = threading.Thread(target=awake.wait)
    other.start()

    class Starting(ThreadPoolExecutor):
        def submit(self, *given):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            done.append(given)

    with pytest.raises(KeyboardInterrupt):
        Worker(Starting).submit(run_config, {})
    awake.set()
    other.join()
    assert done == [(run_config, {})]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_ends_cleanly(tmp_path):
    file, out = tmp_path / "study.yml", tmp_path / "out"
    file.write_text(yaml.safe_dump(content(draws=50, methods=["pulse-trees"])))
    process = subprocess.Popen(
        command("run", file, "--out", out, "--jobs", 1),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: any((out / "claims").glob("[0-9a-f]*")))
    os.killpg(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=900)
    assert process.returncode == 130
    assert "to go on: osls bench run" in printed
    assert "Traceback" not in errors
    wait_until(lambda: not group_of(process.pid))


def group_of(leader: int) -> list[str]:
    listed = subprocess.run(["ps", "-o", "pid=", "-g", str(leader)], capture_output=True, text=True)
    return listed.stdout.split()


class TestCommands:
    def invoke(self, *arguments):
        return CliRunner().invoke(app, ["bench", *map(str, arguments)])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--data", "digitz"], "did you mean 'digits'"),
            (["--methods", "puls"], "did you mean 'pulse'"),
            (["--data", "nothing-like-it"], "unknown data set"),
            (["table", "no-such-folder"], "does not exist"),
            (["run", "no-such-study.yml"], "cannot be read"),
        ],
    )
    def test_what_is_unknown_is_named(self, arguments, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        result = self.invoke(*arguments)
        assert result.exit_code == 2
        assert message in result.output

    def test_without_a_command_it_runs_the_named_methods_but_none_twice(self, tmp_path):
        out = tmp_path / "quick"
        shutil.copytree(RECIPES, out)
        result = self.invoke("--methods", "source-only", "--draws", 1, "--jobs", 1, "--out", out)
        assert result.exit_code == 0, result.output
        assert "1 of 1 runs are in" in result.output
        assert "0 of 1 runs were run by this command" in result.output
        rows = Store(RECIPES).rows()
        (kept,) = (r for r in rows if (r["data"], r["method"], r["draw"]) == ("digits", "source-only", 0))
        assert f"{kept['acc_all']:.3f}" in result.output

    def test_dry_run_lists_and_runs_nothing(self, tmp_path):
        (tmp_path / "s.yml").write_text(yaml.safe_dump(content()))
        result = self.invoke("run", tmp_path / "s.yml", "--out", tmp_path / "out", "--dry-run")
        assert "3 of 3 runs are to be run" in result.output
        assert not (tmp_path / "out").exists()

    def test_list_names_data_methods_parameters_and_studies(self, tmp_path):
        (tmp_path / "s.yml").write_text(yaml.safe_dump(content(title="A study of mine")))
        result = self.invoke("list", "--studies", tmp_path)
        for words in ("newsgroups", "backprop-oda", "boundary", "resnet18-small-images", "A study of mine"):
            assert words in result.output

    def test_list_without_studies(self, tmp_path):
        result = self.invoke("list", "--studies", tmp_path)
        assert result.exit_code == 0
        assert "backprop-oda" in result.output
        assert "Studies in" not in result.output

    def test_failures_are_shown_as_they_come(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        (tmp_path / "s.yml").write_text(
            yaml.safe_dump(content(draws=1, data=[{"name": "digits", "novel": 10}]))
        )
        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
        with distributed.LocalCluster(**options) as cluster:
            words = ["run", tmp_path / "s.yml", "--out", tmp_path / "out"]
            result = self.invoke(*words, "--scheduler", cluster.scheduler_address)
        assert result.exit_code == 1
        said = " ".join(result.output.split())
        assert "digits source-only draw 0: ValueError: novel=10 of 10 classes" in said
        assert "1 of 1 runs were run by this command. 1 of 1 runs failed" in said

    def test_failed_runs_make_the_status_one(self, tmp_path):
        (tmp_path / "s.yml").write_text(yaml.safe_dump(content(draws=1)))
        runs = runs_of(parse_study(content(draws=1)))
        run_all(runs, Store(tmp_path / "out"), threads(1), execute=lambda config: {"error": "no luck"})
        result = self.invoke("run", tmp_path / "s.yml", "--out", tmp_path / "out")
        assert result.exit_code == 1
        assert "1 of 1 runs failed" in result.output
