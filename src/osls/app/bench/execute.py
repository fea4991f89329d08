"""One run: draw the problem, fit the method, and write down everything about it as one row."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from osls.app.bench.follow import Follower, compact_history
from osls.app.bench.rows import Row

__all__ = ["run_config"]

_LIBRARIES = ("osls", "numpy", "scipy", "scikit-learn", "torch")
# Networks are seeded through torch's own random state, which the threads of a process share.
_ONE_AT_A_TIME = threading.Lock()


def run_config(config: Mapping[str, Any]) -> Row:
    """Run the config of a cell; an exception becomes part of the row."""
    with _ONE_AT_A_TIME:
        row: Row = {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": json.dumps(_versions()),
            "hardware": json.dumps(_hardware()),
            "threads": _threads(),
        }
        try:
            return row | _measure(config)
        except Exception as error:
            return row | {
                "error": _without_folders(f"{type(error).__name__}: {error}"),
                "traceback": _without_folders("".join(traceback.format_exception(error)))[-2000:],
            }


def _measure(config: Mapping[str, Any]) -> Row:
    from osls.app.bench.methods import run_method
    from osls.app.bench.problems import draw_problem, network_plan

    data, method, network = config["data"], config["method"], config.get("network")
    problem = draw_problem(data, draw=config["draw"], seed=config["seed"], network=network)
    follower = Follower(problem)
    plan = network_plan(network, data, problem)
    _reset_peak_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = run_method(
            method["name"],
            problem,
            seed=config["draw"],
            parameters=method.get("parameters", {}),
            network=plan,
            follow=follower,
        )
    row: Row = {
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_memory_mb": _peak_memory_mb(),
        "warnings": json.dumps(sorted({str(w.message) for w in caught})),
        "error": None,
        "traceback": None,
    }
    return row | _judge(problem, answers) | {"history": compact_history(answers.history, follower, problem)}


def _judge(problem: Any, answers: Any) -> Row:
    """Compare the answers with the truth."""
    from osls.metrics import accuracy, mix_error

    truth = float(problem.target_marginal[-1])
    target = accuracy(problem.y_target, answers.target_labels, problem.novel_label)
    error = mix_error(problem.target_marginal, answers.target_marginal)
    row: Row = {
        "n_source": len(problem.y_source),
        "n_target": len(problem.y_target),
        "n_test": len(problem.y_test),
        "k": len(problem.classes),
        "novel_true": truth,
        "novel_estimate": float(answers.target_marginal[-1]),
        "acc_all": target.all,
        "acc_seen": target.seen,
        "acc_novel": target.novel,
        "mpe_seen": error.seen,
        "mpe_novel": error.novel,
        "novelty_pvalue": answers.novelty_pvalue,
        "verdict": answers.verdict,
    }
    if len(problem.y_test):
        test = accuracy(problem.y_test, answers.test_labels, problem.novel_label)
        row |= {"test_acc_all": test.all, "test_acc_seen": test.seen, "test_acc_novel": test.novel}
    if answers.novel_interval is not None:
        low, high = answers.novel_interval
        row |= {"novel_low": low, "novel_high": high, "novel_covered": low <= truth <= high}
    return row | _hindsight(problem, answers)


def _hindsight(problem: Any, answers: Any) -> Row:
    """For methods that reject by a threshold: the best one there could have been."""
    from osls.baselines import best_threshold

    if answers.known_score is None:
        return {}
    best = best_threshold(answers.known_score, answers.known_labels, problem.y_target, problem.novel_label)
    return {"best_threshold": best.threshold, "acc_best_threshold": best.accuracy}


def _without_folders(text: str) -> str:
    """Leave out where things lie on this machine: results are for others to read."""
    import osls

    found = [Path(osls.__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix), Path.cwd(), Path.home()]
    named = [os.environ.get(name) for name in ("OSLS_DATA", "OSLS_CACHE")]
    # The longest first: one may lie in another. A bare root would match everywhere.
    for folder in sorted({*map(str, found), *filter(None, named)} - {os.sep}, key=len, reverse=True):
        text = text.replace(folder, "...")
    return text


# -- The machine -----------------------------------------------------------------------------------------


@cache
def _versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version()} | found


@cache
def _hardware() -> dict[str, Any]:
    import psutil

    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    memory = round(psutil.virtual_memory().total / 2**30)
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gb": memory,
        "gpu": _gpu(),
    }


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _reset_peak_memory() -> None:
    """Forget the peak of earlier runs in this process, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory_mb() -> float | None:
    """Highest resident memory since the reset; elsewhere than on Linux, of the process so far."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if platform.system() == "Darwin" else 1024), 1)
