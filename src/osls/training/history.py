"""What happened during a fit, one record a round, and its progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Advance", "History", "progress_bar"]

History = list[dict[str, Any]]


class Advance(Protocol):
    """Report that ``n`` more units of work are done."""

    def __call__(self, n: int = 1) -> None: ...  # noqa: D102


@contextmanager
def progress_bar(description: str, total: int, *, visible: bool) -> Iterator[Advance]:
    """Show a progress bar on stderr while the block runs, or nothing."""
    if not visible:
        yield lambda n=1: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda n=1: progress.advance(task, n)
