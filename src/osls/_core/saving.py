"""Decorators that register the classes, functions and networks that a saved model may contain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Kind = Literal["class", "function", "network"]

_MARKED: dict[tuple[Kind, str], Any] = {}


def saveable(thing: T) -> T:
    """Mark a class as one that a saved model may hold, under its name; nothing else is ever loaded by name.

    The name is part of the file format: a marked class may move to another module but not be renamed. It has
    ``get_state() -> dict`` and a class method ``from_state(dict)``, or is a dataclass, a named tuple, or a
    scikit-learn estimator whose ``fit`` sets names that begin or end in ``_``.
    """
    _mark("class", thing)
    return thing


def _mark(kind: Kind, thing: Any) -> None:
    name = thing.__name__
    earlier = _MARKED.setdefault((kind, name), thing)
    if (earlier.__module__, earlier.__qualname__) != (thing.__module__, thing.__qualname__):
        homes = f"{earlier.__module__} and {thing.__module__}"
        raise TypeError(f"two things would be saved as {name!r}, those of {homes}; rename one of them.")
    _MARKED[kind, name] = thing


def kept_as(kind: Kind) -> Callable[[T], T]:
    """Return a decorator like :func:`saveable` for a function, or for a network with ``arguments``."""

    def mark(thing: T) -> T:
        _mark(kind, thing)
        return thing

    return mark


def marked(kind: Kind) -> dict[str, Any]:
    """Return what was marked so far, by name."""
    return {name: thing for (each, name), thing in _MARKED.items() if each == kind}
