"""Methods over many data sets: aggregated errors, ranks with a critical difference, and who beats whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import friedmanchisquare, studentized_range

from osls._core.arrays import Floats
from osls.app.bench.rows import Row
from osls.app.bench.summary import METRICS, Group, Metric, is_oracle

__all__ = [
    "Aggregate",
    "Ranks",
    "WinRates",
    "aggregate",
    "common_methods",
    "comparable",
    "mean_ranks",
    "win_rates",
]

# With fewer problems no difference of mean ranks could be significant.
_FEWEST_PROBLEMS = 4


@dataclass(frozen=True)
class Aggregate:
    """The error of a method: its mean over data sets, and what other draws would have made of it."""

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
    sets = [_succeeded(group) for group in groups]
    names = [line.method for group in groups for line in group.lines]
    return [name for name in dict.fromkeys(names) if all(name in one for one in sets)]


def comparable(groups: Sequence[Group]) -> list[Group]:
    """Return the data sets and settings that most results can be compared on.

    All of them, if the same methods ran on all. Else one of the groups says which methods are compared, and
    those groups take part on which all of these succeeded: the choice with the most results, in a tie the
    one with more methods.
    """
    best: tuple[tuple[int, int], list[Group]] = ((0, 0), [])
    for methods in map(_succeeded, groups):
        chosen = [group for group in groups if methods <= _succeeded(group)]
        best = max(best, ((len(methods) * len(chosen), len(methods)), chosen), key=lambda choice: choice[0])
    return best[1]


def _succeeded(group: Group) -> set[str]:
    """The methods, but for the oracle, with a result."""
    return {line.method for line in group.lines if not line.oracle and "acc_all" in line.stats and line.draws}


def aggregate(groups: Sequence[Group], column: str) -> list[Aggregate]:
    """Mean error over data sets of each common method; an accuracy counts as one minus it.

    The standard deviation is that of the mean over data sets, from the spread over the draws of each: the
    square root of the sum of their variances, over the number of data sets. The paper's mean is given where
    it has a figure for every one of them.
    """
    metric = METRICS[column]
    found = []
    for method in common_methods(groups):
        stats = [line.stats.get(column) for group in groups for line in group.lines if line.method == method]
        there = [stat for stat in stats if stat is not None and stat.values]
        if len(there) < len(groups):
            continue
        spreads = [stat.std for stat in there if stat.std is not None]
        std = float(np.sqrt(np.sum(np.square(spreads))) / len(there)) if len(spreads) == len(there) else None
        papers = [stat.paper for stat in there if stat.paper is not None]
        paper = _error(metric, float(np.mean(papers))) if len(papers) == len(there) else None
        found.append(Aggregate(method, _error(metric, float(np.mean([s.mean for s in there]))), std, paper))
    return found


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
    ranks = np.array([_ranks(row) for row in table]).mean(axis=0)
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


def _signed(stat: object) -> float:
    """Smaller is better."""
    mean, metric = stat.mean, stat.metric  # type: ignore[attr-defined]
    return float(-mean if metric.higher_is_better else mean)


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, ties sharing their mean."""
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


def win_rates(rows: Sequence[Row], column: str, methods: Sequence[str]) -> WinRates | None:
    """Compare methods draw by draw, on every problem that all of them have solved."""
    metric = METRICS[column]
    draws: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        if row.get("error") is None and not is_oracle(row) and row.get(column) is not None:
            value = float(row[column]) * (1 if metric.higher_is_better else -1)
            draws.setdefault((row["data"], row["setting"] or "", row["draw"]), {})[row["method"]] = value
    complete = [one for one in draws.values() if all(method in one for method in methods)]
    if len(methods) < 2 or not complete:
        return None
    scores = np.array([[one[method] for method in methods] for one in complete])
    ahead = (scores[:, :, None] > scores[:, None, :]) + 0.5 * (scores[:, :, None] == scores[:, None, :])
    return WinRates(list(methods), ahead.mean(axis=0), len(complete))
