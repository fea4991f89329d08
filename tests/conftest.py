"""Small problems and fast models that the tests share."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier

from osls import PULSE
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
from osls.datasets import OSLSProblem, simulate_osls
from osls.mixture import BBE, DEDPUL, ElkanNoto, Regroup, Subsample
from osls.testing import blobs, small_problem

__all__ = ["ADAPTERS", "ESTIMATORS", "FOREST", "blobs", "examples", "keep_two_thirds_at_the_top"]

# `make fuzz` runs each property ten thousand times; without the profile each test says how often.
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
settings.register_profile("long", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
if LONG:
    settings.load_profile("long")


def examples(count: int, *, cases: int = 1) -> settings:
    """So many examples of each case in `make test`; in `make fuzz` the cases share ten thousand."""
    return settings(max_examples=-(-10_000 // cases) if LONG else count, deadline=None)


FOREST = ExtraTreesClassifier(20)

# Every adapter in the package, cheap enough for a test. The contract tests run on all of them.
ADAPTERS = {
    "pulse-trees": PULSE(source_classifier=FOREST, discriminator=FOREST, rounds=1, random_state=0),
    "pulse-bbe": PULSE(source_classifier=FOREST, discriminator=FOREST, shift="bbe", rounds=1, random_state=0),
    "pulse-mlp": PULSE(
        source_classifier="mlp", discriminator="mlp", max_steps=60, n_folds=2, rounds=1, random_state=0
    ),
    "pulse-paper": PULSE(recipe="paper", max_steps=60, random_state=0),
    "pulse-fine-tune": PULSE(recipe="fine-tune", max_steps=60, random_state=0),
    "source-only": SourceOnly(source_classifier=FOREST, random_state=0),
    "domain-disc": DomainDiscriminator(source_classifier=FOREST, discriminator=FOREST, random_state=0),
    "open-set-em": OpenSetEM(source_classifier=FOREST, random_state=0),
    "k-pu": KPU(max_steps=100, n_folds=2, random_state=0),
    "k-pu-one-split": KPU(max_steps=100, n_folds=1, random_state=0),
    "backprop-oda": BackpropODA(max_steps=100, random_state=0),
    "sta": SeparateToAdapt(max_steps=100, random_state=0),
    "uan": UAN(max_steps=100, random_state=0),
    "cmu": CMU(max_steps=100, random_state=0),
    "dance": DANCE(max_steps=100, random_state=0),
}


@pytest.fixture(scope="session")
def problem() -> OSLSProblem:
    """Three known classes, one novel, four well separated blobs."""
    return small_problem()


@pytest.fixture(scope="session")
def digits_problem() -> OSLSProblem:
    """Digits of which 8 and 9 are novel."""
    return simulate_osls(*load_digits(return_X_y=True), novel=[8, 9], random_state=1)


def keep_two_thirds_at_the_top(score):
    return np.where(score > 0.5, 2 / 3, 1.0)


ESTIMATORS = {
    "bbe": BBE(),
    "dedpul": DEDPUL(),
    "ratio": ElkanNoto("ratio"),
    "mean": ElkanNoto("mean"),
    "max": ElkanNoto("max"),
    "regroup": Regroup(),
    "regroup-dedpul": Regroup(DEDPUL(), fraction=0.2),
    "subsample": Subsample(keep_two_thirds_at_the_top),
}
