"""Learn the weights of ``osls.inference.partition`` on data sets where the number of groups is known.

    OSLS_DATA=... python benchmarks/discovery_weights.py

Takes ten minutes. For each draw of ``benchmarks/discovery.py`` on ``TUNED`` and on generated classes, the
rows called novel are grouped, and so are those of some of the hidden classes only, with as many rows that
were called novel wrongly in proportion. The score of a number of groups is linear in its figures; the weights
maximise the likelihood of the true number (a conditional logit), and the answer is the median.
Prints them, the usual modularity of one class, and how often the number is right with the weights that the
other data sets give.
"""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from discovery import TUNED, clustering_accuracy, draw
from osls import PULSE
from osls.inference import partition as d
from problems import synthetic

# Other draws than those of benchmarks/discovery.py.
DRAWS = range(100, 124)
SUBSETS = 3
PENALTY = 5.0
# One group weighs so much beside another number: to invent a group does more harm than to miss one.
ONE = 3.0
GENERATED = "generated"
MADE = "made"


def generated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes of correlated columns, normal or with heavy tails."""
    rng = np.random.default_rng([seed, 77])
    width = int(rng.integers(5, 30))
    mix = rng.normal(size=(width, width)) * rng.gamma(1, size=width)
    centres = rng.normal(size=(10, width)) * rng.uniform(0.9, 2.0)
    parts = []
    for centre in centres:
        rows = rng.normal(size=(int(rng.integers(100, 500)), width)) * rng.uniform(0.6, 1.4, size=width)
        if seed % 2:
            rows /= np.sqrt(rng.gamma(3, 1 / 3, size=(len(rows), 1)))
        parts.append((rows + centre) @ mix)
    return np.concatenate(parts), np.repeat(np.arange(10), [len(rows) for rows in parts])


def made(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes of ``benchmarks/problems.py``."""
    rng = np.random.default_rng([seed, 5])
    kinds = ("hypercube", "boxes", "heavy-tailed", "unequal")
    X, y = synthetic(kinds[seed // 4 % 4 if seed >= 4 else seed], rng)
    keep = rng.permutation(len(y))[:2600]
    return X[keep].astype(np.float64), y[keep]


def problems(name: str, number: int) -> list[dict[str, Any]]:
    """Figures and accuracies of one to six groups, for all hidden classes and for some of them."""
    makers = {GENERATED: generated, MADE: made}
    table = makers[name](number) if name in makers else None
    p = draw(name, number, table)
    if np.unique(p["y"], return_counts=True)[1].min() < 2:
        return []  # A fit holds rows of every class out.
    trees = {"source_classifier": "trees", "discriminator": "trees", "n_bootstrap": 5}
    model = PULSE(**trees, random_state=number).fit(p["X"], p["y"], X_target=p["X_target"])
    y = model._kept_rows().y
    return tasks(name, number, model._space(), y, model.target_proba_, p["y_target"], p["hidden"])


def tasks(
    name: str, number: int, space: d.Space, y: np.ndarray, proba: np.ndarray, truth: np.ndarray, hidden: Any
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    usual = d.one_class(space, y, rng)
    called = np.flatnonzero(proba.argmax(axis=1) == proba.shape[1] - 1)
    right = np.isin(truth[called], hidden)
    subsets = [s for size in range(1, len(hidden) + 1) for s in combinations(hidden, size)]
    chosen = sorted({len(subsets) - 1, *rng.permutation(len(subsets))[:SUBSETS].tolist()})
    done = []
    for subset in (subsets[i] for i in chosen):
        own = called[np.isin(truth[called], subset)]
        if len(own) < d._FEWEST_ROWS:
            continue
        wrong = rng.permutation(called[~right])[: round(np.sum(~right) * len(own) / right.sum())]
        rows = np.sort(np.append(own, wrong))
        novel = np.isin(truth[rows], subset)
        # The other hidden classes are not there, neither as rows nor as neighbours.
        there = np.append(np.ones(len(y), dtype=bool), ~np.isin(truth, np.setdiff1d(hidden, subset)))
        pool, joint = space[there], space[len(y) + rows].joint
        sample = pool[d.core_rows(pool.joint, there.cumsum()[len(y) + rows] - 1, rng)]
        means = d.mean_figures(sample, usual, rng)
        figures = np.full((d._MOST_GROUPS, len(d._WEIGHTS)), np.nan)
        accuracy = np.zeros(d._MOST_GROUPS)
        for count, labels in d.partitions(sample.joint).items():
            group = d._posterior(joint, *d._mixture(sample.joint, labels)[1]).argmax(axis=1)
            accuracy[count - 1] = clustering_accuracy(group[novel], truth[rows][novel])
            figures[count - 1] = means.get(count, figures[count - 1])
        done.append(
            {
                "data": name,
                "draw": number,
                "true": len(subset),
                "whole": len(subset) == len(hidden),
                "figures": figures,
                "accuracy": accuracy,
                "usual": usual.modularity,
            }
        )
    return done


def fit(figures: np.ndarray, true: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Weights with the highest penalised likelihood; every number counts alike in every data set, but one."""
    cell = np.unique(data, return_inverse=True)[1] * (true.max() + 1) + true
    weight = np.where(true == 1, ONE, 1.0) / np.bincount(cell)[cell]
    weight *= len(true) / weight.sum()
    possible = ~np.isnan(figures[:, :, 0])
    scale = np.nanstd(figures, axis=(0, 1))
    scaled = np.nan_to_num(figures) / scale
    own = scaled[np.arange(len(true)), true - 1]

    def loss(beta: np.ndarray) -> tuple[float, np.ndarray]:
        score = np.where(possible, scaled @ beta, -30.0)
        log_p = score - logsumexp(score, axis=1, keepdims=True)
        value = -(weight * log_p[np.arange(len(true)), true - 1]).sum() + PENALTY * (beta @ beta) / 2
        mean = (np.exp(log_p)[:, :, None] * scaled).sum(axis=1)
        return value, (weight[:, None] * (mean - own)).sum(axis=0) + PENALTY * beta

    return minimize(loss, np.zeros(figures.shape[2]), jac=True, method="L-BFGS-B").x / scale


def report(found: list[dict[str, Any]]) -> None:
    """Print the weights, and the results with each data set left out."""
    figures, true = np.stack([t["figures"] for t in found]), np.array([t["true"] for t in found])
    data, whole = np.array([t["data"] for t in found]), np.array([t["whole"] for t in found])
    accuracy = np.stack([t["accuracy"] for t in found])
    print("weights", fit(figures, true, data).round(3).tolist())
    print("usual", np.mean([t["usual"] for t in found], axis=0).round(3).tolist())
    count = np.zeros(len(true), dtype=int)
    for name in np.unique(data):
        out = data == name
        score = figures[out] @ fit(figures[~out], true[~out], data[~out])
        count[out] = [
            d.median_number({j + 1: float(value) for j, value in enumerate(row) if not np.isnan(value)})
            for row in score
        ]
    got = accuracy[np.arange(len(true)), count - 1]
    for name in [*np.unique(data), "all"]:
        rows = whole & ((data == name) | (name == "all"))
        error = np.abs(count - true)[rows]
        one = rows & (true == 1)
        print(
            f"{name:10s} right {np.mean(error == 0):.2f}, off by one {np.mean(error <= 1):.2f}, "
            f"one is one {np.mean(count[one] == 1):.2f}, accuracy {got[rows].mean():.3f}"
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    report([t for n in DRAWS for name in (*TUNED, GENERATED, MADE) for t in problems(name, n)])
