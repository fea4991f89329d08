"""The constants of osls.inference.calibrated, from problems over the data sets that may be tuned on.

    OSLS_DATA=... python benchmarks/problems.py --model auto --cache DIR      (the scores; also --model trees)
    OSLS_DATA=... python benchmarks/problems.py --model auto --sizes 1500 6000 --cache LARGE
    OSLS_DATA=... python benchmarks/calibrate.py --cache DIR LARGE

For each problem: the estimate without correction, the spread of its bootstrap replicates, the accuracy of the
source classifier, and the truth. From them the scale of errors and the quantiles of the errors so
standardised, after the correction for hidden rows. Every constant is also learnt with each data set left out
in turn; the coverage printed is that of the data set left out. It prints the lines to paste, and changes
nothing.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize

from osls._core.arrays import with_novel
from osls.inference import calibrated
from osls.inference.calibrated import known_factor
from osls.inference.mix import MixFromScores
from osls.inference.separation import inseparable_groups
from problems import FINAL, NAMES, ScoredProblem, scored

PROBABILITIES = (
    np.array([0.5, 1, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 97.5, 99, 99.5]) / 100
)
# Coverage that 95 % intervals of the known classes must have on every data set that was left out.
LEAST = 0.92
FLOORS = {"novel": 0.01, "known": 0.005}


@dataclass(frozen=True)
class Row:
    """What is known of a problem without its labels, and the truth."""

    data: str
    model: str
    mix: np.ndarray
    spread: np.ndarray
    accuracy: float
    rows: float
    truth: np.ndarray


def describe(problem: ScoredProblem, model: str, replicates: int) -> Row:
    """Estimate the mix of a problem without correction, and bootstrap it."""
    scores, estimator = problem.scores(), MixFromScores(corrected=False)
    groups = inseparable_groups(scores)
    rng = np.random.default_rng(problem.number)
    drawn, factor = estimator.replicates(scores, groups, repeats=replicates, rng=rng)
    marginal = estimator.known_marginal(scores)
    return Row(
        problem.data,
        model,
        with_novel(marginal, estimator.novel_share(scores, marginal)),
        factor * drawn.std(axis=0),
        scores.accuracy,
        scores.rows(marginal),
        problem.realised,
    )


def described(number: int, model: str, cache: Path, replicates: int) -> Row:
    return describe(scored(number, model, cache), model, replicates)


def corrected(row: Row, hidden: float) -> np.ndarray:
    """The mix with its known rows corrected."""
    known = row.mix[:-1] * known_factor(row.accuracy, row.rows, hidden)
    return np.append(known, 1 - known.sum())


def least_error(rows: list[Row]) -> tuple[float, float, float]:
    """``_HIDDEN`` of least mean error of the novel share, that error, and that of sets that were left out."""
    grid = np.arange(0.0, 1.21, 0.05)
    names = np.array([row.data for row in rows])
    error = np.array([[abs(corrected(row, hidden)[-1] - row.truth[-1]) for hidden in grid] for row in rows])
    by_set = {name: error[names == name].mean(axis=0) for name in set(names)}
    every = np.mean(list(by_set.values()), axis=0)
    left_out = [
        mean[np.argmin(np.mean([other for name_, other in by_set.items() if name_ != name], axis=0))]
        for name, mean in by_set.items()
    ]
    return float(grid[every.argmin()]), float(every.min()), float(np.mean(left_out))


def mean_error(rows: list[Row], hidden: float) -> float:
    """Mean error of the novel share, every data set with the same weight."""
    error = [abs(corrected(row, hidden)[-1] - row.truth[-1]) for row in rows]
    return float(same_weight([row.data for row in rows]) @ error)


def same_weight(names: list[str]) -> np.ndarray:
    """Weights of rows such that every name has the same sum."""
    _, place, count = np.unique(names, return_inverse=True, return_counts=True)
    return 1 / count[place] / len(count)


@dataclass(frozen=True)
class Errors:
    """Errors of shares of one kind, the novel one or those of known classes."""

    data: list[str]
    error: np.ndarray
    features: np.ndarray

    def fit(self, use: np.ndarray) -> np.ndarray:
        """Coefficients of the logarithm of the errors' scale, by maximum likelihood of Laplace errors."""
        weight = same_weight([name for name, taken in zip(self.data, use, strict=True) if taken])

        def loss(beta: np.ndarray) -> float:
            log_scale = self.features[use] @ beta
            return float(weight @ (log_scale + np.abs(self.error[use]) / np.exp(log_scale)))

        start = np.array([0.5, 1.0, 0.0, 0.0])[: self.features.shape[1]]
        return np.asarray(minimize(loss, start, method="BFGS").x)

    def quantiles(self, use: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Weighted quantiles of the standardised errors."""
        standard = self.error[use] / np.exp(self.features[use] @ beta)
        weight = same_weight([name for name, taken in zip(self.data, use, strict=True) if taken])
        order = np.argsort(standard)
        return np.interp(PROBABILITIES, np.cumsum(weight[order]) - weight[order] / 2, standard[order])


def errors_of(rows: list[Row], kind: str, hidden: float) -> Errors:
    names, errors, features = [], [], []
    for row in rows:
        mix = corrected(row, hidden)
        for j in [len(mix) - 1] if kind == "novel" else range(len(mix) - 1):
            names.append(row.data)
            errors.append(row.truth[j] - mix[j])
            features.append(
                (1.0, np.log(row.spread[j] + FLOORS[kind]), 1 - row.accuracy, np.log(row.rows / 1000))
            )
    # More rows than the spread shows do not help the known classes.
    return Errors(names, np.array(errors), np.array(features)[:, : 4 if kind == "novel" else 3])


def left_out(errors: Errors, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of errors on data sets that were left out."""
    low, high = np.zeros(len(errors.data)), np.zeros(len(errors.data))
    for name in set(errors.data):
        out = np.array([data == name for data in errors.data])
        beta = errors.fit(~out)
        ends = np.interp([0.5 - level / 2, 0.5 + level / 2], PROBABILITIES, errors.quantiles(~out, beta))
        size = np.exp(errors.features[out] @ beta)
        low[out], high[out] = size * ends[0], size * ends[1]
    return low, high


def coverage(errors: Errors, low: np.ndarray, high: np.ndarray) -> dict[str, float]:
    """Coverage of each data set."""
    held, names = (low <= errors.error) & (errors.error <= high), np.array(errors.data)
    return {name: float(held[names == name].mean()) for name in set(errors.data)}


def margin_for(errors: Errors, least: float) -> float:
    """How much wider 95 % intervals have to be for every data set that was left out to have ``least``."""
    low, high = left_out(errors, 0.95)
    factors = np.arange(1.0, 2.0, 0.05)
    return float(next(f for f in factors if min(coverage(errors, f * low, f * high).values()) >= least))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["trees", "auto"])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--hidden", type=float, default=calibrated._HIDDEN)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, nargs="+", default=[Path(".scores")])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for cache, model in itertools.product(args.cache, args.models):
        stems = (path.stem for path in (cache / model).glob("*.npz"))
        numbers = sorted(int(stem) for stem in stems if stem.isdigit())
        tuning = [number for number in numbers if NAMES[number % len(NAMES)] not in FINAL]
        work = (delayed(described)(number, model, cache, args.replicates) for number in tuning)
        rows += Parallel(args.jobs)(work)
    print(f"{len(rows)} problems, {len({row.data for row in rows})} data sets")
    best, error, error_out = least_error(rows)
    print(f"# least mean error with _HIDDEN = {best:g}: {error:.4f}, of sets left out {error_out:.4f}")
    hidden = args.hidden
    print(f"_HIDDEN = {hidden:g}  # mean error {mean_error(rows, hidden):.4f}")
    columns = [PROBABILITIES]
    for kind in ("novel", "known"):
        errors = errors_of(rows, kind, hidden)
        every = np.ones(len(errors.data), dtype=bool)
        beta = errors.fit(every)
        columns.append(errors.quantiles(every, beta))
        # Data sets differ; the known classes, of which there are enough to see it, get a margin for that.
        margin = margin_for(errors, LEAST) if kind == "known" else 1.0
        beta[0] += np.log(margin)
        print(
            f"_{kind.upper()}_SCALE = ({', '.join(f'{value:.4f}' for value in beta)})  # margin {margin:.2f}"
        )
        for level in (0.95, 0.8):
            low, high = (margin * end for end in left_out(errors, level))
            held, width = coverage(errors, low, high), same_weight(errors.data) @ (high - low)
            worst = min(held, key=lambda name: held[name])
            mean = np.mean(list(held.values()))
            print(f"# left out, level {level}: coverage {mean:.3f}, mean width {width:.3f}")
            print(f"#   least: {worst} {held[worst]:.3f}")
    for probability, novel, known in np.column_stack(columns):
        print(f"        ({probability:g}, {novel:.3f}, {known:.3f}),")


if __name__ == "__main__":
    main()
