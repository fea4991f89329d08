"""The gallery: scripts of examples/gallery run once, with their output and pictures, as pages.

A script is plain Python. Its docstring is the title and the introduction; a line ``# %%`` starts a
new cell, and comments right below it are text. Run it by hand with ``python
examples/gallery/plot_digits.py``.

Each script runs in a process of its own. What it printed and drew is kept in ``.cache/gallery``
under a digest of the script and of the package, so that only what has changed runs again.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Example", "Shown", "examples", "index_page", "page", "run"]

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
CACHE = ROOT / ".cache" / "gallery"
# Drawn in this colour, and replaced by one that can be read on light and on dark pages.
INK = "#445566"
LIGHT, DARK = "#24303f", "#d5dce6"
# A script takes seconds; on a machine with other work it may take its time.
PATIENCE = 300


@dataclass(frozen=True)
class Example:
    """A script in its parts: cells are pairs of text and code."""

    path: Path
    title: str
    lead: str
    cells: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Its name in addresses."""
        return self.path.stem.removeprefix("plot_").replace("_", "-")


@dataclass(frozen=True)
class Shown:
    """What a script printed and drew, cell by cell."""

    seconds: float
    printed: tuple[str, ...]
    pictures: tuple[tuple[str, ...], ...]


def examples() -> list[Example]:
    """Read all scripts, in the order that their first lines of comment ask for, then by name."""
    found = [read(path) for path in sorted(SCRIPTS.glob("plot_*.py"))]
    order = (SCRIPTS / "order.txt").read_text(encoding="utf-8").split()
    missing = sorted(example.name for example in found if example.name not in order)
    if missing or len(order) != len(found):
        raise ValueError(f"examples/gallery/order.txt must name each script once; check {missing or order}.")
    return sorted(found, key=lambda example: order.index(example.name))


def read(path: Path) -> Example:
    """Split a script into its introduction and its cells."""
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    if docstring is None:
        raise ValueError(f"{path}: a gallery script starts with a docstring, its title and what it shows.")
    title, _, lead = docstring.partition("\n")
    end = ast.parse(source).body[0].end_lineno or 0
    body = "\n".join(source.splitlines()[end:])
    cells = tuple(_cell(part) for part in body.split("\n# %%") if part.strip())
    return Example(path, title.rstrip("."), lead.strip(), cells)


def _cell(part: str) -> tuple[str, str]:
    """Comments at the top of a cell are its text, the rest is code."""
    lines = part.strip("\n").splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("#") and line.strip()), len(lines))
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:count])
    return text.strip(), "\n".join(lines[count:]).strip("\n")


def run(example: Example, *, fresh: bool = False) -> Shown:
    """Run a script, or recall what it showed when nothing has changed since."""
    kept = CACHE / f"{example.name}-{_digest(example)}.json"
    if fresh or not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{example.name}-{'?' * 16}.json"):
            old.unlink()
        # One thread: the examples are small, and other work may be under way.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        command = [sys.executable, __file__, str(example.path), str(kept)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{example.path} failed:\n{done.stderr}")
    shown = json.loads(kept.read_text(encoding="utf-8"))
    return Shown(shown["seconds"], tuple(shown["printed"]), tuple(map(tuple, shown["pictures"])))


def _digest(example: Example) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes() + example.path.read_bytes())
    for path in sorted((ROOT / "src" / "osls").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def page(example: Example, shown: Shown) -> str:
    """Write the page of an example."""
    parts = [f"# {example.title}", example.lead]
    number = 0
    for (text, code), printed, pictures in zip(example.cells, shown.printed, shown.pictures, strict=True):
        parts.append(text)
        if code:
            parts.append(f"```python\n{code}\n```")
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
        for _ in pictures:
            parts.append(_picture(f"{example.name}-{number}", example.title))
            number += 1
    parts.append(
        f"*This page was made by running `examples/gallery/{example.path.name}`: "
        f"{shown.seconds:.0f} s on one core.*"
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _picture(name: str, title: str) -> str:
    return (
        f"![{title}]({name}-light.svg#only-light){{ .picture }}\n"
        f"![{title}]({name}-dark.svg#only-dark){{ .picture }}"
    )


def index_page(shown: list[tuple[Example, Shown]]) -> str:
    """Write the page that shows all examples side by side."""
    cards = []
    for example, _ in shown:
        link = f"[{example.title}]({example.name}.md)"
        picture = _picture(f"{example.name}-0", "").replace("\n", "\n    ")
        summary = example.lead.split("\n\n")[0].replace("\n", " ")
        cards.append(f"-   **{link}**\n\n    {picture}\n\n    {summary}\n")
    lead = (
        "Short scripts with pictures. Each runs in seconds on one core, needs no download, and lies in "
        "`examples/gallery/`. They were run to make these pages."
    )
    return f'# Gallery\n\n{lead}\n\n<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"


def coloured(svg: str) -> dict[str, str]:
    """Return a picture for light pages and one for dark pages."""
    return {"light": svg.replace(INK, LIGHT), "dark": svg.replace(INK, DARK)}


# -- Inside the process of a script -----------------------------------------------------------------


def _style(rc: Any) -> None:
    rc.update(
        {
            "axes.edgecolor": INK,
            "axes.facecolor": "none",
            "axes.labelcolor": INK,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.constrained_layout.use": True,
            "figure.facecolor": "none",
            "figure.figsize": (7.5, 3.6),
            "font.family": "sans-serif",
            "legend.frameon": False,
            "savefig.transparent": True,
            "svg.fonttype": "none",
            "svg.hashsalt": "osls",
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
        }
    )


def _execute(path: Path, kept: Path) -> None:
    import matplotlib.pyplot as plt

    _style(plt.rcParams)
    plt.show = lambda *args, **kwargs: None
    sys.path.insert(0, str(path.parent))
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    printed, pictures = [], []
    started = time.perf_counter()
    for _, code in read(path).cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(path), "exec"), names)
        printed.append(out.getvalue())
        pictures.append([_drawn(plt.figure(number)) for number in plt.get_fignums()])
        plt.close("all")
    shown = {"seconds": time.perf_counter() - started, "printed": printed, "pictures": pictures}
    draft = kept.with_suffix(".draft")
    draft.write_text(json.dumps(shown), encoding="utf-8")
    draft.replace(kept)


def _drawn(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    svg = out.getvalue()
    # Letters of the reader's system, as on the rest of the page.
    return svg.replace("DejaVu Sans', 'Bitstream Vera Sans", "system-ui', 'DejaVu Sans")


if __name__ == "__main__":
    _execute(Path(sys.argv[1]), Path(sys.argv[2]))
