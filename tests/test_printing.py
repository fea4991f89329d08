"""What others wrote reaches the terminal as text: it neither steers it nor becomes markup."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.table import Table
from typer.testing import CliRunner

import osls
from osls._core.printing import printable
from osls._core.screen import Screen
from osls.app.cli import app
from osls.app.files import InputError
from osls.persist import ModelError, load, save
from test_persist import reseal

# One attack each, as a piece of a class name, a file name, a column or a manifest.
ATTACKS = {
    "the screen is cleared": "\x1b[2J",
    "the clipboard is written (OSC 52)": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "the title of the window is set": "\x1b]0;root\x07",
    "a link to elsewhere (OSC 8)": "\x1b]8;;https://example.org\x1b\\",
    "a command in eight bits (CSI)": "\x9b2J",
    "a command in eight bits (OSC)": "\x9d0;x\x9c",
    "the terminal is asked who it is": "\x1b[c",
    "the line is written over": "\rosls: all is well",
    "letters are rubbed out": "bad\b\b\bgood",
    "a bell": "\x07",
    "a form feed": "\x0c",
    "the direction of writing turned": "\u202egnp.exe",
    "the direction of writing isolated": "\u2066x\u2069",
    "a mark of direction": "\u200f",
    "a letter without width": "\u200b",
    "a mark of byte order": "\ufeff",
    "a tag that nobody sees": "\U000e0041",
    "a line separator": "\u2028osls: all is well",
    "half of a pair": "\ud800",
    "delete": "\x7f",
}
MARKUP = {
    "a link": "[link=https://example.org]here[/link]",
    "a link behind a backslash": "\\[link=https://example.org]here\\[/link]",
    "a colour": "[red]x[/red]",
    "a tag that is never closed": "[bold",
    "a tag that closes nothing": "[/]",
    "an emoji by name": ":warning:",
    "an action": "[@click=app.bell]x[/]",
}
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0041]"
)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_text_steers_the_terminal(attack):
    shown = printable(f"class {attack} end")
    assert not STEERING.search(shown)
    assert shown.startswith("class ")
    assert shown.endswith(" end")
    shown.encode()  # halves of pairs included


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_errors_are_one_line_that_does_not_steer(attack):
    for error in (InputError(f"{attack}\n: no"), ModelError(f"{attack}\n: no")):
        assert not STEERING.search(str(error))
        assert "\n" not in str(error)


@pytest.mark.parametrize("text", [*MARKUP.values(), *ATTACKS.values()], ids=[*MARKUP, *ATTACKS])
def test_the_screen_shows_what_stands_there(text):
    file = io.StringIO()
    screen = Screen(file=file, width=200)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    screen.print(text)
    screen.print(table)
    shown = file.getvalue()
    assert not STEERING.search(shown)
    if text in MARKUP.values():
        assert shown.count(text) == 4


def write(folder, attack):
    """A table whose columns, classes and ids hold an attack."""
    rng = np.random.default_rng(0)
    column = f"dose {attack}"
    frame = pd.DataFrame({column: rng.normal(size=60), "age": rng.integers(20, 80, 60)})
    frame[column] += np.resize([0.0, 4.0], 60)
    frame.to_csv(folder / "target.csv", index=False)
    frame.assign(kind=np.resize(["cold", f"flu {attack}"], 60)).to_csv(folder / "source.csv", index=False)


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    """A run whose classes and columns carry a command in each of three tongues."""
    folder = tmp_path_factory.mktemp("names\x1b[2J[red]x\u202e")
    write(folder, "\\[link=//e.org]x \x1b]52;c;\x07 \u202e")
    files = ["--source", str(folder / "source.csv"), "--target", str(folder / "target.csv")]
    result = CliRunner().invoke(
        app, ["adapt", *files, "--label", "kind", "--out", str(folder / "run"), "--fast"]
    )
    assert result.exit_code == 0, result.output
    return folder, result


def test_an_answer_does_not_steer(hostile_run):
    _, result = hostile_run
    assert "\\[link=//e.org]" in result.stdout
    assert not STEERING.search(result.output)


def test_predictions_and_monitors_do_not_steer(hostile_run):
    folder, _ = hostile_run
    batch = folder / "batch\x1b[2J\u202e.csv"
    batch.write_bytes((folder / "target.csv").read_bytes())
    model = str(folder / "run" / "model")
    out = ["--state", str(folder / "state.json"), "--out", str(folder / "page.html")]
    for words in (
        ["predict", model, str(batch), "--out", str(folder / "p.csv")],
        ["monitor", model, str(batch), *out],
        ["monitor", model, str(batch), *out],
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code in (0, 3), result.output
        assert not STEERING.search(result.output), words


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "no\x1b[2J", "rows\x9b.csv"],
        ["adapt", "--source", "no\x1b[2J.csv", "--target", "x.csv", "--out", "y", "--label", "z"],
        ["predict", "a", "b", "c\x1b[2J", "\u202e"],
        ["predict\x1b[2J"],
        ["--no-such\x1b[2J"],
        ["adapt", "--level", "\x1b[2J"],
        ["monitor", "m\x1b[2J", "--every", "\x07"],
        ["bench", "--data", "no\x1b[2J"],
        ["bench", "run", "no\x1b[2J.yml"],
        ["bench", "table", "no\x1b[2J"],
    ],
    ids=lambda words: words[0].replace("\x1b", "") + f" with {len(words)} words",
)
def test_complaints_about_arguments_do_not_steer(words):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr
    assert not STEERING.search(result.stderr), result.stderr


def test_a_manifest_does_not_steer(tmp_path):
    save(1, tmp_path / "m")
    for change in (
        lambda m: m.update(version=9, osls="\x1b[2J"),
        lambda m: m.update(object={"$": "\x1b[2J"}),
        lambda m: m.update(object={"$": "object", "of": "\x1b[2J\n"}),
        lambda m: m["files"].update({"\x1b[2J": {}}),
    ):
        reseal(tmp_path / "m", change)
        with pytest.raises(ModelError) as caught:
            load(tmp_path / "m")
        assert not STEERING.search(str(caught.value))
        save(1, tmp_path / "m")


def test_a_study_does_not_steer(tmp_path):
    study = {"name": "\x1b[2J", "data": ["dig\x1b[2Jits"], "methods": ["pulse"], "draws": 1}
    (tmp_path / "s.yml").write_text(yaml.safe_dump(study))
    result = CliRunner().invoke(app, ["bench", "run", str(tmp_path / "s.yml"), "--list"])
    assert result.exit_code == 2
    assert not STEERING.search(result.output)


def test_nothing_is_printed_but_by_the_screen():
    """Consoles of rich, which read markup, are made nowhere but where only our own words are shown."""
    sources = [
        path for path in Path(osls.__file__).parent.rglob("*.py") if "Console(" in path.read_text("utf-8")
    ]
    assert {path.name for path in sources} == {"progress.py"}
