"""Answers for tests of the report, from small real fits and without the file layer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import TfidfVectorizer

from osls import PULSE
from osls.app.answer import Answer
from osls.datasets import OSLSProblem, simulate_osls
from osls.inference.diagnostics import Check, Diagnostics

TOPICS = {
    "cooking": "oven butter recipe flour garlic simmer sauce pepper bake dough onion pan",
    "sailing": "mast harbour anchor tide sail knot rudder deck windward keel hull jib",
    "chess": "pawn rook bishop castling opening endgame knight checkmate gambit queen tempo sacrifice",
    "gardening": "soil compost seedling prune tulip mulch watering weed trellis bulb hedge shrub",
    "astronomy": "telescope galaxy nebula orbit planet comet eclipse supernova asteroid crater lunar stellar",
}
FILLER = "today people often really thought about how much they would like another good look at things"


def quick_pulse(seed: int = 0) -> PULSE:
    forest = ExtraTreesClassifier(30)
    return PULSE(
        source_classifier=forest,
        discriminator=forest,
        n_folds=3,
        rounds=1,
        n_bootstrap=20,
        random_state=seed,
    )


@cache
def digits_fit(novel: tuple[int, ...], seed: int) -> tuple[OSLSProblem, PULSE]:
    """Digits of which some are novel, and a model fitted to them once for all tests; none may change it."""
    problem = simulate_osls(*load_digits(return_X_y=True), novel=list(novel), random_state=seed)
    return problem, quick_pulse(seed).fit(**problem.training_data())


def checks(status: str = "no violation seen") -> Diagnostics:
    failed = {"no violation seen": None, "upper bound only": 1, "not identified": 1, "do not trust": 0}[
        status
    ]
    limits = [
        Check(
            "top bin size",
            0.02 if failed != 0 else 0.0004,
            0.005,
            failed != 0,
            "The purest bin holds enough labelled rows."
            if failed != 0
            else "The purest bin is nearly empty.",
            "do not trust",
        ),
        Check(
            "separable",
            0.93 if failed != 1 else 0.41,
            0.8,
            failed != 1,
            "The known classes have regions of their own."
            if failed != 1
            else "Class 'b' has no region of its own, so something new may hide inside it.",
            "upper bound only" if status == "upper bound only" else "not identified",
        ),
    ]
    x = np.linspace(0.001, 1, 60)
    return Diagnostics(tuple(limits), {"top bin": (x, 0.62 + 0.5 * x**2), "other": (x, 100 * x)})


def _answer(
    kind: Any,
    problem: OSLSProblem,
    model: PULSE,
    target_rows: pd.DataFrame,
    source_rows: pd.DataFrame,
    features: Any,
    **changes: Any,
) -> Answer:
    classes = (*map(str, model.classes_[:-1]), "novel")
    proba = pd.DataFrame(model.target_proba_, columns=[f"p_{name}" for name in classes])
    predicted = np.array(classes)[model.target_proba_.argmax(axis=1)]
    first = pd.DataFrame({"predicted": predicted, "novel": model.target_proba_[:, -1]})
    values: dict[str, Any] = {
        "kind": kind,
        "classes": classes,
        "source_share": np.append(problem.source_marginal, 0.0),
        "target_share": model.target_marginal_,
        "interval": model.marginal_interval_,
        "level": 0.95,
        "novelty_pvalue": model.novelty_pvalue_,
        "predictions": pd.concat([first, proba], axis=1),
        "target_rows": target_rows,
        "source_rows": source_rows,
        "features_target": features,
        "feature_names": (),
        "diagnostics": checks(),
        "warnings": ("Column 'ward' is only in the target and was left out.",),
        "model": model,
        "command": "osls adapt --source labelled.csv --label class --target new.csv --out run --seed 0",
        "settings": {"seed": 0, "seconds": 3.21, "versions": {"osls": "0.1.0", "numpy": np.__version__}},
    }
    return Answer(**(values | changes))


def table_answer(novel: tuple[int, ...] = (8, 9), seed: int = 0, **changes: Any) -> Answer:
    """Digits as a table of pixels."""
    problem, model = digits_fit(novel, seed)
    names = [f"pixel_{i // 8}_{i % 8}" for i in range(64)]
    source = pd.DataFrame(problem.X_source, columns=names).assign(digit=problem.y_source)
    target = pd.DataFrame(problem.X_target, columns=names)
    return _answer("table", problem, model, target, source, problem.X_target, **changes)


def text_corpus(rng: np.random.Generator, topic: str, n: int) -> list[str]:
    words = TOPICS[topic].split()
    return [
        " ".join(rng.permutation([*rng.choice(words, 6), *rng.choice(FILLER.split(), 8)])) for _ in range(n)
    ]


@cache
def topics_fit(seed: int) -> tuple[OSLSProblem, PULSE, np.ndarray, csr_matrix]:
    """Sentences on five topics, two of them novel, and a model fitted to them once; none may change it."""
    rng = np.random.default_rng(seed)
    y = np.repeat(list(TOPICS), 160)
    texts = np.array([t for topic in TOPICS for t in text_corpus(rng, topic, 160)], dtype=object)
    rows = np.arange(len(y))[:, None]
    problem = simulate_osls(rows, y, novel=["gardening", "astronomy"], random_state=seed)
    vectorizer = TfidfVectorizer().fit(texts)

    def features(part: Any) -> csr_matrix:
        return csr_matrix(vectorizer.transform(texts[part[:, 0]]))

    source, target = features(problem.X_source), features(problem.X_target)
    model = quick_pulse(seed).fit(source, problem.y_source, X_target=target)
    return problem, model, texts, target


def text_answer(seed: int = 0, **changes: Any) -> Answer:
    """Sentences on five topics; gardening and astronomy are novel."""
    problem, model, texts, target = topics_fit(seed)
    return _answer(
        "text",
        problem,
        model,
        pd.DataFrame({"text": texts[problem.X_target[:, 0]]}),
        pd.DataFrame({"text": texts[problem.X_source[:, 0]], "topic": problem.y_source}),
        target,
        **changes,
    )


def image_answer(folder: Path, seed: int = 0, **changes: Any) -> Answer:
    """Digits as PNG files."""
    from PIL import Image

    problem, model = digits_fit((0, 4), seed)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for i, row in enumerate(problem.X_target):
        files.append(folder / f"digit {i:04d}.png")
        pixels = (255 - 255 * row.reshape(8, 8) / 16).astype(np.uint8)
        Image.fromarray(pixels).resize((64, 64), Image.Resampling.BICUBIC).save(files[-1])
    target = pd.DataFrame({"file": list(map(str, files))})
    source = pd.DataFrame({"file": ["unused.png"], "digit": [1]})
    return _answer("images", problem, model, target, source, problem.X_target, **changes)
