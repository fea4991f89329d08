"""Charts of a benchmark as inline SVG; as in :mod:`osls.app.report.fluid`, text keeps its size on a phone.

The colour of a method is a CSS class, ``m0`` to ``m11``; the style sheet has them for light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

__all__ = ["COLOURS", "Bar", "Strip", "error_bars", "rank_plot", "strips"]

COLOURS = 12

_ROW = 40
_AXIS = 24


@dataclass(frozen=True)
class Bar:
    """A method's value, the spread around it, and the paper's figure."""

    name: str
    style: str
    value: float
    spread: float | None = None
    paper: float | None = None


@dataclass(frozen=True)
class Strip:
    """A method's value in every draw, their mean, and the paper's figure."""

    name: str
    style: str
    values: Sequence[float]
    paper: float | None = None
    best: bool = False


def _svg(title: str, height: float, body: Sequence[str]) -> Markup:
    safe = escape(title)
    return Markup(  # nosec B704  # the title is escaped here, the texts in body by _text
        f'<svg class="fluid" width="100%" height="{height:.0f}" role="img" aria-label="{safe}">'
        f"<title>{safe}</title>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, words: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.2f}%" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _round_top(largest: float) -> float:
    """Smallest of a few multiples of a power of ten that is not below the largest value."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(largest))
    return float(next(s * power for s in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if s * power >= largest * 0.999))


def _round_ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers from low to high, both of which are round already."""
    span = high - low
    power = 10.0 ** np.floor(np.log10(span))
    step = next(s * power for s in (0.2, 0.25, 0.5, 1, 2) if span / (s * power) <= 5.001)
    first = max(0, int(np.ceil(low / step - 1e-9)))
    return [i * step for i in range(first, int(high / step + 1e-9) + 1)]


def _axis(low: float, high: float, height: float, ticks: Sequence[float] = ()) -> list[str]:
    """Vertical grid lines over the rows, and their labels below."""
    body = []
    for value in ticks or _round_ticks(low, high):
        x = 100 * (value - low) / (high - low)
        anchor = "start" if x < 5 else "end" if x > 95 else "middle"
        body.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{height:.0f}"/>')
        body.append(_text(x, height + 17, f"{value:.3g}", "tick", anchor))
    return body


def _diamond(x: float, y: float, words: str) -> str:
    """The paper's figure: a diamond, drawn in a box of its own because positions are percentages."""
    return (
        f'<svg x="{x:.2f}%" y="{y - 6:.1f}" overflow="visible" width="1" height="12">'
        f'<path class="from-paper" d="M0 0 L5 6 L0 12 L-5 6 Z"><title>{escape(words)}</title></path></svg>'
    )


def _figure_words(value: float, spread: float | None, digits: int = 3) -> str:
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def error_bars(title: str, bars: Sequence[Bar]) -> Markup:
    """Bars from zero, one a method, with the spread as a whisker and the paper's figure as a diamond."""
    ends = [bar.value + (bar.spread or 0) for bar in bars] + [bar.paper or 0 for bar in bars]
    top = _round_top(max(ends))
    height = _ROW * len(bars)
    body = _axis(0, top, height)
    for i, bar in enumerate(bars):
        y = _ROW * i + 27
        body += [
            _text(0, y - 12, bar.name, "name"),
            _text(100, y - 12, _figure_words(bar.value, bar.spread), "figure", "end"),
            f'<rect class="fill {bar.style}" x="0" y="{y - 6}" width="{100 * bar.value / top:.2f}%" '
            f'height="12" rx="2">'
            f"<title>{escape(bar.name)}: {_figure_words(bar.value, bar.spread)}</title></rect>",
        ]
        if bar.spread:
            low, high = (100 * max(0.0, bar.value + s * bar.spread) / top for s in (-1, 1))
            body.append(f'<line class="whisker" x1="{low:.2f}%" x2="{high:.2f}%" y1="{y}" y2="{y}"/>')
        if bar.paper is not None:
            body.append(_diamond(100 * bar.paper / top, y, f"{bar.name} in the paper: {bar.paper:.3f}"))
    return _svg(title, height + _AXIS, body)


def strips(title: str, rows: Sequence[Strip], *, from_zero: bool) -> Markup:
    """One line a method: a dot for every draw, a bar at the mean, a diamond for the paper's figure."""
    every = [v for row in rows for v in [*row.values, *([] if row.paper is None else [row.paper])]]
    if from_zero:
        low, high = 0.0, _round_top(max(every))
    else:
        # Accuracies end at one; where they begin depends on the worst.
        low, high = max(0.0, np.floor(min(every) * 10) / 10), 1.0
        low = low if low < high else 0.9
    height = _ROW * len(rows)
    body = _axis(low, high, height)

    def across(value: float) -> float:
        return 100 * (value - low) / (high - low)

    for i, row in enumerate(rows):
        y = _ROW * i + 28
        mean = float(np.mean(row.values))
        words = f"{mean:.3f}" if row.paper is None else f"{mean:.3f}, paper {row.paper:.3f}"
        body += [
            _text(0, y - 13, row.name, "name"),
            _text(100, y - 13, words, "figure best" if row.best else "figure", "end"),
            f'<line class="track" x1="0%" x2="100%" y1="{y}" y2="{y}"/>',
        ]
        if row.paper is not None:
            body.append(_diamond(across(row.paper), y, f"{row.name} in the paper: {row.paper:.3f}"))
        body += [
            f'<circle class="fill {row.style} draw" cx="{across(value):.2f}%" cy="{y}" r="4">'
            f"<title>{escape(row.name)}: {value:.3f}</title></circle>"
            for value in row.values
        ]
        x = across(mean)
        body.append(f'<line class="mean {row.style}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{y - 8}" y2="{y + 8}"/>')
    return _svg(title, height + _AXIS, body)


def rank_plot(
    title: str, methods: Sequence[tuple[str, str]], ranks: Sequence[float], difference: float
) -> Markup:
    """Mean ranks with a bar of half the critical difference to each side: bars that do not meet differ."""
    low, high = 1.0, float(len(methods))
    height = _ROW * len(methods)
    body = _axis(low, high, height, [float(rank) for rank in range(1, len(methods) + 1)])
    for i, ((name, style), rank) in enumerate(zip(methods, ranks, strict=True)):
        y = _ROW * i + 28
        left, right = (
            100 * (min(max(rank + s * difference / 2, low), high) - low) / (high - low) for s in (-1, 1)
        )
        x = 100 * (rank - low) / (high - low)
        body += [
            _text(0, y - 13, name, "name"),
            _text(100, y - 13, f"{rank:.2f}", "figure", "end"),
            f'<line class="track" x1="0%" x2="100%" y1="{y}" y2="{y}"/>',
            f'<line class="reach {style}" x1="{left:.2f}%" x2="{right:.2f}%" y1="{y}" y2="{y}"/>',
            f'<circle class="fill {style}" cx="{x:.2f}%" cy="{y}" r="5.5">'
            f"<title>{escape(name)}: mean rank {rank:.2f}</title></circle>",
        ]
    return _svg(title, height + _AXIS, body)
