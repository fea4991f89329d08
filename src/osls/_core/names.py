"""Errors that suggest: the known name nearest to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["unknown"]


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Say that a name is not known, which one it may have been, and which there are.

    Examples
    --------
    >>> from osls._core.names import unknown
    >>> unknown("method", "puls", ["pulse", "k-pu"])
    "unknown method 'puls'; did you mean 'pulse'? Known: k-pu, pulse."
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}."
