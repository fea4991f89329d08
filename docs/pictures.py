"""Draw the pictures that are kept in docs/assets: the overview, the way of the data, the sign of the site.

    python docs/pictures.py

The overview is a real fit (digits, 8 and 9 without labels, half a minute). Each picture comes once for light
pages and once for dark ones; GitHub and this site show the one that fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from osls import PULSE
from osls.datasets import OSLSProblem, simulate_osls

ASSETS = Path(__file__).parent / "assets"
THEMES = {
    "light": {"ink": "#24303f", "soft": "#667385", "line": "#d7dee7", "known": "#1c5fbe", "novel": "#b8480f"},
    "dark": {"ink": "#dfe5ee", "soft": "#9fabba", "line": "#3a4553", "known": "#7fb3ff", "novel": "#ff9a62"},
}
_FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, sans-serif'"


def main() -> None:
    """Write all pictures."""
    X, y = load_digits(return_X_y=True)
    problem = simulate_osls(X, y, novel=[8, 9], random_state=0)
    model = PULSE(random_state=0).fit(problem.X_source, problem.y_source, X_target=problem.X_target)
    for theme, colours in THEMES.items():
        _write(f"overview-{theme}.svg", overview(problem, model, colours))
        _write(f"flow-{theme}.svg", flow(colours))
    _write("logo.svg", logo())


def _write(name: str, svg: str) -> None:
    (ASSETS / name).write_text(svg, encoding="utf-8")
    print(f"{name}: {len(svg) / 1000:.1f} kB")


def _svg(width: int, height: int, parts: Iterable[str], title: str) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' {_FONT}>"
    return "\n".join([head, f"<title>{title}</title>", *parts, "</svg>\n"])


def _text(x: float, y: float, words: str, colour: str, size: float = 14, **more: str) -> str:
    rest = "".join(f" {key.replace('_', '-')}='{value}'" for key, value in more.items())
    return f"<text x='{x:g}' y='{y:g}' fill='{colour}' font-size='{size:g}'{rest}>{words}</text>"


# -- The overview -------------------------------------------------------------------------------------


def overview(problem: OSLSProblem, model: PULSE, colours: dict[str, str]) -> str:
    """Labelled digits, new digits, and what was found."""
    rng = np.random.RandomState(3)
    parts = [_text(0, 16, f"{len(problem.y_source)} labelled digits", colours["ink"], 15, font_weight="600")]
    for place, digit in enumerate(problem.classes):
        row = problem.X_source[np.flatnonzero(problem.y_source == digit)[2]]
        parts += [_digit(row, 4 + 59 * place, 28, colours["ink"])]
        parts += [_text(20 + 59 * place, 78, str(digit), colours["known"], 15, text_anchor="middle")]
    words = f"{len(problem.y_target)} new ones, without labels"
    parts += [_text(0, 112, words, colours["ink"], 15, font_weight="600")]
    for place, row in enumerate(rng.choice(len(problem.y_target), 8, replace=False)):
        parts += [_digit(problem.X_target[row], 4 + 59 * place, 124, colours["ink"])]
        parts += [_text(20 + 59 * place, 174, "?", colours["soft"], 15, text_anchor="middle")]
    parts += [_text(0, 208, "How common is each now?", colours["ink"], 15, font_weight="600")]
    parts += _bars(problem, model, colours, top=222)
    low, high = model.novel_interval_
    title = (
        f"{model.novel_prevalence_:.0%} ({low:.0%} to {high:.0%}) of the new digits are something that "
        f"nobody labelled; in truth {problem.target_marginal[-1]:.0%}"
    )
    return _svg(480, 462, parts, title)


def _digit(row: Any, x: float, y: float, ink: str) -> str:
    """A picture of 8 by 8 pixels in four shades, 32 units wide."""
    pixels = np.round(np.asarray(row).reshape(8, 8) / 16 * 4).astype(int)
    paths = []
    for shade in range(1, 5):
        cells = [f"M{j} {i}h1v1h-1z" for i, j in np.argwhere(pixels == shade)]
        paths.append(f"<path d='{''.join(cells)}' opacity='{shade / 4:g}'/>")
    return f"<g fill='{ink}' transform='translate({x:g} {y:g}) scale(4)'>{''.join(paths)}</g>"


def _bars(problem: OSLSProblem, model: PULSE, colours: dict[str, str], top: float) -> list[str]:
    left, scale, step = 48.0, 880.0, 22.0
    names = [*map(str, problem.classes), "new"]
    before = np.append(problem.source_marginal, 0.0)
    parts = []
    for i, name in enumerate(names):
        middle = top + step * i + 10
        share, (low, high) = model.target_marginal_[i], model.marginal_interval_[i]
        colour = colours["novel" if name == "new" else "known"]
        x, end = left + scale * low, left + scale * high
        parts += [
            _text(left - 10, middle + 5, name, colour, 14, text_anchor="end", font_weight="600"),
            f"<rect x='{left:g}' y='{middle - 7:.1f}' width='{scale * share:.1f}' height='14' rx='2' "
            f"fill='{colour}' opacity='.85'/>",
            f"<path d='M{x:.1f} {middle:g}H{end:.1f}M{x:.1f} {middle - 4:g}v8M{end:.1f} {middle - 4:g}v8' "
            f"stroke='{colours['ink']}' stroke-width='1.5' fill='none'/>",
        ]
        if before[i] > 0:
            mark = left + scale * before[i]
            parts.append(
                f"<path d='M{mark:.1f} {middle - 9:.1f}v18' stroke='{colours['soft']}' stroke-width='2.5' "
                "stroke-dasharray='3 2'/>"
            )
        # In a column of its own: beside the bar it would meet the mark of before.
        parts.append(
            _text(476, middle + 5, f"{share:.0%}".replace("%", " %"), colours["ink"], 14, text_anchor="end")
        )
    bottom = top + step * len(names) + 22
    legend = "bar: now, with its 95 % interval; dashed: before"
    return [*parts, _text(left, bottom, legend, colours["soft"], 13)]


# -- The way of the data --------------------------------------------------------------------------------


def flow(colours: dict[str, str]) -> str:
    """Boxes from rows to answers, with the module of each."""
    boxes = [
        (0, 0, "labelled rows, new rows", "files, tables, encoders", "ink"),
        (0, 1, "source classifier", "training", "known"),
        (1, 1, "source classes + target", "training", "known"),
        (1, 2, "mix of the known classes", "shift.joint", "known"),
        (0, 3, "re-weighted source", "pulse", "known"),
        (1, 3, "novel share, test", "mixture.bbe, inference", "novel"),
        (1, 4, "discriminator", "pu.cvir", "novel"),
        (0, 5, "answer for each row", "base.combine", "ink"),
        (1, 5, "intervals, checks", "inference", "ink"),
    ]
    width, height, gap, step = 220, 46, 40, 74
    parts = [
        f"<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0 0L8 4L0 8z' fill='{colours['soft']}'/></marker></defs>"
    ]

    def centre(column: int, row: int) -> tuple[float, float]:
        return column * (width + gap) + width / 2, row * step + height / 2

    arrows = [
        ((0, 0), (0, 1)),
        ((0, 0), (1, 1)),
        ((1, 1), (1, 2)),
        ((1, 2), (0, 3)),
        ((1, 2), (1, 3)),
        ((1, 3), (1, 4)),
        ((0, 3), (1, 4)),
        ((0, 1), (0, 5)),
        ((1, 4), (0, 5)),
        ((1, 3), (1, 5)),
    ]
    last = 2 * width + gap - 14
    for start, end in arrows:
        (x1, y1), (x2, y2) = centre(*start), centre(*end)
        if end[1] - start[1] > 1 and start[0] == end[0]:
            # Past the box in between.
            path = f"M{14 if start[0] == 0 else last} {y1 + height / 2:g}V{y2 - height / 2 - 2:g}"
        else:
            path = f"M{x1:g} {y1 + height / 2:g}L{x2:g} {y2 - height / 2 - 2:g}"
        parts.append(
            f"<path d='{path}' stroke='{colours['soft']}' stroke-width='1.5' fill='none' "
            "marker-end='url(#tip)'/>"
        )
    for column, row, words, module, colour in boxes:
        # Two boxes leave room for the arrow that goes past them.
        indent = 28 if (column, row) in ((0, 3), (1, 4)) else 0
        x, y = column * (width + gap) + (indent if column == 0 else 0), row * step
        parts += [
            f"<rect x='{x + 1}' y='{y + 1}' width='{width - 2 - indent}' height='{height}' rx='7' "
            f"fill='none' stroke='{colours[colour]}' stroke-width='1.5'/>",
            _text(x + (width - indent) / 2, y + 20, words, colours["ink"], 14, text_anchor="middle"),
            _text(x + (width - indent) / 2, y + 38, module, colours["soft"], 12, text_anchor="middle"),
        ]
    return _svg(2 * width + gap, 5 * step + height + 4, parts, "The way of the data through a fit")


def logo() -> str:
    """Three bars, the last of them of another colour."""
    bars = "".join(
        f"<rect x='{x}' y='{24 - h}' width='5' height='{h - 2}' rx='1.2' fill='{colour}'/>"
        for x, h, colour in ((2, 11, "#5b8fd6"), (9.5, 17, "#5b8fd6"), (17, 22, "#e0813f"))
    )
    return f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'>{bars}</svg>\n"


if __name__ == "__main__":
    main()
