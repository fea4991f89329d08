"""Independent parts of a fit's work: carried out here, or wherever joblib's active backend sends them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from joblib import effective_n_jobs, parallel_config
from sklearn.utils.parallel import Parallel, delayed

from osls._core.progress import Advance, no_progress

# How often parts are sent to a cluster that loses them.
_ATTEMPTS = 3


class Part(NamedTuple):
    """A function that can be sent to another process, its arguments, and what share of a unit it is.

    The function is called with the arguments and with ``advance``, which takes a share of the part. Arrays
    are arguments of their own, not inside other objects: a cluster then receives each of them once.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    advance: Advance = no_progress
    share: float = 1.0


def worker_count() -> int:
    """How many parts can be carried out at once: one without ``joblib.parallel_config``."""
    return int(effective_n_jobs(None))


def run_parts(parts: Sequence[Part]) -> list[Any]:
    """Carry out the parts and return their results in order.

    Without ``joblib.parallel_config`` they run here, one after the other. With it each is a task of the
    backend. Every part has its own seed, so the results are the same.
    """
    if worker_count() == 1 or len(parts) < 2:
        return [part.function(*part.arguments, _scaled(part)) for part in parts]
    for attempt in range(_ATTEMPTS):
        results = Parallel(return_as="generator")(
            delayed(_alone)(part.function, *part.arguments) for part in parts
        )
        try:
            return [result.value() for result in _reported(results, parts, silent=attempt > 0)]
        except _PartError as error:
            raise error.cause from None
        except Exception:
            # Not the part failed but the backend: a worker died, and data that only it had. Send all again.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class _Result:
    """What a part returned, or the error that it raised."""

    returned: Any = None
    error: Exception | None = None

    def value(self) -> Any:
        if self.error is not None:
            raise _PartError(self.error)
        return self.returned


class _PartError(Exception):
    """An error of a part, to tell it from one of the backend."""

    def __init__(self, cause: Exception):
        super().__init__(cause)
        self.cause = cause


def _scaled(part: Part) -> Advance:
    def advance(amount: float = 1) -> None:
        part.advance(amount * part.share)

    return advance


def _reported(results: Iterable[_Result], parts: Sequence[Part], *, silent: bool) -> Iterable[_Result]:
    """Tell of each result that it is there; what is done once more was told of already."""
    for result, part in zip(results, parts, strict=True):
        if not silent:
            part.advance(part.share)
        yield result


def _alone(function: Callable[..., Any], *arguments: Any) -> _Result:
    """Run a part on a worker.

    Without the inner setting a forest would send each of its trees to the cluster.
    """
    try:
        with parallel_config(backend="sequential"), _one_thread():
            return _Result(function(*arguments, no_progress))
    except Exception as error:
        return _Result(error=error)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread, so that the sums are the same on every machine; if anything here uses torch.

    It is not imported for this: much of what runs in parts does without.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
