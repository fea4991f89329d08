"""CIFAR-10 and CIFAR-100, from their authors' binary version (the Python version is made of pickles)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from osls._core.arrays import AnyArray
from osls.datasets.download import Origin, RemoteFile, find_first
from osls.datasets.loading import Labelled, named_classes

__all__ = ["CIFAR10", "CIFAR100", "CifarLayout", "load_cifar"]

Split = Literal["train", "test", "all"]
_PIXELS = 3 * 32 * 32
_URL = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class CifarLayout:
    """Which files make up the data set. A record is its labels, of which the last counts, and an image."""

    origin: Origin
    npz: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    label_bytes: int
    classes: int


def _origin(title: str, folder: str, archive: str, md5: str) -> Origin:
    return Origin(
        title,
        paths=(folder,),
        advice=f"Download the binary version, {_URL}/{archive}.tar.gz (md5 {md5}); the Python version is not "
        "read, since unpickling can run code.",
        archives=(f"{archive}.tar.gz",),
        remote=RemoteFile(f"{_URL}/{archive}.tar.gz", f"md5:{md5}", max_bytes=200_000_000),
        max_bytes=200_000_000,
    )


CIFAR10 = CifarLayout(
    _origin("CIFAR-10", "cifar-10-batches-bin", "cifar-10-binary", "c32a1d4ab5d03f1284b67883e8d87530"),
    npz="cifar10.npz",
    train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test=("test_batch.bin",),
    names="batches.meta.txt",
    label_bytes=1,
    classes=10,
)
# A record starts with the coarse label (one of 20), which is not used.
CIFAR100 = CifarLayout(
    _origin("CIFAR-100", "cifar-100-binary", "cifar-100-binary", "03b5dce01913d631647c71ecec9e9cb8"),
    npz="cifar100.npz",
    train=("train.bin",),
    test=("test.bin",),
    names="fine_label_names.txt",
    label_bytes=2,
    classes=100,
)


def load_cifar(layout: CifarLayout, *, split: Split = "train", download: bool = False) -> Labelled:
    """Load CIFAR as uint8 images of shape (n, 32, 32, 3).

    Parameters
    ----------
    layout : CIFAR10 or CIFAR100
        Which of the two.
    split : "train", "test" or "all", default="train"
        The paper makes its problems from the 50,000 training images.
    download : bool, default=False
        Fetch the official archive if it is not there.

    Returns
    -------
    Labelled
        From ``cifar10.npz`` (X_train, y_train, X_test, y_test, class_names) if that is there, else from the
        official binary files.
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split must be 'train', 'test' or 'all'; got {split!r}.")
    path = find_first((layout.npz,))
    if path is not None:
        return _from_npz(path, split)
    folder = layout.origin.find(download=download)
    files = {"train": layout.train, "test": layout.test, "all": layout.train + layout.test}[split]
    parts = [_records(folder / file, layout) for file in files]
    names = (folder / layout.names).read_text(encoding="ascii").split()
    X = np.concatenate([images for images, _ in parts])
    return Labelled(X, np.concatenate([labels for _, labels in parts]), tuple(names))


def _records(path: Path, layout: CifarLayout) -> tuple[AnyArray, AnyArray]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; {layout.origin.advice}")
    data = np.fromfile(path, dtype=np.uint8)
    length = layout.label_bytes + _PIXELS
    if len(data) == 0 or len(data) % length:
        raise ValueError(f"{path} has {len(data)} bytes, which is not a number of records of {length}.")
    records = data.reshape(-1, length)
    labels = records[:, layout.label_bytes - 1].astype(np.int64)
    if labels.max() >= layout.classes:
        raise ValueError(f"{path} holds the label {labels.max()}; there are {layout.classes} classes.")
    images = records[:, layout.label_bytes :].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(np.moveaxis(images, 1, 3)), labels


def _from_npz(path: Path, split: Split) -> Labelled:
    parts = ("train", "test") if split == "all" else (split,)
    with np.load(path, allow_pickle=False) as file:
        X = np.concatenate([file[f"X_{part}"] for part in parts])
        y = np.concatenate([file[f"y_{part}"] for part in parts])
        return Labelled(X, y, named_classes(y, file["class_names"]))
