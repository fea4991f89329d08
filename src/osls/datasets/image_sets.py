"""Image files to arrays, decoded once; DermNet, BreakHis, UTKFace, and Entity30 of BREEDS."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.extras import require
from osls.datasets.download import Origin, RemoteFile, download, find_file, find_first
from osls.datasets.loading import Labelled, cache_folder, named_classes, prepared

# Photographs have fewer pixels; decoding a file with more could fill the memory.
_MAX_PIXELS = 100_000_000
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


def read_image(path: str | os.PathLike[str], size: int) -> AnyArray:
    """Decode an image file as uint8 of shape (size, size, 3); the image is resized to a square."""
    Image = require("PIL.Image", extra="images")
    try:
        with Image.open(path, formats=("BMP", "JPEG", "PNG", "TIFF")) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"{path} has {image.width} x {image.height} pixels, which is too many.")
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
    images = (path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())
    # Archives made on a Mac contain a metadata file "._name" beside each image.
    return sorted(path for path in images if not path.name.startswith("."))


def image_set(
    name: str, files: Sequence[Path], y: Sequence[int], class_names: Sequence[str], size: int
) -> Labelled:
    """Return labelled image files as uint8 of shape (n, size, size, 3), from the cache if possible."""
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
# Benign classes first: one benign and one malignant class are novel in each problem.
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


def load_dermnet(*, size: int = 64, download: bool = False) -> Labelled:
    """Load the photographs of 23 skin diseases as uint8 of shape (n, size, size, 3).

    They are those of the training folder, from which the paper makes its problems, at 224 pixels.
    """
    root = DERMNET.find(download=download) / "train"
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir()) if root.is_dir() else []
    if len(folders) != _DERMNET_CLASSES:
        raise ValueError(
            f"{root} has {len(folders)} class folders instead of {_DERMNET_CLASSES}. {DERMNET.advice}"
        )
    return _folders_as_classes("dermnet-train", folders, size)


def load_breakhis(*, size: int = 64, download: bool = False) -> Labelled:
    """Load microscope images of eight breast tumours as uint8 of shape (n, size, size, 3).

    Classes 0 to 3 are benign, 4 to 7 malignant. As in the paper, which takes 224 pixels, the four
    magnifications are together.
    """
    breast = BREAKHIS.find(download=download) / "histology_slides" / "breast"
    folders = [breast / kind / "SOB" / name for name, kind in BREAKHIS_CLASSES.items()]
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is missing. {BREAKHIS.advice}")
    return _folders_as_classes("breakhis-all", folders, size)


def _folders_as_classes(name: str, folders: list[Path], size: int) -> Labelled:
    files = [image_files(folder) for folder in folders]
    for folder, inside in zip(folders, files, strict=True):
        if not inside:
            raise FileNotFoundError(f"{folder} holds no image files.")
    y = [number for number, inside in enumerate(files) for _ in inside]
    every = [path for inside in files for path in inside]
    return image_set(name, every, y, [folder.name for folder in folders], size)


def load_breakhis400x(*, download: bool = False) -> Labelled:
    """Load ``breakhis400x.npz``: 1,693 images of 64 x 96 pixels, the 400-fold magnification only."""
    path = find_file(
        "breakhis400x.npz",
        "Save it there with the arrays X (n x 64 x 96 x 3, uint8), y (n class numbers) and class_names, of "
        f"the 400X images of BreakHis. {BREAKHIS.advice} Or use the data set 'breakhis', which reads these "
        "image files directly.",
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


_ROOT = "n00001740"
_LEVEL = 4
_SUBCLASSES = 8

_COMMIT = "f83be509107e89f41dde0e4e8e7f8be051fbb891"
_URL = f"https://raw.githubusercontent.com/MadryLab/BREEDS-Benchmarks/{_COMMIT}/imagenet_class_hierarchy/modified"
_FILES = {
    "class_hierarchy.txt": "sha256:039cfaddf9732855b93f7899ba4b5ba6d80f8dbe15cfaad566f575b6c8ce0216",
    "node_names.txt": "sha256:322af45711ed69a7b199f11225bd964c7dae71df3c586498bef2f7c9e031dedb",
    "dataset_class_info.json": "sha256:be90503d57a001f95e094a81dc4de90772bfc58546ca58061d6474799829afd0",
}
_HIERARCHY_FOLDERS = ("imagenet_class_hierarchy/modified", "breeds", "imagenet")
IMAGENET = Origin(
    "ImageNet (ILSVRC 2012)",
    paths=("imagenet/train", "ILSVRC/Data/CLS-LOC/train"),
    advice="Its training images need an account: https://www.image-net.org/download.php "
    "(ILSVRC2012_img_train.tar). Unpack them so that each class has a folder n01440764, n01443537, ...",
)


class Hierarchy:
    """The BREEDS tree above the ImageNet classes, read from its three official files.

    Parameters
    ----------
    folder : Path
        Folder with ``class_hierarchy.txt`` (lines "parent child"), ``node_names.txt`` (lines "node<TAB>name")
        and ``dataset_class_info.json`` (a list of [number, node, name], one for each ImageNet class).
    """

    def __init__(self, folder: Path):
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{missing[0]} is not in {folder}; get it from {_URL}/{missing[0]}")
        info = json.loads((folder / "dataset_class_info.json").read_text(encoding="utf-8"))
        self.leaves = {node for _, node, _ in info}
        self.children: dict[str, set[str]] = defaultdict(set)
        for line in (folder / "class_hierarchy.txt").read_text(encoding="utf-8").splitlines():
            parent, child = line.split()
            self.children[parent].add(child)
        lines = (folder / "node_names.txt").read_text(encoding="utf-8").splitlines()
        self.names = dict(line.split("\t", 1) for line in lines if "\t" in line)

    def below(self, node: str) -> set[str]:
        """Return the ImageNet classes at or below a node."""
        if node in self.leaves:
            return {node}
        return {leaf for child in self.children.get(node, ()) for leaf in self.below(child)}

    def level(self, depth: int) -> list[str]:
        """Return the nodes whose longest path from the root has this many steps, with a class below them."""
        longest: dict[str, int] = {}
        todo = {_ROOT}
        for steps in range(len(self.children) + 1):
            longest |= dict.fromkeys(todo, steps)
            todo = {child for node in todo for child in self.children.get(node, ())}
            if not todo:
                break
        else:
            raise ValueError("the hierarchy has a cycle; is it the official one?")
        return sorted(node for node, steps in longest.items() if steps == depth and self.below(node))

    def entity30(self) -> dict[str, list[str]]:
        """Return the ImageNet classes of each superclass of Entity30, four for each.

        These are the superclasses at level 4 with at least eight classes. Of the eight classes, the source
        half of the "good" split is used, in which the two halves are similar, as in the paper.
        """
        nodes = [node for node in self.level(_LEVEL) if len(self.below(node)) >= _SUBCLASSES]
        return {node: self._good_half(node) for node in nodes}

    def _good_half(self, node: str) -> list[str]:
        """Split the classes of a superclass into two halves, branch by branch, and return the first."""
        branches = sorted(self._inner_children(node))
        while len(branches) == 1:
            branches = sorted(self._inner_children(branches[0]))
        classes = sorted((sorted(self.below(branch)) for branch in branches), key=len, reverse=True)
        half = _SUBCLASSES // 2
        first: list[str] = []
        second: list[str] = []
        for branch in classes:
            # A branch with one class goes to the first half until it is full; larger branches are split.
            cut = int(len(first) < half) if len(branch) == 1 else min(len(branch) // 2, half - len(first))
            room = half - len(second)
            first += branch[:cut]
            second += branch[cut : cut + room]
        if not len(first) == len(second) == half:
            raise ValueError(
                f"the hierarchy gives {node} no two halves of {half} classes; is it the official one?"
            )
        return first

    def _inner_children(self, node: str) -> set[str]:
        return {child for child in self.children.get(node, ()) if self.below(child)}


def load_entity30(*, size: int = 64, download: bool = False) -> Labelled:
    """Load Entity30 as uint8 images of shape (n, size, size, 3), 64 pixels wide as in the paper.

    Needs the training images of ImageNet, which require an account, and the three files of the BREEDS
    hierarchy, which can be downloaded.
    """
    images = IMAGENET.find()
    hierarchy = Hierarchy(_hierarchy_folder(download))
    files: list[Path] = []
    y: list[int] = []
    superclasses = hierarchy.entity30()
    for number, classes in enumerate(superclasses.values()):
        for wnid in classes:
            if not (images / wnid).is_dir():
                raise FileNotFoundError(f"{images} has no folder {wnid}. {IMAGENET.advice}")
            members = image_files(images / wnid)
            files += members
            y += [number] * len(members)
    names = [hierarchy.names.get(node, node) for node in superclasses]
    return image_set("entity30", files, y, names, size)


def _hierarchy_folder(allowed: bool, url: str = _URL) -> Path:
    for place in _HIERARCHY_FOLDERS:
        hierarchy = find_first((f"{place}/class_hierarchy.txt",))
        if hierarchy is not None:
            return hierarchy.parent
    if not allowed:
        raise FileNotFoundError(
            f"the BREEDS hierarchy was not found. Put {', '.join(_FILES)} of {_URL}/ into the folder that "
            "OSLS_DATA names, in its subfolder breeds, or pass download=True to fetch them."
        )
    folder = cache_folder() / "data" / "breeds"
    for name, checksum in _FILES.items():
        download(RemoteFile(f"{url}/{name}", checksum), folder / name)
    return folder
