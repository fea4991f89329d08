"""One run: draw the problem, fit the method, compare with the truth, and return everything as one row."""

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

import numpy as np
import psutil
import torch

import osls
from osls._core.arrays import Floats
from osls._core.progress import History
from osls.app.bench.draws import draw_problem, network_plan
from osls.app.bench.methods import Answers, run_method
from osls.app.bench.provenance import code_version
from osls.app.bench.store import Row
from osls.baselines import best_threshold
from osls.datasets import OSLSProblem
from osls.metrics import accuracy, h_score, macro_f1, mix_error, novelty_auroc

_LIBRARIES = ("osls", "numpy", "scipy", "scikit-learn", "torch")
# Networks are seeded through torch's random state, which the threads of a process share.
_ONE_RUN = threading.Lock()


def run_config(config: Mapping[str, Any]) -> Row:
    """Run the config of a run; an exception becomes part of the row."""
    with _ONE_RUN:
        row: Row = {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": json.dumps(_versions()),
            "hardware": json.dumps(_hardware()),
            "threads": torch.get_num_threads(),
        } | code_version()
        try:
            return row | _measure(config)
        except Exception as error:
            return row | {
                "error": _without_folders(f"{type(error).__name__}: {error}"),
                "traceback": _without_folders("".join(traceback.format_exception(error)))[-2000:],
            }


def _measure(config: Mapping[str, Any]) -> Row:
    data, method, network = config["data"], config["method"], config.get("network")
    problem = draw_problem(data, draw=config["draw"], seed=config["seed"], network=network)
    _check_memory(problem)
    epochs = EpochAccuracy(problem)
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
            follow=epochs,
        )
    row: Row = {
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_memory_mb": _peak_memory_mb(),
        "warnings": json.dumps(sorted({str(w.message) for w in caught})),
        "error": None,
        "traceback": None,
    }
    return (
        row
        | _compare_with_truth(problem, answers)
        | {"history": compact_history(answers.history, epochs, problem)}
    )


def _check_memory(problem: OSLSProblem) -> None:
    """Refuse images that would not fit: a fit holds the rows of both sides as numbers of four bytes."""
    if problem.X_source.ndim != 4:
        return
    rows = len(problem.y_source) + len(problem.y_target)
    needed = 4 * rows * int(np.prod(problem.X_source.shape[1:]))
    if torch.cuda.is_available():
        available, place = torch.cuda.get_device_properties(0).total_memory, "the graphics card"
    else:
        available, place = psutil.virtual_memory().total, "this machine"
    if needed > 0.8 * available:
        raise ValueError(
            f"{rows:,} images of shape {problem.X_source.shape[1:]} take {needed / 2**30:.0f} GB and "
            f"{place} has {available / 2**30:.0f}; lower options.size or rows."
        )


def _compare_with_truth(problem: OSLSProblem, answers: Answers) -> Row:
    """Sizes of the problem, and accuracies and errors of the answers."""
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
        "h_score": h_score(problem.y_target, answers.target_labels, problem.novel_label),
        "macro_f1": macro_f1(problem.y_target, answers.target_labels),
        "mpe_seen": error.seen,
        "mpe_novel": error.novel,
        "novelty_pvalue": answers.novelty_pvalue,
        "verdict": answers.verdict,
        "cause": answers.cause,
    }
    if len(problem.y_test):
        test = accuracy(problem.y_test, answers.test_labels, problem.novel_label)
        row |= {"test_acc_all": test.all, "test_acc_seen": test.seen, "test_acc_novel": test.novel}
        row["test_h_score"] = h_score(problem.y_test, answers.test_labels, problem.novel_label)
    if answers.novel_interval is not None:
        low, high = answers.novel_interval
        row |= {"novel_low": low, "novel_high": high, "novel_covered": low <= truth <= high}
    return row | _of_probabilities(problem, answers) | _best_threshold(problem, answers)


def _of_probabilities(problem: OSLSProblem, answers: Answers) -> Row:
    """What the labels alone do not tell: the best known class of every row, the ranking, the raw shares."""
    row: Row = {}
    if answers.target_proba is not None:
        best_known = problem.classes[answers.target_proba[:, :-1].argmax(axis=1)]
        row["acc_known"] = accuracy(problem.y_target, best_known, problem.novel_label).seen
        row["novelty_auroc"] = novelty_auroc(
            problem.y_target, answers.target_proba[:, -1], problem.novel_label
        )
    if answers.class_shares is not None:
        row["mpe_seen_raw"] = float(np.abs(answers.class_shares - problem.target_marginal[:-1]).sum())
    return row


def _best_threshold(problem: OSLSProblem, answers: Answers) -> Row:
    """For methods that reject by a threshold: the best threshold, found with the true labels."""
    if answers.known_score is None or answers.known_labels is None:
        return {}
    best = best_threshold(answers.known_score, answers.known_labels, problem.y_target, problem.novel_label)
    return {"best_threshold": best.threshold, "acc_best_threshold": best.accuracy}


# -- Epoch by epoch --------------------------------------------------------------------------------------


class EpochAccuracy:
    """Given to a method as its ``callback``: keeps the target accuracy after each epoch.

    It knows the true labels; the method does not.
    """

    def __init__(self, problem: OSLSProblem):
        self._problem = problem
        self._names = np.array([*problem.classes.tolist(), problem.novel_label], dtype=object)
        self.epochs: dict[int, dict[str, float]] = {}

    def __call__(self, epoch: int, proba: Floats) -> None:
        """Measure the answers that the method would give after this epoch."""
        labels = self._names[proba.argmax(axis=1)]
        share = accuracy(self._problem.y_target.astype(object), labels, self._problem.novel_label)
        self.epochs[epoch] = {"acc_all": share.all, "acc_seen": share.seen, "acc_novel": share.novel}


def compact_history(history: History, accuracies: EpochAccuracy, problem: OSLSProblem) -> str:
    """Return a fit's history as JSON, with accuracies, and errors of the mix in place of the mix."""
    records = []
    recorded = {record["epoch"] for record in history if "epoch" in record}
    for record in history:
        short = {k: _number(v) for k, v in record.items() if isinstance(v, str | int | float)}
        marginal = record.get("target_marginal")
        if marginal is not None:
            error = mix_error(problem.target_marginal, marginal)
            short |= {"mpe_seen": _number(error.seen), "mpe_novel": _number(error.novel)}
        elif "alpha" in record and record.get("step") == "cvir" and not recorded:
            # The paper's recipe reports the known share of each round.
            novel = float(problem.target_marginal[-1])
            short["mpe_novel"] = _number(abs(1 - record["alpha"] - novel))
        measured = accuracies.epochs.get(record.get("epoch", -1), {})
        records.append(short | {k: _number(v) for k, v in measured.items()})
    for epoch, measured in sorted(accuracies.epochs.items()):
        if epoch not in recorded:
            records.append({"epoch": epoch} | {k: _number(v) for k, v in measured.items()})
    return json.dumps(records, separators=(",", ":"), allow_nan=False)


def _number(value: Any) -> Any:
    """Round floats, which need no more digits here; JSON has no nan."""
    if isinstance(value, float | np.floating):
        return round(float(value), 5) if np.isfinite(value) else None
    return value


# -- The machine -----------------------------------------------------------------------------------------


def _without_folders(text: str) -> str:
    """Leave out the folders of this machine: results are for others to read."""
    package = Path(osls.__file__).parents[1]
    here = map(str, (package, sys.prefix, sys.base_prefix, Path.cwd(), Path.home()))
    named = [os.environ.get(name) for name in ("OSLS_DATA", "OSLS_CACHE")]
    # The longest first, because one may lie in another. The root folder alone would match everywhere.
    for folder in sorted({*here, *filter(None, named)} - {os.sep}, key=len, reverse=True):
        text = text.replace(folder, "...")
    return text


@cache
def _versions() -> dict[str, str]:
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version()} | libraries


@cache
def _hardware() -> dict[str, Any]:
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
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


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
