"""What `osls adapt` found, as one object: files, pages and notebooks are made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from osls._core.arrays import AnyArray, Floats

if TYPE_CHECKING:
    import pandas as pd

    from osls.app.adapting import Adapted
    from osls.base import OpenSetAdapter
    from osls.inference.diagnostics import Diagnostics

__all__ = ["Answer", "Kind"]

Kind = Literal["table", "text", "images"]


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
        The rows as the models saw them; groups inside the novel part are found here.
    feature_names : tuple of str
        Names of those features, where they have any meaning to a person.
    diagnostics : Diagnostics or None
        What may be concluded.
    warnings : tuple of str
        What the reader of the files had to say (columns left out, rows dropped).
    model : OpenSetAdapter
        The fitted adapter.
    command : str
        How to reproduce it.
    settings : mapping
        Versions, seed, sizes, seconds.
    adapted : osls.app.adapting.Adapted or None
        The fitted adapter with what turns rows into its features; this is what :meth:`write` saves.
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
    model: OpenSetAdapter
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    adapted: Adapted | None = None

    def summary(self) -> str:
        """The answer in a sentence or two."""
        from osls.app.report.words import headline

        return str(headline(self)).replace("\u00a0", " ")

    def mix(self) -> dict[str, Any]:
        """The mix before and now as JSON values, as ``mix.json`` has it."""
        from osls.app.files.mix import describe_mix

        return describe_mix(self)

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.mix(), ensure_ascii=False, indent=2, allow_nan=False)

    def write(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Write predictions (Parquet and CSV), ``mix.json``, ``report.html`` and ``model/`` into a folder."""
        from osls.app.files.output import write_run

        write_run(self, Path(out), overwrite=overwrite)

    def _repr_html_(self) -> str:
        """Show the sentence and the mix in a notebook."""
        heading = ("class", "in the labels", "in the new data", f"{100 * self.level:g} % interval")
        rows = [
            (name, f"{100 * before:.1f} %", f"{100 * now:.1f} %", f"{100 * low:.1f} to {100 * high:.1f} %")
            for name, before, now, (low, high) in zip(
                self.classes, self.source_share, self.target_share, self.interval, strict=True
            )
        ]
        head = "".join(f"<th>{escape(word)}</th>" for word in heading)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.warnings)
        return (
            f"<p>{escape(self.summary())}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            + (f"<ul>{notes}</ul>" if notes else "")
        )
