"""A table of mixed columns to one matrix of numbers, the same way for source, target and whatever follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse

from osls._core.arrays import AnyArray, Ints
from osls._core.saving import saveable
from osls.app.files.errors import InputError, did_you_mean, shorten
from osls.app.files.reader import Kind
from osls.app.options import TextMode
from osls.app.tables.columns import (
    Categories,
    Dates,
    MiniLM,
    Numbers,
    Place,
    TfIdf,
    choose_text_mode,
    number_matrix,
)
from osls.app.tables.decide import LeftOut, decide, overlap_warnings, screen_numbers
from osls.app.tables.parsing import as_dates, as_numbers, as_strings, is_plain_number

__all__ = ["TableEncoder"]

_MAX_LEVELS = 100
_COLUMN_KINDS: dict[str, Any] = {part.kind: part for part in (Numbers, Categories, Dates, TfIdf, MiniLM)}


@saveable
class TableEncoder:
    """Learn what each column is from source and target together, and turn rows into features.

    Parameters
    ----------
    text : {"auto", "tfidf", "minilm"}, default="auto"
        Features of free text. "auto" takes the MiniLM sentence encoder for up to 6,000 texts of up to 100
        words on average, if it is installed, and hashed TF-IDF otherwise: the encoder is slow, and cuts long
        documents off.
    ignore : collection of str
        Columns to leave out.
    texts : collection of str
        Columns known to be free text, however short or few it is.

    Attributes
    ----------
    feature_names_ : list of str
        One name a feature.
    warnings_ : list of str
        Which columns were left out and why, and what looks odd.
    kind_ : {"table", "text"}
        "text" if nothing but text is used.

    Notes
    -----
    Numbers keep their values; a missing one becomes the median, with a feature that says so. Categories
    become one feature for each of their up to 100 most frequent values. Dates become days and the time of
    year, week and day. The result is a float32 array, or a CSR matrix if there is hashed text or a sparse
    column; then the numbers are scaled, so that they do not drown the text.

    Examples
    --------
    >>> import pandas as pd
    >>> from osls.app.tables.table_encoder import TableEncoder
    >>> source = pd.DataFrame({"age": [41, None, 30, 52], "city": ["Oslo", "Rome", "Oslo", "Rome"]})
    >>> target = pd.DataFrame({"age": ["33", "?", "27"], "city": ["Rome", "Rome", "Oslo"], "ward": [1, 2, 3]})
    >>> encoder = TableEncoder().fit(source, target)
    >>> encoder.feature_names_
    ['age', 'age is missing', 'city = Rome', 'city = Oslo']
    >>> encoder.transform(target)
    array([[33.,  0.,  1.,  0.],
           [33.,  1.,  1.,  0.],
           [27.,  0.,  0.,  1.]], dtype=float32)
    >>> encoder.warnings_
    ["Left out 'ward': only in the target."]
    """

    feature_names_: list[str]
    warnings_: list[str]
    kind_: Kind
    columns_: list[Any]

    def __init__(self, *, text: TextMode = "auto", ignore: Collection[str] = (), texts: Collection[str] = ()):
        self.text = text
        self.ignore = list(ignore)
        self.texts = list(texts)

    def fit(
        self,
        source: pd.DataFrame,
        target: pd.DataFrame,
        *,
        source_name: str = "the source",
        target_name: str = "the target",
        source_rows: int | Ints = 0,
        target_rows: int | Ints = 0,
    ) -> Self:
        """Decide what each column is.

        The names, and the numbers of the rows in their files (from 0), are for messages.
        """
        places = (Place(source_name, source_rows), Place(target_name, target_rows))
        left_out = LeftOut()
        shared = self._shared(source, target, left_out)
        numbers, columns = self._split(source, target, shared, places, left_out)
        self.warnings_ = []
        blocks = [
            block
            for names in numbers
            if (block := self._fit_numbers(source, target, names, places, left_out)) is not None
        ]
        self.columns_ = [*blocks, *columns]
        self.warnings_ = [*left_out.sentences(), *self.warnings_]
        if not self.columns_:
            why = " ".join(left_out.sentences())
            raise InputError(
                f"{target_name}: no column is left to learn from besides the label "
                f"({why or 'there is none'}); give both files the same columns."
            )
        self._scale = None
        self._scale = self._fit_scale(source, places[0])
        self._finish()
        return self

    def transform(
        self, frame: pd.DataFrame, *, name: str = "the rows", first_row: int | Ints = 0
    ) -> AnyArray:
        """Return the features of rows: a float32 array, or a CSR matrix if that is smaller.

        Parameters
        ----------
        frame : DataFrame
            Rows with at least the columns that are used, in any order.
        name : str
            What messages call them.
        first_row : int or array of int
            Number of rows before these, or before each of them, so that messages name the right one.
        """
        place = Place(name, first_row)
        for column in self.used_columns:
            if column not in frame.columns:
                raise InputError(
                    f"{name}: there is no column {shorten(column)}, which the model needs; "
                    f"{did_you_mean(column, map(str, frame.columns))}"
                )
        return self._scaled([column.encode(frame, place) for column in self.columns_])

    def check(self, frame: pd.DataFrame, *, name: str = "the rows", first_row: int | Ints = 0) -> None:
        """Raise what :meth:`transform` would raise for numbers and dates, without the cost of texts."""
        place = Place(name, first_row)
        for column in self.columns_:
            if isinstance(column, Numbers | Dates):
                column.encode(frame, place)

    @property
    def used_columns(self) -> list[str]:
        """Names of the columns that are read."""
        return [
            name
            for column in self.columns_
            for name in (column.names if isinstance(column, Numbers) else [column.name])
        ]

    @property
    def text_columns(self) -> list[str]:
        """Names of the columns of free text."""
        return [column.name for column in self.columns_ if isinstance(column, TfIdf | MiniLM)]

    # -- Fitting ------------------------------------------------------------------------------------

    def _shared(self, source: pd.DataFrame, target: pd.DataFrame, left_out: LeftOut) -> list[str]:
        for name in source.columns:
            if name not in target.columns and name not in self.ignore:
                left_out.add(name, "only in the source")
        for name in target.columns:
            if name not in source.columns and name not in self.ignore:
                left_out.add(name, "only in the target")
        return [name for name in source.columns if name in target.columns and name not in self.ignore]

    def _split(
        self,
        source: pd.DataFrame,
        target: pd.DataFrame,
        shared: list[str],
        places: tuple[Place, Place],
        left_out: LeftOut,
    ) -> tuple[tuple[list[str], list[str]], list[Any]]:
        """Sort the columns into dense numbers, sparse numbers, and the others with what they learned."""
        dense, thin, others = [], [], []
        for name in shared:
            one, two = source[name], target[name]
            if name in self.texts:
                others.append(self._fit_column(name, "text", one, two))
            elif isinstance(one.dtype, pd.SparseDtype) and isinstance(two.dtype, pd.SparseDtype):
                thin.append(name)
            elif is_plain_number(one.dtype) and is_plain_number(two.dtype):
                dense.append(name)
            else:
                kind = decide(one, two, *places, left_out)
                if kind == "number":
                    dense.append(name)
                elif kind is not None:
                    others.append(self._fit_column(name, kind, one, two))
        return (dense, thin), others

    def _fit_column(self, name: str, kind: str, source: pd.Series, target: pd.Series) -> Any:
        if kind == "date":
            return Dates.fit(name, np.concatenate([as_dates(source).values, as_dates(target).values]))
        pooled = pd.concat([as_strings(source), as_strings(target)], ignore_index=True)
        if kind == "category":
            return Categories.fit(name, pooled, _MAX_LEVELS)
        if choose_text_mode(self.text, pooled) == "minilm":
            return MiniLM(name)
        return TfIdf.fit(name, pooled)

    def _fit_numbers(
        self,
        source: pd.DataFrame,
        target: pd.DataFrame,
        names: list[str],
        places: tuple[Place, Place],
        left_out: LeftOut,
    ) -> Numbers | None:
        if not names:
            return None
        one, two = number_matrix(source, names, places[0]), number_matrix(target, names, places[1])
        whole = {name for name in names if _is_whole(source[name]) and _is_whole(target[name])}
        kept = screen_numbers(names, one, two, whole, left_out)
        if not kept:
            return None
        names = [names[i] for i in kept]
        one, two = one[:, kept], two[:, kept]
        self.warnings_ += overlap_warnings(names, one, two)
        return Numbers.fit(names, one, two)

    def _fit_scale(self, source: pd.DataFrame, place: Place) -> AnyArray | None:
        """Return what to divide each feature by if the matrix is sparse, else nothing."""
        if not any(_is_sparse(column) for column in self.columns_):
            return None
        scales = []
        for column in self.columns_:
            width = len(column.feature_names)
            if _is_sparse(column):
                scales.append(np.ones(width))
            else:
                spread = np.std(column.encode(source, place), axis=0, dtype=np.float64)
                scales.append(np.where(spread > 0, spread, 1.0) * np.sqrt(width))
        return np.concatenate(scales).astype(np.float32)

    def _scaled(self, parts: list[Any]) -> AnyArray:
        if self._scale is None:
            return np.ascontiguousarray(np.hstack(parts))
        stacked = sparse.hstack([sparse.csr_matrix(part) for part in parts], format="csr")
        return sparse.csr_matrix(stacked.multiply(1 / self._scale), dtype=np.float32)  # type: ignore[no-any-return]

    def _finish(self) -> None:
        self.feature_names_ = [name for column in self.columns_ for name in column.feature_names]
        only_text = all(isinstance(column, TfIdf | MiniLM) for column in self.columns_)
        self.kind_ = "text" if only_text else "table"

    # -- State --------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return everything learned as JSON values and arrays."""
        return {
            "text": self.text,
            "ignore": self.ignore,
            "texts": self.texts,
            "warnings": self.warnings_,
            "scale": self._scale,
            "columns": [{"kind": column.kind, **vars(column)} for column in self.columns_],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the encoder that :meth:`get_state` described."""
        encoder = cls(text=state["text"], ignore=state["ignore"], texts=state["texts"])
        encoder.warnings_ = list(state["warnings"])
        encoder._scale = state["scale"]
        encoder.columns_ = []
        for saved in state["columns"]:
            values = dict(saved)
            encoder.columns_.append(_COLUMN_KINDS[values.pop("kind")](**values))
        encoder._finish()
        return encoder


def _is_sparse(column: Any) -> bool:
    return isinstance(column, TfIdf) or (isinstance(column, Numbers) and column.sparse)


def _is_whole(column: pd.Series) -> bool:
    if is_plain_number(column.dtype):
        return bool(column.dtype.kind in "iu")
    if isinstance(column.dtype, pd.SparseDtype):
        return False
    values = as_numbers(column).values
    return bool(np.isfinite(values).all() and (values % 1 == 0).all())
