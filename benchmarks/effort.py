"""What each effort costs and gives: CPU seconds, accuracy, the error of the novel share, its interval.

    OSLS_DATA=<folder> python benchmarks/effort.py --draws 5
    OSLS_DATA=<folder> PYTHONPATH=<other checkout>/src python benchmarks/effort.py --anchor --draws 5
    python benchmarks/effort.py --summary

Each fit is a line of results/effort.jsonl, with the commit it was made at; a run that was stopped goes on.
``--anchor`` fits the default of another checkout, to compare with. Seconds are those of the process, so that
other work on the machine matters little; run it with one thread (OMP_NUM_THREADS=1). They can be compared
with the anchor's only if both were taken on one machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # otherwise imported, for two seconds, by the first fit

import osls
from osls import PULSE
from osls.app.bench.draws import draw_problem

RESULTS = Path(__file__).parent / "results" / "effort.jsonl"
DATA: dict[str, dict[str, Any]] = {
    "digits": {"name": "digits"},
    "satimage": {"name": "satimage"},
    "letter": {"name": "letter", "rows": 6000},
    "drybean": {"name": "drybean"},
    "mnist": {"name": "mnist"},
    "newsgroups": {"name": "newsgroups"},
}


def fit(data: str, draw: int, effort: str) -> dict[str, Any]:
    problem = draw_problem(DATA[data], draw=draw)
    parameters = {} if effort == "anchor" else {"effort": effort}
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PULSE(random_state=draw, **parameters).fit(**problem.training_data())
    cpu = time.process_time() - started
    true, interval = problem.target_marginal, model.marginal_interval_
    held = (interval[:, 0] <= true) & (true <= interval[:, 1])
    return {
        "cpu": round(cpu, 2),
        "accuracy": float(np.mean(model.target_labels_ == problem.y_target)),
        "test_accuracy": float(model.score(problem.X_test, problem.y_test)),
        "share_error": float(abs(model.novel_prevalence_ - true[-1])),
        "novel_held": bool(held[-1]),
        "known_held": float(held[:-1].mean()),
        "width": float(interval[-1, 1] - interval[-1, 0]),
    }


def commit() -> str:
    """The commit of the package, "-dirty" if its code was changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(osls.__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=7", "HEAD") + (
        "-dirty" if git("status", "--porcelain", "--", ".") else ""
    )


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def pairs_of(data: str, effort: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The fits of the draws that both have: the anchor's, and with this effort."""
    rows = {(row["data"], row["draw"], row["effort"]): row for row in read()}
    return [
        (rows[data, draw, "anchor"], row)
        for (name, draw, which), row in sorted(rows.items())
        if (name, which) == (data, effort) and (data, draw, "anchor") in rows
    ]


def summary() -> None:
    """Mean over the draws that both have, beside the anchor's."""
    for data in DATA:
        for effort in ("quick", "balanced", "best"):
            pairs = pairs_of(data, effort)
            if not pairs:
                continue
            old, new = zip(*pairs, strict=True)

            def mean(key: str, some: Any) -> float:
                return float(np.mean([row[key] for row in some]))

            print(
                f"{data:10} {effort:8} {len(pairs)} draws: CPU {mean('cpu', new) / mean('cpu', old):.2f} x "
                f"({mean('cpu', new):.1f} of {mean('cpu', old):.1f} s), accuracy {mean('accuracy', new):.4f} "
                f"({mean('accuracy', old):.4f}), share off by {mean('share_error', new):.4f} "
                f"({mean('share_error', old):.4f}), novel share held in {mean('novel_held', new):.2f} "
                f"({mean('novel_held', old):.2f}), width {mean('width', new):.3f} ({mean('width', old):.3f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--efforts", nargs="+", default=["balanced"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--anchor", action="store_true")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.summary:
        summary()
        return
    torch.set_num_threads(1)
    done = {(row["data"], row["draw"], row["effort"]) for row in read()}
    version = commit()
    for draw in range(options.draws):
        for data in options.data:
            for effort in ["anchor"] if options.anchor else options.efforts:
                if (data, draw, effort) in done:
                    continue
                row = {"data": data, "draw": draw, "effort": effort, "commit": version}
                row |= fit(data, draw, effort)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


if __name__ == "__main__":
    main()
