"""Rows from files, folders and tables in memory; files that are written whole or not at all."""

from __future__ import annotations

from osls.app.files.opening import open_rows, read_table
from osls.app.files.reader import InputError

__all__ = ["InputError", "open_rows", "read_table"]
