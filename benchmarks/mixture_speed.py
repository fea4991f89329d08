"""Seconds that the mixture estimators take on 200,000 positive and 1,000,000 unlabelled scores.

Run: OMP_NUM_THREADS=1 python benchmarks/mixture_speed.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from scipy.stats import beta

from osls.mixture import BBE, DEDPUL, ElkanNoto, Regroup

N_POSITIVE, N_UNLABELED, ALPHA, REPEATS = 200_000, 1_000_000, 0.4, 5


def scores(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of a calibrated discriminator, p_p / (p_p + p_u), which is what Elkan-Noto expects."""
    positives = int(ALPHA * N_UNLABELED)
    x_positive = rng.beta(6, 2, N_POSITIVE)
    x_unlabeled = np.append(rng.beta(6, 2, positives), rng.beta(1, 6, N_UNLABELED - positives))

    def discriminator(x: np.ndarray) -> np.ndarray:
        positive = beta(6, 2).pdf(x)
        return positive / ((1 + ALPHA) * positive + (1 - ALPHA) * beta(1, 6).pdf(x))

    return discriminator(x_positive), rng.permutation(discriminator(x_unlabeled))


def best_seconds(task: Callable[[], object]) -> float:
    task()  # warm-up
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        task()
        times.append(perf_counter() - start)
    return min(times)


def main() -> None:
    positive, unlabeled = scores(np.random.default_rng(0))
    sort = best_seconds(lambda: (np.sort(positive), np.sort(unlabeled)))
    print(f"{N_POSITIVE:,} positive and {N_UNLABELED:,} unlabelled scores, true share {ALPHA}")
    print(f"{'method':<20} {'seconds':>8} {'x np.sort':>10} {'alpha':>7} {'interval':>17} {'seconds':>8}")
    print(f"{'np.sort of both':<20} {sort:8.3f} {1:10.1f}")
    estimators = [BBE(), DEDPUL(), *(ElkanNoto(form) for form in ("ratio", "mean", "max")), Regroup()]
    for estimator in estimators:
        name = type(estimator).__name__ + (f" {estimator.form}" if isinstance(estimator, ElkanNoto) else "")
        seconds = best_seconds(lambda estimator=estimator: estimator.fit(positive, unlabeled))
        start = perf_counter()
        low, high = estimator.interval_
        more = perf_counter() - start
        interval = f"({low:.3f}, {high:.3f})"
        timing = f"{name:<20} {seconds:8.3f} {seconds / sort:10.1f}"
        print(f"{timing} {estimator.alpha_:7.3f} {interval:>17} {more:8.2f}")


if __name__ == "__main__":
    main()
