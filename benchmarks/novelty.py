"""Does the novelty test keep its level, and what does it find?

    python benchmarks/novelty.py --cache DIR --draws 200
    python benchmarks/novelty.py --cache DIR --draws 100 --model mlp --data gaussian --power-draws 0

False alarms: draws without a novel class of digits, satimage (1,500 rows) and Gaussian classes, through
cross-fitted models with random label shift; trees unless ``--model`` says otherwise (auto is the blend of an
MLP and trees), because 600 fits with networks take hours. Power: Gaussian classes with a novel one, against
its share and the number of rows. Tables, and a picture of the power. What a file holds of other models stays.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from osls import PULSE
from plotting import new_figure, save
from scores import Case, answer, held_out_scores
from trust import commit

RESULTS = Path(__file__).parent / "results"
NULLS = {"digits": None, "satimage": 1500, "gaussian": None}
SHARES = (0.01, 0.02, 0.03, 0.05, 0.06, 0.1)
ROWS = (300, 400, 1000, 3000)


def null_pvalue(draw: int, data: str, cache: Path, model: str = "trees") -> float:
    scores, _ = held_out_scores(Case(data, draw, "none", NULLS[data], model), cache)
    return answer(scores, seed=draw, replicates=2).p_value


def pvalue_with_novelty(draw: int, share: float, rows: int, k: int = 3) -> float:
    rng = np.random.default_rng([draw, int(share * 1000), rows, 8])
    means = np.eye(k + 1, 5) * 5.0
    y, y_target = rng.integers(k, size=rows), rng.integers(k, size=rows)
    y_target[: round(share * rows)] = k
    X, X_target = (means[labels] + rng.normal(size=(rows, 5)) for labels in (y, y_target))
    model = PULSE(
        source_classifier="trees", discriminator="trees", rounds=1, n_bootstrap=2, random_state=draw
    )
    return model.fit(X, y, X_target=X_target).novelty_pvalue_


def _merged(old: list[dict[str, Any]], new: list[dict[str, Any]], keys: tuple[str, ...]) -> list[Any]:
    """Rows of both; the new one where both have the same of ``keys``."""
    by_key = {tuple(row.get(key, "trees") for key in keys): row for row in [*old, *new]}
    return list(by_key.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=NULLS, default=list(NULLS))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--power-draws", type=int, default=20)
    parser.add_argument("--power-rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--power-shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--model", default="trees", help="of the draws without a novel class: also mlp, auto")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    alarms, power = [], []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for data in args.data:
            run = partial(null_pvalue, data=data, cache=args.cache, model=args.model)
            values = np.array(list(pool.map(run, range(args.draws), chunksize=5)))
            at = {str(level): round(float(np.mean(values <= level)), 4) for level in (0.01, 0.05, 0.1)}
            alarms.append(
                {
                    "data": data,
                    "model": args.model,
                    "draws": args.draws,
                    "false alarms at level": at,
                    "smallest": values.min(),
                    "commit": commit(),
                }
            )
            print(alarms[-1], flush=True)
        for rows in args.power_rows if args.power_draws else ():
            for share in args.power_shares:
                run = partial(pvalue_with_novelty, share=share, rows=rows)
                values = np.array(list(pool.map(run, range(args.power_draws), chunksize=2)))
                rejected = round(float(np.mean(values <= 0.05)), 4)
                power.append(
                    {
                        "rows": rows,
                        "share": share,
                        "draws": args.power_draws,
                        "found": rejected,
                        "commit": commit(),
                    }
                )
                print(power[-1], flush=True)
    out = args.out / "novelty.json"
    before = json.loads(out.read_text()) if out.exists() else {}
    alarms = _merged(before.get("false alarms", []), alarms, ("data", "model"))
    power = _merged(before.get("power at level .05", []), power, ("rows", "share"))
    out.write_text(json.dumps({"false alarms": alarms, "power at level .05": power}, indent=1) + "\n")
    figure, axis = new_figure("novelty")
    for rows in sorted({row["rows"] for row in power}):
        curve = sorted((row for row in power if row["rows"] == rows), key=lambda row: row["share"])
        axis.plot(
            [r["share"] for r in curve], [r["found"] for r in curve], "o-", label=f"{rows:,} rows a side"
        )
    axis.axhline(0.05, linestyle=":", color="grey")
    axis.set(
        xlabel="novel share",
        ylabel="share of draws that find it",
        ylim=(0, 1.03),
        title="Power of the novelty test",
    )
    axis.legend()
    save(figure, out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
