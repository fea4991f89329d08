"""Objects to a tree of JSON values with type tags, and back.

``None``, booleans, integers, finite floats, strings and lists are written as they are; everything else is a
JSON object whose key ``$`` says which codec reads it. An object that occurs twice is written once, with a
number under ``#``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sklearn.pipeline import Pipeline

from osls._core.arrays import AnyArray
from osls._core.saving import Kind, marked
from osls.persist.budget import MOST_VALUES, Budget, ModelError, in_short

__all__ = ["Codec", "ModelError", "Node", "Reader", "Writer", "everything", "find", "in_short", "tag_of"]


Node = Any
Factories = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Codec:
    """How to write values of one type as nodes and to read them back. ``where`` is used in error messages."""

    tag: str
    matches: Callable[[Any, Writer], bool]
    encode: Callable[[Any, Writer, str], dict[str, Node]]
    decode: Callable[[dict[str, Node], Reader, str], Any]
    # Whether two references to one object are still references to one object after loading.
    shared: bool = True


class Writer:
    """Turn values into nodes; arrays and scikit-learn's parts go to files of their own.

    Parameters
    ----------
    codecs : iterable of Codec
        The first that matches a value writes it.
    store : callable
        Takes the name and the bytes of a file.
    trusted : tuple of str
        Further types that scikit-learn parts may contain.
    factories : mapping from name to function
        The caller's functions; only their names are saved.
    """

    def __init__(
        self,
        codecs: Iterable[Codec],
        store: Callable[[str, bytes], None],
        trusted: tuple[str, ...],
        factories: Factories,
    ):
        self.store = store
        self.trusted = trusted
        self.factories = factories
        self.tensors: dict[str, AnyArray] = {}
        self.parts = 0
        self._codecs = tuple(codecs)
        # References to the values, so that no new object can get the id of a deleted one.
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._open: set[int] = set()

    def node(self, value: Any, where: str) -> Node:
        """Return the node of a value."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float and math.isfinite(value):
            return value
        if type(value) is list:
            return self._guarded(value, where, lambda: self.nodes(value, where))
        codec = next((codec for codec in self._codecs if codec.matches(value, self)), None)
        if codec is None:
            raise ModelError(_cannot_save(value, where))
        if id(value) in self._numbers:
            return {"$": "same", "#": self._numbers[id(value)][0]}
        node = self._guarded(value, where, lambda: {"$": codec.tag, **codec.encode(value, self, where)})
        if codec.shared:
            node["#"] = len(self._numbers)
            self._numbers[id(value)] = node["#"], value
        return node

    def nodes(self, values: Iterable[Any], where: str) -> list[Node]:
        """Return the nodes of a sequence."""
        return [self.node(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def attributes(self, values: Mapping[str, Any], where: str) -> dict[str, Node]:
        """Return the nodes of named values."""
        return {name: self.node(value, f"{where}.{name}") for name, value in values.items()}

    def add_tensor(self, array: AnyArray) -> str:
        """Add an array to the tensors' file and return its name there."""
        name = str(len(self.tensors))
        self.tensors[name] = array
        return name

    def add_part(self, data: bytes) -> str:
        """Store a scikit-learn part and return the name of its file."""
        name = f"sklearn/{self.parts}.skops"
        self.store(name, data)
        self.parts += 1
        return name

    def _guarded(self, value: Any, where: str, encode: Callable[[], Node]) -> Node:
        if id(value) in self._open:
            raise ModelError(f"{where} contains itself, which cannot be saved.")
        self._open.add(id(value))
        try:
            return encode()
        finally:
            self._open.discard(id(value))


class Reader:
    """Turn nodes back into values.

    Parameters
    ----------
    codecs : iterable of Codec
        How nodes are read, by their tags.
    fetch : callable
        From the name of a file to its verified bytes.
    tensors : mapping from name to array
        The tensors' file.
    trusted, factories
        As for the writer.
    budget : Budget
        What archives may unpack to.
    """

    def __init__(
        self,
        codecs: Iterable[Codec],
        fetch: Callable[[str], bytes],
        tensors: dict[str, AnyArray],
        trusted: tuple[str, ...],
        factories: Factories,
        budget: Budget,
    ):
        self.fetch = fetch
        self.trusted = trusted
        self.factories = factories
        self.budget = budget
        self._tensors = tensors
        self._codecs = {codec.tag: codec for codec in codecs}
        # What may be referred to again, and how many values it consists of.
        self._seen: dict[int, tuple[Any, int]] = {}
        self._values = 0

    def value(self, node: Node, where: str) -> Any:
        """Return the value of a node."""
        self._count(1, where)
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, list):
            return self.values(node, where)
        tag = node.get("$")
        if tag == "same":
            if node.get("#") not in self._seen:
                raise ModelError(f"{where} refers to something that was not read before it.")
            value, size = self._seen[node["#"]]
            self._count(size, where)
            return value
        if tag not in self._codecs:
            raise ModelError(f"{where} has the type tag {tag!r}, which this version of osls does not know.")
        before = self._values
        value = self._codecs[tag].decode(node, self, where)
        if "#" in node and self._codecs[tag].shared:
            self._seen[node["#"]] = value, self._values - before
        return value

    def _count(self, amount: int, where: str) -> None:
        """Count values as if none were shared: whoever walks through the model later meets them all."""
        self._values += amount
        if self._values > MOST_VALUES:
            raise ModelError(f"{where}: the model refers to its parts in too many ways; it is refused.")

    def values(self, nodes: list[Node], where: str) -> list[Any]:
        """Return the values of a list of nodes."""
        return [self.value(node, f"{where}[{i}]") for i, node in enumerate(nodes)]

    def attributes(self, nodes: Mapping[str, Node], where: str) -> dict[str, Any]:
        """Return named values."""
        return {name: self.value(node, f"{where}.{name}") for name, node in nodes.items()}

    def tensor(self, name: Any) -> AnyArray:
        """Return a copy of an array of the tensors' file, once."""
        if not isinstance(name, str) or name not in self._tensors:
            raise ModelError(
                f"the manifest asks for the tensor {name!r}, which tensors.safetensors lacks, "
                "or which was used before."
            )
        # A copy is writable, and aligned like a newly computed array.
        return self._tensors.pop(name).copy()

    def factory(self, name: Any) -> Callable[..., Any]:
        """Return one of the caller's functions."""
        if name not in self.factories:
            raise ModelError(
                f"the model needs your function {name!r}: pass it as load(..., factories={{{name!r}: ...}})."
            )
        return self.factories[name]


def _cannot_save(value: Any, where: str) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return (
        f"{where} is of type {kind}, which osls cannot save; if it is yours and skops can save it, "
        f"pass trusted=[{kind!r}] to save and load."
    )


# Modules with marked classes, the most frequent first. `osls.app` builds on this package, so it is imported
# only when a model contains something that the other modules do not mark.
_HOMES = (
    "osls.pulse",
    "osls.baselines",
    "osls.mixture",
    "osls.shift",
    "osls.pu",
    "osls.training.nets",
    "osls.training.nets.features",
    "osls.app.predict",
)
# Written by this package rather than by skops, which does not know the classes of osls inside it.
_OTHERS = {"Pipeline": Pipeline}


def tag_of(thing: Any, kind: Kind = "class") -> str | None:
    """Return the tag of a class, function or network, or None if it may not be saved."""
    name = getattr(thing, "__name__", "")
    known = _OTHERS.get(name) if kind == "class" and name in _OTHERS else marked(kind).get(name)
    return name if known is thing else None


def find(tag: Any, kind: Kind, where: str) -> Any:
    """Return the class, function or network of a tag; raise an error if it is not marked."""
    if isinstance(tag, str):
        if kind == "class" and tag in _OTHERS:
            return _OTHERS[tag]
        for home in ("", *_HOMES):
            if home:
                _import(home, tag, where)
            if tag in marked(kind):
                return marked(kind)[tag]
    raise ModelError(f"{where} asks for {tag!r}, which is not a type that a saved model may contain.")


def everything(kind: Kind) -> dict[str, Any]:
    """Return all that a model may hold, by tag."""
    for home in _HOMES:
        import_module(home)
    return {**marked(kind), **(_OTHERS if kind == "class" else {})}


def _import(home: str, tag: str, where: str) -> None:
    try:
        import_module(home)
    except ImportError as error:
        raise ModelError(
            f"{where} needs {tag}, which this installation lacks ({in_short(error)})."
        ) from error
