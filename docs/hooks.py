"""What MkDocs calls while it builds: formulas, gallery, results, commands, changelog."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import gallery
from benchmark_results import figures_table, originals_table, results_page, trust_table
from commands import command_reference
from formulas import draw_formulas
from mkdocs.structure.files import File, Files
from paper_claims import reproduction_page

ROOT = Path(__file__).parents[1]
# Tables with fewer columns fit a phone.
_MANY_COLUMNS = 4


def on_config(config: Any) -> Any:
    """Put the examples, and what the project may or may not have, into the navigation."""
    sections = {title: entries for entry in config.nav for title, entries in entry.items()}
    sections["Gallery"][1:] = [{e.title: f"gallery/{e.name}.md"} for e in gallery.examples()]
    if (ROOT / "SECURITY.md").exists():
        sections["Project"].append({"Security": "security.md"})
    # `mkdocs serve` looks here for changes.
    config.watch.extend(str(ROOT / name) for name in ("src", "examples/gallery", "CHANGELOG.md"))
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are made of other files."""

    def add(address: str, content: str) -> None:
        files.append(File.generated(config, address, content=content))

    shown = [(example, gallery.run(example)) for example in gallery.examples()]
    add("gallery/index.md", gallery.index_page(shown))
    for example, output in shown:
        add(f"gallery/{example.name}.md", gallery.page(example, output))
        for number, svg in enumerate(svg for cell in output.pictures for svg in cell):
            for theme, coloured in gallery.coloured(svg).items():
                add(f"gallery/{example.name}-{number}-{theme}.svg", coloured)
    add("changelog.md", _page_of("CHANGELOG.md"))
    if (ROOT / "SECURITY.md").exists():
        add("security.md", _page_of("SECURITY.md"))
    results = ROOT / "benchmarks" / "results"
    for path in (*results.glob("*.svg"), *results.glob("*.html")):
        add(f"results/{path.name}", path.read_text(encoding="utf-8"))
    return files


def _page_of(name: str) -> str:
    """Return a file of the root as a page; what it links to beside it is not on this site."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\((?!https?://|#|mailto:)[^)]+\)", r"\1", text)


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Fill in what is made of the project itself."""
    if "<!-- trust table -->" in markdown:
        results = ROOT / "benchmarks" / "results" / "trust.json"
        markdown = markdown.replace("<!-- trust table -->", trust_table(results))
    if "<!-- originals table -->" in markdown:
        results = ROOT / "benchmarks" / "results" / "originals.json"
        markdown = markdown.replace("<!-- originals table -->", originals_table(results))
    for name in re.findall(r"<!-- figures: (\w+) -->", markdown):
        made = figures_table(ROOT / "benchmarks" / "results" / f"{name}.json")
        markdown = markdown.replace(f"<!-- figures: {name} -->", made)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", command_reference())
    for part in re.findall(r"<!-- results: (\w+) -->", markdown):
        made = results_page(ROOT / "benchmarks" / "results", part)
        markdown = markdown.replace(f"<!-- results: {part} -->", made)
    if "<!-- reproduction -->" in markdown:
        made = reproduction_page(ROOT / "benchmarks" / "results")
        markdown = markdown.replace("<!-- reproduction -->", made)
    return markdown


def on_page_content(html: str, **kwargs: Any) -> str:
    """Draw the formulas, and let cells of tables say what they are, for screens too narrow for a line."""
    return _TABLE.sub(_with_labels, draw_formulas(html))


_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)


def _with_labels(table: re.Match[str]) -> str:
    heads = [
        re.sub(r"<[^>]+>", "", head).strip()
        for head in re.findall(r"<th[^>]*>(.*?)</th>", table[0], re.DOTALL)
    ]
    if len(heads) < _MANY_COLUMNS:
        return table[0]

    def labelled(row: re.Match[str]) -> str:
        names = iter(heads)
        return re.sub(r"<td", lambda _: f'<td data-label="{escape(next(names, ""))}"', row[0])

    rows = re.sub(r"<tr>.*?</tr>", labelled, table[0], flags=re.DOTALL)
    return rows.replace("<table>", '<table class="stack">')
