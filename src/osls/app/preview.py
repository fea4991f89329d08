"""``osls adapt --dry-run``: what would be learned from, what not and why, and how long it would take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.markup import escape
from rich.table import Table

from osls._core.screen import Screen
from osls.app.adapt import Reading, read_sides
from osls.app.files.reader import TEXT_COLUMN, shorten
from osls.app.fit import make_adapter, too_long
from osls.app.options import AdaptOptions
from osls.app.report.wording import percent
from osls.app.tables.problem import Problem
from osls.app.tables.table_encoder import TableEncoder

_SHOWN = 40
_KINDS = {
    "numbers": "numbers",
    "categories": "category",
    "dates": "date",
    "tfidf": "text, as hashed words",
    "minilm": "text, by the sentence encoder",
}


def run_preview(source: str, target: str, options: AdaptOptions, reading: Reading) -> None:
    """Read and check both sides, decide what each column is, and print all that was decided."""
    problem = read_sides(source, target, options, reading)
    screen = Screen()
    encoder = _fit_encoder(problem, options)
    for line in _sides(problem):
        screen.print(line, soft_wrap=True)
    if encoder is not None:
        screen.print(_column_table(encoder))
    notes = [*problem.warnings, *(encoder.warnings_ if encoder else [])]
    for line in [
        *(f"Note: {note}" for note in notes),
        *_duration(problem, encoder, options),
        "Nothing was fitted.",
    ]:
        screen.print(line, soft_wrap=True)


def _fit_encoder(problem: Problem, options: AdaptOptions) -> TableEncoder | None:
    """What the columns are; pictures have none."""
    if problem.kind == "images":
        return None
    encoder = TableEncoder(text=options.text, texts=[TEXT_COLUMN] if problem.kind == "text" else [])
    return encoder.fit(problem.source, problem.target_sample, problem.places)


def _sides(problem: Problem) -> Iterator[str]:
    names = np.unique(problem.labels)
    found = f"{problem.n_source:,} rows, {len(names)} classes in {shorten(problem.label)}"
    yield f"Source: {problem.places[0].name}, {found}:"
    for name, count in zip(names.tolist(), problem.class_counts.tolist(), strict=True):
        yield f"  {shorten(name)}: {count:,} rows ({percent(count / problem.n_source)})"
    yield f"Target: {problem.target.name}, {problem.n_target:,} rows."
    if len(problem.ids.columns):
        yield f"Carried into the predictions: {', '.join(map(shorten, problem.ids.columns))}."


def _column_table(encoder: TableEncoder) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("column", "is used as", "features"):
        table.add_column(heading, justify="right" if heading == "features" else "left", overflow="fold")
    rows = [row for column in encoder.columns_ for row in _describe(column)]
    for row in rows[:_SHOWN]:
        table.add_row(*map(escape, row))
    if len(rows) > _SHOWN:
        table.add_row(f"... and {len(rows) - _SHOWN:,} more", "", "")
    return table


def _describe(column: object) -> list[tuple[str, str, str]]:
    kind = _KINDS[column.kind]  # type: ignore[attr-defined]
    if kind != "numbers":
        return [(column.name, kind, f"{len(column.feature_names):,}")]  # type: ignore[attr-defined]
    flags = column.has_missing  # type: ignore[attr-defined]
    return [
        (name, "number, with missing values" if missing else "number", "2" if missing else "1")
        for name, missing in zip(column.names, flags, strict=True)  # type: ignore[attr-defined]
    ]


def _duration(problem: Problem, encoder: TableEncoder | None, options: AdaptOptions) -> list[str]:
    """Time a few steps. Where features are costly themselves, no guess is better than a wrong one."""
    kinds = set() if encoder is None else {column.kind for column in encoder.columns_}
    if encoder is None or "minilm" in kinds:
        return [
            "How long it takes depends on the encoder of texts or pictures; --max-rows and --effort quick "
            "shorten it."
        ]
    X, X_target = encoder.transform(problem.source), encoder.transform(problem.target_sample)
    cost = make_adapter(options).estimate_cost(X, problem.labels, X_target)
    rows = len(problem.labels) + len(problem.sampled_rows)
    return [f"A fit on {rows:,} rows takes about {cost} on this machine.", *too_long(cost, options)]
