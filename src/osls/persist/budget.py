"""What is wrong with a model, and how much one may ask for: bytes, values and depth, before it is built."""

from __future__ import annotations

import re

from osls._core.printing import printable

# Largest ratio of bytes in memory to bytes on the disk; trees have about ten.
MOST_UNPACKED = 200
# Below this many bytes the ratio does not matter.
SMALL = 10_000_000
# Values of a JSON file: a model with a hundred thousand words has about half a million.
MOST_VALUES = 5_000_000
# A pipeline of ensembles of trees has about thirty.
_MOST_DEPTH = 250
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class ModelError(ValueError):
    """A model that cannot be saved, or a folder that cannot or must not be loaded; the message says why."""

    def __init__(self, message: str):
        super().__init__(printable(message, lines=False))


def in_short(error: BaseException) -> str:
    """Return another library's error message on one line, shortened."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said if len(said) <= 300 else said[:297] + '...'}"


class Budget:
    """The bytes that the archives of a model may unpack to, given the bytes on the disk."""

    def __init__(self, on_disk: int):
        self._left = max(SMALL, MOST_UNPACKED * on_disk)

    def spend(self, amount: int, name: str) -> None:
        """Take so many bytes; raise an error if there are not as many left."""
        self._left -= amount
        if self._left < 0:
            raise ModelError(
                f"{name} claims to unpack to {amount} bytes, far more than it has; it is refused."
            )


def check_nesting(text: bytes, name: str) -> None:
    """Raise an error for JSON of too many values, or too deep: counted before it is parsed."""
    if text.count(b",") + text.count(b"[") + text.count(b"{") > MOST_VALUES:
        raise ModelError(f"{name} holds more than {MOST_VALUES} values; it is refused.")
    depth = 0
    for bracket in re.findall(rb"[\[\]{}]", _STRINGS.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > _MOST_DEPTH:
            raise ModelError(f"{name} is nested more than {_MOST_DEPTH} deep; it is refused.")
