"""A study whose processes are killed and started again: six processes, each of which loads all of osls."""

from __future__ import annotations

import os
import signal
import subprocess

import yaml

from conftest import wait_until
from osls.app.bench.store import read_parquet
from test_bench import command, content, group_of


def test_kill_nine_then_two_processes_finish_it(tmp_path):
    """Kill the parent in the middle: its workers end; two new processes share the rest, nothing twice."""
    file, out = tmp_path / "study.yml", tmp_path / "out"
    file.write_text(yaml.safe_dump(content(draws=10)))
    run = command("run", file, "--out", out, "--jobs", 1)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(run, start_new_session=True, **quiet)
    rows = out / "runs"
    wait_until(lambda: len(list(rows.glob("*.json"))) >= 2)
    process.kill()
    process.wait()
    try:
        wait_until(lambda: not group_of(process.pid))
    finally:
        if group_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    before = {path.name: path.read_text() for path in rows.glob("*.json")}
    assert 2 <= len(before) < 10

    both = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=900)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    ran = [int(text.rsplit(" of 10 runs were run by this command", 1)[0].split()[-1]) for text in printed]
    assert sum(ran) == 10 - len(before)
    assert {name: (rows / name).read_text() for name in before} == before
    assert [row["error"] for row in read_parquet(out / "results.parquet")] == [None] * 10
