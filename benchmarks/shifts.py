"""Which way of estimating the known classes' mix? From held-out scores of many draws.

    python benchmarks/shifts.py --draws 20 --cache DIR

For each data set and each of PULSE's shifts: the L1 error of the mix among the known classes and the error
of the novel share, mean and worst draw. Two kinds of models: the default (networks and trees, blended) and
trees alone, whose probabilities are less reliable.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from osls.inference.mix import SHIFTS, MixFromScores
from scores import Case, held_out_scores

CASES = {
    "digits": None,
    "gaussian": None,
    "letter": 2500,
    "mnist": 2500,
    "penbased": 2500,
    "satimage": 2500,
}
TREES = {"digits": None, "satimage": 1500, "penbased": 1500, "letter": 2500, "drybean": 1500}
RESULTS = Path(__file__).parent / "results" / "shifts.json"


def errors(case: Case, shift: str, cache: Path) -> tuple[float, float]:
    scores, truth = held_out_scores(case, cache)
    estimator = MixFromScores(shift)
    marginal = estimator.known_marginal(scores)
    novel = estimator.novel_share(scores, marginal)
    known = truth[:-1] / truth[:-1].sum()
    return float(np.abs(marginal - known).sum()), float(abs(novel - truth[-1]))


def summarise(found: np.ndarray) -> dict[str, float]:
    (mix, novel), (worst_mix, worst_novel) = found.mean(axis=0), found.max(axis=0)
    figures = {"l1_known": mix, "worst_l1": worst_mix, "novel_error": novel, "worst_novel": worst_novel}
    return {name: round(float(value), 4) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--tree-draws", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    table: list[dict[str, Any]] = []
    for model, data_sets, draws in (("auto", CASES, args.draws), ("trees", TREES, args.tree_draws)):
        for data, rows in data_sets.items():
            n = min(draws, 10) if data == "gaussian" else draws
            for shift in SHIFTS:
                cases = [Case(data, draw, rows=rows, model=model) for draw in range(n)]
                found = np.array([errors(case, shift, args.cache) for case in cases])
                table.append({"model": model, "data": data, "draws": n, "shift": shift, **summarise(found)})
                print(table[-1], flush=True)
    for model in ("auto", "trees"):
        for shift in SHIFTS:
            rows = [row for row in table if (row["model"], row["shift"]) == (model, shift)]
            mean = {key: round(float(np.mean([r[key] for r in rows])), 4) for key in list(rows[0])[4:]}
            table.append({"model": model, "data": "mean", "shift": shift, **mean})
            print(table[-1], flush=True)
    args.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
