"""The documentation fits the package: pages and links exist, Python compiles, commands have their options."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import gallery  # noqa: E402
from benchmark_results import SHOWN_ELSEWHERE, figures_table, originals_table, results_page  # noqa: E402
from commands import walk  # noqa: E402
from paper_claims import Finding, reproduction_page  # noqa: E402
from run_blocks import with_printed  # noqa: E402

# Made when the documentation is built, of files that are checked here instead.
GENERATED = {"gallery/index.md", "changelog.md", "security.md", "results/trust.svg"} | {
    f"gallery/{example.name}.md" for example in gallery.examples()
}
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_COMMANDS = dict(walk())


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    return [code for language, code in _FENCE.findall(page.read_text()) if language == "python"]


def osls_commands(page: Path) -> list[str]:
    blocks = [code for language, code in _FENCE.findall(page.read_text()) if language == "sh"]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split(" #")[0] for line in lines if line.startswith("osls ")]


def nav_pages(entries) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, dict):
        return [page for entry in entries.values() for page in nav_pages(entry)]
    return [page for entry in entries for page in nav_pages(entry)]


def test_every_page_is_in_the_navigation_and_exists():
    config = (ROOT / "mkdocs.yml").read_text()
    listed = set(nav_pages(yaml.safe_load(config)["nav"]))
    here = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert listed - GENERATED == here


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_files_resolve(page):
    text = _FENCE.sub("", page.read_text())
    for link in _LINK.findall(text):
        if link.startswith(("https://", "#")):
            continue
        target = (page.parent / link.split("#")[0]).resolve()
        made = target.is_relative_to(DOCS) and str(target.relative_to(DOCS)) in GENERATED
        assert made or target.exists(), f"{page}: {link}"


def test_pages_use_nothing_from_elsewhere():
    for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.css"), ROOT / "mkdocs.yml"]:
        assert not re.search(r"(src=|url\(|!\[[^\]]*\]\()[\"']?https?://", path.read_text()), path


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=name_of)
def test_python_compiles_and_its_names_exist(page):
    for code in python_blocks(page):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "osls":
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{page}: {node.module}.{alias.name}"


@pytest.mark.parametrize("page", [p for p in PAGES if osls_commands(p)], ids=name_of)
def test_commands_and_their_options_exist(page):
    for line in osls_commands(page):
        words = shlex.split(line)
        name = next(n for n in (" ".join(words[:3]), " ".join(words[:2])) if n in _COMMANDS)
        known = {option for parameter in _COMMANDS[name].params for option in parameter.opts}
        given = {word.split("=")[0] for word in words if word.startswith("--")}
        assert given <= known, f"{page}: {line}"


def test_every_public_module_has_its_reference():
    import osls

    described = re.findall(r"^::: (\S+)", "".join(p.read_text() for p in DOCS.glob("api/*.md")), re.MULTILINE)
    modules = {f"osls.{name}" for name in osls.__all__ if name.islower() and not name.startswith("_")}
    modules -= {"osls.adapt", "osls.discover", "osls.load"}
    assert modules <= set(described)


def test_names_in_the_text_exist():
    """A name such as `osls.mixture.BBE` in the text is one that can be imported."""
    text = "".join(_FENCE.sub("", page.read_text()) for page in PAGES)
    for dotted in set(re.findall(r"`(osls(?:\.\w+)+)`", text)):
        found = importlib.import_module("osls")
        for i, part in enumerate(dotted.split(".")[1:], 2):
            if not hasattr(found, part):
                importlib.import_module(".".join(dotted.split(".")[:i]))
            found = getattr(found, part)


@pytest.mark.parametrize("example", gallery.examples(), ids=lambda example: example.name)
def test_gallery_scripts_are_in_shape(example):
    assert example.lead, "says what it shows"
    code = "\n".join(code for _, code in example.cells)
    ast.parse(code)
    assert "plt.show()" in code


def test_gallery_runs_a_script(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="comes with the extra docs")
    monkeypatch.setattr(gallery, "CACHE", tmp_path)
    script = tmp_path / "plot_line.py"
    script.write_text('"""A line.\n\nUp it goes.\n"""\n\nword = "hello"\n\n# %%\n# Text.\nprint(word)\n')
    example = gallery.read(script)
    assert (example.title, example.lead) == ("A line", "Up it goes.")
    shown = gallery.run(example)
    assert shown.printed == ("", "hello\n")
    page = gallery.page(example, shown)
    assert "# A line" in page
    assert "```text\nhello" in page


def test_results_page_shows_whatever_is_there(tmp_path):
    shutil.copytree(ROOT / "benchmarks/results/recipes", tmp_path / "recipes")
    (tmp_path / "under-way" / "runs").mkdir(parents=True)
    (tmp_path / "coverage.json").write_text('[{"share": 0.25, "covered": 0.951234}]')
    (tmp_path / "toolbox.json").write_text('{"shift: joint": {"acc_all": {"mean": 0.9, "worst": 0.8}}}')
    (tmp_path / "other.json").write_text('{"a": [1, {"b": 2}]}')
    page = results_page(tmp_path)
    assert page.index("## The default beside the paper's recipe") < page.index("## other")
    assert "| 0.25 | 0.9512 |" in page
    assert "| shift: joint | 0.9 (0.8) |" in results_page(tmp_path, "theory")
    assert "Nothing to show yet" in page
    assert "±" in page
    assert "| PULSE" in page


def test_what_blocks_print_is_put_into_the_page():
    page = "```sh\necho a\n```\n\n<!-- printed -->\n```text\nold\n```\nEnd.\n"
    written = with_printed(page, ["a\n\nb\n"])
    assert written == page.replace("old", "a")
    assert with_printed(written, ["a\n"]) == written
    # The tutorial shows what its commands printed.
    tutorial = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- printed -->\n```text\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)
    assert len(shown) == 4
    assert all(shown)


def test_every_result_is_shown_once():
    folder = ROOT / "benchmarks" / "results"
    pages = [results_page(folder, part) for part in ("studies", "trust", "speed", "theory")]
    titles = [title for page in pages for title in re.findall(r"^## (.*)$", page, re.MULTILINE)]
    assert len(titles) == len(set(titles))
    names = {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix == ".json"}
    # The tables of these are on the page of the method.
    method = (DOCS / "method" / "trust.md").read_text(encoding="utf-8")
    assert len(titles) == len(names - SHOWN_ELSEWHERE)
    assert {"trust", *re.findall(r"<!-- figures: (\w+) -->", method)} == SHOWN_ELSEWHERE


def test_figures_are_shown_as_a_table_with_their_commit(tmp_path):
    rows = [{"kind": "clean", "draws": 20, "misses": 0.05, "commit": "abc1234"}]
    (tmp_path / "some.json").write_text(json.dumps(rows))
    assert figures_table(tmp_path / "some.json") == (
        "| kind | draws | misses |\n| ---: | ---: | ---: |\n| clean | 20 | 0.05 |\n\nMade at commit abc1234."
    )


def test_rivals_are_shown_beside_their_originals(tmp_path):
    row = {"rival": "color", "data": "digits", "test_original": 0.9, "test_ours": 0.92}
    rows = [{**row, "seed": 0}, {**row, "seed": 1, "test_ours": 0.94}]
    (tmp_path / "some.json").write_text(json.dumps(rows))
    assert originals_table(tmp_path / "some.json").splitlines()[-1] == (
        "| color | digits |  | 2 | 0.900 / 0.930 |  |  |"
    )


def claims_in(page: str) -> list[list[str]]:
    """The lines of the tables of a page, without their headings."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [cells for line in lines if (cells := line[2:-2].split(" | "))[0] != "claim"]


def test_the_paper_page_has_no_empty_line_and_names_commands_that_exist(tmp_path):
    shown, empty = (reproduction_page(place) for place in (ROOT / "benchmarks" / "results", tmp_path))
    for cells in claims_in(shown) + claims_in(empty):
        assert len(cells) == 5, cells
        assert cells[0]
        assert cells[1]
        if cells[1] == "not run at this commit":
            files = re.findall(r"benchmarks/\S+\.(?:yml|py)", cells[4])
            assert len(files) == 1
            assert (ROOT / files[0]).is_file()
    assert all(cells[1] == "not run at this commit" for cells in claims_in(empty))
    assert shown.count("\n## ") == empty.count("\n## ") >= 12


def test_a_claim_is_said_to_hold_or_not():
    assert Finding("c", "1", holds=True).cells()[3] == "holds"
    assert Finding("c", "1", holds=False).cells()[3] == "**does not hold**"
    assert Finding("c", "1", holds="only PULSE").cells()[3] == "only PULSE"


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="comes with the extra docs")
    from rst import to_markdown

    assert to_markdown("See :class:`osls.PULSE` and :math:`q_p`.") == (
        'See <autoref optional identifier="osls.PULSE">`PULSE`</autoref> and $q_p$.'
    )
    assert (
        to_markdown("The *known* share, c* <= a * b, `x * y`")
        == "The *known* share, c\\* <= a \\* b, `x * y`"
    )
    assert "$$ a \\le b $$" in to_markdown("So\n\n.. math:: a\n    \\le b\n\nholds.")


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml", reason="comes with the extra docs")
    from formulas import draw_formulas

    drawn = draw_formulas('<p><span class="arithmatex">\\(\\alpha &lt; 1\\)</span></p>')
    assert drawn.startswith("<p><math")
    assert "arithmatex" not in drawn
    with pytest.raises(ValueError, match="cannot be drawn"):
        draw_formulas(r'<div class="arithmatex">\[\nosuchcommand\]</div>')


def test_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in (DOCS / "assets").glob("*.svg")}
    assert {"overview-light.svg", "overview-dark.svg"} <= set(sizes)
    assert max(sizes.values()) < 60_000


def test_the_page_of_production_quotes_what_was_measured():
    found = json.loads((ROOT / "benchmarks/results/serving.json").read_text())
    page = " ".join((ROOT / "docs/howto/production.md").read_text().split())
    assert found["failures"] == 0
    for words in (
        f"(load {found['load_before']})",
        f"within {found['one_row_p50_ms']} ms",
        f"{found['requests']:,} requests with {found['rows_a_request']} rows each",
        f"{found['requests_a_second']} a second, none failed",
        f"{found['memory_mb']} MB of memory grew by {found['grown_mb']}",
    ):
        assert words in page
