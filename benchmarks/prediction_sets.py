"""Do the sets of `predict_set` hold the true class of known rows under label shift? Ten data sets.

    OSLS_DATA=... python benchmarks/prediction_sets.py --draws 3 --out benchmarks/results/sets.json

Each draw has a random class mix on either side and a novel part. The sets are those of new rows of the target
(a fifth of it is set aside, and the fit never sees it). *known*: share of the rows of a known class whose set
holds it, mean over classes (of twenty rows or more) and draws; *lowest class*: the class with the
smallest share, over all draws together; *size*: classes in a set, the novel one counted;
*novel*: share of the novel rows whose set holds "novel"; *empty*: of all rows. Finished draws are kept beside
the output, so a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from osls import PULSE
from scores import Case, make_problem
from trust import commit

RESULTS = Path(__file__).parent / "results" / "sets.json"
DATA = (
    *("digits", "satimage", "penbased", "letter", "drybean"),
    *("usps", "mnist", "covtype", "gaussian", "rings"),
)
ROWS = 3000
LEAST = 20


def run(data: str, draw: int, level: float, rows: int) -> dict[str, Any]:
    problem = make_problem(Case(data, draw, rows=rows))
    model = PULSE(source_classifier="trees", discriminator="trees", n_bootstrap=2, random_state=draw)
    model.fit(**problem.training_data())
    sets = model.predict_set(problem.X_test, level)
    y = problem.y_test
    held = {str(c): sets[y == c, j] for j, c in enumerate(problem.classes)}
    return {
        "data": data,
        "draw": draw,
        "held": {name: [int(inside.sum()), len(inside)] for name, inside in held.items()},
        "size": float(sets.sum(axis=1).mean()),
        "empty": float((~sets.any(axis=1)).mean()),
        "novel": float(sets[y == problem.novel_label, -1].mean()),
    }


def summarise(draws: list[dict[str, Any]]) -> dict[str, float]:
    pairs = [pair for draw in draws for pair in draw["held"].values() if pair[1] >= LEAST]
    classes: dict[str, np.ndarray] = {}
    for draw in draws:
        for name, pair in draw["held"].items():
            classes[name] = classes.get(name, np.zeros(2)) + pair
    shares = [held / of for held, of in classes.values() if of >= LEAST]
    means = {key: np.mean([draw[key] for draw in draws]) for key in ("size", "novel", "empty")}
    figures = {"known": np.mean([held / of for held, of in pairs]), "lowest class": min(shares), **means}
    return {key: round(float(value), 3) for key, value in figures.items()}


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    kept = args.out.with_suffix(".jsonl")
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {(row["data"], row["draw"]): row for row in map(json.loads, lines)}
    for draw in range(args.draws):
        for data in args.data:
            if (data, draw) not in done:
                done[data, draw] = run(data, draw, args.level, args.rows)
                with kept.open("a") as file:
                    file.write(json.dumps(done[data, draw]) + "\n")
                print(data, draw, summarise([done[data, draw]]), flush=True)
    made = commit()
    table = []
    for data in args.data:
        draws = [done[data, draw] for draw in range(args.draws)]
        table.append({"data": data, "draws": args.draws, **summarise(draws), "commit": made})
    args.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
