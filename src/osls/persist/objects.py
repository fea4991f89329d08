"""Registered classes: by their own state, by their fields, or as scikit-learn's estimators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest
from torch import nn

from osls.persist.networks import read_net, write_net
from osls.persist.tree import Codec, ModelError, Node, Reader, Writer, find, tag_of

_ROUTING = "_metadata_request"
_METHODS = ("fit", "partial_fit", "predict", "predict_proba", "predict_log_proba", "score")
# Set by fit: learned_, _private, or scikit-learn's n_features_in_. Never __dunder__.
_FITTED = re.compile(r"(?!__)(_[A-Za-z0-9_]*|[A-Za-z][A-Za-z0-9_]*_)")


def _has_state(kind: Any) -> bool:
    return hasattr(kind, "get_state") and hasattr(kind, "from_state")


def _is_named_tuple(kind: Any) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _write_object(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    kind = type(value)
    node: dict[str, Node] = {"of": tag_of(kind)}
    if _has_state(kind):
        return {**node, "state": writer.attributes(value.get_state(), where)}
    if is_dataclass(kind):
        named = {field.name: getattr(value, field.name) for field in fields(kind) if field.init}
        return {**node, "fields": writer.attributes(named, where)}
    if _is_named_tuple(kind):
        return {**node, "fields": writer.attributes(value._asdict(), where)}
    return {**node, **_write_estimator(value, writer, where)}


def _read_object(node: dict[str, Node], reader: Reader, where: str) -> Any:
    kind = find(node["of"], "class", where)
    if _has_state(kind):
        return kind.from_state(reader.attributes(node["state"], where))
    if is_dataclass(kind) or _is_named_tuple(kind):
        _check_names(node["fields"], _field_names(kind), _required(kind), where)
        return kind(**reader.attributes(node["fields"], where))
    return _read_estimator(kind, node, reader, where)


def _field_names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind) if field.init} if is_dataclass(kind) else set(kind._fields)


def _required(kind: Any) -> set[str]:
    """Fields without a default; those that later versions add have one, so that old files can be read."""
    if not is_dataclass(kind):
        return set(kind._fields) - set(kind._field_defaults)
    return {
        field.name
        for field in fields(kind)
        if field.init and field.default is MISSING and field.default_factory is MISSING
    }


def _check_names(given: Mapping[str, Node], known: set[str], required: set[str], where: str) -> None:
    unknown, missing = set(given) - known, required - set(given)
    if unknown or missing:
        wrong = f"unknown {sorted(unknown)[0]!r}" if unknown else f"no {sorted(missing)[0]!r}"
        raise ModelError(
            f"{where} has {wrong}: the model was written by another version of osls, or changed."
        )


# -- Estimators -------------------------------------------------------------------------------------


def _write_estimator(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    params = value.get_params(deep=False)
    # Parameters first, in the order of reading: an object that occurs twice is written at its first place.
    given, learned = writer.attributes(params, where), {}
    unsaved = getattr(value, "unsaved", ())
    for name, item in vars(value).items():
        if name in unsaved:
            continue
        place = f"{where}.{name}"
        if name == _ROUTING:
            learned[name] = {"$": "routing", "requests": _requests(item)}
        elif isinstance(item, nn.ModuleDict):
            learned[name] = write_net(value, item, writer, place)
        elif name not in params:
            if not _FITTED.fullmatch(name):
                raise ModelError(f"{place} is neither a parameter nor set by fit; delete it and save again.")
            learned[name] = writer.node(item, place)
    return {"params": given, "fitted": learned}


def _read_estimator(kind: Any, node: dict[str, Node], reader: Reader, where: str) -> Any:
    # This call is safe: by scikit-learn's convention __init__ only assigns its arguments.
    params = reader.attributes(node["params"], where)
    _check_names(params, set(kind._get_param_names()), set(), where)
    estimator = kind(**params)
    attributes, nets = vars(estimator), {}
    for name, item in node["fitted"].items():
        place = f"{where}.{name}"
        if not _FITTED.fullmatch(name) or callable(getattr(kind, name, None)):
            raise ModelError(f"{place} is not a name that fit sets.")
        tag = item.get("$") if isinstance(item, dict) else None
        if tag == "net":
            nets[name] = item
        elif tag == "routing":
            attributes[name] = _routing(estimator, item["requests"], place)
        else:
            attributes[name] = reader.value(item, place)
    for name, item in nets.items():
        # Last, because the adapter must be complete to say which heads its network has.
        attributes[name] = read_net(estimator, item, reader, f"{where}.{name}")
    return estimator


def _requests(routing: Any) -> dict[str, dict[str, Any]]:
    """Return what ``set_fit_request`` and its like asked of scikit-learn's metadata routing, by method."""
    asked = {method: dict(getattr(routing, method).requests) for method in _METHODS}
    return {method: requests for method, requests in asked.items() if requests}


def _routing(owner: Any, requests: Any, where: str) -> MetadataRequest:
    routing = MetadataRequest(owner=owner)
    for method, wanted in requests.items():
        if method not in _METHODS:
            raise ModelError(f"{where} asks for metadata of the method {method!r}, which has none.")
        for param, alias in wanted.items():
            getattr(routing, method).add_request(param=param, alias=alias)
    return routing


# -- Functions --------------------------------------------------------------------------------------


def _write_function(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    if tag_of(value, "function"):
        return {"of": tag_of(value, "function")}
    for name, function in writer.factories.items():
        if function == value:
            return {"name": name}
    name = getattr(value, "__name__", "")
    name = name if name.isidentifier() else "my_function"
    raise ModelError(
        f"{where} is a function of yours, and functions are not saved: name it with "
        f"factories={{{name!r}: ...}}, the same for save and load."
    )


def _read_function(node: dict[str, Node], reader: Reader, where: str) -> Any:
    return find(node["of"], "function", where) if "of" in node else reader.factory(node["name"])


OBJECTS = (
    Codec("object", lambda value, writer: tag_of(type(value)) is not None, _write_object, _read_object),
    Codec(
        "function",
        lambda value, writer: callable(value) and not isinstance(value, BaseEstimator | nn.Module),
        _write_function,
        _read_function,
        shared=False,
    ),
)
