"""A table of mixed columns to one matrix of numbers, the same way for source, target and whatever follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse

from osls._core.arrays import AnyArray
from osls._core.saving import saveable
from osls.app.files.reader import ROWS, InputError, Kind, Place, missing_columns, shorten
from osls.app.options import TextMode
from osls.app.tables.columns import (
    Categories,
    Dates,
    MiniLM,
    Numbers,
    TfIdf,
    Unfamiliar,
    choose_text_mode,
    number_matrix,
)
from osls.app.tables.decide import (
    KINDS,
    NAMES_THE_ROW,
    NAMES_THE_SIDE,
    NOTHING_SHARED,
    LeftOut,
    decide,
    overlap_warnings,
    screen_numbers,
    spelling_notes,
)
from osls.app.tables.parsing import as_dates, as_numbers, as_strings, is_plain_number

_Frames = tuple[pd.DataFrame, pd.DataFrame]

_MAX_LEVELS = 100
_PLACES = Place("the source"), Place("the target")
_COLUMN_KINDS: dict[str, Any] = {part.kind: part for part in (Numbers, Categories, Dates, TfIdf, MiniLM)}


@saveable
class TableEncoder:
    """Learn what each column is from source and target together, and turn rows into features.

    Parameters
    ----------
    text : {"auto", "tfidf", "minilm", "both"}, default="auto"
        Features of free text. "auto" takes the MiniLM sentence encoder for up to 6,000 texts of up to 100
        words on average, if it is installed, and hashed TF-IDF otherwise: the encoder is slow, and cuts long
        documents off. "both" puts the two side by side.
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
    id_columns_ : list of str
        Columns that name the row: left out of the features, carried into the predictions.

    Notes
    -----
    Numbers keep their values; a missing one becomes the median, with a feature that says so. Categories
    become one feature for each of their up to 100 most frequent values. Dates become days and the time of
    year, week and day. The result is an array (float64 if there are numbers), or a CSR matrix if there is
    hashed text or a sparse column; then the numbers are centred and scaled, so that they do not drown the
    text.

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
           [27.,  0.,  0.,  1.]])
    >>> encoder.warnings_
    ["Left out 'ward': only in the target."]
    """

    feature_names_: list[str]
    warnings_: list[str]
    kind_: Kind
    id_columns_: list[str]
    columns_: list[Any]
    _scale: AnyArray | None

    def __init__(self, *, text: TextMode = "auto", ignore: Collection[str] = (), texts: Collection[str] = ()):
        self.text = text
        self.ignore = list(ignore)
        self.texts = list(texts)

    def fit(self, source: pd.DataFrame, target: pd.DataFrame, places: tuple[Place, Place] = _PLACES) -> Self:
        """Decide what each column is; ``places`` say where the rows of either side come from."""
        left_out, notes = LeftOut(), list[str]()
        shared = self._shared(source, target, places, left_out)
        frames = source[shared], target[shared]
        dense, thin, others = self._split(frames, places, left_out, notes)
        blocks = [_fit_numbers(frames, names, places, left_out, notes) for names in (dense, thin) if names]
        self.columns_ = [*(block for block in blocks if block is not None), *others]
        self.warnings_ = [*left_out.sentences(), *notes]
        self.id_columns_ = left_out.names.get(NAMES_THE_ROW, [])
        if not self.columns_:
            why = " ".join(left_out.sentences())
            raise InputError(
                f"{places[1].name}: no column is left to learn from besides the label "
                f"({why or 'there is none'}); give both files the same columns."
            )
        self._scale = self._fit_scale(source, places[0])
        self._finish()
        return self

    def transform(self, frame: pd.DataFrame, place: Place = ROWS) -> AnyArray:
        """Return the features of rows: an array, or a CSR matrix if that is smaller.

        The rows have at least the columns that are used, in any order; ``place`` is for messages.
        """
        if missing := [column for column in self.used_columns if column not in frame.columns]:
            others = [str(column) for column in frame.columns if column not in self.used_columns]
            raise InputError(f"{place.name}: {missing_columns(missing, others)}")
        return self._scaled([column.encode(frame, place) for column in self.columns_])

    def transform_records(self, rows: Sequence[Mapping[str, Any]]) -> AnyArray | None:
        """Return the features of a few rows without making a table of them, in a fraction of the time.

        The rows have all columns that are used. If one holds more than numbers and words (dates, texts,
        numbers written as text), the result is None: :meth:`transform` reads them.
        """
        parts: list[Any] = []
        for column in self.columns_ if self._scale is None else ():
            part = column.of_records(rows) if isinstance(column, Numbers | Categories) else None
            if part is None:
                return None
            parts.append(part)
        return np.hstack(parts) if parts else None

    def check(self, frame: pd.DataFrame, place: Place = ROWS) -> None:
        """Raise what :meth:`transform` would raise for numbers and dates, without the cost of texts."""
        for column in self.columns_:
            if isinstance(column, Numbers | Dates):
                column.encode(frame, place)

    def unfamiliar(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count, by column, values that are missing or that the fit did not meet; the features do not say so.

        ``columns`` is a frame that :meth:`transform` takes, or lists of values by column.
        """
        return {name: found for column in self.columns_ for name, found in column.unfamiliar(columns).items()}

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
        texts = (column.name for column in self.columns_ if isinstance(column, TfIdf | MiniLM))
        return list(dict.fromkeys(texts))

    # -- Fitting ------------------------------------------------------------------------------------

    def _shared(
        self, source: pd.DataFrame, target: pd.DataFrame, places: tuple[Place, Place], left_out: LeftOut
    ) -> list[str]:
        _refuse_other_spelling(source, target, self.ignore, places)
        for name in source.columns:
            if name not in target.columns and name not in self.ignore:
                left_out.add(name, "only in the source")
        for name in target.columns:
            if name not in source.columns and name not in self.ignore:
                left_out.add(name, "only in the target")
        return [name for name in source.columns if name in target.columns and name not in self.ignore]

    def _split(
        self, frames: _Frames, places: tuple[Place, Place], left_out: LeftOut, notes: list[str]
    ) -> tuple[list[str], list[str], list[Any]]:
        """Sort the columns into dense numbers, sparse numbers, and the others with what they learned."""
        dense, thin, others = list[str](), list[str](), []
        for name in frames[0].columns:
            pair = frames[0][name], frames[1][name]
            if name in self.texts:
                others += self._fit_column(name, "text", pair)
            elif all(isinstance(column.dtype, pd.SparseDtype) for column in pair):
                thin.append(name)
            elif all(is_plain_number(column.dtype) for column in pair):
                dense.append(name)
            else:
                kind = decide(pair, places)
                if kind in ("category", NOTHING_SHARED, NAMES_THE_SIDE):
                    notes += spelling_notes(name, pair)
                if kind == "number":
                    dense.append(name)
                elif kind in KINDS:
                    others += self._fit_column(name, kind, pair)
                else:
                    left_out.add(name, kind)
        return dense, thin, others

    def _fit_column(self, name: str, kind: str, pair: tuple[pd.Series, pd.Series]) -> list[Any]:
        """Return what was learned of a column: one thing, of a text perhaps two."""
        if kind == "date":
            return [Dates.fit(name, np.concatenate([as_dates(column).values for column in pair]))]
        pooled = pd.concat([as_strings(column) for column in pair], ignore_index=True)
        if kind == "category":
            return [Categories.fit(name, pooled, _MAX_LEVELS)]
        mode = choose_text_mode(self.text, pooled)
        words = [TfIdf.fit(name, pooled)] if mode != "minilm" else []
        return words + ([MiniLM(name)] if mode != "tfidf" else [])

    def _fit_scale(self, source: pd.DataFrame, place: Place) -> AnyArray | None:
        """Return what to subtract from each feature and to divide it by, if the matrix is sparse."""
        if not any(_is_sparse(column) for column in self.columns_):
            return None
        centres, scales = [], []
        for column in self.columns_:
            width = len(column.feature_names)
            centre, spread = np.zeros(width), np.ones(width)
            if not _is_sparse(column):
                values = column.encode(source, place)
                spread = np.std(values, axis=0, dtype=np.float64)
                spread = np.where(spread > 0, spread, 1.0) * np.sqrt(width)
                if isinstance(column, Numbers):
                    # Only where it matters: a column that is far from zero would lose its digits.
                    mean = np.mean(values, axis=0, dtype=np.float64)
                    centre = np.where(np.abs(mean) > 1e3 * spread, mean, 0.0)
            centres.append(centre)
            scales.append(spread)
        return np.stack([np.concatenate(centres), np.concatenate(scales)])

    def _scaled(self, parts: list[Any]) -> AnyArray:
        if self._scale is None:
            return np.ascontiguousarray(np.hstack(parts))
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        centres, scales = (np.split(row, ends) for row in self._scale)
        scaled = [
            sparse.csr_matrix(part.multiply(1 / scale) if sparse.issparse(part) else (part - centre) / scale)
            for part, centre, scale in zip(parts, centres, scales, strict=True)
        ]
        return sparse.hstack(scaled, format="csr", dtype=np.float32)  # type: ignore[no-any-return]

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


def _refuse_other_spelling(
    source: pd.DataFrame, target: pd.DataFrame, ignore: Collection[str], places: tuple[Place, Place]
) -> None:
    """Raise if a column of one side is called the same on the other but for case, blanks or underscores."""

    def plain(name: Any) -> str:
        return "".join(str(name).casefold().replace("_", " ").replace("-", " ").split())

    alone = [name for name in target.columns if name not in source.columns and name not in ignore]
    others = {plain(name): name for name in alone}
    for name in source.columns:
        if name not in target.columns and name not in ignore and plain(name) in others:
            raise InputError(
                f"{places[1].name}: has a column {shorten(others[plain(name)])} where {places[0].name} has "
                f"{shorten(name)}; write both alike, or leave both out (--ignore)."
            )


def _fit_numbers(
    frames: _Frames, names: list[str], places: tuple[Place, Place], left_out: LeftOut, notes: list[str]
) -> Numbers | None:
    """Learn the columns of numbers that are worth keeping, if any."""
    source, target = (number_matrix(frame, names, place) for frame, place in zip(frames, places, strict=True))
    whole = {name for name in names if all(_is_whole(frame[name]) for frame in frames)}
    kept = screen_numbers(names, source, target, whole, left_out)
    if not kept:
        return None
    names = [names[i] for i in kept]
    source, target = source[:, kept], target[:, kept]
    notes += overlap_warnings(names, source, target)
    return Numbers.fit(names, source, target)


def _is_sparse(column: Any) -> bool:
    return isinstance(column, TfIdf) or (isinstance(column, Numbers) and column.sparse)


def _is_whole(column: pd.Series) -> bool:
    if is_plain_number(column.dtype):
        return bool(column.dtype.kind in "iu")
    if isinstance(column.dtype, pd.SparseDtype):
        return False
    values = as_numbers(column).values
    return bool(np.isfinite(values).all() and (values % 1 == 0).all())
