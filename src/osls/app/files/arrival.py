"""What is no plain local file becomes one: objects in a store, files on a server, packed or in old encodings.

Readers see only the copy, in a folder of its own that goes with the rows; messages have the name given.
"""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import quote, unquote, urlsplit

import pandas as pd
import pyarrow as pa
from pyarrow import fs

from osls.app.files.reader import BATCH_ROWS, InputError, RowFile, shorten

PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_ADDRESS = re.compile(r"([a-z][a-z0-9]*)://", re.IGNORECASE)
_STORES = ("s3", "gs", "gcs", "az", "abfs", "abfss")
_WEB = ("http", "https")
_TIMEOUT = 60
_PIECE = 1 << 20
# What unpacks to this many bytes, and to this many times its own size, is no data set.
_BOMB_BYTES, _BOMB_RATIO = 1 << 28, 200


def is_address(path: str) -> bool:
    """Whether a name is an address (``s3://``, ``https://``) and not a path."""
    return bool(_ADDRESS.match(path))


def has_wildcard(path: str) -> bool:
    """Whether a name may stand for several files."""
    return any(sign in path for sign in "*?[")


class Copied(RowFile):
    """The rows of a copy, under the name of the original."""

    def __init__(self, rows: RowFile, copy: Path, name: str):
        self._rows, self._copy = rows, copy
        self.kind = rows.kind
        super().__init__(name, rows.columns, rows.notes)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Read the copy."""
        with named(self._copy, self.name):
            yield from self._rows.batches(columns, size)

    def count(self) -> int:
        return self._rows.count()

    def typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        return self._rows.typed(frame)


@contextmanager
def named(copy: Path, name: str) -> Iterator[None]:
    """Put the name of the original into messages about its copy."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(copy), name)) from None


@contextmanager
def at_hand(name: str) -> Iterator[Path]:
    """Yield the path of a local file or folder, or of a copy of what an address names."""
    if not is_address(name):
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="osls-") as folder:
        paths = fetch(name, Path(folder))
        copy = paths[0] if len(paths) == 1 else Path(folder)
        with named(copy, name):
            yield copy


# -- Addresses ------------------------------------------------------------------------------------------


def fetch(address: str, folder: Path) -> list[Path]:
    """Copy what an address names into a folder: one file, or all that a folder or a wildcard stands for."""
    scheme = _ADDRESS.match(address)[1].lower()  # type: ignore[index]
    try:
        if scheme in _WEB:
            return [_download(address, folder)]
        if scheme in _STORES:
            return _copy_objects(address, scheme, folder)
    except urllib.error.HTTPError as error:
        raise InputError(f"{address}: the server answered {error.code} {error.reason}; check it.") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{address}: could not be fetched ({shorten(error, 160)}); check the address, the network and "
            "your credentials."
        ) from None
    raise InputError(
        f"{address}: addresses that begin with {scheme}:// cannot be read; "
        f"use one of {' '.join(f'{each}://' for each in (*_STORES, *_WEB))} or a path."
    )


def _download(address: str, folder: Path) -> Path:
    path = folder / (unquote(PurePosixPath(urlsplit(address).path).name) or "index.html")
    with (
        urllib.request.urlopen(address, timeout=_TIMEOUT) as response,  # nosec B310  # fetch lets only http(s) pass
        path.open("wb") as file,
    ):
        shutil.copyfileobj(response, file, _PIECE)
    return path


def _copy_objects(address: str, scheme: str, folder: Path) -> list[Path]:
    store, path = _open_store(address, scheme)
    found = _list_objects(store, path)
    if not found:
        raise InputError(f"{address}: there is no such object; check the address.")
    copies = []
    for i, name in enumerate(found):
        # Numbered: objects of different folders may have the same name.
        copy = folder / (
            PurePosixPath(name).name if len(found) == 1 else f"{i:06d}-{PurePosixPath(name).name}"
        )
        with store.open_input_stream(name, compression=None) as source, copy.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)
        copies.append(copy)
    return copies


def _open_store(address: str, scheme: str) -> tuple[fs.FileSystem, str]:
    """Return the store and the path in it; what a wildcard stands for is found later."""
    rest = address.split("://", 1)[1]
    body, _, query = rest.partition("?") if scheme in ("s3", "gs", "gcs") and "=" in rest else (rest, "", "")
    if scheme == "s3" and "endpoint_override" not in query:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        query = "&".join(filter(None, [query, endpoint and f"endpoint_override={quote(endpoint, safe='')}"]))
    if scheme == "az":
        scheme, body = "abfs", _with_account(address, body)
    bucket, _, path = body.partition("/")
    store, root = fs.FileSystem.from_uri(f"{scheme}://{bucket}/{'?' + query if query else ''}")
    return store, f"{root.rstrip('/')}/{path}".rstrip("/")


def _with_account(address: str, body: str) -> str:
    account = os.environ.get("AZURE_STORAGE_ACCOUNT")
    if not account:
        raise InputError(f"{address}: which account? Set AZURE_STORAGE_ACCOUNT, or use abfs:// with it.")
    container, _, path = body.partition("/")
    return f"{container}@{account}.dfs.core.windows.net/{path}"


def _list_objects(store: fs.FileSystem, path: str) -> list[str]:
    """The files that a path names: itself, all in a folder, or those that fit a wildcard."""
    if has_wildcard(path):
        base = path[: min(path.find(sign) for sign in "*?[" if sign in path)].rpartition("/")[0]
        listed = store.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        return sorted(
            each.path
            for each in listed
            if each.is_file
            and each.path.count("/") == path.count("/")
            and fnmatch.fnmatchcase(each.path, path)
        )
    info = store.get_file_info(path)
    if info.type == fs.FileType.Directory:
        listed = store.get_file_info(fs.FileSelector(path, recursive=True))
        return sorted(each.path for each in listed if each.is_file and each.size)
    return [path] if info.type == fs.FileType.File else []


# -- Packed files and other encodings --------------------------------------------------------------------


def unpack(path: Path, folder: Path) -> Path:
    """Unpack a file of one of the ``PACKED`` kinds; its name without the ending says what it is."""
    plain = folder / path.stem
    size = path.stat().st_size
    try:
        with (
            pa.input_stream(path, compression=PACKED[path.suffix.lower()]) as source,
            plain.open("wb") as file,
        ):
            _copy_within_bounds(path, source, file, size)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{path}: cannot be unpacked ({shorten(error, 80)}); the file may be cut short, write it again."
        ) from None
    return plain


def _copy_within_bounds(path: Path, source: IO[bytes], file: IO[bytes], size: int) -> None:
    written = 0
    while piece := source.read(_PIECE):
        written += file.write(piece)
        if written > _BOMB_BYTES and written > _BOMB_RATIO * size:
            raise InputError(
                f"{path}: unpacks to more than {written >> 20} MB, {_BOMB_RATIO} times its size; if it is "
                "meant to, unpack it first."
            )


def recode(path: Path, folder: Path, encoding: str) -> Path:
    """Copy a text file in another encoding as UTF-8."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InputError(
            f"{path}: the encoding {shorten(encoding)} is not known; latin-1 or cp1252?"
        ) from None
    copy = folder / f"utf8-{path.name}"
    try:
        with (
            path.open(encoding=encoding, newline="") as source,
            copy.open("w", encoding="utf-8", newline="") as file,
        ):
            shutil.copyfileobj(source, file, _PIECE)
    except UnicodeError as error:
        raise InputError(
            f"{path}: is not in {encoding} ({shorten(error, 80)}); name another --encoding."
        ) from None
    return copy
