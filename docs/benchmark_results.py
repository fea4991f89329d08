"""The page of benchmark results, made of the files in benchmarks/results when it is built."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["SHOWN_ELSEWHERE", "figures_table", "results_page", "trust_table"]

# Titles, and how to make them, of results that are not of a study.
_KNOWN = {
    "coverage_scores": (
        "Do the intervals hold the truth? Gaussian classes",
        "`python benchmarks/coverage.py scores`. `covered`: the share of draws whose 95 % interval holds the "
        "true novel share, `bound_covered` the same for the finite-sample bound, `rejected` how often "
        '"nothing is new" was rejected.',
    ),
    "coverage_pulse": (
        "The same through whole fits on small data",
        "`python benchmarks/coverage.py pulse`, trees, 600 rows a side. Before intervals were calibrated.",
    ),
    "coverage_real": (
        "The same on real data",
        "`python benchmarks/coverage.py real`, 2,500 rows in all. Before the intervals were calibrated.",
    ),
    "novelty": (
        "The test of nothing new: false alarms and power",
        "`python benchmarks/novelty.py`. Of an earlier, more cautious test.",
    ),
    "shifts": (
        "Four ways to estimate the known classes' mix",
        "`python benchmarks/shifts.py`: L1 error of the known mix and error of the novel share.",
    ),
    "speed": ("Speed, as ratios within one run", "`make bench-speed`."),
    "demo": (
        "`make demo` from a fresh clone",
        "`time make demo; du -sm .venv`: user and system time of the installation and of the demo together. "
        "Between the two, the tools of development were left out and the default models became smaller: the "
        "time is of both. One run each, on a machine that was busy with other work.",
    ),
    "serving": (
        "A model behind HTTP",
        "`python benchmarks/serving.py run rows.csv`: the tutorial's table, the default models, two cores. "
        "`load_before` says how busy the machine was with other work.",
    ),
    "monitoring": (
        "The monitor: false alarms, small changes that stay, intervals of batches",
        "`python benchmarks/monitoring.py`.",
    ),
    "theorem1_rate": ("The rate of theorem 1", "`python benchmarks/theorem1_rate.py --draws 40`."),
    "theorem2": ("Theorem 2: CVIR finds the separating direction", "`python benchmarks/theorem2.py`."),
    "theorem3": (
        "Theorem 3 with wrong weights: errors of the novel share beside the theorem's bias",
        "`python benchmarks/theorem3.py`.",
    ),
    "gaussian_toy": ("The paper's overparameterised toy", "`python benchmarks/gaussian_toy.py`."),
    "purity": (
        "How pure the top bins are (the paper's Figure 2)",
        "`python benchmarks/purity.py`. Line: mean over classes and draws, shaded down to the lowest tenth.",
    ),
    "streaming": ("Estimates from a stream of scores", "`python benchmarks/streaming.py`."),
    "dask_scoring": ("Scoring on Dask, with a worker killed", "`python benchmarks/dask_scoring.py`."),
    "ddp": (
        "Two processes under torchrun beside one",
        "`python benchmarks/ddp.py`: the largest differences in estimate and accuracy, and what another seed "
        "alone does.",
    ),
    "cost": (
        "The estimate of a fit's time",
        "`benchmarks/cost.py`: seconds estimated and taken, fits of varied shape.",
    ),
    "discovery": (
        "Groups of the novel part",
        "`benchmarks/discovery.py`: how many are found, which rows, what ten labels a group bring.",
    ),
    "endurance": ("Kills, pairs, mutations and a long watch", "`benchmarks/endurance.py`."),
    "parts": (
        "Known classes in two parts",
        "`benchmarks/discovery.py --parts`: two known classes have one name, one is rare in the target.",
    ),
    "originals": (
        "The rivals beside the code they come from",
        "`python benchmarks/originals.py color --code CLONE`, and so for each rival; the script says which "
        "repositories. Original and ours have the same rows, in the original's setting: accuracy on test "
        "rows and on the target, AUROC of the target's novel rows; shares for the kernel prior. "
        "What an original needs of pictures or of a graphics card is replaced, as the last column says. "
        "EULAC's is not by its authors, and learns its unlabelled rows by heart, so that only its test rows "
        "tell. The rows of LACForest on digits, and on segment with seed 1, are older than the script.",
    ),
    "toolbox": ("Which parts should PULSE use?", "`python benchmarks/toolbox.py --draws 5 --rows 2000`."),
}
_FIRST = (
    "recipes",
    "cells",
    "newsgroups",
    "cifar10",
    "rivals-shift",
    "rivals-looks",
    "rivals-aligned",
    "rivals-small",
    "originals",
    "toolbox",
    "coverage_scores",
    "coverage_pulse",
    "coverage_real",
    "novelty",
)
# Other pages of results, and what is on them.
_PARTS = {
    "trust": ("coverage_scores", "coverage_pulse", "coverage_real", "novelty", "monitoring"),
    "speed": ("speed", "demo", "serving", "streaming", "dask_scoring", "ddp"),
    "theory": ("theorem1_rate", "theorem2", "theorem3", "gaussian_toy", "purity", "shifts", "toolbox"),
}
# On the page of the method: what may be trusted.
SHOWN_ELSEWHERE = {"trust", "violations", "causes", "sets", "expected"}
_METRICS = ("acc_all", "test_acc_all", "acc_seen", "acc_novel", "mpe_seen", "mpe_novel", "h_score", "seconds")
_MOST_ROWS = 60
_HELD = {True: "held", False: "**not held**", None: "not used"}


def results_page(folder: Path, part: str = "studies") -> str:
    """Describe the results in a folder that belong to a part: tables, pictures, the rest folded.

    What belongs to no other part belongs to the studies, so that nothing is left out or shown twice.
    """
    names = {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix == ".json"}
    elsewhere = {name for names_of_part in _PARTS.values() for name in names_of_part} | SHOWN_ELSEWHERE
    wanted = names - elsewhere if part == "studies" else names & set(_PARTS[part])
    ordered = [name for name in _FIRST if name in wanted] + sorted(wanted - set(_FIRST))
    # Pages of parts lie in a folder of their own, beside the pictures.
    pictures = "results/" if part == "studies" else ""
    links = [_pages(folder)] if part == "studies" else []
    return "\n\n".join([*links, *(_section(folder, name, pictures) for name in ordered)])


_TRUST = {
    "novel": "covered 0.95",
    "known": "known covered 0.95",
    "novel, 80%": "covered 0.8",
    "known, 80%": "known covered 0.8",
    "width": "width 0.95",
    "error": "mean absolute error",
    "worst": "worst error",
}


def trust_table(path: Path) -> str:
    """The table of benchmarks/trust.py: coverage, width and error, by kind of model and data set."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    cells = [
        [
            f"{row['data']}, {row['models']}, {row['problems']}",
            *(f"{row[key]:.3f}" for key in _TRUST.values()),
        ]
        for row in rows
    ]
    return _table(["data, models, problems", *_TRUST], cells)


def figures_table(path: Path) -> str:
    """The rows of a file of results as a table; the commit, the same for all of them, below it."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    shown = [{key: value for key, value in row.items() if key != "commit"} for row in rows]
    return f"{_figures(shown)}\n\nMade at commit {commits}."


def originals_table(path: Path) -> str:
    """The mean figures of each rival and data set beside those of the code it comes from."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in json.loads(path.read_text(encoding="utf-8")):
        groups.setdefault((row["rival"], row["data"], row.get("form", "")), []).append(row)

    def cell(rows: list[dict[str, Any]], metric: str) -> str:
        pairs = [[row.get(f"{metric}_{whose}") for row in rows] for whose in ("original", "ours")]
        if any(value is None for values in pairs for value in values):
            return ""
        return " / ".join(f"{sum(values) / len(values):.3f}" for values in pairs)

    metrics = ("test", "target", "share")
    lines = [
        [*group, str(len(rows)), *(cell(rows, metric) for metric in metrics)]
        for group, rows in groups.items()
    ]
    return _table(["rival", "data", "form", "draws", *metrics], lines)


def _pages(folder: Path) -> str:
    """Link the pages of `osls bench page`: the studies below, with figures."""
    links = [f"[{_title(path)}](results/{path.name})" for path in sorted(folder.glob("*.html"))]
    return f"The studies with figures, a page each: {'; '.join(links)}." if links else ""


def _title(page: Path) -> str:
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", page.read_text(encoding="utf-8"), re.DOTALL)
    return heading.group(1).strip() if heading else page.stem


def _section(folder: Path, name: str, pictures: str) -> str:
    title, how = _KNOWN.get(name, (name, ""))
    parts = []
    if (folder / name).is_dir():
        try:
            words, tables = _study(folder / name)
        except (ValueError, KeyError, OSError) as error:
            # A study that has just been started has no finished run yet.
            words, tables = {}, f"Nothing to show yet: {error}"
        title, how = words.get("title") or title, words.get("how") or how
        parts.append(tables)
    if (folder / f"{name}.svg").exists():
        parts.append(f"![{title}]({pictures}{name}.svg){{ .picture .on-paper }}")
    if (folder / f"{name}.json").exists():
        parts.append(_figures(json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))))
    return "\n\n".join([f"## {title}", f"Reproduce: {how}" if how else "", *parts])


def _study(path: Path) -> tuple[dict[str, str], str]:
    """Return title and command of a study, and its tables as `osls bench table` prints them."""
    import yaml

    from osls.app.bench.evaluation import summarise
    from osls.app.bench.store import read_results
    from osls.app.bench.table import format_table

    words: dict[str, str] = {}
    tables = []
    for result in read_results([path]):
        if result.study is not None:
            study = yaml.safe_load(result.study)
            command = f"`osls bench run benchmarks/studies/{study['name']}.yml`."
            words = {"title": study.get("title", ""), "how": f"{command} {study.get('about', '')}"}
        table = format_table(summarise(result.rows), "markdown", _METRICS)
        # A mean stays on one line with its deviation; the worst draw may go below.
        tables.append(table.replace(" ± ", "\u00a0±\u00a0"))
    return words, "\n\n".join(tables)


def _figures(data: Any) -> str:
    """Show rows and means as tables, anything else folded as it is."""
    if isinstance(data, list) and data and len(data) <= _MOST_ROWS:
        columns = list(dict.fromkeys(key for row in data for key in row)) if _is_flat(data) else []
        if columns:
            return _table(columns, [[_words(row.get(column)) for column in columns] for row in data])
    if isinstance(data, dict) and data and all(map(_has_means, data.values())):
        metrics = list(next(iter(data.values())))
        rows = [[name, *(_mean(means.get(metric)) for metric in metrics)] for name, means in data.items()]
        return _table(["mean (worst draw)", *metrics], rows)
    sections = [value for value in data.values() if isinstance(value, list)] if isinstance(data, dict) else []
    if sections and all(isinstance(row, dict) and "ratio" in row for rows in sections for row in rows):
        rows = [
            [row["what"], _words(row["ratio"]), _limit(row), _HELD[row["met"]]]
            for rows in sections
            for row in rows
        ]
        return _table(["what", "measured", "limit", ""], rows)
    text = json.dumps(data, indent=1, ensure_ascii=False)
    shown = "\n".join(f"    {line}" for line in ["```json", *text.splitlines(), "```"])
    return f'??? note "All figures"\n\n{shown}'


def _limit(row: dict[str, Any]) -> str:
    if row["limit"] is None:
        return ""
    return ("at least " if row.get("at_least") else "at most ") + _words(row["limit"])


def _is_flat(rows: list[Any]) -> bool:
    return all(isinstance(row, dict) for row in rows) and not any(
        isinstance(value, dict | list) for row in rows for value in row.values()
    )


def _has_means(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, dict) and "mean" in v for v in value.values())


def _mean(figures: Any) -> str:
    if not figures:
        return ""
    worst = f" ({_words(figures['worst'])})" if "worst" in figures else ""
    return _words(figures["mean"]) + worst


def _table(heads: list[str], rows: list[list[str]]) -> str:
    # Names of several words may be broken into lines, so that columns are narrow.
    heads = [head.replace("_", " ") for head in heads]
    lines = [heads, ["---:"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(entry.replace("|", "\\|") for entry in line) + " |" for line in lines)


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
