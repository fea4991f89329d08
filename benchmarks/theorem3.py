r"""Theorem 3 with wrong weights: what an error of the class mix does to the novel share.

    python benchmarks/theorem3.py

Two known classes and a novel one, whose scores are Gaussians of means 2, 1 and -2; the known classes are
equally frequent in the target, and a fifth of it is novel. The source is re-weighted to a mix that is off by
0 to .4, BBE reads the novel share from 4,000 source and 4,000 target scores, and the mean error over 200
draws stands beside the two terms of the theorem that do not vanish with the sample: that of the weights and
that of the impure bin. They are computed twice: at the bin that BBE looks for, least target over re-weighted
source (:func:`osls.theory.theorem3_bound`), and at the bin that the paper prints, least novel over
re-weighted source. Writes benchmarks/results/theorem3.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.stats import norm

from osls.mixture import BBE
from osls.theory import theorem3_bound

RESULTS = Path(__file__).parent / "results"
MEANS, NOVEL_MEAN, NOVEL = np.array([2.0, 1.0]), -2.0, 0.2
ROWS, DRAWS = 4_000, 200
# A bin must hold a share of the source, or no sample would ever find it.
GRID = np.linspace(-4, 4, 4001)


def bias(mix: np.ndarray, *, printed: bool) -> float:
    """The theorem's bias for a source re-weighted to ``mix``; ``printed``: at c* as the paper defines it."""
    by_class = norm.sf(GRID[:, None] - MEANS)
    known, source, novel = by_class @ [0.5, 0.5], by_class @ mix, norm.sf(GRID - NOVEL_MEAN)
    found = source >= 0.01
    ratio = novel / source if printed else ((1 - NOVEL) * known + NOVEL * novel) / source
    best = int(np.where(found, ratio, np.inf).argmin())
    return theorem3_bound(NOVEL, known[best], source[best], novel[best], ROWS, ROWS).bias


def errors(mix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Errors of the novel share over draws."""
    found = []
    for _ in range(DRAWS):
        source = rng.normal(MEANS[(rng.random(ROWS) >= mix[0]).astype(int)])
        is_novel = rng.random(ROWS) < NOVEL
        target = rng.normal(np.where(is_novel, NOVEL_MEAN, MEANS[rng.integers(2, size=ROWS)]))
        found.append(1 - BBE().fit(source, target).alpha_ - NOVEL)
    return np.array(found)


def main() -> None:
    rng, rows = np.random.default_rng(0), []
    for off in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4):
        for sign in (1, -1) if off else (1,):
            mix = np.array([0.5 + sign * off, 0.5 - sign * off])
            error = errors(mix, rng)
            at_best, at_printed = bias(mix, printed=False), bias(mix, printed=True)
            rows.append(
                {
                    "weights_off_by": sign * off,
                    "mean_absolute_error": round(float(np.abs(error).mean()), 4),
                    "largest_error": round(float(np.abs(error).max()), 4),
                    "bias_at_bbes_bin": round(at_best, 4),
                    "bias_at_the_printed_bin": round(at_printed, 4),
                }
            )
            print(rows[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "theorem3.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
