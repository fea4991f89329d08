"""Do the intervals cover? Three studies, each into its own table and one picture.

    python benchmarks/coverage.py scores            Gaussian classes, noisy true densities, 200 draws
    python benchmarks/coverage.py pulse             the same through whole fits on small data, 50 draws
    python benchmarks/coverage.py real --cache DIR  digits, letter, satimage, penbased, mnist, 20 draws

For each novel share or data set: coverage and width of the practical (bootstrap) interval and of the
finite-sample bound, whether the simultaneous bounds hold for all classes, and how often "nothing new" is
rejected at .05.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from osls import PULSE
from osls.shift.scores import HeldOutScores
from plotting import new_figure, save
from scores import Answer, Case, answer, held_out_scores, judge_intervals, summarise

SHARES = (0.0, 0.05, 0.2, 0.5, 0.8)
DATA = ("digits", "letter", "satimage", "penbased", "mnist")
RESULTS = Path(__file__).parent / "results"


def draw_scores(draw: int, share: float, rows: int, k: int = 3) -> tuple[HeldOutScores, np.ndarray]:
    """Classes at equal distances in five dimensions; scores are the true posteriors with some noise."""
    rng = np.random.default_rng([draw, int(share * 100), rows])
    means = np.eye(k + 1, 5) * 3.2
    mix = np.append((1 - share) * rng.dirichlet(np.full(k, 5.0)), share)
    y = np.concatenate([np.repeat(np.arange(k), 10), rng.choice(k, rows, p=rng.dirichlet(np.full(k, 5.0)))])
    y_target = rng.choice(k + 1, rows, p=mix)

    def score(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = means[labels] + rng.normal(size=(len(labels), 5))
        log_density = -0.5 * np.square(X[:, None] - means).sum(axis=2)
        log_density += 0.5 * rng.normal(size=log_density.shape)
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        known, joint = density[:, :k], np.column_stack([density[:, :k], density @ mix])
        return known / known.sum(axis=1, keepdims=True), joint / joint.sum(axis=1, keepdims=True)

    (class_s, joint_s), (class_t, joint_t) = score(y), score(y_target)
    return HeldOutScores(y, class_s, class_t, joint_s, joint_t), mix


def on_scores(draw: int, share: float, rows: int) -> dict[str, float]:
    scores, mix = draw_scores(draw, share, rows)
    return judge_intervals(answer(scores, seed=draw), mix)


def through_pulse(draw: int, share: float, rows: int, k: int = 3) -> dict[str, float]:
    """Fit PULSE with trees to `rows` rows a side; the truth is the population's mix."""
    rng = np.random.default_rng([draw, int(share * 100), rows, 7])
    means = np.eye(k + 1, 5) * 5.0
    mix = np.append((1 - share) * rng.dirichlet(np.full(k, 5.0)), share)
    y = np.concatenate([np.repeat(np.arange(k), 10), rng.choice(k, rows - 10 * k)])
    y_target = rng.choice(k + 1, rows, p=mix)
    X, X_target = (means[labels] + rng.normal(size=(len(labels), 5)) for labels in (y, y_target))
    model = PULSE(source_classifier="trees", discriminator="trees", rounds=1, random_state=draw)
    model.fit(X, y, X_target=X_target)
    estimate = Answer(
        model.target_marginal_,
        model.marginal_interval_,
        model.marginal_bound_,
        model.novel_bound_,
        model.novelty_pvalue_,
    )
    return judge_intervals(estimate, mix)


def on_real_data(draw: int, data: str, rows: int, cache: Path) -> dict[str, float]:
    scores, truth = held_out_scores(Case(data, draw, rows=None if data == "digits" else rows), cache)
    return judge_intervals(answer(scores, seed=draw), truth)


def draw_picture(table: list[dict[str, Any]], kind: str, path: Path) -> None:
    """Coverage and width, one mark a row of the table."""
    figure, (left, right) = new_figure("coverage", 2)
    names = [str(row.get("data", row.get("novel_share"))) for row in table]
    for field, label, marker in (("covered", "95 % interval", "o"), ("bound_covered", "bound", "s")):
        left.plot(names, [row[field] for row in table], marker, label=label)
    left.axhspan(0.92, 0.98, alpha=0.15)
    left.set(ylim=(0, 1.03), ylabel="share of draws that hold the truth", title=f"Coverage ({kind})")
    for field, marker in (("width", "o"), ("bound_width", "s")):
        right.plot(names, [row[field] for row in table], marker)
    right.set(ylim=(0, None), ylabel="mean width", title="Width")
    left.legend(loc="lower right")
    for axis in (left, right):
        axis.set_xlabel("data" if kind == "real" else "novel share")
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("scores", "pulse", "real"))
    parser.add_argument("--draws", type=int, help="default: 200, 50 and 20")
    parser.add_argument("--rows", type=int, help="a side; default: 1000, 600 and 2500 in all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(".scores"), help="held-out scores of real data")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    draws = args.draws or {"scores": 200, "pulse": 50, "real": 20}[args.study]
    rows = args.rows or {"scores": 1000, "pulse": 600, "real": 2500}[args.study]
    problems: list[tuple[dict[str, Any], Callable[[int], dict[str, float]]]]
    if args.study == "real":
        problems = [({"data": d}, partial(on_real_data, data=d, rows=rows, cache=args.cache)) for d in DATA]
    else:
        run = on_scores if args.study == "scores" else through_pulse
        problems = [({"novel_share": share}, partial(run, share=share, rows=rows)) for share in SHARES]
    table = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for name, one_draw in problems:
            results = list(pool.map(one_draw, range(draws), chunksize=5))
            table.append({**name, "rows": rows, "draws": draws, **summarise(results)})
            print(table[-1], flush=True)
    out = args.out / f"coverage_{args.study}.json"
    out.write_text(json.dumps(table, indent=1) + "\n")
    draw_picture(table, args.study, out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
