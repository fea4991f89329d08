"""With which code a row was made, and what a table says of rows of earlier code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from osls.app.bench import provenance
from osls.app.bench.evaluation import summarise
from osls.app.bench.execute import run_config
from osls.app.bench.store import COLUMNS, Store
from osls.app.bench.study import parse_study, runs_of
from osls.app.bench.table import format_table
from test_bench import FAST, content


def git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", folder, *author, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout whose package has two methods; only the first imports the loss."""
    package = tmp_path / "osls"
    (package / "baselines").mkdir(parents=True)
    files = {
        "baselines/one.py": "from osls.losses import f\n",
        "baselines/two.py": "",
        "losses.py": "f = 1\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    monkeypatch.setattr(provenance, "_PACKAGE", package)

    class Found:
        def __init__(self, name):
            self.adapter = type("Adapter", (), {"__module__": f"osls.baselines.{name}"})

    monkeypatch.setattr(provenance, "find_method", Found)
    forget()
    yield package
    forget()


def forget() -> None:
    for cached in ("code_version", "_has_changed", "_code_at", "code_of", "_imports_of"):
        getattr(provenance, cached).cache_clear()


def row(method: str, **more) -> dict:
    return {"config": json.dumps({"method": {"name": method}})} | provenance.code_version() | more


def test_rows_are_stale_once_the_code_of_their_method_has_changed(checkout):
    before = {name: row(name) for name in ("one", "two")}
    assert not before["one"]["dirty"]
    assert not any(map(provenance.is_stale, before.values()))
    (checkout / "losses.py").write_text("f = 2\n")
    git(checkout, "commit", "-qam", "another loss")
    forget()
    assert {name: provenance.is_stale(each) for name, each in before.items()} == {"one": True, "two": False}
    assert not provenance.is_stale(row("one"))


def test_comments_and_docstrings_are_no_code(checkout):
    before = row("one")
    (checkout / "losses.py").write_text('"""The loss."""\n\n# One.\nf = 1\n')
    git(checkout, "commit", "-qam", "say what it is")
    forget()
    assert not provenance.is_stale(before)


def test_rows_are_stale_once_their_method_imports_a_new_file(checkout):
    before = row("two")
    (checkout / "new.py").write_text("g = 1\n")
    (checkout / "baselines" / "two.py").write_text("from osls.new import g\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "a new file")
    forget()
    assert provenance.is_stale(before)


def test_rows_of_uncommitted_or_unknown_code_are_stale(checkout):
    (checkout / "losses.py").write_text("f = 3\n")
    forget()
    assert row("two")["dirty"]
    assert provenance.is_stale(row("two"))
    assert provenance.is_stale(row("two", commit=None, dirty=None))


def test_without_a_checkout_or_its_history_nothing_is_said(checkout, tmp_path_factory, monkeypatch):
    assert not provenance.is_stale(row("one", commit="0" * 40, dirty=False))
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path_factory.mktemp("elsewhere"))
    forget()
    assert provenance.code_version() == {}
    assert not provenance.is_stale(row("one"))


def test_a_methods_code_is_all_that_it_imports():
    pulse = {path.name for path in provenance.code_of("osls.pulse")}
    assert {"pulse.py", "cvir.py", "bbe.py", "trainer.py", "mlls.py"} <= pulse
    assert "uan.py" not in pulse
    assert "kpu.py" not in pulse


def test_tables_mark_stale_methods():
    base = dict.fromkeys(COLUMNS) | {"data": "d", "setting": "", "acc_all": 0.5, "draw": 0}
    rows = [
        base
        | {"key": name, "method": name, "config": json.dumps({"method": {"name": "uan"}}), "commit": commit}
        for name, commit in (("old", None), ("new", provenance.code_version().get("commit")))
    ]
    old, new = summarise(rows)[0].lines
    assert old.stale
    text = format_table(summarise(rows), "markdown", ["acc_all"])
    assert "| old † |" in text
    assert "† run before the last change of the method's code" in text
    assert ("| new |" in text) == (not new.stale)
    assert r"old $\dagger$" in format_table(summarise(rows), "latex", ["acc_all"])


def test_a_row_has_the_measures_of_others_and_says_where_it_comes_from():
    method = {"name": "k-pu", "parameters": {"n_folds": 1, "max_steps": 20}}
    row = run_config(runs_of(parse_study(content(methods=[method], draws=1)))[0].config)
    assert row["error"] is None
    for column in ("h_score", "novelty_auroc", "macro_f1", "acc_known", "test_h_score"):
        assert 0 <= row[column] <= 1
    # The best known class of a known row is right at least as often as its best class of all.
    assert row["acc_known"] >= row["acc_seen"]
    assert row["mpe_seen_raw"] >= 0
    assert set(row) <= set(COLUMNS)
    assert row.get("commit") == provenance.code_version().get("commit")


def test_a_changed_run_takes_the_place_of_the_old_one(tmp_path):
    names = {"study": "s", "data": "d", "setting": "", "draw": 0}
    old, new = (
        {"key": key, "method": "m", "acc_all": value} | names for key, value in (("a", 0.1), ("b", 0.2))
    )
    other = {"key": "c", "method": "n", "acc_all": 0.3} | names
    store = Store(tmp_path)
    store.write([old, new, other])
    assert [row["key"] for row in store.compact(["b"])] == ["b", "c"]


def test_a_method_may_have_fewer_draws():
    study = parse_study(content(methods=["pulse", FAST | {"draws": 1}], draws=[4, 7]))
    assert [(run.draw, run.config["method"]["name"]) for run in runs_of(study)] == [
        (4, "pulse"),
        (4, FAST["name"]),
        (7, "pulse"),
    ]
