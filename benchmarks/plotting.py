"""One look for the pictures of the studies: SVG with real text, the same bytes for the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def new_figure(salt: str, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes, side by side."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9})
    import matplotlib.pyplot as plt

    return plt.subplots(1, columns, figsize=(4.6 * columns, 3.4), layout="constrained")


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
