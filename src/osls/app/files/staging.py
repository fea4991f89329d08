"""Folders and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osls._core.writing import draft_beside, draft_of, only_writer, sweep, sync
from osls.app.files.reader import InputError

# What osls adapt writes. The first marks the folder as its own, so that --overwrite may replace it.
_MARK = "mix.json"
_WRITTEN = frozenset({_MARK, "model", "predictions.csv", "predictions.parquet", "report.html"})


def check_destination(out: Path, *, overwrite: bool) -> None:
    """Raise, before any work is done, if a run could not be written to ``out``; sweep beside it."""
    sweep(out.absolute().parent)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder with --out.")
    if out.is_dir() and any(out.iterdir()):
        if not overwrite:
            raise InputError(f"{out}: exists already; choose another folder or add --overwrite.")
        _check_ours(out)
    check_writable(out)


def _check_ours(out: Path) -> None:
    """Raise if a folder is no run of osls, or holds anything besides."""
    others = sorted(path.name for path in out.iterdir() if path.name not in _WRITTEN)
    if not _is_run(out):
        raise InputError(
            f"{out}: holds files that osls did not write, so --overwrite does not replace it; "
            "choose another folder."
        )
    if others:
        raise InputError(
            f"{out}: holds {others[0]!r}, which osls did not write, so --overwrite does not replace the "
            "folder; move it away, or choose another folder."
        )


def _is_run(out: Path) -> bool:
    """Whether the mark is one that osls wrote, and not just a file of that name."""
    try:
        mark = json.loads((out / _MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and str(mark.get("format", "")).startswith("urn:osls:mix:")


def check_writable(path: Path) -> None:
    """Raise if nothing can be written to ``path`` or a folder that would hold it."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{path}: cannot be written, {parent} is no folder or is read-only; choose another.")


def check_file(path: Path) -> None:
    """Raise if no file can be written to ``path``."""
    refuse_folder(path)
    check_writable(path)


def refuse_folder(path: Path, option: str = "--out") -> None:
    """Raise if ``path``, which ``option`` names, is a folder where a file is to be written."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file with {option}.")


@contextmanager
def staged_folder(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder beside ``out``. It takes its place if the block ends well, and is deleted if not.

    What stands at ``out`` is looked at again just before: only a run of osls is replaced, and only with
    ``overwrite``. Otherwise the new run is kept under another name, and the error says which.
    """
    out = Path(os.path.realpath(out))
    with _folder_for(out):
        sweep(out.parent)
        draft = draft_beside(out)
        draft.mkdir()
        try:
            yield draft
            for path in [*draft.rglob("*"), draft]:
                sync(path)
            _take_place(draft, out, overwrite=overwrite)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


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


def _take_place(draft: Path, out: Path, *, overwrite: bool) -> None:
    if not out.exists() or not any(out.iterdir()):
        draft.rename(out)  # which replaces an empty folder
        sync(out.parent)
        return
    try:
        check_destination(out, overwrite=overwrite)
    except InputError as error:
        kept = next(path for i in range(2, 1000) if not (path := out.with_name(f"{out.name}-{i}")).exists())
        draft.rename(kept)
        raise InputError(f"{error} It appeared during the run, which is kept in {kept}.") from None
    old = draft_beside(out, old=True)
    out.rename(old)
    try:
        draft.rename(out)
    except BaseException:
        old.rename(out)
        raise
    sync(out.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def staged_file(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path beside ``out``, with its extension. It replaces ``out`` if the block ends well."""
    check_file(out)
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; choose another file or add --overwrite.")
    out = out.absolute()
    with _folder_for(out), only_writer(out), draft_of(out, suffix=out.suffix) as draft:
        yield draft
        if out.exists() and not overwrite:
            raise InputError(f"{out}: appeared meanwhile; choose another file or add --overwrite.")
