"""Scoring of a 10,000,000-row Parquet data set on two Dask workers, undisturbed and with one killed.

Gaussian classes in ten columns; one of them is new. The data goes to a temporary folder (about 200 MB for ten
million rows) and is deleted. Prints one JSON object.

Usage: OMP_NUM_THREADS=1 python benchmarks/dask_scoring.py [rows] [source classifier and discriminator]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from osls import PULSE
from osls.streaming.dask import Scored, estimate_mix, score

COLUMNS = [f"x{j}" for j in range(10)]
K = 4
FILE_ROWS = 500_000


def draw(seed: int, mix: list[float], rows: int) -> pd.DataFrame:
    """Rows of K known classes and a novel one, in the given shares; a table with the class as `kind`."""
    rng = np.random.default_rng(seed)
    centre = np.random.default_rng(0).normal(size=(K + 1, 10)) * 1.2
    y = rng.choice(K + 1, rows, p=mix)
    X = centre[y].astype(np.float32) + rng.standard_normal((rows, 10), dtype=np.float32)
    # Two decimals, so that the files stay small.
    return pd.DataFrame(X.round(2), columns=COLUMNS).assign(kind=y.astype(np.int8))


def fitted(kind: str) -> PULSE:
    source = draw(1, [0.25, 0.25, 0.25, 0.25, 0.0], 4000)
    target = draw(2, [0.1, 0.2, 0.3, 0.2, 0.2], 4000)
    model = PULSE(source_classifier=kind, discriminator=kind, max_steps=400, random_state=0)
    return model.fit(source[COLUMNS].to_numpy(), source["kind"], X_target=target[COLUMNS].to_numpy())


def write(folder: Path, mix: list[float], rows: int) -> None:
    for i in range(-(-rows // FILE_ROWS)):
        size = min(FILE_ROWS, rows - i * FILE_ROWS)
        draw(100 + i, mix, size).to_parquet(folder / f"{i:03d}.parquet", row_group_size=125_000, index=False)


def kill_in_the_middle(client: Client, out: Path, expected: int, report: dict[str, Any]) -> threading.Thread:
    """Kill one worker when a third of the partitions are done."""
    victim = next(iter(client.run(os.getpid).values()))

    def wait_and_kill() -> None:
        while (done := len(list(out.glob("part-*.parquet")))) < expected / 3:
            time.sleep(0.05)
        os.kill(victim, signal.SIGKILL)
        report["partitions_done_when_killed"] = done

    thread = threading.Thread(target=wait_and_kill)
    thread.start()
    return thread


def timed_score(model: PULSE, data: Path, out: Path, client: Client) -> tuple[Scored, float]:
    started = time.perf_counter()
    scored = score(model, data, out=out, columns=COLUMNS, client=client)
    return scored, time.perf_counter() - started


def same_files(one: Scored, other: Scored) -> bool:
    pairs = zip(one.files, other.files, strict=True)
    return all(pd.read_parquet(a).equals(pd.read_parquet(b)) for a, b in pairs)


def bare_rows_a_second(model: PULSE, rows: int = 200_000) -> float:
    """Rows a second of the model itself in this process, on one thread."""
    X = draw(3, [0.2] * 5, rows)[COLUMNS].to_numpy()
    started = time.perf_counter()
    model.predict_proba(X)
    return rows / (time.perf_counter() - started)


def main(rows: int = 10_000_000, kind: str = "linear") -> None:
    mix = [0.30, 0.25, 0.20, 0.10, 0.15]
    model = fitted(kind)
    result: dict[str, Any] = {"rows": rows, "columns": len(COLUMNS), "workers": 2, "models": kind}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "target").mkdir()
        write(folder / "target", mix, rows)
        draw(4, [0.25, 0.25, 0.25, 0.25, 0.0], 40_000).to_parquet(folder / "held_out.parquet", index=False)
        size = sum(path.stat().st_size for path in (folder / "target").iterdir())
        result["parquet_mb"] = round(size / 2**20)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            held_out = score(model, folder / "held_out.parquet", columns=COLUMNS, label="kind", client=client)
            bare = bare_rows_a_second(model)
            calm, seconds = timed_score(model, folder / "target", folder / "calm", client)
            result["calm"] = {
                "seconds": round(seconds, 1),
                "partitions": len(calm.files),
                "throughput_per_bare_predict_proba_on_one_core": round(rows / seconds / bare, 2),
                "worker_peak_mb": sorted(round(m) for m in client.run(_peak_mb).values()),
            }
            killed: dict[str, Any] = {}
            killer = kill_in_the_middle(client, folder / "storm", len(calm.files), killed)
            storm, seconds = timed_score(model, folder / "target", folder / "storm", client)
            killer.join()
            result["one_worker_killed"] = killed | {"seconds": round(seconds, 1)}
        mixes = [estimate_mix(scored, held_out) for scored in (calm, storm)]
        by_em = estimate_mix(calm)
        result["truth"] = mix
        result["mix"] = mixes[0].marginal.tolist()
        result["mix_without_reference"] = by_em.marginal.tolist()
        result["largest_error"] = float(np.abs(mixes[0].marginal - mix).max())
        result["novel_interval"] = mixes[0].novel_interval
        result["holds"] = {
            "all_rows_scored": calm.rows == storm.rows == rows,
            "same_summary": calm.summary.to_bytes() == storm.summary.to_bytes(),
            "same_estimate": bool((mixes[0].marginal == mixes[1].marginal).all()),
            "same_interval": bool((mixes[0].interval == mixes[1].interval).all()),
            "same_predictions": same_files(calm, storm),
        }
    print(json.dumps(result, indent=1))


def _peak_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(*([int(sys.argv[1])] if len(sys.argv) > 1 else []), *sys.argv[2:3])
