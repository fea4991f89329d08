"""A mix as notebooks show it: a sentence, the verdict and a small chart; no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# The notebook's own colours of text and paper, and bars that can be seen on white and on black.
_STYLE = (
    ".osls-answer{color:inherit;max-width:46em;overflow-x:auto}"
    ".osls-answer table{border-collapse:collapse}"
    ".osls-answer td,.osls-answer th{padding:.25em .8em;text-align:left;"
    "border-bottom:1px solid rgba(128,128,128,.35);background:none;color:inherit}"
    ".osls-answer .bar{display:inline-block;width:9em;height:.7em;background:rgba(128,128,128,.25)}"
    ".osls-answer .bar span{display:block;height:100%;background:#3b7dd8}"
    ".osls-answer .bar .novel{background:#c2185b}"
)


@dataclass(frozen=True)
class ClassLine:
    """A class: its share before (None if it is not known) and now, the interval of now, rows called so."""

    name: str
    before: float | None
    now: float
    interval: tuple[float, float] | None
    rows: int
    novel: bool


def mix_html(
    sentence: str,
    classes: Sequence[ClassLine],
    *,
    level: float,
    verdict: str | None,
    reason: str = "",
    closing: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return a piece of HTML that stands for itself and follows the notebook's light or dark theme.

    Parameters
    ----------
    sentence : str
        The answer.
    classes : sequence of ClassLine
        The lines of the table.
    level : float
        Level of the intervals.
    verdict : str, optional
        What the checks say.
    reason : str
        What to add to the answer, below it and less loud.
    closing : str
        Where to find more. Every text is escaped.
    notes : sequence of str
        What else there is to know; shown folded.

    Examples
    --------
    >>> from osls._core.notebook import ClassLine, mix_html
    >>> line = ClassLine("<b>", before=1.0, now=0.9, interval=None, rows=90, novel=False)
    >>> html = mix_html("A tenth is new.", [line], level=0.95, verdict=None)
    >>> "A tenth is new." in html, "&lt;b&gt;" in html, "<script" in html
    (True, True, False)
    """
    names = ("class", "in the labels", "in the new data", f"{100 * level:g}% interval", "rows")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(map(_line, classes))
    said = "" if verdict is None else f"<p>Verdict: {escape(verdict)}.</p>"
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f"<style>{_STYLE}</style><div class='osls-answer'><p><b>{escape(sentence)}</b></p>"
        + (f"<p>{escape(reason)}</p>" if reason else "")
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"
        + (f"<p>{escape(closing)}</p>" if closing else "")
        + (f"<details><summary>Notes</summary><ul>{listed}</ul></details>" if listed else "")
        + "</div>"
    )


def _line(line: ClassLine) -> str:
    now, kind = f"{100 * line.now:.1f}%", "novel" if line.novel else "known"
    ends = "" if line.interval is None else "{:.1f} to {:.1f}%".format(*(100 * end for end in line.interval))
    cells = (
        escape(line.name),
        "" if line.before is None else f"{100 * line.before:.1f}%",
        f"<span class='bar'><span class='{kind}' style='width:{now}'></span></span> {now}",
        ends,
        f"{line.rows:,}",
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
