"""CSV, TSV and their relatives: comma, semicolon, tab or bar, UTF-8, one header line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv

from osls.app.files.errors import InputError, shorten
from osls.app.files.infer import infer_types
from osls.app.files.rows import BATCH_ROWS, RowFile
from osls.app.files.scan import scan_text

__all__ = ["DelimitedRows"]

_DELIMITERS = ",;\t|"
_SNIFFED_ROWS = 20
# A field of a text column may be a whole document; Python's own limit of 128 KiB is for smaller things.
_FIELD_LIMIT = 1 << 27


class DelimitedRows(RowFile):
    """A text file with one row a line. Every value is a string until a whole column is known."""

    def __init__(self, path: Path):
        scan = scan_text(path)
        if scan.empty:
            raise InputError(f"{path}: the file is empty; check that this is the right file.")
        self._path = path
        self._quotes_balanced = scan.quotes_balanced
        self._header_row = _blank_lines(path) + 1
        self._delimiter, header = _sniff(path)
        names = [field.strip() or f"column {i + 1}" for i, field in enumerate(header)]
        super().__init__(str(path), names)

    def typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        return infer_types(frame)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Stream the file; a line with too few or too many fields is an error that names the line."""
        wanted = list(self.columns if columns is None else columns)
        # What follows a quote that is never closed ends up in the last column, so that one is read too.
        checked = [] if self._quotes_balanced or self.columns[-1] in wanted else [self.columns[-1]]
        n_rows, last = 0, ""
        for batch in self._arrow_batches([*wanted, *checked]):
            if not batch.num_rows:
                continue
            n_rows += batch.num_rows
            last = str(batch.column(self.columns[-1])[-1]) if not self._quotes_balanced else ""
            yield from _split(batch.select(wanted).to_pandas(), size)
        if not n_rows:
            raise InputError(
                f"{self.name}: there is a header but no rows; check that this is the right file."
            )
        if not self._quotes_balanced and "\n" in last:
            raise InputError(
                f'{self.name}: a quote (") opened in row {n_rows} is never closed, so the rest of the file '
                "became one value; close it or double the quote."
            )

    def _arrow_batches(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        wrong: list[Any] = []

        def remember(row: Any) -> str:
            wrong.append(row)
            return "error"

        try:
            reader = arrow_csv.open_csv(
                self._path,
                read_options=arrow_csv.ReadOptions(
                    column_names=list(self.columns), skip_rows_after_names=self._header_row, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=remember
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.columns, pa.string()), include_columns=wanted
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            if wrong:
                raise self._ragged(wrong[0]) from None
            raise InputError(f"{self.name}: {shorten(error, 120)}; correct the file.") from None

    def _ragged(self, row: Any) -> InputError:
        number = row.number - self._header_row
        return InputError(
            f"{self.name}: row {number} has {row.actual_columns} values but the header has "
            f"{row.expected_columns} (it begins {shorten(row.text)}); correct the row, "
            "and put values that hold the delimiter in quotes."
        )


def _split(frame: pd.DataFrame, size: int) -> Iterator[pd.DataFrame]:
    for first in range(0, len(frame), size):
        yield frame.iloc[first : first + size].reset_index(drop=True)


def _blank_lines(path: Path) -> int:
    """Count those before the header, which Arrow counts as rows."""
    with path.open(encoding="utf-8-sig") as file:
        return sum(1 for _ in takewhile(lambda line: line == "\n", file))


def _sniff(path: Path) -> tuple[str, list[str]]:
    """Return the delimiter that splits the first rows into most columns, all alike, and the header."""
    best, chosen, header = 0.0, "", [""]
    for delimiter in _DELIMITERS:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _first_rows(file, delimiter)
        agreeing = sum(len(row) == len(rows[0]) for row in rows)
        # Rows that disagree with the header speak against a delimiter, but less than having none does.
        score = len(rows[0]) * (1.0 if 2 * agreeing > len(rows) else 0.6)
        if score > best:
            best, chosen, header = score, delimiter, rows[0]
    return chosen, header


def _first_rows(file: Any, delimiter: str) -> list[list[str]]:
    previous = csv.field_size_limit(_FIELD_LIMIT)
    try:
        rows = (row for row in csv.reader(file, delimiter=delimiter) if row)
        return list(islice(rows, _SNIFFED_ROWS))
    finally:
        csv.field_size_limit(previous)
