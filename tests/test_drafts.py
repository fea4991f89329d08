"""What a killed process leaves is gone after the next command, whichever that is, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from osls._core.writing import draft_beside, draft_of, sweep
from osls.app.report.page import write_atomically
from osls.persist import load, save

LEAVE = """
import os, sys
from pathlib import Path
from osls._core.writing import draft_beside
left = ("run", False, ""), ("p.csv", False, ".csv"), ("gone", True, ""), ("run", True, "")
for name, old, suffix in left:
    path = draft_beside(Path(sys.argv[1]) / name, old=old, suffix=suffix)
    path.write_text(name) if suffix else (path.mkdir(), (path / "mix.json").write_text(name))
"""


@pytest.fixture
def left(tmp_path):
    """A folder with the drafts of a process that has died, and files of others."""
    subprocess.run([sys.executable, "-c", LEAVE, str(tmp_path)], check=True)
    (tmp_path / "run").mkdir()
    for name in (".config", ".run.osls", ".run.0123abcd", ".bashrc.old.1234"):
        (tmp_path / name).write_text("mine")
    assert len(list(tmp_path.iterdir())) == 9
    return tmp_path


KEPT = {".config", ".run.osls", ".run.0123abcd", ".bashrc.old.1234", "run"}


@pytest.mark.parametrize(
    ("command", "new"),
    [
        (lambda folder: sweep(folder), set()),
        (lambda folder: write_atomically(folder / "page.html", "x"), {"page.html"}),
        (lambda folder: save(1, folder / "model"), {"model"}),
    ],
    ids=["a sweep", "a page", "a model"],
)
def test_any_command_sweeps(left, command, new):
    command(left)
    # What was moved aside by a process that died then and there is put back.
    assert {path.name for path in left.iterdir()} == KEPT | new | {"gone"}
    assert (left / "gone" / "mix.json").read_text() == "gone"


def test_drafts_of_living_processes_stay(tmp_path):
    mine = draft_beside(tmp_path / "run")
    mine.mkdir()
    with draft_of(tmp_path / "a.txt") as draft:
        sweep(tmp_path)
        assert draft.exists()
        draft.write_text("x")
    assert mine.exists()
    os.utime(mine, (0, 0))  # of a process that got the number of one that died long ago
    sweep(tmp_path)
    assert not mine.exists()


def test_a_model_that_was_moved_aside_is_found_and_put_back(tmp_path):
    save("old", tmp_path / "m")
    script = "import os,sys\nfrom pathlib import Path\nfrom osls._core.writing import draft_beside\n"
    move = script + "path = Path(sys.argv[1]); os.rename(path, draft_beside(path, old=True))"
    subprocess.run([sys.executable, "-c", move, str(tmp_path / "m")], check=True)
    assert load(tmp_path / "m") == "old"
    save("other", tmp_path / "n")
    assert {path.name for path in tmp_path.iterdir()} == {"m", "n"}
    assert load(tmp_path / "m") == "old"


def test_a_folder_that_is_not_there_is_no_reason_to_fail(tmp_path):
    sweep(tmp_path / "nowhere")
