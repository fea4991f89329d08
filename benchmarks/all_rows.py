"""All the rows: covtype whole beside a 20,000-row sample of it, and generated tables of up to 5,000,000 rows.

    OSLS_DATA=<folder> python benchmarks/all_rows.py covtype
    python benchmarks/all_rows.py generated --sizes 300000 1000000 5000000

Each fit is a process of its own, so that its peak memory is its own, and a line of results/all_rows.jsonl.
Source and target have half of the rows each.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osls import PULSE
from osls.datasets import load_dataset, simulate_osls

RESULTS = Path(__file__).parent / "results" / "all_rows.jsonl"
SAMPLE = 20_000


def covtype(sample: bool) -> dict[str, Any]:
    """Two of the seven classes are novel. Rows outside the sample are predicted by the fitted model."""
    loaded = load_dataset("covtype").load()
    problem = simulate_osls(loaded.X, loaded.y, novel=[3, 5], test_size=0.0, random_state=0)
    rng = np.random.default_rng(0)
    rows = (rng.permutation(len(side))[:SAMPLE] for side in (problem.y_source, problem.y_target))
    source, target = rows if sample else (slice(None), slice(None))
    X, y, X_target = problem.X_source[source], problem.y_source[source], problem.X_target[target]
    record, model = measured(X, y, X_target)
    answers = model.predict(problem.X_target) if sample else model.target_labels_
    return record | {
        "accuracy": float(np.mean(answers == problem.y_target)),
        "share_error": float(abs(model.novel_prevalence_ - problem.target_marginal[-1])),
    }


def generated(rows: int) -> dict[str, Any]:
    """Six Gaussian classes in 50 columns, one of them novel."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 50)).astype(np.float32)
    y = rng.integers(5, size=rows // 2)
    true = rng.integers(6, size=rows // 2)
    X, X_target = (1.5 * rng.standard_normal((rows // 2, 50), dtype=np.float32) for _ in range(2))
    X += centres[y]
    X_target += centres[true]
    record, model = measured(X, y, X_target)
    truth = np.where(true == 5, -1, true)
    return record | {
        "accuracy": float(np.mean(model.target_labels_ == truth)),
        "share_error": float(abs(model.novel_prevalence_ - np.mean(true == 5))),
    }


def measured(X: Any, y: Any, X_target: Any) -> tuple[dict[str, Any], PULSE]:
    size = (X.nbytes + X_target.nbytes) / 2**20
    model = PULSE(random_state=0)
    expected = model.estimate_cost(X, y, X_target)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu, wall = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, X_target=X_target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "rows": [len(y), len(X_target)],
        "cpu": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - wall, 1),
        "estimate": round(expected.seconds, 1),
        "input_mb": round(size),
        "before_mb": round(before),
        "peak_mb": round(peak),
    }, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["covtype", "generated"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[300_000, 1_000_000, 5_000_000])
    parser.add_argument("--one", help="used by the script itself: the fit of this process")
    options = parser.parse_args()
    if options.one is not None:
        torch.set_num_threads(1)
        one = options.one
        record = covtype(one == "sample") if options.what == "covtype" else generated(int(one))
        print(json.dumps({"data": options.what, "fit": one, **record}))
        return
    words = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    for one in ["sample", "whole"] if options.what == "covtype" else map(str, options.sizes):
        command = [sys.executable, __file__, options.what, "--one", one]
        done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        row = {**json.loads(done.splitlines()[-1]), "commit": commit}
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main()
