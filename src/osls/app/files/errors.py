"""The error for data that cannot be used, and the parts its messages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from osls._core.arrays import Ints


class InputError(ValueError):
    """Something is wrong with the data: the message names file, column or row and says what to do."""


@dataclass(frozen=True)
class Place:
    """Where rows come from: the file, and how many of its rows come before all, or before each, of them."""

    name: str = "the rows"
    before: int | Ints = 0

    def row(self, index: int) -> int:
        """Number of a row as a person counts, from 1."""
        before = self.before if isinstance(self.before, int) else int(self.before[index]) - index
        return before + index + 1


ROWS = Place()


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
