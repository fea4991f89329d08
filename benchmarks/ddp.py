"""Two processes under torchrun beside one: the same estimate and the same accuracy, up to noise.

Random problems on digits, and Gaussian classes (8,000 rows, of which one class is new), each fitted by one
process, by two, and by one with another seed; the last shows what noise alone does. Prints one JSON object.

Usage: python benchmarks/ddp.py [problems of each kind]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np


def problem_of(data: str, draw: int) -> Any:
    from sklearn.datasets import load_digits, make_blobs

    from osls.datasets import simulate_osls

    if data == "digits":
        return simulate_osls(*load_digits(return_X_y=True), novel=2, random_state=draw)
    X, y = make_blobs(8000, 10, centers=6, cluster_std=4.0, random_state=draw)
    return simulate_osls(X, y, novel=1, random_state=draw)


def fit(data: str, problems: int, first_seed: int) -> None:
    """Fit every problem and print a line for each; started once by hand and once by torchrun."""
    from osls import PULSE
    from osls.training.ddp import rank, world_size

    for draw in range(problems):
        problem = problem_of(data, draw)
        started = time.perf_counter()
        model = PULSE(source_classifier="mlp", discriminator="mlp", random_state=first_seed + draw)
        model.fit(**problem.training_data())
        known = np.isin(problem.y_target, model.classes_[:-1])
        hits = np.where(known, model.target_labels_ == problem.y_target, model.target_labels_ == -1)
        row = {
            "draw": draw,
            "rank": rank(),
            "world": world_size(),
            "novel": round(model.novel_prevalence_, 5),
            "true": round(float(problem.target_marginal[-1]), 5),
            "accuracy": round(float(hits.mean()), 5),
            "fingerprint": float((model.target_proba_ @ np.arange(len(model.classes_))).sum()),
            "seconds": round(time.perf_counter() - started, 2),
        }
        # One write with both line ends: the other process prints at the same time.
        sys.stdout.write(f"\n{json.dumps(row)}\n")
        sys.stdout.flush()


def run(processes: int, data: str, problems: int, first_seed: int) -> list[dict[str, Any]]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command = [sys.executable, *(launch if processes > 1 else []), __file__]
    done = subprocess.run(
        [*command, "fit", data, str(problems), str(first_seed)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def compare(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, Any]:
    novel = [abs(a["novel"] - b["novel"]) for a, b in zip(one, other, strict=True)]
    accuracy = [abs(a["accuracy"] - b["accuracy"]) for a, b in zip(one, other, strict=True)]
    mean = np.mean([b["accuracy"] - a["accuracy"] for a, b in zip(one, other, strict=True)])
    return {
        "novel_difference": {"mean": float(np.mean(novel)), "worst": max(novel)},
        "accuracy_difference": {"mean": float(np.mean(accuracy)), "worst": max(accuracy)},
        "mean_accuracy_gained": float(mean),
    }


def measure(data: str, problems: int) -> dict[str, Any]:
    one, again = run(1, data, problems, 0), run(1, data, problems, 1000)
    both = sorted(run(2, data, problems, 0), key=lambda row: (row["rank"], row["draw"]))
    two, twins = both[:problems], both[problems:]
    same = ("fingerprint", "novel", "accuracy")
    return {
        "one_process": one,
        "two_processes": two,
        "two_beside_one": compare(one, two),
        "another_seed_beside_one": compare(one, again),
        "seconds_two_per_one": round(sum(row["seconds"] for row in two) / sum(r["seconds"] for r in one), 2),
        "processes_end_with_the_same_numbers": all(
            a[name] == b[name] for a, b in zip(two, twins, strict=True) for name in same
        ),
    }


def main(problems: int = 5) -> None:
    print(json.dumps({data: measure(data, problems) for data in ("gaussians", "digits")}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["fit"]:
        fit(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(*map(int, sys.argv[1:]))
