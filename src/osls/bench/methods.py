"""Methods by name, each a function from a problem to answers."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from osls._typing import AnyArray, Floats
from osls.base import OpenSetAdapter
from osls.baselines import (
    CMU,
    DANCE,
    KPU,
    UAN,
    BackpropODA,
    DomainDiscriminator,
    OpenSetEM,
    SeparateToAdapt,
    SourceOnly,
)
from osls.datasets import OSLSProblem
from osls.mixture import DEDPUL
from osls.pulse import PULSE
from osls.training.sampling import assign_folds
from osls.training.select import choose_learner

__all__ = ["METHODS", "Answers", "find_method"]


@dataclass(frozen=True)
class Answers:
    """What a method says of the target rows, the test rows, and the target's mix."""

    target_labels: AnyArray
    test_labels: AnyArray
    target_marginal: Floats
    novel_interval: tuple[float, float] | None = None


Method = Callable[[OSLSProblem, int], Answers]


def _adapter(make: Callable[[int], OpenSetAdapter]) -> Method:
    def run(problem: OSLSProblem, seed: int) -> Answers:
        model = make(seed).fit(**problem.training_data())
        return Answers(
            model.target_labels_,
            model.predict(problem.X_test),
            model.target_marginal_,
            getattr(model, "novel_interval_", None),
        )

    return run


def _oracle(problem: OSLSProblem, seed: int) -> Answers:
    """Train the default models with the target's labels: the accuracy nobody without them can expect."""
    names = np.append(problem.classes, problem.novel_label)
    index = {name: i for i, name in enumerate(names.tolist())}
    y = np.array([index[label] for label in problem.y_target.tolist()])
    learner = choose_learner("auto", problem.X_target, max_steps=None, device="auto", n_jobs=None)
    fold = assign_folds(y, 5, np.random.default_rng(seed))
    models = learner.cross_fit(y, np.ones(len(y)), fold, len(names), seed)
    return Answers(
        names[models.scores.argmax(axis=1)],
        names[models.predictor.predict_proba(problem.X_test).argmax(axis=1)],
        problem.target_marginal,
    )


METHODS: dict[str, Method] = {
    "pulse": _adapter(lambda seed: PULSE(random_state=seed)),
    "pulse-bbe": _adapter(lambda seed: PULSE(shift="bbe", random_state=seed)),
    "pulse-mlp": _adapter(
        lambda seed: PULSE(source_classifier="mlp", discriminator="mlp", random_state=seed)
    ),
    "pulse-trees": _adapter(
        lambda seed: PULSE(source_classifier="trees", discriminator="trees", random_state=seed)
    ),
    "pulse-paper": _adapter(lambda seed: PULSE(recipe="paper", random_state=seed)),
    "source-only": _adapter(lambda seed: SourceOnly(random_state=seed)),
    "domain-disc": _adapter(lambda seed: DomainDiscriminator(random_state=seed)),
    "open-set-em": _adapter(lambda seed: OpenSetEM(random_state=seed)),
    "pulse-alternative": _adapter(lambda seed: PULSE(mixture=DEDPUL(), objective="nnpu", random_state=seed)),
    "pulse-separability": _adapter(lambda seed: PULSE(shift="separability", random_state=seed)),
    "k-pu": _adapter(lambda seed: KPU(random_state=seed)),
    "backprop-oda": _adapter(lambda seed: BackpropODA(random_state=seed)),
    "sta": _adapter(lambda seed: SeparateToAdapt(random_state=seed)),
    "uan": _adapter(lambda seed: UAN(random_state=seed)),
    "cmu": _adapter(lambda seed: CMU(random_state=seed)),
    "dance": _adapter(lambda seed: DANCE(random_state=seed)),
    "oracle": _oracle,
}


def find_method(name: str) -> Method:
    """Look a method up by name."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown method {name!r}; known: {', '.join(METHODS)}.{hint}")
    return METHODS[name]
