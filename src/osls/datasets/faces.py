"""UTKFace: faces in eight age groups."""

from __future__ import annotations

import re

import numpy as np

from osls._typing import AnyArray
from osls.datasets.images import image_files, image_set
from osls.datasets.labelled import Labelled
from osls.datasets.origin import Origin

__all__ = ["AGE_GROUPS", "age_group", "load_utkface"]

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
    >>> from osls.datasets.faces import age_group
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
