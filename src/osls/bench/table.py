"""Mean, spread and worst draw of each method on each data set."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

__all__ = ["COLUMNS", "summarise"]

# Column of the rows, its heading, and which end of it is the worst draw.
COLUMNS = (
    ("acc_all", "Acc (all)", min),
    ("acc_seen", "Acc (seen)", min),
    ("acc_novel", "Acc (novel)", min),
    ("test_acc_all", "Test acc", min),
    ("mpe_seen", "MPE (seen)", max),
    ("mpe_novel", "MPE (novel)", max),
    ("seconds", "Seconds", max),
)


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One line for each (data set, method): mean ± std, and the worst draw."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["data"], row["method"]].append(row)
    oracle = {(r["data"], r["draw"]): r.get("acc_all") for r in rows if r["method"] == "oracle"}
    lines = []
    for (data, method), members in groups.items():
        good = [r for r in members if not r["error"]]
        line = {"Data": data, "Method": method, "Draws": str(len(good))}
        for column, heading, worst in COLUMNS:
            values = [r[column] for r in good if r[column] is not None and np.isfinite(r[column])]
            line[heading] = _cell(values, worst)
        lost = [
            oracle[data, r["draw"]] - r["acc_all"] for r in good if oracle.get((data, r["draw"])) is not None
        ]
        line["Regret"] = _cell(lost, max)
        failed = len(members) - len(good)
        if failed:
            line["Draws"] += f" (+{failed} failed)"
        lines.append(line)
    return lines


def _cell(values: list[float], worst: Any) -> str:
    if not values:
        return "-"
    digits = 1 if max(values) > 5 else 3
    mean, std = np.mean(values), np.std(values)
    return f"{mean:.{digits}f}\n±{std:.{digits}f}\n({worst(values):.{digits}f})"
