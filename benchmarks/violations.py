"""Does the verdict notice violated assumptions and leave clean problems alone? Which cause does it name?

    OSLS_DATA=... python benchmarks/violations.py --cache .scores
    OSLS_DATA=... python benchmarks/violations.py --study causes --draws 2 --cache .scores

Random problems of benchmarks/problems.py, of 300 to 2,500 rows a side, in which every known class has 20
labelled and 10 target rows at least: that a class with fewer may be absent is the right answer. Each is
judged as it is and after something was done to it.

Kinds: clean; none (nothing new); looks (p(x|y) has changed); overlap (the novel class reaches into a known
one); leak (copies of source rows in the target); duplicates; tiny (a class of eight labelled rows);
subpopulation (half of a known class is gone); half-inside (half of the novel rows look exactly like a known
class, which no method can see). For each, how often the verdict is "no violation seen"; how often it names no
violation ("upper bound only" does not: it says that a known class may be absent, or cannot be told from
another); how often that is so while the interval of the novel share misses it; and the error.

Causes: what ``diagnostics_.cause`` names where one thing was done, more or less strongly.

The limits of the checks were tuned on the data sets that the bed of problems allows for it; the table of the
others (``problems.FINAL``) is the one that counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from osls._core.copies import copies_among, shared_rows
from osls.datasets import OSLSProblem
from osls.inference import Diagnostics, diagnose
from osls.inference.cause import CauseName
from osls.theory import bbe_contradiction
from problems import FINAL, NAMES, make_problem
from scores import Answer, answer, changed, scores_of
from trust import commit

RESULTS = Path(__file__).parent / "results"
SIZES = (300, 2500)
# Far from the numbers of the problems that intervals were calibrated on.
FIRST = 100_000
LABELLED, PRESENT, NOVEL = 20, 10, 10
KINDS = ("clean", "none", "looks", "leak", "duplicates", "tiny", "subpopulation", "overlap", "half-inside")
VIOLATED = ("not identified", "do not trust")
# What can be done where nothing is new.
WITHOUT_NOVEL = ("none", "looks", "leak", "subpopulation")
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


@dataclass(frozen=True)
class Case:
    """A problem of the bed, what is done to it, and the models that look at it."""

    number: int
    kind: str
    model: str = "trees"
    strength: float | None = None

    @property
    def data(self) -> str:
        return NAMES[self.number % len(NAMES)]

    @property
    def name(self) -> str:
        kind = self.kind if self.strength is None else f"{self.kind}-{self.strength:g}"
        return f"{self.number}-{kind}-{self.model}"

    def problem(self) -> OSLSProblem:
        return changed(problem_of(self.number), self.kind, self.number, self.strength)


@cache
def problem_of(number: int) -> OSLSProblem:
    """A problem of the bed in the form that violations are made for."""
    drawn = make_problem(number, SIZES)
    k = len(drawn.population) - 1
    return OSLSProblem(
        X_source=drawn.X,
        y_source=drawn.y,
        X_target=drawn.X_target,
        X_test=drawn.X[:0],
        classes=np.arange(k),
        source_marginal=np.bincount(drawn.y, minlength=k) / len(drawn.y),
        novel_label=-1,
        y_target=np.where(drawn.y_target == k, -1, drawn.y_target),
        y_test=drawn.y[:0],
        target_marginal=drawn.realised,
    )


def usable(problem: OSLSProblem) -> bool:
    """Whether no class is so rare that the verdict should say so."""
    labelled = np.bincount(problem.y_source, minlength=len(problem.classes))
    *known, novel = problem.target_marginal * len(problem.y_target)
    return min(labelled) >= LABELLED and min(known) >= PRESENT and (novel == 0 or novel >= NOVEL)


def numbers_of(data: str, draws: int, *, novel: bool) -> Iterator[int]:
    """The first problems of a data set that can be used, with a novel class or without."""
    step = len(NAMES)
    start, found = FIRST - FIRST % step + NAMES.index(data), 0
    for number in range(start, start + 60 * step, step):
        if found == draws:
            return
        problem = problem_of(number)
        if usable(problem) and (problem.target_marginal[-1] > 0) == novel:
            found += 1
            yield number


def cases_of(data: str, kind: str, draws: int, model: str, strength: float | None = None) -> list[Case]:
    """Draws of one kind; where it makes sense without a novel class, every third of them is such."""
    without = draws if kind == "none" else draws // 3 if kind in WITHOUT_NOVEL else 0
    numbers = [
        *numbers_of(data, draws - without, novel=True),
        *numbers_of(data, without, novel=False),
    ]
    return [Case(number, kind, model, strength) for number in numbers]


def diagnosed(case: Case, cache: Path) -> tuple[Answer, Diagnostics, np.ndarray]:
    """What a fit concludes and finds, and the true mix."""
    scores, truth = scores_of(case.name, case.problem, case.model, case.number, cache)
    given = answer(scores, seed=case.number)
    problem = case.problem()
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


def judge(case: Case, cache: Path) -> dict[str, Any]:
    given, found, truth = diagnosed(case, cache)
    low, high = given.interval[-1]
    return {
        "case": case.name,
        "data": case.data,
        "status": found.verdict.status,
        "failed": [check.name for check in found.checks if not check.passed],
        "error": round(float(given.mix[-1] - truth[-1]), 4),
        "covered": bool(low - 1e-9 <= truth[-1] <= high + 1e-9),
        "p_value": given.p_value,
    }


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of the draws, and the errors of the novel share."""

    def share(values: list[bool]) -> float:
        return round(float(np.mean(values)), 3)

    free = [run["status"] not in VIOLATED for run in runs]
    missed = [not run["covered"] for run in runs]
    return {
        "draws": len(runs),
        "no violation seen": share([run["status"] == "no violation seen" for run in runs]),
        "no violation named": share(free),
        "misses": share(missed),
        "misses, no violation named": share([a and b for a, b in zip(free, missed, strict=True)]),
        "mean error": round(float(np.mean([abs(run["error"]) for run in runs])), 4),
        "worst error": max((run["error"] for run in runs), key=abs),
    }


def verdicts(sets: list[str], draws: int, model: str, kinds: list[str], cache: Path) -> list[dict[str, Any]]:
    """A row for each kind on the data sets that limits were tuned on, and one on the others."""
    table = []
    for part, names in _parts(sets).items():
        for kind in kinds:
            runs = []
            for case in (case for name in names for case in cases_of(name, kind, draws, model)):
                runs.append(judge(case, cache))
                print(json.dumps(runs[-1]), flush=True)
            if runs:
                row = {"data sets": part, "models": model, "kind": kind}
                table.append({**row, **summarise(runs), "commit": commit()})
    return table


def causes(sets: list[str], draws: int, model: str, cache: Path) -> list[dict[str, Any]]:
    """A row for each thing that was done and its strength: how often each cause was named."""
    table = []
    for part, names in _parts(sets).items():
        for kind, strength, cause in CAUSES:
            named = []
            for case in (case for name in names for case in cases_of(name, kind, draws, model, strength)):
                found = diagnosed(case, cache)[1].cause
                assert found is not None
                named.append(found.name)
                print(json.dumps({"case": case.name, "named": found.name}), flush=True)
            if not named:
                continue
            counts = {name: named.count(name) for name in get_args(CauseName)}
            right = round(counts[cause] / len(named), 3)
            row = {"data sets": part, "what was done": kind, "strength": strength, "cause": cause}
            table.append({**row, "draws": len(named), "named right": right, **counts, "commit": commit()})
    return table


def _parts(sets: list[str]) -> dict[str, list[str]]:
    """The names by whether limits were tuned on them."""
    tuned = [name for name in sets if name not in FINAL]
    parts = {"tuned on": tuned, "not tuned on": [name for name in sets if name in FINAL]}
    return {part: names for part, names in parts.items() if names}


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--study", choices=("verdicts", "causes"), default="verdicts")
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--model", default="trees", help="auto or trees")
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sets = args.data.split(",")
    if args.study == "causes":
        table = causes(sets, args.draws, args.model, args.cache)
    else:
        table = verdicts(sets, args.draws, args.model, args.kinds.split(","), args.cache)
    out = args.out or RESULTS / f"{'violations' if args.study == 'verdicts' else 'causes'}.json"
    out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
