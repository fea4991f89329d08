"""What was learned about a target, as data: shares, predictions, checks, and ``mix.json`` made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from osls import __version__
from osls._core.arrays import AnyArray, Floats
from osls.app.files.reader import Kind

if TYPE_CHECKING:
    import pandas as pd

    from osls.inference.diagnostics import Diagnostics
    from osls.inference.discovery import Discovery, Parts
    from osls.pulse import PULSE

MIX_FORMAT = "urn:osls:mix:1"


def mix_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``mix.json``.

    Examples
    --------
    >>> from osls.app.answer import mix_schema
    >>> mix_schema()["$id"]
    'urn:osls:mix:1'
    """
    schema: dict[str, Any] = json.loads((files("osls.app") / "mix.schema.json").read_text("utf-8"))
    return schema


@dataclass(frozen=True)
class Answer:
    """The three questions answered for one target, with all that a report needs.

    Attributes
    ----------
    kind : {"table", "text", "images"}
        What the rows are.
    classes : tuple of str
        The k known classes, then the name of the novel one.
    source_share, target_share : arrays of shape (k + 1,)
        The mix before and now; the novel class had none before.
    interval : array of shape (k + 1, 2)
        Interval for ``target_share``.
    level : float
        Its level.
    novelty_pvalue : float or None
        p-value of "there is nothing new".
    predictions : DataFrame of m rows
        Id columns if any, ``predicted``, ``novel`` (probability of the novel class) and ``p_<class>``.
    target_rows : DataFrame of m rows
        The target as it was read; for images the column ``file``, for texts the text column.
    source_rows : DataFrame
        The source as it was read, label included (a sample if it was large).
    features_target : array or CSR matrix of m rows
        The rows as the models saw them; the report looks here for groups within the novel part.
    feature_names : tuple of str
        Names of those features, where they have any meaning to a person.
    diagnostics : Diagnostics or None
        What may be concluded.
    warnings : tuple of str
        Notes on the data and the fit: columns left out, rows drawn, classes with few rows.
    model : PULSE
        The fitted adapter.
    command : str
        How to reproduce it.
    settings : mapping
        Versions, seed, sizes, seconds.
    groups : Discovery, optional
        The groups of the rows called novel, by their row numbers here; those of the model if not given.
    traits : tuple of tuples of str
        What tells each group from the known rows, in words.
    parent : mapping, optional
        The run whose labels this one absorbed.
    """

    kind: Kind
    classes: tuple[str, ...]
    source_share: Floats
    target_share: Floats
    interval: Floats
    level: float
    novelty_pvalue: float | None
    predictions: pd.DataFrame
    target_rows: pd.DataFrame
    source_rows: pd.DataFrame
    features_target: AnyArray
    feature_names: tuple[str, ...]
    diagnostics: Diagnostics | None
    warnings: tuple[str, ...]
    model: PULSE
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    groups: Discovery | None = None
    traits: tuple[tuple[str, ...], ...] = ()
    parent: Mapping[str, Any] | None = None

    @property
    def discovery(self) -> Discovery:
        """The groups of the rows called novel."""
        return self.model.discover() if self.groups is None else self.groups

    def mix(self) -> dict[str, Any]:
        """The mix before and now as JSON values, as ``mix.json`` has it."""
        settings = dict(self.settings)
        counts = settings.pop("predicted_counts", None)
        if counts is None:
            counts = self.predictions["predicted"].value_counts().to_dict()
        n, m = len(self.source_rows), len(self.predictions)
        sizes = {"source": n, "source_fitted": n, "target": m, "target_fitted": m}
        verdict = None if self.diagnostics is None else self.diagnostics.verdict
        return {
            "format": MIX_FORMAT,
            "osls": __version__,
            "level": float(self.level),
            "classes": [self._describe_class(j, counts) for j in range(len(self.classes))],
            "novel": {
                "share": float(self.target_share[-1]),
                "interval": [_number(bound) for bound in self.interval[-1]],
                "p_value": _number(self.novelty_pvalue),
                "detectable_share": _number(getattr(self.model, "detectable_share_", None)),
            },
            "groups": [self._describe_group(j) for j in range(len(self.discovery.groups))],
            "parts": [_describe_parts(part) for part in self.discovery.parts],
            **({} if self.parent is None else {"parent": dict(self.parent)}),
            "rows": {side: int(settings.pop(f"n_{side}", size)) for side, size in sizes.items()},
            "verdict": verdict and {"status": verdict.status, "reasons": list(verdict.reasons)},
            "warnings": list(self.warnings),
            "command": self.command,
            "settings": settings,
        }

    def _describe_class(self, j: int, counts: Mapping[str, int]) -> dict[str, Any]:
        return {
            "name": self.classes[j],
            "novel": j == len(self.classes) - 1,
            "source_share": float(self.source_share[j]),
            "target_share": float(self.target_share[j]),
            "interval": [_number(bound) for bound in self.interval[j]],
            "rows_predicted": int(counts.get(self.classes[j], 0)),
        }

    def _describe_group(self, j: int) -> dict[str, Any]:
        group = self.discovery.groups[j]
        return {
            "group": j + 1,
            "share": group.share,
            "interval": list(group.interval),
            "rows": len(group.rows),
            "purity": group.purity,
            "nearest": None if group.nearest is None else str(group.nearest),
            "traits": list(self.traits[j]) if self.traits else [],
        }

    def mix_table(self) -> list[tuple[str, ...]]:
        """The mix as text for people: a heading, then a row for each class, the novel one last."""
        level = f"{100 * self.level:g}% interval"
        rows: list[tuple[str, ...]] = [("class", "in the labels", "in the new data", level, "rows predicted")]
        for row, (low, high) in zip(self.mix()["classes"], self.interval, strict=True):
            shares = (f"{100 * row[side]:.1f}%" for side in ("source_share", "target_share"))
            interval = f"{100 * low:.1f} to {100 * high:.1f}%"
            rows.append((row["name"], *shares, interval, f"{row['rows_predicted']:,}"))
        return rows

    def to_json(self) -> str:
        """The text of ``mix.json``."""
        return json.dumps(self.mix(), ensure_ascii=False, indent=2, allow_nan=False)


def _describe_parts(part: Parts) -> dict[str, Any]:
    return {
        "class": str(part.name),
        "source": list(part.source),
        "target": list(part.target),
        "interval": list(part.interval),
        "moved": part.moved,
    }


def _number(value: Any) -> float | None:
    """Return a number as JSON can hold it, which has no NaN."""
    return None if value is None or not math.isfinite(value) else float(value)
