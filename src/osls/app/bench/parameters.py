"""Parameters of methods as a study file writes them, checked by name and type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import signature
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from osls._core.names import unknown
from osls.app.bench.methods import MODEL_PARAMETERS, find_method, make_mixture
from osls.baselines.deep import DeepAdapter
from osls.pu.objectives import NETWORK_OBJECTIVES

__all__ = ["check_parameters", "parameter_names"]

MODELS = ("auto", "mlp", "trees", "linear", "convnet")
# What the benchmark itself decides.
RESERVED = ("callback", "novel_label", "random_state", "verbose")


def parameter_names(name: str) -> list[str]:
    """Return the parameters of a method that a study can set."""
    return [p for p in _annotations(name) if p not in RESERVED]


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
        known = [*networks, *(() if deep else MODELS)]
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
