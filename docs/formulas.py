"""Formulas as MathML, made when the pages are built: browsers draw it without any script."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

__all__ = ["draw_formulas"]

# What the extension arithmatex leaves in a page: \(...\) in a span, \[...\] in a div.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# Spellings that the converter does not know.
_SPELLINGS = {r"\arg\min": r"\operatorname{arg\,min}", r"\_": "_"}


def draw_formulas(page: str) -> str:
    """Replace every formula of a page by MathML."""
    return _FORMULA.sub(_draw, page)


def _draw(found: re.Match[str]) -> str:
    block = found[1] == "div"
    latex = html.unescape(found[2]).strip()
    for before, after in _SPELLINGS.items():
        latex = latex.replace(before, after)
    drawn = convert(latex, display="block" if block else "inline")
    if "\\" in drawn:
        raise ValueError(f"this formula has a command that cannot be drawn: {latex}")
    return f'<div class="formula">{drawn}</div>' if block else drawn
