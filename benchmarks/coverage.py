"""Do the intervals cover, does the novelty test keep its level? Gaussian classes, scores from true densities.

    python benchmarks/coverage.py --draws 200

For each novel share: coverage and width of the practical (bootstrap) interval and of the finite-sample bound,
and how often the test of "nothing new" rejects (false alarms at share 0, power elsewhere).
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
from osls.inference import novelty_test
from osls.shift.held_out import HeldOutScores
from osls.theory import bbe_interval

SHARES = (0.0, 0.05, 0.2, 0.5, 0.8)
RESULTS = Path(__file__).parent / "results" / "coverage.json"


def draw_scores(draw: int, share: float, rows: int, k: int = 3) -> tuple[HeldOutScores, np.ndarray]:
    """Classes at equal distances in five dimensions; scores are the true posteriors with some noise."""
    rng = np.random.default_rng([draw, int(share * 100), rows])
    means = np.eye(k + 1, 5) * 3.2
    mix = np.append((1 - share) * rng.dirichlet(np.full(k, 5.0)), share)
    y = np.concatenate([np.repeat(np.arange(k), 10), rng.choice(k, rows, p=rng.dirichlet(np.full(k, 5.0)))])
    y_target = rng.choice(k + 1, rows, p=mix)

    def score(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = means[labels] + rng.normal(size=(len(labels), 5))
        log_density = -0.5 * np.square(X[:, None] - means).sum(axis=2)
        log_density += 0.5 * rng.normal(size=log_density.shape)
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        known, joint = density[:, :k], np.column_stack([density[:, :k], density @ mix])
        return known / known.sum(axis=1, keepdims=True), joint / joint.sum(axis=1, keepdims=True)

    (class_s, joint_s), (class_t, joint_t) = score(y), score(y_target)
    return HeldOutScores(y, class_s, class_t, joint_s, joint_t), mix


def one_draw(draw: int, share: float, rows: int, replicates: int) -> dict[str, Any]:
    """Estimate as PULSE does from scores on, and see whether its intervals hold the truth."""
    scores, mix = draw_scores(draw, share, rows)
    model = PULSE(n_bootstrap=replicates, random_state=draw)
    model.history_ = []
    marginal = model._known_marginal(scores)
    source, target = scores.domain(marginal)
    weight = scores.weights(marginal)
    estimate = model._novel_share(source, target, weight)
    interval = model._interval(scores, marginal, estimate, np.random.default_rng(draw))
    bound = bbe_interval(source, target, positive_weight=weight, delta=0.05)
    return {
        "error": estimate - mix[-1],
        "covered": bool(interval[-1, 0] <= mix[-1] <= interval[-1, 1]),
        "width": float(interval[-1, 1] - interval[-1, 0]),
        "classes_covered": float(np.mean((interval[:-1, 0] <= mix[:-1]) & (mix[:-1] <= interval[:-1, 1]))),
        "bound_covered": bool(1 - bound.high <= mix[-1] <= 1 - bound.low),
        "bound_width": bound.high - bound.low,
        "rejected": novelty_test(source, target, weight).pvalue <= 0.05,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    table = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for rows in args.rows:
            for share in SHARES:
                run = partial(one_draw, share=share, rows=rows, replicates=args.replicates)
                found = list(pool.map(run, range(args.draws), chunksize=10))
                row = {"rows": rows, "novel_share": share, "draws": args.draws}
                row |= {key: round(float(np.mean([f[key] for f in found])), 4) for key in found[0]}
                row["worst_error"] = round(max(abs(f["error"]) for f in found), 4)
                table.append(row)
                print(row, flush=True)
    args.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
