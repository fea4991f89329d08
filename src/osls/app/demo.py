"""``osls demo``: PULSE on handwritten digits, two of which have no labels, beside the truth."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table
from sklearn.datasets import load_digits

from osls import __version__
from osls._core.arrays import Floats
from osls._core.extras import require
from osls._core.screen import Screen
from osls.app.answer import Answer
from osls.app.predict import tabulate
from osls.app.report.adaptation import Truth, render_report
from osls.app.report.page import write_atomically
from osls.baselines import SourceOnly
from osls.datasets import OSLSProblem, simulate_osls
from osls.metrics import accuracy
from osls.pulse import PULSE


def run_demo(out: Path, seed: int) -> None:
    """Fit, print the answers beside the truth, and write the report."""
    console = Screen()
    X, y = load_digits(return_X_y=True)
    novel = np.random.RandomState(seed).choice(10, size=2, replace=False)
    problem = simulate_osls(X, y, novel=novel.tolist(), random_state=seed)
    first, second = sorted(novel.tolist())
    console.print(
        f"{len(problem.y_source)} labelled digits without any {first} or {second}, "
        f"{len(problem.y_target)} unlabelled ones with them."
    )
    started = time.perf_counter()
    model = PULSE(random_state=seed, verbose=True).fit(**problem.training_data())
    seconds = time.perf_counter() - started
    source_only = SourceOnly(random_state=seed).fit(**problem.training_data())
    pulse = accuracy(problem.y_target, model.target_labels_, problem.novel_label)
    source = accuracy(problem.y_target, source_only.target_labels_, problem.novel_label)
    truth = Truth(
        problem.target_marginal, f"the digits {first} and {second}", pulse.all, pulse.novel, source.all
    )
    with _rows(problem.X_target) as rows:
        answer = _answer(problem, model, rows, seed, seconds)
        console.print(_mix_table(answer, truth))
        console.print(
            f"accuracy: {pulse.all:.3f} with PULSE ({pulse.novel:.3f} of the novel digits found), "
            f"{source.all:.3f} with the source classifier alone; fitted in {seconds:.0f} s"
        )
        write_atomically(out, render_report(answer, truth=truth))
    console.print(f"page: {out}")


@contextmanager
def _rows(X: Floats) -> Iterator[pd.DataFrame]:
    """Write digits as picture files, which the report embeds; they are deleted with the block.

    Without Pillow, which can be left out of an installation, the report shows the pixels as a table.
    """
    if find_spec("PIL") is None:
        yield pd.DataFrame(X, columns=[f"pixel {i + 1}" for i in range(X.shape[1])])
        return
    Image = require("PIL.Image", extra="images")
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"digit {i + 1}.png") for i in range(len(X))]
        for file, pixels in zip(files, X, strict=True):
            Image.fromarray((255 - 255 * pixels.reshape(8, 8) / 16).astype(np.uint8)).save(file)
        yield pd.DataFrame({"file": files})


def _answer(problem: OSLSProblem, model: PULSE, rows: pd.DataFrame, seed: int, seconds: float) -> Answer:
    """The fit as `osls adapt` would report it."""
    classes = (*map(str, problem.classes), "novel")
    versions = {name: version(name) for name in ("numpy", "scikit-learn", "torch")}
    return Answer(
        kind="images" if "file" in rows else "table",
        classes=classes,
        source_share=np.append(problem.source_marginal, 0.0),
        target_share=model.target_marginal_,
        interval=model.marginal_interval_,
        level=model.level,
        novelty_pvalue=model.novelty_pvalue_,
        predictions=tabulate(model.target_proba_, classes, pd.DataFrame(index=rows.index)),
        target_rows=rows,
        source_rows=pd.DataFrame({"label": problem.y_source}),
        features_target=problem.X_target,
        feature_names=(),
        diagnostics=model.diagnostics_,
        warnings=(),
        model=model,
        command=f"osls demo --seed {seed}",
        settings={
            "data": "handwritten digits of scikit-learn",
            "seed": seed,
            "seconds": round(seconds, 1),
            "n_source": len(problem.y_source),
            "n_target": len(problem.y_target),
            "versions": {"osls": __version__, **versions},
        },
    )


def _mix_table(answer: Answer, truth: Truth) -> Table:
    table = Table(title="Class mix of the new digits")
    for heading in ("digit", "in the labels", "true", "estimated", "95% interval"):
        table.add_column(heading, justify="right")
    columns = (answer.classes, answer.source_share, truth.share, answer.target_share, answer.interval)
    for name, before, true, estimate, (low, high) in zip(*columns, strict=True):
        shares = [f"{100 * share:.1f}%" for share in (before, true, estimate)]
        shares.append(f"{100 * low:.1f} to {100 * high:.1f}%")
        table.add_row(name, *shares, style="bold" if name == "novel" else None)
    return table
