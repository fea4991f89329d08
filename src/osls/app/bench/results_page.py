"""The page of a study's results: figures, tables, and how to make them again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import yaml
from markupsafe import Markup

from osls.app.bench.evaluation import (
    METRICS,
    TRAINING_GRID,
    Aggregate,
    Group,
    Ranks,
    Stat,
    aggregate,
    common_methods,
    comparable,
    mean_ranks,
    summarise,
    training_curves,
    win_rates,
)
from osls.app.bench.store import Results, Row
from osls.app.bench.table import choose_metrics
from osls.app.report.charts import (
    METHOD_COLOURS,
    Curve,
    DrawRow,
    ErrorBar,
    curve_chart,
    draw_chart,
    error_chart,
    rank_chart,
)
from osls.app.report.page import Card, render_page

# The two that the paper's Figure 1 aggregates.
_HEADLINE = ("acc_all", "mpe_novel")
_ERROR_WORDS = {"acc_all": "Target error (1 - accuracy)", "mpe_novel": "Error of the novel share"}


def bench_page(results: Sequence[Results], *, title: str = "") -> str:
    """Return the page of one or several studies' results.

    Parameters
    ----------
    results : list of Results
        From :func:`osls.app.bench.store.read_results`. The rows of several are shown together.
    title : str
        Heading; by default the first study's title.
    """
    rows = [row for result in results for row in result.rows]
    groups = summarise(rows)
    names = list(dict.fromkeys(line.method for group in groups for line in group.lines))
    styles = {name: f"m{i % METHOD_COLOURS}" for i, name in enumerate(names)}
    about = [_about(result) for result in results]
    parts = [_group(group, rows, styles) for group in groups]
    overall = _overall(groups, rows, styles) if len(groups) > 1 else None
    failures = [row for row in rows if row["error"] is not None]
    sections = [("main", "Overview")]
    sections += [("overall", "All data sets")] if overall else []
    sections += [(part["anchor"], part["title"]) for part in parts]
    sections += [("failures", "Failures")] if failures else []
    return render_page(
        "bench.html",
        styles=("report.css", "bench.css"),
        sections=[*sections, ("made", "How it was made")],
        title=title or about[0]["title"],
        about=about,
        cards=_cards(rows, groups),
        overall=overall,
        groups=parts,
        methods=[(name, styles[name]) for name in names],
        failures=failures,
        made=_made(rows),
    )


def _about(result: Results) -> dict[str, str]:
    """Name, title and text of a study."""
    content = yaml.safe_load(result.study) if result.study else None
    content = content if isinstance(content, dict) else {}
    return {
        "name": str(content.get("name", result.name)),
        "title": str(content.get("title") or result.name),
        "text": str(content.get("about", "")),
        "yaml": result.study or "",
    }


def _cards(rows: Sequence[Row], groups: Sequence[Group]) -> list[Card]:
    hours = sum(row["cpu_seconds"] or row["seconds"] or 0 for row in rows) / 3600
    failed = sum(row["error"] is not None for row in rows)
    cards = [
        Card(f"{len(rows):,}", "runs"),
        Card(str(len({group.data for group in groups})), "data sets"),
        Card(str(len({row["method"] for row in rows})), "methods"),
        Card(f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min", "of computing"),
    ]
    return [*cards, Card(str(failed), "failed runs", "alarm")] if failed else cards


# -- One data set ----------------------------------------------------------------------------------------


def _group(group: Group, rows: Sequence[Row], styles: dict[str, str]) -> dict[str, Any]:
    mine = [r for r in rows if (r["data"], r["setting"] or "") == (group.data, group.setting)]
    first = next((r for r in mine if r["error"] is None), None)
    return {
        "title": group.title,
        "anchor": "data-" + re.sub(r"[^a-z0-9]+", "-", group.title.lower()).strip("-"),
        "sizes": first and _sizes([r for r in mine if r["error"] is None]),
        "draw_charts": [
            (METRICS[column].heading, chart)
            for column in _HEADLINE
            if (chart := _draw_chart(group, column, styles)) is not None
        ],
        "training_charts": [
            (METRICS[column].heading, chart)
            for column in _HEADLINE
            if (chart := _training_chart(group, mine, column, styles)) is not None
        ],
        "trained_methods": {c.method for column in _HEADLINE for c in training_curves(mine, column)},
        **_table(group, styles),
    }


def _sizes(rows: Sequence[Row]) -> str:
    """What the problems were, in a sentence."""

    def span(column: str, times: float = 1) -> str:
        values = [row[column] * times for row in rows if row.get(column) is not None]
        low, high = (f"{value:,.0f}" for value in (min(values), max(values)))
        return low if low == high else f"{low} to {high}"

    return (
        f"{span('n_source')} labelled and {span('n_target')} unlabelled rows, {span('k')} known classes, "
        f"{span('novel_true', 100)}% novel."
    )


def _draw_chart(group: Group, column: str, styles: dict[str, str]) -> Markup | None:
    metric = METRICS[column]
    lines = [line for line in group.lines if column in line.stats and line.stats[column].values]
    # The oracle is given the true mix, so its error says nothing.
    lines = [line for line in lines if not line.oracle or metric.higher_is_better]
    if not lines:
        return None
    rows = []
    for line in lines:
        stat = line.stats[column]
        rows.append(DrawRow(line.method, styles[line.method], stat.values, stat.paper, stat.best))
    return draw_chart(f"{metric.heading} on {group.title}", rows, from_zero=not metric.higher_is_better)


def _training_chart(group: Group, rows: Sequence[Row], column: str, styles: dict[str, str]) -> Markup | None:
    metric = METRICS[column]
    curves = [Curve(c.method, styles[c.method], c.mean, c.low, c.high) for c in training_curves(rows, column)]
    if not curves:
        return None
    return curve_chart(
        f"{metric.heading} during training on {group.title}",
        TRAINING_GRID,
        curves,
        x_ticks=[(0.0, "begin"), (0.5, "half of the training"), (1.0, "end")],
        y_words=lambda value: f"{value:.2g}",
        top=1.0 if metric.higher_is_better else None,
    )


def _table(group: Group, styles: dict[str, str]) -> dict[str, Any]:
    """Headings and lines; an entry is None or has mean, spread, worst and the paper's figure as words."""
    metrics = choose_metrics((), [group])
    return {
        "headings": [METRICS[m].heading for m in metrics],
        # The number of draws gets a column only if it is not the same for all.
        "draws": group.lines[0].draws if len({(n.draws, n.failed) for n in group.lines}) == 1 else None,
        "lines": [
            {
                "method": line.name,
                "style": styles[line.method],
                "draws": line.draws,
                "failed": line.failed,
                "entries": [_entry(line.stats.get(m)) for m in metrics],
            }
            for line in group.lines
        ],
        "has_paper": any(stat.paper is not None for line in group.lines for stat in line.stats.values()),
        "stale": any(line.stale for line in group.lines),
    }


def _entry(stat: Stat | None) -> dict[str, Any] | None:
    if stat is None or not stat.values:
        return None
    words = stat.metric.words
    return {
        "value": stat.mean,
        "mean": words(stat.mean),
        "best": stat.best,
        "std": None if stat.std is None else _short(words(stat.std)),
        "worst": None if stat.std is None else _short(words(stat.worst)),
        "paper": None if stat.paper is None else words(stat.paper),
    }


def _short(number: str) -> str:
    """A fraction without its leading zero: the small print decides how wide a column is."""
    return re.sub(r"^(-?)0(\.\d{3})$", r"\1\2", number)


# -- All data sets ---------------------------------------------------------------------------------------


def _overall(every: Sequence[Group], rows: Sequence[Row], styles: dict[str, str]) -> dict[str, Any] | None:
    groups = comparable(every)
    methods = common_methods(groups)
    if len(methods) < 2 or len(groups) < 2:
        return None
    places = {(group.data, group.setting) for group in groups}
    shared = [row for row in rows if (row["data"], row["setting"] or "") in places]
    aggregates = {column: some for column in _HEADLINE if (some := aggregate(groups, column))}
    ranks = {column: ranked for column in _HEADLINE if (ranked := mean_ranks(groups, column))}
    return {
        "problems": len(groups),
        "left_out": sorted({row["method"] for row in rows} - set(methods)),
        "elsewhere": [group.title for group in every if group not in groups],
        "bars": [(_ERROR_WORDS[column], _bars(some, column, styles)) for column, some in aggregates.items()],
        "has_spread": any(a.std is not None for some in aggregates.values() for a in some),
        "has_paper": any(a.paper is not None for some in aggregates.values() for a in some),
        "ranks": [_ranks(ranked, column, styles) for column, ranked in ranks.items()],
        "wins": [w for column in _HEADLINE if (w := _wins(shared, column, methods, styles))],
    }


def _bars(aggregates: Sequence[Aggregate], column: str, styles: dict[str, str]) -> Markup:
    ordered = sorted(aggregates, key=lambda a: a.mean)
    bars = [ErrorBar(a.method, styles[a.method], a.mean, a.std, a.paper) for a in ordered]
    return error_chart(f"{_ERROR_WORDS[column]}, mean over data sets", bars)


def _ranks(ranks: Ranks, column: str, styles: dict[str, str]) -> dict[str, Any]:
    named = [(method, styles[method]) for method in ranks.methods]
    return {
        "heading": METRICS[column].heading,
        "chart": rank_chart(f"Mean ranks by {METRICS[column].heading}", named, ranks.ranks, ranks.difference),
        "difference": f"{ranks.difference:.2f}",
        "p_value": "< 0.001" if ranks.p_value < 0.001 else f"= {ranks.p_value:.3f}",
        "problems": ranks.problems,
    }


def _wins(
    rows: Sequence[Row], column: str, methods: Sequence[str], styles: dict[str, str]
) -> dict[str, Any] | None:
    wins = win_rates(rows, column, methods)
    if wins is None:
        return None
    order = sorted(range(len(methods)), key=lambda i: -float(wins.rates[i].sum()))
    return {
        "heading": METRICS[column].heading,
        "draws": wins.draws,
        "columns": [methods[j] for j in order],
        "lines": [
            {
                "method": methods[i],
                "style": styles[methods[i]],
                "entries": [None if i == j else _share(float(wins.rates[i, j])) for j in order],
            }
            for i in order
        ],
    }


def _share(rate: float) -> tuple[str, str]:
    """A share of wins in words, and the class of its shade."""
    return f"{100 * rate:.0f}%", f"w{round(4 * rate)}"


# -- How it was made -------------------------------------------------------------------------------------


def _made(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Versions, hardware and warnings in the rows, the most frequent first."""
    warned = Counter(w for row in rows for w in json.loads(row.get("warnings") or "[]"))
    parts = [
        ("Versions", _counted(rows, "versions")),
        ("Hardware", _counted(rows, "hardware")),
        ("Warnings", [f"{text} ({times} runs)" for text, times in warned.most_common(10)]),
    ]
    return [(heading, lines) for heading, lines in parts if lines]


def _counted(rows: Sequence[Row], column: str) -> list[str]:
    texts = Counter(row[column] for row in rows if row.get(column))
    return [
        ", ".join(f"{k} {v}" for k, v in json.loads(text).items() if v is not None)
        + ("" if len(texts) == 1 else f" ({times} runs)")
        for text, times in texts.most_common()
    ]
