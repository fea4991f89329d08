"""From a path, or a table in memory, to its reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from osls.app.files.errors import InputError
from osls.app.files.folders import IMAGE_SUFFIXES, FolderRows
from osls.app.files.reader import MemoryRows, RowFile
from osls.app.files.text_files import DelimitedRows, JsonRows
from osls.app.files.typed_files import ArrowRows, ParquetRows, read_h5ad, read_npz

READERS: dict[str, Callable[[Path], RowFile]] = {
    ".csv": DelimitedRows,
    ".tsv": DelimitedRows,
    ".parquet": ParquetRows,
    ".pq": ParquetRows,
    ".arrow": ArrowRows,
    ".feather": ArrowRows,
    ".ipc": ArrowRows,
    ".jsonl": JsonRows,
    ".ndjson": JsonRows,
    ".json": JsonRows,
    ".npz": read_npz,
    ".h5ad": read_h5ad,
}


def open_rows(path: str | os.PathLike[str]) -> RowFile:
    """Open a folder of rows, or a file of the format that its extension names."""
    path = Path(path)
    try:
        if path.is_dir():
            return FolderRows(path)
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path.")
        return _reader_of(path)(path)
    except PermissionError as error:
        raise InputError(f"{error.filename or path}: may not be read; check its permissions.") from None


def _reader_of(path: Path) -> Callable[[Path], RowFile]:
    suffix = path.suffix.lower()
    if suffix in READERS:
        return READERS[suffix]
    if suffix in IMAGE_SUFFIXES or suffix == ".txt":
        raise InputError(f"{path}: is a single file; give the folder that it lies in.")
    raise InputError(
        f"{path}: the extension {suffix or '(none)'} is not known; "
        f"use one of {' '.join(READERS)} or a folder."
    )


def as_rows(data: Any, name: str) -> RowFile:
    """Accept a path, a pandas or polars frame, an Arrow table, or whatever offers to become one."""
    if isinstance(data, RowFile):
        return data
    if isinstance(data, str | os.PathLike):
        return open_rows(data)
    if isinstance(data, pd.DataFrame):
        return MemoryRows(data, name)
    if hasattr(data, "to_pandas"):
        return MemoryRows(data.to_pandas(), name)
    if hasattr(data, "__arrow_c_stream__"):
        return MemoryRows(pa.table(data).to_pandas(), name)
    if hasattr(data, "__dataframe__"):
        return MemoryRows(pd.api.interchange.from_dataframe(data), name)
    raise TypeError(
        f"{name} must be a path, a pandas or polars DataFrame or an Arrow table; got {type(data).__name__}. "
        "Arrays go to osls.PULSE().fit(X, y, X_target=...)."
    )


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    r"""Read a file or folder as a pandas DataFrame.

    Parameters
    ----------
    path : path
        CSV or TSV (UTF-8; comma, semicolon, tab or bar), Parquet, Arrow or Feather, JSON lines, npz (``X``
        or CSR parts, ``y``, ``feature_names``, ``class_names``), h5ad; or a folder of pictures or .txt
        files, which becomes the columns "file", "text" and "class" (the sub-folder's name).

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        If it cannot be read; the message names the file and the row, and says what to do.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("age;city\n41;Oslo\n;Rome\n")
    >>> read_table(path)
        age  city
    0  41.0  Oslo
    1   NaN  Rome
    """
    return open_rows(path).read()
