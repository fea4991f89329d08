"""tools/stats.py measures what it says it measures; tools/audit.py says what it could not ask."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import audit
import stats


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A package of a few files, in place of ours."""
    root = tmp_path / "src/osls"

    def build(**files):
        for name, text in files.items():
            path = root / Path(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            for folder in path.parents:
                if folder == root.parent:
                    break
                (folder / "__init__.py").touch()
        monkeypatch.setattr(stats, "SOURCE", root)
        return root

    return build


def test_rooms_are_packages_and_modules_at_the_top(house):
    house(alpha="", beta__one="", beta__two="")
    assert stats.rooms() == ["alpha", "beta"]


def test_a_cycle_between_packages_is_found(house):
    house(a__x="from osls.b.y import f", b__y="def f():\n    from osls.c.z import g", c__z="import osls.a.x")
    (group,) = stats.cycles(stats.package_graph())
    assert group == {"osls.a", "osls.b", "osls.c"}


def test_a_tree_has_no_cycle(house):
    house(a__x="from osls.b import y", b__y="from osls.c.z import g", c__z="")
    assert stats.cycles(stats.package_graph()) == []


def test_modules_beside_packages_are_rooms_of_their_own(house):
    """One imports a package, the package imports another: that is no cycle."""
    house(top="from osls.a.x import f", low="", a__x="from osls.low import g")
    assert stats.cycles(stats.package_graph()) == []


def test_imports_for_types_alone_do_not_count(house):
    house(
        a__x="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from osls.b.y import f",
        b__y="from osls.a.x import g",
    )
    assert stats.cycles(stats.package_graph()) == []


def test_private_imports_across_packages_are_found(house):
    house(a__x="from osls.b.y import _secret", b__y="_secret = 1", b__z="from osls.b.y import _secret")
    assert stats.private_imports() == ["osls.a.x imports _secret of osls.b.y"]


def test_core_is_for_all(house):
    house(a__x="from osls._core.arrays import Floats", _core__arrays="Floats = 1")
    assert stats.private_imports() == []


def test_lazy_imports_are_those_inside_functions(house):
    house(a__x="import osls.b.y\ndef f():\n    from osls.b import y\n    import json", b__y="")
    assert stats.lazy_imports() == ["osls.a.x -> osls.b"]


def test_names_that_repeat(house):
    house(a__x="", b__x="", a__base="", b__base="")
    assert stats.repeated_names() == ["x"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Doc."""\n\nx = 1  # why\n# only a comment\n', 1),
        ("def f():\n    '''Doc\n\n    more.'''\n    return (1,\n            2)\n", 3),
        ("text = '''\none\ntwo\n'''\n", 4),
        ("\n\n", 0),
    ],
)
def test_code_lines_by_hand(text, lines):
    ast.parse(text)
    assert stats.code_lines(text) == lines


def test_function_lengths_leave_the_docstring_out(house):
    house(a__x='def f(x):\n    """Say\n    more.\n    """\n    return x\n\n\ndef g(): ...\n')
    assert stats.function_lengths() == [1, 2]


def test_limits_that_are_broken_end_with_1(house, capsys):
    house(a__x="from osls.b.y import _z", b__y="_z = 1")
    assert stats.main() == 1
    printed = capsys.readouterr().out
    assert "NOT KEPT" in printed
    assert "osls.a.x imports _z of osls.b.y" in printed


# -- The audit --------------------------------------------------------------------------------------


def answering(monkeypatch, stdout, stderr=""):
    done = type("Done", (), {"stdout": stdout, "stderr": stderr})
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: done)


def test_an_audit_names_what_was_not_asked_about(monkeypatch, capsys):
    packages = [
        {"name": "numpy", "version": "2.4.6", "vulns": []},
        {"name": "torch", "skip_reason": "not found"},
    ]
    answering(monkeypatch, json.dumps({"dependencies": packages}))
    assert audit.main() == 0
    assert "not asked: torch (not found)" in capsys.readouterr().out


def test_an_audit_fails_if_something_is_vulnerable(monkeypatch, capsys):
    package = {"name": "torch", "version": "2.4", "vulns": [{"id": "CVE-2025-32434"}]}
    answering(monkeypatch, json.dumps({"dependencies": [package]}))
    assert audit.main() == 1
    assert "vulnerable: torch 2.4 (CVE-2025-32434)" in capsys.readouterr().out


def test_an_audit_without_an_answer_is_no_success(monkeypatch, capsys):
    answering(monkeypatch, "", "Traceback\nno route to host")
    assert audit.main() == 3
    assert capsys.readouterr().out == "Could not ask about any package: no route to host\n"


def test_an_audit_that_could_ask_about_nothing_is_no_success_either(monkeypatch, capsys):
    answering(monkeypatch, json.dumps({"dependencies": [{"name": "torch", "skip_reason": "not found"}]}))
    assert audit.main() == 3
    assert "0 packages asked about" in capsys.readouterr().out
