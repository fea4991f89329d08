"""Small problems and fast models that the tests share."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from osls import PULSE, baselines, mixture
from osls._core.names import exported_classes
from osls.base import OpenSetAdapter
from osls.baselines import EULAC, KPU, CoLOR, Detector, DomainDiscriminator
from osls.datasets import OSLSProblem, simulate_osls
from osls.mixture import DEDPUL, ElkanNoto, MixtureEstimator, Regroup, Subsample
from osls.testing import blobs, small_problem

__all__ = [
    "ADAPTERS",
    "ESTIMATORS",
    "FOREST",
    "blobs",
    "examples",
    "keep_two_thirds_at_the_top",
    "wait_until",
]

# `make fuzz` runs each property ten thousand times; without the profile each test says how often. No profile
# has a deadline or looks at the clock: a test must pass on a busy machine.
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
settings.register_profile("long", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("long" if LONG else "patient")


# A shell that starts the tests in the background lets them ignore Ctrl-C, and their processes with them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests write and remove tens of thousands of small files, and sync models to the disk: in memory that costs
# nothing. Containers often have little of it.
MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def wait_until(condition: Callable[[], object], seconds: float = 900.0) -> None:
    """Wait for what another process does. The limit is for what never happens, not for what is slow."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this did not happen"
        time.sleep(0.02)


def examples(count: int, *, cases: int = 1) -> settings:
    """So many examples of each case in `make test`; in `make fuzz` the cases share ten thousand."""
    return settings(max_examples=-(-10_000 // cases) if LONG else count, deadline=None)


FOREST = ExtraTreesClassifier(20)
# Fitted in a tenth of the time, for methods in which the source classifier is one part of several.
LINEAR = LogisticRegression()

# What makes an adapter cheap enough for a test, for those that have the parameter.
CHEAP = {
    "source_classifier": LINEAR,
    "discriminator": FOREST,
    "n_trees": 20,
    "max_steps": 50,
    "n_bootstrap": 20,
    "n_folds": 3,
    "random_state": 0,
}
NETWORKS = {**CHEAP, "n_folds": 2}
# The same for PULSE itself.
FORESTS = {
    "source_classifier": FOREST,
    "discriminator": FOREST,
    "n_folds": 3,
    "rounds": 1,
    "n_bootstrap": 20,
    "random_state": 0,
}


def cheap(adapter: type[OpenSetAdapter]) -> OpenSetAdapter:
    known = adapter().get_params()
    chosen = CHEAP if "source_classifier" in known else NETWORKS
    return adapter(**{name: value for name, value in chosen.items() if name in known})


# Every adapter that the package exports, found by looking; the contract tests run on all of them.
ADAPTERS = {
    "pulse-trees": PULSE(**FORESTS),
    "pulse-bbe": PULSE(**FORESTS, shift="bbe"),
    "pulse-mlp": PULSE(
        **{**FORESTS, "source_classifier": "mlp", "discriminator": "mlp", "n_folds": 2}, max_steps=60
    ),
    "pulse-paper": PULSE(recipe="paper", max_steps=40, n_bootstrap=20, random_state=0),
    "pulse-fine-tune": PULSE(recipe="fine-tune", max_steps=40, n_bootstrap=20, random_state=0),
    **{name: cheap(each) for name, each in exported_classes(baselines, OpenSetAdapter).items()},
    # With three folds every sixth answer depends on the order of the rows.
    "domain-disc": cheap(DomainDiscriminator).set_params(n_folds=5),
    # With fewer steps the multipliers have hardly moved.
    "color": CoLOR(max_steps=200, n_folds=2, random_state=0),
    "eulac-mlp": EULAC(model="mlp", source_classifier=LINEAR, max_steps=50, n_folds=2, random_state=0),
    "energy": Detector(kind="energy", max_steps=60, n_folds=2, random_state=0),
    **{
        kind: Detector(kind=kind, source_classifier=LINEAR, n_folds=2, random_state=0)
        for kind in ("mahalanobis", "isolation-forest", "knn", "conformal")
    },
    "k-pu-one-split": KPU(max_steps=100, n_folds=1, random_state=0),
}


@pytest.fixture(scope="session", autouse=True)
def hasty_maps() -> Iterator[None]:
    """The map of a report in fewer steps: it takes longer than all the rest of a report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("osls.app.report.landscape._STEPS", 250)
        yield


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


# Every mixture estimator that the package exports, and more of those with forms.
ESTIMATORS = {
    **{name: each() for name, each in exported_classes(mixture, MixtureEstimator).items()},
    "mean": ElkanNoto("mean"),
    "max": ElkanNoto("max"),
    "regroup-dedpul": Regroup(DEDPUL(), fraction=0.2),
    "subsample": Subsample(keep_two_thirds_at_the_top),
}
