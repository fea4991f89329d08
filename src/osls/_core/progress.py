"""The history of a fit, one record per round, and its progress bar."""

from __future__ import annotations

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
    """Show a progress bar on stderr while the block runs, or nothing."""
    if not visible:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount=1: progress.advance(task, amount)
