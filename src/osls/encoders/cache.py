"""Features kept on disk, so that a second run costs nothing."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from osls._drafts import draft_of
from osls._typing import AnyArray

__all__ = ["cached"]


def cached(
    encoder: Callable[[Any], Any],
    items: Any,
    cache_dir: str | Path | None = None,
    *,
    identity: str | None = None,
    block: int = 1024,
    on_block: Callable[[int], None] = lambda rows: None,
) -> AnyArray:
    """Encode items, or read their features if these very items were encoded before.

    Items are handled in blocks. The file of a block is named by the SHA-256 of its contents, below a folder
    named by the encoder's name and identity; it is written whole or not at all. A run that was stopped goes
    on after the last whole block, and two runs at once do each other no harm.

    Parameters
    ----------
    encoder : Encoder or callable
        Items to features.
    items : list of str, list of paths, or array
        What to encode. Of a path, the contents of the file count.
    cache_dir : path, optional
        Where to keep the features; by default ``features`` in the folder that ``OSLS_CACHE`` names.
    identity : str, optional
        What the features depend on besides the items. Needed for a plain callable; an encoder knows its own.
    block : int, default=1024
        Items in a file.
    on_block : callable, optional
        Called with the number of items after each block.

    Returns
    -------
    float32 array of shape (n, dim)

    Examples
    --------
    >>> import tempfile
    >>> from osls.encoders import cached
    >>> calls = []
    >>> def lengths(texts):
    ...     calls.append(len(texts))
    ...     return [[len(text)] for text in texts]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = cached(lengths, ["a", "bcd"], folder, identity="lengths")
    ...     second = cached(lengths, ["a", "bcd"], folder, identity="lengths")
    >>> second.tolist(), calls
    ([[1.0], [3.0]], [2])
    """
    identity = identity or getattr(encoder, "identity", None)
    if not identity:
        raise ValueError(
            "features of a plain callable can only be cached under a name: pass identity=, and change it "
            "whenever the callable changes."
        )
    if block < 1:
        raise ValueError(f"block must be at least 1; got {block}.")
    items = items if isinstance(items, np.ndarray) else list(items)
    if len(items) == 0:
        return np.asarray(encoder(items), dtype=np.float32)
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(getattr(encoder, "name", "encoder")))[:40]
    folder = _root(cache_dir) / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    parts = []
    for start in range(0, len(items), block):
        some = items[start : start + block]
        path = folder / f"{_content_key(some)}.npy"
        features = _read(path, len(some))
        if features is None:
            features = np.asarray(encoder(some), dtype=np.float32)
            _write(path, features)
        parts.append(features)
        on_block(len(some))
    return np.concatenate(parts)


def _root(cache_dir: str | Path | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir)
    from osls.datasets.folders import cache_folder

    return cache_folder() / "features"


def _content_key(items: Sequence[Any] | AnyArray) -> str:
    digest = hashlib.sha256()
    if isinstance(items, np.ndarray):
        if items.dtype.hasobject:
            raise TypeError(
                "items is an array of objects; pass a list of texts or paths, or a numeric array."
            )
        digest.update(f"array:{items.dtype.str}:{items.shape}:".encode())
        digest.update(np.ascontiguousarray(items).data)
        return digest.hexdigest()
    for item in items:
        if isinstance(item, str):
            kind, content = "text", item.encode("utf-8", "surrogatepass")
        elif isinstance(item, os.PathLike):
            kind, content = "file", Path(item).read_bytes()
        else:
            raise TypeError(f"cannot cache features of {type(item).__name__}; pass texts, paths or an array.")
        # The length keeps ["ab", "c"] apart from ["a", "bc"].
        digest.update(f"{kind}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _read(path: Path, rows: int) -> AnyArray | None:
    """Return the features of a block, or None if they are not there or the file is damaged."""
    try:
        features = np.load(path, allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return features if features.ndim == 2 and len(features) == rows else None


def _write(path: Path, features: AnyArray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft, draft.open("wb") as file:
        np.save(file, features, allow_pickle=False)
