"""Methods by name: an adapter with checked parameters, and what it answers on a problem."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import Any, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from osls import baselines, mixture
from osls._core.arrays import AnyArray, Floats
from osls._core.names import exported_classes, unknown
from osls._core.progress import History
from osls.app.bench.network_plans import NetworkPlan, NetworkSpec
from osls.base import OpenSetAdapter
from osls.baselines.deep import DeepAdapter
from osls.datasets import OSLSProblem
from osls.mixture import MixtureEstimator
from osls.pu.objectives import NETWORK_OBJECTIVES
from osls.pulse import PULSE
from osls.training.choose import choose_learner
from osls.training.sampling import assign_folds

# Called after an epoch with its number and the target's probabilities.
Follow = Callable[[int, Floats], None]

# Whatever the packages export has a name here.
MIXTURES = exported_classes(mixture, MixtureEstimator)
# Parameters that take a model or a network.
MODEL_PARAMETERS = ("source_classifier", "discriminator", "network")
_MODELS = ("auto", "mlp", "trees", "linear", "convnet")
# Parameters that the benchmark sets itself.
_RESERVED = ("callback", "novel_label", "random_state", "verbose")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Method:
    """An adapter and the parameters that make it this method; the oracle has no adapter.

    ``told`` names a parameter that is set to the true novel share, which favours the method.
    """

    adapter: type[OpenSetAdapter] | None
    preset: Mapping[str, Any] = field(default_factory=dict)
    told: str | None = None


@dataclass(frozen=True)
class Answers:
    """What a method says of the target rows, the test rows, and the target's mix, and how it got there.

    ``class_shares`` are the known classes' shares before they were made a mix, of methods that have them.
    """

    target_labels: AnyArray
    test_labels: AnyArray
    target_marginal: Floats
    novel_interval: tuple[float, float] | None = None
    novelty_pvalue: float | None = None
    verdict: str | None = None
    cause: str | None = None
    history: History = field(default_factory=list)
    known_score: Floats | None = None
    known_labels: AnyArray | None = None
    target_proba: Floats | None = None
    class_shares: Floats | None = None


# Kinds of novelty detectors beside the default one, by their names here.
_DETECTORS = {"energy": "energy", "mahalanobis": "mahalanobis", "isolation-forest": "isolation-forest"}
_DETECTORS |= {"knn-distance": "knn", "conformal": "conformal"}

METHODS: dict[str, Method] = {
    "pulse": Method(PULSE),
    "pulse-bbe": Method(PULSE, {"shift": "bbe"}),
    "pulse-mlp": Method(PULSE, {"source_classifier": "mlp", "discriminator": "mlp"}),
    "pulse-trees": Method(PULSE, {"source_classifier": "trees", "discriminator": "trees"}),
    "pulse-aligned": Method(PULSE, {"align": True}),
    "pulse-paper": Method(PULSE, {"recipe": "paper"}),
    "pulse-alternative": Method(PULSE, {"mixture": "dedpul", "objective": "nnpu"}),
    "pulse-paper-alternative": Method(PULSE, {"recipe": "paper", "mixture": "dedpul", "objective": "nnpu"}),
    "pulse-separability": Method(PULSE, {"shift": "separability"}),
    **{name: Method(each) for name, each in exported_classes(baselines, OpenSetAdapter).items()},
    "k-pu-alternative": Method(baselines.KPU, {"mixture": "dedpul", "objective": "nnpu"}),
    "sta-original": Method(baselines.SeparateToAdapt, {"original": True}),
    **{name: Method(baselines.Detector, {"kind": kind}) for name, kind in _DETECTORS.items()},
    # At the true novel share: their names say that they were told.
    **{
        f"{name}-oracle": Method(baselines.Detector, {"kind": kind}, told="share")
        for name, kind in {"max-softmax": "max-softmax", **_DETECTORS}.items()
    },
    "lacforest-oracle": Method(baselines.LACForest, told="novel_share"),
    "oracle": Method(None),
}


def find_method(name: str) -> Method:
    """Look a method up by name, or import it: ``package.module:Class`` or ``file.py:Class``."""
    if ":" in name:
        return Method(_import_adapter(name))
    if name.endswith(".py"):
        raise ValueError(f"method {name!r}: which class of that file? Write {name}:MyAdapter.")
    if name not in METHODS:
        raise ValueError(unknown("method", name, METHODS))
    return METHODS[name]


@cache
def _import_adapter(name: str) -> type[OpenSetAdapter]:
    """Import an adapter of the user's own; its code runs, as that of any import does."""
    place, _, attribute = name.rpartition(":")
    try:
        if place.endswith(".py"):
            found: Any = runpy.run_path(place).get(attribute)
        else:
            found = getattr(import_module(place), attribute, None)
    except Exception as error:  # the user's own code, which fails in its own ways
        what = str(error) if isinstance(error, ImportError | OSError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"method {name!r}: {place} cannot be imported ({what}).") from None
    if not (isinstance(found, type) and issubclass(found, OpenSetAdapter)):
        raise ValueError(f"method {name!r}: there is no subclass of osls.base.OpenSetAdapter of that name.")
    return found


def make_mixture(value: Any) -> Any:
    """Make a mixture estimator from its name, or from a mapping with ``name`` and its parameters."""
    options = {"name": value} if isinstance(value, str) else dict(value)
    name = options.pop("name", None)
    if name not in MIXTURES:
        raise ValueError(unknown("mixture", name, MIXTURES))
    known = signature(MIXTURES[name]).parameters
    for key in options:
        if key not in known:
            raise ValueError(unknown(f"parameter of {name!r}", key, known))
    return MIXTURES[name](**options)


# -- Parameters, as a study file writes them -------------------------------------------------------------


def parameter_names(name: str) -> list[str]:
    """Return the parameters of a method that a study can set."""
    return [p for p in _annotations(name) if p not in _RESERVED]


@cache
def _annotations(name: str) -> dict[str, Any]:
    """Parameters of a method with their types, those shared with a parent included."""
    adapter = find_method(name).adapter
    if adapter is None:
        return {"max_steps": int | None}
    hints: dict[str, Any] = {}
    for base in reversed(adapter.__mro__):
        if "__init__" in vars(base) and base is not object:
            hints |= get_type_hints(vars(base)["__init__"])
    return {p: hints.get(p, Any) for p in signature(adapter).parameters}


def can_split_once(name: str) -> bool:
    """Whether a method takes ``n_folds=1``: one model, a fifth of the rows held out, as in the paper."""
    adapter: Any = find_method(name).adapter
    bases = () if adapter is None else adapter.__mro__
    constraints = [vars(base).get("parameter_constraints", {}) for base in bases]
    own = next((each["n_folds"] for each in constraints if "n_folds" in each), None)
    return own is not None and own.complaint(1) is None


def check_parameters(name: str, parameters: Mapping[str, Any], networks: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's parameters with their types put right; a ValueError names the wrong one.

    Parameters
    ----------
    name : str
        The method.
    parameters : mapping
        As a study file has them: models and mixtures by name.
    networks : mapping
        The networks that the study may name.
    """
    allowed = parameter_names(name)
    checked = {}
    for key, value in parameters.items():
        if key not in allowed:
            raise ValueError(f"{key}: {unknown(f'parameter of {name!r}', key, allowed)}")
        try:
            checked[key] = _check_value(name, key, value, networks)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return checked


def _check_value(name: str, key: str, value: Any, networks: Mapping[str, Any]) -> Any:
    if key in MODEL_PARAMETERS:
        # The five deep methods put heads of their own on a body; a whole model is of no use to them.
        deep = issubclass(find_method(name).adapter or object, DeepAdapter)
        known = [*networks, *(() if deep else _MODELS)]
        if value not in known:
            raise ValueError(unknown("model", value, known))
        return value
    if key == "mixture":
        make_mixture(value)
        return value
    if key == "objective" and value not in ("cvir", *NETWORK_OBJECTIVES):
        raise ValueError(unknown("objective", value, ("cvir", *NETWORK_OBJECTIVES)))
    annotation = _annotations(name)[key]
    try:
        adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{error.errors()[0]['msg']}; got {value!r}.") from None


# -- Runs ------------------------------------------------------------------------------------------------


def run_method(
    name: str,
    problem: OSLSProblem,
    *,
    seed: int,
    parameters: Mapping[str, Any] = _NOTHING,
    network: NetworkPlan | None = None,
    follow: Follow | None = None,
) -> Answers:
    """Fit a method on a problem and collect its answers.

    Parameters
    ----------
    name : str
        A key of ``METHODS``.
    problem : OSLSProblem
        Only the oracle, and methods that are told the novel share, see more of it than ``training_data()``
        and ``X_test``.
    seed : int
        Seed of the fit.
    parameters : mapping
        In a study's notation, checked; models that are networks as a mapping of ``NetworkSpec``.
    network : NetworkPlan, optional
        The network of the data set, for every model that the parameters leave open.
    follow : callable, optional
        Called after every epoch by the methods that have epochs.
    """
    method = find_method(name)
    if method.adapter is None:
        return _oracle(problem, seed, network, parameters.get("max_steps"))
    if method.told is not None:
        parameters = {**parameters, method.told: float(problem.target_marginal[-1])}
    model = _build(method, seed, parameters, network, follow).fit(**problem.training_data())
    diagnostics = getattr(model, "diagnostics_", None)
    return Answers(
        model.target_labels_,
        model.predict(problem.X_test) if len(problem.y_test) else problem.y_test,
        model.target_marginal_,
        novel_interval=getattr(model, "novel_interval_", None),
        novelty_pvalue=getattr(model, "novelty_pvalue_", None),
        verdict=None if diagnostics is None else str(diagnostics.verdict.status),
        cause=diagnostics.cause.name if diagnostics is not None and diagnostics.cause is not None else None,
        history=list(model.history_),
        known_score=getattr(model, "known_score_", None),
        known_labels=getattr(model, "known_labels_", None),
        target_proba=model.target_proba_,
        class_shares=getattr(model, "class_shares_", None),
    )


def _build(
    method: Method,
    seed: int,
    parameters: Mapping[str, Any],
    network: NetworkPlan | None,
    follow: Follow | None,
) -> OpenSetAdapter:
    assert method.adapter is not None
    known = signature(method.adapter).parameters
    chosen: dict[str, Any] = dict(method.preset) | dict(parameters)
    if network is not None:
        chosen = {p: network for p in MODEL_PARAMETERS if p in known} | chosen
    for key in MODEL_PARAMETERS:
        if isinstance(chosen.get(key), dict):
            vectors = None if network is None else network.vectors
            chosen[key] = NetworkPlan(NetworkSpec.model_validate(chosen[key]), vectors)
    if chosen.get("mixture") is not None:
        chosen["mixture"] = make_mixture(chosen["mixture"])
    if follow is not None and "callback" in known:
        chosen["callback"] = follow
    return method.adapter(**chosen, random_state=seed)


def _oracle(problem: OSLSProblem, seed: int, network: NetworkPlan | None, max_steps: int | None) -> Answers:
    """Train the default models with the target's labels: the accuracy nobody without them can expect."""
    names = np.append(problem.classes, problem.novel_label)
    index = {name: i for i, name in enumerate(names.tolist())}
    y = np.array([index[label] for label in problem.y_target.tolist()])
    learner = choose_learner(
        network or "auto", problem.X_target, max_steps=max_steps, device="auto", n_jobs=None
    )
    fold = assign_folds(y, 5, np.random.default_rng(seed))
    models = learner.cross_fit(y, np.ones(len(y)), fold, len(names), seed)
    answer = names[:0]
    if len(problem.y_test):
        answer = names[models.predictor.predict_proba(problem.X_test).argmax(axis=1)]
    labels = names[models.scores.argmax(axis=1)]
    return Answers(labels, answer, problem.target_marginal, target_proba=models.scores)
