"""Data sets as the features of a frozen encoder, computed once and kept in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from osls.datasets.labelled import Labelled
from osls.datasets.text import newsgroup_texts

__all__ = ["load_encoded_images", "load_encoded_newsgroups"]


def load_encoded_newsgroups(
    remove: tuple[str, ...] = (), *, encoder: Any = "minilm", chunks: int = 1, download: bool = False
) -> Labelled:
    """Load 20 Newsgroups as the features of a text encoder (all-MiniLM-L6-v2: 384)."""
    from osls.encoders import cached, text_encoder

    news = newsgroup_texts(remove, download=download)
    X = cached(text_encoder(encoder, chunks=chunks), news.data)
    return Labelled(X, news.target, tuple(news.target_names))


def load_encoded_images(
    load: Callable[..., Labelled], *, encoder: Any = "efficientnet", size: int = 64, download: bool = False
) -> Labelled:
    """Load a data set of images as the features of an image encoder (EfficientNet-Lite0: 1280)."""
    from osls.encoders import cached, image_encoder

    images = load(download=download)
    X = cached(image_encoder(encoder, size=size), np.asarray(images.X))
    return Labelled(X, images.y, images.class_names)
