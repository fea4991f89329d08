"""What every encoder is: a name, a width, an identity, and a call that turns items into rows."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from osls._typing import AnyArray

__all__ = ["Encoder", "fingerprint", "quiet", "require"]

_BLOCK = 1 << 20


class Encoder:
    """A frozen model behind a call.

    Parameters
    ----------
    encode : callable
        A sequence of n items to an array of shape (n, dim).
    name : str
        For people to read.
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
        """What the features depend on besides the items, or None if that cannot be known."""
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


def require(*modules: str, extra: str = "encoders") -> list[Any]:
    """Import optional modules, or say which extra brings them."""
    try:
        return [importlib.import_module(module) for module in modules]
    except ImportError as missing:
        raise ImportError(
            f"{missing.name or 'a package'} is needed for this encoder: pip install 'osls[{extra}]'"
        ) from missing


def fingerprint(files: Iterable[Path]) -> str:
    """Return a short hash of the names and contents of some files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()[:16]


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No progress bar while a local file is read."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
