"""Drafts: what is written whole or not at all, and what a killed process left of it."""

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
    """Yield an empty file beside ``path`` that takes its place if the block ends well.

    Without a suffix its name matches no pattern by which finished files are looked for.
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
    """Delete a draft that nobody has touched for a day; a younger one may be another process's work."""
    try:
        abandoned = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return
    if abandoned:
        shutil.rmtree(folder, ignore_errors=True)
