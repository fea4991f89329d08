"""Charts of all pages as inline SVG: no script, both colour themes, readable from phone to desktop.

Horizontal positions are percentages of the available width and vertical ones are pixels, so that text keeps
its size. SVG has no curves in percentages: they are drawn in a nested picture that is stretched while the
width of its strokes is not. Colours are CSS classes: ``known`` and ``novel``, and ``m0`` to ``m11`` for
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

from osls._core.arrays import Floats
from osls.app.report.wording import percent, percent_range, shown

METHOD_COLOURS = 12
_ROW = 40
_SHARE_ROW = 48
_COUNT_ROW = 38
_AXIS = 24
_NAME_LENGTH = 26
# Per cent of the width for the labels of the histogram's logarithmic axis.
_GUTTER = 9
_DECADES = ("0", "10", "100", "1k", "10k", "100k", "1M", "10M", "100M", "1000M")
_STRETCHED = 'viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true"'


@dataclass(frozen=True)
class ShareRow:
    """A class: its share before, now, the interval for now, and the true share if it is known."""

    name: str
    before: float
    now: float
    low: float
    high: float
    novel: bool
    truth: float | None = None


@dataclass(frozen=True)
class Curve:
    """A curve, and the band around it if there is one."""

    name: str
    style: str
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False


@dataclass(frozen=True)
class Mark:
    """A circle around a point, with a text to show for it."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class ErrorBar:
    """A method's mean error, its standard deviation, and the paper's figure."""

    name: str
    style: str
    value: float
    spread: float | None = None
    paper: float | None = None


@dataclass(frozen=True)
class DrawRow:
    """A method's value in every draw, and the paper's figure."""

    name: str
    style: str
    values: Sequence[float]
    paper: float | None = None
    best: bool = False


@dataclass(frozen=True)
class MapPoint:
    """A row on a map: its place in the unit square, its colour, and what to show for it."""

    x: float
    y: float
    style: str
    words: str


# -- Parts that the charts share -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scale:
    """Values from ``low`` to ``high`` as percentages of the width."""

    low: float
    high: float

    def __call__(self, value: float) -> float:
        return 100 * (value - self.low) / (self.high - self.low)


def axis_end(largest: float) -> float:
    """Return the first round number that is not below the largest value."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(largest))
    return float(next(s * power for s in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if s * power >= largest * 0.999))


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round numbers between two round numbers."""
    span = high - low
    power = 10.0 ** np.floor(np.log10(span) + 1e-9)
    step = next(s * power for s in (0.2, 0.25, 0.5, 1, 2) if span / (s * power) <= 5.001)
    first = max(0, int(np.ceil(low / step - 1e-9)))
    return [i * step for i in range(first, int(high / step + 1e-9) + 1)]


def _svg(title: str, height: float, body: Sequence[str]) -> Markup:
    safe = escape(title)
    return Markup(  # nosec B704  # the title is escaped here, the texts in body by _text and _tip
        f'<svg class="chart" width="100%" height="{height:.0f}" role="img" aria-label="{safe}">'
        f"<title>{safe}</title>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, words: str, style: str, anchor: str = "start") -> str:
    return (
        f'<text class="{style}" x="{x:.2f}%" y="{y:.1f}" text-anchor="{anchor}" dir="auto">'
        f"{escape(words)}</text>"
    )


def _tip(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def _anchor(x: float) -> str:
    """Text at the left and right end grows inwards."""
    return "start" if x < 5 else "end" if x > 95 else "middle"


def _row_title(
    y: float, name: str, figure: str, *, name_style: str = "", figure_style: str = ""
) -> list[str]:
    """The name of a row at its left, its figure at its right."""
    return [
        _text(0, y, name, f"name {name_style}".strip()),
        _text(100, y, figure, f"figure {figure_style}".strip(), "end"),
    ]


def _across(style: str, left: float, right: float, y: float) -> str:
    """A horizontal line."""
    return f'<line class="{style}" x1="{left:.2f}%" x2="{right:.2f}%" y1="{y:.1f}" y2="{y:.1f}"/>'


def _circle(style: str, x: float, y: float, radius: float, words: str = "") -> str:
    circle = f'<circle class="{style}" cx="{x:.2f}%" cy="{y:.1f}" r="{radius:g}"'
    return f"{circle}>{_tip(words)}</circle>" if words else f"{circle}/>"


def _diamond(x: float, y: float, words: str) -> str:
    """A figure to compare with: the paper's, or the truth."""
    # Paths have no percentages, so it is drawn in a picture of its own.
    return (
        f'<svg x="{x:.2f}%" y="{y - 6:.1f}" overflow="visible" width="1" height="12">'
        f'<path class="diamond" d="M0 0 L5 6 L0 12 L-5 6 Z">{_tip(words)}</path></svg>'
    )


def _grid(
    scale: _Scale,
    height: float,
    words: Callable[[float], str] = lambda value: f"{value:.3g}",
    ticks: Sequence[float] = (),
) -> list[str]:
    """Vertical lines behind the rows, and their labels below."""
    body = []
    for value in ticks or _ticks(scale.low, scale.high):
        x = scale(value)
        body.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{height:.0f}"/>')
        body.append(_text(x, height + 17, words(value), "tick", _anchor(x)))
    return body


# -- Shares, counts and probabilities of one answer ------------------------------------------------------


def share_chart(title: str, rows: Sequence[ShareRow]) -> Markup:
    """Classes: a ring is the share before, a dot that of now, a bar its interval, a diamond the truth."""
    scale = _Scale(0, axis_end(max(max(row.before, row.now, row.high, row.truth or 0) for row in rows)))
    height = _SHARE_ROW * len(rows)
    body = _grid(scale, height, lambda value: f"{100 * value:.3g}%")
    for i, row in enumerate(rows):
        body += _share_row(row, _SHARE_ROW * i + 34, scale)
    return _svg(title, height + _AXIS, body)


def _share_row(row: ShareRow, y: float, scale: _Scale) -> list[str]:
    colour = "novel" if row.novel else "known"
    interval = percent_range(row.low, row.high)
    before = "" if row.novel else f"{percent(row.before)} \u2192 "
    figure = f"{before}{percent(row.now)}  ({interval})"
    body = [
        *_row_title(y - 16, shown(row.name, _NAME_LENGTH), figure, name_style=f"{colour}-text"),
        _across("track", 0, 100, y),
        _across(f"range {colour}", scale(row.low), scale(row.high), y),
    ]
    if not row.novel:
        body.append(_circle("ring", scale(row.before), y, 5))
    name = shown(row.name)
    body.append(_circle(f"dot {colour}", scale(row.now), y, 5.5, f"{name}: {percent(row.now)} ({interval})"))
    if row.truth is not None:
        body.append(_diamond(scale(row.truth), y, f"{name}, true share: {percent(row.truth)}"))
    return body


def count_chart(title: str, rows: Sequence[tuple[str, int, bool]], *, unit: str = "rows") -> Markup:
    """Bars of rows by predicted class: name, number, and whether it is the novel class."""
    total = max(1, sum(count for _, count, _ in rows))
    scale = _Scale(0, max(1, *(count for _, count, _ in rows)))
    body = []
    for i, (name, count, novel) in enumerate(rows):
        y = _COUNT_ROW * i + 16
        colour = "novel" if novel else "known"
        figure = f"{count:,} {unit}, {percent(count / total)}"
        body += _row_title(y, shown(name, _NAME_LENGTH), figure, name_style=f"{colour}-text")
        body.append(f'<rect class="track-bar" x="0" y="{y + 6}" width="100%" height="7" rx="3.5"/>')
        if count:
            place = f'x="0" y="{y + 6}" width="{scale(count):.2f}%" height="7" rx="3.5"'
            body.append(f'<rect class="bar {colour}" {place}/>')
    return _svg(title, _COUNT_ROW * len(rows) + 4, body)


def novelty_histogram(title: str, novelty: Floats, *, bins: int = 20, height: float = 190) -> Markup:
    """Numbers of rows by novelty in [0, 1]; heights are logarithmic, or rare rows would not be seen."""
    counts, edges = np.histogram(novelty, np.linspace(0, 1, bins + 1))
    decades = max(1, int(np.ceil(np.log10(1 + max(1, int(counts.max()))))))
    floor, room = height - _AXIS, height - _AXIS - 16

    def tall(count: float) -> float:
        return float(room * np.log10(1 + count) / np.log10(1 + 10**decades))

    body = []
    for decade in range(decades + 1):
        y = floor - (tall(10**decade) if decade else 0)
        body += [_across("grid", _GUTTER, 100, y), _text(0, y + 4, _DECADES[decade], "tick")]
    slot = (100 - _GUTTER) / bins
    for i in np.flatnonzero(counts):
        style = "bar novel" if edges[i] >= 0.5 else "bar known"
        words = f"{counts[i]:,} rows with novelty {edges[i]:.2f} to {edges[i + 1]:.2f}"
        place = (
            f'x="{_GUTTER + slot * i + 0.2:.2f}%" width="{slot - 0.4:.2f}%" y="{floor - tall(counts[i]):.1f}"'
        )
        body.append(
            f'<rect class="{style}" {place} height="{tall(counts[i]):.1f}" rx="1.5">{_tip(words)}</rect>'
        )
    for value in (0, 0.25, 0.5, 0.75, 1):
        x = _GUTTER + (100 - _GUTTER) * value
        body.append(_text(x, height - 5, f"{value:g}", "tick", "end" if value == 1 else "middle"))
    return _svg(title, height, body)


def map_chart(
    title: str, points: Sequence[MapPoint], labels: Sequence[tuple[float, float, str]], *, height: float = 420
) -> Markup:
    """Rows as dots; ``labels`` are written at their places. Novel rows are drawn last, over the others."""
    margin = 10

    def down(y: float) -> float:
        return margin + (height - 2 * margin) * (1 - y)

    ordered = sorted(points, key=lambda point: point.style == "novel")
    body = [_circle(f"spot {p.style}", 1 + 98 * p.x, down(p.y), 4, p.words) for p in ordered]
    body += [_text(1 + 98 * x, down(y) + 6, words, "place", "middle") for x, y, words in labels]
    return _svg(title, height, body)


def mirror_chart(title: str, known: Floats, novel: Floats, *, bins: int = 20, height: float = 130) -> Markup:
    """Two histograms of a number as shares: known rows upwards, novel rows downwards."""
    low, high = np.quantile(np.concatenate([known, novel]), [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    sides = [np.histogram(side.clip(edges[0], edges[-1]), edges)[0] / len(side) for side in (known, novel)]
    room, middle = (height - _AXIS) / 2, (height - _AXIS) / 2
    tallest = max(float(side.max()) for side in sides)
    body = []
    for style, shares, upwards in (("known", sides[0], True), ("novel", sides[1], False)):
        for i in np.flatnonzero(shares):
            tall = room * shares[i] / tallest
            words = (
                f"{percent(float(shares[i]))} of the {style} rows from {edges[i]:.4g} to {edges[i + 1]:.4g}"
            )
            place = f'x="{100 * i / bins + 0.2:.2f}%" width="{100 / bins - 0.4:.2f}%"'
            top = middle - tall if upwards else middle
            body.append(
                f'<rect class="bar {style}" {place} y="{top:.1f}" height="{tall:.1f}">{_tip(words)}</rect>'
            )
    body.append(_across("grid", 0, 100, middle))
    for share in (0.0, 0.5, 1.0):
        value = edges[0] + share * (edges[-1] - edges[0])
        body.append(_text(100 * share, height - 5, f"{value:.4g}", "tick", _anchor(100 * share)))
    return _svg(title, height, body)


def levels_chart(title: str, levels: Sequence[tuple[str, float, float]]) -> Markup:
    """Shares of the values of a column among known and among novel rows, two bars a value."""
    scale = _Scale(0, max(max(known, novel) for _, known, novel in levels))
    body = []
    for i, (name, known, novel) in enumerate(levels):
        y = _ROW * i + 14
        body += _row_title(y, shown(name, _NAME_LENGTH), f"{percent(known)}, {percent(novel)}")
        for style, share, top in (("known", known, y + 5), ("novel", novel, y + 12)):
            place = f'x="0" y="{top}" width="{scale(share):.2f}%" height="6" rx="3"'
            body.append(f'<rect class="bar {style}" {place}/>' if share else "")
    return _svg(title, _ROW * len(levels) + 2, body)


# -- Curves ----------------------------------------------------------------------------------------------


def curve_chart(
    title: str,
    x: Floats,
    curves: Sequence[Curve],
    *,
    x_ticks: Sequence[tuple[float, str]],
    y_words: Callable[[float], str],
    reference: tuple[float, float, float] | None = None,
    marks: Sequence[Mark] = (),
    height: float = 220,
    top: float | None = None,
) -> Markup:
    """Curves from zero up, with bands, a reference (value, low, high) and marked points."""
    top = _highest(curves, reference) if top is None else top
    first, last = float(x[0]), float(x[-1])
    # A single point is drawn in the middle.
    across = _Scale(first, last) if last > first else _Scale(first - 1, first + 1)
    floor, room = height - _AXIS, height - _AXIS - 14

    def down(value: float) -> float:
        return floor - room * min(1.0, value / top)

    levels = _ticks(0, top) if height > 150 else [0.0, top]
    body = [_across("grid", 0, 100, down(value)) for value in levels]
    body.append(f'<svg x="0" y="14" width="100%" height="{room:.1f}" {_STRETCHED}>')
    body += [] if reference is None else [_reference(reference, top)]
    places = np.array([10 * across(v) for v in x])
    body += [part for curve in curves for part in _stretched_curve(curve, places, top)]
    body.append("</svg>")
    for curve in curves:
        if curve.dots or len(x) == 1:
            points = zip(x, curve.y, strict=True)
            body += [
                _circle(f"dot {curve.style}", across(v), down(w), 3) for v, w in points if np.isfinite(w)
            ]
    body += [_circle("mark", across(mark.x), down(mark.y), 7, mark.words) for mark in marks]
    # Labels come last, so that no curve covers them.
    body += [_text(0, down(value) - 4, y_words(value), "tick") for value in levels]
    body += [_text(across(v), height - 5, words, "tick", _anchor(across(v))) for v, words in x_ticks]
    return _svg(title, height, body)


def _highest(curves: Sequence[Curve], reference: tuple[float, float, float] | None) -> float:
    ends = [float(np.nanmax(curve.y if curve.high is None else curve.high)) for curve in curves]
    return axis_end(max(*ends, *(reference or (0.0,))))


def _reference(reference: tuple[float, float, float], top: float) -> str:
    value, low, high = (1000 * (1 - min(v, top) / top) for v in reference)
    return (
        f'<rect class="reference-band" x="0" width="1000" y="{high:.1f}" height="{abs(low - high):.1f}"/>'
        f'<line class="reference" x1="0" x2="1000" y1="{value:.1f}" y2="{value:.1f}"/>'
    )


def _stretched_curve(curve: Curve, places: Floats, top: float) -> list[str]:
    def points(values: Floats) -> list[str]:
        return [
            f"{x:.1f},{1000 * (1 - min(float(v), top) / top):.1f}"
            for x, v in zip(places, values, strict=True)
            if np.isfinite(v)
        ]

    body = []
    if curve.low is not None and curve.high is not None:
        outline = points(curve.high) + points(curve.low)[::-1]
        body.append(f'<polygon class="band {curve.style}" points="{" ".join(outline)}"/>')
    body.append(f'<polyline class="curve {curve.style}" points="{" ".join(points(curve.y))}"/>')
    return body


# -- Methods of a benchmark ------------------------------------------------------------------------------


def error_chart(title: str, bars: Sequence[ErrorBar]) -> Markup:
    """Bars from zero, one a method, with a line for the spread and a diamond for the paper's figure."""
    ends = [bar.value + (bar.spread or 0) for bar in bars] + [bar.paper or 0 for bar in bars]
    scale = _Scale(0, axis_end(max(ends)))
    height = _ROW * len(bars)
    body = _grid(scale, height)
    for i, bar in enumerate(bars):
        y = _ROW * i + 27
        figure = f"{bar.value:.3f}" + ("" if bar.spread is None else f" ± {bar.spread:.3f}")
        place = f'x="0" y="{y - 6}" width="{scale(bar.value):.2f}%" height="12" rx="2"'
        body += _row_title(y - 12, bar.name, figure)
        body.append(f'<rect class="fill {bar.style}" {place}>{_tip(f"{bar.name}: {figure}")}</rect>')
        if bar.spread:
            low, high = max(0.0, bar.value - bar.spread), bar.value + bar.spread
            body.append(_across("whisker", scale(low), scale(high), y))
        if bar.paper is not None:
            body.append(_diamond(scale(bar.paper), y, f"{bar.name} in the paper: {bar.paper:.3f}"))
    return _svg(title, height + _AXIS, body)


def draw_chart(title: str, rows: Sequence[DrawRow], *, from_zero: bool) -> Markup:
    """One line a method: a dot for every draw, a bar at the mean, a diamond for the paper's figure."""
    values = [v for row in rows for v in [*row.values, *([] if row.paper is None else [row.paper])]]
    if from_zero:
        scale = _Scale(0.0, axis_end(max(values)))
    else:
        # Accuracies end at one and begin at a tenth below the lowest.
        low = max(0.0, np.floor(min(values) * 10) / 10)
        scale = _Scale(low if low < 1 else 0.9, 1.0)
    height = _ROW * len(rows)
    body = _grid(scale, height)
    for i, row in enumerate(rows):
        body += _draw_row(row, _ROW * i + 28, scale)
    return _svg(title, height + _AXIS, body)


def _draw_row(row: DrawRow, y: float, scale: _Scale) -> list[str]:
    mean = float(np.mean(row.values))
    figure = f"{mean:.3f}" if row.paper is None else f"{mean:.3f}, paper {row.paper:.3f}"
    body = _row_title(y - 13, row.name, figure, figure_style="best" if row.best else "")
    body.append(_across("track", 0, 100, y))
    if row.paper is not None:
        body.append(_diamond(scale(row.paper), y, f"{row.name} in the paper: {row.paper:.3f}"))
    for value in row.values:
        body.append(_circle(f"fill {row.style} draw", scale(value), y, 4, f"{row.name}: {value:.3f}"))
    x = scale(mean)
    body.append(f'<line class="mean {row.style}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{y - 8}" y2="{y + 8}"/>')
    return body


def rank_chart(
    title: str, methods: Sequence[tuple[str, str]], ranks: Sequence[float], difference: float
) -> Markup:
    """Mean ranks with a bar of half the critical difference to each side: bars that do not meet differ."""
    scale = _Scale(1.0, float(len(methods)))
    height = _ROW * len(methods)
    body = _grid(scale, height, ticks=[float(rank) for rank in range(1, len(methods) + 1)])
    for i, ((name, style), rank) in enumerate(zip(methods, ranks, strict=True)):
        y = _ROW * i + 28
        low, high = np.clip([rank - difference / 2, rank + difference / 2], scale.low, scale.high)
        body += [
            *_row_title(y - 13, name, f"{rank:.2f}"),
            _across("track", 0, 100, y),
            _across(f"reach {style}", scale(low), scale(high), y),
            _circle(f"fill {style}", scale(rank), y, 5.5, f"{name}: mean rank {rank:.2f}"),
        ]
    return _svg(title, height + _AXIS, body)
