"""Apply a fitted model to a batch of rows: probabilities, and a table of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from osls._core.arrays import Floats, Ints


@dataclass(frozen=True)
class Reader:
    """How to read rows for a model, and how to name its predictions.

    Attributes
    ----------
    classes : tuple
        The known classes, then the novel one, as the model names them.
    columns : tuple of str
        The columns that the model needs.
    by_frame : bool
        Whether the model takes tables, as :class:`osls.app.predict.Adapted` does, or arrays.
    named : bool
        Whether an array model was fitted with column names.
    ids : tuple of str
        Columns to copy to the predictions.
    label : str or None
        Column with the true classes.
    """

    classes: tuple[Any, ...]
    columns: tuple[str, ...]
    by_frame: bool
    named: bool
    ids: tuple[str, ...] = ()
    label: str | None = None

    @property
    def needed(self) -> list[str]:
        """Return every column to read, once."""
        wanted = [*self.columns, *self.ids, *([] if self.label is None else [self.label])]
        return list(dict.fromkeys(wanted))

    def predict(self, model: Any, rows: pd.DataFrame) -> tuple[Floats, pd.DataFrame]:
        """Return probabilities of ``classes``, and a table of ids and answers."""
        inputs = rows[list(self.columns)]
        if self.by_frame:
            answers = model.predict(inputs).drop(columns=list(self.ids), errors="ignore")
            names = [f"p_{name}" for name in self.classes[:-1]]
            proba = answers[[*names, "novel"]].to_numpy(dtype=np.float64)
        else:
            proba = model.predict_proba(inputs if self.named else inputs.to_numpy(dtype=np.float64))
            answers = _tabulate(proba, self.classes)
        ids = rows[list(self.ids)].reset_index(drop=True)
        return proba, pd.concat([ids, answers.reset_index(drop=True)], axis=1)

    def true_classes(self, rows: pd.DataFrame) -> Ints:
        """Position of each row's label among the known classes; -1 if it is not a known class."""
        known = pd.Index(self.classes[:-1])
        labels = rows[self.label]
        return np.asarray(known.get_indexer(labels.astype(str) if self.by_frame else labels))


def _tabulate(proba: Floats, classes: Sequence[Any]) -> pd.DataFrame:
    predicted = np.asarray(classes)[proba.argmax(axis=1)]
    shares = {f"p_{name}": proba[:, j].astype(np.float32) for j, name in enumerate(classes[:-1])}
    return pd.DataFrame({"predicted": predicted, "novel": proba[:, -1].astype(np.float32), **shares})


def reader_for(
    model: Any, available: pd.DataFrame, columns: Sequence[str] | None, ids: Sequence[str], label: str | None
) -> Reader:
    """Decide how to read a table for a model; ``available`` has the same columns, and may have no rows."""
    extra = [*ids, *([] if label is None else [label])]
    _require(available, extra, "ids and label")
    if hasattr(model, "classes_") and hasattr(model, "predict_proba"):
        names = getattr(model, "feature_names_in_", None)
        chosen = _feature_columns(available, columns, names, extra)
        if len(chosen) != model.n_features_in_:
            raise ValueError(
                f"the model was fitted to {model.n_features_in_} features; {len(chosen)} columns would be "
                "read. Pass those that it was fitted to, in their order, as columns=."
            )
        return Reader(tuple(model.classes_), chosen, False, names is not None, tuple(ids), label)
    if hasattr(model, "classes") and hasattr(model, "predict"):
        used = columns or getattr(getattr(model, "encoder", None), "used_columns", None)
        chosen = tuple(used or (name for name in available.columns if name not in extra))
        _require(available, chosen, "columns")
        return Reader(tuple(model.classes), chosen, True, True, tuple(ids), label)
    raise TypeError(
        f"cannot score with {type(model).__name__}: pass a fitted osls adapter, or an object with .classes "
        "and .predict(table) such as osls.app.predict.Adapted."
    )


def _feature_columns(
    available: pd.DataFrame, columns: Sequence[str] | None, fitted: Any, extra: Sequence[str]
) -> tuple[str, ...]:
    if columns is None and fitted is not None:
        columns = [str(name) for name in fitted]
    if columns is None:
        numeric = available.select_dtypes(include=["number", "bool"]).columns
        return tuple(str(name) for name in numeric if name not in extra)
    _require(available, columns, "columns")
    for name in columns:
        if not pd.api.types.is_numeric_dtype(available[name]):
            raise ValueError(
                f"column {name!r} is of type {available[name].dtype}; an array model reads numbers only. "
                "Encode it first, or use osls.adapt, which does."
            )
    return tuple(columns)


def _require(available: pd.DataFrame, wanted: Sequence[str], argument: str) -> None:
    missing = [name for name in wanted if name not in available.columns]
    if missing:
        has = ", ".join(map(str, available.columns[:10]))
        raise ValueError(f"{argument}: the data has no column {missing[0]!r}; it has {has}.")
