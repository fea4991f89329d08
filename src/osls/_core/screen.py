"""The terminal, as rich draws it, for text of others: none of it is markup, and none of it steers."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from osls._core.printing import printable


class Screen(Console):
    r"""A console for text that a user, a file or a model wrote; styles are given as arguments, not as markup.

    Examples
    --------
    >>> from osls._core.screen import Screen
    >>> Screen().print("the class [link=https://example.org]flu[/link] \x1b[2J")
    the class [link=https://example.org]flu[/link] \x1b[2J
    """

    def __init__(self, **options: Any):
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string, also that of a table's cell, as text."""
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})
