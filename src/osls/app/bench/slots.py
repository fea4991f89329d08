"""Where runs are run, one at a time each: processes of this machine, or workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from osls.app.bench.rows import Row

__all__ = ["Slot", "cluster_slots", "local_slots"]


class Slot:
    """An executor of one worker; a worker that died is replaced, so that only its own run is lost."""

    def __init__(self, start: Callable[[], Executor]):
        self._start = start
        self._executor = start()

    def submit(self, run: Callable[..., Row], config: Mapping[str, Any]) -> Future[Row]:
        """Begin a run."""
        with _ctrl_c_held_back():
            return self._executor.submit(run, config)

    def restart(self) -> None:
        """Get a new worker."""
        self._executor.shutdown(wait=False)
        self._executor = self._start()

    def stop(self) -> None:
        """Let the worker go, at once: it may be in the middle of hours of work, or only just starting."""
        # Python 3.14 has kill_workers() for this.
        workers = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False)
        for worker in workers:
            worker.kill()


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Let a process that starts in the block begin deaf to Ctrl-C, and let none interrupt its start.

    The signal is held, not dropped: this process gets it at the end of the block. Blocking it is for the new
    process, which inherits that. Here it is not enough: another thread may take the signal, and Python would
    raise KeyboardInterrupt in the main thread between any two lines of the start.
    """
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if in_main else None
    can_block = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if can_block else set()
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def local_slots(jobs: int) -> Iterator[list[Slot]]:
    """Processes of this machine, one core each if there are several; they end when the block does."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()

    def start() -> Executor:
        return ProcessPoolExecutor(
            1, mp_context=context, initializer=_start_worker, initargs=(stop, os.getpid(), jobs > 1)
        )

    with _threads_of_workers(1 if jobs > 1 else None):
        slots = [Slot(start) for _ in range(jobs)]
        try:
            yield slots
        finally:
            # Workers may be in the middle of hours of work that nobody waits for any more.
            stop.set()
            for slot in slots:
                slot.stop()


@contextmanager
def cluster_slots(address: str) -> Iterator[list[Slot]]:
    """The workers of a Dask cluster, one run at a time each; osls and the data must be there."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("a Dask cluster needs distributed: pip install 'osls[dask]'") from None
    try:
        client: Any = Client(address, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address!r}: {error}") from None
    with client:
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        if not workers:
            raise ValueError(
                f"the Dask cluster at {address!r} has no workers; start some with `dask worker`."
            )

        def slot(worker: str) -> Slot:
            # If the worker leaves, another one takes over.
            return Slot(lambda: client.get_executor(workers=[worker], allow_other_workers=True, pure=False))

        slots = [slot(worker) for worker in workers]
        try:
            yield slots
        finally:
            for one in slots:
                one.stop()


@contextmanager
def _threads_of_workers(threads: int | None) -> Iterator[None]:
    """Let processes started in the block compute with so many threads; None for their own choice."""
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
    """Prepare a worker: no life without its parent, to whom Ctrl-C is left, and one core if told so."""
    threading.Thread(target=_exit_with, args=(stop, parent), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if single_threaded:
        import torch

        torch.set_num_threads(1)


def _exit_with(stop: Any, parent: int) -> None:
    """End this process when told to or when its parent was killed: nobody waits for its answer."""
    while os.getppid() == parent and not stop.is_set():
        time.sleep(0.2)
    os._exit(1)
