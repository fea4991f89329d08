"""What ``osls bench`` does: plan the runs, show progress, print the table."""

from __future__ import annotations

import os
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from osls.bench.methods import find_method
from osls.bench.runner import Run, pending, read_rows, run_all
from osls.bench.table import summarise
from osls.datasets import load_dataset
from osls.training.history import progress_bar

__all__ = ["run_bench"]


def run_bench(
    data: list[str],
    methods: list[str],
    *,
    draws: int,
    seed: int,
    novel: int | None,
    jobs: int,
    out: Path,
) -> None:
    """Run what is not there yet and print mean ± std [worst draw]."""
    for name in data:
        load_dataset(name)
    for name in methods:
        find_method(name)
    runs = [Run(d, m, i, seed, novel) for d in data for i in range(draws) for m in methods]
    todo = pending(runs, out)
    # Narrower, and the figures would be cut.
    console = Console(width=max(120, Console().width))
    if len(todo) < len(runs):
        console.print(f"{len(runs) - len(todo)} of {len(runs)} runs are in {out} already.")
    with progress_bar("runs", len(todo), visible=bool(todo)) as advance:
        for row in run_all(todo, out, jobs=jobs or os.cpu_count() or 1):
            advance()
            if row["error"]:
                console.print(f"[red]{row['data']} {row['method']} draw {row['draw']}:[/] {row['error']}")
    wanted = {run.key for run in runs}
    fields = Run.__dataclass_fields__
    rows = [r for r in read_rows(out) if Run(**{f: r[f] for f in fields}).key in wanted]
    table = Table(
        title="mean, ± std over draws, (worst draw)", box=box.SIMPLE, show_lines=True, padding=(0, 1)
    )
    lines = summarise(rows)
    for heading in lines[0]:
        table.add_column(heading, no_wrap=heading in ("Data", "Method"))
    for line in lines:
        table.add_row(*line.values())
    console.print(table)
