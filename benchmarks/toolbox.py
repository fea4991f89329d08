"""Which parts should PULSE use? Two tables on random draws of six data sets.

- shift: refined (the default), joint, bbe, separability; the error of the known classes' mix.
- mixture x objective: BBE, DEDPUL, Elkan-Noto with CVIR, CVIR with penalty, nnPU, uPU, PvU; accuracy and
  the error of the novel share.

    python benchmarks/toolbox.py --draws 5 --rows 3000 --jobs 2

Rows go to a file as they come; the same command goes on after a kill. All entries of a draw have its seed,
and so the same source classifier and joint model.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from osls import PULSE
from osls.app.bench.draws import draw_problem
from osls.metrics import accuracy, mix_error
from osls.mixture import BBE, DEDPUL, ElkanNoto

DATA = ("digits", "letter", "penbased", "satimage", "drybean", "mnist")
SHIFTS = ("refined", "joint", "bbe", "separability")
MIXTURES = {"BBE": BBE, "DEDPUL": DEDPUL, "EN": ElkanNoto}
OBJECTIVES = ("cvir", "cvir-penalty", "nnpu", "upu", "pvu")
RESULTS = Path(__file__).parent / "results"


def run_draw(data: str, draw: int, rows: int) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    problem = draw_problem({"name": data, "rows": rows}, draw=draw)

    def entry(**parameters: Any) -> dict[str, Any]:
        model = PULSE(random_state=draw, n_bootstrap=2, **parameters).fit(**problem.training_data())
        found = accuracy(problem.y_target, model.target_labels_, problem.novel_label)
        error = mix_error(problem.target_marginal, model.target_marginal_)
        known = model.target_marginal_[:-1] / max(1e-9, 1 - model.novel_prevalence_)
        truth = problem.target_marginal[:-1] / (1 - problem.target_marginal[-1])
        return {
            "data": data,
            "draw": draw,
            "acc_all": found.all,
            "acc_seen": found.seen,
            "acc_novel": found.novel,
            "mpe_novel": error.novel,
            "l1_known_mix": float(np.abs(known - truth).sum()),
        }

    out = [{"table": "shift", "shift": s, **entry(shift=s)} for s in SHIFTS]
    for name, mixture in MIXTURES.items():
        for objective in OBJECTIVES:
            row = entry(mixture=mixture(), objective=objective)
            out.append({"table": "mixture x objective", "mixture": name, "objective": objective, **row})
    return out


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean over draws by data set, and over data sets, of every entry; ± the standard error of a draw."""
    entries: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row.get("shift") or f"{row['mixture']} + {row['objective']}"
        entries.setdefault(f"{row['table']}: {name}", {}).setdefault(row["data"], []).append(row)
    summary = {}
    for entry, by_data in entries.items():
        figures: dict[str, Any] = {}
        for metric in ("acc_all", "mpe_novel", "l1_known_mix"):
            means = {data: float(np.mean([r[metric] for r in runs])) for data, runs in by_data.items()}
            draws = [r[metric] for runs in by_data.values() for r in runs]
            worst = min(draws) if metric == "acc_all" else max(draws)
            figures[metric] = {k: round(v, 4) for k, v in means.items()}
            figures[metric] |= {
                "mean": round(float(np.mean(list(means.values()))), 4),
                "worst": round(worst, 4),
            }
        summary[entry] = figures
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "toolbox.jsonl")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(row["data"], row["draw"]) for row in rows}
    todo = [(d, i, args.rows) for i in range(args.draws) for d in args.data.split(",") if (d, i) not in done]
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_draw, *each) for each in todo]):
            new = future.result()
            rows += new
            with args.out.open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in new))
            print(new[0]["data"], new[0]["draw"], flush=True)
    summary = summarise(rows)
    args.out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
    for entry, figures in summary.items():
        print(f"{entry:42}", {metric: (f["mean"], f["worst"]) for metric, f in figures.items()})


if __name__ == "__main__":
    main()
