"""Tables and digits: ``.npz`` files, and the IDX files of MNIST."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from osls._core.arrays import AnyArray
from osls.datasets.download import RemoteFile, download, find_first
from osls.datasets.loading import Labelled, cache_folder, data_folder, data_folders, named_classes

__all__ = ["load_digits", "load_mnist", "load_npz", "read_idx"]

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
    path = find_first((f"{name}.npz",))
    if path is None:
        data_folder()
        source = f" The data is published at {_PUBLISHED[name]}" if name in _PUBLISHED else " Make it"
        raise FileNotFoundError(
            f"{name}.npz is not in the folder that OSLS_DATA names.{source}: save it there with the arrays "
            "X (n x features), y (n class numbers) and class_names."
        )
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
    found = find_first(tuple(folder + file for folder in _MNIST_FOLDERS for file in (plain, name)))
    if found is None and allowed:
        remote = RemoteFile(f"{url}/{name}", _MNIST[name], max_bytes=20_000_000)
        return download(remote, cache_folder() / "data" / "mnist" / name)
    if found is None:
        looked = ", ".join(str(folder) for folder in data_folders())
        raise FileNotFoundError(
            f"MNIST was not found: neither mnist.npz nor {plain} (.gz). Put the four files of {_MNIST_URL}/ "
            f"({', '.join(_MNIST)}) in the folder that OSLS_DATA names, as mnist/{name}, or pass "
            f"download=True to fetch them. (Looked in: {looked}.)"
        )
    return found


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
            f"{path} announces {size} bytes but holds {'more' if len(data) > size else len(data)}."
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)
