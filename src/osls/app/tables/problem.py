"""Source and target as read and checked: everything a fit needs to know of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from osls._core.arrays import AnyArray, Ints
from osls.app.answer import Kind
from osls.app.files.errors import InputError, did_you_mean, shorten
from osls.app.files.folders import FolderRows
from osls.app.files.rows import CLASS_COLUMN, FILE_COLUMN, RowFile
from osls.app.tables.labels import check_labels, class_names

__all__ = ["Problem", "pose"]

_MIN_TARGET_ROWS = 10
# A rare class keeps this many rows when the source is sampled.
_KEPT_OF_A_CLASS = 50


@dataclass(frozen=True)
class Problem:
    """Source and target.

    Attributes
    ----------
    source : DataFrame
        Labelled rows to fit on, without the label; a sample if there are many.
    labels : array of str
        Their classes.
    source_rows : array of int
        Which rows they are, in order.
    classes, class_counts : arrays of shape (k,)
        The classes in order, and the rows of each in the whole source.
    target : RowFile
        The whole target, to be read in batches.
    target_sample : DataFrame
        Rows of it to fit on.
    sampled_rows : array of int
        Which they are, in order.
    ids : DataFrame
        Id columns of the whole target, perhaps none.
    """

    kind: Kind
    label: str
    source_name: str
    source: pd.DataFrame
    labels: AnyArray
    source_rows: Ints
    classes: AnyArray
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


def pose(
    source: RowFile,
    target: RowFile,
    *,
    label: str | None,
    ids: Sequence[str] = (),
    ignore: Sequence[str] = (),
    novel_label: str = "novel",
    max_rows: int = 20_000,
    seed: int = 0,
    ignore_target_label: bool = False,
    allow_one_class: bool = True,
) -> Problem:
    """Read and check both sides; on either, at most about ``max_rows`` rows are drawn to fit on."""
    notes = [*source.notes, *target.notes]
    if isinstance(target, FolderRows):
        target.unlabelled()
    label, ids = _settle_folders(source, target, label, list(ids))
    _check_columns(source, target, label, ids, ignore)
    notes += _check_target_label(target, label, ignore_target_label)
    names = class_names(source.read_raw([label])[label], source.name)
    classes, counts, odd = check_labels(
        names, source.name, label, novel_label, allow_one_class=allow_one_class
    )
    carried = _read_ids(target, ids, classes)
    if len(carried) < _MIN_TARGET_ROWS:
        raise InputError(
            f"{target.name}: there are {len(carried)} rows, at least {_MIN_TARGET_ROWS} are needed to "
            "estimate a mix; collect more."
        )
    rng = np.random.default_rng(seed)
    source_rows = _draw_source(names, max_rows, rng)
    target_rows = _draw(len(carried), max_rows, rng)
    unread = {label, *ids, *ignore} - ({FILE_COLUMN} if target.kind == "images" else set())
    columns = [column for column in target.columns if column not in unread]
    sample = target.take(target_rows, columns)
    return Problem(
        kind=source.kind,
        label=label,
        source_name=source.name,
        source=source.take(source_rows, [c for c in source.columns if c not in unread]),
        labels=names[source_rows],
        source_rows=source_rows,
        classes=classes,
        class_counts=counts,
        target=target,
        columns=tuple(columns),
        target_sample=sample,
        sampled_rows=target_rows,
        ids=carried,
        warnings=(*notes, *odd, *_sampling_notes(len(names), source_rows, len(carried), target_rows)),
    )


def _settle_folders(
    source: RowFile, target: RowFile, label: str | None, ids: list[str]
) -> tuple[str, list[str]]:
    """Folders bring their own label and id; a folder and a table do not go together."""
    if source.kind != target.kind:
        what = {"table": "a table", "text": "a folder of texts", "images": "a folder of pictures"}
        raise InputError(
            f"{target.name}: is {what[target.kind]} but {source.name} is {what[source.kind]}; "
            "give two of the same kind."
        )
    if isinstance(source, FolderRows) and isinstance(target, FolderRows):
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
    if label not in source.columns:
        raise InputError(
            f"{source.name}: there is no column {shorten(label)} to take the labels from; "
            + did_you_mean(label, source.columns)
        )
    for column in ids:
        if column not in target.columns:
            raise InputError(
                f"{target.name}: there is no id column {shorten(column)}; "
                + did_you_mean(column, target.columns)
            )
        if column == label:
            raise InputError(f"{source.name}: the column {shorten(label)} cannot be both label and id.")
    for column in ignore:
        if column not in source.columns and column not in target.columns:
            raise InputError(
                f"{source.name}: there is no column {shorten(column)} to ignore, here or in {target.name}; "
                + did_you_mean(column, source.columns)
            )


def _check_target_label(target: RowFile, label: str, ignored: bool) -> list[str]:
    if label not in target.columns:
        return []
    if not ignored:
        raise InputError(
            f"{target.name}: has the label column {shorten(label)}, which a target is without; "
            "remove it, or have it ignored with --ignore-target-label."
        )
    return [f"The column {shorten(label)} of the target was not looked at."]


def _read_ids(target: RowFile, ids: list[str], classes: AnyArray) -> pd.DataFrame:
    made = {"predicted", "novel", *(f"p_{name}" for name in classes.tolist())}
    for column in ids:
        if column in made:
            raise InputError(
                f"{target.name}: the id column {shorten(column)} has the name of a column of the "
                "predictions; rename it."
            )
    if ids:
        return target.read(ids)
    return pd.DataFrame(index=pd.RangeIndex(target.count()))


def _draw(n_rows: int, max_rows: int, rng: np.random.Generator) -> Ints:
    if n_rows <= max_rows:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, max_rows, replace=False))


def _draw_source(names: AnyArray, max_rows: int, rng: np.random.Generator) -> Ints:
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
