"""Drafts of folders that a killed process left behind."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

__all__ = ["remove_if_abandoned"]

_ABANDONED_SECONDS = 86_400


def remove_if_abandoned(folder: Path) -> None:
    """Delete a draft that nobody has touched for a day; a younger one may be another process's work."""
    try:
        abandoned = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return
    if abandoned:
        shutil.rmtree(folder, ignore_errors=True)
