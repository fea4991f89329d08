"""Run every (data set, method, draw) once, in parallel, and keep one line a run.

The file of results is only ever appended to, a whole line at a time; a run whose line is there is not run
again, so a killed benchmark goes on where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Run", "draw_problem", "pending", "read_rows", "run_all", "run_one"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One cell of a benchmark. The draw fixes the problem, whatever the method."""

    data: str
    method: str
    draw: int
    seed: int = 0
    novel: int | None = None

    @property
    def key(self) -> str:
        """Identity of the run in the results file."""
        return json.dumps(asdict(self), sort_keys=True)


def draw_problem(run: Run) -> Any:
    """Make the run's problem: the same for every method of a draw."""
    from osls.datasets import load_dataset, simulate_osls

    dataset = load_dataset(run.data)
    X, y = dataset.load()
    rng = np.random.RandomState(np.random.SeedSequence([run.seed, run.draw]).generate_state(1))
    if dataset.max_rows is not None and len(y) > dataset.max_rows:
        rows = rng.choice(len(y), dataset.max_rows, replace=False)
        X, y = X[rows], y[rows]
    novel = int(rng.randint(dataset.novel[0], dataset.novel[1] + 1)) if run.novel is None else run.novel
    return simulate_osls(X, y, novel=novel, random_state=rng)


def run_one(run: Run) -> Row:
    """Run one cell; an exception becomes part of the row."""
    from osls.bench.methods import find_method
    from osls.metrics import accuracy, mix_error

    row: Row = {
        **asdict(run),
        "versions": _versions(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    started = time.perf_counter()
    try:
        problem = draw_problem(run)
        started = time.perf_counter()
        answers = find_method(run.method)(problem, run.draw)
        row["seconds"] = round(time.perf_counter() - started, 3)
        target = accuracy(problem.y_target, answers.target_labels, problem.novel_label)
        test = accuracy(problem.y_test, answers.test_labels, problem.novel_label)
        error = mix_error(problem.target_marginal, answers.target_marginal)
        row |= {
            "n_source": len(problem.y_source),
            "n_target": len(problem.y_target),
            "k": len(problem.classes),
            "novel_classes": run.novel,
            "novel_true": float(problem.target_marginal[-1]),
            "novel_estimate": float(answers.target_marginal[-1]),
            "novel_interval": answers.novel_interval,
            "acc_all": target.all,
            "acc_seen": target.seen,
            "acc_novel": target.novel,
            "test_acc_all": test.all,
            "test_acc_seen": test.seen,
            "test_acc_novel": test.novel,
            "mpe_seen": error.seen,
            "mpe_novel": error.novel,
            "error": None,
        }
    except Exception as problem_with_run:
        row |= {
            "seconds": round(time.perf_counter() - started, 3),
            "error": f"{type(problem_with_run).__name__}: {problem_with_run}",
        }
    return row


def _versions() -> dict[str, str]:
    names = ("osls", "numpy", "scipy", "scikit-learn", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def read_rows(path: Path) -> list[Row]:
    """Read the finished runs; a last line cut short by a kill is ignored."""
    rows = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return rows


def pending(runs: Iterable[Run], path: Path) -> list[Run]:
    """Return the runs that have no successful row yet."""
    fields = Run.__dataclass_fields__
    done = {Run(**{name: row[name] for name in fields}).key for row in read_rows(path) if not row["error"]}
    return [run for run in runs if run.key not in done]


def _append(path: Path, row: Row) -> None:
    line = json.dumps(row) + "\n"
    with path.open("a+b") as file:
        # A kill may have left half a line; start on a fresh one.
        if file.tell() and not path.read_bytes().endswith(b"\n"):
            line = "\n" + line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _start_worker(single_threaded: bool) -> None:
    """One core a worker, since parallel runs gain more than parallel products; no life without a parent."""
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    if single_threaded:
        import torch

        torch.set_num_threads(1)


def _exit_with(parent: int) -> None:
    """End this process when its parent was killed, rather than go on computing for nobody."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def run_all(
    runs: list[Run], path: Path, *, jobs: int, on_row: Callable[[Row], None] = lambda row: None
) -> Iterator[Row]:
    """Run the given cells on ``jobs`` processes, append each row as it comes, and yield it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # OpenMP reads this when a worker starts, before torch can be asked.
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1" if jobs > 1 else (threads or str(os.cpu_count()))
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_start_worker, initargs=(jobs > 1,)
        ) as pool:
            futures = [pool.submit(run_one, run) for run in runs]
            for future in as_completed(futures):
                row = future.result()
                _append(path, row)
                on_row(row)
                yield row
    finally:
        if threads is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = threads
