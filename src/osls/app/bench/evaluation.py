"""From rows to numbers: means beside the paper's figures, comparisons over data sets, training curves."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from osls._core.arrays import Floats
from osls.app.bench.methods import METHODS
from osls.app.bench.provenance import is_stale
from osls.app.bench.store import Row

# Methods count epochs differently, so curves are drawn over the completed share of the training.
TRAINING_GRID = np.linspace(0, 1, 41)
# With fewer problems no difference of mean ranks could be significant.
_FEWEST_PROBLEMS = 4
# Marks a method whose rows were made before the last change of its code.
STALE = "†"


# -- One data set ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A column of the rows: its heading, whether more is better, and how many digits matter.

    Of ``compared`` metrics the best value is marked.
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
        """A value as text, with the digits that matter."""
        return f"{value:.{self.digits}f}"


METRICS = {
    metric.column: metric
    for metric in (
        Metric("acc_all", "Acc (all)", True),
        Metric("test_acc_all", "Test acc", True),
        # A known row counts as right if its class is the best of all k + 1, or (the paper, of PULSE and the
        # domain discriminator) of the k known ones, whatever is said of its novelty.
        Metric("acc_seen", "Acc (seen, k+1)", True),
        Metric("acc_known", "Acc (seen, k)", True),
        Metric("acc_novel", "Acc (novel)", True),
        Metric("mpe_seen", "MPE (seen)", False),
        Metric("mpe_seen_raw", "MPE (seen, raw)", False),
        Metric("mpe_novel", "MPE (novel)", False),
        Metric("h_score", "H-score", True),
        Metric("test_h_score", "Test H-score", True),
        Metric("novelty_auroc", "AUROC", True),
        Metric("macro_f1", "Macro-F1", True),
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
    """One metric of one method over the draws, and the paper's figure; ``best`` among the group's methods."""

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
    """A method: how many of its draws succeeded and failed, and its metrics by column.

    ``stale`` if any of them was made before the last change of the method's code.
    """

    method: str
    oracle: bool
    draws: int
    failed: int
    stats: dict[str, Stat]
    stale: bool = False

    @property
    def name(self) -> str:
        """The method, with a mark if its rows are of earlier code."""
        return f"{self.method} {STALE}" if self.stale else self.method


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
    """Whether a row belongs to the method that sees the target's labels."""
    return bool(json.loads(row["config"])["method"]["name"] == "oracle")


def is_favoured(row: Row) -> bool:
    """Whether a row's method saw the target's labels or was told the novel share: it does not compete."""
    method = METHODS.get(json.loads(row["config"])["method"]["name"])
    return is_oracle(row) or (method is not None and method.told is not None)


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
        if is_oracle(row) and _succeeded(row)
    }
    lines = []
    for method, rows in methods.items():
        succeeded = [row for row in rows if _succeeded(row)]
        paper = _paper_figures_of(rows[0])
        stats = {}
        for column, metric in METRICS.items():
            values = tuple(_values(succeeded, column, oracle))
            if values or column in paper:
                stats[column] = Stat(metric, values, paper.get(column))
        failed, stale = len(rows) - len(succeeded), any(map(is_stale, rows))
        lines.append(Line(method, is_favoured(rows[0]), len(succeeded), failed, stats, stale))
    return _mark_best(lines)


def _succeeded(row: Row) -> bool:
    return row.get("error") is None


def _values(rows: list[Row], column: str, oracle: dict[int, float]) -> Iterable[float]:
    for row in rows:
        if column == "regret":
            best = oracle.get(row["draw"])
            value = None if best is None else best - row["acc_all"]
        else:
            value = row.get(column)
        if value is not None and np.isfinite(value):
            yield float(value)


def _paper_figures_of(row: Row) -> dict[str, float]:
    if not row.get("paper"):
        return {}
    table, data, setting, method = row["paper"].split("/")
    return paper_figures(table, data, setting, method)


def _mark_best(lines: list[Line]) -> list[Line]:
    """Mark the best mean of each metric, and what equals it when printed, of those that compete."""
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


@cache
def _read_paper() -> dict[tuple[str, str, str, str], dict[str, float]]:
    with (files("osls.app.bench") / "paper.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    keys = ("table", "data", "setting", "method")
    return {
        (row["table"], row["data"], row["setting"], row["method"]): {
            metric: float(value) for metric, value in row.items() if metric not in keys and value
        }
        for row in rows
    }


def paper_figures(table: str | None, data: str, setting: str, method: str) -> dict[str, float]:
    """Return the paper's figures for a method on a data set; empty if it has none.

    Examples
    --------
    >>> from osls.app.bench.evaluation import paper_figures
    >>> paper_figures("main", "cifar10", "", "pulse")["mpe_novel"]
    0.008
    >>> paper_figures("main", "digits", "", "pulse")
    {}
    """
    return dict(_read_paper().get((table or "", data, setting, method), {}))


# -- All data sets ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregate:
    """The mean error of a method over data sets, its standard deviation over draws, and the paper's mean."""

    method: str
    mean: float
    std: float | None
    paper: float | None


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of methods over problems (1 is best), best first, with Nemenyi's critical difference."""

    methods: list[str]
    ranks: list[float]
    difference: float
    p_value: float
    problems: int


@dataclass(frozen=True)
class WinRates:
    """How often the method of a row beats that of a column, over all draws; ties count half."""

    methods: list[str]
    rates: Floats
    draws: int


def common_methods(groups: Sequence[Group]) -> list[str]:
    """Return the methods that succeeded on every data set and setting, but for the oracle."""
    sets = [_methods_with_results(group) for group in groups]
    names = [line.method for group in groups for line in group.lines]
    return [name for name in dict.fromkeys(names) if all(name in one for one in sets)]


def comparable(groups: Sequence[Group]) -> list[Group]:
    """Return the data sets and settings on which the most results can be compared.

    All of them, if the same methods ran on all. Otherwise the methods of one of the groups are compared, on
    the groups where all of these methods have results: the choice with the most results and, in a tie, with
    the most methods.
    """
    best: tuple[tuple[int, int], list[Group]] = ((0, 0), [])
    for methods in map(_methods_with_results, groups):
        chosen = [group for group in groups if methods <= _methods_with_results(group)]
        best = max(best, ((len(methods) * len(chosen), len(methods)), chosen), key=lambda choice: choice[0])
    return best[1]


def _methods_with_results(group: Group) -> set[str]:
    """The methods, but for the oracle, with a result."""
    return {line.method for line in group.lines if not line.oracle and "acc_all" in line.stats and line.draws}


def aggregate(groups: Sequence[Group], column: str) -> list[Aggregate]:
    """Mean error over data sets of each common method; an accuracy counts as one minus it.

    The standard deviation is that of the mean over data sets, from the spread over the draws of each: the
    square root of the sum of their variances, over the number of data sets. The paper's mean is given where
    it has a figure for every one of them.
    """
    aggregates = (_aggregate(method, groups, column) for method in common_methods(groups))
    return [one for one in aggregates if one is not None]


def _aggregate(method: str, groups: Sequence[Group], column: str) -> Aggregate | None:
    """Aggregate one method; None if a group has no value of it."""
    metric = METRICS[column]
    stats = [line.stats.get(column) for group in groups for line in group.lines if line.method == method]
    complete = [stat for stat in stats if stat is not None and stat.values]
    if len(complete) < len(groups):
        return None
    spreads = [stat.std for stat in complete if stat.std is not None]
    papers = [stat.paper for stat in complete if stat.paper is not None]
    std = float(np.sqrt(np.sum(np.square(spreads))) / len(spreads)) if len(spreads) == len(complete) else None
    paper = _error(metric, float(np.mean(papers))) if len(papers) == len(complete) else None
    return Aggregate(method, _error(metric, float(np.mean([stat.mean for stat in complete]))), std, paper)


def _error(metric: Metric, value: float) -> float:
    return 1 - value if metric.higher_is_better else value


def mean_ranks(groups: Sequence[Group], column: str, *, level: float = 0.05) -> Ranks | None:
    r"""Rank the common methods on each data set and setting by their mean, and average.

    Two methods differ significantly (Nemenyi's test) if their mean ranks do by
    :math:`q_\alpha \sqrt{k (k + 1) / (6 N)}` or more, with k methods, N problems and :math:`q_\alpha` the
    studentized range over :math:`\sqrt 2`. None with fewer than three methods or four problems.
    """
    methods = [a.method for a in aggregate(groups, column)]
    if len(methods) < 3 or len(groups) < _FEWEST_PROBLEMS:
        return None
    table = np.array(
        [
            [next(_signed(line.stats[column]) for line in group.lines if line.method == m) for m in methods]
            for group in groups
        ]
    )
    ranks = rankdata(table, axis=1).mean(axis=0)
    k, n = len(methods), len(groups)
    q = float(studentized_range.ppf(1 - level, k, np.inf)) / np.sqrt(2)
    constant = bool((table == table[:, :1]).all())
    p_value = 1.0 if constant else float(friedmanchisquare(*table.T).pvalue)
    order = np.argsort(ranks, kind="stable")
    return Ranks(
        [methods[i] for i in order],
        [float(ranks[i]) for i in order],
        float(q * np.sqrt(k * (k + 1) / (6 * n))),
        p_value,
        n,
    )


def _signed(stat: Stat) -> float:
    """The mean, with its sign changed if more is better."""
    return -stat.mean if stat.metric.higher_is_better else stat.mean


def win_rates(rows: Sequence[Row], column: str, methods: Sequence[str]) -> WinRates | None:
    """Compare methods draw by draw, on every problem that all of them have solved."""
    metric = METRICS[column]
    draws: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        if row.get("error") is None and not is_favoured(row) and row.get(column) is not None:
            value = float(row[column]) * (1 if metric.higher_is_better else -1)
            draws.setdefault((row["data"], row["setting"] or "", row["draw"]), {})[row["method"]] = value
    complete = [draw for draw in draws.values() if all(method in draw for method in methods)]
    if len(methods) < 2 or not complete:
        return None
    scores = np.array([[draw[method] for method in methods] for draw in complete])
    ahead = (scores[:, :, None] > scores[:, None, :]) + 0.5 * (scores[:, :, None] == scores[:, None, :])
    return WinRates(list(methods), ahead.mean(axis=0), len(complete))


# -- Training --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingCurve:
    """A method's mean on the grid over its draws, and the band of one standard deviation around it."""

    method: str
    mean: Floats
    low: Floats
    high: Floats
    draws: int


def training_curves(rows: Sequence[Row], column: str) -> list[TrainingCurve]:
    """Average the histories of one data set and setting; methods without epochs are left out."""
    by_method: dict[str, list[Floats]] = {}
    for row in rows:
        values = _history_on_grid(row, column)
        if values is not None:
            by_method.setdefault(row["method"], []).append(values)
    curves = []
    for method, single in by_method.items():
        stacked = np.array(single)
        mean = stacked.mean(axis=0)
        spread = stacked.std(axis=0, ddof=1) if len(single) > 1 else np.zeros(len(TRAINING_GRID))
        low, high = np.clip(mean - spread, 0, None), mean + spread
        if column != "mpe_seen":
            high = np.minimum(high, 1)
        curves.append(TrainingCurve(method, mean, low, high, len(single)))
    return curves


def _history_on_grid(row: Row, column: str) -> Floats | None:
    """One history on the grid; None if it has fewer than three values of the column."""
    if row.get("error") is not None or not row.get("history"):
        return None
    values = [record.get(column) for record in json.loads(row["history"])]
    present = [(i, v) for i, v in enumerate(values) if v is not None]
    if len(present) < 3:
        return None
    at = np.array([i for i, _ in present], dtype=float)
    # Steps before the first epoch (a source classifier, say) are not part of the curve.
    return np.asarray(np.interp(TRAINING_GRID, (at - at[0]) / (at[-1] - at[0]), [v for _, v in present]))
