"""What a saved model may be made of: what is marked as such in its own file, and nothing else.

Tags in a manifest are names such as "PULSE" or "BBE" (:func:`osls._core.saving.saveable`), not paths of
modules: where a class lives is no part of the file format.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sklearn.pipeline import Pipeline

from osls._core.saving import Kind, marked
from osls.persist.tree import ModelError, in_short

__all__ = ["everything", "find", "tag_of"]

# Where marked classes live, in the order of how often a model holds them. `osls.app` builds on this package,
# so it is imported only when a model asks for something that is not marked elsewhere.
_HOMES = (
    "osls.pulse",
    "osls.baselines",
    "osls.mixture",
    "osls.shift",
    "osls.pu",
    "osls.training.nets",
    "osls.training.nets.features",
    "osls.app.predict",
)
# Taken apart rather than left to skops, which knows none of ours inside it.
_OTHERS = {"Pipeline": Pipeline}


def tag_of(thing: Any, kind: Kind = "class") -> str | None:
    """Return the tag of a class, function or network, or None if it may not be saved."""
    name = getattr(thing, "__name__", "")
    known = _OTHERS.get(name) if kind == "class" and name in _OTHERS else marked(kind).get(name)
    return name if known is thing else None


def find(tag: Any, kind: Kind, where: str) -> Any:
    """Return the class, function or network of a tag; whatever is not marked is refused."""
    if isinstance(tag, str):
        if kind == "class" and tag in _OTHERS:
            return _OTHERS[tag]
        for home in ("", *_HOMES):
            if home:
                _import(home, tag, where)
            if tag in marked(kind):
                return marked(kind)[tag]
    raise ModelError(f"{where} asks for {tag!r}, which is none of the types that a saved model may hold.")


def everything(kind: Kind) -> dict[str, Any]:
    """Return all that a model may hold, by tag."""
    for home in _HOMES:
        import_module(home)
    return {**marked(kind), **(_OTHERS if kind == "class" else {})}


def _import(home: str, tag: str, where: str) -> None:
    try:
        import_module(home)
    except ImportError as error:
        raise ModelError(
            f"{where} needs {tag}, which this installation lacks ({in_short(error)})."
        ) from error
