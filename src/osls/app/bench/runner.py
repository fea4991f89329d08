"""Run a study, each run exactly once, however often and by however many processes it is started."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from filelock import FileLock, Timeout

from osls._core.extras import require
from osls.app.bench.execute import run_config
from osls.app.bench.store import Row, Store
from osls.app.bench.study import Run, Study, runs_of

_NO_ROWS: Mapping[str, Row] = MappingProxyType({})

Execute = Callable[[Mapping[str, Any]], Row]


@dataclass(frozen=True)
class Progress:
    """Functions to call when a run starts, when it ends, and while runs of other processes are waited for."""

    started: Callable[[Run], None] = lambda run: None
    finished: Callable[[Run, Row], None] = lambda run, row: None
    waiting: Callable[[int], None] = lambda elsewhere: None


_SILENT = Progress()


def run_study(
    study: Study,
    folder: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    retry_failed: bool = False,
    progress: Progress = _SILENT,
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
        Repeat the runs that ended in an error.
    progress : Progress
        Called for every run.
    """
    store, runs = Store(folder), runs_of(study)
    before = _renamed(runs, store.rows_by_key(), store)
    to_run = pending(runs, before, retry_failed=retry_failed)
    if to_run:
        count = min(jobs or os.cpu_count() or 1, len(to_run))
        with local_workers(count) if scheduler is None else cluster_workers(scheduler) as workers:
            run_all(to_run, store, workers, before=before, progress=progress)
    keys = [run.key for run in runs]
    wanted = set(keys)
    return [row for row in store.compact(keys) if row["key"] in wanted]


def pending(runs: list[Run], rows: Mapping[str, Row], *, retry_failed: bool = False) -> list[Run]:
    """Return the runs that have no row yet and, if asked, those that failed."""
    return [
        run for run in runs if run.key not in rows or (retry_failed and rows[run.key]["error"] is not None)
    ]


def _renamed(runs: list[Run], rows: Mapping[str, Row], store: Store) -> dict[str, Row]:
    """Update the names in rows whose study now uses other labels."""
    known = dict(rows)
    for run in runs:
        row = known.get(run.key)
        if row is not None and any(row.get(name) != value for name, value in _names(run).items()):
            known[run.key] = row | _names(run)
            store.write([known[run.key]])
    return known


def _names(run: Run) -> Row:
    return {name: getattr(run, name) for name in ("study", "data", "setting", "method", "paper")}


def run_all(
    runs: list[Run],
    store: Store,
    workers: list[Worker],
    *,
    before: Mapping[str, Row] = _NO_ROWS,
    progress: Progress = _SILENT,
    execute: Execute = run_config,
) -> None:
    """Give runs to workers until all are done.

    Runs that another process is working on are waited for, and taken over if that process dies. ``before``
    holds the rows that were there when the runs were chosen: a row that is not among them was written by
    another process since.
    """
    _Queue(deque(runs), store, list(workers), before, progress, execute).work()


@dataclass
class _Queue:
    """Runs that wait, run here, or are run by other processes."""

    waiting: deque[Run]
    store: Store
    idle: list[Worker]
    before: Mapping[str, Row]
    progress: Progress
    execute: Execute
    elsewhere: deque[Run] = field(default_factory=deque)
    running: dict[Future[Row], tuple[Run, Worker]] = field(default_factory=dict)
    claims: dict[str, FileLock] = field(default_factory=dict)

    def work(self) -> None:
        """Work until nothing is left, here or elsewhere; claims are released even after an error."""
        try:
            while self.waiting or self.elsewhere or self.running:
                while self.idle and self.waiting:
                    self._start(self.waiting.popleft())
                self._collect()
                if not self.waiting:
                    self.waiting, self.elsewhere = self.elsewhere, self.waiting
        finally:
            for claim in self.claims.values():
                claim.release()

    def _start(self, run: Run) -> None:
        # Noted before it is acquired, so that an interruption in between does not leave it behind.
        self.claims[run.key] = self.store.claim(run.key)
        try:
            self.claims[run.key].acquire(timeout=0)
        except Timeout:
            del self.claims[run.key]
            self.elsewhere.append(run)
            return
        if self.store.read(run.key) not in (None, self.before.get(run.key)):
            self.claims.pop(run.key).release()
            self.progress.finished(run, {"error": None})
            return
        self.progress.started(run)
        worker = self.idle.pop()
        self.running[worker.submit(self.execute, run.config)] = run, worker

    def _collect(self) -> None:
        """Store the rows of finished runs, or wait a moment if there are none."""
        if not self.running:
            if self.elsewhere:
                self.progress.waiting(len(self.elsewhere))
                time.sleep(1.0)
            return
        for future in wait(self.running, return_when=FIRST_COMPLETED).done:
            run, worker = self.running.pop(future)
            identity = {"key": run.key, "draw": run.draw, "seed": run.seed}
            config = {"config": json.dumps(run.config, sort_keys=True)}
            row = _outcome(future, worker) | _names(run) | identity | config
            self.store.write([row])
            self.claims.pop(run.key).release()
            self.idle.append(worker)
            self.progress.finished(run, row)


def _outcome(future: Future[Row], worker: Worker) -> Row:
    """Return the row of a run, or a row that says how it ended without one."""
    try:
        return future.result()
    except BrokenProcessPool:
        worker.restart()
        message, trace = "WorkerDied: the process ended without an answer, perhaps out of memory.", ""
    except Exception as error:
        message, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    return {"error": message, "traceback": trace[-2000:] or None}


# -- Workers: processes of this machine, or of a Dask cluster --------------------------------------------


class Worker:
    """An executor of one process; if the process dies it is replaced, so that only its own run is lost."""

    def __init__(self, start: Callable[[], Executor]):
        self._start = start
        self._executor = start()

    def submit(self, run: Callable[..., Row], config: Mapping[str, Any]) -> Future[Row]:
        """Begin a run."""
        with _ctrl_c_held_back():
            return self._executor.submit(run, config)

    def restart(self) -> None:
        """Start a new process."""
        self._executor.shutdown(wait=False)
        self._executor = self._start()

    def stop(self) -> None:
        """End the process at once, whatever it is doing."""
        # Python 3.14 has kill_workers() for this.
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False)
        for process in processes:
            process.kill()


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Keep Ctrl-C from a process that starts in the block, and from interrupting its start.

    This process gets the signal at the end of the block. Blocking it is for the new process, which inherits
    that. For this process that is not enough: another thread may receive the signal, and Python would then
    raise KeyboardInterrupt in the main thread, in the middle of the start.
    """
    received: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number)) if in_main else None
    can_block = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if can_block else set()
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def local_workers(jobs: int) -> Iterator[list[Worker]]:
    """Start processes on this machine, with one thread each if there are several; they end with the block."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()

    def start() -> Executor:
        return ProcessPoolExecutor(
            1, mp_context=context, initializer=_start_worker, initargs=(stop, os.getpid(), jobs > 1)
        )

    with _threads_of_workers(1 if jobs > 1 else None):
        workers = [Worker(start) for _ in range(jobs)]
        try:
            yield workers
        finally:
            stop.set()
            for worker in workers:
                worker.stop()


@contextmanager
def cluster_workers(address: str) -> Iterator[list[Worker]]:
    """Use the workers of a Dask cluster, one run at a time each; osls and the data must be there."""
    distributed = require("distributed", extra="dask")
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address!r}: {error}") from None
    with client:
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])
        if not addresses:
            raise ValueError(
                f"the Dask cluster at {address!r} has no workers; start some with `dask worker`."
            )

        def start(name: str) -> Worker:
            # If the Dask worker leaves, another one takes over.
            return Worker(lambda: client.get_executor(workers=[name], allow_other_workers=True, pure=False))

        workers = [start(name) for name in addresses]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.stop()


@contextmanager
def _threads_of_workers(threads: int | None) -> Iterator[None]:
    """Set the number of threads of processes that start in the block; None leaves it to them."""
    before = os.environ.get("OMP_NUM_THREADS")
    if threads is not None:
        # OpenMP reads this when a process starts, before torch can be asked.
        os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _start_worker(stop: Any, parent: int, single_threaded: bool) -> None:
    """Prepare a process: it ends with its parent, leaves Ctrl-C to it, and uses one thread if asked."""
    threading.Thread(target=_exit_with, args=(stop, parent), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if single_threaded:
        torch.set_num_threads(1)


def _exit_with(stop: Any, parent: int) -> None:
    """End this process when asked to, or when its parent has ended."""
    while os.getppid() == parent and not stop.is_set():
        time.sleep(0.2)
    os._exit(1)
