"""How checks are named, run and reported, and the few comparisons that they are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray

__all__ = ["Check", "ContractError", "close", "demand", "demand_error", "named", "run_all", "same"]

Check = Callable[[], None]


class ContractError(AssertionError):
    """An estimator breaks its contract; the message says which part of it, and how."""


def demand(condition: Any, message: str) -> None:
    """Raise ContractError unless the condition holds."""
    if not condition:
        raise ContractError(message)


def same(found: Any, expected: Any, what: str) -> None:
    """Demand equal arrays, to the bit."""
    found, expected = np.asarray(found), np.asarray(expected)
    demand(found.shape == expected.shape, f"{what}: the shape is {found.shape}, not {expected.shape}.")
    unequal = int(np.sum(found != expected))
    demand(not unequal, f"{what}: {unequal} of {expected.size} values differ{_by(found, expected)}.")


def close(found: Any, expected: Any, what: str, tolerance: float) -> None:
    """Demand arrays that differ by no more than the tolerance; NaN never passes."""
    found, expected = np.asarray(found), np.asarray(expected)
    demand(found.shape == expected.shape, f"{what}: the shape is {found.shape}, not {expected.shape}.")
    demand(
        (np.abs(found - expected) <= tolerance).all(),
        f"{what}: values differ{_by(found, expected)}, where {tolerance:g} is allowed.",
    )


def _by(found: AnyArray, expected: AnyArray) -> str:
    if not (found.dtype.kind in "fiu" and expected.dtype.kind in "fiu"):
        return ""
    return f" by up to {np.abs(found.astype(float) - expected).max():.3g}"


def demand_error(action: Callable[[], Any], words: tuple[str, ...], what: str) -> None:
    """Demand a ValueError (or TypeError) whose message has each of the words."""
    try:
        action()
    except (ValueError, TypeError) as error:
        message = str(error)
    else:
        raise ContractError(f"{what}: no error was raised; expected a ValueError that names {_list(words)}.")
    missing = tuple(word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message))
    demand(not missing, f"{what}: the message does not name {_list(missing)}; it is: {message}")


def _list(words: tuple[str, ...]) -> str:
    return " and ".join(repr(word) for word in words)


def named(function: Callable[[Any], None], subject: Any) -> tuple[str, Check]:
    """Return the check's name, which is its function's, and the check with its subject filled in."""
    name = function.__name__.replace("_", " ")

    def check() -> None:
        try:
            function(subject)
        except ContractError as error:
            raise ContractError(f"{subject.name}, {name}: {error}") from None

    return name, check


def run_all(name: str, checks: Iterator[tuple[str, Check]]) -> None:
    """Run every check; raise one ContractError that lists all that failed."""
    failures: list[str] = []
    cause: BaseException | None = None
    for title, check in checks:
        try:
            check()
        except ContractError as error:
            failures.append(str(error))
            cause = cause or error
        except Exception as error:
            failures.append(f"{name}, {title}: stopped with {type(error).__name__}: {error}")
            cause = cause or error
    if failures:
        count = "1 check" if len(failures) == 1 else f"{len(failures)} checks"
        raise ContractError(f"{name} fails {count}.\n- " + "\n- ".join(failures)) from cause
