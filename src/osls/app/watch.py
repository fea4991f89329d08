"""``osls monitor``: a saved model's class mix over batches of rows, with a state that it continues from."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.extras import require
from osls._core.printing import printable
from osls._core.screen import Screen
from osls._core.writing import only_writer
from osls.app.alarms import check_webhook, post_alarm, write_gauges
from osls.app.files.arrival import at_hand
from osls.app.files.guards import check_regular
from osls.app.files.opening import is_table_file
from osls.app.files.reader import InputError
from osls.app.files.staging import refuse_folder
from osls.app.options import MonitorOptions
from osls.app.predict import Adapted, Familiarity, load_to_answer, open_for, print_note
from osls.app.report.page import write_atomically
from osls.app.report.timeline import alarm_words, render_timeline
from osls.app.report.wording import percent, percent_range, shown
from osls.monitor import BatchReport, Monitor

# A file in a watched folder is read once it has kept its size and time for two looks, or is this old.
_SETTLED_SECONDS = 10.0


def run_monitor(options: MonitorOptions) -> bool:
    """Add the batches that are new; return whether one of them raised an alarm."""
    if not options.batches and options.watch is None:
        raise InputError("no batches; give files, or a folder with --watch.")
    if options.watch is not None and not options.watch.is_dir():
        raise InputError(f"{options.watch}: no such folder; give --watch a folder.")
    refuse_folder(options.state, "--state")
    _refuse_overwriting(options)
    if options.webhook is not None:
        check_webhook(options.webhook)
    if options.prometheus is not None:
        require("prometheus_client", extra="serve")
        # Gauges come after the state: without a place for them a batch would be counted and not told.
        if not options.prometheus.parent.is_dir():
            raise InputError(
                f"{options.prometheus}: there is no folder {options.prometheus.parent}; make it, or name "
                "another with --prometheus."
            )
    with only_writer(options.state):
        return _run(options)


def _refuse_overwriting(options: MonitorOptions) -> None:
    """Raise if two of the files that are written are one, or if one of them is a batch."""
    out = options.out
    written = {
        "the page of --out": out,
        "the history beside --out (.csv)": out.with_suffix(".csv"),
        "the history beside --out (.json)": out.with_suffix(".json"),
        "--state": options.state,
    }
    if options.prometheus is not None:
        written["--prometheus"] = options.prometheus
    taken: dict[Path, str] = {}
    for what, path in written.items():
        other = taken.setdefault(path.resolve(), what)
        if other != what:
            raise InputError(f"{path}: would be {other} and {what} at once; name one of them differently.")
    for batch in options.batches:
        if (name := Path(batch).resolve()) in taken:
            raise InputError(
                f"{batch}: would be overwritten, as {taken[name]} has the same name; change that name."
            )


def _run(options: MonitorOptions) -> bool:
    session = _Session(options)
    try:
        session.take_all()
    except (ValueError, OSError) as error:
        # A second call skips the batch of the alarm: whoever waits for the exit code hears of it now.
        if not session.alarmed:
            raise
        session.complain(error)
    return session.alarmed


class _Session:
    """A model, the monitor that goes with it, and the files they are written to."""

    def __init__(self, options: MonitorOptions):
        self.options = options
        self.adapted = load_to_answer(options.model)
        self.monitor = _open_state(options, _fresh(self.adapted, options))
        self.screen, self.errors = Screen(), Screen(stderr=True)
        self.alarmed = False
        self.added = 0

    def take_all(self) -> None:
        """Add the files, then those that appear in the watched folder, and publish."""
        options = self.options
        try:
            for batch in options.batches:
                with at_hand(batch) as path:
                    self.add(path)
            if options.watch is not None:
                self.follow(options.watch)
        finally:
            # Also after an error: the page shows the batches that were added before it.
            self.publish()
        if count := len(self.monitor.batches):
            what = "the first batch" if count == 1 else f"all {count} batches"
            self.say(f"{options.out} shows {what}; also {options.out.stem}.csv and .json.")

    def add(self, path: Path) -> None:
        """Read a batch, unless its content was counted before, and keep the state."""
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path.")
        check_regular(path)
        origin = _fingerprint(path)
        for before in self.monitor.batches:
            if before.origin.get("sha256") == origin["sha256"]:
                same = "" if before.name == path.name else f" (as {shown(before.name)})"
                self.say(f"{path.name}: counted already{same}")
                return
        rows, batches = open_for(self.adapted, path, self.options.reading)
        familiarity, parts = Familiarity(self.adapted), []
        for place, batch in batches:
            parts.append(self.adapted.predict_proba(batch, place))
            familiarity.add(batch)
        proba = np.concatenate(parts)
        origin["added"] = datetime.now(UTC).isoformat(timespec="seconds")
        # Counted, told and remembered for the exit code, or none of it.
        with _uninterrupted():
            self._count(self.monitor.update(path.name, proba, origin=origin))
            print_note(familiarity.note(rows.name))

    def _count(self, report: BatchReport) -> None:
        """Keep the state with a new batch, and say what it shows."""
        write_atomically(self.options.state, json.dumps(self.monitor.to_dict(), indent=1) + "\n")
        self.added += 1
        self.alarmed |= bool(report.alarms)
        self.say(_describe_batch(report))
        words = [alarm_words(alarm) for alarm in report.alarms]
        for each in words:
            self.say(f"  ALARM: {each}", "bold red")
        if words and self.options.webhook is not None:
            self._tell(self.options.webhook, report, words)

    def _tell(self, webhook: str, report: BatchReport, words: list[str]) -> None:
        """Send an alarm. Whoever does not listen must not stop the monitor."""
        try:
            post_alarm(webhook, report, words)
        except InputError as error:
            self.complain(error)

    def follow(self, folder: Path) -> None:
        """Look into a folder again and again, until interrupted."""
        self.say(f"Watching {folder} every {self.options.every:g} s; Ctrl-C ends it.")
        looks: dict[Path, tuple[int, int]] = {}
        done: dict[Path, tuple[int, int]] = {}
        with _interruptible():
            try:
                while True:
                    for path in _settled(folder, looks, done):
                        done[path] = looks[path]
                        self._try(path)
                    time.sleep(self.options.every)
            except KeyboardInterrupt:
                self.say("Stopped.")

    def _try(self, path: Path) -> None:
        """Add a file. If it is bad, or the page cannot be written, say so and go on.

        A file is read again only if it changes; the page is written again with the next one.
        """
        added = self.added
        try:
            self.add(path)
            if self.added > added:
                self.publish()
        except (ValueError, OSError) as error:
            self.complain(error)

    def publish(self) -> None:
        """Write the timeline as a page, as CSV and as JSON; first the gauges, which may wake somebody up."""
        if not self.monitor.batches:
            return
        if self.options.prometheus is not None:
            write_gauges(self.monitor, self.options.prometheus)
        out = self.options.out
        page = render_timeline(self.monitor, model=str(self.options.model), command=self.options.as_command())
        write_atomically(out, page)
        write_atomically(out.with_suffix(".csv"), history_csv(self.monitor))
        state = self.monitor.to_dict()
        history = {key: state[key] for key in ("classes", "level", "against", "reference", "batches")}
        write_atomically(out.with_suffix(".json"), json.dumps(history, indent=1) + "\n")

    def complain(self, error: Exception) -> None:
        self.errors.print(f"osls: {printable(error, lines=False)}", soft_wrap=True)

    def say(self, text: str, style: str | None = None) -> None:
        self.screen.print(text, style=style, soft_wrap=True)


def _fresh(adapted: Adapted, options: MonitorOptions) -> Monitor:
    """A monitor of the model without any batches."""
    adapter = adapted.adapter
    return Monitor(
        adapter.target_marginal_,
        adapted.classes,
        level=options.level,
        reference_proba=adapter.target_proba_ if len(adapter.target_proba_) else None,
        reference_interval=getattr(adapter, "marginal_interval_", None),
        against=options.against,
        seed=options.seed,
    )


def _open_state(options: MonitorOptions, fresh: Monitor) -> Monitor:
    path = options.state
    if not path.exists():
        return fresh
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("it is not a JSON object")
        monitor = Monitor.from_dict(stored)
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as a state of osls monitor: {error}") from None
    if not monitor.continues(fresh):
        raise InputError(
            f"{path}: belongs to another model, or to another --level or --against; "
            "name a new file with --state."
        )
    if options.seed not in (monitor.seed, MonitorOptions.seed):
        raise InputError(
            f"{path}: was begun with --seed {monitor.seed}, which a watch keeps; leave --seed out, or name a "
            "new file with --state."
        )
    return monitor


def _fingerprint(path: Path) -> dict[str, Any]:
    """Name, size and digest of a file; of a folder, of all that is in it."""
    digest, size = hashlib.sha256(), 0
    for each in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        if path.is_dir():
            name = f"{each.relative_to(path)}\0{each.stat().st_size}\0"
            digest.update(name.encode(errors="surrogateescape"))
        with each.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    return {"name": path.name, "bytes": size, "sha256": digest.hexdigest()}


def _settled(
    folder: Path, looks: dict[Path, tuple[int, int]], done: dict[Path, tuple[int, int]]
) -> Iterator[Path]:
    """Files that are not being written any more, the oldest first."""
    ready = []
    for path in folder.iterdir():
        if not is_table_file(path) or path.name.startswith("."):
            continue
        try:
            seen = path.stat()
        except FileNotFoundError:  # gone since it was listed
            continue
        if not stat.S_ISREG(seen.st_mode) and not stat.S_ISDIR(seen.st_mode):
            continue  # a pipe would be waited for
        mark = (seen.st_size, seen.st_mtime_ns)
        steady = looks.get(path) == mark or time.time() - seen.st_mtime > _SETTLED_SECONDS
        looks[path] = mark
        if steady and done.get(path) != mark:
            ready.append((seen.st_mtime_ns, path))
    yield from (path for _, path in sorted(ready))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM (a plain ``kill``) end a watch as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until this is done. Only the main thread receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, frame: waiting.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def _describe_batch(report: BatchReport) -> str:
    start = f"{shown(report.name)}: {report.rows:,} rows, "
    if not np.isfinite(report.novel_share):
        return start + "novel share not measured (the fit found nothing new)"
    words = f"novel {percent(report.novel_share)} ({percent_range(*report.interval[-1])})"
    return start + words


def history_csv(monitor: Monitor) -> str:
    """One line for each batch and class."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["number", "batch", "rows", "class", "novel", "share", "low", "high", "alarm"])
    for i, batch in enumerate(monitor.batches, 1):
        alarmed = {alarm.class_name for alarm in batch.alarms}
        for j, name in enumerate(monitor.classes):
            figures = (batch.share[j], *batch.interval[j])
            texts = ["" if np.isnan(v) else f"{v:.6g}" for v in figures]
            novel = j == len(monitor.classes) - 1
            writer.writerow([i, batch.name, batch.rows, name, int(novel), *texts, int(name in alarmed)])
    return text.getvalue()
