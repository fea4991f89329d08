"""The report of ``osls adapt`` and ``osls demo``: the answer in a sentence, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from osls import __version__
from osls._core.arrays import Floats, Ints
from osls.app.answer import Answer
from osls.app.report.charts import Curve, ShareRow, count_chart, curve_chart, novelty_histogram, share_chart
from osls.app.report.groups import Group, example_columns, examples, find_groups, most_novel
from osls.app.report.landscape import draw_contrasts, draw_map
from osls.app.report.page import Card, render_page
from osls.app.report.traits import data_columns
from osls.app.report.wording import (
    STATUS_WORDS,
    headline,
    history_words,
    number,
    percent,
    percent_range,
    shown,
    status_of,
)
from osls.inference.diagnostics import Check, Status
from osls.inference.discovery import Parts

_MOST_NOVEL = {"table": 15, "text": 10, "images": 24}
_TYPICAL = {"table": 4, "text": 3, "images": 6}
_MAX_DRAWN = 16
_LONG_TEXT = 400
_ROW_WORDS = {"table": "rows", "text": "texts", "images": "pictures"}

_SECTIONS = (
    ("answer", "Answer"),
    ("mix", "Mix"),
    ("rows", "Rows"),
    ("map", "Map"),
    ("novel", "Most novel"),
    ("groups", "Groups"),
    ("trust", "Trust"),
    ("cite", "Cite and reproduce"),
)
_BADGES: dict[Status, tuple[str, str]] = {
    "no violation seen": ("good", "No violation seen"),
    "upper bound only": ("caution", "Upper bound only"),
    "not identified": ("caution", "Not identified"),
    "do not trust": ("stop", "Do not trust"),
}
# What each check measures. The check's own message says what is wrong, and is shown only if it failed.
_CHECK_WORDS = {
    "source rows accepted": "The share of a typical class's labelled rows that would be called novel.",
    "every class accepted": "The share of one class's labelled rows that would be called novel, at most.",
    "accepted rows alike": "How well labelled and new rows, both taken for known, can still be told apart.",
    "every class present": "The smallest share of a known class in the new data.",
    "effective sample size": "How many rows the labelled data is worth when it is weighted to the new mix.",
    "calibration": "How far the classifier's probabilities of the known classes are off, on average.",
    "top bin size": "How many labelled rows the estimated share of known rows rests on.",
    "estimators agree": "How far apart two ways of estimating the share of known rows are.",
    "labelled rows": "How many labelled rows the smallest known class has.",
    "labels agree": "The share of labels that the surest answers contradict, at the least.",
    "rows on one side only": "The share of new rows that are copies of labelled rows.",
    "bounds agree": "By how much the ends of the finite-sample bound contradict each other.",
    "classes told apart": "The area under the curve of the two known classes that are hardest to tell apart.",
    "convergence": "The share of new rows that still changed sides in the last round of training.",
}
_CURVE_WORDS = {
    "top bin": "An estimate of the share of known rows in the new data (vertical), from those labelled rows "
    "that look most known: the surest few on the left, all of them on the right (horizontal). If it is flat "
    "on the left, the answer, drawn as a dashed line, does not depend on how many rows are used.",
}
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


@dataclass(frozen=True)
class Truth:
    """What the answer is compared with where the labels of the new data are known, as in the demo.

    Attributes
    ----------
    share : array of shape (k + 1,)
        The true mix of the new data.
    novel_names : str
        The classes that the labels leave out.
    accuracy, novel_accuracy : float
        Of the answer: on all new rows, and on those of the novel classes.
    source_accuracy : float
        On all new rows, of the source classifier without adaptation.
    """

    share: Floats
    novel_names: str
    accuracy: float
    novel_accuracy: float
    source_accuracy: float


def render_report(answer: Answer, *, truth: Truth | None = None) -> str:
    """Render an answer as one HTML file that needs nothing else.

    Parameters
    ----------
    answer : Answer
        The result of `osls adapt`.
    truth : Truth, optional
        If given, the report compares the answer with it.

    Returns
    -------
    str
        The page. Every value of the data is escaped; pictures are embedded as small copies.
    """
    given = answer.settings.get("seed")
    seed = given if isinstance(given, int) else 0
    groups = find_groups(answer, seed=seed)
    by_strength = sorted((trait for group in groups for trait in group.traits), key=lambda t: -t.strength)
    columns = example_columns(answer, [trait.column for trait in by_strength])
    return render_page(
        "adaptation.html",
        sections=_SECTIONS if truth is None else (*_SECTIONS[:1], ("truth", "Truth"), *_SECTIONS[1:]),
        headline=headline(answer),
        kicker=_kicker(answer),
        level=percent(answer.level),
        kind=answer.kind,
        items=_ROW_WORDS[answer.kind],
        verdict=describe_verdict(answer),
        cards=_cards(answer),
        truth=None if truth is None else _compare(answer, truth),
        mix=_mix(answer, truth),
        counts=_counts(answer),
        histogram=_histogram(answer),
        map=draw_map(answer, [group.rows for group in groups], columns, seed=seed),
        contrasts=draw_contrasts(answer, seed=seed),
        nothing_new=bool(answer.target_share[-1] <= 0),
        novel=_most_novel(answer, columns),
        group_words=_group_words(answer, groups),
        groups=[_group(answer, group, columns) for group in groups],
        parts=[_part_words(part) for part in answer.discovery.parts],
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


def _cards(answer: Answer) -> list[Card]:
    counts = _count(answer)
    called, m = int(counts[-1]), max(1, int(counts.sum()))
    cards = [
        _novel_card(answer),
        Card(f"{called:,}", f"{_ROW_WORDS[answer.kind]} called novel, {percent(called / m)}"),
    ]
    p = answer.novelty_pvalue
    if p is not None:
        words = "chance of such an excess of unfamiliar rows if nothing were new"
        cards.append(Card(f"p = {p:.2f}" if p >= 0.01 else "p < 0.01", words))
    total = float(np.abs(answer.target_share - answer.source_share).sum() / 2)
    return [*cards, Card(percent(total), "of the mix has changed hands between classes")]


def _novel_card(answer: Answer) -> Card:
    low, high = (float(v) for v in answer.interval[-1])
    status = status_of(answer)
    if status == "not identified":
        return Card(
            percent(answer.target_share[-1]), "is something new by this estimate; it may be more or less"
        )
    words = f"is something new; {percent(answer.level)} interval {percent_range(low, high)}"
    new = status == "no violation seen" and answer.target_share[-1] > 0
    return Card(percent(answer.target_share[-1]), words, "new" if new else "")


def _drawn(size: Floats | Ints) -> list[int]:
    """Known classes to draw: all if they are few, else the largest by ``size``; the novel class always."""
    k = len(size) - 1
    chosen = range(k) if k <= _MAX_DRAWN else sorted(np.argsort(-size[:k], kind="stable")[: _MAX_DRAWN - 1])
    return [*(int(j) for j in chosen), k]


def _compare(answer: Answer, truth: Truth) -> dict[str, Any]:
    """The answer beside the truth, as cards and sentences."""
    low, high = (float(v) for v in answer.interval[-1])
    true_share = float(truth.share[-1])
    return {
        "novel_names": shown(truth.novel_names),
        "inside": low <= true_share <= high,
        "cards": [
            Card(percent(truth.accuracy), "named right with adaptation"),
            Card(percent(truth.source_accuracy), "named right by the source classifier alone"),
            Card(percent(truth.novel_accuracy), "of the novel ones recognised as novel"),
            Card(percent(true_share), f"truly novel; estimated {percent(answer.target_share[-1])}"),
        ],
    }


def _mix(answer: Answer, truth: Truth | None) -> dict[str, Any]:
    rows = [
        ShareRow(
            shown(name),
            float(answer.source_share[j]),
            float(answer.target_share[j]),
            low=float(answer.interval[j, 0]),
            high=float(answer.interval[j, 1]),
            novel=j == len(answer.classes) - 1,
            truth=None if truth is None else float(truth.share[j]),
        )
        for j, name in enumerate(answer.classes)
    ]
    drawn = _drawn(np.abs(answer.target_share - answer.source_share))
    title = "Share of each class in the labels and in the new data"
    return {
        "chart": share_chart(title, [rows[j] for j in drawn]),
        "drawn": len(drawn),
        "left_out": len(rows) - len(drawn),
        "rows": [{**vars(row), "interval": percent_range(row.low, row.high)} for row in rows],
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
        "chart": count_chart("Number of rows by predicted class", rows, unit=_ROW_WORDS[answer.kind]),
        "left_out": len(counts) - len(drawn),
    }


def _histogram(answer: Answer) -> Markup:
    novelty = answer.predictions["novel"].to_numpy(dtype=float)
    return novelty_histogram("Number of rows by their probability of being novel", novelty)


def _most_novel(answer: Answer, columns: Sequence[str]) -> dict[str, Any]:
    total = len(data_columns(answer))
    return {
        "examples": examples(answer, most_novel(answer, _MOST_NOVEL[answer.kind]), columns),
        "columns": [_column(answer, name) for name in columns],
        "columns_total": total,
        "columns_left_out": 0 < len(columns) < total,
    }


def _column(answer: Answer, name: str) -> dict[str, Any]:
    values = answer.target_rows[name]
    return {"name": shown(name, 40), "numeric": is_numeric_dtype(values) and not is_bool_dtype(values)}


def _group_words(answer: Answer, groups: Sequence[Group]) -> str:
    words = _ROW_WORDS[answer.kind]
    if not groups:
        return f"None of the new {words} was called novel, so there is nothing to group."
    if len(groups) == 1:
        return (
            f"The {len(groups[0].rows):,} {words} called novel form one group: no part of them stands apart "
            "as your classes stand apart from each other."
        )
    return (
        f"The {words} called novel fall into {len(groups)} groups, the largest first. Two groups are kept "
        "apart only if they differ as your classes differ from each other. A group is a suggestion for a new "
        "label, not a proof of one: osls review asks you about them, osls absorb learns your answers."
    )


def _part_words(part: Parts) -> str:
    now = " and ".join(percent(share) for share in part.target)
    before = " and ".join(percent(share) for share in part.source)
    found = f"'{shown(part.name)}' falls into two parts, {before} of its labelled rows"
    if not part.moved:
        return f"{found}, and about the same of those in the new data ({now})."
    return (
        f"{found}, but {now} of those in the new data: it does not look as it did, which all shares on this "
        "page take for granted. If you can, label the two parts as classes of their own."
    )


def _group(answer: Answer, group: Group, columns: Sequence[str]) -> dict[str, Any]:
    words = _ROW_WORDS[answer.kind]
    size = (
        f"{len(group.rows):,} {words} called novel; {percent(group.share)} of the new data, "
        f"{percent(answer.level)} interval {percent_range(*group.interval)}"
    )
    return {
        "size": size,
        "resembles": group.resembles,
        "words": [word for trait in group.traits for word in trait.words],
        "traits": [trait.sentence for trait in group.traits if not trait.words],
        "apart": [trait.sentence for trait in group.apart],
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


# -- Diagnostics -----------------------------------------------------------------------------------------


def describe_verdict(answer: Answer) -> dict[str, Any]:
    """Tone, badge and words of the verdict, and its reasons if the headline does not give them."""
    status = status_of(answer)
    tone, badge = _BADGES[status]
    if answer.diagnostics is None:
        return {"tone": "caution", "badge": "Not checked", "words": "No diagnostics were run.", "reasons": []}
    # The reasons of "do not trust" are in the sentence under the headline.
    reasons = answer.diagnostics.verdict.reasons if tone == "caution" else ()
    return {"tone": tone, "badge": badge, "words": STATUS_WORDS[status], "reasons": reasons}


def describe_checks(answer: Answer) -> list[dict[str, Any]]:
    """Each check with its figures, and what it measures or, if it failed, what is wrong."""
    if answer.diagnostics is None:
        return []
    return [
        {
            "name": shown(check.name),
            "passed": check.passed,
            "value": number(check.value),
            "limit": f"{_good_side(check)} {number(check.limit)}",
            "message": _CHECK_WORDS.get(check.name, "") if check.passed else shown(check.message, 400),
        }
        for check in answer.diagnostics.checks
    ]


def _good_side(check: Check) -> str:
    """Which values pass; a check does not say it, but this one's result does."""
    return "at most" if check.passed == (check.value <= check.limit) else "at least"


def draw_curves(answer: Answer) -> list[dict[str, Any]]:
    """Each curve as a chart, with what it shows."""
    if answer.diagnostics is None:
        return []
    drawn = []
    for name, (x, y) in answer.diagnostics.curves.items():
        place, height = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        usable = np.isfinite(place) & np.isfinite(height)
        if not usable.any():
            continue
        drawn.append(
            {
                "name": shown(name).capitalize(),
                "words": _CURVE_WORDS.get(name, ""),
                "chart": _curve(name, place[usable], height[usable], answer),
            }
        )
    return drawn


def _curve(name: str, x: Floats, y: Floats, answer: Answer) -> Markup:
    # The axes of the top bin's curve are shares; those of other curves are plain numbers.
    shares = name in _CURVE_WORDS
    words = percent if shares else number
    known = 1 - float(answer.target_share[-1])
    return curve_chart(
        f"{shown(name)} curve",
        x,
        [Curve(name, "known", y)],
        x_ticks=[(float(v), words(float(v))) for v in np.linspace(x[0], x[-1], 5)],
        y_words=words,
        reference=(known, known, known) if shares else None,
        # The few rows on the far left may give a share above one, which cannot be.
        top=1.0 if shares else None,
    )
