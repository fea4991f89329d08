"""What is refused before it is read: pipes and devices, files that lead to others, and ones that explode."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from osls.app.files.reader import InputError

# The formats that a picture may have, whatever its name: others start programs (EPS starts Ghostscript).
PICTURE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
# A file that unpacks to this many bytes, and to this many times its own size, is no data set.
_BOMB_BYTES, _BOMB_RATIO = 1 << 28, 200


def check_regular(path: Path) -> None:
    """Raise for what is neither a regular file nor a folder: opening a pipe waits for somebody to write."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            f"{path}: is a pipe, a socket or a device; write the rows to a file, and give that or a folder."
        )


def check_name(path: Path) -> None:
    """Raise for a name that is no text, which tables cannot hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{path}: the name of the file is not UTF-8; rename it.") from None


def refuse_bomb(path: Path, unpacked: int, what: str) -> None:
    """Raise if a small file would fill the memory; ``what`` says what to do if it is meant to."""
    size = path.stat().st_size
    if unpacked > _BOMB_BYTES and unpacked > _BOMB_RATIO * size:
        raise InputError(
            f"{path}: unpacks to {unpacked >> 20} MB, {unpacked // size} times its size; "
            f"if it is meant to, {what}."
        )


def check_hdf5(path: Path, h5py: Any) -> None:
    """Raise for an HDF5 file whose contents lie in other files, or that would fill the memory."""
    with h5py.File(path, "r") as file:
        total = sum(_bytes_of(path, h5py, each) for each in _datasets(path, h5py, file))
    refuse_bomb(path, total, "store X as a sparse matrix")


def _datasets(path: Path, h5py: Any, root: Any) -> Any:
    """Yield all data sets of a file, each once."""
    waiting, seen = [root], set()
    while waiting:
        thing = waiting.pop()
        address = h5py.h5o.get_info(thing.id).addr
        if address in seen:
            continue
        seen.add(address)
        if isinstance(thing, h5py.Dataset):
            yield thing
        elif isinstance(thing, h5py.Group):
            links = [thing.get(name, getlink=True) for name in thing]
            if any(isinstance(link, h5py.ExternalLink) for link in links):
                raise _leads_elsewhere(path)
            waiting += [thing[name] for name, link in zip(thing, links, strict=True) if _is_hard(h5py, link)]


def _is_hard(h5py: Any, link: Any) -> bool:
    # A soft link leads to another place in the same file, which is looked at by itself.
    return isinstance(link, h5py.HardLink)


def _bytes_of(path: Path, h5py: Any, dataset: Any) -> int:
    if dataset.external or dataset.is_virtual:
        raise _leads_elsewhere(path)
    return int((dataset.size or 0) * dataset.dtype.itemsize)


def _leads_elsewhere(path: Path) -> InputError:
    return InputError(
        f"{path}: holds links to other files, which are not followed; write it again with its data inside."
    )
