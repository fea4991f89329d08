"""Picture files to features: the frozen EfficientNet, or small pixels for a network to train on."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from osls._core.arrays import AnyArray
from osls._core.extras import require
from osls._core.saving import saveable
from osls.app.files.guards import PICTURE_FORMATS
from osls.app.files.reader import FILE_COLUMN, ROWS, InputError, Kind, Place, shorten
from osls.app.options import ImageMode
from osls.datasets import encoders

# A file of a few kilobytes can claim any size; decoding this many pixels takes about 200 MB.
_MAX_PIXELS = 64_000_000

# The frozen network was made for larger pictures and needs some detail. A network that is trained here, on
# a processor, gets smaller pictures to save time.
_ENCODER_SIZE = 64
_SCRATCH_SIZE = 32
_BATCH = 256


@saveable
class PictureEncoder:
    """Read the pictures of a column "file" and turn them into features.

    Parameters
    ----------
    images : {"auto", "efficientnet", "scratch"}, default="auto"
        "efficientnet": 1,280 features of the frozen EfficientNet-Lite0 at 64 by 64 pixels. "scratch": the
        pixels at 32 by 32, for a small convolutional network that is trained on them. "auto": the first if
        it is installed.

    Attributes
    ----------
    feature_names_ : list of str
        Empty: the features mean nothing to a person.
    warnings_ : list of str
        Nothing so far.
    """

    used_columns = (FILE_COLUMN,)
    text_columns: tuple[str, ...] = ()
    kind_: Kind = "images"

    def __init__(self, *, images: ImageMode = "auto"):
        if images not in ("auto", "efficientnet", "scratch"):
            raise ValueError(f"images must be 'auto', 'efficientnet' or 'scratch'; got {images!r}.")
        self.images = images
        self.feature_names_: list[str] = []
        self.warnings_: list[str] = []

    def fit(
        self, source: pd.DataFrame, target: pd.DataFrame, places: tuple[Place, Place] | None = None
    ) -> Self:
        """Settle "auto", and look at the headers of all files before any is encoded."""
        looks = [_look(self._paths(frame, ROWS)) for frame in (source, target)]
        self.warnings_ = _differences(*looks)
        if self.images == "auto":
            self.images = "efficientnet" if find_spec("efficientnet_lite_pytorch") else "scratch"
        return self

    def transform(self, frame: pd.DataFrame, place: Place = ROWS) -> AnyArray:
        """Return (n, 1280) features or (n, 3, 32, 32) pixels in [0, 1]."""
        paths = self._paths(frame, place)
        if self.images == "scratch":
            pixels = np.stack([read_picture(path, _SCRATCH_SIZE) for path in paths])
            return np.moveaxis(pixels, 3, 1).astype(np.float32) / 255
        encode = _picture_encoder()
        batches = (paths[first : first + _BATCH] for first in range(0, len(paths), _BATCH))
        parts = [encode(np.stack([read_picture(path, _ENCODER_SIZE) for path in batch])) for batch in batches]
        return np.concatenate(parts).astype(np.float32)

    def check(self, frame: pd.DataFrame, place: Place = ROWS) -> None:
        """Raise for files that are no pictures."""
        _look(self._paths(frame, place))

    def _paths(self, frame: pd.DataFrame, place: Place) -> list[Path]:
        if FILE_COLUMN not in frame.columns:
            raise InputError(
                f"{place.name}: there is no column {shorten(FILE_COLUMN)} with the paths of the pictures; "
                "give a folder of pictures."
            )
        return [Path(path) for path in frame[FILE_COLUMN]]

    def get_state(self) -> dict[str, Any]:
        """Return the settings."""
        return {"images": self.images}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the encoder that :meth:`get_state` described."""
        return cls(images=state["images"])


@cache
def _picture_encoder() -> Callable[[AnyArray], AnyArray]:
    # Kept for the life of the process, as loading the weights takes seconds.
    return encoders.image_encoder("efficientnet")


# -- One picture ------------------------------------------------------------------------------------


def _pillow(module: str) -> Any:
    return require(f"PIL.{module}", extra="images")


def read_picture(path: Path, size: int) -> AnyArray:
    """Read a picture as (size, size, 3) bytes; the sides are scaled to the square, nothing is cut off."""
    Image, ImageOps = _pillow("Image"), _pillow("ImageOps")
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


def _opened(path: Path) -> Any:
    """Read the header only; raise if this is no picture, or one too large to decode."""
    Image = _pillow("Image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(path, formats=PICTURE_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large(path, "far too many") from None
    except Exception as error:  # see read_picture
        raise InputError(
            f"{path}: is not a picture that can be read ({shorten(error, 60)}); replace or remove it."
        ) from None
    width, height = picture.size
    if width * height > _MAX_PIXELS:
        picture.close()
        raise _too_large(path, f"{width} x {height}")
    return picture


@dataclass(frozen=True)
class _Look:
    """File types of many pictures with their shares, and the picture of middle size."""

    types: Mapping[str, float]
    middle: tuple[int, int]


def _look(paths: Sequence[Path]) -> _Look:
    """Read the headers of all files; raise for one that is no picture."""
    types, sizes = Counter[str](), []
    for path in paths:
        with _opened(path) as picture:
            types[str(picture.format)] += 1
            sizes.append(picture.size)
    by_area = sorted(sizes, key=lambda size: size[0] * size[1])
    shares = {name: count / len(sizes) for name, count in types.items()}
    return _Look(shares, by_area[len(by_area) // 2] if by_area else (1, 1))


def _differences(source: _Look, target: _Look) -> list[str]:
    """Say if the two sides were stored in other ways, which a model can see as well as what they show."""
    notes = []
    if sum(abs(source.types.get(t, 0) - target.types.get(t, 0)) for t in {*source.types, *target.types}) > 1:
        mostly = [max(side.types, key=lambda t: side.types[t]) for side in (source, target)]
        notes.append(f"The labelled pictures are mostly {mostly[0]} files, the new ones mostly {mostly[1]}")
    (a, b), (c, d) = source.middle, target.middle
    if not 0.5 < (a * b) / (c * d) < 2:
        notes.append(f"The labelled pictures have about {a} x {b} pixels, the new ones {c} x {d}")
    why = "how a picture was stored can be taken for what it shows; store both alike if you can."
    return [f"{note}: {why}" for note in notes]


def _too_large(path: Path, pixels: str) -> InputError:
    return InputError(
        f"{path}: the picture has {pixels} pixels, more than {_MAX_PIXELS // 10**6} million; "
        "make it smaller or remove it."
    )


def _eight_bits(picture: Any) -> Any:
    """Scale 16-bit and floating point grey values, which ``convert`` would cut off at 255."""
    if not picture.mode.startswith(("I", "F")):
        return picture
    grey = np.asarray(picture, dtype=np.float64)
    top = 65535.0 if picture.mode.startswith("I") else float(grey.max() or 1.0)
    return _pillow("Image").fromarray(np.clip(grey / top * 255, 0, 255).astype(np.uint8))
