"""Run the commands of a page as they stand there: shell blocks one by one, Python blocks as one session.

    python docs/run_blocks.py docs/tutorial.md

Blocks run in the order of the page, in a new folder that looks like the root of the repository. A block that
starts with ``# not run`` is shown only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["blocks", "run_page"]

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the blocks of a page, each with its language."""
    return [(language, code) for language, code in _BLOCK.findall(text)]


def run_page(page: Path) -> None:
    """Run a page; the first block that fails ends it with an error."""
    names: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "benchmarks", "constraints.txt"):
            (Path(folder) / name).symlink_to(ROOT / name)
        os.chdir(folder)
        # The commands of this environment come first.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for language, code in blocks(text):
            if code.startswith("# not run"):
                continue
            started = time.perf_counter()
            if language == "python":
                exec(compile(code, str(page), "exec"), names)
            else:
                subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
            print(f"-- {time.perf_counter() - started:.1f} s: {code.splitlines()[0]}", flush=True)
        os.chdir(ROOT)


if __name__ == "__main__":
    for page in [Path(argument).resolve() for argument in sys.argv[1:]]:
        run_page(page)
