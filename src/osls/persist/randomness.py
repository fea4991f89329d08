"""numpy's random streams, which may be a parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from osls.persist.errors import ModelError
from osls.persist.tree import Codec, Node, Reader, Writer

__all__ = ["RANDOMNESS"]

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
# Positions inside a block of random words, which numpy itself does not check: name -> largest.
_POSITIONS = {"pos": 624, "buffer_pos": 4}


def _check_state(state: Any, where: str) -> None:
    """Refuse positions outside the generator's block."""
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
    _check_state(state, where)
    # Seeded only to have a stream whose state can be set.
    stream = np.random.RandomState(_BIT_GENERATORS[state["bit_generator"]](0))
    stream.set_state(state)
    return stream


def _write_generator(value: np.random.Generator, writer: Writer, where: str) -> dict[str, Node]:
    return {"state": writer.node(value.bit_generator.state, where)}


def _read_generator(node: dict[str, Node], reader: Reader, where: str) -> np.random.Generator:
    state = reader.value(node["state"], where)
    _check_state(state, where)
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
