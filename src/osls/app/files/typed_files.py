"""Files that store types: Parquet and Arrow, read column by column; npz and h5ad, read as a whole."""

from __future__ import annotations

import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from osls._core.arrays import AnyArray
from osls._core.extras import require
from osls.app.files.guards import check_hdf5, refuse_bomb
from osls.app.files.reader import (
    BATCH_ROWS,
    InputError,
    MemoryRows,
    RowFile,
    check_not_empty,
    shorten,
    whole_numbers,
)

_CSR_PARTS = ("data", "indices", "indptr", "shape")
# What zipfile and NumPy raise for an archive that is cut short or damaged.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError)
_BROKEN_ARCHIVE = (*_ZIP_ERRORS, OSError, ValueError, EOFError, KeyError, MemoryError)
# A small file can claim a sparse matrix of any width, but a table needs a name for each column.
_MOST_COLUMNS = 10_000_000


# -- Parquet and Arrow ----------------------------------------------------------------------------------


class ParquetRows(RowFile):
    """A Parquet file. Only the columns that are asked for are read."""

    def __init__(self, path: Path):
        self._path = path
        with _readable(path, "Parquet"), pq.ParquetFile(path) as file:
            self._n_rows = file.metadata.num_rows
            names = file.schema_arrow.names
        super().__init__(str(path), names)
        check_not_empty(self)

    def count(self) -> int:
        return int(self._n_rows)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Stream row groups."""
        wanted = list(self.columns if columns is None else columns)
        with _readable(self._path, "Parquet"), pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(size, columns=wanted):
                yield _to_pandas(batch, wanted)


class ArrowRows(RowFile):
    """An Arrow (Feather) file or stream. It is read, not mapped: a file cut short would end the process."""

    def __init__(self, path: Path):
        self._path = path
        with _readable(path, "Arrow"):
            with _open_arrow(path) as reader:
                names = reader.schema.names
            self._n_rows = sum(batch.num_rows for batch in _arrow_batches(path))
        super().__init__(str(path), names)
        check_not_empty(self)

    def count(self) -> int:
        return int(self._n_rows)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Stream the batches of the file, in slices."""
        wanted = list(self.columns if columns is None else columns)
        with _readable(self._path, "Arrow"):
            for batch in _arrow_batches(self._path):
                for first in range(0, batch.num_rows, size):
                    yield _to_pandas(batch.select(wanted).slice(first, size), wanted)


def _open_arrow(path: Path) -> Any:
    source = pa.OSFile(str(path))
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def _arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with _open_arrow(path) as reader:
        if isinstance(reader, pa.ipc.RecordBatchStreamReader):
            yield from reader
        else:
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))


def _to_pandas(batch: pa.RecordBatch, wanted: list[str]) -> pd.DataFrame:
    # Arrow does not check offsets and texts by itself, and those of a damaged file could crash it.
    batch.validate(full=True)
    # Without the metadata of pandas, an index that it stored stays a column like any other.
    frame: Any = pa.Table.from_batches([batch]).replace_schema_metadata(None).to_pandas()
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if values.null_count and values.type == pa.int64():
            frame[name] = whole_numbers(values)
    return frame[wanted]


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: damaged names of columns
        raise InputError(
            f"{path}: cannot be read as {what} ({shorten(error, 80)}); "
            "the file may be cut short or have the wrong extension, so write it again."
        ) from None


# -- npz and h5ad ---------------------------------------------------------------------------------------


def read_npz(path: Path) -> MemoryRows:
    """Read ``X`` (or the CSR parts), ``y``, and names if there are any, as one table."""
    arrays = _load(path)
    X, notes = _matrix(path, arrays)
    names = _names(path, arrays, X.shape[1])
    frame = _frame(X, names)
    for key in ("y", "id", "ids"):
        if key in arrays:
            frame[key] = _column(path, arrays, key, len(frame))
    if not len(frame):
        raise InputError(f"{path}: X has no rows; check that this is the right file.")
    return MemoryRows(frame, str(path), notes)


def _load(path: Path) -> dict[str, AnyArray]:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            refuse_bomb(path, unpacked, "store the matrix as CSR parts (data, indices, indptr, shape)")
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except InputError:
        raise
    except _BROKEN_ARCHIVE as error:
        if isinstance(error, ValueError) and "pickle" in str(error):
            raise InputError(
                f"{path}: holds Python objects, which could run code when read; "
                "save names as text (dtype=str) and numbers as numbers."
            ) from None
        raise InputError(
            f"{path}: cannot be read as npz ({shorten(error, 60)}); write it again with numpy.savez."
        ) from None


def _matrix(path: Path, arrays: dict[str, AnyArray]) -> tuple[Any, list[str]]:
    """Return the rows as one matrix, and what a reader of the file should know about it."""
    if "X" in arrays:
        return _dense_matrix(path, arrays["X"])
    if all(part in arrays for part in _CSR_PARTS):
        return _sparse_matrix(path, arrays), []
    raise InputError(
        f"{path}: there is no array X (there are: {', '.join(arrays) or 'none'}); "
        "save the rows as X and the labels as y."
    )


def _dense_matrix(path: Path, X: AnyArray) -> tuple[AnyArray, list[str]]:
    if X.ndim < 2 or X.dtype.kind not in "fiub":
        raise InputError(
            f"{path}: X has shape {X.shape} and type {X.dtype}; "
            "it must be a numeric array with one row an example."
        )
    if X.ndim == 2:
        return X, []
    flat = X.reshape(len(X), math.prod(X.shape[1:]))
    shape = " by ".join(map(str, X.shape[1:]))
    return flat, [f"{path}: rows of {shape} are used as {flat.shape[1]} columns."]


def _sparse_matrix(path: Path, arrays: dict[str, AnyArray]) -> Any:
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    try:
        X = sparse.csr_matrix(parts, shape=tuple(arrays["shape"].tolist()))
        X.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path}: the parts of the sparse matrix do not fit ({shorten(error, 60)}); "
            "write it again with scipy.sparse.save_npz."
        ) from None
    if X.shape[1] > _MOST_COLUMNS:
        raise InputError(
            f"{path}: the sparse matrix says that it has {X.shape[1]:,} columns, more than the "
            f"{_MOST_COLUMNS:,} that can be named; correct its shape, or select columns first."
        )
    return X


def _names(path: Path, arrays: dict[str, AnyArray], width: int) -> list[str]:
    if "feature_names" not in arrays:
        return [f"x{i}" for i in range(width)]
    names = [str(name) for name in arrays["feature_names"].tolist()]
    if len(names) != width:
        raise InputError(
            f"{path}: feature_names has {len(names)} names for {width} columns of X; correct it."
        )
    return names


def _frame(X: Any, names: list[str]) -> pd.DataFrame:
    if not sparse.issparse(X):
        return pd.DataFrame(X, columns=names)
    frame = pd.DataFrame.sparse.from_spmatrix(X, columns=names)
    if len(names) and frame.dtypes.iloc[0].fill_value != 0:
        # pandas 3.0 takes the zeros for missing values, but not if it is given one column at a time.
        X = X.tocsc()
        columns = [pd.arrays.SparseArray.from_spmatrix(X[:, [i]]) for i in range(len(names))]
        frame = pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)
    return frame


def _column(path: Path, arrays: dict[str, AnyArray], key: str, n_rows: int) -> AnyArray:
    values = arrays[key]
    if values.shape != (n_rows,):
        raise InputError(f"{path}: {key} has shape {values.shape} but X has {n_rows} rows; correct it.")
    if key == "y" and "class_names" in arrays and values.dtype.kind in "iu" and n_rows:
        names = np.array([str(name) for name in arrays["class_names"].tolist()])
        if values.min() < 0 or values.max() >= len(names):
            raise InputError(
                f"{path}: y has the value {values.max()} but class_names has {len(names)} names; correct it."
            )
        return names[values]
    return values


def read_h5ad(path: Path) -> MemoryRows:
    """Read the annotations of the cells and the expression matrix as one table."""
    try:
        anndata = require("anndata", extra="single-cell")
    except ImportError as error:
        raise InputError(f"{path}: {error}") from None
    try:
        with warnings.catch_warnings():
            # Old files and repeated names do not matter here; what matters is checked below.
            warnings.simplefilter("ignore")
            check_hdf5(path, require("h5py", extra="single-cell"))
            data = anndata.read_h5ad(path)
    except InputError:
        raise
    except Exception as error:  # HDF5 reports a broken file through many exception types
        raise InputError(
            f"{path}: cannot be read as h5ad ({shorten(error, 60)}); "
            "the file may be cut short, write it again."
        ) from None
    if data.X is None or 0 in data.shape:
        raise InputError(f"{path}: X has no rows or no columns; check that this is the right file.")
    X = sparse.csr_matrix(data.X) if sparse.issparse(data.X) else np.asarray(data.X)
    genes = _frame(X, [str(name) for name in data.var_names])
    cells = data.obs.reset_index(names="cell" if "cell" not in data.obs else "cell id")
    return MemoryRows(pd.concat([cells, genes], axis=1), str(path))
