"""Groups of the novel part, suggested rows and absorbed labels, on data sets that nothing was tuned on.

    OSLS_DATA=... python benchmarks/discovery.py --out benchmarks/results/discovery.json
    OSLS_DATA=... python benchmarks/discovery.py --parts --out benchmarks/results/parts.json

For each data set and draw, one to four classes are hidden. A run that was stopped goes on where it was. The
weights of ``osls.inference.partition`` were learnt on ``TUNED``; the results are for ``DATA``. Models are
trees, or with ``--models auto`` the default ones, and a problem has at most ``--rows`` rows; all of it takes
an hour of one core.

- ``groups``: found and true number; accuracy (Hungarian) of the called novel rows, ours and that of k-means
  with the true number and of HDBSCAN, on the same features; mean error of the shares of groups.
- ``absorb``: accuracy over all rows and classes with ten labels a group by ``suggest``, with as many and
  twice as many random ones, with as many of the most uncertain ones, with all novel rows labelled, and with
  a fresh fit that has as many other rows of the hidden classes in its source as the target has.
- ``seconds``: of the fit, of ``discover`` and of ``absorb``.

With ``--parts``, two known classes have one name, and four fifths of the second are taken out of the target:
is that class found to have two parts, and that they moved; how many of the other classes are said to?
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import TruncatedSVD

from osls import PULSE
from osls.datasets import load_dataset, simulate_osls

TUNED = ("covtype", "digits", "drybean", "letter", "pbmc3k", "satimage", "usps")
DATA = ("mnist", "penbased", "zeisel", "citeseq", "worm", "newsgroups", "shuttle", "avila")
ROWS = 1400
CLASSES = 10
LEAST_ROWS = 80
LABELS = 10


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Load a data set as a dense table; wide or sparse ones by their leading fifty components."""
    path = Path(os.environ.get("OSLS_DISCOVERY_TABLES", ".discovery-tables")) / f"{name}.npz"
    if not path.exists():
        labelled = load_dataset(name).load()
        X, y = labelled.X, np.unique(labelled.y, return_inverse=True)[1]
        keep = np.random.default_rng(0).permutation(len(y))[:20_000]
        X, y = X[keep], y[keep]
        X = X.reshape(len(y), -1) if X.ndim > 2 else X
        if X.shape[1] > 200:
            X = TruncatedSVD(50, random_state=0).fit_transform(X)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, X=np.asarray(X, dtype=np.float64), y=y)
    with np.load(path) as file:
        return file["X"], file["y"]


def draw(
    name: str, number: int, rows_of: tuple[np.ndarray, np.ndarray] | None = None, most: int = ROWS
) -> dict[str, Any]:
    """Hide one to four classes; other rows of them go to ``extra``, which only the fresh fit sees."""
    rng = np.random.default_rng([number, 20])
    X, y = table(name) if rows_of is None else rows_of
    classes = np.flatnonzero(np.bincount(y) >= LEAST_ROWS)
    classes = rng.permutation(classes)[:CLASSES]
    hidden = classes[: min(1 + number % 4, len(classes) - 2)]
    every = rng.permutation(np.flatnonzero(np.isin(y, classes)))
    size = min(most, round(0.7 * len(every)))
    rows, rest = every[:size], every[size : 2 * size]
    extra = rest[np.isin(y[rest], hidden)]
    problem = simulate_osls(rows[:, None], y[rows], novel=hidden.tolist(), test_size=0.0, random_state=number)
    source, target = problem.X_source[:, 0], problem.X_target[:, 0]
    return {
        "X": X[source],
        "y": y[source],
        "X_target": X[target],
        "y_target": y[target],
        "X_extra": X[extra],
        "y_extra": y[extra],
        "hidden": hidden,
    }


def clustering_accuracy(labels: np.ndarray, truth: np.ndarray) -> float:
    """Share of rows in the cluster that the best one-to-one matching gives their class."""
    a, b = (np.unique(values, return_inverse=True)[1] for values in (labels, truth))
    counts = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(counts, (a, b), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(truth))


def study(name: str, number: int, models: str, rows: int) -> dict[str, Any]:
    """Fit one draw, and measure all that the tables need."""
    d = draw(name, number, most=rows)
    options = {
        "source_classifier": models,
        "discriminator": models,
        "n_bootstrap": 50,
        "random_state": number,
    }
    started = time.perf_counter()
    model = PULSE(**options).fit(d["X"], d["y"], X_target=d["X_target"])
    seconds = {"fit": time.perf_counter() - started}
    started = time.perf_counter()
    found = model.discover()
    seconds["discover"] = time.perf_counter() - started
    truth, hidden = d["y_target"], d["hidden"]
    novel, called = np.isin(truth, hidden), found.group >= 0
    both = called & novel
    record: dict[str, Any] = {
        "data": name,
        "draw": number,
        "rows": [len(d["y"]), len(truth)],
        "true_groups": len(hidden),
        "found_groups": len(found),
        "novel": [float(model.novel_prevalence_), float(novel.mean())],
        "seconds": seconds,
    }
    if both.sum() < 2:
        return record
    features = model._space().joint[-len(truth) :]
    rivals = {
        "k-means, true number": KMeans(len(hidden), n_init=10, random_state=0),
        "HDBSCAN": HDBSCAN(min_cluster_size=max(5, called.sum() // 20), copy=True),
    }
    record["clustering"] = {
        "osls": clustering_accuracy(found.group[both], truth[both]),
        **{
            who: clustering_accuracy(rival.fit_predict(features[called])[novel[called]], truth[both])
            for who, rival in rivals.items()
        },
    }
    record["share_error"] = share_error(model, found, truth, hidden)
    record["absorb"] = absorb_all(model, d, options, found, seconds)
    return record


def parted(name: str, number: int, models: str, rows: int) -> dict[str, Any]:
    """Give two known classes one name, and make the second rare in the target."""
    data = draw(name, number, most=rows)
    counts = np.bincount(data["y"])
    one, two = np.argsort(-counts, kind="stable")[:2]
    kept = np.ones(len(data["y_target"]), dtype=bool)
    gone = np.flatnonzero(data["y_target"] == two)
    kept[gone[: round(0.8 * len(gone))]] = False
    y = np.where(data["y"] == two, one, data["y"])
    model = PULSE(source_classifier=models, discriminator=models, random_state=number)
    model.fit(data["X"], y, X_target=data["X_target"][kept])
    found = {part.name: part for part in model.discover().parts}
    truth = data["y_target"][kept]
    within = float(np.sum(truth == two) / max(np.sum(np.isin(truth, [one, two])), 1))
    part = found.get(one)
    return {
        "data": name,
        "draw": number,
        "found": part is not None,
        "moved": None if part is None else part.moved,
        "share_error": None if part is None else min(abs(share - within) for share in part.target),
        "others": len(model.classes_) - 2,
        "others_parted": len(found) - (part is not None),
    }


def share_error(model: PULSE, found: Any, truth: np.ndarray, hidden: np.ndarray) -> float:
    """Mean error of the hidden classes' shares, each matched with one group (a share of 0 if none is)."""
    counts = np.array([[np.sum(truth[g.rows] == c) for c in hidden] for g in found.groups])
    estimate = np.zeros(len(hidden))
    for group, column in zip(*linear_sum_assignment(-counts), strict=True):
        estimate[column] = found.groups[group].share
    return float(np.mean(np.abs(estimate - [np.mean(truth == c) for c in hidden])))


def absorb_all(
    model: PULSE, d: dict[str, Any], options: dict[str, Any], found: Any, seconds: dict[str, float]
) -> dict[str, Any]:
    """Accuracy over all rows after absorbing labels that were chosen in several ways."""
    truth, rng = d["y_target"], np.random.default_rng(0)
    called = np.flatnonzero(found.group >= 0)
    n = LABELS * len(found)
    confidence = np.sort(model.target_proba_, axis=1)[:, -1] * found.membership.max(axis=1)
    chosen = {
        "suggested": model.suggest(n),
        "random": rng.permutation(called)[:n],
        "twice as many random": rng.permutation(called)[: 2 * n],
        "most uncertain": called[np.argsort(confidence[called], kind="stable")[:n]],
        "all": called,
    }
    result: dict[str, Any] = {"labels": n}
    for how, rows in chosen.items():
        started = time.perf_counter()
        grown = model.absorb_rows(rows, truth[rows].tolist())
        seconds.setdefault("absorb", time.perf_counter() - started)
        answers = {int(c): float(p) for c, p in zip(grown.classes_, grown.target_marginal_, strict=True)}
        error = [abs(answers.get(int(c), 0.0) - np.mean(truth == c)) for c in np.unique(truth)]
        unasked = np.setdiff1d(np.arange(len(truth)), chosen["all"] if how == "all" else rows)
        result[how] = {
            "accuracy": float(np.mean(grown.target_labels_ == truth)),
            "accuracy of rows not asked": float(np.mean((grown.target_labels_ == truth)[unasked])),
            "mix_error": float(np.mean(error)),
        }
    X, y = np.concatenate([d["X"], d["X_extra"]]), np.concatenate([d["y"], d["y_extra"]])
    fresh = PULSE(**options).fit(X, y, X_target=d["X_target"])
    result["fresh fit"] = {"accuracy": float(np.mean(fresh.target_labels_ == truth))}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--models", choices=("trees", "auto"), default="trees")
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done = json.loads(options.out.read_text())["runs"] if options.out.exists() else []
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for number in range(options.draws):
        for name in options.data:
            if any(run["data"] == name and run["draw"] == number for run in done):
                continue
            run = (parted if options.parts else study)(name, number, options.models, options.rows)
            done.append({**run, "models": options.models, "commit": commit})
            options.out.write_text(json.dumps({"runs": done}, indent=1) + "\n")
            print(name, number, {key: run[key] for key in run if "found" in key}, flush=True)


if __name__ == "__main__":
    main()
