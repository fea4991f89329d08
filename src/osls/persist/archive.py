"""A skops archive before anything in it is built: which types it asks for, how large it gets, what it shares.

skops builds whatever its own list allows, and that list holds all of scikit-learn. Much of scikit-learn hands
the numbers of a model to compiled code that does not check them, so the list here is shorter: what is on it
is either plain Python and numpy, or checked by :mod:`osls.persist.contents`.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib import format as npy

from osls.persist.budget import Budget, check_nesting
from osls.persist.contents import ESTIMATORS, HISTOGRAM_TREE, TREE
from osls.persist.tree import ModelError, in_short

_SIZES = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
_SCALARS = frozenset(f"numpy.{kind}{bits}" for kind, sizes in _SIZES.items() for bits in sizes) | {
    "numpy.bool",
    "numpy.bool_",
}
_TEXTS = frozenset({"numpy.str_", "numpy.bytes_"})
_SPARSE = frozenset({"scipy.sparse._csr.csr_array", "scipy.sparse._csr.csr_matrix"})
_OF_ESTIMATORS = frozenset(
    {
        HISTOGRAM_TREE,
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    }
)
_LOSSES = frozenset(
    {
        "sklearn._loss._loss.CyHalfBinomialLoss",
        "sklearn._loss._loss.CyHalfMultinomialLoss",
        "sklearn.linear_model._sgd_fast.Hinge",
        "sklearn.linear_model._sgd_fast.ModifiedHuber",
        "sklearn.linear_model._sgd_fast.SquaredHinge",
    }
)
# What each of skops's loaders may build. The pair counts: the same name under another loader means another
# call, for example numpy.ndarray([10**6, 10**6]) for a "list" of the class numpy.ndarray.
_BUILDS: dict[str, frozenset[str]] = {
    "DTypeNode": frozenset({"numpy.dtype"}),
    "DictNode": frozenset({"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"}),
    "JsonNode": frozenset({"builtins.str"}),
    "ListNode": frozenset({"builtins.list"}),
    "LossNode": _LOSSES,
    "NdArrayNode": _SCALARS | _TEXTS | {"numpy.ndarray"},
    "ObjectNode": _OF_ESTIMATORS | ESTIMATORS,
    "RandomGeneratorNode": frozenset({"numpy.random._generator.Generator"}),
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState"}),
    "SetNode": frozenset({"builtins.set"}),
    "SliceNode": frozenset({"builtins.slice"}),
    "SparseMatrixNode": _SPARSE,
    "TreeNode": frozenset({TREE}),
    "TupleNode": frozenset({"builtins.tuple"}),
    "TypeNode": _SCALARS | _TEXTS | {"builtins.bool", "builtins.float", "builtins.int", "builtins.str"},
}
# Of these, the ones that skops does not trust by itself.
TOLD_TO_SKOPS = sorted(
    {*_OF_ESTIMATORS, *_SPARSE, *ESTIMATORS, TREE, "numpy.dtype", "sklearn.utils._bunch.Bunch"}
)
_SCHEMA = "schema.json"
# The size of the pool that numpy mixes a seed in; mixing takes the square of it.
_POOL_SIZE = "4"


def untrusted(data: bytes, trusted: tuple[str, ...]) -> list[str]:
    """Return the types in an archive that are neither on the list nor among ``trusted``."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read(_SCHEMA))
    return sorted({_name(node) for node in _nodes(schema) if not _is_allowed(node, trusted)})


def unpacked_size(data: bytes) -> int:
    """Return the number of bytes that an archive unpacks to."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _unpacked(archive)


def check_archive(data: bytes, name: str, budget: Budget, trusted: tuple[str, ...]) -> None:
    """Raise an error for an archive that must not be built: its size, its types, its references.

    ``name`` is the archive's, for messages.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            budget.spend(_unpacked(archive), name)
            text = archive.read(_SCHEMA)
            check_nesting(text, name)
            schema = json.loads(text)
            _check_types(schema, name, trusted)
            _weigh(schema, {}, name)
            _check_references(schema, name)
            _check_arrays(archive, name, budget)
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        # A damaged archive makes zipfile, json and numpy fail in many ways.
        raise ModelError(f"{name} is not a skops archive ({in_short(error)}).") from error


def _unpacked(archive: zipfile.ZipFile) -> int:
    return sum(entry.file_size for entry in archive.infolist())


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a schema."""
    waiting = [value]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, dict):
            if "__loader__" in thing:
                yield thing
            waiting.extend(thing.values())
        elif isinstance(thing, list):
            waiting.extend(thing)


def _name(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _is_allowed(node: dict[str, Any], trusted: tuple[str, ...]) -> bool:
    name = _name(node)
    return name in trusted or name in _BUILDS.get(str(node["__loader__"]), ())


def _check_types(schema: Any, name: str, trusted: tuple[str, ...]) -> None:
    unknown = sorted({_name(node) for node in _nodes(schema) if not _is_allowed(node, trusted)})
    if unknown:
        raise ModelError(
            f"{name} holds the type {', '.join(unknown)}, which is not trusted; if you know where the model "
            f"comes from and trust the type, pass load(..., trusted={unknown!r})."
        )


def _check_references(schema: Any, name: str) -> None:
    """Raise an error for files that several objects use, and for seeds that take forever to mix."""
    number_of_file: dict[str, Any] = {}
    for node in _nodes(schema):
        number = node.get("__id__")
        if "file" in node and (not number or number_of_file.setdefault(str(node["file"]), number) != number):
            raise ModelError(f"{name} uses its file {node['file']!r} for two objects; it is refused.")
        if node["__loader__"] == "RandomGeneratorNode" and _pool_size(node) != _POOL_SIZE:
            raise ModelError(f"{name} holds a random generator with a seed that numpy does not make.")


def _pool_size(node: Any) -> Any:
    return node["content"]["seed_seq"]["content"]["pool_size"]["content"]


def _weigh(value: Any, sizes: dict[Any, int], name: str) -> int:
    """Count the values in a schema; raise an error if one number stands for objects of different sizes.

    skops writes an object again in full wherever it occurs, and takes equal numbers for one object. If they
    were stubs of each other, a hundred nodes could hold 2**100 values. If all have one size, the schema holds
    as many as it shows.
    """
    if isinstance(value, list):
        return 1 + sum(_weigh(item, sizes, name) for item in value)
    if not isinstance(value, dict):
        return 1
    size = 1 + sum(_weigh(item, sizes, name) for item in value.values())
    number = value.get("__id__")
    if number and sizes.setdefault(number, size) != size:
        raise ModelError(f"{name} gives two objects one number; it is refused.")
    return size


def _check_arrays(archive: zipfile.ZipFile, name: str, budget: Budget) -> None:
    """Raise an error for arrays that claim to be larger than they are, also inside archives."""
    for entry in archive.infolist():
        _check_array(archive, entry, name)
        with archive.open(entry) as file:
            is_archive = file.read(2) == b"PK"
        if is_archive:
            with zipfile.ZipFile(io.BytesIO(archive.read(entry))) as inner:
                budget.spend(_unpacked(inner), name)
                for part in inner.infolist():
                    _check_array(inner, part, name)


def _check_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> None:
    with archive.open(entry) as file:
        if file.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            return
    with archive.open(entry) as file:
        if _claimed(file) > entry.file_size:
            raise ModelError(f"{name} holds an array that claims more bytes than there are.")


def _claimed(file: Any) -> int:
    """Return the number of bytes that an npy file's header speaks of."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return math.prod(shape) * np.dtype(dtype).itemsize
