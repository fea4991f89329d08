"""Does the verdict notice violated assumptions and leave clean problems alone? Which cause does it name?

    OSLS_DATA=... python benchmarks/violations.py --cache .scores
    OSLS_DATA=... python benchmarks/violations.py --study causes --draws 2 --cache .scores

Kinds: clean; none (nothing new); missing (a known class does not occur in the target); noise, rotate, looks
(p(x|y) has changed); overlap (the novel class reaches into a known one); leak (copies of source rows in the
target); duplicates; tiny (a class of eight labelled rows); subpopulation (half of a known class is gone);
half-inside (half of the novel rows look exactly like a known class, which no method can see). For each, how
often the verdict is "no violation seen", how often it is while the interval of the novel share misses it, and
the error. A draw without a violation that gives a class fewer than five target rows is left out: that this
class may be absent is the right answer.

Causes: what ``diagnostics_.cause`` names where one thing was done, more or less strongly.

The limits of the checks were tuned on the data sets ``TUNED``; the others were only looked at.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np

from osls._core.copies import copies_among, shared_rows
from osls.inference import Diagnostics, diagnose
from osls.inference.cause import CauseName
from osls.theory import bbe_contradiction
from scores import VIOLATIONS, Answer, Case, answer, held_out_scores, make_problem
from trust import commit

RESULTS = Path(__file__).parent / "results"
TUNED = {
    "causes": ("gaussian", "digits", "satimage", "penbased"),
    "verdicts": ("gaussian", "digits", "satimage", "penbased", "letter", "drybean", "usps", "rings"),
}
DATA = (*TUNED["verdicts"], "avila", "covtype", "mnist")
# Rows in all of a draw; the others have their own size.
ROWS = {"letter": 3000, "satimage": 2000, "penbased": 2000, "drybean": 2000, "usps": 2000}
ROWS |= dict.fromkeys(("avila", "covtype", "mnist"), 2000)
NO_VIOLATION = ("clean", "none")
PICTURES = ("digits",)
# What was done, how strongly, and the cause to be named.
CAUSES: tuple[tuple[str, float | None, CauseName], ...] = (
    ("none", None, "label shift only"),
    ("clean", None, "novel class"),
    ("looks", 0.1, "changed looks"),
    ("looks", 0.15, "changed looks"),
    ("looks", 0.3, "changed looks"),
    ("leak", 0.05, "copies"),
    ("leak", 0.2, "copies"),
    ("label-noise", 0.1, "wrong labels"),
    ("label-noise", 0.2, "wrong labels"),
)
STRENGTHS = {"looks": 0.3, "leak": 0.2}


def diagnosed(case: Case, cache: Path) -> tuple[Answer, Diagnostics, np.ndarray]:
    """What a fit concludes and finds, and the true mix."""
    scores, truth = held_out_scores(case, cache)
    given = answer(scores, seed=case.draw)
    problem = make_problem(case)
    copies = copies_among(np.asarray(problem.X_source), np.asarray(problem.X_target))
    weight = scores.weights(given.marginal)
    found = diagnose(
        scores,
        given.mix,
        given.interval,
        shared=shared_rows(copies, len(problem.X_source)),
        contradiction=bbe_contradiction(*scores.domain(given.marginal), 0.05, positive_weight=weight),
    )
    return given, found, truth


def fits(case: Case) -> bool:
    """Whether every class has the two labelled rows that a fit needs; rare classes of avila often do not."""
    problem = make_problem(case)
    return min(np.sum(problem.y_source == label) for label in problem.classes) >= 2


def judge(case: Case, cache: Path) -> dict[str, Any]:
    given, found, truth = diagnosed(case, cache)
    low, high = given.interval[-1]
    rows = len(make_problem(case).y_target)
    return {
        "case": case.name,
        "status": found.verdict.status,
        "failed": [check.name for check in found.checks if not check.passed],
        "error": round(float(given.mix[-1] - truth[-1]), 4),
        "covered": bool(low - 1e-9 <= truth[-1] <= high + 1e-9),
        "scarce": bool(truth[:-1].min() * rows < 5),
        "p_value": given.p_value,
    }


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of the draws, and the errors of the novel share."""

    def share(values: list[bool]) -> float:
        return round(float(np.mean(values)), 3)

    unseen = [run["status"] == "no violation seen" for run in runs]
    missed = [not run["covered"] for run in runs]
    return {
        "draws": len(runs),
        "no violation seen": share(unseen),
        "misses": share(missed),
        "misses, no violation seen": share([a and b for a, b in zip(unseen, missed, strict=True)]),
        "mean error": round(float(np.mean([abs(run["error"]) for run in runs])), 4),
        "worst error": max((run["error"] for run in runs), key=abs),
    }


def verdicts(
    sets: list[str], draws: range, model: str, kinds: list[str], cache: Path
) -> list[dict[str, Any]]:
    """A row for each kind on the data sets that limits were tuned on, and one on the others."""
    table = []
    for part, names in _parts(sets, "verdicts").items():
        for kind in kinds:
            runs = []
            for name in names:
                if kind == "rotate" and name not in PICTURES:
                    continue
                for draw in draws:
                    case = Case(name, draw, kind, ROWS.get(name), model, STRENGTHS.get(kind))
                    if not fits(case):
                        continue
                    run = judge(case, cache)
                    print(json.dumps(run), flush=True)
                    if kind not in NO_VIOLATION or not run["scarce"]:
                        runs.append(run)
            if runs:
                table.append({"data sets": part, "kind": kind, **summarise(runs), "commit": commit()})
    return table


def causes(sets: list[str], draws: range, model: str, cache: Path) -> list[dict[str, Any]]:
    """A row for each thing that was done and its strength: how often each cause was named."""
    table = []
    for part, names in _parts(sets, "causes").items():
        for kind, strength, cause in CAUSES:
            cases = [Case(n, draw, kind, ROWS.get(n), model, strength) for n in names for draw in draws]
            cases = list(filter(fits, cases))
            named = []
            for case in cases:
                found = diagnosed(case, cache)[1].cause
                assert found is not None
                named.append(found.name)
                print(json.dumps({"case": case.name, "named": found.name}), flush=True)
            counts = {name: named.count(name) for name in get_args(CauseName)}
            right = round(counts[cause] / len(named), 3)
            row = {"data sets": part, "what was done": kind, "strength": strength, "cause": cause}
            table.append({**row, "draws": len(named), "named right": right, **counts, "commit": commit()})
    return table


def _parts(sets: list[str], study: str) -> dict[str, list[str]]:
    tuned = [name for name in sets if name in TUNED[study]]
    parts = {"tuned on": tuned, "not tuned on": [name for name in sets if name not in tuned]}
    return {part: names for part, names in parts.items() if names}


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--study", choices=("verdicts", "causes"), default="verdicts")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--kinds", default=",".join(VIOLATIONS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--model", default="trees", help="auto or trees")
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sets, draws = args.data.split(","), range(args.draws)
    if args.study == "causes":
        table = causes(sets, draws, args.model, args.cache)
    else:
        table = verdicts(sets, draws, args.model, args.kinds.split(","), args.cache)
    out = args.out or RESULTS / f"{'violations' if args.study == 'verdicts' else 'causes'}.json"
    out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
