"""How accuracy and error went from epoch to epoch, averaged over draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from osls._core.arrays import Floats
from osls.app.bench.rows import Row

__all__ = ["GRID", "Course", "courses"]

# Methods count epochs differently; their courses are laid over the share of the training that is done.
GRID = np.linspace(0, 1, 41)


@dataclass(frozen=True)
class Course:
    """A method's mean on the grid over its draws, and the band of one standard deviation around it."""

    method: str
    mean: Floats
    low: Floats
    high: Floats
    draws: int


def courses(rows: Sequence[Row], column: str) -> list[Course]:
    """Average the histories of one data set and setting; methods without epochs are left out."""
    by_method: dict[str, list[Floats]] = {}
    for row in rows:
        course = _course(row, column)
        if course is not None:
            by_method.setdefault(row["method"], []).append(course)
    found = []
    for method, single in by_method.items():
        stacked = np.array(single)
        mean = stacked.mean(axis=0)
        spread = stacked.std(axis=0, ddof=1) if len(single) > 1 else np.zeros(len(GRID))
        low, high = np.clip(mean - spread, 0, None), mean + spread
        found.append(
            Course(method, mean, low, np.minimum(high, 1) if column != "mpe_seen" else high, len(single))
        )
    return found


def _course(row: Row, column: str) -> Floats | None:
    """One history on the grid; None if it has fewer than three values of the column."""
    if row.get("error") is not None or not row.get("history"):
        return None
    values = [record.get(column) for record in json.loads(row["history"])]
    there = [(i, v) for i, v in enumerate(values) if v is not None]
    if len(there) < 3:
        return None
    at = np.array([i for i, _ in there], dtype=float)
    # Steps before the first epoch (a source classifier, say) are not part of the course.
    return np.asarray(np.interp(GRID, (at - at[0]) / (at[-1] - at[0]), [v for _, v in there]))
