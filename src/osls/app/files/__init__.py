"""Tables, texts and pictures from files, and answers into files."""

from __future__ import annotations

from osls.app.files.errors import InputError
from osls.app.files.opening import open_rows, read_table

__all__ = ["InputError", "open_rows", "read_table"]
