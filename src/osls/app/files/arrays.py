"""Arrays with names: NumPy's npz (dense or CSR parts) and AnnData's h5ad."""

from __future__ import annotations

import math
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from osls._core.arrays import AnyArray
from osls.app.files.errors import InputError, shorten
from osls.app.files.rows import MemoryRows

__all__ = ["read_h5ad", "read_npz"]

_CSR_PARTS = ("data", "indices", "indptr", "shape")
# An archive that unpacks to this many bytes, and to this many times its own size, is no data set.
_BOMB_BYTES, _BOMB_RATIO = 1 << 28, 200
# A sparse matrix may claim any width for free; a table needs a name for each column.
_MOST_COLUMNS = 10_000_000


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
        if unpacked > _BOMB_BYTES and unpacked > _BOMB_RATIO * path.stat().st_size:
            raise InputError(
                f"{path}: unpacks to {unpacked >> 20} MB, {unpacked // path.stat().st_size} times its "
                "size; if it is meant to, store the matrix as CSR parts (data, indices, indptr, shape)."
            )
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except InputError:
        raise
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        MemoryError,
        NotImplementedError,
    ) as error:
        raise InputError(
            f"{path}: cannot be read as npz ({shorten(error, 60)}); write it again with numpy.savez."
        ) from None
    except ValueError as error:
        if "pickle" in str(error):
            raise InputError(
                f"{path}: holds Python objects, which could run code when read; "
                "save names as text (dtype=str) and numbers as numbers."
            ) from None
        raise InputError(f"{path}: cannot be read as npz ({shorten(error, 60)}); write it again.") from None


def _matrix(path: Path, arrays: dict[str, AnyArray]) -> tuple[Any, list[str]]:
    if "X" in arrays:
        X = arrays["X"]
        if X.ndim < 2 or X.dtype.kind not in "fiub":
            raise InputError(
                f"{path}: X has shape {X.shape} and type {X.dtype}; "
                "it must be a numeric array with one row an example."
            )
        flat = X.reshape(len(X), math.prod(X.shape[1:]))
        shape = " by ".join(map(str, X.shape[1:]))
        return flat, [] if X.ndim == 2 else [f"{path}: rows of {shape} are used as {flat.shape[1]} columns."]
    if all(part in arrays for part in _CSR_PARTS):
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
        return X, []
    raise InputError(
        f"{path}: there is no array X (there are: {', '.join(arrays) or 'none'}); "
        "save the rows as X and the labels as y."
    )


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
    if sparse.issparse(X):
        return pd.DataFrame.sparse.from_spmatrix(X, columns=names)
    return pd.DataFrame(X, columns=names)


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
        import anndata
    except ImportError:
        raise InputError(
            f"{path}: reading h5ad needs anndata; run pip install 'osls[single-cell]'."
        ) from None
    try:
        with warnings.catch_warnings():
            # Old files and repeated names are no concern of a reader: what matters is checked below.
            warnings.simplefilter("ignore")
            data = anndata.read_h5ad(path)
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
