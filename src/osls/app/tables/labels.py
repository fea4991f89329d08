"""Labels as names, and what a label column must be."""

from __future__ import annotations

import numpy as np
import pandas as pd

from osls._core.arrays import AnyArray
from osls.app.files.errors import InputError, shorten
from osls.app.tables.values import as_strings, refuse_nested

__all__ = ["check_labels", "class_names"]

_MAX_CLASSES = 1000
# More distinct labels than this share of the rows are names of rows, not of classes.
_MAX_SHARE = 0.5


def class_names(column: pd.Series, source: str) -> AnyArray:
    """Return the labels as strings (3.0 is "3"); a row without one is an error that names it."""
    label = shorten(column.name)
    refuse_nested(column, source)
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
    """Return the classes, how many rows each has, and what looks odd; raise if nothing can be learned."""
    where = f"{source}: the label column {shorten(label)}"
    classes, counts = np.unique(names, return_counts=True)
    if len(classes) > _MAX_CLASSES or (len(classes) > _MAX_SHARE * len(names) and len(classes) > 2):
        raise InputError(
            f"{where} has {len(classes)} different values in {len(names)} rows, so it looks like an id or a "
            "measurement; choose the column of classes with --label."
        )
    if counts.min() < 2:
        raise InputError(
            f"{where} has only 1 row of the class {shorten(classes[counts.argmin()])}; "
            "add rows of that class or remove it, at least 2 are needed."
        )
    if len(classes) == 1 and not allow_one_class:
        raise InputError(
            f"{where} has one class only ({shorten(classes[0])}); if everything else is to count as new, "
            "say so with --allow-one-class."
        )
    if novel in classes:
        raise InputError(
            f"{where} has a class called {novel!r}, the name for what is new; "
            "choose another name with --novel-label."
        )
    return classes, counts, _look_alikes(classes)


def _look_alikes(classes: AnyArray) -> list[str]:
    """Name classes that differ in case only, which a person hardly ever means."""
    seen: dict[str, str] = {}
    found = []
    for name in classes.tolist():
        twin = seen.setdefault(name.casefold(), name)
        if twin != name:
            found.append(f"The classes {shorten(twin)} and {shorten(name)} differ in case only: one class?")
    return found
