"""What the ``osls bench`` commands do: run studies and show progress, print tables, write pages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from osls._core.printing import printable
from osls._core.screen import Screen
from osls.app.bench.evaluation import summarise
from osls.app.bench.methods import METHODS, parameter_names
from osls.app.bench.network_plans import NETWORKS
from osls.app.bench.results_page import bench_page
from osls.app.bench.runner import Progress, pending, run_study
from osls.app.bench.store import Row, Store, read_results
from osls.app.bench.study import Run, Study, load_study, parse_study, runs_of
from osls.app.bench.table import format_table, terminal_tables
from osls.app.report.page import write_atomically
from osls.datasets import DATASETS


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
    """Run a study of data sets and methods by name, and print its table. Returns the exit status."""
    splits = [{"name": name} if novel is None else {"name": name, "novel": novel} for name in data]
    content = {"name": "quick", "paper": "main", "seed": seed, "draws": draws}
    study = parse_study(content | {"data": splits, "methods": list(methods)}, "osls bench")
    return _run(study, out, jobs=jobs, scheduler=None, retry_failed=True)


def run_file(
    path: Path, *, out: Path | None, jobs: int, scheduler: str | None, retry_failed: bool, dry_run: bool
) -> int:
    """Run a study file, and print its table. Returns the exit status."""
    study = load_study(path)
    folder = out or Path("osls-bench") / study.name
    if dry_run:
        return _list_runs(study, folder)
    write_atomically(folder / "study.yml", path.read_text(encoding="utf-8"))
    again = f"osls bench run {shlex.quote(str(path))}" + (f" --out {shlex.quote(str(out))}" if out else "")
    return _run(study, folder, jobs=jobs, scheduler=scheduler, retry_failed=retry_failed, again=again)


def _list_runs(study: Study, folder: Path) -> int:
    runs = runs_of(study)
    to_run = {run.key for run in pending(runs, Store(folder).rows_by_key())}
    for run in runs:
        print(
            f"{run.key}  {'to run' if run.key in to_run else 'done  '}  {printable(run.title, lines=False)}"
        )
    print(f"{len(to_run)} of {len(runs)} runs are to be run.")
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
    # A narrower table would cut its figures.
    console = Screen(width=max(120, Screen().width))
    runs = runs_of(study)
    to_run = pending(runs, Store(folder).rows_by_key(), retry_failed=retry_failed)
    if len(to_run) < len(runs):
        console.print(f"{len(runs) - len(to_run)} of {len(runs)} runs are in {folder} already.")
    keys: list[str] = []
    try:
        with _progress_bar(len(to_run), keys) as progress:
            rows = run_study(
                study, folder, jobs=jobs, scheduler=scheduler, retry_failed=retry_failed, progress=progress
            )
    except KeyboardInterrupt:
        console.print(f"Stopped. What was finished is kept; to go on: {again}", soft_wrap=True)
        return 130
    for table in terminal_tables(summarise(rows)):
        console.print(table)
    console.print(f"{len(keys)} of {len(runs)} runs were run by this command.")
    failed = [row for row in rows if row["error"] is not None]
    if failed:
        console.print(
            f"{len(failed)} of {len(rows)} runs failed; --retry-failed runs them again.", style="red"
        )
    return 1 if failed else 0


@contextmanager
def _progress_bar(total: int, keys: list[str]) -> Iterator[Progress]:
    """Show a bar, what is running, and failures as they come; collect the keys of what was run here."""
    running: list[str] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    text = TextColumn("{task.description}", markup=False)
    with Bar(*columns, text, console=Screen(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, visible=total > 0)

        def describe() -> None:
            bar.update(task, description=printable("; ".join(running), lines=False)[:100])

        def started(run: Run) -> None:
            running.append(run.title)
            describe()

        def finished(run: Run, row: Row) -> None:
            if run.title in running:
                running.remove(run.title)
                keys.append(run.key)
            bar.advance(task)
            describe()
            if row["error"]:
                bar.console.print(f"{run.title}: {row['error']}", style="red")

        def waiting(elsewhere: int) -> None:
            bar.update(task, description=f"waiting for {elsewhere} runs of another process")

        yield Progress(started, finished, waiting)


def text_table(results: Sequence[Path], format: str, metrics: Sequence[str]) -> str:
    """Return the tables of some results as markdown, LaTeX or CSV."""
    groups = [group for result in read_results(results) for group in summarise(result.rows)]
    return format_table(groups, format, metrics)


def write_page(results: Sequence[Path], out: Path, title: str) -> None:
    """Write the page of some results."""
    write_atomically(out, bench_page(read_results(results), title=title))


def list_everything(studies: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield headings, each with names and what they are."""
    yield "Data sets", [(name, _novel_words(*data.novel)) for name, data in sorted(DATASETS.items())]
    yield "Methods", [(name, ", ".join(parameter_names(name))) for name in METHODS]
    yield "Networks", [(name, spec.body) for name, spec in NETWORKS.items()]
    paths = sorted([*studies.glob("*.yml"), *studies.glob("*.yaml")])
    if paths:
        yield f"Studies in {studies}", [(path.name, load_study(path).title) for path in paths]


def _novel_words(low: int, high: int) -> str:
    return f"{low} novel" if low == high else f"{low} to {high} novel"
