"""Skin diseases (DermNet) and breast tumours (BreakHis)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from osls.datasets.images import image_files, image_set
from osls.datasets.labelled import Labelled, named_classes
from osls.datasets.origin import Origin, find_first

__all__ = ["BREAKHIS_CLASSES", "load_breakhis", "load_breakhis400x", "load_dermnet"]

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
