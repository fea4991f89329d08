"""A model's folder: written completely or not at all, and read only if every byte is unchanged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from osls._core.writing import draft_beside, old_copies, sweep, sync
from osls.persist.budget import MOST_UNPACKED, SMALL, Budget, ModelError, check_nesting, in_short

# 2: tags are class names. In 1, before the first release, they were module paths.
FORMAT = 2
MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"

_NAME = "osls-model"
_BLANK = "0" * 64
_MOST_MANIFEST = 1 << 28
_FILE_NAME = re.compile(r"tensors\.safetensors|sklearn/[0-9]{1,9}\.skops")
_DIGEST = re.compile("[0-9a-f]{64}")


# -- Writing ----------------------------------------------------------------------------------------


class Draft:
    """A model's folder that is being written."""

    def __init__(self, path: Path):
        self.path = path
        self._files: dict[str, dict[str, Any]] = {}

    def add(self, name: str, data: bytes) -> None:
        """Write a file of the model."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        _write(path, data)
        self._files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}

    def seal(self, fields: dict[str, Any]) -> None:
        """Write the manifest: the other files' digests, its own, and ``fields``."""
        text = json.dumps(
            {"format": _NAME, "version": FORMAT, "sha256": _BLANK, "files": self._files, **fields},
            allow_nan=False,
        )
        check_nesting(text.encode(), MANIFEST)
        # The digest is computed with zeros in its own place, so that it covers every other byte.
        digest = hashlib.sha256(text.encode()).hexdigest()
        _write(self.path / MANIFEST, text.replace(_BLANK, digest, 1).encode())


@contextmanager
def drafting(target: Path) -> Iterator[Draft]:
    """Yield a folder to write to. It becomes ``target`` if the block succeeds; otherwise it is deleted.

    An earlier model at ``target`` is renamed just before and then deleted. If the process is killed between
    the two renames, the earlier model stays under a hidden name, where :func:`current` finds it.
    """
    _check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    path = draft_beside(target)
    path.mkdir()
    try:
        yield Draft(path)
        for folder in {file.parent for file in path.rglob("*")}:
            sync(folder)
        _publish(path, target)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    for old in old_copies(target):
        shutil.rmtree(old, ignore_errors=True)


def _check_target(target: Path) -> None:
    if target.is_dir():
        if any(target.iterdir()) and not (target / MANIFEST).is_file():
            raise ModelError(f"{target} holds other files than a saved model; save to another folder.")
    elif os.path.lexists(target):
        raise ModelError(f"{target} is not a folder; save to another path.")


def _publish(path: Path, target: Path) -> None:
    while True:
        with suppress(FileNotFoundError):
            os.rename(target, draft_beside(target, old=True))
        try:
            os.rename(path, target)
        except OSError as error:
            # Another process saved a model between the two renames: move that one aside and try again.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            sync(target.parent)
            return


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# -- Reading ----------------------------------------------------------------------------------------


def current(target: Path) -> Path:
    """Return the model's path: ``target``, or a hidden one if a save was killed between its two renames."""
    if target.exists() or not target.parent.is_dir():
        return target
    return next((path for path in old_copies(target) if (path / MANIFEST).is_file()), target)


class Stored:
    """A model's folder with a valid manifest; its files are checked when they are read."""

    def __init__(self, path: Path):
        self.path = path
        self.manifest = _read_manifest(path)
        self._unread = set(self._files)
        for name, entry in self._files.items():
            _check_size(path / name, entry["bytes"])
        self.budget = Budget(sum(entry["bytes"] for entry in self._files.values()))

    @property
    def _files(self) -> dict[str, Any]:
        files: dict[str, Any] = self.manifest["files"]
        return files

    def fetch(self, name: Any) -> bytes:
        """Return the bytes of a file, if they are those that were written."""
        if not isinstance(name, str) or name not in self._files:
            raise ModelError(f"{self.path}: the manifest asks for the file {name!r} but does not list it.")
        entry = self._files[name]
        data = _read(self.path, name, entry["bytes"])
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ModelError(f"{self.path / name} was changed after it was saved; get a fresh copy.")
        self._unread.discard(name)
        return data

    def check_all_read(self) -> None:
        """Raise an error if the manifest lists files that the model does not use."""
        if self._unread:
            raise ModelError(f"{self.path / min(self._unread)} is not used by the model.")


def _read(folder: Path, name: str, size: int) -> bytes:
    path = folder / name
    _check_size(path, size)
    with path.open("rb") as file:
        return file.read(size + 1)


def _check_size(path: Path, size: int) -> None:
    """Raise an error for a file of another size, and for one that is a hole for the most part."""
    try:
        status = path.stat()
    except OSError as error:
        raise ModelError(f"{path} is missing ({error.strerror}); get a fresh copy of the model.") from error
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        raise ModelError(
            f"{path} has {status.st_size} bytes where {size} were saved; get a fresh copy of the model."
        )
    on_disk = 512 * getattr(status, "st_blocks", size)
    if size > max(SMALL, MOST_UNPACKED * on_disk):
        raise ModelError(f"{path} claims {size} bytes and has {on_disk} on the disk; it is refused.")


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.is_dir():
        what = "is not a folder" if os.path.lexists(folder) else "does not exist"
        raise ModelError(f"{folder} {what}; pass the folder that a model was saved to.")
    if not path.is_file():
        inside = folder / "model"
        hint = f" Pass {inside}, which is one." if (inside / MANIFEST).is_file() else ""
        raise ModelError(f"{folder} is not a saved model: it has no {MANIFEST}.{hint}")
    if path.stat().st_size > _MOST_MANIFEST:
        raise ModelError(f"{path} has more than {_MOST_MANIFEST >> 20} MB; it is refused.")
    data = path.read_bytes()
    check_nesting(data, str(path))
    try:
        manifest = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: it is not JSON ({in_short(error)}).") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _NAME:
        raise ModelError(f"{folder} is not a saved model: its {MANIFEST} has another format.")
    _check_version(manifest, path)
    _check_digest(manifest, data, path)
    _check_files(manifest.get("files"), path)
    return manifest


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _check_version(manifest: dict[str, Any], path: Path) -> None:
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ModelError(f"{path} is damaged: its format version is {version!r}.")
    if version < FORMAT:
        raise ModelError(
            f"{path} has the format version {version}, from before the first release of osls; fit the model "
            "again and save it."
        )
    if version > FORMAT:
        raise ModelError(
            f"{path} has the format version {version}, and this osls reads up to {FORMAT}: upgrade osls "
            f"(the model was saved by osls {manifest.get('osls')})."
        )


def _check_digest(manifest: dict[str, Any], data: bytes, path: Path) -> None:
    digest = str(manifest.get("sha256"))
    blank = data.replace(digest.encode(), _BLANK.encode(), 1) if _DIGEST.fullmatch(digest) else b""
    if hashlib.sha256(blank).hexdigest() != digest:
        raise ModelError(f"{path} was changed after it was saved; get a fresh copy of the model.")


def _check_files(files: Any, path: Path) -> None:
    if not isinstance(files, dict):
        raise ModelError(f"{path} is damaged: it lists no files.")
    for name, entry in files.items():
        if not _FILE_NAME.fullmatch(name):
            raise ModelError(f"{path} lists the file {name!r}, which no saved model contains.")
        known = isinstance(entry, dict) and type(entry.get("bytes")) is int and "sha256" in entry
        if not known or entry["bytes"] < 0:
            raise ModelError(f"{path} does not say how large {name} is and what its digest is.")
