"""Problems that nobody chose: random draws over twenty-four data sets, and the held-out scores of each.

    OSLS_DATA=... python benchmarks/problems.py --model trees --cache DIR

A problem is a number. From it follow the data set, the novel classes (none to half of them), the class mix of
both sides, the novel share (none, or up to nine tenths) and the sizes (300 to 6,000 rows a side). Its scores
are those of PULSE's steps 2 and 3; they are kept in the cache, so a run that was stopped goes on. The data
sets are divided once and for all (``FINAL``): methods and constants may be tuned on the others, and only the
final tables look at these.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from sklearn import datasets as sk
from sklearn.decomposition import TruncatedSVD

from osls.datasets import load_dataset
from osls.shift.scores import HeldOutScores
from scores import ScoresOnly

SIZES = (300, 6000)
LEAST_ROWS = 12
COMPONENTS = 50

# Real data: name -> whether a sparse or wide table is first projected to its leading components.
REAL = {
    "avila": False,
    "breakhis400x": True,
    "citeseq": True,
    "covtype": False,
    "digits": False,
    "drybean": False,
    "letter": False,
    "mnist": False,
    "newsgroups": True,
    "pbmc3k": True,
    "penbased": False,
    "satimage": False,
    "shuttle": False,
    "usps": False,
    "worm": True,
    "zeisel": True,
}
SYNTHETIC = (
    "boxes",
    "clusters",
    "gaussian",
    "heavy-tailed",
    "hypercube",
    "noisy-columns",
    "rings",
    "unequal",
)
NAMES = tuple(sorted([*REAL, *SYNTHETIC]))
# Only final tables look at these. Chosen before anything was run: every third name, starting from the third.
FINAL = NAMES[2::3]


@dataclass(frozen=True)
class Problem:
    """A random problem: rows of both sides, and the truth."""

    data: str
    X: np.ndarray
    y: np.ndarray
    X_target: np.ndarray
    y_target: np.ndarray
    population: np.ndarray

    @property
    def realised(self) -> np.ndarray:
        """Shares of the k + 1 classes among the target rows that were drawn; ``population`` is what they
        were drawn from.
        """
        return np.bincount(self.y_target, minlength=len(self.population)) / len(self.y_target)


def make_problem(number: int, sizes: tuple[int, int] = SIZES) -> Problem:
    """Draw problem ``number``, with ``sizes`` rows a side."""
    rng = np.random.default_rng([number, 19])
    name = NAMES[number % len(NAMES)]
    X, y = table_of(name) if name in REAL else synthetic(name, rng)
    classes = np.flatnonzero(np.bincount(y) >= 60)
    n_novel = int(rng.integers(0, max(1, len(classes) // 2) + 1))
    novel = rng.choice(classes, n_novel, replace=False)
    known = np.setdiff1d(classes, novel)
    # On a logarithmic scale, more small ones than large ones.
    low, high = np.log(sizes)
    n, m = (round(float(np.exp(low + (high - low) * rng.beta(1.0, 1.8)))) for _ in range(2))
    share = 0.0 if n_novel == 0 else float(rng.uniform(0.0, 0.9))
    spread = float(np.exp(rng.uniform(np.log(0.7), np.log(20.0))))
    source_mix, target_mix = (rng.dirichlet(np.full(len(known), spread)) for _ in range(2))
    novel_mix = rng.dirichlet(np.full(n_novel, 5.0)) if n_novel else np.empty(0)
    rows = {j: rng.permutation(np.flatnonzero(y == j)) for j in classes}
    source, labels = [], []
    for position, j in enumerate(known):
        # A third of a class at least stays for the target.
        count = min(max(LEAST_ROWS, round(n * source_mix[position])), 2 * len(rows[j]) // 3)
        source.append(rows[j][:count])
        labels.append(np.full(count, position))
        rows[j] = rows[j][count:]
    pools = [*(rows[j] for j in known), *(rows[j] for j in novel)]
    mix = np.concatenate([(1 - share) * target_mix, share * novel_mix])
    # So many rows that no pool is expected to run out, so that the drawn mix is the one meant.
    possible = min((len(pool) / p for pool, p in zip(pools, mix, strict=True) if p > 0.002), default=m)
    counts = rng.multinomial(int(min(m, max(sizes[0] / 2, 0.85 * possible))), mix / mix.sum())
    counts = np.minimum(counts, [len(pool) for pool in pools])
    target = np.concatenate([pool[:count] for pool, count in zip(pools, counts, strict=True)])
    y_target = np.repeat(np.minimum(np.arange(len(pools)), len(known)), counts)
    order = rng.permutation(len(target))
    source, labels = np.concatenate(source), np.concatenate(labels)
    population = np.append((1 - share) * target_mix, share)
    return Problem(name, X[source], labels, X[target][order], y_target[order], population)


@cache
def table_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Load a real data set as a dense table of floats with labels 0..k-1."""
    path = Path(os.environ.get("OSLS_PROBLEM_TABLES", ".problem-tables")) / f"{name}.npz"
    if not path.exists():
        labelled = load_dataset(name).load()
        X, y = labelled.X, np.unique(labelled.y, return_inverse=True)[1]
        keep = np.random.default_rng(0).permutation(len(y))[:40_000]
        X, y = X[keep], y[keep]
        if X.ndim > 2:
            X = X.reshape(len(X), -1)
        if REAL[name]:
            X = TruncatedSVD(COMPONENTS, random_state=0).fit_transform(X)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, X=np.asarray(X, dtype=np.float32), y=y)
    with np.load(path) as file:
        return file["X"], file["y"]


def synthetic(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a data set of random dimension, overlap, number of classes and noise."""
    k, dim, rows = int(rng.integers(3, 13)), int(rng.integers(2, 31)), 24_000
    apart = float(rng.uniform(1.5, 5.0))
    share = rng.dirichlet(np.full(k, 1.0 if name == "unequal" else 10.0))
    y = rng.choice(k, rows, p=share)
    makers: dict[str, Callable[[], np.ndarray]] = {
        "gaussian": lambda: _means(k, dim, apart, rng)[y] + rng.normal(size=(rows, dim)),
        "unequal": lambda: (
            _means(k, dim, apart, rng)[y]
            + rng.normal(size=(rows, dim)) * np.exp(rng.normal(0, 0.5, size=(k, 1)))[y]
        ),
        "heavy-tailed": lambda: _means(k, dim, apart, rng)[y] + rng.standard_t(2.5, size=(rows, dim)),
        "boxes": lambda: _means(k, dim, apart, rng)[y] + rng.uniform(-1.7, 1.7, size=(rows, dim)),
        "clusters": lambda: (
            _means(3 * k, dim, apart, rng)[3 * y + rng.integers(3, size=rows)] + rng.normal(size=(rows, dim))
        ),
        "noisy-columns": lambda: np.column_stack(
            [_means(k, dim, apart, rng)[y] + rng.normal(size=(rows, dim)), rng.normal(size=(rows, 2 * dim))]
        ),
        "rings": lambda: _rings(y, dim, rng),
        "hypercube": lambda: _hypercube(y, k, dim, apart, rng),
    }
    return makers[name]().astype(np.float32), y


def _means(k: int, dim: int, apart: float, rng: np.random.Generator) -> np.ndarray:
    means = rng.normal(size=(k, dim))
    return apart * means / np.linalg.norm(means, axis=1, keepdims=True)


def _rings(y: np.ndarray, dim: int, rng: np.random.Generator) -> np.ndarray:
    direction = rng.normal(size=(len(y), max(2, min(dim, 6))))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * (1 + y + rng.normal(0, 0.25, size=len(y)))[:, None]


def _hypercube(y: np.ndarray, k: int, dim: int, apart: float, rng: np.random.Generator) -> np.ndarray:
    """scikit-learn's classes at the corners of a cube, with redundant columns and columns of noise."""
    informative = max(5, dim // 2)
    X, classes = sk.make_classification(
        len(y) * 2,
        n_features=informative + dim,
        n_informative=informative,
        n_redundant=dim // 3,
        n_classes=k,
        n_clusters_per_class=2,
        class_sep=apart / 2.5,
        flip_y=0.0,
        random_state=int(rng.integers(2**31)),
    )
    pools = [np.flatnonzero(classes == j) for j in range(k)]
    rows = np.empty(len(y), dtype=int)
    for j in range(k):
        members = np.flatnonzero(y == j)
        rows[members] = rng.choice(pools[j], len(members), replace=len(members) > len(pools[j]))
    return X[rows]


@dataclass(frozen=True)
class ScoredProblem:
    """The held-out scores of a problem, and the truth."""

    number: int
    data: str
    y: np.ndarray
    classes: np.ndarray
    joint: np.ndarray
    population: np.ndarray
    realised: np.ndarray

    def scores(self) -> HeldOutScores:
        """The scores as PULSE has them after step 3."""
        n = len(self.y)
        return HeldOutScores(self.y, self.classes[:n], self.classes[n:], self.joint[:n], self.joint[n:])


def numbers(problems: int, final: int) -> list[int]:
    """Numbers of the problems: all below ``problems``, and up to ``final`` those of the final data sets."""
    return [i for i in range(max(problems, final)) if i < problems or NAMES[i % len(NAMES)] in FINAL]


def scored(number: int, model: str, cache: Path, sizes: tuple[int, int] = SIZES) -> ScoredProblem:
    """Return the scores of a problem, from the cache if they are there."""
    path = cache / model / f"{number}.npz"
    if not path.exists():
        problem = make_problem(number, sizes)
        start = time.process_time()
        pulse = ScoresOnly(source_classifier=model, discriminator=model, random_state=number)
        pulse.fit(problem.X, problem.y, X_target=problem.X_target)
        parts = {name: _small(value) for name, value in pulse.parts.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(
            part,
            population=problem.population,
            realised=problem.realised,
            seconds=time.process_time() - start,
            **parts,
        )
        part.rename(path)
    with np.load(path) as file:
        parts = {
            name: file[name].astype(float) if file[name].dtype == np.float32 else file[name] for name in file
        }
    parts.pop("seconds")
    # Older caches hold several fits of the joint model.
    parts["joint"] = parts["joint"] if parts["joint"].ndim == 2 else parts["joint"][0]
    return ScoredProblem(number, NAMES[number % len(NAMES)], **parts)


def _small(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="trees", help="trees or auto")
    parser.add_argument("--problems", type=int, default=288, help="on all data sets")
    parser.add_argument("--final", type=int, default=600, help="up to this number on the final data sets")
    parser.add_argument("--first", type=int, default=0, help="leave out so many")
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES, help="least and most rows a side")
    parser.add_argument("--cache", type=Path, default=Path(".scores"))
    args = parser.parse_args()
    for number in numbers(args.problems, args.final)[args.first :]:
        start = time.perf_counter()
        problem = scored(number, args.model, args.cache, tuple(args.sizes))
        n, m, k = len(problem.y), len(problem.joint) - len(problem.y), len(problem.population) - 1
        seconds = time.perf_counter() - start
        print(
            f"{number} {problem.data} n={n} m={m} k={k} novel={problem.realised[-1]:.3f} {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
