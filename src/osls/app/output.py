"""What ``osls.adapt`` returns, and the folder that it is written to: predictions, mix, report and model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from osls._core.notebook import ClassLine, mix_html
from osls.app.answer import Answer
from osls.app.files.staging import check_destination, staged_folder
from osls.app.predict import Adapted, write_predictions
from osls.app.report.adaptation import render_report
from osls.app.report.groups import find_groups
from osls.app.report.wording import headline, verdict_beside_headline
from osls.persist import save


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
        return f"{self.summary()}\n{verdict_beside_headline(self)}".rstrip()

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
        lines = [
            ClassLine(
                row["name"],
                row["source_share"],
                row["target_share"],
                (row["interval"][0] or 0.0, row["interval"][1] or 0.0),
                row["rows_predicted"],
                row["novel"],
            )
            for row in self.mix()["classes"]
        ]
        sentence, reason = headline(self).in_two()
        return mix_html(
            sentence,
            lines,
            reason=reason,
            level=self.level,
            verdict=None if self.diagnostics is None else self.diagnostics.verdict.status,
            closing="The full report: answer.write('run'), then open run/report.html.",
            notes=self.warnings,
        )


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
        settings = {**answer.settings, "predicted_counts": dict(counts)}
        traits = tuple(tuple(trait.sentence for trait in group.traits) for group in find_groups(answer))
        answer = replace(answer, settings=settings, traits=traits)
        (folder / "mix.json").write_text(answer.to_json() + "\n", encoding="utf-8")
        say("Writing the report")
        (folder / "report.html").write_text(render_report(answer), encoding="utf-8")
        say("Saving the model")
        save(answer.adapted, folder / "model")
    return answer
