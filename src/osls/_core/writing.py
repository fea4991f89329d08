"""Atomic writing: a file or folder appears complete or not at all; one writer at a time; leftovers.

Drafts are made with the caller's umask. A file that is replaced keeps its mode and owner, and a link its
target. Contents reach the disk before the name does, so that a power cut leaves the old or the new file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
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
    sweep(path.parent)
    draft = draft_beside(path, suffix=suffix)
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


def draft_beside(path: Path, *, old: bool = False, suffix: str = "") -> Path:
    """Return a hidden name beside ``path`` for what will replace it, or for the ``old`` that is replaced.

    It says who writes it, so that :func:`sweep` knows when nobody does any more.
    """
    writer = f"{_machine()}{os.getpid():08x}{secrets.token_hex(2)}"
    return path.with_name(f".{path.name}.{'old.' if old else ''}osls-{writer}{suffix}")


_DRAFT = re.compile(r"\.(.+?)\.(old\.)?osls-([0-9a-f]{4})([0-9a-f]{8})[0-9a-f]{4}(\.\w+)?")


def sweep(folder: Path) -> None:
    """Delete the drafts in a folder whose writers were killed; put back what they had moved aside."""
    for path in folder.iterdir() if folder.is_dir() else ():
        parts = _DRAFT.fullmatch(path.name)
        if parts is None or not _is_abandoned(path, parts[3], int(parts[4], 16)):
            continue
        with suppress(OSError):  # another process may sweep, too
            if parts[2] and not (folder / parts[1]).exists():
                path.rename(folder / parts[1])
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def old_copies(path: Path) -> list[Path]:
    """Return what was moved aside for ``path``, the latest first."""
    found = [each for each in path.parent.iterdir() if (m := _DRAFT.fullmatch(each.name)) and m[2]]
    mine = [each for each in found if each.name.startswith(f".{path.name}.old.")]
    return sorted(mine, key=lambda each: each.stat().st_mtime, reverse=True)


def _is_abandoned(path: Path, machine: str, process: int) -> bool:
    """Whether the writer has died; on another machine, whether it was idle for a day."""
    if machine == _machine() and os.name != "nt":  # where signal 0 would end the process
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
    try:
        return time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return False


def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:4]


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
