"""The encoder class, and a disk cache of features, so that nothing is encoded twice."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.writing import draft_of
from osls.datasets.loading import cache_folder

_BLOCK = 1 << 20


class Encoder:
    """A frozen model that is called like a function.

    Parameters
    ----------
    encode : callable
        Maps a sequence of n items to an array of shape (n, dim).
    name : str
        Name for messages and for the cache folder.
    dim : int or None
        Number of features of an item. None for a callable that has not been called yet.
    identity : callable or None
        Returns a string that changes whenever the features would: weights and settings. It is the key of the
        disk cache; without one, features are not cached.
    """

    def __init__(
        self,
        encode: Callable[[Any], Any],
        *,
        name: str,
        dim: int | None = None,
        identity: Callable[[], str] | None = None,
    ):
        self.name = name
        self.dim = dim
        self._encode = encode
        self._identity = identity

    @property
    def identity(self) -> str | None:
        """What the features depend on besides the items, or None if unknown."""
        return None if self._identity is None else self._identity()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, dim={self.dim})"

    def __call__(self, items: Any) -> AnyArray:
        """Encode n items as a float32 array of shape (n, dim)."""
        items = self._check(items)
        if len(items) == 0 and self.dim is not None:
            return np.zeros((0, self.dim), dtype=np.float32)
        features = np.asarray(self._encode(items), dtype=np.float32)
        wanted = (len(items), features.shape[-1] if self.dim is None else self.dim)
        if features.shape != wanted:
            raise ValueError(
                f"the encoder {self.name!r} returned an array of shape {features.shape} for {len(items)} "
                f"items; it must return one row of {self.dim or 'equally many'} features for each."
            )
        if not np.isfinite(features).all():
            raise ValueError(f"the encoder {self.name!r} returned features that are not finite.")
        self.dim = features.shape[1]
        return features

    def _check(self, items: Any) -> Any:
        return items


def fingerprint(files: Iterable[Path]) -> str:
    """Return a short hash of the names and contents of some files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()[:16]


def local_model(name: str | Path, built_in: str) -> Path:
    """Return the folder of a model, or raise FileNotFoundError if it holds none that is safe to load."""
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{str(name)!r} is neither {built_in!r} nor a folder with a Hugging Face or timm model (no "
            "config.json there)."
        )
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{folder} holds no *.safetensors file; other weight formats can run code. Save the model with "
            "save_pretrained(folder, safe_serialization=True)."
        )
    return folder


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Hide the progress bar while a local file is read."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def cached(
    encoder: Callable[[Any], Any],
    items: Any,
    cache_dir: str | Path | None = None,
    *,
    identity: str | None = None,
    block: int = 1024,
) -> AnyArray:
    """Encode items, or read their features if the same items were encoded before.

    Items are handled in blocks. The file of a block is named by the SHA-256 of its items, in a folder named
    by the encoder's name and identity; it is written completely or not at all. An interrupted run continues
    after the last complete block, and two runs at the same time do not disturb each other.

    Parameters
    ----------
    encoder : Encoder or callable
        Maps items to features.
    items : list of str, list of paths, or array
        What to encode. For a path, the key is the contents of the file.
    cache_dir : path, optional
        Where to store the features; by default ``features`` in the folder that ``OSLS_CACHE`` names.
    identity : str, optional
        What the features depend on besides the items. Needed for a plain callable; an Encoder has its own.
    block : int, default=1024
        Items in a file.

    Returns
    -------
    float32 array of shape (n, dim)

    Examples
    --------
    >>> import tempfile
    >>> from osls.datasets.encoders import cached
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
    root = cache_folder() / "features" if cache_dir is None else Path(cache_dir)
    folder = root / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    parts = []
    for start in range(0, len(items), block):
        some = items[start : start + block]
        path = folder / f"{_content_key(some)}.npy"
        features = _read(path, len(some))
        if features is None:
            features = np.asarray(encoder(some), dtype=np.float32)
            _write(path, features)
        parts.append(features)
    return np.concatenate(parts)


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
        # With the length, ["ab", "c"] and ["a", "bc"] have different keys.
        digest.update(f"{kind}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _read(path: Path, rows: int) -> AnyArray | None:
    """Return the features of a block, or None if the file is missing or damaged."""
    try:
        features = np.load(path, allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return features if features.ndim == 2 and len(features) == rows else None


def _write(path: Path, features: AnyArray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft, draft.open("wb") as file:
        np.save(file, features, allow_pickle=False)
