"""How good the estimate of a fit's time is: estimated beside taken, for fits of varied shape.

    OMP_NUM_THREADS=1 python benchmarks/cost.py --fits 30

Both are CPU seconds of one thread, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # otherwise imported, for two seconds, by the first fit
from scipy import sparse

import osls.training.cost
from osls import PULSE

RESULTS = Path(__file__).parent / "results" / "cost.json"


def fit(number: int) -> dict[str, Any]:
    """Gaussian classes with noise columns; one is novel. Every fifth table is sparse."""
    rng = np.random.default_rng(number)
    rows = int(np.exp(rng.uniform(np.log(400), np.log(30_000))))
    columns, k = int(np.exp(rng.uniform(np.log(4), np.log(300)))), int(rng.integers(2, 16))
    effort = str(rng.choice(["balanced", "balanced", "quick", "best"]))
    part = rng.uniform(0.3, 0.7)
    centres = rng.normal(size=(k + 1, columns)) * (rng.random(columns) < 0.5) * rng.uniform(0.5, 1.5)
    y, true = rng.integers(k, size=round(part * rows)), rng.integers(k + 1, size=rows - round(part * rows))
    X, X_target = (centres[c] + rng.normal(size=(len(c), columns)) for c in (y, true))
    if number % 5 == 4:
        X, X_target = (sparse.csr_array(np.where(Z > 1, Z, 0)) for Z in (X, X_target))
    model = PULSE(effort=effort, random_state=0)
    estimate = model.estimate_cost(X, y, X_target).seconds
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, X_target=X_target)
    taken = time.process_time() - started
    shape = {"rows": rows, "columns": columns, "classes": k, "sparse": number % 5 == 4, "effort": effort}
    return {**shape, "estimate": round(estimate, 2), "taken": round(taken, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fits", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    osls.training.cost.time = types.SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    words = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    fits = []
    for number in range(options.fits):
        fits.append(fit(number))
        print(fits[-1], flush=True)
    ratio = np.array([each["estimate"] / each["taken"] for each in fits])
    close = float(np.mean((ratio < 1.5) & (ratio > 1 / 1.5)))
    found = {"commit": commit, "within_1.5": close, "median_ratio": float(np.median(ratio)), "fits": fits}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print({key: value for key, value in found.items() if key != "fits"})


if __name__ == "__main__":
    main()
