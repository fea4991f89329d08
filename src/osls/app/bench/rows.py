"""Rows of results: their columns, as Parquet or JSON, and rows of the first benchmark's format."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "COLUMNS",
    "Row",
    "config_key",
    "from_first_format",
    "read_json_lines",
    "read_parquet",
    "write_parquet",
]

Row = dict[str, Any]

# Column -> Arrow type. "config", "versions", "hardware", "warnings" and "history" are JSON texts.
COLUMNS = {
    "key": "string",
    "study": "string",
    "data": "string",
    "setting": "string",
    "method": "string",
    "draw": "int64",
    "seed": "int64",
    "paper": "string",
    "config": "string",
    "started": "string",
    "seconds": "float64",
    "cpu_seconds": "float64",
    "peak_memory_mb": "float64",
    "threads": "int64",
    "n_source": "int64",
    "n_target": "int64",
    "n_test": "int64",
    "k": "int64",
    "novel_true": "float64",
    "novel_estimate": "float64",
    "novel_low": "float64",
    "novel_high": "float64",
    "novel_covered": "bool",
    "novelty_pvalue": "float64",
    "verdict": "string",
    "acc_all": "float64",
    "acc_seen": "float64",
    "acc_novel": "float64",
    "mpe_seen": "float64",
    "mpe_novel": "float64",
    "test_acc_all": "float64",
    "test_acc_seen": "float64",
    "test_acc_novel": "float64",
    "best_threshold": "float64",
    "acc_best_threshold": "float64",
    "error": "string",
    "traceback": "string",
    "warnings": "string",
    "versions": "string",
    "hardware": "string",
    "history": "string",
}


def config_key(config: Mapping[str, Any]) -> str:
    """Return the hash that identifies a run: the same config is the same run, whatever it is called."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Write rows whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    table = pa.Table.from_pylist([{c: row.get(c) for c in COLUMNS} for row in rows], schema=schema)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(table, draft, compression="zstd")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def read_parquet(path: Path) -> list[Row]:
    """Read rows; columns of a later version that this one does not know are kept."""
    import pyarrow.parquet as pq

    rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


def read_json_lines(path: Path) -> list[Row]:
    """Read the first benchmark's format, one JSON line a run; a last line cut short is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    empty = dict.fromkeys(COLUMNS)
    return [empty | (row if "key" in row else from_first_format(row)) for row in rows]


def from_first_format(old: Row) -> Row:
    """Turn a row of the first benchmark into one of today; its run counts as done in a study that has it."""
    data: dict[str, Any] = {"name": old["data"]}
    if old["novel"] is not None:
        data["novel"] = old["novel"]
    method = {"name": old["method"]}
    config = {"data": data, "method": method, "draw": old["draw"], "seed": old["seed"]}
    low, high = old.get("novel_interval") or (None, None)
    row = {name: old[name] for name in COLUMNS if name in old} | {
        "key": config_key(config),
        "study": "imported",
        "setting": "" if old["novel"] is None else f"novel={old['novel']}",
        "config": json.dumps(config, sort_keys=True),
        "versions": json.dumps(old["versions"]),
        "hardware": json.dumps({"machine": old["machine"], "cores": old["cores"]}),
        "novel_low": low,
        "novel_high": high,
    }
    if low is not None and old.get("novel_true") is not None:
        row["novel_covered"] = low <= old["novel_true"] <= high
    return row
