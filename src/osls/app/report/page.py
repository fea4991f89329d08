"""Fill a template into one self-contained HTML file, and write it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from osls import __version__
from osls._core.writing import draft_of
from osls.app.report.wording import percent


@dataclass(frozen=True)
class Card:
    """A figure at the top of a page, its meaning, and a tone: "new", "alarm" or none."""

    figure: str
    words: str
    tone: str = ""


def render_page(
    template: str,
    *,
    sections: Sequence[tuple[str, str]],
    styles: Sequence[str] = ("report.css",),
    scripts: Sequence[str] = ("report.js",),
    **values: Any,
) -> str:
    """Fill a template that extends ``page.html``.

    Every value is escaped unless a chart marked itself safe. The Content-Security-Policy names the page's own
    style and script by their hashes, so that no other script can run and nothing is loaded.

    Parameters
    ----------
    template : str
        Its file name.
    sections : list of (anchor, words)
        Links of the bar at the top.
    styles : list of str
        Style sheets among the templates.
    scripts : list of str
        Scripts among the templates, run in this order.
    **values
        The values of the template; a missing one is an error.
    """
    style = "\n".join(map(_template_file, styles))
    script = "\n".join(map(_template_file, scripts))
    environment = Environment(
        loader=PackageLoader("osls.app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    return environment.get_template(template).render(
        version=__version__,
        sections=sections,
        style=Markup(style),  # nosec B704  # our own file
        style_hash=_hash(style),
        script=Markup(script),  # nosec B704  # our own file
        script_hash=_hash(script),
        **values,
    )


def _template_file(name: str) -> str:
    return (files("osls.app.report") / "templates" / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        draft.write_text(text, encoding="utf-8")
