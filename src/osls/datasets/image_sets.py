"""Skin diseases (DermNet) and breast tumours (BreakHis)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.extras import require
from osls.datasets.download import Origin, find_first
from osls.datasets.loading import Labelled, named_classes, prepared

__all__ = [
    "AGE_GROUPS",
    "BREAKHIS_CLASSES",
    "age_group",
    "image_files",
    "image_set",
    "load_breakhis",
    "load_breakhis400x",
    "load_dermnet",
    "load_utkface",
    "read_image",
]

# A photograph has fewer pixels; a file that claims more would fill the memory when decoded.
_MAX_PIXELS = 100_000_000
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


def read_image(path: str | os.PathLike[str], size: int) -> AnyArray:
    """Decode an image file as uint8 of shape (size, size, 3); the whole picture is squeezed to a square."""
    Image = require("PIL.Image", extra="images")
    try:
        with Image.open(path) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"{path} has {image.width} x {image.height} pixels; more than are decoded.")
            # A JPEG can be decoded at a fraction of its size, which is much faster.
            image.draft("RGB", (2 * size, 2 * size))
            small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError) as error:
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


_DERMNET_CLASSES = 23
DERMNET = Origin(
    "DermNet",
    paths=("dermnet",),
    advice="Download the 23 classes from https://www.kaggle.com/datasets/shubhamgoel27/dermnet (needs an "
    "account); it has the folders train and test with a folder of images for each class.",
    archives=("dermnet.zip",),
    inside=(".",),
    max_bytes=10_000_000_000,
)
BREAKHIS = Origin(
    "BreakHis",
    paths=("BreaKHis_v1",),
    advice="Download https://www.inf.ufpr.br/vri/databases/BreaKHis_v1.tar.gz (4 GB); see "
    "https://web.inf.ufpr.br/vri/databases/breast-cancer-histopathological-database-breakhis/.",
    archives=("BreaKHis_v1.tar.gz",),
    max_bytes=10_000_000_000,
)
# Benign first: a problem has one novel class of each kind.
BREAKHIS_CLASSES = {
    "adenosis": "benign",
    "fibroadenoma": "benign",
    "phyllodes_tumor": "benign",
    "tubular_adenoma": "benign",
    "ductal_carcinoma": "malignant",
    "lobular_carcinoma": "malignant",
    "mucinous_carcinoma": "malignant",
    "papillary_carcinoma": "malignant",
}
_MAGNIFICATIONS = ("40X", "100X", "200X", "400X")


def load_dermnet(
    *, size: int = 64, split: Literal["train", "test"] = "train", download: bool = False
) -> Labelled:
    """Load the photographs of 23 skin diseases as uint8 of shape (n, size, size, 3).

    The paper makes its problems from the training folder, at 224 pixels.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test'; got {split!r}.")
    root = DERMNET.find(download=download) / split
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir()) if root.is_dir() else []
    if len(folders) != _DERMNET_CLASSES:
        raise ValueError(
            f"{root} has {len(folders)} class folders instead of {_DERMNET_CLASSES}. {DERMNET.advice}"
        )
    return _folders_as_classes(f"dermnet-{split}", [image_files(folder) for folder in folders], folders, size)


def load_breakhis(
    *,
    size: int = 64,
    magnification: Literal["all", "40X", "100X", "200X", "400X"] = "all",
    download: bool = False,
) -> Labelled:
    """Load microscope images of eight breast tumours as uint8 of shape (n, size, size, 3).

    Classes 0 to 3 are benign, 4 to 7 malignant. The paper takes all four magnifications together, at 224
    pixels.
    """
    if magnification != "all" and magnification not in _MAGNIFICATIONS:
        raise ValueError(f"magnification must be 'all' or one of {_MAGNIFICATIONS}; got {magnification!r}.")
    breast = BREAKHIS.find(download=download) / "histology_slides" / "breast"
    folders = [breast / kind / "SOB" / name for name, kind in BREAKHIS_CLASSES.items()]
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is missing. {BREAKHIS.advice}")
    # .../<patient>/<magnification>/<image>.png
    files = [
        [path for path in image_files(folder) if magnification in ("all", path.parent.name)]
        for folder in folders
    ]
    return _folders_as_classes(f"breakhis-{magnification}", files, folders, size)


def _folders_as_classes(name: str, files: list[list[Path]], folders: list[Path], size: int) -> Labelled:
    for folder, found in zip(folders, files, strict=True):
        if not found:
            raise FileNotFoundError(f"{folder} holds no image files.")
    y = [number for number, found in enumerate(files) for _ in found]
    every = [path for found in files for path in found]
    return image_set(name, every, y, [folder.name for folder in folders], size)


def load_breakhis400x(*, download: bool = False) -> Labelled:
    """Load ``breakhis400x.npz``: 1,693 images of 64 x 96 pixels, the 400-fold magnification only."""
    path = find_first(("breakhis400x.npz",))
    if path is None:
        raise FileNotFoundError(
            "breakhis400x.npz is not in the folder that OSLS_DATA names. Save it there with the arrays X "
            "(n x 64 x 96 x 3, uint8), y (n class numbers) and class_names, of the 400X images of BreakHis. "
            f"{BREAKHIS.advice} Or use the data set 'breakhis', which reads those as they are."
        )
    with np.load(path, allow_pickle=False) as file:
        X, y = np.asarray(file["X"]), np.asarray(file["y"])
        names = named_classes(y, file["class_names"])
    if names != tuple(BREAKHIS_CLASSES):
        raise ValueError(f"{path} must have the classes {', '.join(BREAKHIS_CLASSES)}, in this order.")
    return Labelled(X, y, names)


AGE_GROUPS = ("0-10", "11-20", "21-30", "31-40", "41-50", "51-60", "61-70", "over 70")
_NAME = re.compile(r"(\d{1,3})_")
UTKFACE = Origin(
    "UTKFace",
    paths=("UTKFace",),
    advice="Download the aligned and cropped faces, UTKFace.tar.gz, from https://susanqq.github.io/UTKFace/ "
    "(Google Drive); its images are called [age]_[gender]_[race]_[date&time].jpg.",
    archives=("UTKFace.tar.gz",),
    max_bytes=2_000_000_000,
)


def age_group(age: int | AnyArray) -> AnyArray:
    """Return the number of the paper's age group: 0-10, 11-20, ..., 61-70, over 70.

    Examples
    --------
    >>> from osls.datasets.image_sets import age_group
    >>> [int(age_group(age)) for age in (0, 10, 11, 70, 71, 116)]
    [0, 0, 1, 6, 7, 7]
    """
    return np.asarray(np.clip((np.asarray(age) - 1) // 10, 0, len(AGE_GROUPS) - 1))


def load_utkface(*, size: int = 64, download: bool = False) -> Labelled:
    """Load the faces as uint8 of shape (n, size, size, 3); the class is the age group.

    The groups are those of the paper's text. (Its authors' code has 0-9, 10-19, ..., 70 and over.)
    """
    folder = UTKFACE.find(download=download)
    files = image_files(folder)
    ages = []
    for path in files:
        # A few files lack the race; only the age is needed.
        name = _NAME.match(path.name)
        if name is None:
            raise ValueError(f"the name of {path} does not start with an age. {UTKFACE.advice}")
        ages.append(int(name.group(1)))
    return image_set("utkface", files, age_group(np.array(ages)).tolist(), AGE_GROUPS, size)
