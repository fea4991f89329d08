"""From a path to its reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from osls.app.files.errors import InputError
from osls.app.files.images import IMAGE_SUFFIXES

if TYPE_CHECKING:
    import pandas as pd

    from osls.app.files.rows import RowFile

__all__ = ["SUFFIXES", "open_rows", "read_table"]


def _delimited(path: Path) -> RowFile:
    from osls.app.files.delimited import DelimitedRows

    return DelimitedRows(path)


def _json(path: Path) -> RowFile:
    from osls.app.files.json_lines import JsonRows

    return JsonRows(path)


def _parquet(path: Path) -> RowFile:
    from osls.app.files.columnar import ParquetRows

    return ParquetRows(path)


def _arrow(path: Path) -> RowFile:
    from osls.app.files.columnar import ArrowRows

    return ArrowRows(path)


def _npz(path: Path) -> RowFile:
    from osls.app.files.arrays import read_npz

    return read_npz(path)


def _h5ad(path: Path) -> RowFile:
    from osls.app.files.arrays import read_h5ad

    return read_h5ad(path)


def _folder(path: Path) -> RowFile:
    from osls.app.files.folders import FolderRows

    return FolderRows(path)


SUFFIXES: dict[str, Callable[[Path], RowFile]] = {
    ".csv": _delimited,
    ".tsv": _delimited,
    ".parquet": _parquet,
    ".pq": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".ipc": _arrow,
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".npz": _npz,
    ".h5ad": _h5ad,
}


def open_rows(path: str | os.PathLike[str]) -> RowFile:
    """Open a file or folder of rows; what it is, its extension says."""
    path = Path(path)
    try:
        if path.is_dir():
            return _folder(path)
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path.")
        return _opener(path)(path)
    except PermissionError as error:
        raise InputError(f"{error.filename or path}: may not be read; check its permissions.") from None


def _opener(path: Path) -> Callable[[Path], RowFile]:
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix in IMAGE_SUFFIXES or suffix == ".txt":
        raise InputError(f"{path}: is a single file; give the folder that it lies in.")
    raise InputError(
        f"{path}: the extension {suffix or '(none)'} is not known; "
        f"use one of {' '.join(SUFFIXES)} or a folder."
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
