"""Rows from files, folders and tables in memory; files that are written whole or not at all."""

from __future__ import annotations

from osls.app.files.errors import InputError
from osls.app.files.opening import open_rows, read_table

__all__ = ["InputError", "open_rows", "read_table"]
