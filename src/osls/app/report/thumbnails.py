"""Small copies of pictures as data URIs, so that a page needs no other file."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path

__all__ = ["thumbnail_uri"]


def thumbnail_uri(path: Path, *, side: int = 112, quality: int = 72) -> str | None:
    """Encode a picture as WebP of at most ``side`` pixels; None if it cannot be read.

    A picture that is missing, broken or suspiciously large does not stop a report. Metadata, which may say
    where and by whom a photograph was taken, is not copied.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            # Pillow warns of decompression bombs before it refuses them.
            warnings.simplefilter("error")
            with Image.open(path) as image:
                image.draft("RGB", (2 * side, 2 * side))
                upright = ImageOps.exif_transpose(image).convert("RGBA")
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError):
        return None
    # Very small pictures are enlarged without smoothing, so that their pixels can be seen.
    scale = side / max(upright.size)
    size = tuple(max(1, round(scale * length)) for length in upright.size)
    how = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    file = io.BytesIO()
    upright.resize((size[0], size[1]), how).save(file, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
