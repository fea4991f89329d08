"""Run the cells of a study, each exactly once, however often and by however many processes it is started."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from osls.app.bench.claims import Claim
from osls.app.bench.execute import run_config
from osls.app.bench.plan import Cell, cells_of
from osls.app.bench.rows import Row
from osls.app.bench.slots import Slot, cluster_slots, local_slots
from osls.app.bench.store import Store
from osls.app.bench.study import Study

__all__ = ["Progress", "run_cells", "run_study"]

_HEARTBEAT = 5.0
_NOTHING: Mapping[str, Row] = MappingProxyType({})


@dataclass(frozen=True)
class Progress:
    """What a runner tells while it is at work; by default nobody listens."""

    started: Callable[[Cell], None] = lambda cell: None
    finished: Callable[[Cell, Row], None] = lambda cell, row: None
    waiting: Callable[[int], None] = lambda elsewhere: None


SILENT = Progress()


def run_study(
    study: Study,
    folder: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    retry_failed: bool = False,
    progress: Progress = SILENT,
) -> list[Row]:
    """Run what is not there yet and return the rows of the study.

    Parameters
    ----------
    study : Study
        What to run.
    folder : Path
        Its results; see :mod:`osls.app.bench.store`.
    jobs : int, default=1
        Processes on this machine; 0 for one a core.
    scheduler : str, optional
        Address of a Dask cluster to run on instead.
    retry_failed : bool, default=False
        Run those again that ended in an error.
    progress : Progress
        Told of every run.
    """
    store, cells = Store(folder), cells_of(study)
    before = _renamed(cells, {row["key"]: row for row in store.rows()}, store)
    todo = pending(cells, before, retry_failed=retry_failed)
    if todo:
        many = min(jobs or os.cpu_count() or 1, len(todo))
        slots = local_slots(many) if scheduler is None else cluster_slots(scheduler)
        with slots as ready:
            run_cells(todo, store, ready, before=before, progress=progress)
    keys = [cell.key for cell in cells]
    wanted = set(keys)
    return [row for row in store.compact(keys) if row["key"] in wanted]


def pending(cells: list[Cell], rows: Mapping[str, Row], *, retry_failed: bool = False) -> list[Cell]:
    """Return the cells that have no row yet, and perhaps those whose row is of a failure."""
    return [
        cell
        for cell in cells
        if cell.key not in rows or (retry_failed and rows[cell.key]["error"] is not None)
    ]


def _renamed(cells: list[Cell], rows: Mapping[str, Row], store: Store) -> dict[str, Row]:
    """Put right the names of rows that the study now calls otherwise."""
    known = dict(rows)
    for cell in cells:
        row = known.get(cell.key)
        if row is not None and any(row.get(name) != value for name, value in _names(cell).items()):
            known[cell.key] = row | _names(cell)
            store.write([known[cell.key]])
    return known


def _names(cell: Cell) -> Row:
    return {
        "study": cell.study,
        "data": cell.data,
        "setting": cell.setting,
        "method": cell.method,
        "paper": cell.paper,
    }


def run_cells(
    cells: list[Cell],
    store: Store,
    slots: list[Slot],
    *,
    before: Mapping[str, Row] = _NOTHING,
    progress: Progress = SILENT,
    run: Callable[[Mapping[str, Any]], Row] = run_config,
) -> None:
    """Run cells on slots.

    Those that another process is at work on are waited for, and taken over if it dies. ``before`` holds the
    rows that were there when the cells were chosen: a row that is not among them is another process's work.
    """
    _Work(cells, store, slots, before, progress, run).do()


class _Work:
    """Cells that wait, run here, or are being run elsewhere."""

    def __init__(
        self,
        cells: list[Cell],
        store: Store,
        slots: list[Slot],
        before: Mapping[str, Row],
        progress: Progress,
        run: Callable[[Mapping[str, Any]], Row],
    ):
        self.store = store
        self.before = before
        self.progress = progress
        self.run = run
        self.waiting = deque(cells)
        self.elsewhere: deque[Cell] = deque()
        self.idle = list(slots)
        self.running: dict[Future[Row], tuple[Cell, Slot]] = {}
        self.claims: dict[str, Claim] = {}

    def do(self) -> None:
        """Run until nothing is left, here or elsewhere; whatever happens, no claim is left behind."""
        try:
            while self.waiting or self.elsewhere or self.running:
                while self.idle and self.waiting:
                    self._begin(self.waiting.popleft())
                self._collect()
                for claim in self.claims.values():
                    claim.touch()
                if not self.waiting:
                    self.waiting, self.elsewhere = self.elsewhere, self.waiting
        finally:
            for claim in self.claims.values():
                claim.release()

    def _begin(self, cell: Cell) -> None:
        # Noted before it is acquired: an interruption in between must not leave it behind.
        self.claims[cell.key] = self.store.claim(cell.key)
        if not self.claims[cell.key].acquire():
            del self.claims[cell.key]
            self.elsewhere.append(cell)
            return
        if self.store.read(cell.key) not in (None, self.before.get(cell.key)):
            self.claims.pop(cell.key).release()
            self.progress.finished(cell, {"error": None})
            return
        self.progress.started(cell)
        slot = self.idle.pop()
        self.running[slot.submit(self.run, cell.config)] = cell, slot

    def _collect(self) -> None:
        """Take what is finished, or wait a moment for it."""
        if not self.running:
            if self.elsewhere:
                self.progress.waiting(len(self.elsewhere))
                time.sleep(1.0)
            return
        for future in wait(self.running, timeout=_HEARTBEAT, return_when=FIRST_COMPLETED).done:
            cell, slot = self.running.pop(future)
            outcome = _outcome(future, slot)
            identity = {"key": cell.key, "draw": cell.draw, "seed": cell.seed}
            row = outcome | _names(cell) | identity | {"config": json.dumps(cell.config, sort_keys=True)}
            claim = self.claims.pop(cell.key)
            # Should we have been taken for dead, the other's row counts.
            if claim.is_held():
                self.store.write([row])
                claim.release()
            self.idle.append(slot)
            self.progress.finished(cell, row)


def _outcome(future: Future[Row], slot: Slot) -> Row:
    """What a run returned, or how it ended without returning anything."""
    try:
        return future.result()
    except BrokenProcessPool:
        slot.restart()
        message, trace = "WorkerDied: the process ended without an answer, perhaps out of memory.", ""
    except Exception as error:
        message, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    return {"error": message, "traceback": trace[-2000:] or None}
