"""The report of ``osls adapt``: the answer in a sentence, and everything that stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osls import __version__
from osls._core.arrays import Floats, Ints
from osls.app.answer import Answer
from osls.app.report.examples import example_columns, examples, most_novel
from osls.app.report.fluid import ShareRow, before_after, count_bars, score_histogram
from osls.app.report.groups import Group, find_groups
from osls.app.report.page import render_page
from osls.app.report.traits import data_columns
from osls.app.report.trust import describe_checks, describe_verdict, draw_curves
from osls.app.report.words import (
    headline,
    history_words,
    number,
    percent,
    percent_range,
    shown,
    status_of,
)

__all__ = ["render_report"]

_MOST_NOVEL = {"table": 15, "text": 10, "images": 24}
_TYPICAL = {"table": 4, "text": 3, "images": 6}
_MAX_DRAWN = 16
_LONG_TEXT = 400
_ROW_WORDS = {"table": "rows", "text": "texts", "images": "pictures"}

_SECTIONS = (
    ("answer", "Answer"),
    ("mix", "Mix"),
    ("rows", "Rows"),
    ("novel", "Most novel"),
    ("groups", "Groups"),
    ("trust", "Trust"),
    ("cite", "Cite and reproduce"),
)
_CITATION = f"""@inproceedings{{garg2022domain,
  title     = {{Domain Adaptation under Open Set Label Shift}},
  author    = {{Garg, Saurabh and Balakrishnan, Sivaraman and Lipton, Zachary C.}},
  booktitle = {{Advances in Neural Information Processing Systems}},
  year      = {{2022}}
}}
@software{{osls,
  title   = {{osls: adapt a classifier when the class mix changes and something new appears}},
  author  = {{{{The osls developers}}}},
  version = {{{__version__}}}
}}"""


def render_report(answer: Answer) -> str:
    """Render an answer as one HTML file that needs nothing else.

    Parameters
    ----------
    answer : Answer
        What `osls adapt` found.

    Returns
    -------
    str
        The page. Every value of the data is escaped; pictures are embedded as small copies.
    """
    seed = answer.settings.get("seed")
    groups = find_groups(answer, seed=seed if isinstance(seed, int) else 0)
    telling = [t.column for t in sorted((t for g in groups for t in g.traits), key=lambda t: -t.strength)]
    columns = example_columns(answer, telling)
    return render_page(
        "adaptation.html",
        sections=_SECTIONS,
        headline=headline(answer),
        kicker=_kicker(answer),
        level=percent(answer.level),
        kind=answer.kind,
        items=_ROW_WORDS[answer.kind],
        verdict=describe_verdict(answer),
        cards=_cards(answer),
        mix=_mix(answer),
        counts=_counts(answer),
        histogram=score_histogram(
            "Number of rows by their probability of being novel",
            answer.predictions["novel"].to_numpy(dtype=float),
        ),
        nothing_new=bool(answer.target_share[-1] <= 0),
        novel={
            "examples": examples(answer, most_novel(answer, _MOST_NOVEL[answer.kind]), columns),
            "columns": [_column(answer, name) for name in columns],
            "columns_total": len(data_columns(answer)),
            "columns_left_out": 0 < len(columns) < len(data_columns(answer)),
        },
        group_words=_group_words(answer, groups),
        groups=[_group(answer, group, columns) for group in groups],
        checks=describe_checks(answer),
        curves=draw_curves(answer),
        warnings=[shown(w, _LONG_TEXT) for w in answer.warnings],
        history=history_words(getattr(answer.model, "history_", [])),
        command=shown(answer.command, 4000),
        settings=_settings(answer.settings),
        citation=_CITATION,
    )


def _kicker(answer: Answer) -> str:
    words = _ROW_WORDS[answer.kind]
    n = answer.settings.get("n_source", len(answer.source_rows))
    m = answer.settings.get("n_target", len(answer.predictions))
    sampled = f"; fitted on {len(answer.predictions):,} of these" if m > len(answer.predictions) else ""
    return f"osls report: {n:,} labelled {words}, {m:,} new ones{sampled}"


def _cards(answer: Answer) -> list[dict[str, Any]]:
    low, high = (float(v) for v in answer.interval[-1])
    counts = _count(answer)
    called, m = int(counts[-1]), max(1, int(counts.sum()))
    status = status_of(answer)
    share: dict[str, Any] = {
        "figure": percent(answer.target_share[-1]),
        "words": f"is something new; {percent(answer.level)} interval {percent_range(low, high)}",
        "new": status == "identified" and answer.target_share[-1] > 0,
    }
    if status == "upper bound only":
        share |= {"figure": f"\u2265 {percent(low)}", "words": "is something new; how much more is not known"}
    cards: list[dict[str, Any]] = [
        share,
        {"figure": f"{called:,}", "words": f"{_ROW_WORDS[answer.kind]} called novel, {percent(called / m)}"},
    ]
    if answer.novelty_pvalue is not None:
        p = answer.novelty_pvalue
        cards.append(
            {
                "figure": f"p = {p:.2f}" if p >= 0.01 else "p < 0.01",
                "words": "chance of such an excess of unfamiliar rows if nothing were new",
            }
        )
    total = float(np.abs(answer.target_share - answer.source_share).sum() / 2)
    cards.append({"figure": percent(total), "words": "of the mix has changed hands between classes"})
    return [{"new": False, **card} for card in cards]


def _drawn(size: Floats | Ints) -> list[int]:
    """Known classes to draw: all if they are few, else the largest by ``size``; the novel class always."""
    k = len(size) - 1
    chosen = range(k) if k <= _MAX_DRAWN else sorted(np.argsort(-size[:k], kind="stable")[: _MAX_DRAWN - 1])
    return [*(int(j) for j in chosen), k]


def _mix(answer: Answer) -> dict[str, Any]:
    change = answer.target_share - answer.source_share
    rows = []
    for j, name in enumerate(answer.classes):
        low, high = (float(v) for v in answer.interval[j])
        row = ShareRow(
            shown(name),
            float(answer.source_share[j]),
            float(answer.target_share[j]),
            low,
            high,
            novel=j == len(answer.classes) - 1,
        )
        rows.append(row)
    drawn = _drawn(np.abs(change))
    return {
        "chart": before_after(
            "Share of each class in the labels and in the new data", [rows[j] for j in drawn]
        ),
        "drawn": len(drawn),
        "left_out": len(rows) - len(drawn),
        "rows": [
            {
                **vars(row),
                "before_words": percent(row.before),
                "now_words": percent(row.now),
                "range_words": percent_range(row.low, row.high),
                "width": row.high - row.low,
                "change": row.now - row.before,
                "change_words": f"{100 * (row.now - row.before):+.1f}",
            }
            for row in rows
        ],
    }


def _count(answer: Answer) -> Ints:
    """Rows by predicted class. Of a large target the answer holds a sample, the settings all counts."""
    counted = answer.settings.get("predicted_counts")
    predicted = answer.predictions["predicted"].astype(str).value_counts() if counted is None else counted
    return np.array([int(predicted.get(str(name), 0)) for name in answer.classes])


def _counts(answer: Answer) -> dict[str, Any]:
    counts = _count(answer)
    drawn = _drawn(counts)
    last = len(answer.classes) - 1
    rows = [(str(answer.classes[j]), int(counts[j]), j == last) for j in drawn]
    return {
        "chart": count_bars("Number of rows by predicted class", rows, unit=_ROW_WORDS[answer.kind]),
        "left_out": len(counts) - len(drawn),
    }


def _column(answer: Answer, name: str) -> dict[str, Any]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    values = answer.target_rows[name]
    return {"name": shown(name, 40), "numeric": is_numeric_dtype(values) and not is_bool_dtype(values)}


def _group_words(answer: Answer, groups: Sequence[Group]) -> str:
    words = _ROW_WORDS[answer.kind]
    if not groups:
        return f"None of the new {words} was called novel, so there is nothing to group."
    if len(groups) == 1:
        return (
            f"The {len(groups[0].rows):,} {words} called novel form one group: no split of them could be "
            "found again in one half from the other."
        )
    return (
        f"The {words} called novel fall into {len(groups)} groups, the largest first. A split is kept only "
        "if what one half of them says about it also holds in the other half. A group is a suggestion for "
        "a new label, not a proof of one."
    )


def _group(answer: Answer, group: Group, columns: Sequence[str]) -> dict[str, Any]:
    size = f"{len(group.rows):,} {_ROW_WORDS[answer.kind]}, {percent(group.share)} of the new data"
    return {
        "size": size,
        "resembles": group.resembles,
        "words": [word for trait in group.traits for word in trait.words],
        "traits": [trait.sentence for trait in group.traits if not trait.words],
        "examples": examples(answer, group.rows[: _TYPICAL[answer.kind]], columns),
    }


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as names and values; mappings inside are spread out."""
    rows = []
    for name, value in settings.items():
        if name == "predicted_counts":  # drawn already
            continue
        words = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else value
        if isinstance(words, bool):
            words = "yes" if words else "no"
        elif isinstance(words, float):
            words = number(words)
        rows.append((shown(name).replace("_", " "), shown(words, _LONG_TEXT)))
    return rows
