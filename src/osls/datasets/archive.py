"""Unpack zip and tar archives that others made, without trusting them.

Only plain files and folders are written. A link, a device, a name that leaves the folder, or more bytes or
files than the data set can have stops the extraction, and nothing of it stays.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

__all__ = ["unpack"]

_BLOCK = 1 << 20

# Name, whether it is a folder, and how to read it.
_Member = tuple[str, bool, Callable[[], IO[bytes]]]


def unpack(archive: Path, folder: Path, *, max_bytes: int, max_files: int = 2_000_000) -> Path:
    """Extract an archive into a folder that does not exist yet, whole or not at all.

    Parameters
    ----------
    archive : Path
        A zip or tar file, the latter compressed or not.
    folder : Path
        Where the contents go. If it exists the archive was unpacked before, and nothing is done.
    max_bytes, max_files : int
        Size of the largest contents to accept.

    Returns
    -------
    Path
        ``folder``.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _extract(archive, scratch, max_bytes, max_files)
        try:
            os.rename(scratch, folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is damaged, or neither a zip nor a tar file: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _extract(archive: Path, folder: Path, max_bytes: int, max_files: int) -> None:
    left = max_bytes
    for count, (name, is_folder, read) in enumerate(_members(archive)):
        if count >= max_files:
            raise ValueError(f"{archive} holds more than {max_files} files; not unpacked.")
        target = folder / _inside(name, archive)
        if is_folder:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with read() as source, target.open("wb") as out:
            left -= _copy(source, out, left, archive, max_bytes)


def _members(archive: Path) -> Iterator[_Member]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise ValueError(f"{archive} holds a link or device, {info.filename!r}; not unpacked.")
                yield info.filename, info.is_dir(), lambda info=info: file.open(info)  # type: ignore[misc]
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise ValueError(f"{archive} holds a link or device, {member.name!r}; not unpacked.")
            yield member.name, member.isdir(), lambda member=member: _tar_file(tar, member)  # type: ignore[misc]


def _tar_file(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(member)
    assert file is not None  # as of everything but regular files
    return file


def _inside(name: str, archive: Path) -> PurePosixPath:
    """Return a member's name as a relative path that stays inside the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if (
        path.is_absolute()
        or ".." in path.parts
        or ":" in (path.parts[0] if path.parts else "")
        or "\0" in name
    ):
        raise ValueError(f"{archive} holds {name!r}, which leaves its folder; not unpacked.")
    return path


def _copy(source: IO[bytes], out: IO[bytes], left: int, archive: Path, limit: int) -> int:
    """Copy what is really there, whatever size the archive claims."""
    copied = 0
    while block := source.read(_BLOCK):
        copied += len(block)
        if copied > left:
            raise ValueError(f"{archive} unpacks to more than {limit} bytes; not unpacked.")
        out.write(block)
    return copied
