"""One picture, read with care: small, whole, in three colours."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from osls._core.arrays import AnyArray
from osls.app.files.errors import InputError, shorten

__all__ = ["IMAGE_SUFFIXES", "check_picture", "read_picture", "read_pictures"]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
# A file of a few kilobytes can claim any size; decoding this many pixels takes about 200 MB.
_MAX_PIXELS = 64_000_000


def read_picture(path: Path, size: int) -> AnyArray:
    """Read a picture as (size, size, 3) bytes; the sides are scaled to the square, nothing is cut off."""
    with _opened(path) as picture:
        try:
            # JPEG can be decoded at a fraction of its size; others ignore this.
            picture.draft("RGB", (size, size))
            upright = _eight_bits(ImageOps.exif_transpose(picture))
            small = upright.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        except Exception as error:  # decoders fail in as many ways as there are formats
            raise InputError(
                f"{path}: the picture is broken or cut short ({shorten(error, 60)}); replace or remove it."
            ) from None
    return np.asarray(small, dtype=np.uint8)


def read_pictures(paths: list[Path], size: int) -> AnyArray:
    """Read pictures as (n, size, size, 3) bytes."""
    pictures = np.empty((len(paths), size, size, 3), dtype=np.uint8)
    for i, path in enumerate(paths):
        pictures[i] = read_picture(path, size)
    return pictures


def check_picture(path: Path) -> None:
    """Look at the header only."""
    _opened(path).close()


def _opened(path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large(path, "far too many") from None
    except Exception as error:  # as above
        raise InputError(
            f"{path}: is not a picture that can be read ({shorten(error, 60)}); replace or remove it."
        ) from None
    width, height = picture.size
    if width * height > _MAX_PIXELS:
        picture.close()
        raise _too_large(path, f"{width} x {height}")
    return picture


def _too_large(path: Path, pixels: str) -> InputError:
    return InputError(
        f"{path}: the picture has {pixels} pixels, more than {_MAX_PIXELS // 10**6} million; "
        "make it smaller or remove it."
    )


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Scale 16-bit and floating point grey values, which ``convert`` would cut off at 255."""
    if not picture.mode.startswith(("I", "F")):
        return picture
    grey = np.asarray(picture, dtype=np.float64)
    top = 65535.0 if picture.mode.startswith("I") else float(grey.max() or 1.0)
    return Image.fromarray(np.clip(grey / top * 255, 0, 255).astype(np.uint8))
