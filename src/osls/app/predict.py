"""A fitted model with what turns rows into its features; ``osls predict`` applies one to more rows."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from osls._core.arrays import Floats, Ints
from osls._core.saving import saveable
from osls._core.screen import Screen
from osls.app.files.opening import FolderRows, open_rows
from osls.app.files.reader import ROWS, TEXT_DTYPE, InputError, Kind, Place, RowFile
from osls.app.files.staging import staged_file
from osls.app.options import ReadOptions
from osls.app.tables.columns import Unfamiliar
from osls.app.tables.decide import unfamiliar_note
from osls.app.tables.pictures import PictureEncoder
from osls.app.tables.table_encoder import TableEncoder
from osls.persist import load
from osls.pulse import PULSE

_SUFFIXES = (".parquet", ".csv")


@saveable
@dataclass(frozen=True)
class Adapted:
    """A fitted adapter with what turns rows into its features: rows in, answers out.

    Attributes
    ----------
    encoder : TableEncoder or PictureEncoder
        Rows to features.
    adapter : PULSE
        Features to probabilities.
    classes : tuple of str
        The known classes, then the name of the novel one.
    kind : {"table", "text", "images"}
        What a row is.
    label : str
        The column that held the labels.
    ids : tuple of str
        Columns to carry through if the rows have them.
    metadata : mapping
        Where it comes from: names, sizes, seed, versions, the mix of the source.
    """

    encoder: TableEncoder | PictureEncoder
    adapter: PULSE
    classes: tuple[str, ...]
    kind: Kind
    label: str
    ids: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, rows: pd.DataFrame, place: Place = ROWS) -> pd.DataFrame:
        """Return the id columns, ``predicted``, ``novel`` and ``p_<class>`` of new rows.

        ``place`` says where they come from, for messages. Warns of columns without any value, and of values
        that the fit did not meet.
        """
        proba = self.predict_proba(rows, place)
        familiarity = Familiarity(self)
        familiarity.add(rows)
        if note := familiarity.note(place.name):
            warnings.warn(note, UserWarning, stacklevel=2)
        return tabulate(proba, self.classes, rows[[column for column in self.ids if column in rows.columns]])

    def predict_proba(self, rows: pd.DataFrame, place: Place = ROWS) -> Floats:
        """Return probabilities of ``classes``."""
        if not len(rows):
            return np.zeros((0, len(self.classes)))
        return self.adapter.predict_proba(self.encoder.transform(rows, place))


@dataclass
class Familiarity:
    """How much of the rows to predict the fit of a model met, counted over batches."""

    adapted: Adapted
    found: dict[str, Unfamiliar] = field(default_factory=dict)

    def add(self, columns: Mapping[str, Any]) -> dict[str, Unfamiliar]:
        """Count the values of a batch, a frame or lists by column, and return its own counts."""
        encoder = self.adapted.encoder
        found = encoder.unfamiliar(columns) if isinstance(encoder, TableEncoder) else {}
        for name, each in found.items():
            self.found[name] = self.found[name] + each if name in self.found else each
        return found

    def note(self, name: str) -> str | None:
        """Return one sentence on the rows of that name, if there is anything to say."""
        note = unfamiliar_note({column: each for column, each in self.found.items() if each.rows})
        return note and f"{name}: {note}"


def tabulate(
    proba: Floats, classes: Sequence[str], ids: pd.DataFrame, group: Ints | None = None
) -> pd.DataFrame:
    """Return probabilities, and groups if given (-1: none), as the columns that people and programs read."""
    predicted = np.asarray(classes, dtype=object)[proba.argmax(axis=1)]
    answers: dict[str, Any] = {
        "predicted": pd.Series(predicted, dtype=TEXT_DTYPE),
        "novel": proba[:, -1].astype(np.float32),
    }
    if group is not None:
        answers["group"] = pd.Series(group + 1, dtype="Int64").mask(group < 0)
    shares = {f"p_{name}": proba[:, j].astype(np.float32) for j, name in enumerate(classes[:-1])}
    return pd.concat([ids.reset_index(drop=True), pd.DataFrame({**answers, **shares})], axis=1)


def load_adapted(model: Path) -> Adapted:
    """Load what ``osls adapt`` saved, from the folder of the model or of the run that it lies in."""
    if not model.is_dir():
        raise InputError(f"{model}: no such folder; give the folder 'model' that osls adapt wrote.")
    if (model / "mix.json").exists() and (model / "model").is_dir():
        model = model / "model"
    loaded = load(model)
    if not isinstance(loaded, Adapted):
        raise InputError(
            f"{model}: holds a {type(loaded).__name__} without the columns it was fitted on; "
            "give the folder 'model' that osls adapt wrote."
        )
    return loaded


def load_to_answer(model: Path) -> Adapted:
    """Load a model whose answers others will use; say on stderr if its own were not to be trusted."""
    adapted = load_adapted(model)
    diagnostics = getattr(adapted.adapter, "diagnostics_", None)
    if diagnostics is not None and diagnostics.verdict.status == "do not trust":
        Screen(stderr=True).print(
            f"{model}: the fit of this model was judged 'do not trust'; its report says why.", soft_wrap=True
        )
    return adapted


def open_for(
    adapted: Adapted, path: str | Path, reading: ReadOptions
) -> tuple[RowFile, Iterator[tuple[Place, pd.DataFrame]]]:
    """Open a file; return its reader, and batches of the columns that the model needs with their places."""
    rows = open_rows(path, reading)
    if isinstance(rows, FolderRows):
        rows.drop_classes()
    wanted = set(adapted.encoder.used_columns)
    return rows, rows.placed_batches([column for column in rows.columns if column in wanted])


def run_predict(
    model: Path,
    rows: str,
    out: Path,
    reading: ReadOptions,
    *,
    overwrite: bool = False,
    safe_csv: bool = False,
) -> None:
    """Predict every row of a file, batch by batch, and print how many of each class there are."""
    if out.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{out}: predictions are written as {' or '.join(_SUFFIXES)}; change the extension.")
    adapted = load_to_answer(model)
    data, batches = open_for(adapted, rows, reading)
    familiarity = Familiarity(adapted)
    with staged_file(out, overwrite=overwrite) as draft:
        answers = _predict_batches(adapted, data, batches, familiarity)
        counts = write_predictions(answers, draft, safe_csv=safe_csv)
    _print_counts(adapted, counts, out)
    print_note(familiarity.note(data.name))


def _predict_batches(
    adapted: Adapted,
    rows: RowFile,
    batches: Iterator[tuple[Place, pd.DataFrame]],
    familiarity: Familiarity,
) -> Iterator[pd.DataFrame]:
    """Yield the predictions in order. The ids are read at once, so that all batches have the same types."""
    ids = [column for column in adapted.ids if column in rows.columns]
    carried = rows.read(ids) if ids else None
    first = 0
    for place, batch in batches:
        last = first + len(batch)
        part = pd.DataFrame(index=batch.index) if carried is None else carried.iloc[first:last]
        yield tabulate(adapted.predict_proba(batch, place), adapted.classes, part)
        familiarity.add(batch)
        first = last


def write_predictions(batches: Iterable[pd.DataFrame], *paths: Path, safe_csv: bool = False) -> Counter[str]:
    """Write the same rows to every path, by its extension (.csv or Parquet), and count the predicted classes.

    The types of the columns are those of the first batch. With ``safe_csv``, texts that a spreadsheet would
    take for formulas begin with an apostrophe in CSV files.
    """
    counts: Counter[str] = Counter()
    writers: list[pq.ParquetWriter | arrow_csv.CSVWriter] = []
    schema: pa.Schema | None = None
    try:
        for frame in batches:
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            table = table.replace_schema_metadata(None)
            if schema is None:
                schema = table.schema
                changes = [safe_csv and path.suffix.lower() == ".csv" for path in paths]
                writers = [
                    _open_writer(path, _without_formulas(table).schema if change else schema)
                    for path, change in zip(paths, changes, strict=True)
                ]
            for writer, change in zip(writers, changes, strict=True):
                writer.write_table(_without_formulas(table) if change else table)
            counts.update(frame["predicted"].value_counts().to_dict())
    finally:
        for writer in writers:
            writer.close()
    return counts


_FORMULA = r"^[\s]*[=+\-@]|^[\t\r\n]"


def _without_formulas(table: pa.Table) -> pa.Table:
    """Put an apostrophe before names and texts that a spreadsheet would compute: those with = + - @."""
    columns = [
        pc.replace_substring_regex(column, f"(?s)({_FORMULA})", r"'\1")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    names = [re.sub(_FORMULA, lambda found: f"'{found[0]}", name) for name in table.column_names]
    return pa.table(columns, names=names)


def _open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter | arrow_csv.CSVWriter:
    if path.suffix.lower() == ".csv":
        return arrow_csv.CSVWriter(path, schema)
    return pq.ParquetWriter(path, schema)


def print_note(note: str | None) -> None:
    """Print a note on stderr, if there is one: stdout may be read by a program."""
    if note:
        Screen(stderr=True).print(f"Note: {note}", soft_wrap=True)


def _print_counts(adapted: Adapted, counts: Counter[str], out: Path) -> None:
    screen = Screen()
    total = sum(counts.values())
    for name in adapted.classes:
        share = 100 * counts[name] / total
        screen.print(f"{counts[name]:>10,}  {share:5.1f}%  {name}")
    screen.print(
        f"{total:,} rows predicted, in {out}. These are counts of predictions under the mix that the model "
        "was adapted to; for a new mix, run osls adapt or osls monitor.",
        soft_wrap=True,
    )
