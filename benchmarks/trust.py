"""Do the intervals hold on problems nobody chose? Coverage, width and error of whole estimates, by data set.

    OSLS_DATA=... python benchmarks/problems.py --model trees --cache DIR     (the scores, once)
    OSLS_DATA=... python benchmarks/trust.py --models trees auto --cache DIR

Only the data sets that nothing was tuned on (``problems.FINAL``) unless ``--tuning`` is given. The truth is
the realised share of the target rows; that of the population is beside it. What this project did before the
intervals were calibrated: benchmarks/trust.py at commit bba8dc7; its figures for the first 200 and 80
problems in benchmarks/results/trust.json at commit e2ce682.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from osls.inference.mix import MixFromScores
from plotting import new_figure, save
from problems import FINAL, NAMES, scored

RESULTS = Path(__file__).parent / "results" / "trust.json"
LEVELS = (0.95, 0.8)


def judge(number: int, model: str, cache: Path, replicates: int) -> dict[str, Any]:
    problem = scored(number, model, cache)
    scores, truth = problem.scores(), problem.realised
    estimator = MixFromScores()
    marginal = estimator.known_marginal(scores)
    p_value = estimator.test(scores, 0.05).pvalue
    share = estimator.novel_share(scores, marginal) if p_value <= 0.05 else 0.0
    mix = np.append((1 - share) * marginal, share)
    row = {
        "number": number,
        "data": problem.data,
        "truth": truth[-1],
        "population": problem.population[-1],
        "share": share,
        "p_value": p_value,
        "error": share - truth[-1],
    }
    for level in LEVELS:
        rng = np.random.default_rng(number)
        interval = estimator.interval(scores, mix, level=level, repeats=replicates, rng=rng)
        held = (interval[:, 0] <= truth + 1e-9) & (truth <= interval[:, 1] + 1e-9)
        low, high = interval[-1]
        row[f"covered {level}"] = bool(held[-1])
        row[f"population covered {level}"] = bool(low <= problem.population[-1] <= high)
        row[f"width {level}"] = float(high - low)
        row[f"known covered {level}"] = float(held[:-1].mean())
    return {key: round(float(value), 4) if isinstance(value, float) else value for key, value in row.items()}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over problems; false shares over those in which nothing is new."""

    def mean(key: str, among: list[dict[str, Any]] = rows) -> float | None:
        return round(float(np.mean([row[key] for row in among])), 4) if among else None

    nothing = [row for row in rows if row["truth"] == 0]
    summary: dict[str, Any] = {"problems": len(rows), "nothing new": len(nothing)}
    for key in rows[0]:
        if "covered" in key or "width" in key:
            summary[key] = mean(key)
    summary["mean absolute error"] = round(float(np.mean([abs(row["error"]) for row in rows])), 4)
    summary["worst error"] = max((row["error"] for row in rows), key=abs)
    summary["false share"] = mean("share", nothing)
    return summary


def draw_picture(table: list[dict[str, Any]], path: Path) -> None:
    """Coverage of the 95 % intervals by data set, a mark for each kind of model."""
    figure, axis = new_figure("trust")
    for model, marker in zip(dict.fromkeys(row["models"] for row in table), "os", strict=False):
        rows = [row for row in table if row["models"] == model]
        names = [row["data"] for row in rows]
        for key, fill in (("covered 0.95", "full"), ("known covered 0.95", "none")):
            label = f"{'known classes' if 'known' in key else 'novel share'}, {model}"
            axis.plot([row[key] for row in rows], names, marker, fillstyle=fill, label=label)
    axis.axvline(0.95, linestyle=":", color="grey")
    axis.axvspan(0.92, 0.98, alpha=0.15)
    axis.set(xlim=(0.4, 1.02), xlabel="problems whose interval holds the truth")
    axis.legend(loc="lower left")
    save(figure, path)


def commit() -> str:
    """The commit that the figures were made with."""
    command = ["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--models", nargs="+", default=["trees", "auto"])
    parser.add_argument("--tuning", action="store_true", help="the data sets that things were tuned on")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--most", type=int, help="at most so many problems a model")
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    table = []
    for model in args.models:
        stems = (path.stem for path in (args.cache / model).glob("*.npz"))
        numbers = sorted(int(stem) for stem in stems if stem.isdigit())
        chosen = [i for i in numbers if (NAMES[i % len(NAMES)] in FINAL) != args.tuning][: args.most]
        work = (delayed(judge)(number, model, args.cache, args.replicates) for number in chosen)
        rows = []
        for row in Parallel(args.jobs, return_as="generator")(work):
            rows.append(row)
            print(json.dumps({"models": model, **row}), flush=True)
        table += tabulate(rows, model)
    args.out.write_text(json.dumps(table, indent=1) + "\n")
    draw_picture(table, args.out.with_suffix(".svg"))


def tabulate(rows: list[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """A row for all problems, and one for each data set."""
    names = sorted({row["data"] for row in rows})
    groups = {"all": rows} | {name: [row for row in rows if row["data"] == name] for name in names}
    made = commit()
    return [{"models": model, "data": n, **summarise(group), "commit": made} for n, group in groups.items()]


if __name__ == "__main__":
    main()
