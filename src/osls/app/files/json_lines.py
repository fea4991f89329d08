"""JSON lines: one object a line, or one array of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from osls.app.files.errors import InputError, shorten
from osls.app.files.rows import BATCH_ROWS, RowFile
from osls.app.files.scan import scan_text

__all__ = ["JsonRows"]


class JsonRows(RowFile):
    """A file of JSON objects; a key that an object lacks is a missing value."""

    def __init__(self, path: Path):
        if scan_text(path).empty:
            raise InputError(f"{path}: the file is empty; check that this is the right file.")
        self._path = path
        columns: dict[str, None] = {}
        n_rows = 0
        for record in self._records():
            columns.update(dict.fromkeys(record))
            n_rows += 1
        if not n_rows:
            raise InputError(f"{path}: there are no rows; check that this is the right file.")
        self._n_rows = n_rows
        super().__init__(str(path), list(columns))

    def count(self) -> int:
        return self._n_rows

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[pd.DataFrame]:
        """Parse line by line."""
        wanted = list(self.columns if columns is None else columns)
        records = self._records()
        while part := list(islice(records, size)):
            yield pd.DataFrame({name: [record.get(name) for record in part] for name in wanted})

    def _records(self) -> Iterator[dict[str, Any]]:
        with self._path.open(encoding="utf-8-sig") as file:
            start = file.read(1)
            while start.isspace():
                start = file.read(1)
            file.seek(0)
            if start == "[":
                yield from self._array(file.read())
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield self._record(self._parse(line, number), f"line {number}")

    def _array(self, text: str) -> Iterator[dict[str, Any]]:
        for number, value in enumerate(self._parse(text.strip(), 1), 1):
            yield self._record(value, f"row {number}")

    def _parse(self, text: str, line: int) -> Any:
        try:
            return json.loads(text.lstrip("\ufeff"), object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{self._path}: line {line + error.lineno - 1} is not JSON ({error.msg} at character "
                f"{error.colno}); write one object a line."
            ) from None
        except RecursionError:
            raise InputError(
                f"{self._path}: line {line} is nested too deeply; write one flat object."
            ) from None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{self._path}: an object has the key {shorten(twice)} twice; rename or remove one of them."
            )
        return found

    def _record(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InputError(
                f"{self._path}: {where} holds {shorten(value)}, not an object; "
                'write rows as {"column": value, ...}.'
            )
        return value
