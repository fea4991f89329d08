"""Where data lies and where results of long computations are kept.

``OSLS_DATA``
    Folder with the data sets. It is only read.
``OSLS_CACHE``
    Folder for downloads, decoded images and features; by default ``osls`` in the user's cache folder
    (``XDG_CACHE_HOME``, else ``~/.cache``). It can be deleted at any time.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder", "data_folder", "data_folders"]


def cache_folder() -> Path:
    """Return the folder for what can be computed or fetched again.

    Examples
    --------
    >>> import os
    >>> from osls.datasets.folders import cache_folder
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


def data_folder() -> Path:
    """Return the folder that OSLS_DATA names, or say how to set it."""
    folder = os.environ.get("OSLS_DATA")
    if not folder:
        raise FileNotFoundError(
            "this data set does not ship with scikit-learn: set the environment variable OSLS_DATA to the "
            "folder that holds its .npz file."
        )
    return Path(folder).expanduser()


def data_folders() -> list[Path]:
    """Return where data is looked for: the folder that OSLS_DATA names, then what was downloaded."""
    named = os.environ.get("OSLS_DATA")
    return ([Path(named).expanduser()] if named else []) + [cache_folder() / "data"]
