"""Plain values, numpy's arrays, scalars and random streams, CSR matrices, torch's tensors and devices."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import torch
from scipy import sparse

from osls._core.arrays import AnyArray
from osls.persist.tree import Codec, ModelError, Node, Reader, Writer

_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _write_float(value: float, writer: Writer, where: str) -> dict[str, Node]:
    return {"value": repr(value)}


def _read_float(node: dict[str, Node], reader: Reader, where: str) -> float:
    if node["value"] not in _NOT_FINITE:
        raise ModelError(f"{where} has the float {node['value']!r}; it must be nan, inf or -inf.")
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


# dtypes that safetensors stores directly; others are stored as bytes.
_NATIVE = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64"}
)
_DTYPE = re.compile(r"[<>|=][biufcmMSU]\d+(\[\w+\])?")
_LAST_CHARACTER = 0x10FFFF
# Of a sparse matrix, which may claim any width: hashed words need a million.
_MOST_COLUMNS = 1 << 27


def _dtype(text: Any, where: str) -> np.dtype[Any]:
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ModelError(f"{where} has the dtype {text!r}, which no saved array has.")
    return np.dtype(text)


def _shape(shape: Any, size: int, where: str) -> tuple[int, ...]:
    """Return a shape of exactly ``size`` elements, or raise an error before any memory is allocated."""
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ModelError(f"{where} has the shape {shape!r}; sizes must be integers of at least 0.")
    if math.prod(shape) != size:
        raise ModelError(f"{where} has the shape {shape!r}, but {size} elements are stored.")
    return tuple(shape)


def _check_values(array: AnyArray, where: str) -> AnyArray:
    """Raise an error for invalid booleans and characters, which compiled code does not check."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelError(f"{where} holds bytes that are neither true nor false.")
    if array.dtype.kind == "U" and array.nbytes:
        codes = np.frombuffer(array.tobytes(), dtype=array.dtype.byteorder.replace("|", "=") + "u4")
        if codes.max() > _LAST_CHARACTER:
            raise ModelError(f"{where} holds text with impossible characters.")
    return array


# -- Arrays of numbers and of fixed-width text ------------------------------------------------------


def _write_array(value: AnyArray, writer: Writer, where: str) -> dict[str, Node]:
    if value.dtype == object:
        return _write_objects(value, writer, where)
    if value.dtype.kind not in "biufcmMSU" or value.dtype.itemsize == 0:
        raise ModelError(f"{where} is an array of dtype {value.dtype}, which osls cannot save.")
    node: dict[str, Node] = {}
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        # Keep the memory order: it decides the order of summation, and so the last bits of a product.
        value, node["order"] = value.T, "F"
    dense = np.asarray(value, order="C")
    if dense.dtype.name not in _NATIVE or not dense.dtype.isnative:
        node |= {"dtype": dense.dtype.str, "shape": list(dense.shape)}
        dense = np.frombuffer(dense.tobytes(), np.uint8)
    return {"tensor": writer.add_tensor(dense), **node}


def _read_array(node: dict[str, Node], reader: Reader, where: str) -> AnyArray:
    if "codes" in node:
        return _read_objects(node, reader, where)
    array = reader.tensor(node["tensor"])
    if "dtype" in node:
        dtype = _dtype(node["dtype"], where)
        if dtype.itemsize == 0 or array.nbytes % dtype.itemsize:
            raise ModelError(f"{where} holds {array.nbytes} bytes, no multiple of its dtype {dtype.str}.")
        shape = _shape(node["shape"], array.nbytes // dtype.itemsize, where)
        array = np.frombuffer(array.tobytes(), dtype).reshape(shape).copy()
    array = _check_values(array, where)
    return array.T if node.get("order") == "F" else array


# -- Arrays of Python objects, mostly class names ---------------------------------------------------


def _write_objects(value: AnyArray, writer: Writer, where: str) -> dict[str, Node]:
    """Write each distinct value once, and an index into them for each entry."""
    code_of: dict[Any, int] = {}
    distinct: list[Any] = []
    codes = np.empty(value.size, dtype=np.int64)
    for i, item in enumerate(value.ravel().tolist()):
        # 1, 1.0 and True are equal but have different types.
        key = (type(item), item) if type(item) in (str, int, bool, type(None)) else i
        if key not in code_of:
            code_of[key] = len(distinct)
            distinct.append(item)
        codes[i] = code_of[key]
    values = writer.nodes(distinct, where)
    return {"values": values, "codes": writer.add_tensor(codes), "shape": list(value.shape)}


def _read_objects(node: dict[str, Node], reader: Reader, where: str) -> AnyArray:
    values, codes = reader.values(node["values"], where), reader.tensor(node["codes"])
    shape = _shape(node["shape"], codes.size, where)
    if codes.dtype != np.int64 or (codes.size and not 0 <= codes.min() <= codes.max() < len(values)):
        raise ModelError(f"{where} refers to values that it does not list.")
    array = np.empty(codes.size, dtype=object)
    for i, code in enumerate(codes.ravel().tolist()):
        array[i] = values[code]
    return array.reshape(shape)


# -- Scalars, sparse matrices -----------------------------------------------------------------------


def _write_scalar(value: np.generic, writer: Writer, where: str) -> dict[str, Node]:
    if value.dtype.kind not in "biufcmMSU":
        raise ModelError(f"{where} is a scalar of dtype {value.dtype}, which osls cannot save.")
    if isinstance(value, np.str_ | np.bytes_):
        # numpy drops trailing zeros from fixed-width text, and knows no text of width 0.
        plain = str(value) if isinstance(value, np.str_) else bytes(value).hex()
        return {"dtype": value.dtype.kind, "value": plain}
    return {"dtype": value.dtype.str, "value": value.tobytes().hex()}


def _read_scalar(node: dict[str, Node], reader: Reader, where: str) -> Any:
    if node["dtype"] == "U":
        return np.str_(node["value"])
    data = bytes.fromhex(node["value"])
    if node["dtype"] == "S":
        return np.bytes_(data)
    dtype = _dtype(node["dtype"], where)
    if len(data) != dtype.itemsize:
        raise ModelError(f"{where} holds {len(data)} bytes, but its dtype has {dtype.itemsize}.")
    return _check_values(np.frombuffer(data, dtype), where)[0]


def _write_csr(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    return {
        "array": isinstance(value, sparse.sparray),
        "shape": list(value.shape),
        "data": writer.node(value.data, f"{where}.data"),
        "indices": writer.node(value.indices, f"{where}.indices"),
        "indptr": writer.node(value.indptr, f"{where}.indptr"),
    }


def _read_csr(node: dict[str, Node], reader: Reader, where: str) -> Any:
    kind = sparse.csr_array if node["array"] else sparse.csr_matrix
    parts = tuple(reader.value(node[name], f"{where}.{name}") for name in ("data", "indices", "indptr"))
    shape = tuple(node["shape"])
    if len(shape) != 2 or shape[1] > _MOST_COLUMNS:
        raise ModelError(f"{where} has the shape {shape}; a sparse matrix has two sides, not that long.")
    matrix = kind(parts, shape=shape)
    # Compiled code does not check that an index lies within the matrix.
    matrix.check_format(full_check=True)
    return matrix


# -- torch ------------------------------------------------------------------------------------------


def write_tensor(value: torch.Tensor, writer: Writer, where: str) -> dict[str, Node]:
    """Return the node of a dense tensor."""
    node: dict[str, Node] = {"device": str(value.device)}
    plain = value.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        # numpy has no bfloat16.
        node["bits"], plain = "bfloat16", plain.view(torch.int16)
    return {**node, **_write_array(plain.numpy(), writer, where)}


def read_tensor(node: dict[str, Node], reader: Reader, where: str) -> torch.Tensor:
    """Return the tensor of a node, on its device."""
    # Cloned, so that torch owns the memory.
    tensor = torch.from_numpy(_read_array(node, reader, where)).clone()
    if node.get("bits") == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    return tensor.to(read_device(node["device"]))


def read_device(name: str) -> torch.device:
    """Return the device that was used, or the CPU if it is not available."""
    device = torch.device(name)
    mps = int(torch.backends.mps.is_available())
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": mps}.get(device.type, 0)
    return device if (device.index or 0) < count else torch.device("cpu")


ARRAYS = (
    Codec("array", lambda v, w: type(v) in (np.ndarray, np.memmap), _write_array, _read_array),
    Codec("scalar", lambda v, w: isinstance(v, np.generic), _write_scalar, _read_scalar, shared=False),
    Codec("csr", lambda v, w: isinstance(v, sparse.csr_matrix | sparse.csr_array), _write_csr, _read_csr),
    Codec("tensor", lambda v, w: type(v) is torch.Tensor, write_tensor, read_tensor),
    Codec(
        "device",
        lambda v, w: isinstance(v, torch.device),
        lambda v, w, where: {"name": str(v)},
        lambda node, r, where: read_device(node["name"]),
        shared=False,
    ),
)


_BIT_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}
# Positions inside a generator's buffer -> largest valid value; numpy does not check them.
_POSITIONS = {"pos": 624, "buffer_pos": 4}


def check_state(state: Any, where: str) -> None:
    """Raise an error for the state of a random generator with positions outside of its buffer."""
    if not isinstance(state, dict) or state.get("bit_generator") not in _BIT_GENERATORS:
        raise ModelError(f"{where} is not the state of a random generator of numpy.")
    inner = state.get("state")
    for part in (state, inner if isinstance(inner, dict) else {}):
        for name, largest in _POSITIONS.items():
            if name in part and not (isinstance(part[name], int) and 0 <= part[name] <= largest):
                raise ModelError(f"{where} has {name}={part[name]!r}, outside of 0..{largest}.")


def _write_random_state(value: np.random.RandomState, writer: Writer, where: str) -> dict[str, Node]:
    return {"state": writer.node(value.get_state(legacy=False), where)}


def _read_random_state(node: dict[str, Node], reader: Reader, where: str) -> np.random.RandomState:
    state = reader.value(node["state"], where)
    check_state(state, where)
    # The seed does not matter: the state is set below.
    stream = np.random.RandomState(_BIT_GENERATORS[state["bit_generator"]](0))
    stream.set_state(state)
    return stream


def _write_generator(value: np.random.Generator, writer: Writer, where: str) -> dict[str, Node]:
    return {"state": writer.node(value.bit_generator.state, where)}


def _read_generator(node: dict[str, Node], reader: Reader, where: str) -> np.random.Generator:
    state = reader.value(node["state"], where)
    check_state(state, where)
    bits = _BIT_GENERATORS[state["bit_generator"]](0)
    bits.state = state
    return np.random.Generator(bits)


RANDOMNESS = (
    Codec(
        "RandomState",
        lambda value, writer: type(value) is np.random.RandomState,
        _write_random_state,
        _read_random_state,
    ),
    Codec(
        "Generator",
        lambda value, writer: type(value) is np.random.Generator,
        _write_generator,
        _read_generator,
    ),
)
