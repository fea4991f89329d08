"""The page of the paper's claims, made of the files in benchmarks/results when it is built."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["reproduction_page"]

Rows = list[dict[str, Any]]
_VERDICT = {True: "holds", False: "**does not hold**", None: "-"}
# What is compared: accuracy on held-out target rows where there are any, and the error of the novel share.
_MEASURES = (("test_acc_all", "acc_all", "accuracy", True), ("mpe_novel", "mpe_novel", "novel share", False))


@dataclass(frozen=True)
class Finding:
    """A line of the page: a claim, our figure, the paper's, whether it holds, and why."""

    claim: str
    ours: str
    paper: str = "-"
    holds: bool | str | None = None
    why: str = ""

    def cells(self) -> list[str]:
        verdict = self.holds if isinstance(self.holds, str) else _VERDICT[self.holds]
        return [self.claim, self.ours, self.paper, verdict, self.why]


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper: which results speak of it, and what they say."""

    title: str
    files: tuple[str, ...]
    command: str
    findings: Callable[[Path], Iterator[Finding]]
    pictures: tuple[str, ...] = ()


def reproduction_page(folder: Path) -> str:
    """Say of each table and figure of the paper what the results in a folder have to say of it."""
    return "\n\n".join(_section(folder, section) for section in _SECTIONS)


def _section(folder: Path, section: Section) -> str:
    lines = []
    for name in section.files:
        found = (
            [finding.cells() for finding in section.findings(folder / name)]
            if _is_there(folder / name)
            else []
        )
        missing = Finding(name.removesuffix(".json"), "not run at this commit", why=_command(section, name))
        lines += found or [missing.cells()]
    heads = ["claim", "ours", "paper", "", "why, or how to run it"]
    table = [heads, ["---"] * len(heads), *lines]
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in table)
    drawn = [name for name in section.pictures if (folder / name).exists()]
    shown = [f"![{section.title}](results/{name}){{ .picture .on-paper }}" for name in drawn]
    return "\n\n".join([f"## {section.title}", body, *shown])


def _is_there(path: Path) -> bool:
    return path.exists() and (path.suffix == ".json" or (path / "results.parquet").exists())


def _command(section: Section, name: str) -> str:
    return f"`{section.command.format(name=name.removesuffix('.json'))}`"


# -- Studies ---------------------------------------------------------------------------------------------


def _groups(path: Path) -> Iterator[tuple[str, Rows]]:
    """Data sets and settings of a study with their successful rows, the oracle's left out."""
    from osls.app.bench.evaluation import is_oracle
    from osls.app.bench.store import read_results

    groups: dict[str, Rows] = {}
    for result in read_results([path]):
        for row in result.rows:
            if row["error"] is None and not is_oracle(row):
                title = f"{row['data']}, {row['setting']}" if row["setting"] else row["data"]
                groups.setdefault(title, []).append(row)
    yield from groups.items()


def _method_of(row: dict[str, Any]) -> str:
    return str(json.loads(row["config"])["method"]["name"])


def _value(row: dict[str, Any], column: str, otherwise: str) -> float:
    value = row.get(column)
    return float(row[otherwise] if value is None else value)


def _means(rows: Rows, column: str, otherwise: str) -> dict[str, float]:
    by_method: dict[str, list[float]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(_value(row, column, otherwise))
    return {method: float(np.mean(values)) for method, values in by_method.items()}


def _paper(rows: Rows, column: str) -> dict[str, float]:
    """The paper's figures for the methods of some rows, by the paper's names."""
    from osls.app.bench.evaluation import paper_figures

    figures: dict[str, float] = {}
    for row in rows:
        if row.get("paper"):
            table, data, setting, method = row["paper"].split("/")
            value = paper_figures(table, data, setting, method).get(column)
            if value is not None:
                figures[method] = value
    return figures


def _stale(rows: Rows) -> str:
    from osls.app.bench.provenance import is_stale

    return "of earlier code; " if any(map(is_stale, rows)) else ""


def _draws(rows: Rows) -> str:
    count = len({row["draw"] for row in rows})
    return f"{count} draw{'s' if count > 1 else ''}"


def _against_the_others(path: Path) -> Iterator[Finding]:
    """PULSE against every other method, by accuracy and by the novel share; then recipe against recipe."""
    won: dict[str, list[bool]] = {words: [] for *_, words, _ in _MEASURES}
    for title, rows in _groups(path):
        for column, otherwise, words, more in _MEASURES:
            yield from _best(title, rows, column, otherwise, words, more)
            won[words] += _duel(rows, column, otherwise, more)
    for words, draws in won.items():
        if draws:
            yield Finding(
                f"{path.name}: the paper's recipe beats k-PU on the same split ({words})",
                f"in {sum(draws)} of {len(draws)} draws",
                holds=sum(draws) > len(draws) / 2,
                why="all data sets together",
            )


def _best(title: str, rows: Rows, column: str, otherwise: str, words: str, more: bool) -> Iterator[Finding]:
    rows = _common_draws(rows)
    means, pick = _means(rows, column, otherwise), max if more else min
    by_name = {row["method"]: _method_of(row) for row in rows}
    others = [name for name, method in by_name.items() if not method.startswith("pulse")]
    mine = [name for name, method in by_name.items() if method in ("pulse", "pulse-paper")]
    if not mine or not others:
        return
    rival = pick(others, key=lambda name: means[name])
    ahead = {n: means[n] >= means[rival] if more else means[n] <= means[rival] for n in mine}
    only = [name for name, it_is in ahead.items() if it_is]
    yield Finding(
        f"{title}: PULSE's {words} is the best",
        ", ".join(f"{name} {means[name]:.3f}" for name in (*mine, rival)),
        _printed(_paper(rows, otherwise), pick),
        len(only) > 0 if len(only) in (0, len(mine)) else f"only {', '.join(only)}",
        f"{_stale(rows)}{_draws(rows)}, {len(others)} other method{'s' if len(others) > 1 else ''}",
    )


def _common_draws(rows: Rows) -> Rows:
    """The rows of the draws that every method has: means over different draws do not compare."""
    draws: dict[str, set[int]] = {}
    for row in rows:
        draws.setdefault(row["method"], set()).add(row["draw"])
    common = set.intersection(*draws.values())
    return [row for row in rows if row["draw"] in common]


def _printed(paper: dict[str, float], pick: Any) -> str:
    """The paper's figure for PULSE and for the best of the others."""
    rivals = {name: value for name, value in paper.items() if not name.startswith("pulse")}
    if "pulse" not in paper or not rivals:
        return "-"
    best = pick(rivals, key=lambda name: rivals[name])
    return f"PULSE {paper['pulse']:.3f}, {best} {rivals[best]:.3f}"


def _duel(rows: Rows, column: str, otherwise: str, more: bool) -> list[bool]:
    """Draw by draw: is the paper's recipe better than one-split k-PU?"""
    by_draw: dict[int, dict[str, float]] = {}
    for row in rows:
        name, folds = _method_of(row), _parameters(row).get("n_folds")
        if name == "pulse-paper" or (name == "k-pu" and folds == 1):
            by_draw.setdefault(row["draw"], {})[name] = _value(row, column, otherwise)
    both = [draw for draw in by_draw.values() if len(draw) == 2]
    return [d["pulse-paper"] > d["k-pu"] if more else d["pulse-paper"] < d["k-pu"] for d in both]


_PAIRS = (
    ("pulse-paper", "pulse-paper-alternative", "BBE and CVIR beat DEDPUL and nnPU in PULSE"),
    ("k-pu", "k-pu-alternative", "BBE and CVIR beat DEDPUL and nnPU in k-PU"),
    ("pulse-paper-alternative", "k-pu-alternative", "PULSE beats k-PU, both alternative"),
    ("pulse-paper", "k-pu", "PULSE beats k-PU, both default"),
)


def _alternatives(path: Path) -> Iterator[Finding]:
    """The ablation of PU methods: default against alternative, PULSE against k-PU."""
    for title, rows in _groups(path):
        for column, otherwise, words, more in _MEASURES:
            paper = _paper(rows, otherwise)
            for one, other, claim in _PAIRS:
                mine, theirs = (_mean_of(rows, name, column, otherwise) for name in (one, other))
                if mine is None or theirs is None:
                    continue
                names = [name.replace("pulse-paper", "pulse") for name in (one, other)]
                printed = "-"
                if all(name in paper for name in names):
                    printed = " and ".join(f"{paper[name]:.3f}" for name in names)
                holds = mine >= theirs if more else mine <= theirs
                figures = f"{mine:.3f} and {theirs:.3f}"
                yield Finding(
                    f"{title}: {claim} ({words})", figures, printed, holds, f"{_stale(rows)}{_draws(rows)}"
                )


def _mean_of(rows: Rows, method: str, column: str, otherwise: str) -> float | None:
    values = [
        _value(row, column, otherwise)
        for row in rows
        if _method_of(row) == method and "cross-fit" not in row["method"]
    ]
    return float(np.mean(values)) if values else None


# As printed: with and without alignment; the fixed and the best threshold.
_PRINTED_OSDA = {"uan": (".154 and .196", ".196 and .331"), "dance": (".704 and .725", ".704 and .756")}


def _alignment(path: Path) -> Iterator[Finding]:
    """Open set methods without their alignment, and at their best threshold."""
    for title, rows in _groups(path):
        for name in ("uan", "dance"):
            mine = [row for row in rows if _method_of(row) == name and _parameters(row).keys() <= {"align"}]
            with_, without = (
                [r for r in mine if _parameters(r).get("align", True) is on] for on in (True, False)
            )
            if not with_ or not without:
                continue
            a, b = (float(np.mean([row["acc_all"] for row in some])) for some in (with_, without))
            best = float(np.mean([row["acc_best_threshold"] for row in with_]))
            why, (off, at_best) = _stale(mine) + _draws(mine), _PRINTED_OSDA[name]
            claim = f"{title}: {name.upper()} is better without its alignment"
            yield Finding(claim, f"{a:.3f} and {b:.3f}", off, b > a, why)
            claim = f"{title}: the best threshold improves {name.upper()}"
            yield Finding(claim, f"{a:.3f} and {best:.3f}", at_best, best > a, why)


def _parameters(row: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(row["config"])["method"].get("parameters", {}))


def _pretraining(path: Path) -> Iterator[Finding]:
    """Every method from scratch and after contrastive pre-training."""
    groups = dict(_groups(path))
    scratch, trained = groups.get("from scratch", []), groups.get("pre-trained", [])
    before, after = (_means(rows, "test_acc_all", "acc_all") for rows in (scratch, trained))
    for method in (name for name in before if name in after):
        figures = f"{before[method]:.3f} and {after[method]:.3f}"
        yield Finding(
            f"Pre-training improves {method}",
            figures,
            holds=after[method] > before[method],
            why=_draws(trained),
        )
    if trained:
        yield from _best("pre-trained", trained, "test_acc_all", "acc_all", "accuracy", True)


def _stability(path: Path) -> Iterator[Finding]:
    """Epoch by epoch: how far the accuracy falls from its best epoch to its last."""
    for title, rows in _groups(path):
        falls: dict[str, list[float]] = {}
        for row in rows:
            curve = [r["acc_all"] for r in json.loads(row["history"] or "[]") if r.get("acc_all") is not None]
            if len(curve) > 2:
                falls.setdefault(row["method"], []).append(max(curve) - curve[-1])
        means = {method: float(np.mean(values)) for method, values in falls.items()}
        paper_s = [name for name in means if name.startswith("PULSE")]
        others = [name for name in means if name not in paper_s]
        if paper_s and others:
            mine, rival = min(paper_s, key=means.__getitem__), min(others, key=means.__getitem__)
            yield Finding(
                f"{title}: PULSE is the most stable (falls least from its best epoch to its last)",
                f"{mine} {means[mine]:.3f}, {rival} {means[rival]:.3f}",
                "a figure",
                means[mine] <= means[rival],
                f"{_stale(rows)}{_draws(rows)}",
            )


# -- Theorems and other files ----------------------------------------------------------------------------


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _theorem1(path: Path) -> Iterator[Finding]:
    data = _read(path)
    slopes = ", ".join(f"{name} {value:.2f}" for name, value in data["slopes"].items())
    yield Finding(
        "The error of class-wise BBE falls as one over the root of the rows",
        f"slopes {slopes}",
        "-0.5",
        bool(data["rate_holds"]),
    )


def _theorem2(path: Path) -> Iterator[Finding]:
    rows = _read(path).get("printed", [])
    if rows:
        least = min(row["cosine"] for row in rows)
        yield Finding(
            "From any start with loss below log 2, a rate of 1/2 and no warm start, the loss never rises",
            f"in {sum(row['monotone'] for row in rows)} of {len(rows)} runs",
            "always",
            all(row["monotone"] for row in rows),
        )
        yield Finding("... and CVIR finds the separator", f"cosine at least {least:.4f}", "1", least > 0.999)


def _theorem3(path: Path) -> Iterator[Finding]:
    rows = _read(path)
    for key, words in (
        ("bias_at_bbes_bin", "at the bin that BBE looks for"),
        ("bias_at_the_printed_bin", "at the bin as printed"),
    ):
        within = [row["mean_absolute_error"] <= row[key] + 0.02 for row in rows]
        yield Finding(
            f"With wrong weights the mean error of the novel share stays within the theorem's bias {words}",
            f"in {sum(within)} of {len(rows)} settings, .02 allowed for sampling",
            "always",
            all(within),
            "the weights' error is 0 to .4",
        )


def _toy(path: Path) -> Iterator[Finding]:
    data = _read(path)
    for name, words in (("sphere", "the authors' notebook"), ("printed", "as printed")):
        for claim, verdict in data[name]["claims"].items():
            figure = f"{verdict['mean']:+.3f} ± {verdict['standard_error']:.3f}"
            epochs = f"{data[name]['setting']['epochs']:,} epochs"
            yield Finding(
                f"{words}: {claim}",
                figure,
                "a figure",
                bool(verdict["holds"]),
                f"{verdict['problems']} problems, {epochs}",
            )


def _purity(path: Path) -> Iterator[Finding]:
    for row in _read(path)["summary"]:
        if row["size"] == 0.05:
            yield Finding(
                f"{row['data']}: the top bins of {row['classes']} classes are nearly pure",
                f"mean {row['mean']:.3f}, lowest tenth {row['lowest_tenth']:.3f}",
                "a figure",
                row["mean"] > 0.95,
                "bins of 5 %",
            )


def _separability(path: Path) -> Iterator[Finding]:
    rows = {(row["model"], row["shift"]): row for row in _read(path) if row["data"] == "mean"}
    for model, words in (("auto", "networks and trees"), ("trees", "trees alone")):
        bins, variant = rows[model, "bbe"]["l1_known"], rows[model, "separability"]["l1_known"]
        yield Finding(
            f"Bins beat the separability variant ({words}; L1 error of the known mix)",
            f"{bins:.3f} and {variant:.3f}",
            "said, not shown",
            bins < variant,
            "calibrated probabilities favour the variant",
        )


_STUDY = "osls bench run benchmarks/studies/{name}.yml"
_SCRIPT = "python benchmarks/{name}.py"
_SECTIONS = (
    Section(
        "Main table (1 and 7)",
        ("cifar10", "cifar100", "encoded-images", "newsgroups", "newsgroups-cnn", "cells"),
        _STUDY,
        _against_the_others,
    ),
    Section("Novel fraction (table 6)", ("novel-fraction-cpu",), _STUDY, _against_the_others),
    Section("Other PU methods (table 5)", ("pu-cpu",), _STUDY, _alternatives),
    Section("Contrastive pre-training (table 4)", ("pretraining-cpu",), _STUDY, _pretraining),
    Section("What ails open set adaptation (section F.5)", ("osda-cpu",), _STUDY, _alignment),
    Section("Age prediction (table 8)", ("age-cpu",), _STUDY, _against_the_others),
    Section("Epoch by epoch (figures 4 and 5)", ("epochs",), _STUDY, _stability),
    Section("Top bins (figure 2)", ("purity.json",), _SCRIPT, _purity),
    Section("Theorem 1", ("theorem1_rate.json",), _SCRIPT, _theorem1),
    Section("Theorem 2", ("theorem2.json",), _SCRIPT, _theorem2),
    Section("Theorem 3", ("theorem3.json",), _SCRIPT, _theorem3),
    Section(
        "The toy (figure 3): the authors' notebook, and as printed",
        ("gaussian_toy.json",),
        _SCRIPT,
        _toy,
        ("gaussian_toy.svg", "gaussian_toy_printed.svg"),
    ),
    Section("Separability (appendix)", ("shifts.json",), _SCRIPT, _separability),
)
