"""Atomic writing: a file or folder appears complete or not at all; leftovers of killed processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ABANDONED_SECONDS = 86_400


@contextmanager
def draft_of(path: Path, *, suffix: str = "") -> Iterator[Path]:
    """Yield an empty file beside ``path`` that replaces it if the block raises no error.

    Without a suffix, its name does not match the patterns that finished files are searched by.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def remove_if_abandoned(folder: Path) -> None:
    """Delete a draft that was not modified for a day; another process may still write a younger one."""
    try:
        abandoned = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return
    if abandoned:
        shutil.rmtree(folder, ignore_errors=True)
