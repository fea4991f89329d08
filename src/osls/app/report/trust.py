"""The diagnostics of a fit as a page shows them."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from osls._core.arrays import Floats
from osls.app.answer import Answer
from osls.app.report.fluid import Line, line_chart
from osls.app.report.words import STATUS_WORDS, number, only_absent, percent, shown, status_of
from osls.inference.diagnostics import Status

__all__ = ["describe_checks", "describe_verdict", "draw_curves"]

_BADGES: dict[Status, tuple[str, str]] = {
    "identified": ("good", "Checks passed"),
    "upper bound only": ("caution", "Upper bound only"),
    "do not trust": ("stop", "Do not trust"),
}
# What each check looks at; its own message says what is wrong, and holds only if it failed.
_CHECK_WORDS = {
    "source rows accepted": "The share of labelled rows that would be called novel.",
    "every class accepted": "The share of one class's labelled rows that would be called novel, at most.",
    "novel rows told apart": "The share of new rows in doubt, relative to the smaller of known and novel.",
    "accepted rows alike": "How well labelled and new rows, both taken for known, can still be told apart.",
    "every class present": "The smallest share of a known class in the new data.",
    "effective sample size": "How many rows the labelled data is worth when it is weighted to the new mix.",
    "calibration": "How far the classifier's probabilities of the known classes are off, on average.",
    "top bin size": "How many labelled rows the estimated share of known rows rests on.",
    "estimators agree": "How far apart two ways of estimating the share of known rows are.",
    "convergence": "The share of new rows that still changed sides in the last round of training.",
}
_CURVE_WORDS = {
    "top bin": "An estimate of the share of known rows in the new data (vertical), from those labelled rows "
    "that look most known: the surest few on the left, all of them on the right (horizontal). If it is flat "
    "on the left, the answer, drawn as a dashed line, does not hang on where one looks.",
}


def describe_verdict(answer: Answer) -> dict[str, Any]:
    """Tone, badge and words of the verdict, and the reasons if the headline does not say them."""
    status = status_of(answer)
    tone, badge = _BADGES[status]
    if answer.diagnostics is None:
        return {"tone": "caution", "badge": "Not checked", "words": "No diagnostics were run.", "reasons": []}
    # "Do not trust" says its reasons in the sentence under the headline.
    reasons = answer.diagnostics.verdict.reasons if status == "upper bound only" else ()
    words = STATUS_WORDS[status]
    if only_absent(answer):
        words = "A known class may be absent, so its share is an upper bound. The other figures hold."
    return {"tone": tone, "badge": badge, "words": words, "reasons": reasons}


def describe_checks(answer: Answer) -> list[dict[str, Any]]:
    """Each check with its figures; what it looks at if it passed, what is wrong if not."""
    if answer.diagnostics is None:
        return []
    return [
        {
            "name": shown(check.name),
            "passed": check.passed,
            "value": number(check.value),
            "limit": number(check.limit),
            "message": _CHECK_WORDS.get(check.name, "") if check.passed else shown(check.message, 400),
        }
        for check in answer.diagnostics.checks
    ]


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
    # The top bin's axes are shares; of any other curve only the figures are known.
    shares = name in _CURVE_WORDS
    words = percent if shares else number
    known = 1 - float(answer.target_share[-1])
    return line_chart(
        f"{shown(name)} curve",
        x,
        [Line(name, "known", y)],
        x_ticks=[(float(v), words(float(v))) for v in np.linspace(x[0], x[-1], 5)],
        y_words=words,
        reference=(known, known, known) if shares else None,
        # A share above one is no share: the few rows on the far left may give one.
        top=1.0 if shares else None,
    )
