"""Entity30: thirty superclasses of ImageNet classes, from the BREEDS hierarchy (Santurkar et al., 2020)."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from osls.datasets.download import Origin, RemoteFile, download, find_first
from osls.datasets.image_sets import image_files, image_set
from osls.datasets.loading import Labelled, cache_folder

__all__ = ["Hierarchy", "load_entity30"]

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
            raise ValueError("the hierarchy has a circle; is it the official one?")
        return sorted(node for node, steps in longest.items() if steps == depth and self.below(node))

    def entity30(self) -> dict[str, list[str]]:
        """Return the ImageNet classes of each superclass of Entity30, four for each.

        These are the superclasses at level 4 that have eight classes or more, and of their eight the source
        half of the "good" split, in which the two halves resemble each other. It is what the paper used.
        """
        nodes = [node for node in self.level(_LEVEL) if len(self.below(node)) >= _SUBCLASSES]
        return {node: self._good_half(node) for node in nodes}

    def _good_half(self, node: str) -> list[str]:
        """Deal the classes of a superclass into two halves, branch by branch, and return the first."""
        branches = sorted(self._inner_children(node))
        while len(branches) == 1:
            branches = sorted(self._inner_children(branches[0]))
        classes = sorted((sorted(self.below(branch)) for branch in branches), key=len, reverse=True)
        half = _SUBCLASSES // 2
        first: list[str] = []
        second: list[str] = []
        for branch in classes:
            # A branch of one goes to the first half while that has room, a larger one to both.
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

    Needs the training images of ImageNet, which only their owners give out, and the three files of the BREEDS
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
            found = image_files(images / wnid)
            files += found
            y += [number] * len(found)
    names = [hierarchy.names.get(node, node) for node in superclasses]
    return image_set("entity30", files, y, names, size)


def _hierarchy_folder(allowed: bool, url: str = _URL) -> Path:
    for place in _HIERARCHY_FOLDERS:
        found = find_first((f"{place}/class_hierarchy.txt",))
        if found is not None:
            return found.parent
    if not allowed:
        raise FileNotFoundError(
            f"the BREEDS hierarchy was not found. Put {', '.join(_FILES)} of {_URL}/ into the folder that "
            "OSLS_DATA names, in its subfolder breeds, or pass download=True to fetch them."
        )
    folder = cache_folder() / "data" / "breeds"
    for name, checksum in _FILES.items():
        download(RemoteFile(f"{url}/{name}", checksum, max_bytes=1_000_000), folder / name)
    return folder
