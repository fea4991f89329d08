"""``mix.json``: the mix before and now, for programs to read. Its JSON Schema lies beside this file."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls.app.answer import Answer

__all__ = ["FORMAT", "describe_mix", "mix_schema"]

FORMAT = "urn:osls:mix:1"


def mix_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``mix.json``.

    Examples
    --------
    >>> from osls.app.files.mix import mix_schema
    >>> mix_schema()["$id"]
    'urn:osls:mix:1'
    """
    schema: dict[str, Any] = json.loads((files("osls.app.files") / "mix.schema.json").read_text("utf-8"))
    return schema


def describe_mix(answer: Answer) -> dict[str, Any]:
    """Return an answer's mix as JSON values, without its rows."""
    from osls import __version__

    settings = dict(answer.settings)
    counts = settings.pop("predicted_counts", None)
    if counts is None:
        counts = answer.predictions["predicted"].value_counts().to_dict()
    m = len(answer.predictions)
    verdict = None if answer.diagnostics is None else answer.diagnostics.verdict
    return {
        "format": FORMAT,
        "osls": __version__,
        "level": float(answer.level),
        "classes": [
            {
                "name": name,
                "novel": j == len(answer.classes) - 1,
                "source_share": float(answer.source_share[j]),
                "target_share": float(answer.target_share[j]),
                "interval": [_number(bound) for bound in answer.interval[j]],
                "rows_predicted": int(counts.get(name, 0)),
            }
            for j, name in enumerate(answer.classes)
        ],
        "novel": {
            "share": float(answer.target_share[-1]),
            "interval": [_number(bound) for bound in answer.interval[-1]],
            "p_value": _number(answer.novelty_pvalue),
        },
        "rows": {
            "source": int(settings.pop("n_source", len(answer.source_rows))),
            "source_fitted": int(settings.pop("n_source_fitted", len(answer.source_rows))),
            "target": int(settings.pop("n_target", m)),
            "target_fitted": int(settings.pop("n_target_fitted", m)),
        },
        "verdict": None if verdict is None else {"status": verdict.status, "reasons": list(verdict.reasons)},
        "warnings": list(answer.warnings),
        "command": answer.command,
        "settings": settings,
    }


def _number(value: Any) -> float | None:
    """NaN is no JSON."""
    return None if value is None or not math.isfinite(value) else float(value)
