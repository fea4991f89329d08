"""The frame of a page: its looks, its script, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from osls import __version__
from osls.app.report.render import render

__all__ = ["render_page"]


def render_page(template: str, *, sections: Sequence[tuple[str, str]], **values: Any) -> str:
    """Fill a template that extends ``page.html``.

    The Content-Security-Policy names the page's own style and script by their hashes: nothing that a value
    might smuggle in would run, and nothing is loaded.
    """
    folder = files("osls.app.report") / "templates"
    style, script = (
        (folder / name).read_text(encoding="utf-8").strip() for name in ("report.css", "report.js")
    )
    return render(
        template,
        version=__version__,
        sections=sections,
        style=Markup(style),  # nosec B704  # our own file
        style_hash=_hash(style),
        script=Markup(script),  # nosec B704  # our own file
        script_hash=_hash(script),
        **values,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
