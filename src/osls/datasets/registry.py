"""Data sets by name, with the paper's numbers of source and novel classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from osls._core.names import unknown
from osls.datasets import encoders
from osls.datasets.array_sets import CIFAR10, CIFAR100, load_cifar, load_digits, load_mnist, load_npz
from osls.datasets.image_sets import (
    load_breakhis,
    load_breakhis400x,
    load_dermnet,
    load_entity30,
    load_utkface,
)
from osls.datasets.loading import Labelled
from osls.datasets.newsgroups import load_encoded_newsgroups, load_newsgroups, load_newsgroups_both_ways
from osls.datasets.single_cell import load_cells, load_tabula_muris


@dataclass(frozen=True)
class Dataset:
    """A labelled data set, how many of its classes become novel (a range), and a limit on its rows.

    Parameters
    ----------
    name : str
        Its key in ``DATASETS``.
    load : callable
        Returns a :class:`Labelled`, which unpacks as ``X, y``. With ``download=True`` it may download missing
        files; loaders of image files also take ``size``, the side in pixels.
    novel : (int, int)
        Smallest and largest number of novel classes. For the paper's data sets both are the paper's number.
    max_rows : int, optional
        Number of rows to draw from a large data set.
    classes : int, optional
        Number of its classes.
    novel_groups : tuple of tuples of class numbers
        If given, one novel class is drawn from each group, instead of any classes.
    """

    name: str
    load: Callable[..., Labelled]
    novel: tuple[int, int]
    max_rows: int | None = None
    classes: int | None = None
    novel_groups: tuple[tuple[int, ...], ...] = ()

    def draw_novel(self, rng: np.random.RandomState) -> int | list[int]:
        """Draw the number of novel classes, or a list of them if the data set has ``novel_groups``.

        Examples
        --------
        >>> import numpy as np
        >>> from osls.datasets import load_dataset
        >>> rng = np.random.RandomState(0)
        >>> load_dataset("cifar100").draw_novel(rng)
        15
        >>> load_dataset("utkface").draw_novel(rng)  # the last age group, over 70
        [7]
        """
        if self.novel_groups:
            return [int(rng.choice(group)) for group in self.novel_groups]
        return int(rng.randint(self.novel[0], self.novel[1] + 1))


def _encoded_images(
    load: Callable[..., Labelled],
    *,
    encoder: Any = "efficientnet",
    size: int = 64,
    stages: int = 1,
    mirror: bool = False,
    download: bool = False,
) -> Labelled:
    """Load a data set of images as the features of an image encoder (EfficientNet-Lite0: 1280)."""
    # Files are read at the size that the encoder wants; arrays have a size of their own.
    at_size = {"size": size} if "size" in signature(load).parameters else {}
    images = load(download=download, **at_size)
    encode = encoders.image_encoder(encoder, size=size, stages=stages, mirror=mirror)
    X = encoders.cached(encode, np.asarray(images.X))
    return Labelled(X, images.y, images.class_names)


_BARE = ("headers", "footers", "quotes")
# One benign and one malignant tumour are novel.
_TUMOURS = ((0, 1, 2, 3), (4, 5, 6, 7))
_cifar10, _cifar100 = partial(load_cifar, CIFAR10), partial(load_cifar, CIFAR100)


def _table(name: str, classes: int, novel: tuple[int, int], max_rows: int | None = None) -> Dataset:
    return Dataset(name, partial(load_npz, name), novel, max_rows, classes)


DATASETS = {
    d.name: d
    for d in (
        Dataset("digits", load_digits, novel=(1, 3), classes=10),
        _table("letter", 26, novel=(4, 4)),
        _table("penbased", 10, novel=(1, 3)),
        _table("satimage", 6, novel=(1, 2)),
        _table("drybean", 7, novel=(1, 2)),
        Dataset("mnist", load_mnist, novel=(1, 3), max_rows=10_000, classes=10),
        _table("usps", 10, novel=(1, 3)),
        _table("avila", 12, novel=(1, 3)),
        _table("shuttle", 7, novel=(1, 2), max_rows=20_000),
        Dataset("newsgroups", load_newsgroups, novel=(4, 4), classes=20),
        Dataset("newsgroups-bare", partial(load_newsgroups, _BARE), novel=(4, 4), classes=20),
        _table("covtype", 7, novel=(1, 2), max_rows=20_000),
        # The paper's data sets.
        Dataset("cifar10", _cifar10, novel=(1, 1), classes=10),
        Dataset("cifar100", _cifar100, novel=(15, 15), classes=100),
        Dataset("entity30", load_entity30, novel=(6, 6), classes=30),
        Dataset("tabula-muris", load_tabula_muris, novel=(29, 29), classes=57),
        Dataset("dermnet", load_dermnet, novel=(5, 5), classes=23),
        Dataset("breakhis", load_breakhis, novel=(2, 2), classes=8, novel_groups=_TUMOURS),
        Dataset("utkface", load_utkface, novel=(1, 1), classes=8, novel_groups=((7,),)),
        # Substitutes for the paper's data sets, and other single-cell data.
        Dataset("breakhis400x", load_breakhis400x, novel=(2, 2), classes=8, novel_groups=_TUMOURS),
        Dataset("zeisel", partial(load_cells, "zeisel_mouse_brain"), novel=(1, 2), classes=7),
        Dataset("citeseq", partial(load_cells, "citeseq_cbmc"), novel=(2, 4), classes=13),
        Dataset("pbmc3k", partial(load_cells, "pbmc3k_lognorm"), novel=(1, 2), classes=8),
        Dataset("worm", partial(load_cells, "worm_neuron_cell"), novel=(1, 3), classes=10),
        # Features of frozen encoders.
        Dataset("newsgroups-minilm", load_encoded_newsgroups, novel=(4, 4), classes=20),
        Dataset("newsgroups-bare-minilm", partial(load_encoded_newsgroups, _BARE), novel=(4, 4), classes=20),
        Dataset("newsgroups-both", load_newsgroups_both_ways, novel=(4, 4), classes=20),
        Dataset("newsgroups-bare-both", partial(load_newsgroups_both_ways, _BARE), novel=(4, 4), classes=20),
        Dataset(
            "breakhis400x-effnet",
            partial(_encoded_images, load_breakhis400x),
            novel=(2, 2),
            classes=8,
            novel_groups=_TUMOURS,
        ),
        Dataset("cifar10-effnet", partial(_encoded_images, _cifar10), novel=(1, 1), classes=10),
        Dataset("cifar100-effnet", partial(_encoded_images, _cifar100), novel=(15, 15), classes=100),
        Dataset(
            "utkface-effnet",
            partial(_encoded_images, load_utkface),
            novel=(1, 1),
            classes=8,
            novel_groups=((7,),),
        ),
    )
}


def load_dataset(name: str) -> Dataset:
    """Return the data set of this name."""
    if name not in DATASETS:
        raise ValueError(unknown("data set", name, DATASETS))
    return DATASETS[name]
