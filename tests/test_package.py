"""What the package exports, what it imports, and what its commands print."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

import osls
from osls.app.cli import app
from osls.app.report.page import render_page, write_atomically


def test_public_names_resolve():
    modules = ["baselines", "datasets", "identifiability", "inference", "metrics", "mixture", "monitor"]
    modules += ["pu", "shift", "streaming", "testing", "theory"]
    assert sorted(osls.__all__) == sorted(["PULSE", "__version__", "adapt", "discover", "load", *modules])
    for name in osls.__all__:
        assert getattr(osls, name) is not None
    assert dir(osls) == sorted(osls.__all__)
    assert osls.__getattr__("mixture") is sys.modules["osls.mixture"]
    with pytest.raises(AttributeError, match="no attribute 'PULS'"):
        _ = osls.PULS


@pytest.mark.parametrize("statement", ["import osls", "import osls.app.cli"])
def test_importing_does_not_load_torch(statement):
    code = f"{statement}; import sys; print('torch' in sys.modules or 'sklearn' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


def test_version_and_help():
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output.strip() == f"osls {osls.__version__}"
    helped = runner.invoke(app, ["--help"])
    assert helped.exit_code == 0
    for command in ("demo", "bench"):
        assert command in helped.output


class _Checker(HTMLParser):
    """Collect what a page refers to, and complain about unbalanced tags."""

    VOID = ("meta", "img", "br", "line", "rect", "circle", "path", "polyline", "polygon")

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href") and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_demo_prints_the_mix_and_writes_the_report_of_adapt(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(app, ["demo", "--out", str(page)])
    assert result.exit_code == 0, result.output
    assert "novel" in result.output
    with_pulse, alone = re.findall(r"(0\.\d+) with", result.output)
    assert float(with_pulse) > float(alone) + 0.1
    checker = _Checker()
    html = page.read_text()
    checker.feed(html)
    assert checker.open == []
    assert checker.tags.count("img") >= 24
    assert all(link.startswith(("data:image/webp", "#")) for link in checker.links)
    for words in ("Compared with the truth", "Groups inside the novel part", "Can it be trusted?"):
        assert words in html
    assert "osls demo --seed 0" in html


def test_templates_escape_and_insist_on_every_value():
    with pytest.raises(Exception, match="undefined"):
        render_page("adaptation.html", sections=())


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "page.html"
    write_atomically(path, "one")
    with pytest.raises(TypeError):
        write_atomically(path, 3)  # type: ignore[arg-type]
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
