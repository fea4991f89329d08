"""Run the commands of a page as they stand there: shell blocks one by one, Python blocks as one session.

    python docs/run_blocks.py docs/tutorial.md

Blocks run in the order of the page, in a new folder that looks like the root of the repository. A block that
starts with ``# not run`` is shown only. With ``--write``, a block of text after ``<!-- printed -->``
is replaced by what the block before it printed, up to the first empty line.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

__all__ = ["blocks", "run_page", "with_printed"]

ROOT = Path(__file__).parents[1]
_PRINTED = re.compile(r"<!-- printed -->\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the blocks of a page, each with its language."""
    return [(language, code) for language, code in _BLOCK.findall(text)]


def with_printed(text: str, printed: Sequence[str]) -> str:
    """Return a page with what its blocks printed put where ``<!-- printed -->`` stands."""
    parts, done = [], 0
    for place in _PRINTED.finditer(text):
        before = len(_BLOCK.findall(text[: place.start()]))
        shown = printed[before - 1].strip().split("\n\n")[0]
        parts += [text[done : place.start(1)], shown + "\n"]
        done = place.end(1)
    return "".join([*parts, text[done:]])


def run_page(page: Path, *, write: bool = False) -> None:
    """Run a page; the first block that fails ends it with an error."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: list[str] = []
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "benchmarks", "constraints.txt"):
            (Path(folder) / name).symlink_to(ROOT / name)
        os.chdir(folder)
        # The commands of this environment come first.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for language, code in blocks(text):
            if code.startswith("# not run"):
                printed.append("")
                continue
            started = time.perf_counter()
            if language == "python":
                heard = io.StringIO()
                with redirect_stdout(heard):
                    exec(compile(code, str(page), "exec"), names)
                printed.append(heard.getvalue())
            else:
                shell = ["bash", "-euo", "pipefail", "-c", code]
                printed.append(subprocess.run(shell, check=True, stdout=subprocess.PIPE, text=True).stdout)
            print(printed[-1], end="")
            print(f"-- {time.perf_counter() - started:.1f} s: {code.splitlines()[0]}", flush=True)
        os.chdir(ROOT)
    if write:
        page.write_text(with_printed(text, printed), encoding="utf-8")


if __name__ == "__main__":
    write = "--write" in sys.argv[1:]
    for page in [Path(argument).resolve() for argument in sys.argv[1:] if argument != "--write"]:
        run_page(page, write=write)
