"""Predictions into Parquet and CSV, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

__all__ = ["write_predictions"]


def write_predictions(batches: Iterable[pd.DataFrame], *paths: Path) -> Counter[str]:
    """Write the same rows to every path, by its extension (.csv or Parquet), and count the predicted classes.

    The first batch settles the types of the columns.
    """
    counts: Counter[str] = Counter()
    writers: list[pq.ParquetWriter | arrow_csv.CSVWriter] = []
    schema: pa.Schema | None = None
    try:
        for frame in batches:
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            table = table.replace_schema_metadata(None)
            if schema is None:
                schema = table.schema
                writers = [_open(path, schema) for path in paths]
            for writer in writers:
                writer.write_table(table)
            counts.update(frame["predicted"].value_counts().to_dict())
    finally:
        for writer in writers:
            writer.close()
    return counts


def _open(path: Path, schema: pa.Schema) -> pq.ParquetWriter | arrow_csv.CSVWriter:
    if path.suffix.lower() == ".csv":
        return arrow_csv.CSVWriter(path, schema)
    return pq.ParquetWriter(path, schema)
