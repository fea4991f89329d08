"""A Dask cluster to work on: the caller's, one at an address, or one on this machine for the while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

try:
    import distributed
    from dask.delayed import delayed
except ImportError as error:
    raise ImportError("osls.distributed needs Dask: pip install 'osls[dask]'") from error

__all__ = ["connected", "model_here", "model_on_workers", "task"]


@contextmanager
def connected(client: Any, n_workers: int | None = None) -> Iterator[Any]:
    """Yield a client; what was made for it is closed again.

    Parameters
    ----------
    client : distributed.Client, str or None
        A client to use as it is, the address of a scheduler, or None for workers on this machine.
    n_workers : int, optional
        How many of them; by default one a core.
    """
    if isinstance(client, distributed.Client):
        yield client
    elif isinstance(client, str):
        with _open(distributed.Client, client) as connection:
            yield connection
    elif client is None:
        # One thread each: the models' own libraries use the core better than Python's threads do.
        local = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
        with (
            _open(distributed.LocalCluster, processes=True, **local) as cluster,
            _open(distributed.Client, cluster) as connection,
        ):
            yield connection
    else:
        raise TypeError(
            "client must be a distributed.Client, the address of a scheduler, or None for a cluster on this "
            f"machine; got {type(client).__name__}."
        )


def _open(kind: Any, *arguments: Any, **options: Any) -> Any:
    """Call what Dask gives no types for."""
    return kind(*arguments, **options)


class _Holder(distributed.WorkerPlugin):
    """Keeps an object on every worker, also on those that join or are restarted later.

    Scattered data is gone with the worker that held it. A plugin is kept by the scheduler and handed to
    every new worker, once.
    """

    def __init__(self, name: str, held: Any):
        self.name = name
        self.held = held


@contextmanager
def model_on_workers(client: Any, model: Any) -> Iterator[str]:
    """Have a model on every worker inside the block, under the name that is yielded."""
    name = f"osls-model-{uuid4().hex}"
    client.register_plugin(_Holder(name, model))
    try:
        yield name
    finally:
        client.unregister_worker_plugin(name)


def model_here(name: str) -> Any:
    """Return the model of that name on the worker that this runs on."""
    holder: Any = distributed.get_worker().plugins[name]
    return holder.held


def task(function: Any) -> Any:
    """Return the function as a step of a graph that Dask runs later."""
    return delayed(function, pure=False)
