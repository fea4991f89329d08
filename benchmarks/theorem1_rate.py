"""Theorem 1 as an experiment: the error of class-wise BBE against n, m and k, beside its bound.

Scores with known population shares: in column j, class j scores uniformly on [0, 1] and everything else
uniformly on [0, 0.7], so the best bin is [0.7, 1], it is pure, and it holds 0.3 of its class. The theorem
then promises an L1 error of order sqrt(k^3 / n) + sqrt(k^2 / m).

    python benchmarks/theorem1_rate.py            # about two minutes on one core
    python benchmarks/theorem1_rate.py --draws 5  # a quick look
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import scipy

from osls.mixture import BBE
from osls.theory import bbe_interval, theorem1_bound

DELTA, GAMMA, NOVEL, EDGE = 0.1, 0.01, 0.25, 0.7
SIZES = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]
LARGE = 256_000
SWEEPS = {
    "n = m": [(n, n, 5) for n in SIZES],
    "n": [(n, LARGE, 5) for n in SIZES],
    "m": [(LARGE, m, 5) for m in SIZES],
    "k": [(32_000, 32_000, k) for k in (2, 4, 8, 16)],
}


def draw(n: int, m: int, k: int, rng: np.random.Generator) -> dict[str, float]:
    """One source and one target sample: the error, and whether the interval of every class holds."""
    p_target = _mix(k)
    counts = rng.multinomial(m, np.append(p_target, NOVEL))
    alpha, held, width = np.empty(k), True, 0.0
    for j in range(k):
        positive = rng.random(n // k)
        unlabeled = np.append(rng.random(counts[j]), EDGE * rng.random(m - counts[j]))
        alpha[j] = BBE(delta=DELTA / k, gamma=GAMMA).fit(positive, unlabeled).alpha_
        low, high = bbe_interval(positive, unlabeled, DELTA / k, pure_bin=1 - EDGE)
        held, width = held and low <= p_target[j] <= high, width + (high - low) / k
    return {
        "error": float(np.abs(alpha - p_target).sum()),
        "novel_error": float(abs(alpha.sum() - p_target.sum())),
        "covered": float(held),
        "width": width,
    }


def measure(n: int, m: int, k: int, draws: int) -> dict[str, float]:
    """Means over the draws, and the theorem's bound at these sizes."""
    # A seed of its own for every setting, so that one row can be run again alone.
    rows = [draw(n, m, k, np.random.default_rng([n, m, k, i])) for i in range(draws)]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    pure = np.full(k, 1 - EDGE)
    bound = theorem1_bound(_mix(k), pure, np.zeros(k), np.full(k, n // k), m, delta=DELTA, gamma=GAMMA)
    errors = np.array([row["error"] for row in rows])
    return {
        "n": n,
        "m": m,
        "k": k,
        **mean,
        "error_q90": float(np.quantile(errors, 0.9)),
        "bound": bound.total,
        "within_bound": float(np.mean(errors <= bound.total)),
    }


def slope(rows: list[dict[str, float]], by: str, value: str = "error") -> float:
    """Least-squares slope of the logarithm of the value against the logarithm of a size."""
    x, y = np.log([row[by] for row in rows]), np.log([row[value] for row in rows])
    return float(np.polyfit(x, y, 1)[0])


def plot(sweeps: dict[str, list[dict[str, float]]], slopes: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "theorem1"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(sweeps), figsize=(14, 3.6), sharey=True, layout="constrained")
    for axis, (name, rows) in zip(axes, sweeps.items(), strict=True):
        by = name[0]
        x = [row[by] for row in rows]
        axis.loglog(x, [row["error"] for row in rows], "o-", label="mean error")
        axis.loglog(x, [row["bound"] for row in rows], "--", label="Theorem 1")
        axis.loglog(x, [row["k"] * row["width"] for row in rows], ":", label="DKW intervals, summed width")
        axis.set(title=f"against {name}: slope {slopes[name]:+.2f}", xlabel=name)
    axes[0].set_ylabel("L1 error over the known classes")
    axes[0].legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()

    start = time.perf_counter()
    sweeps, slopes = {}, {}
    print(f"{'n':>8} {'m':>8} {'k':>3} {'error':>8} {'q90':>8} {'bound':>8} {'covered':>8} {'width':>7}")
    for name, settings in SWEEPS.items():
        rows = sweeps[name] = [measure(*setting, options.draws) for setting in settings]
        slopes[name] = slope(rows, by=name[0])
        for row in rows:
            print(
                f"{row['n']:8d} {row['m']:8d} {row['k']:3d} {row['error']:8.4f} {row['error_q90']:8.4f} "
                f"{row['bound']:8.1f} {row['covered']:8.2f} {row['width']:7.3f}"
            )
        print(f"slope of log error against log {name}: {slopes[name]:+.3f}\n")

    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "command": f"python benchmarks/theorem1_rate.py --draws {options.draws}",
        "delta": DELTA,
        "gamma": GAMMA,
        "slopes": slopes,
        "rate_holds": abs(slopes["n = m"] + 0.5) <= 0.1,
        "sweeps": sweeps,
        "seconds": round(time.perf_counter() - start, 1),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "machine": platform.processor() or platform.machine(),
    }
    (options.out / "theorem1_rate.json").write_text(json.dumps(result, indent=1) + "\n")
    plot(sweeps, slopes, options.out / "theorem1_rate.svg")
    print(f"rate within -0.5 ± 0.1: {result['rate_holds']}; {result['seconds']} s; written to {options.out}")


def _mix(k: int) -> np.ndarray:
    """Uneven shares of the known classes: proportional to 1..k."""
    weight = np.arange(1, k + 1)
    return (1 - NOVEL) * weight / weight.sum()


if __name__ == "__main__":
    main()
