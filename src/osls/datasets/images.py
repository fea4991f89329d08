"""Image files to arrays: decoded once, to one size, and kept on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from osls._typing import AnyArray
from osls.datasets.labelled import Labelled
from osls.datasets.store import prepared

__all__ = ["image_files", "image_set", "read_image"]

# A photograph has fewer pixels; a file that claims more would fill the memory when decoded.
_MAX_PIXELS = 100_000_000
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


def read_image(path: str | os.PathLike[str], size: int) -> AnyArray:
    """Decode an image file as uint8 of shape (size, size, 3); the whole picture is squeezed to a square."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"{path} has {image.width} x {image.height} pixels; more than are decoded.")
            # A JPEG can be decoded at a fraction of its size, which is much faster.
            image.draft("RGB", (2 * size, 2 * size))
            small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is not an image that can be read: {error}") from error
    return np.asarray(small, dtype=np.uint8)


def image_files(folder: Path) -> list[Path]:
    """Return the image files below a folder, in the order of their names."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())
    # Archives made on a Mac carry a shadow file "._name" beside each image.
    return sorted(path for path in found if not path.name.startswith("."))


def image_set(
    name: str, files: Sequence[Path], y: Sequence[int], class_names: Sequence[str], size: int
) -> Labelled:
    """Return labelled image files as uint8 of shape (n, size, size, 3), from the cache if they are there."""
    if not files:
        raise FileNotFoundError(f"{name}: its folder holds no image files.")

    def build(path: Path) -> tuple[AnyArray, Sequence[str]]:
        shape = (len(files), size, size, 3)
        pixels = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
        for row, file in enumerate(files):
            pixels[row] = read_image(file, size)
        pixels.flush()
        return np.asarray(y, dtype=np.int64), class_names

    stats = [(str(file), (seen := file.stat()).st_size, seen.st_mtime_ns) for file in files]
    return prepared(f"{name}-{size}", [stats, list(y), list(class_names), size], build)
