"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

__all__ = ["PAPER_NAMES", "TABLES", "paper_figures"]

# Keys of paper.csv's first column, and what they are.
TABLES = {
    "main": "Table 1 and the full results of the appendix",
    "novel-fraction": "the ablation of the novel class's prevalence",
    "pu": "the ablation of the PU method",
    "pre-training": "contrastive pre-training",
    "osda": "the investigation into open set adaptation (section E.5)",
    "age": "age prediction on UTKFace",
}


# What the paper calls a method of ours, where the name is another.
PAPER_NAMES = {"pulse-paper": "pulse"}


@cache
def _figures() -> dict[tuple[str, str, str, str], dict[str, float]]:
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
    """Return the paper's metrics of a run, or nothing where it has none.

    Examples
    --------
    >>> from osls.app.bench.paper import paper_figures
    >>> paper_figures("main", "cifar10", "", "pulse")["mpe_novel"]
    0.008
    >>> paper_figures("main", "digits", "", "pulse")
    {}
    """
    return dict(_figures().get((table or "", data, setting, method), {}))
