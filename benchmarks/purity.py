"""How pure are the top bins? The paper's Figure 2, on any data set.

    python benchmarks/purity.py                          digits, letter, satimage, mnist; five draws each
    python benchmarks/purity.py --data cifar10 --draws 1

BBE needs, for every known class, a score above which nearly all target rows are of that class. A source
classifier scores the target. The top bin of a class holds the target rows that score highest for it; its size
is given in units of the class's share in the target, beyond which it cannot be pure, and its purity is the
share of its rows that are of the class. Writes results/purity.json and purity.svg.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from osls.app.bench.draws import draw_problem
from osls.app.bench.network_plans import NetworkPlan
from osls.app.bench.study import load_study
from osls.baselines import SourceOnly
from plotting import new_figure, save

RESULTS = Path(__file__).parent / "results"
# Of the class's share in the target: a bin of size 1 could hold the whole class and nothing else.
SIZES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)


def top_bin_purity(scores: np.ndarray, is_class: np.ndarray, sizes: np.ndarray) -> list[float]:
    """Share of the class among the rows of highest score, for bins of so many rows."""
    hits = np.cumsum(is_class[np.argsort(-scores, kind="stable")])
    rows = np.clip(np.round(sizes * is_class.sum()).astype(int), 1, len(scores))
    return (hits[rows - 1] / rows).tolist()


def source_classifier(data: str) -> SourceOnly:
    """Return the default, or for images the source classifier of the CIFAR-10 study."""
    if data != "cifar10":
        return SourceOnly()
    study = load_study(Path(__file__).parent / "studies" / "cifar10.yml")
    network = NetworkPlan(study.networks["fast-convnet"])
    return SourceOnly(source_classifier=network, **study.defaults)


def purities(data: str, draw: int) -> list[dict[str, Any]]:
    options = {"rows": "all"} if data == "cifar10" else {}
    problem = draw_problem({"name": data, **options}, draw=draw)
    model = source_classifier(data).set_params(random_state=draw).fit(**problem.training_data())
    rows = []
    for j, name in enumerate(problem.classes):
        is_class = problem.y_target == name
        if is_class.sum() >= 20:
            purity = top_bin_purity(model.target_proba_[:, j], is_class, np.array(SIZES))
            row = {"data": data, "draw": draw, "class": str(name), "share": float(is_class.mean())}
            rows.append({**row, "purity": [round(value, 4) for value in purity]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["digits", "letter", "satimage", "mnist"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    path = args.out / "purity.json"
    rows = json.loads(path.read_text())["classes"] if path.exists() else []
    rows = [row for row in rows if row["data"] not in args.data]
    for data in args.data:
        for draw in range(args.draws):
            rows += purities(data, draw)
    summary = []
    figure, axes = new_figure("purity")
    for data in dict.fromkeys(row["data"] for row in rows):
        table = np.array([row["purity"] for row in rows if row["data"] == data])
        mean, low = table.mean(axis=0), np.quantile(table, 0.1, axis=0)
        (line,) = axes.plot(SIZES, mean, marker="o", markersize=3, label=data)
        axes.fill_between(SIZES, low, mean, color=line.get_color(), alpha=0.12, linewidth=0)
        for size, *values in zip(SIZES, mean, low, table.min(axis=0), strict=True):
            names = ("mean", "lowest_tenth", "worst")
            summary.append(
                {"data": data, "classes": len(table), "size": size}
                | {name: round(float(value), 3) for name, value in zip(names, values, strict=True)}
            )
        columns = zip(SIZES, mean, low, strict=True)
        print(f"{data:<10}", *(f"{size:g}: {middle:.3f} ({least:.3f})" for size, middle, least in columns))
    axes.set(xlabel="size of the bin / share of the class", ylabel="purity of the top bin", ylim=(0, 1.02))
    axes.legend(frameon=False)
    save(figure, args.out / "purity.svg")
    path.write_text(json.dumps({"summary": summary, "classes": rows}, indent=None) + "\n")


if __name__ == "__main__":
    main()
