"""Three digits arrive in the course of ten batches: each is found, named, absorbed, and counted from then on.

    python examples/ten_batches.py --out timeline.html

Only seven digits are labelled at first. The others arrive with the third, the fifth and the eighth batch.
Each batch is fitted with all that is labelled so far. Where something is new, a person (here: the true
labels) is
asked about at most ten rows a group. In the end the last model counts all ten batches.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from osls import PULSE
from osls.app.report.page import write_atomically
from osls.app.report.timeline import render_timeline
from osls.monitor import Monitor

ARRIVALS = {7: 2, 8: 4, 9: 7}
BATCHES = 10
LABELS = 10
# A smaller group is left for the next batch, in which it may be larger.
WORTH_ASKING = 0.05


def make_batches(seed: int) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """A labelled third of the first seven digits, and ten batches of the other rows."""
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    labelled = order[: len(y) // 3]
    labelled = labelled[y[labelled] < min(ARRIVALS)]
    rest = np.setdiff1d(order, labelled)
    batches = []
    for b in range(BATCHES):
        here = [c for c in range(10) if ARRIVALS.get(c, 0) <= b]
        rows = rng.choice(rest[np.isin(y[rest], here)], 320, replace=False)
        batches.append((X[rows], y[rows]))
    return X[labelled], y[labelled], batches


def fit(X: np.ndarray, y: np.ndarray, target: np.ndarray) -> PULSE:
    """Adapt to one batch."""
    model = PULSE(source_classifier="trees", discriminator="trees", n_bootstrap=50, random_state=0)
    return model.fit(X, y, X_target=target)


def grow(X: np.ndarray, y: np.ndarray, batch: np.ndarray, truth: np.ndarray) -> tuple[PULSE, np.ndarray]:
    """Fit a batch, and absorb the labels of at most ten rows a group; return the model and the rows asked."""
    model = fit(X, y, batch)
    groups = [j for j, group in enumerate(model.discover().groups) if group.share >= WORTH_ASKING]
    if not groups:
        return model, np.empty(0, dtype=np.int64)
    asked = [s.row for s in model.suggestions(LABELS * len(model.discover())) if s.group in groups]
    return model.absorb_rows(asked, truth[asked].tolist()), np.array(asked)


def main() -> None:
    """Play it through, print each batch, and write the timeline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("timeline.html"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y, batches = make_batches(options.seed)
    first = (X, y)
    labels: list[tuple[np.ndarray, np.ndarray]] = []
    for b, (batch, truth) in enumerate(batches, 1):
        model, asked = grow(X, y, batch, truth)
        named = sorted(set(model.classes_[:-1].tolist()) - set(np.unique(y).tolist()))
        right = float(np.mean(model.target_labels_ == np.where(np.isin(truth, model.classes_), truth, -1)))
        print(f"batch {b:2}: {len(asked):2} labels, new {named or '-'}, accuracy {right:.3f}", flush=True)
        if len(asked):
            labels.append((batch[asked], truth[asked]))
            X, y = model.as_source()
    together = [np.concatenate(parts) for parts in zip(first, *labels, strict=True)]
    scratch = fit(*together, batches[-1][0])
    final = fit(X, y, batches[-1][0])
    truth = batches[-1][1]
    for name, each in (("grown", final), ("refitted with the same labels", scratch)):
        print(f"last batch, {name}: accuracy {np.mean(each.target_labels_ == truth):.3f}")
    monitor = Monitor(final.target_marginal_, list(map(str, final.classes_)), against="first")
    for b, (batch, _) in enumerate(batches, 1):
        monitor.update(f"batch {b}", final.predict_proba(batch))
    command = "python examples/ten_batches.py"
    write_atomically(options.out, render_timeline(monitor, model="the last of ten", command=command))
    print(f"The timeline is in {options.out}.")


if __name__ == "__main__":
    main()
