"""Templates to one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from osls._core.writing import draft_of

__all__ = ["render", "write_atomically"]


def render(template: str, **values: Any) -> str:
    """Fill a template; every value is escaped unless a chart marked itself safe."""
    environment = Environment(
        loader=PackageLoader("osls.app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    return environment.get_template(template).render(**values)


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        draft.write_text(text, encoding="utf-8")
