"""Independent parts of a fit's work: carried out here, or wherever joblib's active backend sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from joblib import effective_n_jobs, parallel_config
from sklearn.utils.parallel import Parallel, delayed

from osls._core.progress import Advance, no_progress


class Part(NamedTuple):
    """A function that can be sent to another process, its arguments, and what share of a unit it is.

    The function is called with the arguments and with ``advance``, which takes a share of the part. Arrays
    are arguments of their own, not inside other objects: a cluster then receives each of them once.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    advance: Advance = no_progress
    share: float = 1.0


def run_parts(parts: Sequence[Part]) -> list[Any]:
    """Carry out the parts and return their results in order.

    Without ``joblib.parallel_config`` they run here, one after the other. With it each is a task of the
    backend. Every part has its own seed, so the results are the same.
    """
    if effective_n_jobs(None) == 1 or len(parts) < 2:
        return [part.function(*part.arguments, _scaled(part)) for part in parts]
    results = Parallel(return_as="generator")(
        delayed(_alone)(part.function, *part.arguments) for part in parts
    )
    return list(_reported(results, parts))


def _scaled(part: Part) -> Advance:
    def advance(amount: float = 1) -> None:
        part.advance(amount * part.share)

    return advance


def _reported(results: Iterable[Any], parts: Sequence[Part]) -> Iterable[Any]:
    for result, part in zip(results, parts, strict=True):
        part.advance(part.share)
        yield result


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a part on a worker, with one thread, so that the sums are the same on every machine.

    Without the inner setting a forest would send each of its trees to the cluster.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with parallel_config(backend="sequential"):
            return function(*arguments, no_progress)
    finally:
        torch.set_num_threads(threads)
