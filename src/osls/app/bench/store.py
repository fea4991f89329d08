"""Results of a study in one folder: a small file for each run, and one Parquet file of them all.

::

    study.yml         the study as it was last run
    runs/KEY.json     one finished or failed run each, written whole or not at all
    claims/KEY        locked by the process that works on a run; the system unlocks it if that dies
    results.parquet   all rows, made anew from runs/ whenever a study ends

``runs/`` is read first. ``results.parquet`` can be committed without it; a study then continues from there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from osls._core.writing import draft_of
from osls.app.report.page import write_atomically

Row = dict[str, Any]

# Columns in order, by Arrow type. "config", "versions", "hardware", "warnings" and "history" are JSON texts.
_COLUMNS = (
    ("string", "key study data setting method"),
    ("int64", "draw seed"),
    ("string", "paper config started commit"),
    ("bool", "dirty"),
    ("float64", "seconds cpu_seconds peak_memory_mb"),
    ("int64", "threads n_source n_target n_test k"),
    ("float64", "novel_true novel_estimate novel_low novel_high"),
    ("bool", "novel_covered"),
    ("float64", "novelty_pvalue"),
    ("string", "verdict cause"),
    ("float64", "acc_all acc_seen acc_known acc_novel mpe_seen mpe_seen_raw mpe_novel"),
    ("float64", "test_acc_all test_acc_seen test_acc_novel best_threshold acc_best_threshold"),
    ("float64", "h_score novelty_auroc macro_f1 test_h_score"),
    ("string", "error traceback warnings versions hardware history"),
)
COLUMNS = {name: kind for kind, names in _COLUMNS for name in names.split()}


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
        return list(self.rows_by_key().values())

    def rows_by_key(self) -> dict[str, Row]:
        """All rows by the key of their run, in the same order."""
        rows = {row["key"]: row for row in read_parquet(self.parquet)} if self.parquet.exists() else {}
        single = [self.read(path.stem) for path in self._runs.glob("*.json")]
        for row in sorted(filter(None, single), key=lambda row: (row["started"] or "", row["key"])):
            rows[row["key"]] = row
        return rows

    def claim(self, key: str) -> FileLock:
        """The claim on a run, not yet acquired: of all processes and machines, one at a time gets it."""
        self._claims.mkdir(parents=True, exist_ok=True)
        return FileLock(self._claims / key)

    def read(self, key: str) -> Row | None:
        """The row of a run in ``runs/``; None if there is none."""
        try:
            row: Row = json.loads((self._runs / f"{key}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            # An empty file is what a power cut can leave of a run; it is run again.
            return None
        return row

    def write(self, rows: Iterable[Row]) -> None:
        """Write a file for each row."""
        for row in rows:
            clean = {name: _finite(row.get(name)) for name in COLUMNS}
            write_atomically(self._runs / f"{row['key']}.json", json.dumps(clean, allow_nan=False))

    def compact(self, order: Iterable[str] = ()) -> list[Row]:
        """Write all rows as one Parquet file, those of the given keys first, and return them.

        A row of another key is dropped if one of the given keys has its names: its run was changed since.
        """
        place = {key: i for i, key in enumerate(order)}
        rows = sorted(self.rows(), key=lambda row: place.get(row["key"], len(place)))
        current = {_identity(row) for row in rows if row["key"] in place}
        rows = [row for row in rows if row["key"] in place or _identity(row) not in current]
        if rows:
            write_parquet(self.parquet, rows)
        return rows


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("study", "data", "setting", "method", "draw"))


def _finite(value: object) -> object:
    """JSON has no nan; an absent measure is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- Parquet files and folders ---------------------------------------------------------------------------


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Write rows whole or not at all."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    table = pa.Table.from_pylist([{c: row.get(c) for c in COLUMNS} for row in rows], schema=schema)
    with draft_of(path) as draft:
        pq.write_table(table, draft, compression="zstd")


def read_parquet(path: Path) -> list[Row]:
    """Read rows; columns of a later version that this one does not know are kept."""
    rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


@dataclass(frozen=True)
class Results:
    """Rows, and the text of their study file if it is there."""

    name: str
    rows: list[Row]
    study: str | None = None


def read_results(paths: Iterable[Path]) -> list[Results]:
    """Read folders of a study's results, folders of such folders, and Parquet files; one entry a study."""
    results = [result for path in paths for result in _read_path(path) if result.rows]
    if not results:
        raise FileNotFoundError(f"no results in {', '.join(map(str, paths))}; run `osls bench run` first.")
    return results


def _read_path(path: Path) -> list[Results]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if path.suffix == ".parquet":
        return [Results(path.parent.name, read_parquet(path))]
    if not path.is_dir():
        raise ValueError(f"{path} is neither a folder of results nor a .parquet file.")
    if (path / "results.parquet").exists() or (path / "runs").is_dir():
        kept = path / "study.yml"
        study = kept.read_text(encoding="utf-8") if kept.exists() else None
        return [Results(path.name, Store(path).rows(), study)]
    return [result for folder in sorted(path.iterdir()) if folder.is_dir() for result in _read_path(folder)]
