"""Results wherever they lie: a study's folder, a folder of such folders, a Parquet file, JSON lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from osls.app.bench.rows import Row, read_json_lines, read_parquet
from osls.app.bench.store import Store

__all__ = ["Results", "read_results"]


@dataclass(frozen=True)
class Results:
    """Rows, and the text of the study that made them where it is kept."""

    name: str
    rows: list[Row]
    study: str | None = None


def read_results(paths: Iterable[Path]) -> list[Results]:
    """Read results, one entry for each study found."""
    found = [result for path in paths for result in _read(path)]
    if not any(result.rows for result in found):
        raise FileNotFoundError(f"no results in {', '.join(map(str, paths))}; run `osls bench run` first.")
    return [result for result in found if result.rows]


def _read(path: Path) -> list[Results]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if path.suffix == ".jsonl":
        return [Results(path.stem, read_json_lines(path))]
    if path.suffix == ".parquet":
        return [Results(path.parent.name, read_parquet(path))]
    if not path.is_dir():
        raise ValueError(f"{path} is neither a folder of results nor a .parquet or .jsonl file.")
    if (path / "results.parquet").exists() or (path / "runs").is_dir():
        kept = path / "study.yml"
        study = kept.read_text(encoding="utf-8") if kept.exists() else None
        return [Results(path.name, Store(path).rows(), study)]
    return [result for folder in sorted(path.iterdir()) if folder.is_dir() for result in _read(folder)]
