"""``osls adapt``: two files in, a folder with the answer out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from osls.app.answer import Answer
from osls.app.files.opening import open_rows
from osls.app.files.staging import check_destination
from osls.app.tables.fitting import FitOptions
from osls.app.tables.problem import Problem, pose

__all__ = ["AdaptArguments", "run_adapt"]


@dataclass(frozen=True)
class AdaptArguments:
    """The arguments of the command; see ``osls adapt --help``."""

    source: Path
    target: Path
    out: Path
    label: str | None = None
    id: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    level: float = 0.95
    seed: int = 0
    text: Any = "auto"
    images: Any = "auto"
    novel_label: str = "novel"
    fast: bool = False
    max_rows: int = 20_000
    jobs: int = 0
    allow_one_class: bool = False
    ignore_target_label: bool = False
    overwrite: bool = False

    def command(self) -> str:
        """Return the command that does it again: what differs from the defaults."""
        words = ["osls", "adapt"]
        for name, default in vars(AdaptArguments(Path(), Path(), Path())).items():
            value = getattr(self, name)
            if value == default or name in ("jobs", "overwrite"):
                continue
            flag = "--" + name.replace("_", "-")
            for each in value if isinstance(value, tuple) else (value,):
                words += [flag] if each is True else [flag, str(each)]
        return shlex.join(words)


def run_adapt(arguments: AdaptArguments) -> Answer:
    """Read, fit, write, and print what was found."""
    started = time.perf_counter()
    check_destination(arguments.out, overwrite=arguments.overwrite)
    screen = Console(stderr=True)
    options = FitOptions(
        level=arguments.level,
        random_state=arguments.seed,
        text=arguments.text,
        images=arguments.images,
        novel_label=arguments.novel_label,
        fast=arguments.fast,
        verbose=screen.is_terminal,
        parameters={"n_jobs": arguments.jobs or -1},
    )
    with _progress(screen) as say:
        say("Reading")
        problem = pose(
            open_rows(arguments.source),
            open_rows(arguments.target),
            label=arguments.label,
            ids=arguments.id,
            ignore=arguments.ignore,
            novel_label=arguments.novel_label,
            max_rows=arguments.max_rows,
            seed=arguments.seed,
            ignore_target_label=arguments.ignore_target_label,
            allow_one_class=arguments.allow_one_class,
        )
        answer = _answer(problem, options, arguments, say)
    print_answer(answer, arguments.out, time.perf_counter() - started, Console())
    return answer


def _answer(
    problem: Problem, options: FitOptions, arguments: AdaptArguments, say: Callable[[str], None]
) -> Answer:
    # Imported here, after the input was found to be in order: torch takes seconds to load.
    from osls.app.adapting import answer_for, fit_problem, predict_target
    from osls.app.files.output import write_run

    fit = fit_problem(problem, options, say)
    # A large target is not held in memory: the answer has the rows of the fit, the file has them all.
    answer = answer_for(problem, fit, None, command=arguments.command())
    batches = predict_target(problem, fit)
    return write_run(answer, arguments.out, batches=batches, overwrite=arguments.overwrite, say=say)


@contextmanager
def _progress(screen: Console) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is being done; elsewhere, nothing."""
    if not screen.is_terminal:
        yield lambda step: None
        return
    started = time.perf_counter()

    def say(step: str) -> None:
        # A line each, rather than a spinner, which would fight with the progress bar of the fit.
        screen.print(f"[dim]{time.perf_counter() - started:5.0f} s[/dim]  {step} ...")

    yield say


def print_answer(answer: Answer, out: Path, seconds: float, screen: Console) -> None:
    """Print the sentence, the mix, the verdict, the warnings, and where the files are."""

    def line(text: str, style: str | None = None) -> None:
        # Names from the data are no markup; a pipe gets whole lines, a terminal folds them itself.
        screen.print(text, style=style, markup=False, highlight=False, soft_wrap=not screen.is_terminal)

    line("\n" + answer.summary(), "bold")
    screen.print(_mix_table(answer))
    if answer.diagnostics is not None:
        line(f"Verdict: {answer.diagnostics.verdict}")
    for warning in answer.warnings:
        line(f"Note: {warning}")
    sizes = f"{answer.settings['n_source']:,} labelled and {answer.settings['n_target']:,} new"
    line(f"\n{sizes} rows in {seconds:.0f} s. In {out}:")
    for name, what in (
        ("report.html", "everything on one page"),
        ("predictions.parquet", "an answer for each new row (also predictions.csv)"),
        ("mix.json", "the table above"),
        ("model", f"for more rows: osls predict {shlex.quote(str(out / 'model'))} more.csv"),
    ):
        line(f"  {name:<20} {what}")


def _mix_table(answer: Answer) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("class", overflow="fold")
    for heading in (
        "in the labels",
        "in the new data",
        f"{100 * answer.level:g} % interval",
        "rows predicted",
    ):
        table.add_column(heading, justify="right")
    for row in answer.mix()["classes"]:
        low, high = row["interval"]
        table.add_row(
            row["name"].replace("[", r"\["),
            f"{100 * row['source_share']:.1f} %",
            f"{100 * row['target_share']:.1f} %",
            f"{100 * low:.1f} to {100 * high:.1f} %",
            f"{row['rows_predicted']:,}",
            style="bold" if row["novel"] else None,
        )
    return table
