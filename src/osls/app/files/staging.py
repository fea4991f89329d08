"""Folders and files that are written whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osls._core.writing import draft_of, remove_if_abandoned
from osls.app.files.errors import InputError

# A folder with this file in it was written by osls adapt, so --overwrite may replace it.
_MARK = "mix.json"
# How mkdtemp ends the name of a folder.
_DRAFT = re.compile(r"\.(old\.)?[a-z0-9_]{8}")


def check_destination(out: Path, *, overwrite: bool) -> None:
    """Raise, before any work is done, if a run could not be written to ``out``."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder with --out.")
    if out.is_dir() and any(out.iterdir()):
        if not overwrite:
            raise InputError(f"{out}: exists already; choose another folder or add --overwrite.")
        if not (out / _MARK).is_file():
            raise InputError(
                f"{out}: holds files that osls did not write, so --overwrite does not replace it; "
                "choose another folder."
            )
    check_writable(out)


def check_writable(path: Path) -> None:
    """Raise if nothing can be written to ``path`` or a folder that would hold it."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{path}: cannot be written, {parent} is no folder or is read-only; choose another.")


@contextmanager
def staged_folder(out: Path) -> Iterator[Path]:
    """Yield a folder beside ``out``. It replaces ``out`` if the block ends well, and is deleted if not."""
    out = out.absolute()
    with _folder_for(out):
        draft = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
        try:
            yield draft
            draft.chmod(0o755)
            _take_place(draft, out)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    _sweep(out)


@contextmanager
def _folder_for(out: Path) -> Iterator[None]:
    """Make the folders above ``out``; delete those that were made if the block does not end well."""
    made = [folder for folder in out.parents if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            folder.rmdir()
        raise


def _sweep(out: Path) -> None:
    """Delete the unfinished folders beside ``out`` that a killed process left at least a day ago."""
    for path in out.parent.iterdir():
        if _DRAFT.fullmatch(path.name.removeprefix(f".{out.name}")) and path.is_dir():
            remove_if_abandoned(path)


def _take_place(draft: Path, out: Path) -> None:
    if not out.exists():
        draft.rename(out)
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.old."))
    out.rename(old / out.name)
    try:
        draft.rename(out)
    except BaseException:
        (old / out.name).rename(out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def staged_file(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path beside ``out``, with its extension. It replaces ``out`` if the block ends well."""
    if out.is_dir():
        raise InputError(f"{out}: is a folder; name a file with --out.")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; choose another file or add --overwrite.")
    check_writable(out)
    out = out.absolute()
    with _folder_for(out), draft_of(out, suffix=out.suffix) as draft:
        yield draft
