"""Docstrings use a little reStructuredText; this turns it into Markdown before the reference is rendered."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

__all__ = ["PlainMarkup", "to_markdown"]

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`<]+)`")
_MATH_ROLE = re.compile(r":math:`([^`]+)`", re.DOTALL)
_MATH_BLOCK = re.compile(r"^(?P<indent> *)\.\. math::(?P<rest>.*(?:\n(?P=indent) +\S.*)*)", re.MULTILINE)
_REFERENCE = re.compile(r"^(?P<indent> *)\.\. \[(?P<number>\d+)\] ", re.MULTILINE)
_CITATION = re.compile(r"\[(\d+)\]_")
# Code, formulas and what *is* emphasised; any other asterisk is one, as in c* or a * b.
_KEPT = re.compile(
    r"```.*?```|`[^`]+`|\$\$.*?\$\$|\$[^$\n]+\$|^ *(?:>>>|\.\.\.)[^\n]*|^ *\*+\w+[^\n]*"
    r"|(?<![\w*])\*(?=[^\s*])[^*\n]+(?<=\S)\*(?![\w*])",
    re.MULTILINE | re.DOTALL,
)
_CODE_BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n\n(?P<block>(?: {4}.*(?:\n|$)|\n)+)", re.MULTILINE
)
_LITERAL = re.compile(r"^(?P<lead>.*)::\n\n(?P<block>(?: {4}.*(?:\n|$)|\n)+)", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Return a docstring with roles as links, formulas as TeX and literal blocks as fences.

    Examples
    --------
    >>> to_markdown("As in :class:`osls.PULSE`, with :math:`q_p`.")
    'As in <autoref optional identifier="osls.PULSE">`PULSE`</autoref>, with $q_p$.'
    """
    text = _CODE_BLOCK.sub(lambda found: _fenced(found["language"], found["block"]), text)
    text = _LITERAL.sub(_fence, text)
    text = _MATH_BLOCK.sub(_block, text)
    text = _MATH_ROLE.sub(lambda found: f"${' '.join(found[1].split())}$", text)
    text = _ROLE.sub(_link, text)
    text = _REFERENCE.sub(lambda found: f"{found['indent']}{found['number']}. ", text)
    return _escape_asterisks(_CITATION.sub(r"[\1]", text))


def _escape_asterisks(text: str) -> str:
    done, at = [], 0
    for kept in _KEPT.finditer(text):
        done += [re.sub(r"(?<!\\)\*", r"\*", text[at : kept.start()]), kept[0]]
        at = kept.end()
    return "".join([*done, re.sub(r"(?<!\\)\*", r"\*", text[at:])])


def _fence(found: re.Match[str]) -> str:
    lead = found["lead"].rstrip()
    return (f"{lead}:" if lead else "") + "\n\n" + _fenced("text", found["block"])


def _fenced(language: str, block: str) -> str:
    code = dedent(block).strip("\n")
    return f"```{language}\n{code}\n```\n\n"


def _block(found: re.Match[str]) -> str:
    formula = " ".join(found["rest"].split())
    return f"\n{found['indent']}$$ {formula} $$\n"


def _link(found: re.Match[str]) -> str:
    path = found[1]
    # A name without a module is one of the same class: shown, not linked.
    if "." not in path:
        return f"`{path}`"
    return f'<autoref optional identifier="{path}">`{path.rsplit(".", 1)[1]}`</autoref>'


class PlainMarkup(Extension):
    """Rewrite every docstring as it is read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called by griffe for each object."""
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
