"""What ``osls.adapt`` returns, and the folder that it is written to: predictions, mix, report and model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from osls.app.answer import Answer
from osls.app.files.staging import check_destination, staged_folder
from osls.app.predict import Adapted, write_predictions
from osls.app.report.adaptation import render_report
from osls.app.report.wording import headline
from osls.persist import save

# Colours of the notebook's own theme, and bars that can be seen on white and on black.
_NOTEBOOK_STYLE = (
    ".osls-answer{color:inherit;max-width:46em}"
    ".osls-answer table{border-collapse:collapse}"
    ".osls-answer td,.osls-answer th{padding:.25em .8em;text-align:left;"
    "border-bottom:1px solid rgba(128,128,128,.35);background:none;color:inherit}"
    ".osls-answer .bar{display:inline-block;width:9em;height:.7em;background:rgba(128,128,128,.25)}"
    ".osls-answer .bar span{display:block;height:100%;background:#3b7dd8}"
    ".osls-answer .bar .novel{background:#c2185b}"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdaptAnswer(Answer):
    """An answer that can be read as a sentence, shown in a notebook and written to a folder.

    Attributes
    ----------
    adapted : Adapted
        The fitted adapter with what turns rows into its features; this is what :meth:`write` saves.
    """

    adapted: Adapted

    def __repr__(self) -> str:
        verdict = "" if self.diagnostics is None else f"\nVerdict: {self.diagnostics.verdict}"
        return f"{self.summary()}{verdict}"

    def summary(self) -> str:
        """The answer in a sentence or two."""
        return str(headline(self))

    def write(self, out: str | Path, *, overwrite: bool = False, safe_csv: bool = False) -> None:
        """Write predictions (Parquet and CSV), ``mix.json``, ``report.html`` and ``model/`` into a folder.

        With ``safe_csv``, texts in the CSV that a spreadsheet would compute begin with an apostrophe.
        """
        write_folder(self, Path(out), [self.predictions], overwrite=overwrite, safe_csv=safe_csv)

    def _repr_html_(self) -> str:
        """Show sentence, verdict and mix in a notebook: no script, nothing loaded, light and dark."""
        rows = [self._html_row(row) for row in self.mix()["classes"]]
        names = ("class", "in the labels", "in the new data", f"{100 * self.level:g}% interval", "rows")
        head = "".join(f"<th>{name}</th>" for name in names)
        verdict = "" if self.diagnostics is None else f"Verdict: {self.diagnostics.verdict.status}. "
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.warnings)
        return (
            f"<style>{_NOTEBOOK_STYLE}</style><div class='osls-answer'><p><b>{escape(self.summary())}</b></p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
            f"<p>{escape(verdict)}The report: <code>answer.write('run')</code>, then run/report.html.</p>"
            + (f"<details><summary>Notes</summary><ul>{notes}</ul></details>" if notes else "")
            + "</div>"
        )

    def _html_row(self, row: dict[str, Any]) -> str:
        """One class: its shares, the new one as a bar, and its interval."""
        width, kind = f"{100 * row['target_share']:.1f}%", "novel" if row["novel"] else "known"
        low, high = (100 * (bound or 0) for bound in row["interval"])
        bar = f"<span class='{kind}' style='width:{width}'></span>"
        cells = (
            escape(row["name"]),
            f"{100 * row['source_share']:.1f}%",
            f"<span class='bar'>{bar}</span> {width}",
            f"{low:.1f} to {high:.1f}%",
            f"{row['rows_predicted']:,}",
        )
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def write_folder(
    answer: AdaptAnswer,
    out: Path,
    predictions: Iterable[pd.DataFrame],
    *,
    overwrite: bool = False,
    safe_csv: bool = False,
    say: Callable[[str], None] = lambda step: None,
) -> AdaptAnswer:
    """Write an answer, and return it with the number of rows predicted for each class.

    ``predictions`` are those of the whole target, of which the answer may hold only a sample.
    With ``safe_csv``, no text in the CSV is a formula. ``say`` is told what is being done.
    """
    check_destination(out, overwrite=overwrite)
    with staged_folder(out, overwrite=overwrite) as folder:
        say("Predicting")
        paths = folder / "predictions.parquet", folder / "predictions.csv"
        counts = write_predictions(predictions, *paths, safe_csv=safe_csv)
        answer = replace(answer, settings={**answer.settings, "predicted_counts": dict(counts)})
        (folder / "mix.json").write_text(answer.to_json() + "\n", encoding="utf-8")
        say("Writing the report")
        (folder / "report.html").write_text(render_report(answer), encoding="utf-8")
        say("Saving the model")
        save(answer.adapted, folder / "model")
    return answer
