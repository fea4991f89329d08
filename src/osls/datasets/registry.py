"""Data sets by name: from scikit-learn, or from the folder that ``OSLS_DATA`` names."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from osls._typing import AnyArray

__all__ = ["DATASETS", "Dataset", "load_dataset"]

Loaded = tuple[AnyArray, AnyArray]


@dataclass(frozen=True)
class Dataset:
    """A labelled data set, how many of its classes become novel (a range), and a cap on its rows."""

    name: str
    load: Callable[[], Loaded]
    novel: tuple[int, int]
    max_rows: int | None = None


def data_folder() -> Path:
    """Return the folder that OSLS_DATA names, or say how to set it."""
    folder = os.environ.get("OSLS_DATA")
    if not folder:
        raise FileNotFoundError(
            "this data set does not ship with scikit-learn: set the environment variable OSLS_DATA to the "
            "folder that holds its .npz file."
        )
    return Path(folder)


def _npz(name: str) -> Callable[[], Loaded]:
    def load() -> Loaded:
        path = data_folder() / f"{name}.npz"
        if not path.exists():
            raise FileNotFoundError(f"{path.name} is not in the folder that OSLS_DATA names.")
        with np.load(path, allow_pickle=False) as file:
            if "X" in file:
                return np.asarray(file["X"], dtype=np.float32), np.asarray(file["y"])
            X = np.concatenate([file["X_train"], file["X_test"]])
            y = np.concatenate([file["y_train"], file["y_test"]])
        return X.reshape(len(X), -1).astype(np.float32) / 255, y

    return load


def _digits() -> Loaded:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return np.asarray(X, dtype=np.float32), y


def _newsgroups(*remove: str) -> Callable[[], Loaded]:
    def load() -> Loaded:
        from sklearn.datasets import fetch_20newsgroups
        from sklearn.feature_extraction.text import TfidfVectorizer

        try:
            news = fetch_20newsgroups(
                subset="all", remove=remove, data_home=str(data_folder()), download_if_missing=False
            )
        except OSError:
            raise FileNotFoundError(
                "20 Newsgroups is not in the folder that OSLS_DATA names: put scikit-learn's "
                "20news-bydate_py3.pkz there (fetch_20newsgroups(data_home=...) makes it)."
            ) from None
        words = TfidfVectorizer(
            sublinear_tf=True, min_df=3, max_df=0.5, max_features=50_000, dtype=np.float32
        )
        return words.fit_transform(news.data), news.target

    return load


DATASETS = {
    d.name: d
    for d in (
        Dataset("digits", _digits, novel=(1, 3)),
        Dataset("letter", _npz("letter"), novel=(4, 4)),
        Dataset("penbased", _npz("penbased"), novel=(1, 3)),
        Dataset("satimage", _npz("satimage"), novel=(1, 2)),
        Dataset("drybean", _npz("drybean"), novel=(1, 2)),
        Dataset("mnist", _npz("mnist"), novel=(1, 3), max_rows=10_000),
        Dataset("usps", _npz("usps"), novel=(1, 3)),
        Dataset("avila", _npz("avila"), novel=(1, 3)),
        Dataset("shuttle", _npz("shuttle"), novel=(1, 2), max_rows=20_000),
        Dataset("newsgroups", _newsgroups(), novel=(4, 4)),
        Dataset("newsgroups-bare", _newsgroups("headers", "footers", "quotes"), novel=(4, 4)),
        Dataset("covtype", _npz("covtype"), novel=(1, 2), max_rows=20_000),
    )
}


def load_dataset(name: str) -> Dataset:
    """Look a data set up by name."""
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(DATASETS)}.{hint}")
    return DATASETS[name]
