"""From a path or a table in memory to the reader of its rows; folders of pictures and texts."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from osls.app.files.arrival import PACKED, Copied, fetch, has_wildcard, is_address, named, recode, unpack
from osls.app.files.guards import check_name, check_regular
from osls.app.files.reader import (
    BATCH_ROWS,
    CLASS_COLUMN,
    FILE_COLUMN,
    TEXT_COLUMN,
    TEXT_DTYPE,
    InputError,
    MemoryRows,
    RowFile,
    shorten,
)
from osls.app.files.text_files import DelimitedRows, JsonRows, scan_text
from osls.app.files.typed_files import ArrowRows, ParquetRows, read_h5ad, read_npz
from osls.app.files.workbooks import BOOKS
from osls.app.options import ReadOptions

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
_MAX_TEXT_BYTES = 16 << 20
_AS_IT_IS = ReadOptions()


class FolderRows(RowFile):
    """One row a file: its path, its text if it is one, and its class if the folder has sub-folders.

    Attributes
    ----------
    folder : Path
        Where the paths in the column "file" start.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._files, self._classes, notes = _list_files(folder)
        pictures = self._files[0].suffix.lower() in IMAGE_SUFFIXES
        self.kind = "images" if pictures else "text"
        columns = [FILE_COLUMN] if pictures else [FILE_COLUMN, TEXT_COLUMN]
        super().__init__(str(folder), [*columns, CLASS_COLUMN], notes)

    @property
    def is_flat(self) -> bool:
        """Whether no file lies in a sub-folder, which would name its class."""
        return not any(self._classes)

    def drop_classes(self) -> None:
        """Drop the column of classes: what the sub-folders of a target are called must not be used."""
        self.columns = tuple(column for column in self.columns if column != CLASS_COLUMN)

    def check_classes(self) -> None:
        """Raise if a file does not lie in a folder that names its class."""
        for file, name in zip(self._files, self._classes, strict=True):
            if not name:
                raise InputError(
                    f"{file}: lies outside any class folder; arrange the source as "
                    f"{self.folder.name}/<class>/{file.name}."
                )

    def count(self) -> int:
        return len(self._files)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """List the files; texts are read here, pictures when they are encoded."""
        wanted = list(self.columns if columns is None else columns)
        for first in range(0, len(self._files), size):
            files = self._files[first : first + size]
            values = {FILE_COLUMN: [str(file) for file in files]}
            if CLASS_COLUMN in wanted:
                values[CLASS_COLUMN] = self._classes[first : first + size]
            if TEXT_COLUMN in wanted:
                values[TEXT_COLUMN] = [_read_text(file) for file in files]
            yield pd.DataFrame({name: values[name] for name in wanted}, dtype=TEXT_DTYPE)


def _list_files(folder: Path) -> tuple[list[Path], list[str], list[str]]:
    pictures, texts, others = [], [], 0
    for path in sorted(folder.rglob("*")):
        check_name(path)
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_dir():
            if not any(path.iterdir()):
                raise InputError(f"{path}: the folder is empty; put its files there or remove it.")
        elif not path.is_file():  # a pipe, a device, or a link to nowhere
            others += 1
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            pictures.append(path)
        elif path.suffix.lower() == ".txt":
            texts.append(path)
        else:
            others += 1
    if pictures and texts:
        raise InputError(
            f"{folder}: holds pictures and texts ({shorten(pictures[0].name)} and {shorten(texts[0].name)}); "
            "keep one kind in the folder."
        )
    files = pictures or texts
    if not files:
        raise InputError(
            f"{folder}: holds no pictures ({', '.join(IMAGE_SUFFIXES)}) and no .txt files; "
            "check that this is the right folder."
        )
    parts = [path.relative_to(folder).parts for path in files]
    classes = [folders[0] if folders else "" for *folders, _ in parts]
    notes = [f"{folder}: {others} files that are neither pictures nor .txt were not read."] if others else []
    return files, classes, notes


def _read_text(path: Path) -> str:
    if path.stat().st_size > _MAX_TEXT_BYTES:
        raise InputError(
            f"{path}: the text is larger than {_MAX_TEXT_BYTES >> 20} MB; split it into one file a document."
        )
    scan_text(path)
    return path.read_text(encoding="utf-8-sig")


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


TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")


class PartRows(RowFile):
    """Several files with the same columns, one after the other."""

    def __init__(self, name: str, paths: Sequence[Path], options: ReadOptions):
        suffixes = {_plain_suffix(path) for path in paths}
        if len(suffixes) > 1:
            raise InputError(
                f"{name}: holds files of different kinds ({' '.join(sorted(suffixes))}); keep one."
            )
        self._parts = [open_rows(path, options) for path in paths]
        first = self._parts[0]
        for part in self._parts[1:]:
            _check_same_columns(first, part)
        super().__init__(name, first.columns, [note for part in self._parts for note in part.notes])

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Read the parts in the order of their names."""
        wanted = list(self.columns if columns is None else columns)
        for part in self._parts:
            yield from part.batches(wanted, size)

    def count(self) -> int:
        return sum(part.count() for part in self._parts)

    def typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        return self._parts[0].typed(frame)


def _check_same_columns(first: RowFile, part: RowFile) -> None:
    odd = set(first.columns) ^ set(part.columns)
    if odd:
        raise InputError(
            f"{part.name}: the column {shorten(min(odd))} is in only one of it and {first.name}; "
            "parts of one table have the same columns."
        )


def open_rows(path: str | os.PathLike[str], options: ReadOptions = _AS_IT_IS) -> RowFile:
    """Open a file by its extension, a folder, all files that a wildcard stands for, or an address."""
    name = str(path)
    try:
        if is_address(name):
            return _open_copy(name, options)
        if has_wildcard(name) and not os.path.lexists(name):
            return _open_parts(name, sorted(map(Path, glob.glob(name, recursive=True))), options)
        return _open_local(Path(path), options)
    except PermissionError as error:
        raise InputError(f"{error.filename or path}: may not be read; check its permissions.") from None


def _open_local(path: Path, options: ReadOptions) -> RowFile:
    if path.is_dir():
        parts = _table_parts(path)
        return _open_parts(str(path), parts, options) if parts else FolderRows(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; check the path.")
    check_regular(path)
    if path.suffix.lower() in PACKED or (options.encoding and path.suffix.lower() in TEXTS):
        return _open_copy(str(path), options)
    return _open_plain(path, options)


def _open_plain(path: Path, options: ReadOptions) -> RowFile:
    suffix = path.suffix.lower()
    if suffix in BOOKS:
        return BOOKS[suffix](path, options)
    reader = _reader_of(path)
    if reader is DelimitedRows:
        return DelimitedRows(path, options.sep, options.decimal)
    return reader(path)


def _plain_suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()


def is_table_file(path: Path) -> bool:
    """Whether the name of a file says that it holds a table."""
    return _plain_suffix(path) in (*READERS, *BOOKS)


def _table_parts(folder: Path) -> list[Path]:
    """The parts of a table in a folder; none if it holds pictures or texts, with notes beside them."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if any(path.suffix.lower() in (*IMAGE_SUFFIXES, ".txt") for path in paths):
        return []
    # Hidden files, and marks such as _SUCCESS, are no parts.
    hidden = (any(part.startswith((".", "_")) for part in path.relative_to(folder).parts) for path in paths)
    return [path for path, hide in zip(paths, hidden, strict=True) if not hide and is_table_file(path)]


def _open_parts(name: str, paths: list[Path], options: ReadOptions) -> RowFile:
    if not paths:
        raise InputError(f"{name}: no file has such a name; check the wildcard.")
    return open_rows(paths[0], options) if len(paths) == 1 else PartRows(name, paths, options)


def _open_copy(name: str, options: ReadOptions) -> RowFile:
    """Open an address, a packed file or one in another encoding through a copy that goes with the rows."""
    folder = Path(tempfile.mkdtemp(prefix="osls-"))
    try:
        paths = fetch(name, folder) if is_address(name) else [Path(name)]
        if len(paths) > 1:
            with named(folder, name):
                rows: RowFile = Copied(PartRows(name, paths, options), folder, name)
        else:
            copy = _plain_copy(paths[0], folder, options)
            with named(copy, name):
                rows = Copied(_open_plain(copy, options), copy, name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(rows, shutil.rmtree, folder, ignore_errors=True)
    return rows


def _plain_copy(path: Path, folder: Path, options: ReadOptions) -> Path:
    if path.suffix.lower() in PACKED:
        path = unpack(path, folder)
    return recode(path, folder, options.encoding) if options.encoding and path.suffix in TEXTS else path


def _reader_of(path: Path) -> Callable[[Path], RowFile]:
    suffix = path.suffix.lower()
    if suffix in READERS:
        return READERS[suffix]
    if suffix in IMAGE_SUFFIXES or suffix == ".txt":
        raise InputError(f"{path}: is a single file; give the folder that it lies in.")
    raise InputError(
        f"{path}: the extension {suffix or '(none)'} is not known; "
        f"use one of {' '.join([*READERS, *BOOKS])} (also with {' '.join(PACKED)}) or a folder."
    )


def as_rows(data: Any, name: str, options: ReadOptions = _AS_IT_IS) -> RowFile:
    """Accept a path, a pandas or polars frame, an Arrow table, or whatever offers to become one."""
    if isinstance(data, RowFile):
        return data
    if isinstance(data, str | os.PathLike):
        return open_rows(data, options)
    if isinstance(data, pd.DataFrame):
        rows = MemoryRows(data, name)
        rows.index = data.index
        return rows
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


def read_table(path: str | os.PathLike[str], options: ReadOptions = _AS_IT_IS) -> pd.DataFrame:
    r"""Read a file or folder as a pandas DataFrame.

    Parameters
    ----------
    path : path
        CSV or TSV (UTF-8; comma, semicolon, tab or bar), Parquet, Arrow or Feather, JSON lines, npz (``X``
        or CSR parts, ``y``, ``feature_names``, ``class_names``), h5ad, Excel, SQLite, DuckDB; any of them
        packed (.gz, .zst, .bz2), or as parts in a folder or by a wildcard; a folder of pictures or .txt
        files, which becomes the columns "file", "text" and "class" (the sub-folder's name); or an address
        (s3://, gs://, az://, https://).
    options : ReadOptions
        Separator, encoding and decimal sign of text files, and the table or query of databases and
        workbooks.

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
    0    41  Oslo
    1  <NA>  Rome
    """
    return open_rows(path, options).read()
