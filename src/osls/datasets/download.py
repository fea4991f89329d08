"""Files from their official source: checked, resumable, and in place only when whole."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

__all__ = ["RemoteFile", "check", "download"]

_BLOCK = 1 << 18
_TIMEOUT = 60


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server: where it is, what it must hash to ("md5:..." or "sha256:..."), its largest size."""

    url: str
    checksum: str
    max_bytes: int = 1 << 30

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self.url.rsplit("/", 1)[-1]


def download(remote: RemoteFile, path: Path, *, progress: bool | None = None) -> Path:
    """Fetch a file unless it is there.

    While it is incomplete it is called ``<name>.part``, and the next call goes on from there. A file whose
    checksum is wrong is deleted.

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
                f"could not download {remote.url}: {error}. Run again to go on after the "
                f"{file.tell()} bytes in {part}, or fetch the file yourself and save it as {path}."
            ) from error
        file.flush()
        os.fsync(file.fileno())
        try:
            check(part, remote)
        except ValueError:
            part.unlink()
            raise
        if os.name == "nt":  # which renames no open file
            file.close()
        os.replace(part, path)
    return path


def check(path: Path, remote: RemoteFile) -> None:
    """Raise ValueError unless the file has the checksum of the official one."""
    kind, wanted = remote.checksum.split(":", 1)
    # MD5 is what several publishers give; it guards against damage, not against an attacker.
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
    """Append what is missing of the file."""
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
        # Append mode writes at the end, which another process may have moved meanwhile.
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
