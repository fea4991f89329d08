"""Data sets that take long to prepare, kept on disk in the form in which they are used."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from osls._typing import AnyArray
from osls.datasets.folders import cache_folder
from osls.datasets.labelled import Labelled

__all__ = ["prepared"]


def prepared(name: str, key: Any, build: Callable[[Path], tuple[AnyArray, Sequence[str]]]) -> Labelled:
    """Return a data set from the cache, or prepare it and keep it there.

    Parameters
    ----------
    name : str
        Start of the name of its folder in the cache.
    key : object for JSON
        All that the result depends on.
    build : callable
        Writes the rows to the path it gets (an ``.npy`` file) and returns the classes and their names.

    Returns
    -------
    Labelled
        Its rows are mapped from disk: they take no memory until they are used.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() / "prepared" / f"{name}-{digest}"
    if not folder.exists():
        _build(folder, build)
    names = json.loads((folder / "class_names.json").read_text(encoding="utf-8"))
    X = np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False)
    return Labelled(X, np.load(folder / "y.npy", allow_pickle=False), tuple(names))


def _build(folder: Path, build: Callable[[Path], tuple[AnyArray, Sequence[str]]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        y, names = build(scratch / "X.npy")
        np.save(scratch / "y.npy", y, allow_pickle=False)
        (scratch / "class_names.json").write_text(json.dumps(list(names)), encoding="utf-8")
        try:
            os.rename(scratch, folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
