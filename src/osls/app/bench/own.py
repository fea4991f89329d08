"""``osls bench --data my.csv --label y``: methods on one's own table, each class held out in turn."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from rich.table import Table

from osls._core.arrays import AnyArray
from osls._core.screen import Screen
from osls.app.bench.methods import find_method, run_method
from osls.app.files.opening import open_rows
from osls.app.files.reader import InputError, Place, did_you_mean, shorten
from osls.app.tables.problem import check_labels, class_names
from osls.app.tables.table_encoder import TableEncoder
from osls.datasets import OSLSProblem, simulate_osls
from osls.metrics import accuracy, mix_error

_COLUMNS = ("held out", "draw", "method", "accuracy", "novel_true", "novel_estimate", "error", "failed")
_MEANS = ("accuracy", "error")
_NOVEL = "novel"


def run_own(path: str, label: str, methods: Sequence[str], *, draws: int, seed: int, out: Path) -> int:
    """Hold each class out in turn, fit every method, print the means and write every run to ``out``."""
    for name in methods:
        find_method(name)
    X, y = read_labelled(path, label)
    runs = list(hold_out_in_turn(X, y, methods, draws=draws, seed=seed))
    out.mkdir(parents=True, exist_ok=True)
    written = out / _file_name(path, joblib.hash((X, y, list(methods), draws, seed)))
    with written.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(runs)
    screen = Screen()
    screen.print(_summary(runs, methods))
    screen.print(f"{len(runs)} runs, in {written}", soft_wrap=True)
    failed = [run for run in runs if run["failed"]]
    for run in failed:
        words = f"{run['method']}, {run['held out']} held out, draw {run['draw']}: {run['failed']}"
        screen.print(words, soft_wrap=True, markup=False)
    return 1 if failed else 0


def _file_name(path: str, content: str) -> str:
    """Name a file after the table, what is in it and what was asked, so that none replaces another."""
    stem = re.sub(r"[^\w-]+", "-", path.rstrip("/").rpartition("/")[2].partition(".")[0]).strip("-")
    return f"{stem or 'own'}-{content[:8]}.csv"


def read_labelled(path: str, label: str) -> tuple[AnyArray, AnyArray]:
    """Read a labelled table as features and classes, with the columns that ``osls adapt`` would use."""
    rows = open_rows(path)
    if label not in rows.columns:
        raise InputError(f"{path}: there is no column {shorten(label)}; {did_you_mean(label, rows.columns)}")
    frame = rows.read()
    y = class_names(frame.pop(label), path)
    classes, _, _ = check_labels(y, path, label, _NOVEL, allow_one_class=False)
    if len(classes) < 3:
        raise InputError(f"{path}: has two classes; with one held out, a single one would be left.")
    # The columns are judged with halves in place of source and target: here they come from one file.
    encoder = TableEncoder(text="tfidf")
    encoder.fit(frame[::2], frame[1::2], (Place(path), Place(path)))
    return encoder.transform(frame, Place(path)), y


def hold_out_in_turn(
    X: AnyArray, y: AnyArray, methods: Sequence[str], *, draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the figures of every method on every problem in which one class is novel.

    A method that fails says why in ``failed``, and the others go on.
    """
    for held_out in np.unique(y).tolist():
        for draw in range(draws):
            problem = simulate_osls(X, y, novel=[held_out], novel_label=_NOVEL, random_state=seed + draw)
            for method in methods:
                run = {"held out": held_out, "draw": draw, "method": method}
                run["novel_true"] = float(problem.target_marginal[-1])
                yield run | _figures(method, problem, seed + draw)


def _figures(method: str, problem: OSLSProblem, seed: int) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run_method(method, problem, seed=seed)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {
        "accuracy": accuracy(problem.y_target, found.target_labels, _NOVEL).all,
        "novel_estimate": float(found.target_marginal[-1]),
        "error": mix_error(problem.target_marginal, found.target_marginal).novel,
        "failed": "",
    }


def _summary(runs: Sequence[dict[str, Any]], methods: Sequence[str]) -> Table:
    """Mean over draws by class held out and method, and over all."""
    table = Table(box=None, pad_edge=False)
    for heading in ("held out", "method", "accuracy", "error of the novel share"):
        table.add_column(heading, justify="left" if heading in ("held out", "method") else "right")
    for held_out in [*dict.fromkeys(run["held out"] for run in runs), None]:
        for method in methods:
            mine = [run for run in runs if run["method"] == method and held_out in (None, run["held out"])]
            mine = [run for run in mine if not run["failed"]]
            means = (f"{np.mean([run[key] for run in mine]):.3f}" if mine else "-" for key in _MEANS)
            name = "all, mean" if held_out is None else held_out
            table.add_row(name, method, *means, style="bold" if held_out is None else None)
    return table
