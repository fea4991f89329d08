"""What sets a group of rows apart, in plain words: columns for tables, words for texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from osls._core.arrays import Ints
from osls.app.answer import Answer
from osls.app.report.vocabulary import telling_words
from osls.app.report.words import number, percent, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Trait", "data_columns", "id_columns", "text_column", "traits_of"]

_MAX_TRAITS = 5
_MAX_WORDS = 10
_SAMPLE = 3000
_FEWEST_KNOWN = 10
# Differences below half a standard deviation, or a fifth of the rows, are not worth a sentence.
_NOTABLE_SPREADS = 0.5
_NOTABLE_SHARE = 0.2
_MAX_LEVELS = 50
_TEXT_LENGTH = 30


@dataclass(frozen=True)
class Trait:
    """One difference: the sentence, the column it is about, and how strong it is."""

    sentence: str
    column: str
    strength: float
    words: tuple[str, ...] = ()


def id_columns(answer: Answer) -> list[str]:
    """Columns that the predictions repeat from the target so that a row can be found again."""
    made = {"predicted", "novel", *(f"p_{name}" for name in answer.classes)}
    return [c for c in answer.predictions.columns if c not in made]


def data_columns(answer: Answer) -> list[str]:
    """Columns of the target that describe a row; ids do not."""
    ids = set(id_columns(answer))
    return [c for c in answer.target_rows.columns if c not in ids]


def text_column(answer: Answer) -> str | None:
    """The column with the longest texts, if there is one."""
    named = answer.settings.get("text_column")
    if named in answer.target_rows.columns:
        return str(named)
    lengths = {c: _mean_length(answer.target_rows[c]) for c in data_columns(answer)}
    longest = max(lengths, key=lambda c: lengths[c], default=None)
    return longest if longest is not None and lengths[longest] > 0 else None


def traits_of(answer: Answer, groups: Sequence[Ints], *, seed: int = 0) -> list[tuple[Trait, ...]]:
    """Traits of every group, held against the rows that were called known (for words: each other too)."""
    rng = np.random.default_rng(seed)
    in_groups = np.concatenate(groups)
    known = np.setdiff1d(np.arange(len(answer.predictions)), in_groups, assume_unique=True)
    background = answer.target_rows.iloc[_sampled(known, rng)]
    if len(known) < _FEWEST_KNOWN:
        # Hardly any known row in the target: the labelled rows say what known looks like.
        background = answer.source_rows.iloc[_sampled(np.arange(len(answer.source_rows)), rng)]
    frames = [answer.target_rows.iloc[_sampled(rows, rng)] for rows in groups]
    found: list[list[Trait]] = [[] for _ in groups]
    for column in data_columns(answer) if answer.kind != "images" else []:
        if column not in background.columns:
            continue
        parts = [frame[column] for frame in frames]
        if _mean_length(background[column]) > _TEXT_LENGTH or answer.kind == "text":
            words = telling_words([p.dropna().astype(str) for p in parts], background[column].dropna())
            for traits, telling in zip(found, words, strict=True):
                traits += _word_trait(column, telling)
            continue
        for traits, part in zip(found, parts, strict=True):
            traits += _column_traits(column, part, background[column])
    return [tuple(sorted(traits, key=lambda t: -t.strength)[:_MAX_TRAITS]) for traits in found]


def _sampled(rows: Ints, rng: np.random.Generator) -> Ints:
    return rows if len(rows) <= _SAMPLE else np.sort(rng.choice(rows, _SAMPLE, replace=False))


def _mean_length(values: pd.Series[Any]) -> float:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    if any(check(values) for check in (is_numeric_dtype, is_bool_dtype, is_datetime64_any_dtype)):
        return 0.0
    texts = values.dropna().head(500).astype(str)
    return float(texts.str.len().mean()) if len(texts) else 0.0


def _word_trait(column: str, words: Sequence[str]) -> list[Trait]:
    if not words:
        return []
    listed = ", ".join(words[:_MAX_WORDS])
    # Words always come first: they are what a person recognises.
    return [Trait(f"telling words: {listed}", column, np.inf, tuple(words[:_MAX_WORDS]))]


def _column_traits(name: str, group: pd.Series[Any], known: pd.Series[Any]) -> list[Trait]:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    traits = _missing_trait(name, group, known)
    group, known = group.dropna(), known.dropna()
    if len(group) == 0 or len(known) < 2:
        return traits
    if is_datetime64_any_dtype(known) and is_datetime64_any_dtype(group):
        return traits + _date_trait(name, group, known)
    if is_numeric_dtype(known) and is_numeric_dtype(group) and not is_bool_dtype(known):
        return traits + _number_trait(name, group.to_numpy(dtype=float), known.to_numpy(dtype=float))
    return traits + _level_trait(name, group.astype(str), known.astype(str))


def _number_trait(name: str, group: Any, known: Any) -> list[Trait]:
    group, known = group[np.isfinite(group)], known[np.isfinite(known)]
    if len(group) == 0 or len(known) < 2:
        return []
    here, there = float(group.mean()), float(known.mean())
    # The spread within both: a column that hardly varies among the known rows is not telling by that alone.
    spread = float(np.sqrt((known.var() + group.var()) / 2)) or abs(here - there)
    strength = abs(here - there) / spread if spread > 0 else 0.0
    if strength < _NOTABLE_SPREADS:
        return []
    direction = "higher" if here > there else "lower"
    return [
        Trait(f"{shown(name, 40)} is {direction}: {number(here)} against {number(there)}", name, strength)
    ]


def _date_trait(name: str, group: pd.Series[Any], known: pd.Series[Any]) -> list[Trait]:
    here, there = group.median(), known.median()
    spread = known.std().total_seconds()
    strength = abs((here - there).total_seconds()) / spread if spread > 0 else 0.0
    if strength < _NOTABLE_SPREADS:
        return []
    direction = "later" if here > there else "earlier"
    sentence = f"{shown(name, 40)} is {direction}: mostly around {here:%Y-%m-%d} against {there:%Y-%m-%d}"
    return [Trait(sentence, name, strength)]


def _level_trait(name: str, group: pd.Series[Any], known: pd.Series[Any]) -> list[Trait]:
    shares, usual = group.value_counts(normalize=True), known.value_counts(normalize=True)
    if len(shares) > _MAX_LEVELS:
        return []
    difference = shares.sub(usual, fill_value=0.0)
    # Of two levels that trade places, the one that became common says more.
    level = (difference.abs() + 1e-6 * difference).idxmax()
    if abs(difference[level]) < _NOTABLE_SHARE:
        return []
    here, there = float(shares.get(level, 0.0)), float(usual.get(level, 0.0))
    sentence = (
        f"{shown(name, 40)} is '{shown(level, 40)}' in {percent(here)} of the rows against {percent(there)}"
    )
    # As many standard deviations of a yes-or-no column as the difference makes.
    spread = np.sqrt(max(there * (1 - there), 0.04))
    return [Trait(sentence, name, abs(here - there) / float(spread))]


def _missing_trait(name: str, group: pd.Series[Any], known: pd.Series[Any]) -> list[Trait]:
    here, there = float(group.isna().mean()), float(known.isna().mean())
    if abs(here - there) < _NOTABLE_SHARE:
        return []
    spread = np.sqrt(max(there * (1 - there), 0.04))
    sentence = f"{shown(name, 40)} is missing in {percent(here)} of the rows against {percent(there)}"
    return [Trait(sentence, name, abs(here - there) / float(spread))]
