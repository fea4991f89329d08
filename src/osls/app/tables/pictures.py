"""Pictures to features: the frozen EfficientNet, or small pixels for a network trained from scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from osls._core.arrays import AnyArray, Ints
from osls.app.answer import Kind
from osls.app.files.errors import InputError, shorten
from osls.app.files.images import check_picture, read_pictures
from osls.app.files.rows import FILE_COLUMN

__all__ = ["ImageMode", "PictureEncoder"]

ImageMode = Literal["auto", "efficientnet", "scratch"]

# The frozen network was made for larger pictures and needs some detail; a convnet trained on a processor
# has to make do with less.
_ENCODER_SIZE = 64
_SCRATCH_SIZE = 32
_BATCH = 256


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

    def fit(self, source: pd.DataFrame, target: pd.DataFrame, **names: Any) -> Self:
        """Settle "auto", and look at the headers of all files before any is encoded."""
        self.check(source)
        self.check(target)
        if self.images == "auto":
            self.images = "efficientnet" if find_spec("efficientnet_lite_pytorch") else "scratch"
        return self

    def transform(
        self, frame: pd.DataFrame, *, name: str = "the rows", first_row: int | Ints = 0
    ) -> AnyArray:
        """Return (n, 1280) features or (n, 3, 32, 32) pixels in [0, 1]."""
        paths = self._paths(frame, name)
        if self.images == "scratch":
            pixels = read_pictures(paths, _SCRATCH_SIZE)
            return np.moveaxis(pixels, 3, 1).astype(np.float32) / 255
        encode = _picture_encoder()
        parts = [
            encode(read_pictures(paths[first : first + _BATCH], _ENCODER_SIZE))
            for first in range(0, len(paths), _BATCH)
        ]
        return np.concatenate(parts).astype(np.float32)

    def check(self, frame: pd.DataFrame, *, name: str = "the rows", first_row: int | Ints = 0) -> None:
        """Raise for files that are no pictures."""
        for path in self._paths(frame, name):
            check_picture(path)

    def _paths(self, frame: pd.DataFrame, name: str) -> list[Path]:
        if FILE_COLUMN not in frame.columns:
            raise InputError(
                f"{name}: there is no column {shorten(FILE_COLUMN)} with the paths of the pictures; "
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
    from osls.datasets.encoders import image_encoder

    return image_encoder("efficientnet")
