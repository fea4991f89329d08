"""``osls demo``: PULSE on scikit-learn's digits, two of which nobody labelled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from osls import __version__
from osls.app.report.picture import png_uri
from osls.app.report.render import render, write_atomically
from osls.app.report.svg import grouped_bars, histogram
from osls.baselines import SourceOnly
from osls.datasets import OSLSProblem, simulate_osls
from osls.metrics import accuracy
from osls.pulse import PULSE

__all__ = ["run_demo"]

_PICTURES = 30


def run_demo(out: Path, seed: int) -> None:
    """Fit, print the answers beside the truth, and write the page."""
    console = Console()
    X, y = load_digits(return_X_y=True)
    novel = np.random.RandomState(seed).choice(10, size=2, replace=False)
    problem = simulate_osls(X, y, novel=novel.tolist(), random_state=seed)
    console.print(
        f"{len(problem.y_source)} labelled digits without any {_names(novel)}, "
        f"{len(problem.y_target)} unlabelled ones with them."
    )
    started = time.perf_counter()
    model = PULSE(random_state=seed, verbose=True).fit(**problem.training_data())
    seconds = time.perf_counter() - started
    before = SourceOnly(random_state=seed).fit(**problem.training_data())

    pulse = accuracy(problem.y_target, model.target_labels_, problem.novel_label)
    source = accuracy(problem.y_target, before.target_labels_, problem.novel_label)
    mix = _mix(problem, model)
    table = Table(title="Class mix of the new digits")
    for heading in ("digit", "in the labels", "true", "estimated", "95 % interval"):
        table.add_column(heading, justify="right")
    for row in mix:
        shares = [f"{100 * row[c]:.1f} %" for c in ("before", "truth", "estimate")]
        shares.append(f"{100 * row['low']:.1f} to {100 * row['high']:.1f} %")
        table.add_row(row["name"], *shares, style="bold" if row["novel"] else None)
    console.print(table)
    console.print(
        f"accuracy: {pulse.all:.3f} with PULSE ({pulse.novel:.3f} of the novel digits found), "
        f"{source.all:.3f} with the source classifier alone; fitted in {seconds:.0f} s"
    )
    write_atomically(out, _page(problem, model, mix, y, pulse, source, seconds, novel, seed))
    console.print(f"page: {out}")


def _names(novel: Any) -> str:
    return " or ".join(str(d) for d in sorted(novel.tolist()))


def _mix(problem: OSLSProblem, model: PULSE) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "before": before,
            "truth": truth,
            "estimate": estimate,
            "low": low,
            "high": high,
            "novel": name == "novel",
        }
        for name, before, truth, estimate, (low, high) in zip(
            [*map(str, problem.classes), "novel"],
            [*problem.source_marginal, 0.0],
            problem.target_marginal,
            model.target_marginal_,
            model.marginal_interval_,
            strict=True,
        )
    ]


def _page(
    problem: OSLSProblem,
    model: PULSE,
    mix: list[dict[str, Any]],
    y: Any,
    pulse: Any,
    source: Any,
    seconds: float,
    novel: Any,
    seed: int,
) -> str:
    novelty = model.target_proba_[:, -1]
    is_novel = problem.y_target == problem.novel_label
    top = np.argsort(-novelty, kind="stable")[:_PICTURES]
    return render(
        "demo.html",
        version=__version__,
        novel_share=model.novel_prevalence_,
        interval=model.novel_interval_,
        true_share=problem.target_marginal[-1],
        novel_names=_names(novel),
        n_source=len(problem.y_source),
        n_target=len(problem.y_target),
        accuracy=pulse,
        source_accuracy=source,
        seconds=seconds,
        seed=seed,
        mix=mix,
        mix_chart=Markup(  # nosec B704  # the chart escapes its texts
            grouped_bars(
                "Share of each digit in the labels, in the new data, and as estimated",
                [row["name"] for row in mix],
                [
                    ("in the labels", "before", [row["before"] for row in mix]),
                    ("new data, true", "novel", [row["truth"] for row in mix]),
                    ("new data, estimated", "estimate", [row["estimate"] for row in mix]),
                ],
            )
        ),
        score_chart=Markup(  # nosec B704  # the chart escapes its texts
            histogram(
                "Novelty of the new digits, by what they truly are",
                [
                    ("known digits", "estimate", novelty[~is_novel]),
                    ("unlabelled kind", "novel", novelty[is_novel]),
                ],
            )
        ),
        pictures=[
            {
                "uri": png_uri(problem.X_target[i].reshape(8, 8)),
                "score": float(novelty[i]),
                "truth": "truly novel" if is_novel[i] else f"a {problem.y_target[i]}",
                "right": bool(is_novel[i]),
            }
            for i in top
        ],
    )
