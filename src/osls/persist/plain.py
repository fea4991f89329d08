"""Python's own values that JSON lacks."""

from __future__ import annotations

from typing import Any

from osls.persist.errors import ModelError
from osls.persist.tree import Codec, Node, Reader, Writer

__all__ = ["PLAIN"]

_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _write_float(value: float, writer: Writer, where: str) -> dict[str, Node]:
    return {"value": repr(value)}


def _read_float(node: dict[str, Node], reader: Reader, where: str) -> float:
    if node["value"] not in _NOT_FINITE:
        raise ModelError(f"{where} has the float {node['value']!r}; only nan, inf and -inf are written so.")
    return _NOT_FINITE[node["value"]]


def _write_tuple(value: tuple[Any, ...], writer: Writer, where: str) -> dict[str, Node]:
    return {"items": writer.nodes(value, where)}


def _read_tuple(node: dict[str, Node], reader: Reader, where: str) -> tuple[Any, ...]:
    return tuple(reader.values(node["items"], where))


def _write_dict(value: dict[Any, Any], writer: Writer, where: str) -> dict[str, Node]:
    # Pairs, since keys need not be strings.
    return {
        "items": [
            [writer.node(key, f"a key of {where}"), writer.node(item, f"{where}[{key!r}]")]
            for key, item in value.items()
        ]
    }


def _read_dict(node: dict[str, Node], reader: Reader, where: str) -> dict[Any, Any]:
    return {
        reader.value(key, f"a key of {where}"): reader.value(item, f"{where}[...]")
        for key, item in node["items"]
    }


def _is(kind: type) -> Any:
    return lambda value, writer: type(value) is kind


PLAIN = (
    Codec("float", _is(float), _write_float, _read_float, shared=False),
    Codec("tuple", _is(tuple), _write_tuple, _read_tuple, shared=False),
    Codec("dict", _is(dict), _write_dict, _read_dict, shared=False),
)
