"""Estimates over 100,000,000 simulated scores in 1,000 partitions, from summaries.

Three processes, so that the peak memory of each is its own: the whole stream; exact estimates on every tenth
partition, which fit in memory; and, if it is installed, Apache DataSketches' REQ sketch on those.

Usage: OMP_NUM_THREADS=1 python benchmarks/streaming.py [partitions] [rows a partition] > results.json
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from osls.mixture import BBE, DEDPUL, ElkanNoto
from osls.streaming import ProbabilitySummary, ScoreSummary, estimate_mix, estimate_share

ALPHA = 0.37
# One score in ten is of a labelled positive.
POSITIVE_SHARE = 0.1
ESTIMATORS = {
    "BBE": BBE(),
    "ElkanNoto ratio": ElkanNoto("ratio"),
    "ElkanNoto mean": ElkanNoto("mean"),
    "ElkanNoto max .999": ElkanNoto("max", quantile=0.999),
    "DEDPUL": DEDPUL(),
}


def partition(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of positives and of unlabelled rows, many of them very near to 0 and 1."""
    rng = np.random.default_rng([7, number])
    n = round(POSITIVE_SHARE * rows)
    m = rows - n
    k = rng.binomial(m, ALPHA)
    positive, known = (1 / (1 + np.exp(-rng.normal(3.0, 2.5, size))) for size in (n, k))
    novel = 1 / (1 + np.exp(-rng.normal(-3.0, 2.0, m - k)))
    return positive, np.concatenate([known, novel])


def partitions(count: int, rows: int, every: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number in range(0, count, every):
        yield partition(number, rows)


def peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def stream(count: int, rows: int, every: int) -> dict[str, Any]:
    """One summary a partition, merged as they come."""
    whole = ScoreSummary(), ScoreSummary()
    simulating = summarising = 0.0
    started = time.perf_counter()
    for part in partitions(count, rows, every):
        simulated = time.perf_counter()
        simulating += simulated - started
        for side, scores in zip(whole, part, strict=True):
            side.merge(ScoreSummary().update(scores))
        started = time.perf_counter()
        summarising += started - simulated
    sizes = [len(side.to_bytes()) for side in whole]
    estimates = {}
    for name, estimator in ESTIMATORS.items():
        started = time.perf_counter()
        share = estimate_share(*whole, estimator, n_boot=100)
        estimates[name] = {
            "alpha": share.alpha,
            "interval": share.interval,
            "seconds": round(time.perf_counter() - started, 2),
        }
    return {
        "scores": sum(side.n for side in whole),
        "cells": [len(side.counts.number) for side in whole],
        "bytes": sizes,
        "summarising_per_simulating": round(summarising / simulating, 3),
        "million_scores_a_second": round(sum(side.n for side in whole) / summarising / 1e6, 1),
        "peak_mb": peak_mb(),
        "estimates": estimates,
    }


def exact(count: int, rows: int, every: int) -> dict[str, Any]:
    positive, unlabeled = (np.concatenate(s) for s in zip(*partitions(count, rows, every), strict=True))
    return {
        "scores": len(positive) + len(unlabeled),
        "peak_mb": peak_mb(),
        "alpha": {name: e.fit(positive, unlabeled).alpha_ for name, e in ESTIMATORS.items()},
    }


def sketch(count: int, rows: int, every: int) -> dict[str, Any]:
    """BBE with the REQ sketch, accurate at high ranks: three times, for its compaction is random."""
    try:
        from datasketches import req_floats_sketch
    except ImportError:
        return {"skipped": "pip install datasketches"}
    runs = []
    for _ in range(3):
        whole = req_floats_sketch(200, True), req_floats_sketch(200, True)
        seconds = 0.0
        n = [0, 0]
        for part in partitions(count, rows, every):
            started = time.perf_counter()
            for i, scores in enumerate(part):
                piece = req_floats_sketch(200, True)
                piece.update(scores.astype(np.float32))
                whole[i].merge(piece)
                n[i] += len(scores)
            seconds += time.perf_counter() - started
        runs.append((bbe_on_sketches(whole, n), seconds, [len(s.serialize()) for s in whole]))
    alphas = [run[0] for run in runs]
    return {
        "k": 200,
        "alpha": alphas,
        "spread": max(alphas) - min(alphas),
        "million_scores_a_second": round(sum(n) / runs[0][1] / 1e6, 1),
        "bytes": runs[0][2],
    }


def bbe_on_sketches(sketches: tuple[Any, Any], n: list[int]) -> float:
    slack = 1.01 * sum(np.sqrt(np.log(40) / (2 * size)) for size in n)
    ranks = np.concatenate([np.linspace(0, 0.99, 2000), 1 - np.geomspace(1e-2, 1e-5, 500)])
    thresholds = np.unique(sketches[0].get_quantiles(ranks.tolist())).tolist()
    q_p, q_u = (1 - np.array([s.get_rank(c, False) for c in thresholds]) for s in sketches)
    keep = q_p > 0
    best = np.argmin((q_u[keep] + slack) / q_p[keep])
    return float(min(1.0, q_u[keep][best] / q_p[keep][best]))


def one_pass_em(n: int = 400_000) -> list[dict[str, Any]]:
    """EM over k + 1 classes in one pass, beside EM on all rows: the largest difference of a share."""
    from osls.shift.mlls import em_marginal

    rows = []
    for k, separation in ((4, 0.8), (4, 2.0), (10, 1.0), (10, 2.0)):
        rng = np.random.default_rng([k, round(10 * separation)])
        centre = rng.normal(size=(k, 5)) * separation
        y = rng.choice(k, n, p=rng.dirichlet(np.ones(k)))
        logits = (centre[y] + rng.normal(size=(n, 5))) @ centre.T - np.square(centre).sum(axis=1) / 2
        proba = np.exp(logits - logits.max(axis=1, keepdims=True))
        proba /= proba.sum(axis=1, keepdims=True)
        summary = ProbabilitySummary(k)
        for part in np.array_split(proba, 8):
            summary.merge(ProbabilitySummary(k).update(part))
        even = np.full(k, 1 / k)
        every_row, _ = em_marginal(proba / even, even, 1e-7, 1000)
        difference = np.abs(estimate_mix(summary, prior=even).marginal - every_row).max()
        rows.append(
            {
                "classes": k,
                "rows": n,
                "classifier_accuracy": round(float(np.mean(proba.argmax(axis=1) == y)), 3),
                "largest_difference": float(difference),
            }
        )
    return rows


def in_own_process(step: str, count: int, rows: int, every: int) -> Any:
    command = [sys.executable, __file__, step, str(count), str(rows), str(every)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main(count: int = 1000, rows: int = 100_000) -> None:
    whole = in_own_process("stream", count, rows, 1)
    tenth = in_own_process("stream", count, rows, 10)
    truth = in_own_process("exact", count, rows, 10)
    differences = {
        name: {
            "stream of all - exact on a tenth": whole["estimates"][name]["alpha"] - alpha,
            "stream of a tenth - exact on it": tenth["estimates"][name]["alpha"] - alpha,
        }
        for name, alpha in truth["alpha"].items()
    }
    largest = max(abs(value) for row in differences.values() for value in row.values())
    result = {
        "partitions": count,
        "stream": whole,
        "exact_on_a_tenth": truth,
        "differences": differences,
        "largest_difference": largest,
        "req_sketch_on_a_tenth": in_own_process("sketch", count, rows, 10),
        "one_pass_em": in_own_process("em", count, rows, 1),
        "holds": {"within_0.002": largest < 0.002, "below_500_mb": whole["peak_mb"] < 500},
    }
    print(json.dumps(result, indent=1))


STEPS = {"stream": stream, "exact": exact, "sketch": sketch, "em": lambda *_: one_pass_em()}

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in STEPS:
        print(json.dumps(STEPS[sys.argv[1]](*map(int, sys.argv[2:]))))
    else:
        main(*map(int, sys.argv[1:]))
