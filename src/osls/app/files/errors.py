"""The error for data that cannot be used, and the parts its messages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "did_you_mean", "shorten"]


class InputError(ValueError):
    """Something is wrong with the data: the message names file, column or row and says what to do."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: the nearest of the names that exist, and some of the others."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    shown = ", ".join(repr(each) for each in names[:8])
    return f"choose one of {shown}{' ...' if len(names) > 8 else '.'}"


def shorten(value: object, limit: int = 40) -> str:
    """Quote a value from the data on one line, cut to a length that fits into a sentence."""
    text = " ".join(str(value).split())
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")
