"""What ``osls monitor`` tells other programs: gauges for Prometheus, and alarms to a webhook."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from osls._core.extras import require
from osls._core.writing import draft_of
from osls.app.files.reader import InputError
from osls.monitor import BatchReport, Monitor

_TIMEOUT = 10


def write_gauges(monitor: Monitor, path: Path) -> None:
    """Write the latest batch as gauges, in the text format that the node exporter collects from files."""
    prometheus = require("prometheus_client", extra="serve")
    registry = prometheus.CollectorRegistry()
    latest = monitor.batches[-1]

    def gauge(name: str, words: str, values: dict[str, float]) -> None:
        made = prometheus.Gauge(f"osls_{name}", words, ["class"], registry=registry)
        for label, value in values.items():
            if not math.isnan(value):
                made.labels(label).set(value)

    classes = monitor.classes
    gauge("share", "Share of the class in the latest batch.", dict(zip(classes, latest.share, strict=True)))
    for i, end in enumerate(("low", "high")):
        bounds = {name: interval[i] for name, interval in zip(classes, latest.interval, strict=True)}
        gauge(f"share_{end}", f"{end.capitalize()} end of its interval.", bounds)
    alarmed = {alarm.class_name for alarm in latest.alarms}
    gauge("alarm", "1 if the class raised an alarm.", {name: float(name in alarmed) for name in classes})
    for name, words, value in (
        ("batch_rows", "Rows of the latest batch.", latest.rows),
        ("batches", "Batches so far.", len(monitor.batches)),
        ("alarms", "Batches with an alarm so far.", sum(bool(batch.alarms) for batch in monitor.batches)),
    ):
        prometheus.Gauge(f"osls_{name}", words, registry=registry).set(value)
    with draft_of(path) as draft:
        draft.write_bytes(prometheus.generate_latest(registry))


def check_webhook(address: str) -> None:
    """Raise, before any work is done, unless it is an address that can be posted to."""
    if not address.startswith(("https://", "http://")):
        raise InputError(f"{address}: a webhook begins with https:// or http://; check --webhook.")


def post_alarm(address: str, report: BatchReport, words: list[str]) -> None:
    """Send the alarms of a batch as JSON; ``text`` is what chat programs show."""
    message: dict[str, Any] = {
        "text": f"{report.name}: {' '.join(words)}",
        "batch": report.name,
        "rows": report.rows,
        "alarms": [
            {"class": alarm.class_name, "before": alarm.before, "now": alarm.now, "scope": alarm.scope}
            for alarm in report.alarms
        ],
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(message).encode(), headers)
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT).close()  # nosec B310  # check_webhook lets only http(s) pass
    except OSError as error:
        raise InputError(f"{address}: the alarm could not be sent ({error}); it is in the page.") from None
