"""What a column is, judged from source and target together, and which columns say nothing of use.

Numbers are numbers, also when written as text. Of the other columns, those that parse as dates are dates; few
distinct values are categories; sentences are text; nearly as many distinct values as rows are ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from osls._core.arrays import Floats
from osls.app.files.reader import InputError, Place, shorten
from osls.app.tables.columns import Unfamiliar
from osls.app.tables.parsing import Parsed, as_dates, as_numbers, as_strings, refuse_nested, wrong_value

KINDS = ("number", "date", "category", "text")
# What a fit can do about a column, and predicting cannot.
_OR_IGNORE = ", or leave the column out (--ignore)"

# Up to this many distinct values, strings are codes even if most of them look like numbers.
_FEW = 20
# If at least this share of the values are numbers (or dates), the others are taken for mistakes.
_MOST = 0.8
_WORDS_OF_TEXT = 3.0
_CHARACTERS_OF_TEXT = 50.0
# So many rows without any value of a column are no chance, where the fit had some missing values as well.
_NO_CHANCE = 5
# Where the fit had rare values, a larger share of values that it did not learn is worth a word.
_MANY_RARE = 0.05
# If more than this share of the strings are distinct, the column is an id of the rows.
_DISTINCT_OF_ID = 0.5
_DISTINCT_ON_A_SIDE = 0.95
_ID_NAME = re.compile(r"(^|[\W_])(id|ids|uuid|guid|key|index|idx|number|nr|no)($|[\W_])", re.IGNORECASE)

# A number with a sign of money, or with a blank, a comma or an apostrophe between thousands.
_MONEY, _MINUS, _APART = "[$\u20ac\u00a3\u00a5]?", "[-+(\u2212]?", "[ ,'\u2019\u00a0\u202f]"
_DRESSED = rf"{_MINUS}\s?{_MONEY}\s?{_MINUS}([1-9]\d{{0,2}}({_APART}\d{{3}})+|\d+)([.,]\d+)?\s?{_MONEY}\)?"
_SLASHED = r"\d{1,2}/\d{1,2}/(\d{2}|\d{4})(\s.*)?"

NO_VALUES = "no value in one of the two"
CONSTANT = "the same value in every row"
NAMES_THE_SIDE = "one value in all of the source and another in all of the target"
NAMES_THE_ROW = "a different value in nearly every row, like an id"
NOTHING_SHARED = "no value in common between source and target"
NOT_PLAIN_NUMBERS = (
    "numbers with signs or between thousands ($5, 1 200), which are not read; write plain ones"
)
SLASHED_DATES = "dates whose day and month cannot be told apart (1/2/2024); write 2024-02-01"
SEPARATE_TIMES = "dates that do not overlap, which tell when a row was collected and not what it is"


@dataclass
class LeftOut:
    """Columns not used, by reason."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, reason: str) -> None:
        self.names.setdefault(reason, []).append(name)

    def sentences(self) -> list[str]:
        """One sentence a reason."""
        return [f"Left out {_listed(names)}: {reason}." for reason, names in self.names.items()]


def _listed(names: list[str]) -> str:
    shown = ", ".join(shorten(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def decide(columns: tuple[pd.Series, pd.Series], places: tuple[Place, Place]) -> str:
    """Return what a column of source and target is, one of ``KINDS``, or why to leave it out."""
    for column, place in zip(columns, places, strict=True):
        refuse_nested(column, place, f"write one number or one text a row{_OR_IGNORE}")
    texts = as_strings(columns[0]), as_strings(columns[1])
    if any(text.isna().all() for text in texts):
        return NO_VALUES
    numbers = as_numbers(columns[0]), as_numbers(columns[1])
    if not (numbers[0].wrong.any() or numbers[1].wrong.any()):
        return "number"
    pooled = pd.concat(texts, ignore_index=True).dropna()
    distinct = pooled.nunique()
    _refuse_contradiction(columns, numbers, places, "numbers", few=distinct <= _FEW)
    dates = as_dates(columns[0]), as_dates(columns[1])
    if not (dates[0].wrong.any() or dates[1].wrong.any()):
        return _screen_dates(dates)
    _refuse_contradiction(columns, dates, places, "dates", few=distinct <= _FEW)
    return _screen_strings(texts, pooled, distinct)


def _refuse_contradiction(
    columns: tuple[pd.Series, pd.Series],
    parsed: tuple[Parsed, Parsed],
    places: tuple[Place, Place],
    wanted: str,
    *,
    few: bool,
) -> None:
    """Raise if one side holds numbers and the other none, or if a few values among many are not numbers."""
    shares = [side.share for side in parsed]
    if max(shares) >= _MOST and min(shares) <= 1 - _MOST:
        odd = int(np.argmin(shares))
        row = parsed[odd].first_wrong
        raise InputError(
            f"{places[odd].name}: column {shorten(columns[odd].name)} has {shorten(columns[odd].iloc[row])} "
            f"in row {places[odd].row(row)} where {places[1 - odd].name} has {wanted}; "
            f"write both alike{_OR_IGNORE}."
        )
    if few:
        return
    for column, side, place in zip(columns, parsed, places, strict=True):
        if side.wrong.any() and side.share >= _MOST:
            raise wrong_value(column, side, place, wanted, f"correct that value, empty it{_OR_IGNORE}")


def _screen_dates(dates: tuple[Parsed, Parsed]) -> str:
    source, target = (side.values[np.isfinite(side.values)] for side in dates)
    if max(source.min(), target.min()) > min(source.max(), target.max()):
        return SEPARATE_TIMES
    if min(source.min(), target.min()) == max(source.max(), target.max()):
        return CONSTANT
    return "date"


def _screen_strings(texts: tuple[pd.Series, pd.Series], pooled: pd.Series, distinct: int) -> str:
    if distinct > _FEW:
        first = pooled.head(2000)
        for pattern, reason in ((_DRESSED, NOT_PLAIN_NUMBERS), (_SLASHED, SLASHED_DATES)):
            if first.str.fullmatch(pattern).mean() >= _MOST:
                return reason
        words = first.str.split().str.len().mean()
        if words >= _WORDS_OF_TEXT or first.str.len().mean() >= _CHARACTERS_OF_TEXT:
            return "text"
        # Rows that were numbered on each side anew have the same ids on both.
        numbered_anew = all(text.nunique() > _DISTINCT_ON_A_SIDE * text.count() for text in texts)
        if numbered_anew or distinct > _DISTINCT_OF_ID * len(pooled):
            return NAMES_THE_ROW
    levels = [set(text.dropna().unique()) for text in texts]
    missing = any(text.isna().any() for text in texts)
    if distinct == 1 and not missing:
        return CONSTANT
    if not levels[0] & levels[1]:
        return NAMES_THE_SIDE if distinct == 2 else NOTHING_SHARED
    return "category"


def spelling_notes(name: str, columns: tuple[pd.Series, pd.Series]) -> list[str]:
    """Say if a value of one side is on the other but for case: it would look like something new."""
    source, target = (set(as_strings(column).dropna().unique()) for column in columns)
    folded = {value.casefold(): value for value in source - target}
    pairs = [(folded[each.casefold()], each) for each in sorted(target - source) if each.casefold() in folded]
    if not pairs:
        return []
    first = f"{shorten(pairs[0][0])} of the source and {shorten(pairs[0][1])} of the target"
    more = f" (and {len(pairs) - 1} more such pairs)" if len(pairs) > 1 else ""
    return [f"In {shorten(name)}, {first} differ in case only{more}: write both alike if they mean the same."]


def screen_numbers(
    names: list[str], source: Any, target: Any, whole: set[str], left_out: LeftOut
) -> list[int]:
    """Return the positions of the columns of numbers worth keeping; ``whole`` are those of whole numbers."""
    low_s, high_s, present_s = _ranges(source)
    low_t, high_t, present_t = _ranges(target)
    kept = []
    for i, name in enumerate(names):
        if not (present_s[i] and present_t[i]):
            left_out.add(name, NO_VALUES)
        elif min(present_s[i], present_t[i]) == 1 and low_s[i] == high_s[i] and low_t[i] == high_t[i]:
            left_out.add(name, CONSTANT if low_s[i] == low_t[i] else NAMES_THE_SIDE)
        elif name in whole and _names_the_row(name, source[:, i], target[:, i]):
            left_out.add(name, NAMES_THE_ROW)
        else:
            kept.append(i)
    return kept


def overlap_warnings(names: list[str], source: Any, target: Any) -> list[str]:
    """Name columns of numbers whose values on the two sides have nothing in common."""
    low_s, high_s, _ = _ranges(source)
    low_t, high_t, _ = _ranges(target)
    apart = [name for i, name in enumerate(names) if max(low_s[i], low_t[i]) > min(high_s[i], high_t[i])]
    if not apart:
        return []
    return [
        f"All values of {_listed(apart)} in the target lie outside the range in the source: "
        "check the units, or leave out what depends on where the rows were collected."
    ]


def _ranges(values: Any) -> tuple[Floats, Floats, Floats]:
    """Lowest and highest value of each column, and 0 (none present), 1 (all present) or 0.5."""
    if sparse.issparse(values):
        low, high = values.min(axis=0).toarray().ravel(), values.max(axis=0).toarray().ravel()
        return low, high, np.ones(values.shape[1])
    missing = np.isnan(values)
    low = np.where(missing, np.inf, values).min(axis=0)
    high = np.where(missing, -np.inf, values).max(axis=0)
    share = np.where(missing.all(axis=0), 0.0, np.where(missing.any(axis=0), 0.5, 1.0))
    return low, high, share


def _names_the_row(name: str, source: Any, target: Any) -> bool:
    """Whole numbers, all different, that count up through both files, fill a range, or are called an id.

    Two tables that were shuffled after their rows were numbered have numbers in no order; but measurements
    that are all different do not fill a third of their range.
    """
    if sparse.issparse(source) or len(source) < _FEW or len(target) < _FEW:
        return False
    if len(np.unique(source)) < len(source) or len(np.unique(target)) < len(target):
        return False
    rising = (np.diff(source) > 0).all() and (np.diff(target) > 0).all()
    filled = all(np.ptp(side) < 3 * len(side) for side in (source, target))
    return bool(_ID_NAME.search(name)) or bool(rising or filled)


def unfamiliar_note(found: Mapping[str, Unfamiliar]) -> str | None:
    """Say which columns of rows to predict hold nothing, or values that the fit did not meet."""
    parts, gone = list[str](), list[str]()
    for name, each in found.items():
        lacking = each.missing > 0 and not each.missing_before
        if each.missing == each.rows and (lacking or each.rows >= _NO_CHANCE):
            gone.append(name)
        elif lacking:
            parts.append(f"{shorten(name)} is missing in {_of(each.missing, each.rows)}, in the fit in none")
        if each.unseen > (_MANY_RARE * each.rows if each.rare_before else 0):
            what = "rare or unknown to the model" if each.rare_before else "unknown to the model"
            where = f"{_of(each.unseen, each.rows)} (such as {shorten(each.example)})"
            parts.append(f"{shorten(name)} is {what} in {where}")
    if gone:
        parts.insert(0, f"there is no value at all of {_listed(gone)}")
    if not parts:
        return None
    more = f"; and {len(parts) - 5} more columns" if len(parts) > 5 else ""
    return (
        f"{'; '.join(parts[:5])}{more}. Medians stand for missing numbers and nothing for unknown words, so "
        "that answers for these rows are less sure."
    )


def _of(count: int, rows: int) -> str:
    return f"{count:,} of {rows:,} row{'s' * (rows != 1)}"
