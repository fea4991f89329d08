"""Strings of a text file to the types that whole columns of them have."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["MISSING", "infer_types"]

# What people and programs write for "no value". "None" is left alone: it may be a class or an answer.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "nan", "NaN", "NAN", "null", "NULL")
# A number with a leading zero is a code (007, a postcode) and must keep its zeros; hexadecimal likewise.
_CODE = r"^[+-]?0[0-9xX]"
_BOOLEANS = ("true", "false")


def infer_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Turn every column of strings that consists of whole numbers, numbers, booleans or dates into these.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": ["1", "2"], "b": ["01", "02"], "c": ["0.5", ""]})
    >>> infer_types(frame).dtypes.astype(str).to_dict()
    {'a': 'int64', 'b': 'str', 'c': 'float64'}
    """
    return pd.DataFrame({name: _infer(frame[name]) for name in frame.columns}, index=frame.index)


def _infer(column: pd.Series) -> pd.Series:
    if not isinstance(column.dtype, pd.StringDtype):
        return column
    values = pc.utf8_trim_whitespace(pa.array(column, type=pa.large_string()))
    values = pc.if_else(pc.is_in(values, _strings(MISSING)), None, values)
    present = values.drop_null()
    if not len(present):
        return pd.Series(float("nan"), index=column.index)
    for kind in _candidates(present):
        try:
            cast = pc.cast(values, kind)
        except pa.ArrowInvalid:
            continue
        return pd.Series(cast.to_pandas().to_numpy(), index=column.index)
    return pd.Series(values.to_pandas(), index=column.index, dtype="str")


def _candidates(present: pa.Array) -> list[pa.DataType]:
    if pc.any(pc.match_substring_regex(present, _CODE)).as_py():
        return []
    if pc.all(pc.is_in(pc.utf8_lower(present), _strings(_BOOLEANS))).as_py():
        return [pa.bool_()]
    return [pa.int64(), pa.float64(), pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")]


def _strings(words: tuple[str, ...]) -> pa.Array:
    return pa.array(words, pa.large_string())
