"""Grey pictures as PNG data URIs, so that a page needs no other file."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from osls._core.arrays import Floats

__all__ = ["png_uri"]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_uri(image: Floats) -> str:
    """Encode a (height, width) array, scaled from its minimum to its maximum, black on white."""
    span = float(image.max() - image.min()) or 1.0
    pixels = (255 - 255 * (image - image.min()) / span).astype(np.uint8)
    height, width = pixels.shape
    # Every scan line begins with its filter type, 0.
    lines = np.column_stack([np.zeros(height, np.uint8), pixels]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(lines, 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()
