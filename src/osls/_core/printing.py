"""Text of others on a terminal: whatever could steer the terminal is made visible."""

from __future__ import annotations

import unicodedata

# Control characters, formatting marks (among them those that turn the direction of writing), halves of
# surrogate pairs, private use, and the two separators that some terminals take for line breaks.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Joins emoji, and is harmless.
_JOINER = "\u200d"


def printable(text: object, *, lines: bool = True) -> str:
    r"""Return a text in which every character that a terminal might obey is written as its code.

    Class names, file names and the fields of a model's manifest may hold anything: commands that clear the
    screen or write to the clipboard, or marks that turn the direction of writing. Line breaks and tabs are
    kept if ``lines``; in a message of one line they, too, are written as codes.

    Examples
    --------
    >>> from osls._core.printing import printable
    >>> printable("flu\x1b[2J"), printable("a\u202egnp.exe")
    ('flu\\x1b[2J', 'a\\u202egnp.exe')
    >>> printable("naïve 👩‍⚕️")
    'naïve 👩‍⚕️'
    """
    said = str(text)
    if said.isascii() and said.isprintable():
        return said
    kept = {_JOINER, "\n", "\t"} if lines else {_JOINER}
    return "".join(each if each in kept else _shown(each) for each in said)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")
