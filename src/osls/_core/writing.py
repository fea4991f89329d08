"""Atomic writing: a file or folder appears complete or not at all; one writer at a time; leftovers.

Drafts are made with the caller's umask. A file that is replaced keeps its mode and owner, and a link its
target. Contents reach the disk before the name does, so that a power cut leaves the old or the new file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_ABANDONED_SECONDS = 86_400


@contextmanager
def draft_of(path: Path, *, suffix: str = "") -> Iterator[Path]:
    """Yield an empty file beside ``path`` that replaces it if the block raises no error.

    Without a suffix, its name does not match the patterns that finished files are searched by.
    """
    path = Path(os.path.realpath(path))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{suffix}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield draft
        _keep_mode(path, draft)
        sync(draft)
        os.replace(draft, path)
        sync(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _keep_mode(old: Path, new: Path) -> None:
    """Give a draft the mode and, where that is allowed, the owner of the file that it replaces."""
    try:
        status = old.stat()
    except FileNotFoundError:
        return
    os.chmod(new, stat.S_IMODE(status.st_mode))
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(new, status.st_uid, status.st_gid)


def sync(path: Path) -> None:
    """Have the contents of a file, or the names in a folder, written to the disk."""
    if os.name == "nt":  # which opens no folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def only_writer(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes of the same user on this machine from writing ``path`` meanwhile.

    Raises
    ------
    BlockingIOError
        At once, if another process is at it; with ``wait``, its end is waited for.
    """
    path = Path(os.path.realpath(path))
    # Not beside the file: a process that is killed would leave it there.
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    lock = FileLock(_own_folder() / f"{name}.lock", timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(
            f"{path}: another osls is writing there; wait until it has ended, or choose another place."
        ) from None
    try:
        yield
    finally:
        # Deleted while it is still held: whoever comes now makes a new one.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _own_folder() -> Path:
    """Return a folder for locks that nobody else can put links into."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"osls-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or (hasattr(os, "getuid") and folder.stat().st_uid != user):
        raise PermissionError(
            f"{folder}: belongs to somebody else; remove it, or set TMPDIR to another folder."
        )
    return folder


def remove_if_abandoned(folder: Path) -> None:
    """Delete a draft that was not modified for a day; another process may still write a younger one."""
    try:
        abandoned = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return
    if abandoned:
        shutil.rmtree(folder, ignore_errors=True)
