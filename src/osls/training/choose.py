"""From a model argument ("auto", "trees", an estimator, a network factory) to a learner on pooled rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from osls._core.arrays import AnyArray
from osls._core.names import nearest
from osls._core.progress import Advance, no_progress
from osls.training.effort import EFFORTS, Effort
from osls.training.learners import (
    Blend,
    Fitted,
    Learner,
    NetworkFactory,
    NetworkLearner,
    SklearnLearner,
    convnet,
)
from osls.training.predictors import MAX_DENSE_COLUMNS, FittedClassifier
from osls.training.trainer import Schedule, resolve_device, schedule_for

# A name, a scikit-learn classifier (which has no type), or a function that makes a network.
LearnerSpec = str | NetworkFactory | Any
_NAMES = ("auto", "mlp", "trees", "linear", "convnet")
_WIDE = 64
# With more rows a network is more accurate than a forest of small trees (covtype), and the forests of all
# folds would need many times the memory of the data.
_MANY_ROWS = 50_000
# Steps of a network for images where the effort allows no more than a first look.
_QUICK_STEPS = 300


def choose_learner(
    spec: LearnerSpec,
    X: AnyArray,
    *,
    max_steps: int | None,
    device: str,
    n_jobs: int | None,
    patience: int | None = None,
    advance: Advance = no_progress,
    effort: Effort = EFFORTS["balanced"],
    n_rows: int | None = None,
) -> Learner:
    """Build the learner that a ``source_classifier`` or ``discriminator`` argument asks for.

    ``n_rows`` is the number of rows that it is meant for, if ``X`` is only a sample of them.
    """
    n_rows = n_rows or X.shape[0]

    def network(advance: Advance = advance) -> Learner:
        # A plain MLP that is cross-fitted with cross-entropy can use the short schedule. With many columns
        # more dropout prevents overfitting; with few columns it would lose too much information.
        schedule = Schedule.short(n_rows, steps=max_steps, epochs=effort.epochs)
        schedule = replace(schedule, patience=patience)
        dropout = 0.5 if X.shape[1] >= _WIDE else 0.25
        return NetworkLearner(
            X,
            factory=None,
            schedule=schedule,
            device=resolve_device(device),
            dropout=dropout,
            width=effort.width,
            advance=advance,
        )

    def forest(size: int) -> ExtraTreesClassifier:
        # Leaves grow with the data, which bounds the size of the trees.
        leaf = max(1, n_rows // (20_000 if effort.networks else 10_000))
        return ExtraTreesClassifier(size, min_samples_leaf=leaf, n_jobs=n_jobs)

    def trees(advance: Advance = advance) -> Learner:
        return SklearnLearner(X, forest(effort.trees), advance=advance)

    def trees_beside_networks(advance: Advance) -> Learner:
        sizes = effort.blended_trees
        return SklearnLearner(X, forest(sizes[0]), light=forest(sizes[1]), advance=advance)

    def linear(advance: Advance = advance) -> Learner:
        # The penalty depends on the scale of the columns; those of texts are on one scale already.
        dense = not sparse.issparse(X) or X.shape[1] <= MAX_DENSE_COLUMNS
        # With tens of thousands of columns Newton's method needs half the time of L-BFGS, which spends more
        # on its memory of steps than on the rows. Where scores are only ranked, L-BFGS may stop early.
        model = LogisticRegression(C=10.0, max_iter=200, solver="lbfgs" if dense else "newton-cg")
        light = LogisticRegression(C=10.0, max_iter=60)
        return SklearnLearner(X, model, light=light, standardise=dense, early_stop=True, advance=advance)

    def automatic() -> Learner:
        if not effort.networks:
            return linear() if sparse.issparse(X) else trees()
        if n_rows > _MANY_ROWS and not sparse.issparse(X):
            return network()

        def half(amount: float = 1) -> None:
            advance(amount / 2)

        return Blend(network(half), linear(half) if sparse.issparse(X) else trees_beside_networks(half))

    _check_spec(spec)
    if is_network(spec) and not (X.ndim == 2 and spec in ("auto", "mlp")):
        steps = max_steps or (None if effort.networks else _QUICK_STEPS)
        return choose_network(spec, X, max_steps=steps, patience=patience, device=device, advance=advance)
    if isinstance(spec, str):
        return {"auto": automatic, "mlp": network, "trees": trees, "linear": linear}[spec]()
    return SklearnLearner(X, _check_proba(spec), advance=advance)


def choose_network(
    spec: LearnerSpec,
    X: AnyArray,
    *,
    max_steps: int | None,
    device: str,
    patience: int | None = None,
    advance: Advance = no_progress,
    complaint: str = "a network is needed here; pass 'auto', 'mlp', 'convnet' or a function that makes one.",
) -> NetworkLearner:
    """Build a learner of networks, trained long enough for alternating or adversarial objectives.

    Raises
    ------
    ValueError
        With the message ``complaint``, if ``spec`` is not a network.
    """
    _check_spec(spec)
    if not is_network(spec):
        raise ValueError(complaint)
    factory: NetworkFactory | None = None if isinstance(spec, str) else spec
    if spec == "convnet" or (spec == "auto" and X.ndim == 4):
        factory = convnet
    return NetworkLearner(
        X,
        factory=factory,
        schedule=schedule_for(factory, X.shape[0], steps=max_steps, patience=patience),
        device=resolve_device(device),
        advance=advance,
    )


def is_network(spec: LearnerSpec) -> bool:
    """Whether a model argument is a network, or "auto", which can be one."""
    if isinstance(spec, str):
        return spec in ("auto", "mlp", "convnet")
    return callable(spec) and not (hasattr(spec, "fit") and not isinstance(spec, type))


def accepts_nan(spec: LearnerSpec) -> bool:
    """Whether a model argument is an estimator whose tags say that it takes missing values."""
    if isinstance(spec, str):
        return spec == "trees"
    return hasattr(spec, "__sklearn_tags__") and bool(get_tags(spec).input_tags.allow_nan)


def _check_spec(spec: LearnerSpec) -> None:
    """Raise an error if the argument is not a model."""
    if isinstance(spec, str):
        if spec not in _NAMES:
            hint = nearest(spec, _NAMES)
            raise ValueError(f"unknown model {spec!r}; choose one of {', '.join(_NAMES)}.{hint}")
    elif isinstance(spec, nn.Module):
        raise TypeError(
            "pass a function (input_shape, n_outputs) -> torch.nn.Module, not a module: "
            "each fold needs a new network of its own."
        )
    elif not callable(spec) and not hasattr(spec, "fit"):
        raise TypeError(
            f"cannot use {spec!r} as a model; pass a name, a scikit-learn classifier or a factory."
        )


def as_fitted(spec: LearnerSpec, X: AnyArray, classes: AnyArray) -> Learner | None:
    """Return a learner that uses a fitted source classifier as it is, or None if ``spec`` is not fitted."""
    if isinstance(spec, str | type) or not hasattr(spec, "fit"):
        return None
    try:
        check_is_fitted(spec)
    except NotFittedError:
        return None
    column = {label: i for i, label in enumerate(np.asarray(_check_proba(spec).classes_).tolist())}
    missing = [label for label in classes.tolist() if label not in column]
    if missing:
        raise ValueError(f"the fitted source_classifier does not know the class {missing[0]!r} of y.")
    return Fitted(X, FittedClassifier(spec, [column[label] for label in classes.tolist()]))


def _check_proba(estimator: Any) -> Any:
    if not hasattr(estimator, "predict_proba"):
        raise TypeError(
            f"{type(estimator).__name__} has no predict_proba; "
            "wrap it in sklearn.calibration.CalibratedClassifierCV."
        )
    return estimator
