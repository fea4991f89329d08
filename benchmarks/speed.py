"""The speed suite: what osls costs beside the work that cannot be saved, as ratios within one run.

    python benchmarks/speed.py                     all of it (make bench-speed)
    python benchmarks/speed.py bbe folds           some of it
    OSLS_DATA=<folder> python benchmarks/speed.py overhead-mnist scaling

Each section runs in a process of its own and writes its figures into results/speed.json, beside each ratio
the limit that we hold ourselves to. Sections whose data set is not at hand are left as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "speed.json"


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def side_by_side(ours: Callable[[], object], other: Callable[[], object], repeats: int) -> list[float]:
    """Ratios of the two times, measured in turn so that a busy machine slows both."""
    ours(), other()  # warm up
    return [seconds(ours) / seconds(other) for _ in range(repeats)]


def ratio(name: str, values: list[float], limit: float, *, at_least: bool = False) -> dict[str, Any]:
    middle = float(np.median(values))
    return {
        "what": name,
        "ratio": round(middle, 3),
        "spread": [round(min(values), 3), round(max(values), 3)],
        "limit": limit,
        "at_least": at_least,
        "met": middle >= limit if at_least else middle <= limit,
    }


def bbe() -> list[dict[str, Any]]:
    """Best bins of one class, and of a hundred, beside sorting their scores."""
    from osls.mixture import BBE, bbe_by_class

    rng = np.random.default_rng(0)
    positive = rng.beta(5, 1, 1_000_000).astype(np.float32)
    unlabeled = np.concatenate([rng.beta(5, 1, 2_500_000), rng.beta(1, 4, 2_500_000)]).astype(np.float32)
    one = side_by_side(
        lambda: BBE().fit(positive, unlabeled), lambda: (np.sort(positive), np.sort(unlabeled)), 7
    )
    k, n = 100, 200_000
    proba = rng.random((n, k), dtype=np.float32)
    proba /= proba.sum(axis=1, keepdims=True)
    y = rng.integers(k, size=n // 2)
    source, target = proba[: n // 2], proba[n // 2 :]

    def sort_columns() -> None:
        for j in range(k):
            np.sort(proba[:, j])

    many = side_by_side(lambda: bbe_by_class(source, y, target), sort_columns, 3)
    return [
        ratio("BBE, 1e6 + 5e6 scores / sorting them", one, 2.5),
        ratio("class-wise BBE, 100 classes x 200,000 rows / sorting the columns", many, 2.0),
    ]


def mixture() -> list[dict[str, Any]]:
    """DEDPUL and Elkan-Noto on a million unlabelled scores: seconds, because the promise is in seconds."""
    from mixture_speed import best_seconds, scores
    from osls.mixture import DEDPUL, ElkanNoto

    positive, unlabeled = scores(np.random.default_rng(0))
    found = []
    for estimator in (DEDPUL(), ElkanNoto()):
        took = best_seconds(lambda estimator=estimator: estimator.fit(positive, unlabeled))
        name = f"{type(estimator).__name__}, 1,000,000 unlabelled scores, seconds"
        found.append(ratio(name, [took], 2.0))
    return found


def folds() -> list[dict[str, Any]]:
    """Five folds of an MLP trained as one stack, beside one fold."""
    from osls.training.learners import NetworkLearner
    from osls.training.trainer import Schedule, resolve_device

    found = []
    for rows, columns in ((2_000, 64), (10_000, 54), (10_000, 784)):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(rows, columns))
        y, weight, fold = rng.integers(10, size=rows), np.ones(rows), np.arange(rows) % 5
        schedule = Schedule.short(rows, steps=150)
        learner = NetworkLearner(X, factory=None, schedule=schedule, device=resolve_device("cpu"))
        one_fold = np.where(fold == 0, 0, -1)
        values = side_by_side(
            lambda learner=learner, y=y, w=weight, f=fold: learner.cross_fit(y, w, f, 10, 0),
            lambda learner=learner, y=y, w=weight, f=one_fold: learner.cross_fit(y, w, f, 10, 0),
            5,
        )
        found.append(ratio(f"five folds / one fold, MLP, {rows:,} x {columns}", values, 3.0))
    return found


def overhead(config: dict[str, Any]) -> list[dict[str, Any]]:
    """A default fit beside the bare training steps and forests in it."""
    from fit_overhead import compare

    whole, bare = compare(config)
    row = ratio(f"default fit / bare training, {config['name']}", [whole / bare], 1.15)
    return [{**row, "seconds": round(whole, 1), "bare_seconds": round(bare, 1)}]


def scaling() -> list[dict[str, Any]]:
    """Time and memory of a default fit against the number of rows of covtype."""
    times, memory, sizes = [], [], (10_000, 30_000, 100_000, 300_000)
    for rows in sizes:
        figures = figures_of(rows)
        times.append(figures["seconds"])
        memory.append(figures["peak_bytes"] / figures["input_bytes"])
        print(rows, figures, flush=True)
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    return [
        ratio("slope of log time against log rows, covtype 10,000 to 300,000", [slope], 1.05)
        | {"seconds": [round(t, 1) for t in times]},
        ratio("peak memory / input, covtype 300,000", [memory[-1]], 3.0)
        | {"by_rows": [round(m, 2) for m in memory]},
    ]


def figures_of(rows: int) -> dict[str, Any]:
    """Fit in a process of its own, because the peak of memory is a process's."""
    command = [sys.executable, __file__, "--fit-rows", str(rows)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(out.stderr)
    return dict(json.loads(out.stdout.splitlines()[-1]))


def fit_rows(rows: int) -> None:
    """Fit once; print the seconds, and how far the peak of memory rose above what was there before."""
    import torch

    from osls import PULSE
    from osls.app.bench.draws import draw_problem

    problem = draw_problem({"name": "covtype", "rows": rows}, draw=0)
    data = problem.training_data()
    warm = np.random.default_rng(0).normal(size=(200, 5))
    PULSE(max_steps=2, rounds=1, n_bootstrap=2).fit(warm, np.arange(200) % 2, X_target=warm)
    before = _memory()
    took = seconds(lambda: PULSE(random_state=0).fit(**data))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = data["X"].nbytes + data["X_target"].nbytes
    figures = {"seconds": took, "peak_bytes": peak - before, "input_bytes": size}
    print(json.dumps({**figures, "threads": torch.get_num_threads()}))


def _memory() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def predict() -> list[dict[str, Any]]:
    """predict_proba of a million rows beside the forward passes in it."""
    import torch

    from osls import PULSE
    from osls.training.trainer import scoring_chunk

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 54)) * 1.5
    y, y_target = rng.integers(3, size=2000), rng.integers(4, size=2000)
    X, X_target = (centres[labels] + rng.normal(size=(2000, 54)) for labels in (y, y_target))
    model = PULSE(source_classifier="mlp", discriminator="mlp", random_state=0).fit(X, y, X_target=X_target)
    rows = np.tile(X_target, (500, 1)).astype(np.float32)
    # Both are networks inside what combines and calibrates them.
    parts = [model._predictor.discriminator, model._predictor.classifier.predictor]
    tensors = [part.encoder(rows) for part in parts]

    def bare() -> None:
        with torch.inference_mode():
            for part, encoded in zip(parts, tensors, strict=True):
                part.networks.eval()
                for chunk in torch.split(torch.from_numpy(encoded), scoring_chunk(part.device)):
                    part.networks(chunk.expand(part.members, *chunk.shape))

    values = [1 / value for value in side_by_side(lambda: model.predict_proba(rows), bare, 3)]
    default = PULSE(random_state=0).fit(X, y, X_target=X_target)
    for row in rows[:20]:  # warm up
        default.predict_proba(row[None])
    one = [1000 * seconds(lambda row=row: default.predict_proba(row[None])) for row in rows[:200]]
    return [
        ratio("throughput of predict_proba / bare forward passes, 1e6 rows", values, 0.8, at_least=True),
        ratio("predict_proba of one row, default fit of 4,000 x 54, milliseconds", one, 5.0),
    ]


def plain() -> list[dict[str, Any]]:
    """A default fit beside a plain source classifier of the same families, cross-fitted: CPU seconds."""
    import torch

    from osls import PULSE
    from osls.app.bench.draws import draw_problem
    from osls.baselines import SourceOnly

    torch.set_num_threads(1)
    found = []
    for config in PLAIN:
        values = []
        for draw in range(5):
            data = draw_problem(config, draw=draw).training_data()
            SourceOnly(max_steps=2).fit(**data)  # warm up
            fit, plain_fit = (partial(kind(random_state=draw).fit, **data) for kind in (PULSE, SourceOnly))
            values.append(cpu(fit) / cpu(plain_fit))
        found.append(ratio(f"default fit / plain cross-fitted classifier, {config['name']}", values, 4.0))
    return found


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def quick() -> list[dict[str, Any]]:
    """effort="quick" on 10,000 rows of covtype: CPU seconds, and what it loses against the default."""
    import torch

    from osls import PULSE
    from osls.app.bench.draws import draw_problem

    torch.set_num_threads(1)
    took, lost = [], []
    for draw in range(3):
        problem = draw_problem({"name": "covtype", "rows": 10_000}, draw=draw)
        data, models = problem.training_data(), {}
        for effort in ("balanced", "quick"):
            models[effort] = PULSE(effort=effort, random_state=draw)
            seconds_of_cpu = cpu(partial(models[effort].fit, **data))
        took.append(seconds_of_cpu)
        right = {name: np.mean(model.target_labels_ == problem.y_target) for name, model in models.items()}
        lost.append(float(right["balanced"] - right["quick"]) * 100)
    return [
        ratio('effort="quick", covtype 10,000 x 54, CPU seconds', took, 8.0),
        ratio('effort="quick", the same, points of accuracy lost', lost, 2.0),
    ]


def memory() -> list[dict[str, Any]]:
    """How far the memory rises in a default fit of 10,000 rows of covtype."""
    risen = figures_of(10_000)["peak_bytes"] / 2**20
    return [ratio("memory of a default fit, covtype 10,000 x 54, MB", [risen], 600.0)]


def cluster() -> list[dict[str, Any]]:
    """One fit over two Dask workers of one core each, beside one worker: wall time."""
    import dask
    import torch
    from distributed import Client, LocalCluster
    from joblib import parallel_config

    from osls import PULSE
    from osls.app.bench.draws import draw_problem

    # A single worker is not used: the fit then runs in this process, which has to have one core as well.
    torch.set_num_threads(1)
    # Dask's workers return memory to the system from 64 kB on: networks then take 2.3 times as long.
    spawned = "distributed.nanny.pre-spawn-environ"
    dask.config.set({f"{spawned}.MALLOC_TRIM_THRESHOLD_": 2**30, f"{spawned}.MALLOC_MMAP_THRESHOLD_": 2**25})
    data = draw_problem({"name": "covtype", "rows": 30_000}, draw=0).training_data()
    took: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for workers in took:
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as local,
                Client(local),
                parallel_config(backend="dask"),
            ):
                PULSE(max_steps=2, rounds=1, n_bootstrap=2).fit(**data)  # the workers import
                took[workers].append(seconds(lambda: PULSE(random_state=0).fit(**data)))
    values = [two / one for one, two in zip(took[1], took[2], strict=True)]
    return [ratio("default fit of covtype, 30,000 rows, two Dask workers / one", values, 0.65)]


def efforts() -> list[dict[str, Any]]:
    """The stored fits of benchmarks/effort.py: the default beside that of the commit it is held against."""
    from effort import DATA, pairs_of

    found = []
    for data in DATA:
        pairs = pairs_of(data, "balanced")
        if not pairs:
            continue
        draws = f"{data}, {len(pairs)} draws"
        costs = [new["cpu"] / old["cpu"] for old, new in pairs]
        found.append(ratio(f"default fit / before, CPU seconds, {draws}", costs, 0.5))
        # Means, because the promise is one of means.
        lost = float(np.mean([old["accuracy"] - new["accuracy"] for old, new in pairs])) * 100
        found.append(ratio(f"points of accuracy lost, {draws}", [lost], 0.2))
        off = float(np.mean([new["share_error"] - old["share_error"] for old, new in pairs])) * 100
        found.append(ratio(f"points of error of the novel share added, {draws}", [off], 0.0))
    return found


def all_rows() -> list[dict[str, Any]]:
    """The stored fits of benchmarks/all_rows.py: every row of large tables."""
    lines = (RESULTS.parent / "all_rows.jsonl").read_text().splitlines()
    fits = {(row["data"], row["fit"]): row for row in map(json.loads, lines)}
    sample, whole = fits["covtype", "sample"], fits["covtype", "whole"]
    gained = 100 * (whole["accuracy"] - sample["accuracy"])
    rows = "covtype, 581,012 rows"
    found = [
        ratio(f"points of accuracy gained over a sample, {rows}", [gained], 0.0, at_least=True),
        ratio(f"CPU minutes, {rows}", [whole["cpu"] / 60], np.inf) | {"limit": None, "met": None},
        ratio(f"peak memory, {rows}, GB", [whole["peak_mb"] / 1024], 4.0),
    ]
    made = sorted((row for (data, _), row in fits.items() if data == "generated"), key=lambda r: r["rows"])
    for row in made:
        name = f"peak memory, generated {sum(row['rows']):,} x 50, GB"
        found.append(ratio(name, [row["peak_mb"] / 1024], 4.0))
    slope = np.polyfit(np.log([sum(r["rows"]) for r in made]), np.log([r["cpu"] for r in made]), 1)[0]
    found.append(ratio("slope of log CPU time against log rows, generated", [float(slope)], 1.05))
    return found


def estimates() -> list[dict[str, Any]]:
    """The stored fits of benchmarks/cost.py: estimated time beside taken."""
    found = json.loads((RESULTS.parent / "cost.json").read_text())
    name = f"share of {len(found['fits'])} fits whose time was estimated within a factor of 1.5"
    return [ratio(name, [found["within_1.5"]], 0.9, at_least=True)]


def alternatives() -> list[dict[str, Any]]:
    """What was tried and is not used: compiled networks and half precision, beside plain training steps."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    from osls.training.nets import FastConvFeatures, StackedMLP

    def training(
        network: nn.Module, x: torch.Tensor, precision: torch.dtype = torch.float32
    ) -> Callable[[], None]:
        y = torch.arange(x.shape[-2] if x.ndim == 3 else len(x)) % 10
        y = y.repeat(len(x)) if x.ndim == 3 else y
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)

        def steps() -> None:
            for _ in range(5):
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
                    loss = cross_entropy(network(x).flatten(0, -2), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        return steps

    found = []
    for name, make, x in (
        (
            "five MLPs, 784 columns",
            lambda: StackedMLP(5, 784, 10, (256, 256), 0.25),
            torch.randn(5, 256, 784),
        ),
        (
            "convnet, 32 x 32 pixels",
            lambda: nn.Sequential(FastConvFeatures(3, 16), nn.Linear(64, 10)),
            torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last),
        ),
    ):
        plain = training(make(), x)
        for what, other in (
            ("torch.compile", training(torch.compile(make()), x)),
            ("bfloat16", training(make(), x, torch.bfloat16)),
        ):
            row = ratio(f"{what} / plain training steps, {name}", side_by_side(other, plain, 3), 1.0)
            # Not a promise: below one it would be worth using.
            found.append({**row, "limit": None, "met": None})
    return found


PLAIN = ({"name": "digits"}, {"name": "satimage"}, {"name": "covtype", "rows": 10_000})
OVERHEADS = ({"name": "mnist"}, {"name": "covtype", "rows": 100_000}, {"name": "newsgroups"})
SECTIONS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    **{f.__name__: f for f in (bbe, mixture, folds, predict, alternatives)},
    **{f"overhead-{config['name']}": partial(overhead, config) for config in OVERHEADS},
    "scaling": scaling,
    **{f.__name__: f for f in (plain, quick, memory, cluster, efforts, all_rows, estimates)},
}
NEED_DATA = ("overhead", "scaling", "plain", "quick", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fit-rows", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit_rows:
        return fit_rows(args.fit_rows)
    if args.in_process:
        print("\n" + json.dumps(SECTIONS[args.sections[0]]()))
        return None
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.sections or SECTIONS:
        if name.startswith(NEED_DATA) and not os.environ.get("OSLS_DATA"):
            print(f"{name}: left out, OSLS_DATA is not set")
            continue
        command = [sys.executable, __file__, name, "--in-process"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: failed\n{done.stderr}")
            continue
        results[name] = json.loads(done.stdout.splitlines()[-1])
        for row in results[name]:
            verdict = {True: "met", False: "NOT MET", None: "no promise"}[row["met"]]
            limit = "" if row["limit"] is None else f"limit {row['limit']}, "
            print(f"{row['what']:<75} {row['ratio']:>8} ({limit}{verdict})")
        results["machine"] = (
            f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        )
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
