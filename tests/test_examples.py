"""The examples of the README run as they stand there."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from osls.app.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def commands_for(kind: str) -> tuple[list[str], list[str]]:
    pattern = rf"python (examples/make_data.py {kind} \S+).*\n(osls adapt .*)"
    found = re.search(pattern, README)
    assert found, f"the README has no example of kind {kind}"
    return shlex.split(found[1]), shlex.split(found[2])[1:]


@pytest.mark.parametrize("kind", ["table", "text", "images"])
def test_example_makes_its_data(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (script, *arguments), adapt = commands_for(kind)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    runpy.run_path(str(ROOT / script), run_name="__main__")
    for option in ("--source", "--target"):
        assert Path(adapt[adapt.index(option) + 1]).exists()


def test_table_example_finds_what_has_no_label(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (script, *arguments), adapt = commands_for("table")
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    runpy.run_path(str(ROOT / script), run_name="__main__")
    outcome = CliRunner().invoke(app, [*adapt, "--fast"])
    assert outcome.exit_code == 0, outcome.output
    mix = json.loads(Path("run-table/mix.json").read_text())
    novel = mix["classes"][-1]
    # 106 large malignant tumours among 325 new rows.
    assert novel["interval"][0] <= 106 / 325 <= novel["interval"][1]
    assert Path("run-table/report.html").exists()


def test_the_notebook_was_executed_and_shows_answers():
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = ["".join(output["data"].get("text/html", "")) for output in outputs if "data" in output]
    # The model and the answer show themselves, and rich asks for no widgets.
    assert sum("osls-answer" in html for html in shown) == 2
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert "PULSE: step 1 of" in printed
    assert "ipywidgets" not in printed
    for cell in cells:
        compile("".join(cell["source"]), "tour.ipynb", "exec")
