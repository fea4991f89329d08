"""Rows to lines: mean, spread and worst draw of each method on each data set, beside the paper's figure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from osls.app.bench.paper import paper_figures
from osls.app.bench.rows import Row

__all__ = ["METRICS", "Group", "Line", "Metric", "Stat", "is_oracle", "summarise"]


@dataclass(frozen=True)
class Metric:
    """A column of the rows: its heading, which direction is good, how many digits count, and for what.

    ``compared`` metrics are of quality: the best of them is marked.
    """

    column: str
    heading: str
    higher_is_better: bool
    digits: int = 3
    compared: bool = True

    def best(self, values: Iterable[float]) -> float:
        """The best of some values."""
        return max(values) if self.higher_is_better else min(values)

    def worst(self, values: Iterable[float]) -> float:
        """The worst of some values."""
        return min(values) if self.higher_is_better else max(values)

    def words(self, value: float) -> str:
        """A value with the digits that count."""
        return f"{value:.{self.digits}f}"


METRICS = {
    metric.column: metric
    for metric in (
        Metric("acc_all", "Acc (all)", True),
        Metric("acc_seen", "Acc (seen)", True),
        Metric("acc_novel", "Acc (novel)", True),
        Metric("mpe_seen", "MPE (seen)", False),
        Metric("mpe_novel", "MPE (novel)", False),
        Metric("test_acc_all", "Test acc", True),
        Metric("acc_best_threshold", "Best rule", True),
        Metric("novel_covered", "Covered", True, digits=2, compared=False),
        Metric("regret", "Regret", False, compared=False),
        Metric("seconds", "Seconds", False, digits=1, compared=False),
        Metric("cpu_seconds", "CPU seconds", False, digits=1, compared=False),
        Metric("peak_memory_mb", "Peak MB", False, digits=0, compared=False),
    )
}


@dataclass(frozen=True)
class Stat:
    """One metric of one method: over the draws, and in the paper. ``best`` is among the group's methods."""

    metric: Metric
    values: tuple[float, ...]
    paper: float | None = None
    best: bool = False

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float | None:
        """Standard deviation of the sample; one draw has none."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def worst(self) -> float:
        return self.metric.worst(self.values)


@dataclass(frozen=True)
class Line:
    """A method: how many of its draws succeeded and failed, and its metrics by column."""

    method: str
    oracle: bool
    draws: int
    failed: int
    stats: dict[str, Stat]


@dataclass(frozen=True)
class Group:
    """A data set in one setting, and the methods on it."""

    data: str
    setting: str
    lines: list[Line]

    @property
    def title(self) -> str:
        """The data set, and its setting if it has several."""
        return f"{self.data}, {self.setting}" if self.setting else self.data


def is_oracle(row: Row) -> bool:
    """Whether a row is of the method that sees the target's labels."""
    return bool(json.loads(row["config"])["method"]["name"] == "oracle")


def summarise(rows: list[Row]) -> list[Group]:
    """Group rows by data set and setting and compute what a table shows, in the order of the rows."""
    groups: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["data"], row["setting"] or ""][row["method"]].append(row)
    return [Group(data, setting, _lines(methods)) for (data, setting), methods in groups.items()]


def _lines(methods: dict[str, list[Row]]) -> list[Line]:
    oracle = {
        row["draw"]: row["acc_all"]
        for rows in methods.values()
        for row in rows
        if is_oracle(row) and _good(row)
    }
    lines = []
    for method, rows in methods.items():
        good = [row for row in rows if _good(row)]
        figures = _paper(rows[0])
        stats = {}
        for column, metric in METRICS.items():
            values = tuple(_values(good, column, oracle))
            if values or column in figures:
                stats[column] = Stat(metric, values, figures.get(column))
        lines.append(Line(method, is_oracle(rows[0]), len(good), len(rows) - len(good), stats))
    return _mark_best(lines)


def _good(row: Row) -> bool:
    return row.get("error") is None


def _values(rows: list[Row], column: str, oracle: dict[int, float]) -> Iterable[float]:
    for row in rows:
        if column == "regret":
            lost = oracle.get(row["draw"])
            value = None if lost is None else lost - row["acc_all"]
        else:
            value = row.get(column)
        if value is not None and np.isfinite(value):
            yield float(value)


def _paper(row: Row) -> dict[str, float]:
    if not row.get("paper"):
        return {}
    table, data, setting, method = row["paper"].split("/")
    return paper_figures(table, data, setting, method)


def _mark_best(lines: list[Line]) -> list[Line]:
    """Mark the best mean of each metric, and what equals it when printed; the oracle does not compete."""
    for column, metric in METRICS.items():
        rivals = [line.stats[column] for line in lines if not line.oracle and column in line.stats]
        rivals = [stat for stat in rivals if stat.values]
        if len(rivals) < 2 or not metric.compared:
            continue
        best = metric.words(metric.best(stat.mean for stat in rivals))
        for line in lines:
            stat = line.stats.get(column)
            if stat in rivals and metric.words(stat.mean) == best:
                line.stats[column] = Stat(metric, stat.values, stat.paper, best=True)
    return lines
