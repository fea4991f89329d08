"""Every script under benchmarks still runs: with a tiny draw, or without options as far as its imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
# Modules that the scripts share.
PARTS = {"plotting", "scores"}
_OPTIONS = {
    "coverage": "scores --draws 1 --rows 200 --jobs 1 --out .",
    "monitoring": "--runs 1 --changed-runs 1 --batches 22 --out out.json",
    "novelty": "--data gaussian --draws 1 --power-draws 1 --power-rows 90 --jobs 1 --cache . --out .",
    "problems": "--problems 2 --final 0 --first 1 --cache .",
    "purity": "--data digits --draws 1 --out .",
    "prediction_sets": "--data gaussian --draws 1 --out out.json",
    "theorem1_rate": "--draws 1 --out .",
    "violations": "--data gaussian --draws 1 --model trees --cache . --out out.json",
}
TINY = {name: options.split() for name, options in _OPTIONS.items()}


def run(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_draw(name, tmp_path):
    printed = run(tmp_path, str(SCRIPTS / f"{name}.py"), *TINY[name])
    written = [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".npz")]
    assert printed.strip()
    assert written, "nothing was written"
    for path in written:
        assert path.suffix == ".npz" or json.loads(path.read_text())


def test_the_others_import(tmp_path):
    others = sorted({path.stem for path in SCRIPTS.glob("*.py")} - set(TINY) - PARTS)
    code = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\n" + "\n".join(
        f"import {name}" for name in others
    )
    assert len(others) > 5
    run(tmp_path, "-c", code)
