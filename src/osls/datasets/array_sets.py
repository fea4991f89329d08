"""Tables and digits: ``.npz`` files, the IDX files of MNIST, and the pickled batches of CIFAR."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from osls._core.arrays import AnyArray
from osls.datasets.download import Origin, RemoteFile, download, find_file, find_first
from osls.datasets.loading import Labelled, cache_folder, data_folders, named_classes

_UCI = "https://archive.ics.uci.edu/dataset"
_PUBLISHED = {
    "letter": f"{_UCI}/59",
    "penbased": f"{_UCI}/81",
    "satimage": f"{_UCI}/146",
    "drybean": f"{_UCI}/602",
    "avila": f"{_UCI}/459",
    "shuttle": f"{_UCI}/148",
    "covtype": f"{_UCI}/31",
    "usps": "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html",
}
_MNIST = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
# Yann LeCun's page refuses automatic downloads; this is PyTorch's copy, with the same checksums.
_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
_MNIST_FOLDERS = ("", "mnist/", "MNIST/raw/")


def load_digits(*, download: bool = False) -> Labelled:
    """Load the 1,797 digits of 8 x 8 pixels that ship with scikit-learn."""
    from sklearn.datasets import load_digits as shipped

    X, y = shipped(return_X_y=True)
    return Labelled(np.asarray(X, dtype=np.float32), y, named_classes(y))


def load_npz(name: str, *, download: bool = False) -> Labelled:
    """Load ``<name>.npz`` with X, y and class_names, or with X_train, y_train, X_test, y_test of pixels."""
    source = f"The data is published at {_PUBLISHED[name]}" if name in _PUBLISHED else "Make it"
    arrays = "the arrays X (n x features), y (n class numbers) and class_names"
    path = find_file(f"{name}.npz", f"{source}: save it there with {arrays}.")
    with np.load(path, allow_pickle=False) as file:
        names = file.get("class_names")
        if "X" in file:
            X, y = np.asarray(file["X"], dtype=np.float32), np.asarray(file["y"])
        else:
            X = _as_rows(np.concatenate([file["X_train"], file["X_test"]]))
            y = np.concatenate([file["y_train"], file["y_test"]])
    return Labelled(X, y, named_classes(y, names))


def load_mnist(*, download: bool = False, url: str = _MNIST_URL) -> Labelled:
    """Load MNIST, 70,000 digits as rows of 784 pixels in [0, 1].

    From ``mnist.npz``, or from the four IDX files, compressed or not.
    """
    if find_first(("mnist.npz",)):
        return load_npz("mnist")
    parts = [_mnist_file(name, download, url) for name in _MNIST]
    images, labels, test_images, test_labels = (read_idx(path) for path in parts)
    X = np.concatenate([images, test_images])
    y = np.concatenate([labels, test_labels]).astype(np.int64)
    if len(X) != len(y):
        raise ValueError(f"the MNIST files hold {len(X)} images but {len(y)} labels.")
    return Labelled(_as_rows(X), y, named_classes(y))


def _as_rows(pixels: AnyArray) -> AnyArray:
    return np.asarray(pixels.reshape(len(pixels), -1).astype(np.float32) / 255, dtype=np.float32)


def _mnist_file(name: str, allowed: bool, url: str) -> Path:
    plain = name.removesuffix(".gz")
    path = find_first(tuple(folder + file for folder in _MNIST_FOLDERS for file in (plain, name)))
    if path is None and allowed:
        remote = RemoteFile(f"{url}/{name}", _MNIST[name])
        return download(remote, cache_folder() / "data" / "mnist" / name)
    if path is None:
        looked = ", ".join(str(folder) for folder in data_folders())
        raise FileNotFoundError(
            f"MNIST was not found: neither mnist.npz nor {plain} (.gz). Put the four files of {_MNIST_URL}/ "
            f"({', '.join(_MNIST)}) in the folder that OSLS_DATA names, as mnist/{name}, or pass "
            f"download=True to fetch them. (Looked in: {looked}.)"
        )
    return path


def read_idx(path: Path) -> AnyArray:
    """Read an IDX file of unsigned bytes, the format of MNIST."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as file:
        zeros, kind, dimensions = struct.unpack(">HBB", file.read(4).ljust(4, b"\xff"))
        if zeros != 0 or kind != 8 or not 1 <= dimensions <= 4:
            raise ValueError(f"{path} is not an IDX file of bytes.")
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions).ljust(4 * dimensions, b"\0"))
        size = int(np.prod(shape, dtype=np.int64))
        data = file.read(size + 1)
    if len(data) != size:
        raise ValueError(
            f"{path} should have {size} bytes of data but has {'more' if len(data) > size else len(data)}."
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


Split = Literal["train", "test", "all"]
_PIXELS = 3 * 32 * 32
_URL = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class CifarLayout:
    """The files of the data set. A record is one or two labels, of which the last is used, and an image."""

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
        "supported, because unpickling can run code.",
        archives=(f"{archive}.tar.gz",),
        remote=RemoteFile(f"{_URL}/{archive}.tar.gz", f"md5:{md5}"),
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
        Download the official archive if the data is not found.

    Returns
    -------
    Labelled
        From ``cifar10.npz`` (X_train, y_train, X_test, y_test, class_names) if it exists, else from the
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
        raise ValueError(f"{path} has {len(data)} bytes, which is no multiple of the record size {length}.")
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
