"""One column read as numbers, as dates or as strings, whatever its container holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types

from osls._core.arrays import AnyArray, Bools, Floats
from osls.app.files.reader import TEXT_DTYPE, InputError, Place, shorten
from osls.app.files.text_files import trim

# In a column of numbers these mean "no value"; in a column of strings they are values.
_NO_NUMBER = ("?", "-", "--", ".", "none", "unknown", "missing", "not available")
_PERCENT = r"[+-]?[\d.,]+[ \u00a0\u202f]?%"
_LIKE_THOUSANDS = r"[+-]?[1-9]\d{0,2},\d{3}"
_ISO_DATE = r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$"
_DOTTED_DATE = r"^\d{1,2}\.\d{1,2}\.\d{4}$"
_NANOSECONDS_A_DAY = 86_400e9


@dataclass(frozen=True)
class Parsed:
    """Values as float64, NaN where there is none, and which entries say something else."""

    values: Floats
    wrong: Bools
    # The first entry such as "1,234", which was read as 1.234, if no other shows that commas are decimal.
    doubtful: int | None = None

    @property
    def share(self) -> float:
        """Share of the entries present that could be read."""
        present = np.isfinite(self.values).sum() + np.isinf(self.values).sum()
        return float(present / max(present + self.wrong.sum(), 1))

    @property
    def first_wrong(self) -> int:
        """Row of the first entry that could not be read."""
        return int(np.argmax(self.wrong))


def is_plain_number(dtype: Any) -> bool:
    """Numbers or booleans that NumPy can take as they are."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def wrong_value(
    column: pd.Series,
    parsed: Parsed,
    place: Place,
    wanted: str,
    remedy: str = "correct that value or empty it",
) -> InputError:
    """Return the error that names the first value that is not what the column holds otherwise."""
    row = parsed.first_wrong
    return InputError(
        f"{place.name}: column {shorten(column.name)} holds {wanted}, but row {place.row(row)} has "
        f"{shorten(column.iloc[row])}; {remedy}."
    )


def refuse_doubtful(column: pd.Series, parsed: Parsed, place: Place) -> None:
    """Raise for a comma that stands between thousands as likely as before decimals: 1,234."""
    if parsed.doubtful is not None:
        written = str(column.iloc[parsed.doubtful]).strip()
        raise InputError(
            f"{place.name}: column {shorten(column.name)} has {shorten(written)} in row "
            f"{place.row(parsed.doubtful)}, which may mean {written.replace(',', '')} or "
            f"{written.replace(',', '.')}; write no commas between thousands, or if they are decimal commas, "
            "points (of a text file: --decimal ,)."
        )


def refuse_nested(
    column: pd.Series, place: Place, remedy: str = "write one number or one text a row"
) -> None:
    """Raise for lists, objects and bytes inside a column."""
    if column.dtype != object:
        return
    for row, value in enumerate(column):
        if isinstance(value, list | dict | tuple | set | bytes | np.ndarray):
            kind = "bytes" if isinstance(value, bytes) else "a list or an object"
            raise InputError(
                f"{place.name}: column {shorten(column.name)} holds {kind} in row {place.row(row)}; {remedy}."
            )


def as_numbers(column: pd.Series) -> Parsed:
    """Read a column as numbers, also booleans, decimal commas, per cent and numbers written as text."""
    nothing = np.zeros(len(column), dtype=bool)
    dtype = column.dtype
    if is_plain_number(dtype):
        return Parsed(column.to_numpy(np.float64), nothing)
    if isinstance(dtype, pd.SparseDtype):
        return Parsed(np.asarray(column, dtype=np.float64), nothing)
    if types.is_timedelta64_dtype(dtype):
        return Parsed(column.dt.total_seconds().to_numpy(np.float64), nothing)
    if types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype):
        return Parsed(column.to_numpy(np.float64, na_value=np.nan), nothing)
    if types.is_datetime64_any_dtype(dtype):
        return Parsed(np.full(len(column), np.nan), column.notna().to_numpy())
    return _numbers_in_text(as_strings(column))


def _numbers_in_text(text: pd.Series) -> Parsed:
    values = pc.utf8_lower(pa.array(text, type=pa.large_string()))
    values = pc.if_else(pc.is_in(values, pa.array(_NO_NUMBER, pa.large_string())), None, values)
    present = values.is_valid().to_numpy(zero_copy_only=False)
    try:
        read = pc.cast(values, pa.float64())
    except pa.ArrowInvalid:
        read = None
    if read is not None:
        return Parsed(read.to_numpy(zero_copy_only=False), np.zeros(len(text), dtype=bool))
    strings = pd.Series(_to_objects(values), dtype=object)
    strings = strings.mask(strings == "true", "1").mask(strings == "false", "0")
    percent = strings.str.fullmatch(_PERCENT, na=False).to_numpy(dtype=bool)
    if percent.any():
        strings = strings.where(~percent, strings.str.rstrip("% \u00a0\u202f"))
    commas = strings.str.fullmatch(r"[+-]?\d+,\d+", na=False).to_numpy(dtype=bool)
    doubtful = None
    if commas.any():
        thousands = strings.str.fullmatch(_LIKE_THOUSANDS, na=False).to_numpy(dtype=bool)
        doubtful = int(np.argmax(commas)) if not (commas & ~thousands).any() else None
        strings = strings.where(~commas, strings.str.replace(",", "."))
    parsed = pd.to_numeric(strings, errors="coerce").to_numpy(np.float64)
    wrong = present & np.isnan(parsed) & (strings != "nan").to_numpy()
    return Parsed(np.where(percent, parsed / 100, parsed), wrong, doubtful)


def as_dates(column: pd.Series) -> Parsed:
    """Read a column as days since 1970: dates of their own type, ISO (2024-03-01) or dotted (1.3.2024)."""
    if types.is_datetime64_any_dtype(column.dtype):
        moments = column
    elif types.is_numeric_dtype(column.dtype) or types.is_bool_dtype(column.dtype):
        return Parsed(np.full(len(column), np.nan), column.notna().to_numpy())
    else:
        text = as_strings(column)
        moments = _parse_dates(text)
    days = pd.to_datetime(moments, utc=True).dt.as_unit("ns").astype("int64").to_numpy() / _NANOSECONDS_A_DAY
    days = np.where(moments.isna().to_numpy(), np.nan, days)
    return Parsed(days, np.isnan(days) & ~as_strings(column).isna().to_numpy())


def _parse_dates(text: pd.Series) -> pd.Series:
    iso = text.where(text.str.fullmatch(_ISO_DATE, na=False))
    dotted = text.where(text.str.fullmatch(_DOTTED_DATE, na=False))
    moments = pd.to_datetime(iso, format="ISO8601", errors="coerce", utc=True)
    return moments.fillna(pd.to_datetime(dotted, format="%d.%m.%Y", errors="coerce", utc=True))


def as_strings(column: pd.Series) -> pd.Series:
    """Read a column as strings without surrounding spaces; missing stays missing, 3.0 becomes "3"."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        # Spell each category once, not each row.
        spelled = as_strings(pd.Series(column.cat.categories, name=column.name))
        codes = column.cat.codes.to_numpy()
        # The code of a missing value, -1, picks the last.
        spelled_or_none = np.array([*spelled, None], dtype=object)
        return pd.Series(spelled_or_none[codes], dtype=TEXT_DTYPE, name=column.name)
    if is_plain_number(column.dtype) or types.is_numeric_dtype(column.dtype):
        return pd.Series([_spell(value) for value in column.tolist()], dtype=TEXT_DTYPE, name=column.name)
    if column.dtype == object:
        text = pd.Series([_spell(value) for value in column.tolist()], dtype=object)
    else:
        # Before version 3, pandas turns missing values into strings such as "nan", too.
        text = column.astype(str).where(column.notna(), None)
    return pd.Series(_to_objects(trim(text)), dtype=TEXT_DTYPE, name=column.name)


def _to_objects(values: pa.Array) -> AnyArray:
    return np.asarray(values.to_pandas(), dtype=object)


def _spell(value: Any) -> str | None:
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
