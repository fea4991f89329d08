"""The page of ``osls review``: the groups with their rows, boxes for names, and a download of the labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from osls._core.arrays import Ints
from osls.app.answer import Answer
from osls.app.report.groups import Example, Group, example_columns, examples, find_groups
from osls.app.report.page import render_page
from osls.app.report.traits import id_columns
from osls.app.report.wording import percent, percent_range, shown
from osls.growth import NOT_NEW, Suggestion

# Rows that the page holds; pictures are larger.
_MOST_ROWS = {"table": 5_000, "text": 5_000, "images": 1_000}
# Rows of a named group that are exported: the most typical ones, which a person sees first.
EXPORTED = 10
_LONGEST_NAME = 200


def render_review(answer: Answer, suggestions: Sequence[Suggestion], *, run: str) -> str:
    """Render the page; it needs nothing else and keeps what is typed in the browser's own storage.

    Parameters
    ----------
    answer : Answer
        The run.
    suggestions : list of Suggestion
        Rows to ask about first.
    run : str
        Its folder, for the command to run next.
    """
    groups = find_groups(answer)
    by_strength = sorted((trait for group in groups for trait in group.traits), key=lambda t: -t.strength)
    columns = example_columns(answer, [trait.column for trait in by_strength])
    shown_rows = _rows_to_show(answer, groups, suggestions)
    key = _key(answer)
    rows = {
        int(row): _row(answer, int(row), key, example)
        for row, example in zip(shown_rows, examples(answer, shown_rows, columns), strict=True)
    }
    data = {
        "key": key,
        "classes": [str(name) for name in answer.classes[:-1]],
        "novel": str(answer.classes[-1]),
        "notNew": NOT_NEW,
        "exported": EXPORTED,
        "longest": _LONGEST_NAME,
        "columns": [shown(column, 40) for column in columns],
        "groups": [_group(answer, group, rows) for group in groups],
        "rows": rows,
        "suggestions": [{"row": each.row, "reason": each.reason} for each in suggestions],
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return render_page(
        "review.html",
        sections=(("first", "Look at these first"), ("groups", "Groups"), ("done", "Done")),
        styles=("report.css", "review.css"),
        scripts=("report.js", "review.js"),
        run=shown(run, 200),
        count=len(groups),
        exported=EXPORTED,
        share=percent(float(answer.target_share[-1])),
        interval=percent_range(*(float(v) for v in answer.interval[-1])),
        level=percent(answer.level),
        # The browser's storage is shared by all pages of a folder.
        storage="osls-review-" + hashlib.sha256(text.encode()).hexdigest()[:16],
        data=_as_json(text),
    )


def _as_json(text: str) -> Markup:
    """JSON that cannot end the element it stands in."""
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    safe = safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(safe)  # nosec B704  # no character of markup is left


def _key(answer: Answer) -> str:
    """The column that names a row in labels.csv: an id if it names each row, else the row's number."""
    ids = [name for name in id_columns(answer) if name != "row"]
    unique = [name for name in ids if answer.predictions[name].is_unique]
    return unique[0] if unique else "row"


def _rows_to_show(answer: Answer, groups: Sequence[Group], suggestions: Sequence[Suggestion]) -> Ints:
    """Suggested rows, and of every group the most typical ones, as many as the page can hold."""
    each = max(EXPORTED, _MOST_ROWS[answer.kind] // max(1, len(groups)))
    parts = [group.rows[:each] for group in groups]
    first = np.array([suggestion.row for suggestion in suggestions], dtype=np.int64)
    return np.unique(np.concatenate([first, *parts]))


def _row(answer: Answer, row: int, key: str, example: Example) -> dict[str, Any]:
    value = answer.predictions[key].iloc[row] if key in answer.predictions.columns else row + 1
    return {
        "key": str(value),
        "name": f"row {value}" if key == "row" else example.name,
        "novelty": example.novelty_words,
        "nearest": example.resembles,
        "values": [entry.words for entry in example.entries],
        "text": f"{example.excerpt} {example.rest}".strip(),
        "picture": example.picture,
    }


def _group(answer: Answer, group: Group, rows: dict[int, Any]) -> dict[str, Any]:
    return {
        "share": percent(group.share),
        "interval": percent_range(*group.interval),
        "size": len(group.rows),
        "purity": percent(group.purity),
        "nearest": group.resembles,
        "traits": [trait.sentence for trait in group.traits],
        "apart": [trait.sentence for trait in group.apart],
        "rows": [int(row) for row in group.rows if int(row) in rows],
    }
