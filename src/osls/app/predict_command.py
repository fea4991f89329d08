"""``osls predict``: answers of a saved model for more rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from osls.app.adapting import Adapted
from osls.app.files.errors import InputError
from osls.app.files.folders import FolderRows
from osls.app.files.opening import open_rows
from osls.app.files.predictions import write_predictions
from osls.app.files.rows import FILE_COLUMN, RowFile, rows_per_batch
from osls.app.files.staging import staged_file
from osls.persist import load

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_adapted", "predict_rows", "run_predict"]

_SUFFIXES = (".parquet", ".csv")


def run_predict(model: Path, rows: Path, out: Path, *, overwrite: bool = False) -> None:
    """Predict every row of a file, batch by batch, and print how many of each class there are."""
    if out.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{out}: predictions are written as {' or '.join(_SUFFIXES)}; change the extension.")
    adapted = load_adapted(model)
    data = open_rows(rows)
    with staged_file(out, overwrite=overwrite) as draft:
        counts = write_predictions(predict_rows(adapted, data), draft)
    _print_counts(adapted, counts, out)


def load_adapted(model: Path) -> Adapted:
    """Load what ``osls adapt`` saved."""
    if not model.is_dir():
        raise InputError(f"{model}: no such folder; give the folder 'model' that osls adapt wrote.")
    loaded = load(model)
    if not isinstance(loaded, Adapted):
        raise InputError(
            f"{model}: holds a {type(loaded).__name__} without the columns it was fitted on; "
            "give the folder 'model' that osls adapt wrote."
        )
    return loaded


def predict_rows(adapted: Adapted, rows: RowFile) -> Iterator[pd.DataFrame]:
    """Yield the predictions of a file in order; ids are typed once, so that batches agree."""
    if isinstance(rows, FolderRows):
        rows.unlabelled()
    wanted = set(adapted.encoder.used_columns)
    columns = [column for column in rows.columns if column in wanted]
    ids = [column for column in adapted.ids if column in rows.columns]
    carried = rows.read(ids) if ids else None
    first = 0
    for batch in rows.batches(columns or None, rows_per_batch(len(columns))):
        predictions = adapted.predict(batch, name=rows.name, first_row=first)
        if carried is not None:
            part = carried.iloc[first : first + len(batch)].reset_index(drop=True)
            answers = predictions.drop(columns=[FILE_COLUMN, *ids], errors="ignore")
            predictions = part.join(answers)
        yield predictions
        first += len(batch)


def _print_counts(adapted: Adapted, counts: Counter[str], out: Path) -> None:
    screen = Console()
    total = sum(counts.values())
    for name in adapted.classes:
        share = 100 * counts[name] / total
        screen.print(f"{counts[name]:>10,}  {share:5.1f} %  {name}", markup=False, highlight=False)
    screen.print(
        f"{total:,} rows predicted, in {out}. These are counts of predictions under the mix that the model "
        "was adapted to; for a new mix, run osls adapt or osls monitor.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
