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
from osls.inference.calibrated import known_factor
from osls.inference.mix import MixFromScores
from osls.inference.separation import inseparable_groups
from problems import FINAL, NAMES, ScoredProblem, scored

PROBABILITIES = (
    np.array([0.5, 1, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 97.5, 99, 99.5]) / 100
)
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


def coverage_left_out(errors: Errors, level: float) -> tuple[float, float]:
    """Coverage and mean width on data sets that were left out."""
    held, width = np.zeros(len(errors.data)), np.zeros(len(errors.data))
    for name in set(errors.data):
        out = np.array([data == name for data in errors.data])
        beta = errors.fit(~out)
        ends = np.interp([0.5 - level / 2, 0.5 + level / 2], PROBABILITIES, errors.quantiles(~out, beta))
        size = np.exp(errors.features[out] @ beta)
        held[out] = (errors.error[out] >= size * ends[0]) & (errors.error[out] <= size * ends[1])
        width[out] = size * (ends[1] - ends[0])
    weight = same_weight(errors.data)
    return float(weight @ held), float(weight @ width)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["trees", "auto"])
    parser.add_argument("--replicates", type=int, default=100)
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
    hidden, error, left_out = least_error(rows)
    print(f"_HIDDEN = {hidden:g}  # mean error {error:.4f}, of sets left out {left_out:.4f}")
    columns = [PROBABILITIES]
    for kind in ("novel", "known"):
        errors = errors_of(rows, kind, hidden)
        every = np.ones(len(errors.data), dtype=bool)
        beta = errors.fit(every)
        columns.append(errors.quantiles(every, beta))
        print(f"_{kind.upper()}_SCALE = ({', '.join(f'{value:.4f}' for value in beta)})")
        for level in (0.95, 0.8):
            held, width = coverage_left_out(errors, level)
            print(f"# left out, level {level}: coverage {held:.3f}, mean width {width:.3f}")
    for probability, novel, known in np.column_stack(columns):
        print(f"        ({probability:g}, {novel:.3f}, {known:.3f}),")


if __name__ == "__main__":
    main()
