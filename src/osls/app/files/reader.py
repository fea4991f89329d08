"""Rows that can be read in batches, where they come from, and errors that name the place."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from osls._core.arrays import Ints
from osls._core.printing import printable


class InputError(ValueError):
    """Something is wrong with the data: the message names file, column or row and says what to do."""

    def __init__(self, message: str):
        super().__init__(printable(message, lines=False))


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


def missing_columns(missing: Sequence[str], others: Iterable[str]) -> str:
    """Say which columns a model needs and does not get; ``others`` are those given that it has no use for."""
    first, *more = (shorten(column) for column in missing)
    nor = ", nor " + ", ".join(more[:7]) + (" ..." if len(more) > 7 else "") if more else ""
    near = difflib.get_close_matches(missing[0], list(others), n=1, cutoff=0.5)
    what = f"did you mean {near[0]!r}?" if near else f"add {'them' if more else 'it'}."
    return f"there is no column {first}, which the model needs{nor}; {what}"


def shorten(value: object, limit: int = 40) -> str:
    """Quote a value from the data on one line, cut to a length that fits into a sentence."""
    text = " ".join(str(value).split())
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


Kind = Literal["table", "text", "images"]

# What pandas makes of strings: a type of their own from version 3 on, objects before.
TEXT_DTYPE: Any = pd.Series(["a"]).dtype
BATCH_ROWS = 50_000
_BATCH_VALUES = 10_000_000
# The columns of a folder: which file, its text, and the class that its folder names.
FILE_COLUMN, TEXT_COLUMN, CLASS_COLUMN = "file", "text", "class"


def rows_per_batch(n_columns: int) -> int:
    """Return how many rows of so many columns can be handled at once in about 300 MB."""
    return max(1000, min(BATCH_ROWS, _BATCH_VALUES // max(n_columns, 1)))


class RowFile(ABC):
    """Rows that can be read once or many times.

    Attributes
    ----------
    name : str
        What messages call it.
    columns : tuple of str
        Names of its columns.
    kind : {"table", "text", "images"}
        What a row is.
    notes : tuple of str
        What a reader should know about how it was read.
    index : Index or None
        The rows' own labels, if it is a pandas table.
    """

    kind: Kind = "table"
    index: pd.Index | None = None

    def __init__(self, name: str, columns: Sequence[str], notes: Sequence[str] = ()):
        self.name = name
        self.columns = tuple(columns)
        self.notes = tuple(notes)
        self._check_columns()

    def _check_columns(self) -> None:
        twice = [column for column, times in Counter(self.columns).items() if times > 1]
        if twice:
            raise InputError(
                f"{self.name}: the column {shorten(twice[0])} appears more than once; "
                "rename or remove one of them."
            )
        if not self.columns:
            raise InputError(f"{self.name}: there are no columns; check that this is the right file.")

    @abstractmethod
    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Yield the rows in order; values may still be the strings of the file."""

    def placed_batches(self, columns: Sequence[str]) -> Iterator[tuple[Place, pd.DataFrame]]:
        """Yield the rows of some columns (or, if none are named, of all), and where they are in the file."""
        first = 0
        for batch in self.batches(columns or None, rows_per_batch(len(columns))):
            yield Place(self.name, first), batch
            first += len(batch)

    def count(self) -> int:
        """Return the number of rows."""
        return sum(len(batch) for batch in self.batches(self.columns[:1]))

    def typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Turn columns of strings into numbers or dates; formats that store types have no need to."""
        return frame

    def read(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read all rows."""
        return self.typed(self.read_raw(columns))

    def read_raw(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read all rows as the file has them."""
        frames = list(self.batches(columns))
        if not frames:
            return pd.DataFrame(columns=list(self.columns if columns is None else columns))
        return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]

    def take(self, rows: Ints, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read some rows, given by sorted numbers from 0."""
        frames, first = [], 0
        for batch in self.batches(columns, rows_per_batch(len(columns or self.columns))):
            start, stop = np.searchsorted(rows, [first, first + len(batch)])
            frames.append(batch.iloc[rows[start:stop] - first])
            first += len(batch)
        return self.typed(pd.concat(frames, ignore_index=True))


def whole_numbers(values: Any) -> pd.Series:
    """Return whole numbers of Arrow, some missing: as floats they would lose digits, and end in .0 as ids."""
    return pd.Series(values.to_pandas(types_mapper={values.type: pd.Int64Dtype()}.get))


def split_frame(frame: pd.DataFrame, size: int) -> Iterator[pd.DataFrame]:
    """Yield parts of at most ``size`` rows; a frame that has no more is yielded as it is."""
    if len(frame) <= size:
        yield frame
        return
    for first in range(0, len(frame), size):
        yield frame.iloc[first : first + size].reset_index(drop=True)


def check_not_empty(rows: RowFile) -> None:
    """Raise if there are no rows."""
    if not rows.count():
        raise InputError(f"{rows.name}: there are no rows; check that this is the right file.")


class MemoryRows(RowFile):
    """A frame that is in memory already."""

    def __init__(self, frame: pd.DataFrame, name: str, notes: Sequence[str] = ()):
        super().__init__(name, [str(column) for column in frame.columns], notes)
        self._frame = frame.set_axis(list(self.columns), axis=1).reset_index(drop=True)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Yield slices of the frame."""
        frame = self._frame if columns is None else self._frame[list(columns)]
        yield from split_frame(frame, size)

    def count(self) -> int:
        return len(self._frame)
