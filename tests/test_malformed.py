"""Every malformed input ends with exit code 2 and one sentence, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from malformed import CASES, Case
from osls import PULSE
from osls.app.cli import app


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check_message(stderr: str, case: Case) -> None:
    text = stderr.rstrip("\n")
    assert text.startswith("osls: ")
    assert "\n" not in text, "one sentence on one line"
    assert "Traceback" not in text
    assert text.endswith((".", "?")), "a whole sentence"
    for word in case.words:
        assert word in text


def test_there_are_at_least_sixty_distinct_cases():
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_malformed_input(case, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a malformed input must be found before anything is trained")

    monkeypatch.setattr(PULSE, "fit", refuse)
    command = case.command(tmp_path)
    before = listing(tmp_path)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, (result.output, result.exception)
    check_message(result.stderr, case)
    assert result.stdout == ""
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["csv-row-too-short", "parquet-cut-short", "npz-with-pickled-objects", "label-in-the-target"]
)
def test_malformed_input_in_a_process_of_its_own(name, tmp_path):
    case = next(case for case in CASES if case.name == name)
    command = case.command(tmp_path)
    before = listing(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "osls.app.cli", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    check_message(done.stderr, case)
    assert done.stdout == ""
    assert listing(tmp_path) == before
