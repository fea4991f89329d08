"""Parquet and Arrow files: columns with types, read column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from osls.app.files.errors import InputError, shorten
from osls.app.files.rows import BATCH_ROWS, RowFile

__all__ = ["ArrowRows", "ParquetRows"]


class ParquetRows(RowFile):
    """A Parquet file. Only the columns that are asked for are read."""

    def __init__(self, path: Path):
        self._path = path
        with _readable(path, "Parquet"), pq.ParquetFile(path) as file:
            self._n_rows = file.metadata.num_rows
            names = file.schema_arrow.names
        super().__init__(str(path), names)
        _check_rows(self)

    def count(self) -> int:
        return int(self._n_rows)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Stream row groups."""
        wanted = list(self.columns if columns is None else columns)
        with _readable(self._path, "Parquet"), pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(size, columns=wanted):
                yield _to_pandas(batch, wanted)


class ArrowRows(RowFile):
    """An Arrow (Feather) file or stream, mapped into memory."""

    def __init__(self, path: Path):
        self._path = path
        with _readable(path, "Arrow"):
            self._table = _read_arrow(path)
            names = self._table.schema.names
        super().__init__(str(path), names)
        _check_rows(self)

    def count(self) -> int:
        return int(self._table.num_rows)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Slice the table."""
        wanted = list(self.columns if columns is None else columns)
        with _readable(self._path, "Arrow"):
            for batch in self._table.select(wanted).to_batches(size):
                if batch.num_rows:
                    yield _to_pandas(batch, wanted)


def _read_arrow(path: Path) -> pa.Table:
    source = pa.memory_map(str(path))
    try:
        return pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source).read_all()


def _to_pandas(batch: pa.RecordBatch, wanted: list[str]) -> pd.DataFrame:
    # Offsets and texts are taken on trust by Arrow; with those of a damaged file it would crash.
    batch.validate(full=True)
    # Without the metadata pandas may have left: an index it stored must stay a column like any other.
    frame: Any = pa.Table.from_batches([batch]).replace_schema_metadata(None).to_pandas()
    return frame[wanted]


def _check_rows(rows: RowFile) -> None:
    if not rows.count():
        raise InputError(f"{rows.name}: there are no rows; check that this is the right file.")


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: damaged names of columns
        raise InputError(
            f"{path}: cannot be read as {what} ({shorten(error, 80)}); "
            "the file may be cut short or have the wrong extension, so write it again."
        ) from None
