"""Three classes arrive in the course of ten batches: each is found, named, absorbed, and then counted.

    python examples/ten_batches.py --out timeline.html
    OSLS_DATA=... python examples/ten_batches.py --data cells
    OSLS_DATA=... python examples/ten_batches.py --data newsgroups

Seven digits (kinds of blood cells, newsgroups) are labelled at first. The others arrive with the third, the
fifth and the eighth batch. Each batch is fitted with all that is labelled so far. Where something is new, a
person (here: the true labels) is asked about at most ten rows a group. In the end the last model counts all
ten batches.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from osls import PULSE
from osls.app.report.page import write_atomically
from osls.app.report.timeline import render_timeline
from osls.datasets import load_dataset
from osls.monitor import Monitor

BATCHES = 10
# The batches, counted from 0, with which the new classes arrive.
ARRIVALS = (2, 4, 7)
LABELS = 10
# A smaller group is left for the next batch, in which it may be larger.
WORTH_ASKING = 0.05
# Texts have more columns, and stay sparse.
WIDE = 1_000


@dataclass(frozen=True)
class Story:
    """A data set, the classes that are labelled from the start, those that arrive, and the rows of a batch.

    There are so few digits that a row may come again in a later batch; of the others none does.
    """

    data: str
    known: tuple[str, ...]
    arriving: tuple[str, str, str]
    rows: int
    again: bool = False


STORIES = {
    "digits": Story("digits", tuple("0123456"), ("7", "8", "9"), 320, again=True),
    "cells": Story(
        "citeseq", ("CD14+ Mono", "CD16+ Mono", "CD34+", "CD4 T", "CD8 T"), ("B", "NK", "Mouse"), 400
    ),
    "newsgroups": Story(
        "newsgroups",
        (
            "comp.graphics",
            "misc.forsale",
            "rec.autos",
            "sci.crypt",
            "sci.med",
            "soc.religion.christian",
            "talk.politics.guns",
        ),
        ("rec.sport.hockey", "sci.space", "talk.politics.mideast"),
        500,
    ),
}


def make_batches(story: Story, seed: int) -> tuple[Any, np.ndarray, list[tuple[Any, np.ndarray]]]:
    """Return a third of the rows of the known classes with labels, and ten batches of other rows."""
    rng = np.random.default_rng(seed)
    loaded = load_dataset(story.data).load()
    X: Any = loaded.X
    y = np.array(loaded.class_names)[loaded.y]
    if sparse.issparse(X) and X.shape[1] <= WIDE:
        X = X.toarray()
    free = np.isin(y, (*story.known, *story.arriving))
    labelled = rng.permutation(np.flatnonzero(free))[: int(free.sum()) // 3]
    labelled = labelled[np.isin(y[labelled], story.known)]
    free[labelled] = False
    batches = []
    for b in range(BATCHES):
        here = [name for name, first in zip(story.arriving, ARRIVALS, strict=True) if first <= b]
        rows = rng.choice(np.flatnonzero(free & np.isin(y, (*story.known, *here))), story.rows, replace=False)
        free[rows] = story.again
        batches.append((X[rows], y[rows]))
    return X[labelled], y[labelled], batches


def fit(X: Any, y: np.ndarray, target: Any) -> PULSE:
    """Adapt to one batch: with trees, or for texts with a linear model."""
    family = "linear" if sparse.issparse(X) else "trees"
    model = PULSE(source_classifier=family, discriminator=family, n_bootstrap=50, random_state=0)
    return model.fit(X, y, X_target=target)


def grow(X: Any, y: np.ndarray, batch: Any, truth: np.ndarray) -> tuple[PULSE, np.ndarray]:
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
    parser.add_argument("--data", choices=STORIES, default="digits")
    parser.add_argument("--out", type=Path, default=Path("timeline.html"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y, batches = make_batches(STORIES[options.data], options.seed)
    first = (X, y)
    labels: list[tuple[Any, np.ndarray]] = []
    for b, (batch, truth) in enumerate(batches, 1):
        model, asked = grow(X, y, batch, truth)
        named = sorted(set(model.classes_[:-1].tolist()) - set(np.unique(y).tolist()))
        right = float(
            np.mean(model.target_labels_ == np.where(np.isin(truth, model.classes_), truth, "novel"))
        )
        print(f"batch {b:2}: {len(asked):2} labels, new {named or '-'}, accuracy {right:.3f}", flush=True)
        if len(asked) and b < BATCHES:
            labels.append((batch[asked], truth[asked]))
            X, y = model.as_source()
    # Labels of the last batch stay out of the other fit: its rows must not stand on both sides.
    together = first
    for rows, names in labels:
        stack = sparse.vstack if sparse.issparse(rows) else np.concatenate
        together = stack([together[0], rows]), np.append(together[1], names)
    scratch = fit(*together, batch)
    for name, each in (("grown", model), ("refitted with the same labels", scratch)):
        print(f"last batch, {name}: accuracy {np.mean(each.target_labels_ == truth):.3f}")
    monitor = Monitor(model.target_marginal_, list(map(str, model.classes_)), against="first")
    for b, (batch, _) in enumerate(batches, 1):
        monitor.update(f"batch {b}", model.predict_proba(batch))
    command = f"python examples/ten_batches.py --data {options.data}"
    write_atomically(options.out, render_timeline(monitor, model="the last of ten", command=command))
    print(f"The timeline is in {options.out}.")


if __name__ == "__main__":
    main()
