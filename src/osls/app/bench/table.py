"""Summaries as text: markdown, LaTeX, CSV, and a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from osls._core.names import unknown
from osls.app.bench.evaluation import METRICS, STALE, Group, Line, Stat

DEFAULT_METRICS = (
    "acc_all",
    "test_acc_all",
    "acc_seen",
    "acc_known",
    "acc_novel",
    "mpe_seen",
    "mpe_seen_raw",
    "mpe_novel",
    "h_score",
    "novelty_auroc",
    "macro_f1",
    "seconds",
)
# What fits a terminal.
_ON_SCREEN = (
    "acc_all",
    "test_acc_all",
    "acc_seen",
    "acc_novel",
    "mpe_seen",
    "mpe_novel",
    "h_score",
    "acc_best_threshold",
    "regret",
    "seconds",
)
FORMATS = ("markdown", "latex", "csv")


def choose_metrics(names: Sequence[str], groups: Sequence[Group]) -> list[str]:
    """Return the named metrics, or the usual ones, that some line has.

    The threshold in hindsight and the regret are added where the results have them.
    """
    for name in names:
        if name not in METRICS:
            raise ValueError(unknown("metric", name, METRICS))
    wanted = list(names) or [*DEFAULT_METRICS[:-1], "acc_best_threshold", "regret", DEFAULT_METRICS[-1]]
    present = {column for group in groups for line in group.lines for column in line.stats}
    return [name for name in wanted if name in present]


def format_table(groups: Sequence[Group], kind: str, metrics: Sequence[str] = ()) -> str:
    """Write a summary as markdown, LaTeX or CSV.

    Parameters
    ----------
    groups : list of Group
        From :func:`osls.app.bench.evaluation.summarise`.
    kind : {"markdown", "latex", "csv"}
        The first two show mean ± standard deviation (worst draw), the best mean in bold, and the paper's
        figure in a column of its own where it has one. CSV has every number in full.
    metrics : list of str
        Columns of ``METRICS``; by default the usual ones.
    """
    if kind not in FORMATS:
        raise ValueError(unknown("format", kind, FORMATS))
    chosen = choose_metrics(metrics, groups)
    if kind == "csv":
        return _csv(groups, chosen)
    write = _markdown if kind == "markdown" else _latex
    return "\n\n".join(write(group, chosen) for group in groups) + "\n"


# -- Markdown and LaTeX ----------------------------------------------------------------------------------


def _columns(group: Group, metrics: Sequence[str]) -> list[tuple[str, bool]]:
    """Metrics of a group and, behind those that the paper has, its own column."""
    columns = []
    for metric in metrics:
        stats = [line.stats[metric] for line in group.lines if metric in line.stats]
        if stats:
            columns.append((metric, False))
        if any(stat.paper is not None for stat in stats):
            columns.append((metric, True))
    return columns


def _body(group: Group, columns: Sequence[tuple[str, bool]], bold: str, pm: str) -> list[list[str]]:
    body = []
    for line in group.lines:
        entries = [line.name]
        for metric, paper in columns:
            stat = line.stats.get(metric)
            entries.append(_paper_words(stat) if paper else _words(stat, bold, pm))
        body.append([*entries, _draws(line)])
    return body


def _words(stat: Stat | None, bold: str, pm: str) -> str:
    """Mean ± std (worst)."""
    if stat is None or not stat.values:
        return "-"
    words = stat.metric.words
    mean = bold.format(words(stat.mean)) if stat.best else words(stat.mean)
    return mean if stat.std is None else f"{mean} {pm} {words(stat.std)} ({words(stat.worst)})"


def _paper_words(stat: Stat | None) -> str:
    return "-" if stat is None or stat.paper is None else stat.metric.words(stat.paper)


def _draws(line: Line) -> str:
    return f"{line.draws} (+{line.failed} failed)" if line.failed else str(line.draws)


def _markdown(group: Group, metrics: Sequence[str]) -> str:
    columns = _columns(group, metrics)
    heads = ["Method", *("paper" if paper else METRICS[m].heading for m, paper in columns), "Draws"]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *_body(group, columns, "**{}**", "±")]
    table = ["| " + " | ".join(entry.replace("|", "\\|") for entry in row) + " |" for row in rows]
    return "\n".join([f"### {group.title}", "", *table, *_footnote(group, "\n{}")])


def _footnote(group: Group, form: str) -> list[str]:
    words = f"{STALE} run before the last change of the method's code"
    return [form.format(words)] if any(line.stale for line in group.lines) else []


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    STALE: r"$\dagger$",
}


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex(group: Group, metrics: Sequence[str]) -> str:
    columns = _columns(group, metrics)
    heads = ["Method", *("paper" if paper else METRICS[m].heading for m, paper in columns), "Draws"]
    body = _body(group, columns, r"\textbf{{{}}}", r"$\pm$")
    lines = [" & ".join([_escaped(row[0]), *row[1:]]) + r" \\" for row in body]
    return "\n".join(
        [
            f"% {group.title}",
            r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
            r"\toprule",
            r"\multicolumn{" + str(len(heads)) + r"}{l}{\textbf{" + _escaped(group.title) + r"}} \\",
            " & ".join(heads) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *_footnote(group, "% {}"),
        ]
    )


# -- CSV and the terminal --------------------------------------------------------------------------------


def _csv(groups: Sequence[Group], metrics: Sequence[str]) -> str:
    parts = ("mean", "std", "worst", "paper")
    names = [
        "data",
        "setting",
        "method",
        "draws",
        "failed",
        "stale",
        *(f"{m}_{p}" for m in metrics for p in parts),
    ]
    rows = []
    for group in groups:
        for line in group.lines:
            row: list[Any] = [group.data, group.setting, line.method, line.draws, line.failed, line.stale]
            for stat in map(line.stats.get, metrics):
                row += [getattr(stat, part) if stat and stat.values else None for part in parts[:3]]
                row.append(stat and stat.paper)
            rows.append(row)
    return str(pd.DataFrame(rows, columns=names).to_csv(index=False, lineterminator="\n"))


def terminal_tables(groups: Sequence[Group]) -> Iterator[Table]:
    """Yield a rich table for each data set and setting."""
    for group in groups:
        metrics = choose_metrics(_ON_SCREEN, [group])
        table = Table(
            title=f"{group.title}: mean, ± std over draws, (worst draw)",
            box=box.SIMPLE,
            show_lines=True,
            padding=(0, 1),
        )
        for head in ("Method", "Draws", *(METRICS[metric].heading for metric in metrics)):
            table.add_column(head, overflow="fold")
        for line in group.lines:
            entries = (_stacked(line.stats.get(metric)) for metric in metrics)
            table.add_row(line.name, _draws(line), *entries)
        yield table


def _stacked(stat: Stat | None) -> Text:
    if stat is None or not stat.values:
        return Text("-")
    words = stat.metric.words
    mean = Text(words(stat.mean), style="bold" if stat.best else "")
    return mean if stat.std is None else mean + Text(f"\n±{words(stat.std)}\n({words(stat.worst)})")
