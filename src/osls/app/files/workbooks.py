"""Files of several tables, of which one is read: Excel workbooks, SQLite and DuckDB databases."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import pathname2url

import pandas as pd

from osls._core.extras import require
from osls.app.files.guards import refuse_bomb
from osls.app.files.reader import InputError, MemoryRows, did_you_mean, shorten
from osls.app.options import ReadOptions

_SQLITE = b"SQLite format 3\0"


def read_workbook(path: Path, options: ReadOptions) -> MemoryRows:
    """Read a sheet of an Excel file: that of ``table``, or the first."""
    if options.query is not None:
        raise InputError(f"{path}: a workbook takes no --query; name a sheet with --table.")
    _require("openpyxl", "excel", path)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            refuse_bomb(path, unpacked, "save the sheet as CSV")
        with pd.ExcelFile(path, engine="openpyxl") as book:
            sheet = options.table or str(book.sheet_names[0])
            _check_name(path, "sheet", sheet, book.sheet_names)
            others = len(book.sheet_names) - 1
            frame = pd.read_excel(book, sheet_name=sheet)
    except InputError:
        raise
    except Exception as error:  # openpyxl reports a broken file through many exception types
        raise InputError(f"{path}: cannot be read as Excel ({shorten(error, 60)}); save it again.") from None
    notes = [f"{path}: the sheet {shorten(sheet)} was read, the first of {1 + others}; --table names one."]
    return _in_memory(path, frame, notes if others and not options.table else [])


def read_database(path: Path, options: ReadOptions) -> MemoryRows:
    """Read ``table``, the answer to ``query``, or the only table of an SQLite or DuckDB file."""
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    return (_read_sqlite if is_sqlite else _read_duckdb)(path, options)


def _read_sqlite(path: Path, options: ReadOptions) -> MemoryRows:
    listing = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    address = f"file:{pathname2url(str(path.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            tables = [name for (name,) in database.execute(listing)]
            frame = pd.read_sql_query(_query(path, tables, options), database)
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
        raise _refused(path, "SQLite", error) from None
    return _in_memory(path, frame)


def _read_duckdb(path: Path, options: ReadOptions) -> MemoryRows:
    duckdb = _require("duckdb", "sql", path)
    listing = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
    # Without access to anything else: a view of the file could read other files or fetch from servers.
    config = {"enable_external_access": "false"}
    try:
        with duckdb.connect(str(path), read_only=True, config=config) as database:
            tables = [name for (name,) in database.execute(listing).fetchall()]
            frame = database.execute(_query(path, tables, options)).df()
    except duckdb.Error as error:
        raise _refused(path, "DuckDB", error) from None
    return _in_memory(path, frame)


def _query(path: Path, tables: Sequence[str], options: ReadOptions) -> str:
    """The query to run: that of the options, or all of a table."""
    if options.query is not None:
        return options.query
    if options.table is None and len(tables) != 1:
        names = ", ".join(map(shorten, tables[:8])) or "none"
        raise InputError(
            f"{path}: which table? There are {len(tables)} ({names}); name one with --table, or select rows "
            "with --query."
        )
    table = options.table or tables[0]
    _check_name(path, "table", table, tables)
    quoted = table.replace('"', '""')
    return f'SELECT * FROM "{quoted}"'  # a name that the database has, quoted


def _check_name(path: Path, what: str, name: str, names: Sequence[Any]) -> None:
    if name not in names:
        raise InputError(f"{path}: there is no {what} {shorten(name)}; {did_you_mean(name, map(str, names))}")


def _in_memory(path: Path, frame: pd.DataFrame, notes: Sequence[str] = ()) -> MemoryRows:
    if not len(frame):
        raise InputError(f"{path}: there are no rows; check the table or the query.")
    return MemoryRows(frame, str(path), notes)


def _require(module: str, extra: str, path: Path) -> Any:
    try:
        return require(module, extra=extra)
    except ImportError as error:
        raise InputError(f"{path}: {error}") from None


def _refused(path: Path, what: str, error: Exception) -> InputError:
    return InputError(f"{path}: {what} cannot read it ({shorten(error, 160)}); check the file and the query.")


BOOKS: dict[str, Callable[[Path, ReadOptions], MemoryRows]] = {
    ".xlsx": read_workbook,
    ".xlsm": read_workbook,
    ".duckdb": read_database,
    ".ddb": read_database,
    ".db": read_database,
    ".sqlite": read_database,
    ".sqlite3": read_database,
}
