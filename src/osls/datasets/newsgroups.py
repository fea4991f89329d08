"""20 Newsgroups, as texts, as TF-IDF weights, as features of a frozen encoder, and as both side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from osls.datasets import encoders
from osls.datasets.loading import Labelled, cache_folder, data_folders

_FILE = "20news-bydate_py3.pkz"


def newsgroup_texts(remove: tuple[str, ...] = (), *, download: bool = False) -> Any:
    """Return the 18,846 posts of 20 Newsgroups: ``data``, ``target`` and ``target_names``.

    ``remove`` names what to strip: "headers", "footers", "quotes".
    """
    from sklearn.datasets import fetch_20newsgroups

    folders = [folder for folder in data_folders() if (folder / _FILE).exists()]
    if not folders and not download:
        raise FileNotFoundError(
            "20 Newsgroups was not found: set the environment variable OSLS_DATA to a folder with "
            f"scikit-learn's {_FILE} (fetch_20newsgroups(data_home=...) makes it), or pass download=True to "
            "let scikit-learn fetch it."
        )
    # scikit-learn downloads the official file and checks its SHA-256.
    home = folders[0] if folders else cache_folder() / "data"
    return fetch_20newsgroups(
        subset="all", remove=remove, data_home=str(home), download_if_missing=not folders
    )


def load_newsgroups(remove: tuple[str, ...] = (), *, download: bool = False) -> Labelled:
    """Load 20 Newsgroups as a CSR matrix of TF-IDF weights."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    news = newsgroup_texts(remove, download=download)
    words = TfidfVectorizer(sublinear_tf=True, min_df=3, max_df=0.5, max_features=50_000, dtype=np.float32)
    return Labelled(words.fit_transform(news.data), news.target, tuple(news.target_names))


def load_encoded_newsgroups(
    remove: tuple[str, ...] = (), *, encoder: Any = "minilm", chunks: int = 1, download: bool = False
) -> Labelled:
    """Load 20 Newsgroups as the features of a text encoder (all-MiniLM-L6-v2: 384)."""
    news = newsgroup_texts(remove, download=download)
    X = encoders.cached(encoders.text_encoder(encoder, chunks=chunks), news.data)
    return Labelled(X, news.target, tuple(news.target_names))


def load_newsgroups_both_ways(
    remove: tuple[str, ...] = (), *, download: bool = False, **encoded: Any
) -> Labelled:
    """Load 20 Newsgroups as TF-IDF weights beside the features of a text encoder, both of length 1."""
    words = load_newsgroups(remove, download=download)
    features = load_encoded_newsgroups(remove, download=download, **encoded)
    X = sparse.hstack([words.X, sparse.csr_matrix(features.X)], format="csr")
    return Labelled(X, words.y, words.class_names)
