"""The history of a fit, one record per round, and its progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

History = list[dict[str, Any]]


class Advance(Protocol):
    """Report that ``amount`` more units of work are done."""

    def __call__(self, amount: float = 1) -> None: ...


def no_progress(amount: float = 1) -> None:
    """Do nothing: used where no progress bar is shown."""


@contextmanager
def progress_bar(description: str, total: int, *, visible: bool) -> Iterator[Advance]:
    """Show a progress bar on a terminal, or a line a step on any other stderr, while the block runs."""
    if not visible:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import Progress

    # In a notebook rich would ask for ipywidgets; lines do as well there. And Jupyter asks all programs for
    # colours, which rich takes for a terminal.
    console = Console(stderr=True, force_jupyter=False)
    if not sys.stderr.isatty():
        yield _lines(description, total)
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount=1: progress.advance(task, amount)


def _lines(description: str, total: int) -> Advance:
    """Write a line to stderr whenever another unit of work is done."""
    started, done = time.perf_counter(), 0.0

    def advance(amount: float = 1) -> None:
        nonlocal done
        before, done = done, done + amount
        # The parts of a unit may add up to a little less than one.
        if int(done + 1e-6) > int(before + 1e-6):
            seconds = time.perf_counter() - started
            print(
                f"{description}: step {int(done + 1e-6)} of {total}, {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    return advance
