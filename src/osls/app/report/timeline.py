"""The page of ``osls monitor``: novel share and class mix over the batches, alarms marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from osls._core.arrays import Floats
from osls.app.report.charts import Curve, Mark, axis_end, curve_chart
from osls.app.report.page import Card, render_page
from osls.app.report.wording import percent, percent_range, shown
from osls.monitor import RECENT, Alarm, Monitor

_SECTIONS = (
    ("answer", "Now"),
    ("novel", "Novel share"),
    ("classes", "Classes"),
    ("batches", "Batches"),
    ("rule", "Rule"),
)
_MAX_MULTIPLES = 24
# Classes that the first sentence names.
_NAMED = 3


def render_timeline(monitor: Monitor, *, model: str = "", command: str = "") -> str:
    """Render a monitor with at least one batch as one HTML file that needs nothing else.

    Parameters
    ----------
    monitor : Monitor
        The batches so far.
    model : str
        What to call the model.
    command : str
        How to make the page again.
    """
    if not monitor.batches:
        raise ValueError("the monitor has no batches yet; add one with update().")
    shares = np.array([batch.share for batch in monitor.batches])
    intervals = np.array([batch.interval for batch in monitor.batches])
    sentence, addition, tone = timeline_sentence(monitor)
    return render_page(
        "timeline.html",
        sections=_SECTIONS,
        sentence=sentence,
        addition=addition,
        tone=tone,
        kicker=f"osls monitor: {shown(model)}" if model else "osls monitor",
        cards=_cards(monitor),
        level=percent(monitor.level),
        false_alarms=percent(1 - monitor.level),
        recent=RECENT,
        against="the data that the model was fitted to" if monitor.against == "fit" else "the first batch",
        novel=_chart(monitor, shares, intervals, len(monitor.classes) - 1, height=250),
        multiples=_multiples(monitor, shares, intervals),
        unmeasured=_unmeasured(monitor),
        rows=_rows(monitor),
        command=shown(command, 4000),
    )


def timeline_sentence(monitor: Monitor) -> tuple[str, str, str]:
    """The state of the latest batch in a sentence, an addition to it, and the tone of both."""
    last = monitor.batches[-1]
    raised = [batch for batch in monitor.batches if batch.alarms]
    novel = "The novel share cannot be measured by this model"
    if np.isfinite(last.novel_share):
        share, limits = percent(last.novel_share), percent_range(*last.interval[-1])
        novel = f"{share} ({limits}) of the latest batch is something your labels do not cover"
    if last.alarms:
        # What is new comes first, then the largest moves: a sentence of ten classes is not read.
        novel_name = monitor.classes[-1]
        moved = sorted(
            _distinct(last.alarms),
            key=lambda alarm: (alarm.class_name != novel_name, -abs(alarm.now - alarm.before)),
        )
        clauses = [alarm_words(alarm) for alarm in moved[:_NAMED]]
        others = len(moved) - len(clauses)
        if others:
            clauses.append(f"{others} other {'class' if others == 1 else 'classes'} moved less")
        return f"Alarm: {'; '.join(clauses)}.", f"{novel}.", "stop"
    if raised:
        names = shown(raised[-1].name)
        return f"{novel}; no class has moved.", f"The last alarm was in {names}.", "caution"
    return f"{novel}; no class has moved.", f"No alarm in {_count(monitor)}.", "good"


def alarm_words(alarm: Alarm) -> str:
    """One alarm in a clause."""
    where = "" if alarm.scope == "batch" else " over the last batches taken together"
    return f"'{shown(alarm.class_name)}' went from {percent(alarm.before)} to {percent(alarm.now)}{where}"


def _distinct(alarms: Sequence[Alarm]) -> list[Alarm]:
    """One alarm a class: that of the batch rather than that of the last few batches."""
    first: dict[str, Alarm] = {}
    for alarm in alarms:
        first.setdefault(alarm.class_name, alarm)
    return list(first.values())


def _count(monitor: Monitor) -> str:
    n = len(monitor.batches)
    return "1 batch" if n == 1 else f"{n} batches"


def _cards(monitor: Monitor) -> list[Card]:
    last = monitor.batches[-1]
    raised = sum(bool(batch.alarms) for batch in monitor.batches)
    cards = [
        Card(f"{raised}", f"of {_count(monitor)} raised an alarm", "alarm" if raised else ""),
        Card(f"{sum(batch.rows for batch in monitor.batches):,}", "rows so far"),
    ]
    if np.isfinite(last.novel_share):
        words = f"of {shown(last.name, 30)} is new; interval {percent_range(*last.interval[-1])}"
        cards.insert(0, Card(percent(last.novel_share), words, "new"))
    if monitor.reference is not None and np.isfinite(monitor.reference.share[-1]):
        cards.append(Card(percent(monitor.reference.share[-1]), "was new in the reference"))
    return cards


def _chart(monitor: Monitor, shares: Floats, intervals: Floats, j: int, *, height: float) -> Any:
    """The share of one class over the batches; None where the model cannot measure it."""
    y = shares[:, j]
    if not np.isfinite(y).any():
        return None
    n = len(y)
    places = np.arange(1, n + 1, dtype=float)
    low, high = intervals[:, j].T
    reference = _reference(monitor, j)
    name = shown(monitor.classes[j])
    marks = [
        Mark(i + 1, float(y[i]), f"{shown(batch.name)}: {alarm_words(alarm)}")
        for i, batch in enumerate(monitor.batches)
        for alarm in _distinct(batch.alarms)
        if alarm.class_name == monitor.classes[j]
    ]
    title = (
        f"Share of {name} in {_count(monitor)}, the latest {percent(y[-1])}; "
        f"{len(marks)} alarm{'' if len(marks) == 1 else 's'}"
    )
    ends = [(1.0, shown(monitor.batches[0].name, 22))]
    if n > 1:
        ends.append((float(n), shown(monitor.batches[-1].name, 22)))
    top = axis_end(max(float(np.nanmax(high)), *(reference or (0.0,))))
    curve = Curve(name, "novel" if j == len(monitor.classes) - 1 else "known", y, low, high, dots=n <= 40)
    return curve_chart(
        title,
        places,
        [curve],
        x_ticks=ends if height > 150 else (),
        y_words=percent,
        reference=reference,
        marks=marks,
        height=height,
        top=top,
    )


def _reference(monitor: Monitor, j: int) -> tuple[float, float, float] | None:
    known = monitor.reference
    if known is None or not np.isfinite(known.share[j]):
        return None
    share = float(known.share[j])
    low, high = (share, share) if known.interval is None else map(float, known.interval[j])
    return share, low, high


def _multiples(monitor: Monitor, shares: Floats, intervals: Floats) -> dict[str, Any]:
    """Small charts of the known classes: those with alarms first, then the largest."""
    alarmed = {alarm.class_name for batch in monitor.batches for alarm in batch.alarms}
    k = len(monitor.classes) - 1
    size = np.nan_to_num(shares[:, :k].max(axis=0))
    order = sorted(range(k), key=lambda j: (monitor.classes[j] not in alarmed, -size[j]))
    drawn = [j for j in order if monitor.measurable[j]][:_MAX_MULTIPLES]
    # In the order of the classes, which is the same on every page.
    charts = [
        {
            "name": shown(monitor.classes[j]),
            "now": percent(shares[-1, j]),
            "chart": _chart(monitor, shares, intervals, j, height=130),
        }
        for j in sorted(drawn)
    ]
    return {"charts": charts, "left_out": int(monitor.measurable[:k].sum()) - len(charts)}


def _unmeasured(monitor: Monitor) -> list[str]:
    return [shown(name) for name, seen in zip(monitor.classes, monitor.measurable, strict=True) if not seen]


def _rows(monitor: Monitor) -> list[dict[str, Any]]:
    """The batches, the latest first."""
    rows = []
    for i, batch in reversed(list(enumerate(monitor.batches, 1))):
        measured = bool(np.isfinite(batch.novel_share))
        rows.append(
            {
                "number": i,
                "name": shown(batch.name),
                "rows": batch.rows,
                "rows_words": f"{batch.rows:,}",
                "novel": batch.novel_share if measured else -1,
                "novel_words": percent(batch.novel_share) if measured else "not measured",
                "range_words": percent_range(*batch.interval[-1]) if measured else "",
                "alarms": [alarm_words(alarm) for alarm in _distinct(batch.alarms)],
            }
        )
    return rows
