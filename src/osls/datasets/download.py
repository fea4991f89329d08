"""Find a data set on disk, unpack it safely, download and verify it, or tell the user what to do.

From an archive only plain files and folders are written, all below one folder. A link or a device in a tar
file, or more bytes or files than the data set can have, stops the extraction, and nothing is left of it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from osls._core.extras import require
from osls._core.writing import only_writer, sync
from osls.datasets.loading import cache_folder, data_folders, whole_folder

_BLOCK = 1 << 15
_TIMEOUT = 60


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
    try:
        with whole_folder(folder) as scratch:
            _extract(archive, scratch, max_bytes, max_files)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is damaged, or neither a zip nor a tar file: {error}") from error
    return folder


def _extract(archive: Path, folder: Path, max_bytes: int, max_files: int) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            _check_sizes(archive, [info.file_size for info in packed.infolist()], max_bytes, max_files)
            # It writes no links, and no more bytes than were stated; leading "/" and ".." are left out.
            packed.extractall(folder)
        return
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        _check_sizes(archive, [member.size for member in members], max_bytes, max_files)
        if not all(member.isreg() or member.isdir() for member in members):
            raise ValueError(f"{archive} holds a link or device; not unpacked.")
        try:
            tar.extractall(folder, members, filter="data")
        except tarfile.FilterError as error:
            raise ValueError(
                f"{archive} holds a name that leaves its folder; not unpacked: {error}"
            ) from None


def _check_sizes(archive: Path, sizes: Sequence[int], max_bytes: int, max_files: int) -> None:
    if len(sizes) > max_files:
        raise ValueError(f"{archive} holds more than {max_files} files; not unpacked.")
    if sum(sizes) > max_bytes:
        raise ValueError(f"{archive} unpacks to more than {max_bytes} bytes; not unpacked.")


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server: its URL and its checksum ("md5:..." or "sha256:...")."""

    url: str
    checksum: str

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self.url.rsplit("/", 1)[-1]


def download(remote: RemoteFile, path: Path) -> Path:
    """Download a file unless it exists; on a terminal, with a progress bar.

    While it is incomplete it is called ``<name>.part``, and the next call resumes it. A file with a wrong
    checksum is deleted.

    Parameters
    ----------
    remote : RemoteFile
        What to fetch.
    path : Path
        Where to put it.

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
    with only_writer(path, wait=True):
        # Another process may have finished while this one waited.
        if not path.exists():
            _fetch(remote, part, path)
            os.replace(part, path)
    return path


def _fetch(remote: RemoteFile, part: Path, path: Path) -> None:
    """Download the file, or the rest of it, and check it."""
    try:
        if part.exists() and not _matches(part, remote):
            _append(remote, part)
            if not _matches(part, remote):
                part.unlink()  # the server sent all again instead of the rest, or the part was damaged
        if not part.exists():
            _append(remote, part)
    except OSError as error:
        have = part.stat().st_size if part.exists() else 0
        raise ConnectionError(
            f"could not download {remote.url}: {error}. Run again to resume after the {have} bytes in "
            f"{part}, or download the file yourself and save it as {path}."
        ) from error
    try:
        check(part, remote)
    except ValueError:
        part.unlink()
        raise
    sync(part)


def _append(remote: RemoteFile, part: Path) -> None:
    """Request what follows the bytes that are there, and add it to them."""
    pooch = require("pooch", extra="bench")
    with part.open("ab") as file:
        headers = {"Accept-Encoding": "identity"}
        if file.tell():
            headers["Range"] = f"bytes={file.tell()}-"
        fetch = pooch.HTTPDownloader(
            progressbar=sys.stderr.isatty(), chunk_size=_BLOCK, timeout=_TIMEOUT, headers=headers
        )
        try:
            fetch(remote.url, file, None)
        except OSError as error:
            # Range not satisfiable: nothing follows these bytes, and the checksum decides what they are.
            if getattr(getattr(error, "response", None), "status_code", None) != 416:
                raise


def _matches(path: Path, remote: RemoteFile) -> bool:
    return _digest(path, remote) == remote.checksum.partition(":")[2]


def _digest(path: Path, remote: RemoteFile) -> str:
    # Several publishers give only MD5; it detects damage, but does not stop an attacker.
    kind = partial(hashlib.new, remote.checksum.partition(":")[0], usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def check(path: Path, remote: RemoteFile) -> None:
    """Raise ValueError unless the file has the checksum of the official one."""
    if not _matches(path, remote):
        kind, _, wanted = remote.checksum.partition(":")
        raise ValueError(
            f"{path} is damaged or is another file: its {kind} is {_digest(path, remote)}, not {wanted} as "
            f"that of {remote.url}. Delete it and fetch it again."
        )


def find_file(name: str, advice: str) -> Path:
    """Return the path of a file below a data folder, or raise FileNotFoundError with this advice."""
    path = find_first((name,))
    if path is None:
        raise FileNotFoundError(
            f"{name} was not found: set the environment variable OSLS_DATA to the folder that holds it. "
            f"{advice}"
        )
    return path


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
