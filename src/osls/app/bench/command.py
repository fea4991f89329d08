"""What the ``osls bench`` commands do: plan, show progress, print tables, write files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from osls.app.bench.plan import Cell, cells_of
from osls.app.bench.rows import Row, read_json_lines
from osls.app.bench.runner import Progress, pending, run_study
from osls.app.bench.store import Store
from osls.app.bench.study import Study, load_study, parse_study
from osls.app.bench.summary import summarise
from osls.app.bench.table import terminal_tables
from osls.app.report.render import write_atomically

__all__ = ["import_rows", "list_everything", "run_file", "run_quick"]


def run_quick(
    data: Sequence[str],
    methods: Sequence[str],
    *,
    draws: int,
    seed: int,
    novel: int | None,
    jobs: int,
    out: Path,
) -> int:
    """Run a study made of names alone, and print its table. Returns the exit status.

    Results are in the folder ``out``. If it is named like a file of JSON lines, the runs in such a file count
    as done, and it is written anew at the end; the folder is then the same name with the ending ``.runs``.
    """
    splits = [{"name": name} if novel is None else {"name": name, "novel": novel} for name in data]
    content = {"name": "quick", "paper": "main", "seed": seed, "draws": draws}
    study = parse_study(content | {"data": splits, "methods": list(methods)}, "osls bench")
    lines = out if out.suffix == ".jsonl" else None
    folder = out.with_suffix(".runs") if lines else out
    if lines is not None and lines.exists():
        import_rows(lines, folder)
    status = _run(study, folder, jobs=jobs, scheduler=None, retry_failed=True)
    if lines is not None:
        write_atomically(lines, "".join(json.dumps(row) + "\n" for row in Store(folder).rows()))
    return status


def run_file(
    path: Path, *, out: Path | None, jobs: int, scheduler: str | None, retry_failed: bool, dry_run: bool
) -> int:
    """Run a study file, and print its table. Returns the exit status."""
    study = load_study(path)
    folder = out or Path("osls-bench") / study.name
    if dry_run:
        return _show_plan(study, folder)
    write_atomically(folder / "study.yml", path.read_text(encoding="utf-8"))
    again = f"osls bench run {shlex.quote(str(path))}" + (f" --out {shlex.quote(str(out))}" if out else "")
    return _run(study, folder, jobs=jobs, scheduler=scheduler, retry_failed=retry_failed, again=again)


def _show_plan(study: Study, folder: Path) -> int:
    cells = cells_of(study)
    todo = {cell.key for cell in pending(cells, {row["key"]: row for row in Store(folder).rows()})}
    for cell in cells:
        print(f"{cell.key}  {'to run' if cell.key in todo else 'done  '}  {cell.title}")
    print(f"{len(todo)} of {len(cells)} runs are to be run.")
    return 0


def _run(
    study: Study,
    folder: Path,
    *,
    jobs: int,
    scheduler: str | None,
    retry_failed: bool,
    again: str = "the same command",
) -> int:
    # Narrower, and the figures would be cut.
    console = Console(width=max(120, Console().width))
    cells = cells_of(study)
    before = {row["key"]: row for row in Store(folder).rows()}
    todo = pending(cells, before, retry_failed=retry_failed)
    if len(todo) < len(cells):
        console.print(f"{len(cells) - len(todo)} of {len(cells)} runs are in {folder} already.")
    ran: list[str] = []
    try:
        with _shown(len(todo), ran) as progress:
            rows = run_study(
                study, folder, jobs=jobs, scheduler=scheduler, retry_failed=retry_failed, progress=progress
            )
    except KeyboardInterrupt:
        console.print(f"Stopped. What was finished is kept; to go on: {again}", soft_wrap=True)
        return 130
    for table in terminal_tables(summarise(rows)):
        console.print(table)
    console.print(f"{len(ran)} of {len(cells)} runs were run by this command.")
    failed = [row for row in rows if row["error"] is not None]
    if failed:
        console.print(f"[red]{len(failed)} of {len(rows)} runs failed;[/] --retry-failed runs them again.")
    return 1 if failed else 0


@contextmanager
def _shown(total: int, ran: list[str]) -> Iterator[Progress]:
    """Show a bar, what is running, and every failure as it comes; keep the keys of what was run here."""
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    running: list[str] = []
    with Bar(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=total, visible=total > 0)

        def describe() -> None:
            bar.update(task, description=escape("; ".join(running)[:100]))

        def started(cell: Cell) -> None:
            running.append(cell.title)
            describe()

        def finished(cell: Cell, row: Row) -> None:
            if cell.title in running:
                running.remove(cell.title)
                ran.append(cell.key)
            bar.advance(task)
            describe()
            if row["error"]:
                bar.console.print(f"[red]{escape(cell.title)}:[/] {escape(row['error'])}")

        def waiting(elsewhere: int) -> None:
            bar.update(task, description=f"waiting for {elsewhere} runs of another process")

        yield Progress(started, finished, waiting)


def import_rows(path: Path, folder: Path) -> int:
    """Take over rows of the first benchmark's format, one JSON line a run; returns how many were new."""
    store = Store(folder)
    there = {row["key"]: row for row in store.rows()}
    # A later line of the same run wins, as it did when the file was written.
    latest = {row["key"]: row for row in read_json_lines(path)}
    new = [row for key, row in latest.items() if key not in there or there[key]["error"] is not None]
    store.write(new)
    store.compact()
    return len(new)


def list_everything(studies: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield headings, each with names and what they are."""
    from osls.app.bench.methods import METHODS
    from osls.app.bench.networks import NETWORKS
    from osls.app.bench.parameters import parameter_names
    from osls.datasets import DATASETS

    yield "Data sets", [(name, _novel_words(data)) for name, data in sorted(DATASETS.items())]
    yield "Methods", [(name, ", ".join(parameter_names(name))) for name in METHODS]
    yield "Networks", [(name, spec.body) for name, spec in NETWORKS.items()]
    found = sorted([*studies.glob("*.yml"), *studies.glob("*.yaml")])
    if found:
        yield f"Studies in {studies}", [(path.name, load_study(path).title) for path in found]


def _novel_words(data: Any) -> str:
    low, high = data.novel
    return f"{low} novel" if low == high else f"{low} to {high} novel"
