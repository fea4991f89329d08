"""Text files: CSV and its relatives, and JSON lines. All are UTF-8, and all values begin as strings."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from osls.app.files.reader import (
    BATCH_ROWS,
    TEXT_DTYPE,
    InputError,
    RowFile,
    shorten,
    split_frame,
    whole_numbers,
)

# -- Is it text? --------------------------------------------------------------------------------------

_PIECE = 1 << 20


def scan_text(path: Path) -> bool:
    """Read a file once in pieces; raise if it is empty or not UTF-8. Return whether its quotes are paired."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line, quotes, blank = 1, 0, True
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"{path}: the file is in UTF-16; save it as UTF-8 and try again.")
        file.seek(0)
        # The empty piece at the end shows whether the last character is whole.
        for piece in chain(iter(lambda: file.read(_PIECE), b""), [b""]):
            if b"\0" in piece:
                raise InputError(
                    f"{path}: there are zero bytes in or after line {line}, so it is not a text file; "
                    "check the file or its extension."
                )
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}: line {line + error.object[: error.start].count(10)} is not in UTF-8 (an older "
                    "encoding such as Latin-1?); save the file as UTF-8 and try again."
                ) from None
            line += text.count("\n")
            quotes += piece.count(b'"')
            blank = blank and not piece.strip(b"\xef\xbb\xbf \t\r\n")
    if blank:
        raise InputError(f"{path}: the file is empty; remove it, or check that it is the right file.")
    return quotes % 2 == 0


# -- Comma, semicolon, tab or bar between values, one header line ---------------------------------------

_DELIMITERS = ",;\t|"
_SNIFFED_ROWS = 20
# A field of a text column may be a whole document; Python's own limit of 128 KiB is for smaller things.
_FIELD_LIMIT = 1 << 27
# Arrow reads a file in pieces of this size, and no row may be longer than one.
_LONGEST_ROW = 1 << 25
# What Arrow says of a row with too few or too many values.
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


class DelimitedRows(RowFile):
    """A text file with one row a line. Every value is a string until a whole column is known."""

    def __init__(self, path: Path, sep: str | None = None, decimal: str = "."):
        self._quotes_paired = scan_text(path)
        self._path = path
        self._header_row = _blank_lines(path) + 1
        self._delimiter, header = _sniff(path, sep or _DELIMITERS)
        self._decimal = decimal
        names = [field.strip() or f"column {i + 1}" for i, field in enumerate(header)]
        super().__init__(str(path), names)

    def typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        return infer_types(frame)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Stream the file; a line with too few or too many fields is an error that names the line."""
        wanted = list(self.columns if columns is None else columns)
        # All that follows a quote that is never closed ends up in the last column, so read that one too.
        checked = [] if self._quotes_paired or self.columns[-1] in wanted else [self.columns[-1]]
        n_rows, last = 0, ""
        for batch in self._arrow_batches([*wanted, *checked]):
            if not batch.num_rows:
                continue
            n_rows += batch.num_rows
            last = str(batch.column(self.columns[-1])[-1]) if not self._quotes_paired else ""
            batch = (
                batch.select(wanted) if self._decimal == "." else _with_decimal_points(batch.select(wanted))
            )
            yield from split_frame(batch.to_pandas(), size)
        if not n_rows:
            raise InputError(
                f"{self.name}: there is a header but no rows; check that this is the right file."
            )
        if not self._quotes_paired and "\n" in last:
            raise InputError(
                f'{self.name}: a quote (") opened in row {n_rows} is never closed, so the rest of the file '
                "became one value; close it or double the quote."
            )

    def _arrow_batches(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            reader = arrow_csv.open_csv(
                self._path,
                read_options=arrow_csv.ReadOptions(
                    column_names=list(self.columns),
                    skip_rows_after_names=self._header_row,
                    use_threads=False,
                    block_size=_LONGEST_ROW,
                ),
                parse_options=arrow_csv.ParseOptions(
                    # Without a function of ours for bad rows: a thread of Arrow would let go of it while
                    # Python ends, which aborts the process.
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.columns, pa.string()), include_columns=wanted
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            if ragged := _RAGGED.search(str(error)):
                raise self._ragged(*ragged.groups()) from None
            if "straddling" in str(error):
                raise InputError(
                    f"{self.name}: a row has more than {_LONGEST_ROW >> 20} MB; shorten its texts, or give "
                    "the texts as a folder of .txt files."
                ) from None
            raise InputError(f"{self.name}: {shorten(error, 120)}; correct the file.") from None

    def _ragged(self, row: str, wanted: str, found: str, text: str) -> InputError:
        return InputError(
            f"{self.name}: row {int(row) - self._header_row} has {found} values but the header has "
            f"{wanted} (it begins {shorten(text)}); correct the row, "
            "and put values that hold the delimiter in quotes."
        )


def _blank_lines(path: Path) -> int:
    """Count the blank lines before the header, which Arrow counts as rows."""
    with path.open(encoding="utf-8-sig") as file:
        return sum(1 for _ in takewhile(lambda line: line == "\n", file))


# A number as most of Europe writes it: dots between thousands, a comma before the decimals.
# No thousands begin with a zero: 0.123 has a decimal point, whatever was said of the file.
_COMMA_NUMBER = r"^\s*[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d+)?([eE][+-]?\d+)?\s*$"


def _with_decimal_points(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Write numbers with a decimal comma with a point; other values stay as they are."""

    def rewrite(column: pa.Array) -> pa.Array:
        plain = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
        return pc.if_else(pc.match_substring_regex(column, _COMMA_NUMBER), plain, column)

    return pa.record_batch([rewrite(column) for column in batch.columns], names=batch.schema.names)


def _sniff(path: Path, delimiters: str) -> tuple[str, list[str]]:
    """Return the delimiter that splits the first rows into the most columns, and the header."""
    best, chosen, header = 0.0, "", [""]
    for delimiter in delimiters:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _first_rows(file, delimiter)
        agreeing = sum(len(row) == len(rows[0]) for row in rows)
        # A delimiter that splits few rows like the header is doubtful, but better than one that splits none.
        score = len(rows[0]) * (1.0 if 2 * agreeing > len(rows) else 0.6)
        if score > best:
            best, chosen, header = score, delimiter, rows[0]
    return chosen, header


def _first_rows(file: Any, delimiter: str) -> list[list[str]]:
    previous = csv.field_size_limit(_FIELD_LIMIT)
    try:
        rows = (row for row in csv.reader(file, delimiter=delimiter) if row)
        return list(islice(rows, _SNIFFED_ROWS))
    except csv.Error:
        raise InputError(
            f"{file.name}: a value among the first rows has more than {_FIELD_LIMIT >> 20} MB; "
            'shorten it, or close a quote (") that was left open.'
        ) from None
    finally:
        csv.field_size_limit(previous)


# -- Strings to the types that whole columns of them have -----------------------------------------------

# What people and programs write for "no value". "None" is not one of them: it may be a class or an answer.
_MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "nan", "NaN", "NAN", "null", "NULL")
# A number with a leading zero is a code (007, a postcode) and must keep its zeros; hexadecimal likewise.
_CODE = r"^[+-]?0[0-9xX]"
_BOOLEANS = ("true", "false")


def infer_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Turn every column of strings that consists of whole numbers, numbers, booleans or dates into these.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": ["1", "2"], "b": ["01", "02"], "c": ["0.5", ""]})
    >>> infer_types(frame).to_dict("list")
    {'a': [1, 2], 'b': ['01', '02'], 'c': [0.5, nan]}
    """
    return pd.DataFrame({name: _infer(frame[name]) for name in frame.columns}, index=frame.index)


def _infer(column: pd.Series) -> pd.Series:
    if column.dtype != TEXT_DTYPE and not isinstance(column.dtype, pd.StringDtype):
        return column
    values = trim(column)
    present = values.drop_null()
    if not len(present):
        return pd.Series(float("nan"), index=column.index)
    for kind in _candidates(present):
        try:
            cast = pc.cast(values, kind)
        except pa.ArrowInvalid:
            continue
        if kind == pa.int64() and cast.null_count:
            return whole_numbers(cast).set_axis(column.index)
        return pd.Series(cast.to_pandas().to_numpy(), index=column.index)
    return pd.Series(values.to_pandas().to_numpy(), index=column.index, dtype=TEXT_DTYPE)


def trim(column: pd.Series) -> pa.Array:
    """Return strings without surrounding spaces; what stands for "no value" becomes missing."""
    values = pc.utf8_trim_whitespace(pa.array(column, type=pa.large_string()))
    return pc.if_else(pc.is_in(values, _strings(_MISSING)), None, values)


def _candidates(present: pa.Array) -> list[pa.DataType]:
    if pc.any(pc.match_substring_regex(present, _CODE)).as_py():
        return []
    if pc.all(pc.is_in(pc.utf8_lower(present), _strings(_BOOLEANS))).as_py():
        return [pa.bool_()]
    return [pa.int64(), pa.float64(), pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")]


def _strings(words: tuple[str, ...]) -> pa.Array:
    return pa.array(words, pa.large_string())


# -- JSON: one object a line, or one array of objects ---------------------------------------------------


# A table of this many cells, of which only one in so many has a value, is no table.
_MANY_CELLS, _EMPTY_CELLS = 20_000_000, 100


def _values(values: list[Any]) -> Any:
    """The values of a key; pandas would make floats of whole numbers if one is missing."""
    kinds = {type(value) for value in values}
    if kinds != {int, type(None)}:
        return values
    try:
        return whole_numbers(pa.array(values, pa.int64()))
    except (OverflowError, pa.ArrowInvalid):
        return values


class JsonRows(RowFile):
    """A file of JSON objects; a key that an object lacks is a missing value."""

    def __init__(self, path: Path):
        scan_text(path)
        self._path = path
        self._n_rows = 0
        columns: dict[str, None] = {}
        values = 0
        for record in self._records():
            columns.update(dict.fromkeys(record))
            self._n_rows += 1
            values += len(record)
            self._check_density(len(columns), values)
        if not self._n_rows:
            raise InputError(f"{path}: there are no rows; check that this is the right file.")
        super().__init__(str(path), list(columns))

    def _check_density(self, columns: int, values: int) -> None:
        """Raise if the table would be far larger than the file, for example with a key a row."""
        cells = self._n_rows * columns
        if cells > _MANY_CELLS and cells > _EMPTY_CELLS * values:
            raise InputError(
                f"{self._path}: {self._n_rows:,} rows have {columns:,} different keys, most of them in few; "
                "give all rows the same keys, one a column."
            )

    def count(self) -> int:
        return self._n_rows

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Parse line by line."""
        wanted = list(self.columns if columns is None else columns)
        records = self._records()
        while part := list(islice(records, size)):
            yield pd.DataFrame({name: _values([record.get(name) for record in part]) for name in wanted})

    def _records(self) -> Iterator[dict[str, Any]]:
        with self._path.open(encoding="utf-8-sig") as file:
            start = file.read(1)
            while start.isspace():
                start = file.read(1)
            file.seek(0)
            if start == "[":
                for number, value in enumerate(self._parse(file.read().strip(), 1), 1):
                    yield self._record(value, f"row {number}")
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield self._record(self._parse(line, number), f"line {number}")

    def _parse(self, text: str, line: int) -> Any:
        try:
            return json.loads(text.lstrip("\ufeff"), object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{self._path}: line {line + error.lineno - 1} is not JSON ({error.msg} at character "
                f"{error.colno}); write one object a line."
            ) from None
        except RecursionError:
            raise InputError(
                f"{self._path}: line {line} is nested too deeply; write one flat object."
            ) from None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{self._path}: an object has the key {shorten(twice)} twice; rename or remove one of them."
            )
        return record

    def _record(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InputError(
                f"{self._path}: {where} holds {shorten(value)}, not an object; "
                'write rows as {"column": value, ...}.'
            )
        return value
