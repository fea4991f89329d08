"""``osls review`` and ``osls absorb``: ask a person about the groups of a run, and learn the answers."""

from __future__ import annotations

import hashlib
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from osls._core.arrays import Ints
from osls._core.screen import Screen
from osls._core.writing import only_writer
from osls.app.adapt import print_answer, read_again
from osls.app.files.opening import open_rows
from osls.app.files.reader import InputError, shorten
from osls.app.files.staging import check_destination, staged_file
from osls.app.fit import Fit
from osls.app.options import ReadOptions
from osls.app.output import AdaptAnswer, write_folder
from osls.app.predict import load_adapted
from osls.app.report.review import render_review
from osls.app.tables.parsing import as_strings
from osls.app.tables.problem import Problem
from osls.inference.diagnostics import TrustWarning
from osls.inference.discovery import Discovery

LABEL_COLUMN = "label"


def run_review(run: Path, out: Path, rows: int, *, overwrite: bool = False) -> None:
    """Write the page that asks about a run's groups."""
    with staged_file(out, overwrite=overwrite) as draft:
        answer = open_run(run).answer(f"osls review {shlex.quote(str(run))}", every_row=False)
        suggestions = answer.adapted.adapter.suggestions(rows)
        draft.write_text(render_review(answer, suggestions, run=str(run)), encoding="utf-8")
    count = len(answer.discovery)
    Screen().print(
        f"{count} group{'s' * (count != 1)} and {len(suggestions)} rows to look at first, in {out}. Open it "
        "in a browser, name what you know, and download labels.csv; then: "
        f"osls absorb {shlex.quote(str(run))} labels.csv --out ...",
        soft_wrap=True,
    )


def run_absorb(
    run: Path, labels: Path, out: Path, *, overwrite: bool = False, safe_csv: bool = False
) -> AdaptAnswer:
    """Learn labels of target rows, write the new run, and print its answer."""
    started = time.perf_counter()
    check_destination(out, overwrite=overwrite)
    if out.resolve() == run.resolve():
        raise InputError(f"{out}: is the run itself, which stays as it is; name another folder with --out.")
    with only_writer(out), warnings.catch_warnings():
        # The verdict is printed with the answer.
        warnings.simplefilter("ignore", TrustWarning)
        fit = open_run(run)
        rows, names = read_labels(labels, fit.problem)
        try:
            adapter = fit.adapted.adapter.absorb_rows(rows, names)
        except ValueError as error:
            raise InputError(f"{labels}: {error}") from None
        assert adapter._origin is not None
        parent = {
            "run": str(run),
            "sha256": hashlib.sha256((run / "mix.json").read_bytes()).hexdigest(),
            "labels": len(adapter._origin.rows),
        }
        adapted = replace(fit.adapted, adapter=adapter, classes=tuple(map(str, adapter.classes_)))
        notes = (*fit.warnings, *_unlabelled(adapter._origin.found, adapter._origin.rows))
        settings = {**fit.settings, "seconds": round(time.perf_counter() - started, 1)}
        fit = replace(fit, adapted=adapted, parent=parent, settings=settings, warnings=notes)
        command = shlex.join(["osls", "absorb", str(run), str(labels), "--out", str(out)])
        answer = fit.answer(command, every_row=False)
        answer = write_folder(answer, out, fit.predictions(), overwrite=overwrite, safe_csv=safe_csv)
    print_answer(answer, out, time.perf_counter() - started, Screen())
    return answer


def _unlabelled(found: Discovery, rows: Ints) -> Iterator[str]:
    """Say which groups nobody named: their rows stay novel, which is easily forgotten."""
    named = set(found.group[rows].tolist())
    for i, group in enumerate(found.groups):
        if i not in named:
            yield (
                f"None of the {len(group.rows):,} rows of group {i + 1} has a label, so it stays new; "
                "osls review shows them."
            )


def open_run(run: Path) -> Fit:
    """Load a run's model and give it back the rows that it was fitted on, from the files they came from."""
    if not (run / "mix.json").is_file():
        raise InputError(f"{run}: is not the folder of a run; give the one that osls adapt wrote.")
    adapted = load_adapted(run)
    inputs = adapted.metadata.get("inputs")
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"{run}: was not made by the command from files, so its rows cannot be read again; "
            "use model.absorb in Python."
        )
    problem = read_again(inputs)
    X = adapted.encoder.transform(problem.source, problem.places[0])
    X_target = adapted.encoder.transform(problem.target_sample, problem.places[1])
    detected = [name for name in adapted.ids if name not in problem.ids.columns]
    if detected:
        carried = problem.target.read(detected).reset_index(drop=True)
        problem = replace(problem, ids=pd.concat([problem.ids.reset_index(drop=True), carried], axis=1))
    try:
        adapted.adapter.recall(X, problem.labels, X_target)
    except ValueError:
        raise InputError(
            f"{problem.target.name}: is not what {run} was made from any more; run osls adapt again."
        ) from None
    notes = adapted.metadata.get("notes", getattr(adapted.encoder, "warnings_", ()))
    apart = ("inputs", "source_share", "notes")
    settings = {name: value for name, value in adapted.metadata.items() if name not in apart}
    return Fit(problem, adapted, X_target, (*problem.warnings, *notes), settings)


def read_labels(path: Path, problem: Problem) -> tuple[list[int], list[str]]:
    """Return positions among the fitted rows, and labels, from a table with one labelled row a line."""
    table = open_rows(str(path), ReadOptions())
    wanted = [name for name in dict.fromkeys((*problem.ids.columns, "row")) if name != LABEL_COLUMN]
    keys = [name for name in wanted if name in table.columns]
    if not keys or LABEL_COLUMN not in table.columns:
        raise InputError(
            f"{path}: needs a column {' or '.join(map(repr, wanted))} and a column {LABEL_COLUMN!r}."
        )
    frame = table.read_raw([*keys, LABEL_COLUMN])
    frame = pd.DataFrame({name: as_strings(frame[name]) for name in frame.columns})
    key, found = _positions(problem, keys, str(path))
    if frame[key].isna().any() or frame[LABEL_COLUMN].isna().any():
        raise InputError(f"{path}: a line has no {key} or no label; fill it in or remove it.")
    labels: dict[str, str] = {}
    for each, name in zip(frame[key].tolist(), frame[LABEL_COLUMN].tolist(), strict=True):
        if each not in found:
            raise InputError(f"{path}: no fitted row of the target has the {key} {shorten(each)}.")
        if labels.setdefault(each, name) != name:
            both = f"{shorten(labels[each])} and {shorten(name)}"
            raise InputError(f"{path}: the {key} {shorten(each)} has two labels, {both}; keep one of them.")
    _refuse_contradictions(frame, problem, key, found, str(path))
    return [found[each] for each in labels], list(labels.values())


def _positions(problem: Problem, keys: list[str], path: str) -> tuple[str, dict[str, int]]:
    """Return the first of the columns that names one row each, and positions among the fitted rows by it."""
    for key in keys:
        values = _names(problem, key)
        found = {value: i for i, value in enumerate(values)}
        if len(found) == len(values):
            return key, found
    raise InputError(f"{path}: {keys[0]} does not name one row each; give the column 'row' instead.")


def _names(problem: Problem, key: str) -> list[str]:
    """Return what the fitted rows are called: by an id, or by their number in the target."""
    if key not in problem.ids.columns:
        return [str(row + 1) for row in problem.sampled_rows.tolist()]
    values: list[str] = as_strings(problem.ids[key].iloc[problem.sampled_rows]).astype(str).tolist()
    return values


def _refuse_contradictions(
    frame: pd.DataFrame, problem: Problem, key: str, found: dict[str, int], path: str
) -> None:
    """Raise if a line names one row by its id and another by its number: nobody knows which was meant."""
    for other in (name for name in frame.columns if name not in (key, LABEL_COLUMN)):
        names = _names(problem, other)
        for each, given in zip(frame[key].tolist(), frame[other].tolist(), strict=True):
            if isinstance(given, str) and given != names[found[each]]:
                raise InputError(
                    f"{path}: the {key} {shorten(each)} has the {other} {shorten(names[found[each]])} in the "
                    f"target, not {shorten(given)}; correct the line, or give one of the two columns."
                )
