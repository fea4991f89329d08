"""Texts as word numbers, and a vector for each word: what the paper's text network reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from osls._core.arrays import AnyArray, Floats

__all__ = ["TEXTS", "number_words", "read_vectors", "texts_of"]

# The sizes of the network's authors.
MAX_WORDS = 20_000
MAX_LENGTH = 1_000
_DIMENSIONS = 100
_WORD = re.compile(r"[a-z0-9]+")

# Data sets that are texts, and what is stripped from them.
TEXTS: dict[str, tuple[str, ...]] = {
    "newsgroups": (),
    "newsgroups-bare": ("headers", "footers", "quotes"),
}


def texts_of(name: str, **options: bool) -> tuple[list[str], AnyArray]:
    """Return the texts of a data set and their classes."""
    from osls.datasets.newsgroups import newsgroup_texts

    if name not in TEXTS:
        raise ValueError(f"the network 'text-cnn' reads texts, and {name!r} is none of {', '.join(TEXTS)}.")
    news = newsgroup_texts(TEXTS[name], **options)
    return list(news.data), np.asarray(news.target)


def number_words(
    texts: Sequence[str], *, max_words: int = MAX_WORDS, max_length: int = MAX_LENGTH
) -> tuple[AnyArray, list[str]]:
    """Number the most frequent words from 1; other words are dropped, short texts padded with 0.

    Examples
    --------
    >>> from osls.app.bench.words import number_words
    >>> rows, words = number_words(["the cat", "The cat and the hat"], max_words=2, max_length=4)
    >>> rows.tolist(), words
    ([[1, 2, 0, 0], [1, 2, 1, 0]], ['the', 'cat'])
    """
    split = [_WORD.findall(text.lower()) for text in texts]
    counts = Counter(word for words in split for word in words)
    # Of equally frequent words the first in the alphabet: the order must not depend on that of the texts.
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
    number = {word: i for i, word in enumerate(frequent, start=1)}
    rows = np.zeros((len(texts), max_length), dtype=np.int32)
    for row, words in zip(rows, split, strict=True):
        known = [number[word] for word in words if word in number][:max_length]
        row[: len(known)] = known
    return rows, frequent


def read_vectors(source: str, words: Sequence[str]) -> Floats:
    """Return one vector a word, after a zero vector for the padding.

    Parameters
    ----------
    source : str
        A GloVe file: a word and its numbers on each line. A plain file name is looked for in the folder that
        ``OSLS_DATA`` names. Or "random". Words that the file does not have get small random vectors.
    words : list of str
        The vocabulary, in the order of its numbers.
    """
    found = {} if source == "random" else _read_glove(_find(source), set(words))
    size = len(next(iter(found.values()))) if found else _DIMENSIONS
    vectors = np.random.default_rng(0).normal(scale=0.1, size=(len(words) + 1, size)).astype(np.float32)
    vectors[0] = 0
    for i, word in enumerate(words, start=1):
        if word in found:
            vectors[i] = found[word]
    return vectors


def _find(source: str) -> Path:
    from osls.datasets.loading import data_folders

    given = Path(source).expanduser()
    for path in (given, *(folder / given.name for folder in data_folders())):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"the word vectors {given.name} are not there: download glove.6B.zip from the GloVe page of Stanford "
        f"NLP, and put {given.name} from it into the folder that OSLS_DATA names; or set vectors: random."
    )


def _read_glove(path: Path, wanted: set[str]) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            word, _, numbers = line.partition(" ")
            if word in wanted:
                found[word] = np.array(numbers.split(), dtype=np.float32)
    sizes = {len(vector) for vector in found.values()}
    if len(sizes) != 1:
        raise ValueError(f"{path} is not a GloVe file: its words have {sorted(sizes) or 'no'} numbers.")
    return found
