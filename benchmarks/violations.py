"""Does the verdict notice violated assumptions, and leave clean problems alone?

    python benchmarks/violations.py --data digits,gaussian --draws 10 --cache .scores

Kinds: clean; none (nothing new); missing (a known class does not occur in the target); noise and rotate
(p(x|y) has changed); overlap (the novel class reaches into a known one); leak (copies of source rows in the
target); duplicates; tiny (a class of eight labelled rows); subpopulation (half of a known class is gone);
half-inside (half of the novel rows look exactly like a known class, which no method can see). For each, how
often the verdict is "no violation seen", and the error of the novel share. A clean draw that gives a class
fewer than five target rows is counted apart: that its class may be absent is the right answer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.copies import copies_among, shared_rows
from osls.inference import diagnose
from osls.theory import bbe_contradiction
from scores import VIOLATIONS, Case, answer, held_out_scores, make_problem

RESULTS = Path(__file__).parent / "results" / "violations.json"


def judge(case: Case, cache: Path) -> dict[str, Any]:
    scores, truth = held_out_scores(case, cache)
    given = answer(scores, seed=case.draw)
    problem = make_problem(case)
    copies = copies_among(np.asarray(problem.X_source), np.asarray(problem.X_target))
    marginal = given.mix[:-1] / given.mix[:-1].sum()
    found = diagnose(
        scores,
        given.mix,
        given.interval,
        shared=shared_rows(copies, len(problem.X_source)),
        contradiction=bbe_contradiction(
            *scores.domain(marginal), 0.05, positive_weight=scores.weights(marginal)
        ),
    )
    interval = given.interval[-1]
    return {
        "status": found.verdict.status,
        "failed": [check.name for check in found.checks if not check.passed],
        "error": round(float(given.mix[-1] - truth[-1]), 4),
        "covered": bool(interval[0] <= truth[-1] <= interval[1]),
        "scarce": bool(truth[:-1].min() * len(scores.class_target) < 5),
        "p_value": given.p_value,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits,gaussian")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--model", default="auto", help="auto or trees")
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    table = []
    for data in args.data.split(","):
        for kind in VIOLATIONS:
            if kind == "rotate" and data != "digits":
                continue
            runs = [judge(Case(data, draw, kind, model=args.model), args.cache) for draw in range(args.draws)]
            counted = [run for run in runs if kind != "clean" or not run["scarce"]]
            row = {
                "data": data,
                "kind": kind,
                "draws": len(counted),
                "no violation seen": round(
                    float(np.mean([r["status"] == "no violation seen" for r in counted])), 3
                ),
                "mean_abs_error": round(float(np.mean([abs(r["error"]) for r in counted])), 4),
                "worst_error": max((r["error"] for r in counted), key=abs),
                "wrong_and_unnoticed": round(
                    float(
                        np.mean([r["status"] == "no violation seen" and not r["covered"] for r in counted])
                    ),
                    3,
                ),
                "covered": round(float(np.mean([r["covered"] for r in counted])), 3),
                "nothing_new_rejected": round(float(np.mean([r["p_value"] <= 0.05 for r in counted])), 3),
                "runs": runs,
            }
            table.append(row)
            print({key: value for key, value in row.items() if key != "runs"}, flush=True)
    args.out.write_text(json.dumps(table) + "\n")


if __name__ == "__main__":
    main()
