"""The return type of loaders, the folders of data sets, and a cache for data that is slow to prepare.

``OSLS_DATA``
    Folder with the data sets. It is only read.
``OSLS_CACHE``
    Folder for downloads, decoded images and features; by default ``osls`` in the user's cache folder
    (``XDG_CACHE_HOME``, else ``~/.cache``). It can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray


@dataclass(frozen=True)
class Labelled:
    """Rows, their classes as numbers, and the names of the classes.

    ``X`` is a float32 table, a CSR matrix, or uint8 images of shape (n, height, width, 3). Unpacks as
    ``X, y = ...``.
    """

    X: AnyArray
    y: AnyArray
    class_names: tuple[str, ...]

    def __iter__(self) -> Iterator[AnyArray]:
        yield self.X
        yield self.y


def named_classes(y: AnyArray, names: Sequence[str] | AnyArray | None = None) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers where there are no names."""
    shown = np.unique(y) if names is None or len(names) == 0 else names
    return tuple(str(name) for name in shown)


def cache_folder() -> Path:
    """Return the cache folder; its contents can be computed or downloaded again.

    Examples
    --------
    >>> import os
    >>> from osls.datasets.loading import cache_folder
    >>> before = os.environ.get("OSLS_CACHE")
    >>> os.environ["OSLS_CACHE"] = "somewhere"
    >>> cache_folder().name
    'somewhere'
    >>> _ = os.environ.pop("OSLS_CACHE") if before is None else os.environ.update(OSLS_CACHE=before)
    """
    folder = os.environ.get("OSLS_CACHE")
    if folder:
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "osls"


def data_folders() -> list[Path]:
    """Return the folders to search: the one that OSLS_DATA names, then that of downloads."""
    named = os.environ.get("OSLS_DATA")
    return ([Path(named).expanduser()] if named else []) + [cache_folder() / "data"]


def find_file(source: str) -> Path | None:
    """Return a file by its path, or by its name in the folders of data; None if it is in neither."""
    given = Path(source).expanduser()
    places = (given, *(folder / given.name for folder in data_folders()))
    return next((path for path in places if path.is_file()), None)


def prepared(name: str, key: Any, build: Callable[[Path], tuple[AnyArray, Sequence[str]]]) -> Labelled:
    """Return a data set from the cache, or prepare it and store it there.

    Parameters
    ----------
    name : str
        Prefix of its folder in the cache.
    key : object that JSON can encode
        Everything that the result depends on.
    build : callable
        Writes the rows to the path it gets (an ``.npy`` file) and returns the classes and their names.

    Returns
    -------
    Labelled
        Its rows are memory-mapped: they take no memory until they are used.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() / "prepared" / f"{name}-{digest}"
    if not folder.exists():
        with whole_folder(folder) as scratch:
            y, names = build(scratch / "X.npy")
            np.save(scratch / "y.npy", y, allow_pickle=False)
            (scratch / "class_names.json").write_text(json.dumps(list(names)), encoding="utf-8")
    names = json.loads((folder / "class_names.json").read_text(encoding="utf-8"))
    X = np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False)
    return Labelled(X, np.load(folder / "y.npy", allow_pickle=False), tuple(names))


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a scratch folder that becomes ``folder``, complete, if the block raises no error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield scratch
        try:
            os.rename(scratch, folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
