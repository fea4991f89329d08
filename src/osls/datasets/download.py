"""Find a data set on disk, unpack it safely, download and verify it, or tell the user what to do.

From an archive only plain files and folders are written. A link, a device, a name that leaves the folder, or
more bytes or files than the data set can have stops the extraction, and everything extracted is deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from osls.datasets.loading import cache_folder, data_folders

_UNPACKED_BLOCK = 1 << 20

# Name, whether it is a folder, and how to read it.
_Member = tuple[str, bool, Callable[[], IO[bytes]]]


def unpack(archive: Path, folder: Path, *, max_bytes: int, max_files: int = 2_000_000) -> Path:
    """Extract an archive into a new folder, completely or not at all.

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
            if not folder.exists():  # otherwise another process was faster
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
    assert file is not None  # None only for members that are not regular files
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
    """Copy the real bytes and count them: the size that the archive states may be wrong."""
    copied = 0
    while block := source.read(_UNPACKED_BLOCK):
        copied += len(block)
        if copied > left:
            raise ValueError(f"{archive} unpacks to more than {limit} bytes; not unpacked.")
        out.write(block)
    return copied


_BLOCK = 1 << 18
_TIMEOUT = 60


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server: its URL, its checksum ("md5:..." or "sha256:..."), and its largest size."""

    url: str
    checksum: str
    max_bytes: int = 1 << 30

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self.url.rsplit("/", 1)[-1]


def download(remote: RemoteFile, path: Path, *, progress: bool | None = None) -> Path:
    """Download a file unless it exists.

    While it is incomplete it is called ``<name>.part``, and the next call resumes it. A file with a wrong
    checksum is deleted.

    Parameters
    ----------
    remote : RemoteFile
        What to fetch.
    path : Path
        Where to put it.
    progress : bool, optional
        Show a progress bar on stderr; by default if that is a terminal.

    Returns
    -------
    Path
        ``path``.
    """
    if path.exists():
        return path
    if not remote.url.startswith(("https://", "http://")):
        raise ValueError(f"cannot download {remote.url}: only http and https addresses are allowed.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("ab") as file, _alone(file):
        # Another process may have finished while this one waited.
        if path.exists():
            return path
        try:
            _fetch(remote, file, progress)
        except (urllib.error.URLError, OSError) as error:
            raise ConnectionError(
                f"could not download {remote.url}: {error}. Run again to resume after the "
                f"{file.tell()} bytes in {part}, or download the file yourself and save it as {path}."
            ) from error
        file.flush()
        os.fsync(file.fileno())
        try:
            check(part, remote)
        except ValueError:
            part.unlink()
            raise
        if os.name == "nt":  # Windows cannot rename an open file
            file.close()
        os.replace(part, path)
    return path


def check(path: Path, remote: RemoteFile) -> None:
    """Raise ValueError unless the file has the checksum of the official one."""
    kind, wanted = remote.checksum.split(":", 1)
    # Several publishers give only MD5; it detects damage, but does not stop an attacker.
    digest = hashlib.md5(usedforsecurity=False) if kind == "md5" else hashlib.new(kind)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != wanted:
        raise ValueError(
            f"{path} is damaged or is another file: its {kind} is {digest.hexdigest()}, not {wanted} as that "
            f"of {remote.url}. Delete it and fetch it again."
        )


def _fetch(remote: RemoteFile, file: IO[bytes], progress: bool | None) -> None:
    """Download the missing part of the file."""
    have = file.tell()
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)  # nosec B310  # download lets only http(s) pass
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing after these bytes: the checksum decides
            return
        raise
    with response:
        if have and response.status != 206:  # the server sends the whole file again
            file.truncate(0)
            have = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        if total is not None and total > remote.max_bytes:
            raise OSError(f"the server announces {total} bytes, more than the {remote.max_bytes} expected")
        with _progress_bar(remote.name, total, have, progress) as advance:
            for block in iter(lambda: response.read1(_BLOCK), b""):
                have += len(block)
                if have > remote.max_bytes:
                    raise OSError(f"the server sends more than the {remote.max_bytes} bytes expected")
                file.write(block)
                advance(len(block))
    if total is not None and have < total:
        raise OSError(f"the connection closed after {have} of {total} bytes")


@contextmanager
def _alone(file: IO[bytes]) -> Iterator[None]:
    """Keep other processes from writing the same file, where the system can lock files."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        # Another process may have written to the file before this one got the lock.
        file.seek(0, os.SEEK_END)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def _progress_bar(
    name: str, total: int | None, done: int, visible: bool | None
) -> Iterator[Callable[[int], None]]:
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    columns: tuple[Any, ...] = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    shown = console.is_terminal if visible is None else visible
    with bars.Progress(*columns, console=console, disable=not shown) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda amount: bar.advance(task, amount)


def find_first(paths: tuple[str, ...]) -> Path | None:
    """Return the first of these paths that exists below a data folder."""
    for folder in data_folders():
        for path in paths:
            if (folder / path).exists():
                return folder / path
    return None


@dataclass(frozen=True)
class Origin:
    """A data set's place on disk and its official source.

    Parameters
    ----------
    title : str
        Name for messages.
    paths : tuple of str
        Possible places, below the folder that OSLS_DATA names. The first is recommended in messages.
    advice : str
        What to download, and from where.
    archives : tuple of str
        Names of its published archives; one that is found is unpacked into the cache.
    inside : tuple of str
        Its paths inside such an archive, if other than ``paths``.
    remote : RemoteFile, optional
        The file to download if the user allows it. None if it needs a login or has no checksum.
    max_bytes : int
        Upper limit on the size of the archive's contents.
    """

    title: str
    paths: tuple[str, ...]
    advice: str
    archives: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    remote: RemoteFile | None = None
    max_bytes: int = 1 << 30

    def find(self, *, download: bool = False) -> Path:
        """Return the path of the data, or raise FileNotFoundError with instructions."""
        place = find_first(self.paths) or self._unpacked()
        if place is None and download and self.remote is not None:
            place = self._downloaded(self.remote)
        if place is None:
            raise FileNotFoundError(self._instructions())
        return place

    def _unpacked(self) -> Path | None:
        root = cache_folder() / "data" / "unpacked"
        for name in self.archives:
            folder = root / name.split(".", 1)[0]
            archive = None if folder.exists() else find_first((name,))
            if archive is not None:
                if self.remote is not None and name == self.remote.name:
                    check(archive, self.remote)
                unpack(archive, folder, max_bytes=self.max_bytes)
            for path in self.inside or self.paths:
                if (folder / path).exists():
                    return folder / path
            if archive is not None:
                raise FileNotFoundError(
                    f"{archive} does not hold {(self.inside or self.paths)[0]}. {self.advice}"
                )
        return None

    def _downloaded(self, remote: RemoteFile) -> Path | None:
        path = download(remote, cache_folder() / "data" / remote.name)
        if remote.name not in self.archives:
            return path
        place = self._unpacked()
        path.unlink()
        return place

    def _instructions(self) -> str:
        lines = [f"{self.title} was not found. {self.advice}"]
        lines.append(
            f"Put it in the folder that the environment variable OSLS_DATA names, as {self.paths[0]}"
            + (f", or leave it packed as {self.archives[0]}." if self.archives else ".")
        )
        if self.remote is not None:
            lines.append("Or pass download=True to fetch it.")
        looked = ", ".join(str(folder) for folder in data_folders())
        return " ".join([*lines, f"(Looked in: {looked}.)"])
