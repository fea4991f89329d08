"""What a run leaves behind: predictions, mix, report and model, in one folder that appears whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from osls.app.files.mix import describe_mix
from osls.app.files.predictions import write_predictions
from osls.app.files.staging import check_destination, staged_folder

if TYPE_CHECKING:
    import pandas as pd

    from osls.app.answer import Answer

__all__ = ["write_run"]


def write_run(
    answer: Answer,
    out: Path,
    *,
    batches: Iterable[pd.DataFrame] | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda step: None,
) -> Answer:
    """Write a run and return the answer with the counts of all predicted rows.

    Parameters
    ----------
    answer : Answer
        What was found.
    out : Path
        The folder to make.
    batches : iterable of DataFrame, optional
        Predictions of the whole target, if the answer holds those of a sample only.
    overwrite : bool
        Replace an earlier run.
    say : callable
        Told what is being done.
    """
    from osls.app.report.adaptation import render_report
    from osls.persist import save

    check_destination(out, overwrite=overwrite)
    with staged_folder(out) as folder:
        say("Predicting")
        rows = [answer.predictions] if batches is None else batches
        counts = write_predictions(rows, folder / "predictions.parquet", folder / "predictions.csv")
        answer = replace(answer, settings={**answer.settings, "predicted_counts": dict(counts)})
        text = json.dumps(describe_mix(answer), ensure_ascii=False, indent=2, allow_nan=False)
        (folder / "mix.json").write_text(text + "\n", encoding="utf-8")
        say("Writing the report")
        (folder / "report.html").write_text(render_report(answer), encoding="utf-8")
        say("Saving the model")
        save(answer.adapted if answer.adapted is not None else answer.model, folder / "model")
    return answer
