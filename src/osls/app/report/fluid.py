"""Charts as inline SVG whose text keeps its size from phone to desktop.

Horizontal positions are percentages of whatever width there is, vertical ones are pixels. Curves, which SVG
cannot give in percentages, live in a nested drawing that is stretched while its strokes are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

from osls._core.arrays import Floats
from osls.app.report.svg import nice_top
from osls.app.report.words import percent, percent_range, shown

__all__ = ["Line", "Mark", "ShareRow", "before_after", "count_bars", "line_chart", "score_histogram"]

_ROW = 48
_AXIS = 22
_NAME_LENGTH = 26
# Per cent of the width for the labels of the histogram's logarithmic axis.
_GUTTER = 9
_DECADES = ("0", "10", "100", "1k", "10k", "100k", "1M", "10M", "100M", "1000M")


@dataclass(frozen=True)
class ShareRow:
    """A class: its share before, now, and the interval for now."""

    name: str
    before: float
    now: float
    low: float
    high: float
    novel: bool


@dataclass(frozen=True)
class Line:
    """A curve, and the band around it if there is one."""

    name: str
    style: str
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False


@dataclass(frozen=True)
class Mark:
    """A point worth a look, with what to say about it."""

    x: float
    y: float
    words: str


def _svg(title: str, height: float, body: Sequence[str], style: str = "") -> Markup:
    safe = escape(title)
    return Markup(  # nosec B704  # the title is escaped here, the texts in body by _text
        f'<svg class="fluid {style}" width="100%" height="{height:.0f}" role="img" aria-label="{safe}">'
        f"<title>{safe}</title>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, words: str, style: str, anchor: str = "start") -> str:
    return (
        f'<text class="{style}" x="{x:.2f}%" y="{y:.1f}" text-anchor="{anchor}" dir="auto">'
        f"{escape(words)}</text>"
    )


def _anchor(position: float) -> str:
    """Text at the borders grows inwards."""
    return "start" if position < 5 else "end" if position > 95 else "middle"


def _steps(top: float) -> Floats:
    """Round values from zero to a round top: 2 is cut into fourths, 1, 2.5 and 5 into fifths."""
    leading = top / 10.0 ** np.floor(np.log10(top) + 1e-9)
    return np.linspace(0, top, 5 if round(leading, 3) == 2 else 6)


def _share_axis(top: float, height: float) -> list[str]:
    """Vertical grid lines over the rows, and their labels below."""
    body = []
    for value in _steps(top):
        x = 100 * value / top
        body.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{height:.0f}"/>')
        body.append(_text(x, height + 16, f"{100 * value:.3g} %", "tick", _anchor(x)))
    return body


def before_after(title: str, rows: Sequence[ShareRow]) -> Markup:
    """A ring for the share before, a dot for now, a bar for its interval; one line a class."""
    top = nice_top(max(max(row.before, row.now, row.high) for row in rows))
    body = _share_axis(top, _ROW * len(rows))
    for i, row in enumerate(rows):
        y = _ROW * i + 34
        before, now, low, high = (100 * v / top for v in (row.before, row.now, row.low, row.high))
        colour = "novel" if row.novel else "known"
        range_words = percent_range(row.low, row.high)
        was = "" if row.novel else f"{percent(row.before)} \u2192 "
        body += [
            _text(0, y - 16, shown(row.name, _NAME_LENGTH), f"name {colour}-text"),
            _text(100, y - 16, f"{was}{percent(row.now)}  ({range_words})", "figure", "end"),
            f'<line class="track" x1="0%" x2="100%" y1="{y}" y2="{y}"/>',
            f'<line class="range {colour}" x1="{low:.2f}%" x2="{high:.2f}%" y1="{y}" y2="{y}"/>',
            "" if row.novel else f'<circle class="ring" cx="{before:.2f}%" cy="{y}" r="5"/>',
            f'<circle class="dot {colour}" cx="{now:.2f}%" cy="{y}" r="5.5">'
            f"<title>{escape(shown(row.name))}: {percent(row.now)} ({range_words})</title></circle>",
        ]
    return _svg(title, _ROW * len(rows) + _AXIS, body)


def count_bars(title: str, rows: Sequence[tuple[str, int, bool]], *, unit: str = "rows") -> Markup:
    """Rows by predicted class: name, number, and whether it is the novel class."""
    total = max(1, sum(count for _, count, _ in rows))
    largest = max(1, *(count for _, count, _ in rows))
    body = []
    for i, (name, count, novel) in enumerate(rows):
        y = 38 * i + 16
        colour = "novel" if novel else "known"
        body += [
            _text(0, y, shown(name, _NAME_LENGTH), f"name {colour}-text"),
            _text(100, y, f"{count:,} {unit}, {percent(count / total)}", "figure", "end"),
            f'<rect class="track-bar" x="0" y="{y + 6}" width="100%" height="7" rx="3.5"/>',
        ]
        if count:
            width = 100 * count / largest
            body.append(
                f'<rect class="bar {colour}" x="0" y="{y + 6}" width="{width:.2f}%" height="7" rx="3.5"/>'
            )
    return _svg(title, 38 * len(rows) + 4, body)


def score_histogram(title: str, scores: Floats, *, bins: int = 20, height: float = 190) -> Markup:
    """How novelty is spread over [0, 1]; heights are logarithmic, or rare rows would vanish."""
    counts, edges = np.histogram(scores, np.linspace(0, 1, bins + 1))
    decades = max(1, int(np.ceil(np.log10(1 + max(1, int(counts.max()))))))
    floor, room = height - _AXIS, height - _AXIS - 16
    body = []
    for decade in range(decades + 1):
        y = floor - room * (np.log10(1 + 10**decade) if decade else 0) / np.log10(1 + 10**decades)
        body.append(f'<line class="grid" x1="{_GUTTER}%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(0, y + 4, _DECADES[decade], "tick"))
    slot = (100 - _GUTTER) / bins
    for i, count in enumerate(counts):
        if count:
            tall = room * np.log10(1 + count) / np.log10(1 + 10**decades)
            colour = "novel" if edges[i] >= 0.5 else "known"
            body.append(
                f'<rect class="bar {colour}" x="{_GUTTER + slot * i + 0.2:.2f}%" width="{slot - 0.4:.2f}%" '
                f'y="{floor - tall:.1f}" height="{tall:.1f}" rx="1.5"><title>{count:,} rows with novelty '
                f"{edges[i]:.2f} to {edges[i + 1]:.2f}</title></rect>"
            )
    for value in (0, 0.25, 0.5, 0.75, 1):
        place = _GUTTER + (100 - _GUTTER) * value
        body.append(_text(place, height - 5, f"{value:g}", "tick", "end" if value == 1 else "middle"))
    return _svg(title, height, body)


def line_chart(
    title: str,
    x: Floats,
    lines: Sequence[Line],
    *,
    x_ticks: Sequence[tuple[float, str]],
    y_words: Callable[[float], str],
    reference: tuple[float, float, float] | None = None,
    marks: Sequence[Mark] = (),
    height: float = 220,
    top: float | None = None,
) -> Markup:
    """Curves from zero up, with bands, a reference (value, low, high) and marked points."""
    highest = max(float(np.nanmax(line.y if line.high is None else line.high)) for line in lines)
    highest = max(highest, *(reference or (0.0,)))
    top = nice_top(highest) if top is None else top
    first, last = float(x[0]), float(x[-1])
    across = (lambda v: (v - first) / (last - first)) if last > first else (lambda v: 0.5)
    floor, room = height - _AXIS, height - _AXIS - 14
    body, labels = [], []
    for value in _steps(top) if height > 150 else (0.0, top):
        y = floor - room * value / top
        body.append(f'<line class="grid" x1="0%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        labels.append(_text(0, y - 4, y_words(value), "tick"))
    body.append(f'<svg x="0" y="14" width="100%" height="{room:.1f}" viewBox="0 0 1000 1000" {_STRETCH}>')
    if reference is not None:
        body.append(_reference(reference, top))
    places = np.array([1000 * across(v) for v in x])
    for line in lines:
        body += _curve(line, places, top)
    body.append("</svg>")
    for line in lines:
        # A single point has no curve; dots show where the data are.
        if line.dots or len(x) == 1:
            body += [
                f'<circle class="dot {line.style}" cx="{100 * across(v):.2f}%" '
                f'cy="{floor - room * min(1.0, w / top):.1f}" r="3"/>'
                for v, w in zip(x, line.y, strict=True)
                if np.isfinite(w)
            ]
    for mark in marks:
        cx, cy = 100 * across(mark.x), floor - room * min(1.0, mark.y / top)
        body.append(
            f'<circle class="mark" cx="{cx:.2f}%" cy="{cy:.1f}" r="7">'
            f"<title>{escape(mark.words)}</title></circle>"
        )
    # On top of the curves, or they would strike the figures out.
    body += labels
    for value, words in x_ticks:
        place = 100 * across(value)
        body.append(_text(place, height - 5, words, "tick", _anchor(place)))
    return _svg(title, height, body)


_STRETCH = 'preserveAspectRatio="none" aria-hidden="true"'


def _reference(reference: tuple[float, float, float], top: float) -> str:
    value, low, high = (1000 * (1 - min(v, top) / top) for v in reference)
    return (
        f'<rect class="reference-band" x="0" width="1000" y="{high:.1f}" height="{abs(low - high):.1f}"/>'
        f'<line class="reference" x1="0" x2="1000" y1="{value:.1f}" y2="{value:.1f}"/>'
    )


def _curve(line: Line, places: Floats, top: float) -> list[str]:
    def points(values: Floats) -> list[str]:
        return [
            f"{x:.1f},{1000 * (1 - min(float(v), top) / top):.1f}"
            for x, v in zip(places, values, strict=True)
            if np.isfinite(v)
        ]

    body = []
    if line.low is not None and line.high is not None:
        outline = points(line.high) + points(line.low)[::-1]
        body.append(f'<polygon class="band {line.style}" points="{" ".join(outline)}"/>')
    body.append(f'<polyline class="curve {line.style}" points="{" ".join(points(line.y))}"/>')
    return body
