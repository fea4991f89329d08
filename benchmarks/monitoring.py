"""Does the monitor keep its false alarm rate, find small changes that stay, and do its intervals hold?

    python benchmarks/monitoring.py

Probabilities are those of Gaussian classes (three known, one novel, means three apart) for a model that was
fitted to 5,000 rows, with an estimate of the mix that is off by a draw from its own interval. Runs of 100
batches of 500 rows without a change, with a novel share that goes from .20 to .24 at batch 20 and stays, and
with one that goes to .30; and the coverage of the batches' intervals.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from osls.monitor import Monitor

MEANS = np.eye(4, 5) * 3.0
MIX = np.array([0.3, 0.3, 0.2, 0.2])
ERROR = 0.02


def probabilities(rng: np.random.Generator, mix: np.ndarray, assumed: np.ndarray, rows: int) -> np.ndarray:
    """The posterior under the assumed mix of rows that are drawn from another."""
    y = rng.choice(4, rows, p=mix)
    X = MEANS[y] + rng.normal(size=(rows, 5))
    density = np.exp(-0.5 * np.square(X[:, None] - MEANS).sum(axis=2)) * assumed
    return density / density.sum(axis=1, keepdims=True)


def run(seed: int, later: float, *, batches: int, rows: int, n_bootstrap: int) -> dict[str, float]:
    """Watch one model; the novel share changes to ``later`` at batch 20."""
    rng = np.random.default_rng([seed, int(1000 * later)])
    novel = float(np.clip(MIX[-1] + ERROR * rng.normal(), 0.02, 0.9))
    fitted = np.append(MIX[:-1] * (1 - novel) / (1 - MIX[-1]), novel)
    interval = np.column_stack([fitted - 1.96 * ERROR, fitted + 1.96 * ERROR]).clip(0, 1)
    reference = probabilities(rng, MIX, fitted, 5000)
    names = ["a", "b", "c", "novel"]
    monitor = Monitor(
        fitted, names, reference_proba=reference, reference_interval=interval, n_bootstrap=n_bootstrap
    )
    first, held = np.inf, []
    for i in range(batches):
        share = later if i >= 20 else MIX[-1]
        mix = np.append(MIX[:-1] * (1 - share) / (1 - MIX[-1]), share)
        report = monitor.update(str(i), probabilities(rng, mix, fitted, rows))
        low, high = report.interval[-1]
        held.append(low <= share <= high)
        if report.alarms:
            first = min(first, i)
    return {"first": first, "held": float(np.mean(held))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--changed-runs", type=int, default=25)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "monitoring.json")
    args = parser.parse_args()
    size = {"batches": args.batches, "rows": 500}
    null = [run(seed, MIX[-1], n_bootstrap=2, **size) for seed in range(args.runs)]
    table = {"runs without a change": args.runs, "false alarms": sum(np.isfinite(r["first"]) for r in null)}
    for later in (0.24, 0.30):
        changed = [run(seed, later, n_bootstrap=2, **size) for seed in range(args.changed_runs)]
        found = [r["first"] - 20 for r in changed if 20 <= r["first"] < np.inf]
        table[f"novel share .20 to {later:.2f}"] = {
            "runs": args.changed_runs,
            "found": len(found),
            "batches until then, median": float(np.median(found)) if found else None,
        }
    covered = [
        run(seed, 0.3, batches=6, rows=2000, n_bootstrap=50)["held"] for seed in range(args.changed_runs)
    ]
    table["coverage of batch intervals"] = round(float(np.mean(covered)), 3)
    args.out.write_text(json.dumps(table, indent=1, default=int) + "\n")
    print(json.dumps(table, indent=1, default=int))


if __name__ == "__main__":
    main()
