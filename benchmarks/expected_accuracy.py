"""Is `expected_accuracy_` right, and does its interval hold? Whole fits on the problems of problems.py.

    OSLS_DATA=... python benchmarks/expected_accuracy.py --most 40 --out benchmarks/results/expected.json

Only data sets that nothing was tuned on (``problems.FINAL``) unless ``--tuning`` is given; trees. *error*:
mean absolute difference between the expected accuracy of the target's answers and the true one; *bias*: its
mean; *covered*: share of problems whose 95 % interval holds the true accuracy; by verdict. Finished problems
are kept beside the output, so a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from osls import PULSE
from osls.inference import TrustWarning
from problems import FINAL, NAMES, make_problem
from trust import commit

RESULTS = Path(__file__).parent / "results" / "expected.json"


def judge(number: int) -> dict[str, Any]:
    problem = make_problem(number)
    model = PULSE(source_classifier="trees", discriminator="trees", random_state=number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        model.fit(problem.X, problem.y, X_target=problem.X_target)
    k = len(problem.population) - 1
    answers = np.where(model.target_labels_ == model.classes_[-1], k, model.target_labels_)
    row: dict[str, Any] = {
        "number": number,
        "data": problem.data,
        "verdict": model.diagnostics_.verdict.status,
        "novel error": float(model.novel_prevalence_ - problem.realised[-1]),
        "true": float(np.mean(answers == problem.y_target)),
    }
    found = model.expected_accuracy_
    return row | {"expected": found.overall, "low": found.interval[0], "high": found.interval[1]}


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    off = np.array([row["expected"] - row["true"] for row in rows])
    covered = [row["low"] <= row["true"] <= row["high"] for row in rows]
    width = np.mean([row["high"] - row["low"] for row in rows])
    figures = {"error": np.abs(off).mean(), "bias": off.mean(), "covered": np.mean(covered), "width": width}
    worst = off[np.abs(off).argmax()]
    return {key: round(float(value), 4) for key, value in (figures | {"worst error": worst}).items()}


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--tuning", action="store_true", help="the data sets that things were tuned on")
    parser.add_argument("--most", type=int, default=40, help="so many problems")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    kept = args.out.with_suffix(".jsonl")
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {row["number"] for row in rows}
    numbers = [i for i in range(50 * args.most) if (NAMES[i % len(NAMES)] in FINAL) != args.tuning]
    for number in numbers[: args.most]:
        if number in done:
            continue
        rows.append(judge(number))
        with kept.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    groups = {"all": rows} | {
        status: [row for row in rows if row["verdict"] == status]
        for status in ("no violation seen", "upper bound only", "not identified", "do not trust")
    }
    table = [
        {"verdict": name, "problems": len(group), **summarise(group), "commit": commit()}
        for name, group in groups.items()
        if group
    ]
    args.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
