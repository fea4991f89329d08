"""Where a data set comes from: look on disk, unpack, download, or say exactly what to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osls.datasets.archive import unpack
from osls.datasets.download import RemoteFile, check, download
from osls.datasets.folders import cache_folder, data_folders

__all__ = ["Origin", "find_first"]


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
        Where it may lie, below the folder that OSLS_DATA names. The first is the one to recommend.
    advice : str
        What to download, and from where.
    archives : tuple of str
        Names of archives it is published in; one that is found is unpacked into the cache.
    inside : tuple of str
        Where it lies in such an archive, if not at one of ``paths``.
    remote : RemoteFile, optional
        The file to fetch if the user allows it. Not for data that needs a login or has no checksum.
    max_bytes : int
        More than the contents of the archive can have.
    """

    title: str
    paths: tuple[str, ...]
    advice: str
    archives: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    remote: RemoteFile | None = None
    max_bytes: int = 1 << 30

    def find(self, *, download: bool = False) -> Path:
        """Return where the data lies, or raise FileNotFoundError with instructions."""
        found = find_first(self.paths) or self._unpacked()
        if found is None and download and self.remote is not None:
            found = self._downloaded(self.remote)
        if found is None:
            raise FileNotFoundError(self._instructions())
        return found

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
        found = self._unpacked()
        path.unlink()
        return found

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
