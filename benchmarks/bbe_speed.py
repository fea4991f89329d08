"""BBE on a million positive and five million unlabelled scores, beside sorting the two arrays.

Usage: python benchmarks/bbe_speed.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from osls.mixture import BBE


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(repeats: int = 9) -> None:
    rng = np.random.default_rng(0)
    positive = rng.beta(5, 1, 1_000_000).astype(np.float32)
    unlabeled = np.concatenate([rng.beta(5, 1, 2_500_000), rng.beta(1, 4, 2_500_000)]).astype(np.float32)
    ratios = []
    for _ in range(repeats):
        # Side by side, so that a busy machine slows both.
        sort = seconds(lambda: (np.sort(positive), np.sort(unlabeled)))
        ratios.append(seconds(lambda: BBE().fit(positive, unlabeled)) / sort)
    print(f"BBE / sort, {repeats} repeats: median {np.median(ratios):.2f}, worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
