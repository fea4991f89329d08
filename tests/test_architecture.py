"""The house as docs/architecture.md draws it. `make lint` holds the layers, these tests the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import stats  # noqa: E402

# A finder, and not None in sys.modules, which scipy takes for a torch that is there.
WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")
sys.meta_path.insert(0, NoTorch())
"""
TORCH_FREE = ["mixture", "shift", "inference", "identifiability", "streaming", "theory", "metrics", "monitor"]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_estimates_need_no_torch():
    # One process for all: a traceback says which room it was.
    run("\n".join([WITHOUT_TORCH, *(f"import osls.{room}" for room in TORCH_FREE)]))


def test_blocking_torch_blocks_it():
    with pytest.raises(AssertionError, match="torch is blocked"):
        run(f"{WITHOUT_TORCH}\nimport osls.training")


def test_estimates_work_without_torch():
    code = """
import numpy as np, osls
rng = np.random.default_rng(0)
positive, unlabeled = rng.beta(6, 2, 500), np.r_[rng.beta(6, 2, 200), rng.beta(1, 6, 300)]
print(round(osls.mixture.BBE().fit(positive, unlabeled).alpha_, 1))
summaries = [osls.streaming.ScoreSummary().update(scores) for scores in (positive, unlabeled)]
print(round(osls.streaming.estimate_share(*summaries, n_boot=0).alpha, 1))
"""
    assert run(WITHOUT_TORCH + code).split() == ["0.4", "0.4"]


def imports_in(text: str) -> set[str]:
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return {
        line.strip()
        for block in blocks
        for line in re.findall(
            r"^(?:from osls[\w.]* import [\w, ]+|import osls[\w.]*)", block, flags=re.MULTILINE
        )
    }


def test_what_the_readme_and_the_docs_name_is_there():
    toolbox = re.findall(r"^\| `osls\.(\w+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert {"mixture", "monitor"} <= set(toolbox)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    statements = sorted(set().union(*(imports_in(page.read_text()) for page in pages)))
    assert "from osls.mixture import DEDPUL" in statements
    # The rooms first: after importing osls and nothing else.
    run("\n".join(["import osls", *(f"osls.{name}.__name__" for name in toolbox), *statements]))


def test_the_house_keeps_its_structure():
    """Rooms, cycles, doors and names; how many lines there are, `make stats` says."""
    sizes = ("files in src", "code lines", "tests : src, lines")
    broken = [
        f"{what}: {figure:g}, limit {limit}"
        for what, figure, limit, kept in stats.measure()
        if not kept and what not in sizes
    ]
    assert not broken, "\n".join(broken)


def test_architecture_page_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text()
    missing = [room for room in stats.rooms() if f"{room}.py" not in page and f"{room}/" not in page]
    assert not missing


def test_architecture_page_names_nothing_that_is_gone():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page))
    assert named
    for name in named:
        assert (stats.SOURCE / name).exists() or (ROOT / name).exists(), name
