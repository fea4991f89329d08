"""Source and target as read and checked: everything a fit needs to know of the files."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from osls._core.arrays import AnyArray, Ints
from osls.app.files.opening import FolderRows
from osls.app.files.reader import (
    CLASS_COLUMN,
    FILE_COLUMN,
    InputError,
    Kind,
    Place,
    RowFile,
    did_you_mean,
    shorten,
)
from osls.app.options import AdaptOptions
from osls.app.tables.parsing import as_strings, refuse_nested

_MIN_TARGET_ROWS = 10
_MAX_CLASSES = 1000
# So many classes need so many rows each on average: the fit would take minutes and know nothing.
_MANY_CLASSES, _ROWS_A_CLASS = 100, 5
# More distinct labels than this share of the rows are names of rows, not of classes.
_MAX_SHARE = 0.5
# A rare class keeps this many rows when the source is sampled.
_KEPT_OF_A_CLASS = 50


@dataclass(frozen=True)
class Problem:
    """Source and target.

    Attributes
    ----------
    places : two of Place
        Which rows of which files ``source`` and ``target_sample`` are.
    source : DataFrame
        Labelled rows to fit on, without the label; a sample if there are many.
    labels : array of str
        Their classes.
    class_counts : array of shape (k,)
        The rows of each class in the whole source.
    target : RowFile
        The whole target, to be read in batches.
    columns : tuple of str
        Its columns, without label, ids and those to ignore.
    target_sample : DataFrame
        Rows of it to fit on.
    sampled_rows : array of int
        Which rows these are, in order.
    ids : DataFrame
        Id columns of the whole target, perhaps none.
    """

    kind: Kind
    label: str
    places: tuple[Place, Place]
    source: pd.DataFrame
    labels: AnyArray
    class_counts: Ints
    target: RowFile
    columns: tuple[str, ...]
    target_sample: pd.DataFrame
    sampled_rows: Ints
    ids: pd.DataFrame
    warnings: tuple[str, ...]

    @property
    def n_source(self) -> int:
        """Rows of the whole source."""
        return int(self.class_counts.sum())

    @property
    def n_target(self) -> int:
        """Rows of the whole target."""
        return len(self.ids)

    @property
    def is_sampled(self) -> bool:
        """Whether the target has rows beyond those to fit on."""
        return len(self.sampled_rows) < self.n_target


def read_problem(source: RowFile, target: RowFile, options: AdaptOptions) -> Problem:
    """Read and check both sides; on either, perhaps only a sample is drawn to fit on."""
    if isinstance(target, FolderRows):
        target.drop_classes()
    label, ids = _settle_folders(source, target, options.label, list(options.id))
    _check_columns(source, target, label, ids, options.ignore)
    notes = [*source.notes, *target.notes, *_check_target_label(target, label, options.ignore_target_label)]
    column = source.read_raw([label])[label]
    names = class_names(column, source.name)
    notes += _blanks_note(column)
    classes, counts, more = check_labels(
        names, source.name, label, options.novel_label, allow_one_class=options.allow_one_class
    )
    carried = _read_ids(target, ids, classes)
    rng = np.random.default_rng(options.random_state)
    source_rows = _draw_source(names, options.rows_to_fit, rng)
    target_rows = _draw(len(carried), options.rows_to_fit, rng)
    unread = {label, *ids, *options.ignore} - ({FILE_COLUMN} if target.kind == "images" else set())
    columns = [column for column in target.columns if column not in unread]
    # Read before the source, so that an error in the target is the one that is reported.
    sample = target.take(target_rows, columns)
    return Problem(
        kind=source.kind,
        label=label,
        places=(Place(source.name, source_rows), Place(target.name, target_rows)),
        source=source.take(source_rows, [c for c in source.columns if c not in unread]),
        labels=names[source_rows],
        class_counts=counts,
        target=target,
        columns=tuple(columns),
        target_sample=sample,
        sampled_rows=target_rows,
        ids=carried,
        warnings=(*notes, *more, *_sampling_notes(len(names), source_rows, len(carried), target_rows)),
    )


def _settle_folders(
    source: RowFile, target: RowFile, label: str | None, ids: list[str]
) -> tuple[str, list[str]]:
    """Return label and ids, which folders bring themselves; raise for a folder beside a table."""
    if source.kind != target.kind:
        what = {"table": "a table", "text": "a folder of texts", "images": "a folder of pictures"}
        raise InputError(
            f"{target.name}: is {what[target.kind]} but {source.name} is {what[source.kind]}; "
            "give two of the same kind."
        )
    if isinstance(source, FolderRows) and isinstance(target, FolderRows):
        if source.is_flat and not target.is_flat:
            raise InputError(
                f"{source.name}: has no class folders, but {target.name} has; are --source and --target "
                "swapped?"
            )
        source.check_classes()
        return label or CLASS_COLUMN, ids or [FILE_COLUMN]
    if label is None:
        raise InputError(
            f"{source.name}: which column holds the labels? Name it with --label; "
            + did_you_mean("label", source.columns)
        )
    return label, ids


def _check_columns(
    source: RowFile, target: RowFile, label: str, ids: Sequence[str], ignore: Sequence[str]
) -> None:
    def missing(rows: RowFile, column: str, what: str) -> InputError:
        words = what.format(shorten(column))
        what = did_you_mean(column, rows.columns)
        # What was read may be why: the first sheet of a workbook.
        return InputError(" ".join([f"{rows.name}: there is no {words}; {what}", *rows.notes]))

    if label not in source.columns and label in target.columns:
        raise InputError(
            f"{source.name}: there is no column {shorten(label)} to take the labels from, but {target.name} "
            "has it; are --source and --target swapped?"
        )
    if label not in source.columns:
        raise missing(source, label, "column {} to take the labels from")
    for column in ids:
        if column not in target.columns:
            raise missing(target, column, "id column {}")
        if column == label:
            raise InputError(f"{source.name}: the column {shorten(label)} cannot be both label and id.")
    for column in ignore:
        if column not in source.columns and column not in target.columns:
            raise missing(source, column, "column {} to ignore, here or in the target")


def _check_target_label(target: RowFile, label: str, ignored: bool) -> list[str]:
    if label not in target.columns:
        return []
    if not ignored:
        raise InputError(
            f"{target.name}: has the label column {shorten(label)}, but a target has no labels; "
            "remove it, or have it ignored with --ignore-target-label."
        )
    return [f"The column {shorten(label)} of the target was not looked at."]


def made_columns(classes: Sequence[str]) -> set[str]:
    """Names of the columns of the predictions, which no id may have."""
    return {"predicted", "novel", "group", *(f"p_{name}" for name in classes)}


def _read_ids(target: RowFile, ids: list[str], classes: AnyArray) -> pd.DataFrame:
    """Return the id columns, one row for each of the target's even if there are no columns."""
    for column in ids:
        if column in made_columns(classes.tolist()):
            raise InputError(
                f"{target.name}: the id column {shorten(column)} has the name of a column of the "
                "predictions; rename it."
            )
    carried = target.read(ids) if ids else pd.DataFrame(index=pd.RangeIndex(target.count()))
    if len(carried) < _MIN_TARGET_ROWS:
        raise InputError(
            f"{target.name}: there are {len(carried)} rows, at least {_MIN_TARGET_ROWS} are needed to "
            "estimate a mix; collect more."
        )
    return carried


def _draw(n_rows: int, max_rows: int | None, rng: np.random.Generator) -> Ints:
    if max_rows is None or n_rows <= max_rows:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, max_rows, replace=False))


def _draw_source(names: AnyArray, max_rows: int | None, rng: np.random.Generator) -> Ints:
    """Draw rows at random, and then more of classes that got too few."""
    drawn = _draw(len(names), max_rows, rng)
    if len(drawn) == len(names):
        return drawn
    more = [rng.permutation(np.flatnonzero(names == name))[:_KEPT_OF_A_CLASS] for name in np.unique(names)]
    few = [rows for rows in more if np.count_nonzero(names[drawn] == names[rows[0]]) < _KEPT_OF_A_CLASS]
    return np.unique(np.concatenate([drawn, *few]))


def _sampling_notes(n_source: int, source_rows: Ints, n_target: int, target_rows: Ints) -> list[str]:
    notes = []
    for side, rows, total in (("source", source_rows, n_source), ("target", target_rows, n_target)):
        if len(rows) < total:
            notes.append(
                f"The models were fitted on {len(rows):,} of the {total:,} {side} rows, drawn at random."
            )
    return notes


# -- Labels -----------------------------------------------------------------------------------------


def class_names(column: pd.Series, source: str) -> AnyArray:
    """Return the labels as strings (3.0 is "3"); raise if a row has none."""
    label = shorten(column.name)
    refuse_nested(column, Place(source))
    names = as_strings(column)
    missing = names.isna().to_numpy()
    if missing.all():
        raise InputError(f"{source}: the label column {label} is empty; choose another with --label.")
    if missing.any():
        row = int(np.argmax(missing)) + 1
        more = f" and {int(missing.sum()) - 1} more rows have" if missing.sum() > 1 else " has"
        raise InputError(
            f"{source}: row {row}{more} no label in column {label}; "
            "label them, or move them to the target, which needs no labels."
        )
    return np.asarray(names, dtype=str)


def check_labels(
    names: AnyArray, source: str, label: str, novel: str, *, allow_one_class: bool
) -> tuple[AnyArray, AnyArray, list[str]]:
    """Return the classes, the number of rows of each, and notes; raise if nothing can be learned."""
    where = f"{source}: the label column {shorten(label)}"
    classes, counts = np.unique(names, return_counts=True)
    if len(classes) > _MAX_CLASSES or (len(classes) > _MAX_SHARE * len(names) and len(classes) > 2):
        raise InputError(
            f"{where} has {len(classes)} different values in {len(names)} rows, so it looks like an id or a "
            "measurement; choose the column of classes with --label."
        )
    if len(classes) > _MANY_CLASSES and len(names) < _ROWS_A_CLASS * len(classes):
        raise InputError(
            f"{where} has {len(classes)} classes in {len(names)} rows, too few rows to tell so many apart; "
            f"merge rare classes, or add rows until there are {_ROWS_A_CLASS} a class."
        )
    if counts.min() < 2:
        raise InputError(
            f"{where} has only 1 row of the class {shorten(classes[counts.argmin()])}; "
            "add rows of that class or remove it, at least 2 are needed."
        )
    if len(classes) == 1 and not allow_one_class:
        raise InputError(
            f"{where} has one class only ({shorten(classes[0])}); if everything else is to count as new, "
            "say so with --allow-one-class (in Python: allow_one_class=True)."
        )
    if novel in classes:
        raise InputError(
            f"{where} has a class called {novel!r}, the name for what is new; "
            "choose another name with --novel-label."
        )
    return classes, counts, _look_alikes(classes, counts)


def _look_alikes(classes: AnyArray, counts: AnyArray) -> list[str]:
    """Name classes that differ in case or in Unicode form only, which a person hardly ever means."""
    seen: dict[str, tuple[str, int]] = {}
    notes = []
    for name, count in zip(classes.tolist(), counts.tolist(), strict=True):
        spelled = unicodedata.normalize("NFKC", name)
        twin, others = seen.setdefault(" ".join(spelled.split()).casefold(), (name, count))
        if twin != name:
            how = "in case" if twin.lower() == name.lower() else "in Unicode form or blanks"
            notes.append(
                f"The classes {shorten(twin)} ({others:,} rows) and {shorten(name)} ({count:,} rows) differ "
                f"{how} only: one class?"
            )
    return notes


def _blanks_note(column: pd.Series) -> list[str]:
    """Say how many labels had blanks at their ends, which are taken off."""
    texts = [value for value in column.tolist() if isinstance(value, str)]
    padded = sum(value != value.strip() for value in texts)
    if not padded:
        return []
    return [f"{padded:,} labels have blanks at their ends, which were taken off."]
