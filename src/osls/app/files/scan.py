"""A first look at a text file: is it text at all, and in UTF-8?"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

from osls.app.files.errors import InputError

__all__ = ["TextScan", "scan_text"]

_PIECE = 1 << 20
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


@dataclass(frozen=True)
class TextScan:
    """What the whole file showed."""

    empty: bool
    quotes_balanced: bool


def scan_text(path: Path) -> TextScan:
    """Read a file once in pieces; raise if it is not UTF-8 text, naming the line."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line, quotes, blank = 1, 0, True
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            _check_mark(path, piece, line)
            if b"\0" in piece:
                raise InputError(
                    f"{path}: there are zero bytes in or after line {line}, so it is not a text file; "
                    "check the file or its extension."
                )
            line = _decode(path, decoder, piece, line)
            quotes += piece.count(b'"')
            blank = blank and not piece.strip(b"\xef\xbb\xbf \t\r\n")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise _not_utf8(path, line) from None
    return TextScan(blank, quotes % 2 == 0)


def _check_mark(path: Path, piece: bytes, line: int) -> None:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if line == 1 and piece.startswith(mark):
            raise InputError(f"{path}: the file is in {encoding}; save it as UTF-8 and try again.")


def _decode(path: Path, decoder: codecs.IncrementalDecoder, piece: bytes, line: int) -> int:
    """Decode a piece and return the number of the line after it."""
    try:
        return line + decoder.decode(piece).count("\n")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, line + error.object[: error.start].count(b"\n")) from None


def _not_utf8(path: Path, line: int) -> InputError:
    return InputError(
        f"{path}: line {line} is not in UTF-8 (an older encoding such as Latin-1?); "
        "save the file as UTF-8 and try again."
    )
