"""The course of a fit, epoch by epoch, measured against labels that the method never sees."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from osls._core.arrays import Floats
from osls._core.progress import History
from osls.datasets import OSLSProblem
from osls.metrics import accuracy, mix_error

__all__ = ["Follower", "compact_history"]


class Follower:
    """Given to a method as its ``callback``: keeps the target accuracy after each epoch."""

    def __init__(self, problem: OSLSProblem):
        self._problem = problem
        self._names = np.array([*problem.classes.tolist(), problem.novel_label], dtype=object)
        self.epochs: dict[int, dict[str, float]] = {}

    def __call__(self, epoch: int, proba: Floats) -> None:
        """Measure the answers that the method would give now."""
        labels = self._names[proba.argmax(axis=1)]
        hits = accuracy(self._problem.y_target.astype(object), labels, self._problem.novel_label)
        self.epochs[epoch] = {"acc_all": hits.all, "acc_seen": hits.seen, "acc_novel": hits.novel}


def compact_history(history: History, follower: Follower, problem: OSLSProblem) -> str:
    """Return a fit's history as JSON: its numbers, errors of the mix in place of the mix, and accuracies."""
    records = []
    told = {record["epoch"] for record in history if "epoch" in record}
    for record in history:
        short = {k: _number(v) for k, v in record.items() if isinstance(v, str | int | float)}
        marginal = record.get("target_marginal")
        if marginal is not None:
            error = mix_error(problem.target_marginal, marginal)
            short |= {"mpe_seen": _number(error.seen), "mpe_novel": _number(error.novel)}
        elif "alpha" in record and record.get("step") == "cvir" and not told:
            # The paper's recipe reports the known share of each round.
            novel = float(problem.target_marginal[-1])
            short["mpe_novel"] = _number(abs(1 - record["alpha"] - novel))
        measured = follower.epochs.get(record.get("epoch", -1), {})
        records.append(short | {k: _number(v) for k, v in measured.items()})
    for epoch, measured in sorted(follower.epochs.items()):
        if epoch not in told:
            records.append({"epoch": epoch} | {k: _number(v) for k, v in measured.items()})
    return json.dumps(records, separators=(",", ":"), allow_nan=False)


def _number(value: Any) -> Any:
    """Round floats, which need no more digits here; JSON has no nan."""
    if isinstance(value, float | np.floating):
        return round(float(value), 5) if np.isfinite(value) else None
    return value
