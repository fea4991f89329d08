"""The results of a study in one folder: a small file for each run, and one Parquet file of them all.

::

    study.yml         the study as it was last run
    runs/KEY.json     one finished or failed run each, written whole or not at all
    claims/KEY        who is at work on a run now
    results.parquet   all rows, made anew from runs/ whenever a study ends

``runs/`` is what counts; ``results.parquet`` can be committed without it and is then where a study goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from osls.app.bench.claims import Claim
from osls.app.bench.rows import COLUMNS, Row, read_parquet, write_parquet
from osls.app.report.render import write_atomically

__all__ = ["Store"]


class Store:
    """The folder of a study's results."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._runs = folder / "runs"
        self._claims = folder / "claims"

    @property
    def parquet(self) -> Path:
        """The file of all rows."""
        return self.folder / "results.parquet"

    def rows(self) -> list[Row]:
        """All rows, in the order of the Parquet file, then as they were started."""
        found = {row["key"]: row for row in read_parquet(self.parquet)} if self.parquet.exists() else {}
        single = [self.read(path.stem) for path in self._runs.glob("*.json")]
        for row in sorted(filter(None, single), key=lambda row: (row["started"] or "", row["key"])):
            found[row["key"]] = row
        return list(found.values())

    def claim(self, key: str) -> Claim:
        """The claim on a run, yet to be acquired."""
        return Claim(self._claims / key)

    def read(self, key: str) -> Row | None:
        """The row of a run as it is at this moment; None if ``runs/`` has none."""
        try:
            row: Row = json.loads((self._runs / f"{key}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return row

    def write(self, rows: Iterable[Row]) -> None:
        """Write a file for each row."""
        for row in rows:
            clean = {name: _finite(row.get(name)) for name in COLUMNS}
            write_atomically(self._runs / f"{row['key']}.json", json.dumps(clean, allow_nan=False))

    def compact(self, order: Iterable[str] = ()) -> list[Row]:
        """Write all rows as one Parquet file, those of the given keys first, and return them."""
        place = {key: i for i, key in enumerate(order)}
        rows = sorted(self.rows(), key=lambda row: place.get(row["key"], len(place)))
        if rows:
            write_parquet(self.parquet, rows)
        return rows


def _finite(value: object) -> object:
    """JSON has no nan; an absent measure is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
