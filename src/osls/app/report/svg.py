"""Small charts as inline SVG: they need no script, print well, and follow the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from osls._core.arrays import Floats

__all__ = ["Series", "grouped_bars", "histogram", "nice_top"]

Series = tuple[str, str, Sequence[float]]  # name, CSS class, values

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 30, 34


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _frame(title: str, body: list[str], legend: Sequence[tuple[str, str]]) -> str:
    entries, x = [], _LEFT
    for name, style in legend:
        entries.append(
            f'<rect class="{style}" x="{x}" y="6" width="12" height="12" rx="2"/>'
            f'<text x="{x + 17}" y="16">{escape(name)}</text>'
        )
        x += 34 + 7 * len(name)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>{''.join(entries)}{''.join(body)}</svg>"
    )


def nice_top(largest: float) -> float:
    """Smallest of 1, 2, 2.5, 5 times a power of ten that is not below the largest value."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(largest))
    return float(next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= largest * 0.999))


def _line(y: float, label: str) -> list[str]:
    """Horizontal grid line with its label."""
    return [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
    ]


def _below(x: float, label: str) -> str:
    """Label under the horizontal axis."""
    return f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(label)}</text>'


def grouped_bars(title: str, labels: Sequence[str], series: Sequence[Series]) -> str:
    """Bars of shares, one group a label, with the number as a tooltip."""
    top = nice_top(max(max(values) for _, _, values in series))
    body = []
    for value in np.linspace(0, top, 5):
        body += _line(_y(value, top), f"{100 * value:.3g} %")
    slot = (_WIDTH - _LEFT - _RIGHT) / len(labels)
    width = 0.8 * slot / len(series)
    for i, label in enumerate(labels):
        start = _LEFT + i * slot + 0.1 * slot
        for j, (name, style, values) in enumerate(series):
            y = _y(values[i], top)
            body.append(
                f'<rect class="{style}" x="{start + j * width:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{_HEIGHT - _BOTTOM - y:.1f}"><title>{escape(f"{label}, {name}")}: '
                f"{100 * values[i]:.1f} %</title></rect>"
            )
        centre = _LEFT + (i + 0.5) * slot
        body.append(_below(centre, label))
    return _frame(title, body, [(name, style) for name, style, _ in series])


def histogram(title: str, series: Sequence[tuple[str, str, Floats]], *, bins: int = 25) -> str:
    """Histograms of scores in [0, 1] side by side; heights are logarithmic, or the rare rows would vanish."""
    edges = np.linspace(0, 1, bins + 1)
    counts = [np.histogram(values, edges)[0] for *_, values in series]
    decades = max(1.0, float(np.ceil(np.log10(1 + max(int(c.max()) for c in counts)))))
    body = []
    for decade in range(int(decades) + 1):
        body += _line(
            _y(np.log10(1 + 10**decade) if decade else 0.0, decades), str(10**decade if decade else 0)
        )
    slot = (_WIDTH - _LEFT - _RIGHT) / bins
    width = slot / len(series)
    for j, ((name, style, _), heights) in enumerate(zip(series, counts, strict=True)):
        for i, count in enumerate(heights):
            if count > 0:
                y = _y(float(np.log10(1 + count)), decades)
                body.append(
                    f'<rect class="{style}" x="{_LEFT + i * slot + j * width:.1f}" y="{y:.1f}" '
                    f'width="{width - 0.5:.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}">'
                    f"<title>{escape(name)}: {count} rows score "
                    f"{edges[i]:.2f} to {edges[i + 1]:.2f}</title></rect>"
                )
    for value in np.linspace(0, 1, 6):
        body.append(_below(_LEFT + value * (_WIDTH - _LEFT - _RIGHT), f"{value:.1f}"))
    return _frame(title, body, [(name, style) for name, style, _ in series])
