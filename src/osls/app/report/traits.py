"""How a group of rows differs from the others: columns of tables, words of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from osls._core.arrays import Floats, Ints
from osls.app.answer import Answer
from osls.app.report.wording import number, percent, shown

_MAX_TRAITS = 5
_MAX_APART = 3
_MAX_WORDS = 10
_SAMPLE = 3000
_FEWEST_KNOWN = 10
# Differences below half a standard deviation, or a fifth of the rows, are not worth a sentence.
_NOTABLE_SPREADS = 0.5
_NOTABLE_SHARE = 0.2
_MAX_LEVELS = 50
_TEXT_LENGTH = 30
_MAX_TELLING = 12
_LONGEST_TEXT = 8_000
# Header lines of e-mails (but the subject), addresses and links say who wrote, not what about.
_HEADER = re.compile(r"^(?!subject:)[A-Za-z][\w-]{1,30}:[ \t].*$", re.IGNORECASE | re.MULTILINE)
_WROTE = re.compile(r"^.{0,200}\b(?:writes|wrote|said)\b:?[ \t]*$", re.IGNORECASE | re.MULTILINE)
_ADDRESS_MARKS = ("@", "://", "www.")
# Words that letters and posts have on any subject.
_MAIL_WORDS = """
subject fwd cc bcc sent article newsgroup newsgroups nntp posting organization lines host reply
writes wrote com edu org net gov www http https html dont doesnt didnt cant wont isnt ive im
thats theres youre whats does did don doesn didn isn wasn couldn wouldn shouldn ll ve re
just like use used using know think thing things say says said people way time make want good need
really right going got new let lot sure try look come work old long little better best yes point
question problem thanks thank hello dear please hi regards sincerely anybody anyone
"""
_STOP = sorted(ENGLISH_STOP_WORDS | set(_MAIL_WORDS.split()))


@dataclass(frozen=True)
class Trait:
    """One difference: the sentence, the column it is about, and how strong it is."""

    sentence: str
    column: str
    strength: float
    words: tuple[str, ...] = ()


def id_columns(answer: Answer) -> list[str]:
    """Columns that the predictions repeat from the target so that a row can be found again."""
    made = {"predicted", "novel", "group", *(f"p_{name}" for name in answer.classes)}
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
    """Traits of every group against the rows called known and, for words, against the other groups."""
    rng = np.random.default_rng(seed)
    in_groups = np.concatenate(groups)
    known = np.setdiff1d(np.arange(len(answer.predictions)), in_groups, assume_unique=True)
    background = answer.target_rows.iloc[_sampled(known, rng)]
    if len(known) < _FEWEST_KNOWN:
        # The target has hardly any known rows, so the labelled rows stand for them.
        background = answer.source_rows.iloc[_sampled(np.arange(len(answer.source_rows)), rng)]
    frames = [answer.target_rows.iloc[_sampled(rows, rng)] for rows in groups]
    by_group: list[list[Trait]] = [[] for _ in groups]
    for column in data_columns(answer) if answer.kind != "images" else []:
        if column not in background.columns:
            continue
        parts = [frame[column] for frame in frames]
        if _mean_length(background[column]) > _TEXT_LENGTH or answer.kind == "text":
            words = telling_words([p.dropna().astype(str) for p in parts], background[column].dropna())
            for traits, telling in zip(by_group, words, strict=True):
                traits += _word_trait(column, telling)
            continue
        for traits, part in zip(by_group, parts, strict=True):
            traits += _column_traits(column, part, background[column])
    return [tuple(sorted(traits, key=lambda t: -t.strength)[:_MAX_TRAITS]) for traits in by_group]


def apart_from_each_other(
    answer: Answer, groups: Sequence[Ints], *, seed: int = 0
) -> list[tuple[Trait, ...]]:
    """Traits of every group against the rows of the other groups; telling words regard them already."""
    if len(groups) < 2 or answer.kind != "table":
        return [() for _ in groups]
    rng = np.random.default_rng(seed)
    frames = [answer.target_rows.iloc[_sampled(rows, rng)] for rows in groups]
    columns = [c for c in data_columns(answer) if _mean_length(answer.target_rows[c]) <= _TEXT_LENGTH]
    found = []
    for j, frame in enumerate(frames):
        others = pd.concat([other for i, other in enumerate(frames) if i != j])
        traits = [trait for c in columns for trait in _column_traits(c, frame[c], others[c])]
        found.append(tuple(sorted(traits, key=lambda t: -t.strength)[:_MAX_APART]))
    return found


def _sampled(rows: Ints, rng: np.random.Generator) -> Ints:
    return rows if len(rows) <= _SAMPLE else np.sort(rng.choice(rows, _SAMPLE, replace=False))


def _mean_length(values: pd.Series[Any]) -> float:
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


# -- Words of texts --------------------------------------------------------------------------------------


def telling_words(groups: Sequence[Iterable[str]], background: Iterable[str]) -> list[tuple[str, ...]]:
    """Words that are common in a group and rare elsewhere, the most telling first.

    Class-based TF-IDF on raw text: a word's term frequency is the share of the group's texts that have it
    (one long text should not speak for all), its inverse class frequency the logarithm of how rare it is in
    the average class, the known texts being one more class. Stop words, numbers, e-mail headers, addresses
    and links are left out; of singular and plural only the more telling is kept.

    Examples
    --------
    >>> from osls.app.report.traits import telling_words
    >>> space = ["the orbit of the moon", "a moon in orbit", "the orbit was high"]
    >>> telling_words([space], ["the car was fast", "a fast car", "the engine of a car"])
    [('orbit', 'moon', 'high')]
    """
    texts = [[_cleaned(t) for t in group] for group in (*groups, background)]
    sizes = np.array([max(1, len(part)) for part in texts])
    words = r"[^\W\d_]{3,}"
    vectorizer = CountVectorizer(binary=True, token_pattern=words, stop_words=_STOP)
    try:
        counts = vectorizer.fit_transform([t for part in texts for t in part])
    except ValueError:  # no text has a single usable word
        return [() for _ in groups]
    ends = np.cumsum([0, *(len(part) for part in texts)])
    by_class = np.vstack(
        [counts[a:b].sum(axis=0).A1 if b > a else np.zeros(counts.shape[1]) for a, b in pairwise(ends)]
    )
    vocabulary = vectorizer.get_feature_names_out()
    return [_telling_words_of(by_class, sizes, j, vocabulary) for j in range(len(groups))]


def without_header(text: str) -> str:
    r"""A letter without its header, but for the subject; any other text as it is.

    Examples
    --------
    >>> from osls.app.report.traits import without_header
    >>> without_header("From: a@b.org\nSubject: The moon\nLines: 2\n\nIs it far?")
    'The moon. Is it far?'
    """
    head, blank, body = text.lstrip().partition("\n\n")
    lines = head.splitlines()
    if not blank or sum(bool(_HEADER.match(line)) for line in lines) < 2:
        return text
    subject = next((line[8:].strip() for line in lines if line.lower().startswith("subject:")), "")
    return f"{subject.rstrip('.')}. {body}" if subject else body


def _cleaned(text: str) -> str:
    body = _WROTE.sub(" ", _HEADER.sub(" ", str(text)[:_LONGEST_TEXT]))
    return " ".join(word for word in body.split() if not any(mark in word for mark in _ADDRESS_MARKS))


def _telling_words_of(by_class: Floats, sizes: Floats, j: int, vocabulary: Sequence[str]) -> tuple[str, ...]:
    share = by_class / sizes[:, None]
    others = np.delete(share, j, axis=0).mean(axis=0)
    # Half a text more elsewhere, so that a word nobody else has does not win by its absence alone.
    rarity = np.log(share[j].clip(1e-12) / (others + 0.5 / sizes.sum()))
    few = max(1, min(3, int(sizes[j]) // 10))
    score = np.where(by_class[j] >= few, share[j] * rarity, -np.inf)
    chosen: list[str] = []
    for i in np.argsort(-score, kind="stable"):
        if score[i] <= 0 or len(chosen) == _MAX_TELLING:
            break
        if not any(_same_stem(vocabulary[i], word) for word in chosen):
            chosen.append(str(vocabulary[i]))
    return tuple(chosen)


def _same_stem(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and long[len(short) :] in ("", "s", "es", "ed", "ing")
