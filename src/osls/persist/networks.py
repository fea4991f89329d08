"""Torch networks: those of osls by constructor arguments, the user's by the function that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from osls.persist.tree import Codec, ModelError, Node, Reader, Writer, find, tag_of
from osls.persist.values import read_device, read_tensor, write_tensor
from osls.training.learners import Members
from osls.training.predictors import Encoder, Networks, Verbatim
from osls.training.trainer import as_tensor, undisturbed

_PROBE_ROWS = 8


# -- Fold networks of a learner ---------------------------------------------------------------------


def _write_networks(value: Networks, writer: Writer, where: str) -> dict[str, Node]:
    rows = _probe(value.encoder, value.device)
    arguments = (_row_shape(value.encoder), int(value.logits(rows).shape[2]))
    if isinstance(value.networks, Members):
        kept: Node = [
            _write_network(network, arguments, rows, writer, f"{where}.networks[{i}]")
            for i, network in enumerate(value.networks.networks)
        ]
    else:
        kept = _write_network(value.networks, arguments, rows, writer, f"{where}.networks")
    return {
        "encoder": writer.node(value.encoder, f"{where}.encoder"),
        "networks": kept,
        "members": value.members,
        "device": str(value.device),
    }


def _read_networks(node: dict[str, Node], reader: Reader, where: str) -> Networks:
    encoder = reader.value(node["encoder"], f"{where}.encoder")
    if not isinstance(encoder, Encoder) or type(node["members"]) is not int or node["members"] < 1:
        raise ModelError(f"{where} is not a stack of networks with an encoder.")
    kept, device = node["networks"], read_device(node["device"])
    networks: nn.Module
    if isinstance(kept, list):
        networks = Members([_read_network(item, reader, f"{where}[{i}]") for i, item in enumerate(kept)])
        count = len(kept)
    else:
        networks, count = _read_network(kept, reader, where), kept["arguments"][0]
    if count != node["members"]:
        raise ModelError(f"{where} has {count} networks where {node['members']} are announced.")
    return Networks(encoder, networks.to(device).eval(), node["members"], device)


NETWORK_PREDICTORS = (
    Codec("networks", lambda value, writer: isinstance(value, Networks), _write_networks, _read_networks),
)


# -- A backbone with heads --------------------------------------------------------------------------


def write_net(adapter: Any, net: nn.ModuleDict, writer: Writer, where: str) -> dict[str, Node]:
    """Return the node of an adapter's network: its backbone, and the state of the heads."""
    heads = {name: head for name, head in net.items() if name != "features"}
    device = next(net.parameters()).device
    rows, arguments = _probe(adapter._encoder, device), (_row_shape(adapter._encoder),)
    return {
        "$": "net",
        "features": _write_network(net["features"], arguments, rows, writer, where),
        "heads": {name: _write_state(head, writer, f"{where}.{name}") for name, head in heads.items()},
        "device": str(device),
    }


def read_net(adapter: Any, node: dict[str, Node], reader: Reader, where: str) -> nn.ModuleDict:
    """Return the network of an adapter that has its parameters and classes already."""
    features: Any = _read_network(node["features"], reader, where)
    with torch.device("meta"):
        heads = adapter._heads(int(features.out_features), len(adapter.classes_) - 1)
    if set(heads) != set(node["heads"]):
        raise ModelError(f"{where} has the heads {sorted(node['heads'])} where {sorted(heads)} belong.")
    for name, head in heads.items():
        head.load_state_dict(_read_state(node["heads"][name], reader, f"{where}.{name}"), assign=True)
    net = nn.ModuleDict({"features": features, **heads})
    return net.to(read_device(node["device"])).eval()


# -- One network ------------------------------------------------------------------------------------


def _write_network(
    network: nn.Module, arguments: tuple[Any, ...], rows: Tensor, writer: Writer, where: str
) -> dict[str, Node]:
    """Return the node of a network; ``arguments`` and ``rows`` are used if a user's function made it."""
    state = _write_state(network, writer, where)
    tag = tag_of(type(network), "network")
    if tag is not None:
        own: Any = network
        return {"of": tag, "arguments": _as_lists(own.arguments), "state": state}
    return {
        "factory": _maker(network, arguments, rows, writer, where),
        "arguments": _as_lists(arguments),
        "state": state,
    }


def _read_network(node: dict[str, Node], reader: Reader, where: str) -> nn.Module:
    state = _read_state(node["state"], reader, where)
    arguments = _as_tuples(node["arguments"])
    if "factory" in node:
        # Forked, so that the initial weights, which are overwritten, do not change the caller's random state.
        with undisturbed():
            made: nn.Module = reader.factory(node["factory"])(*arguments)
        made.load_state_dict(state)
        return made.eval()
    # The meta device allocates no memory, so a damaged file cannot ask for a huge network.
    with torch.device("meta"):
        network: nn.Module = find(node["of"], "network", where)(*arguments)
    network.load_state_dict(state, assign=True)
    return network.eval()


def _maker(network: nn.Module, arguments: tuple[Any, ...], rows: Tensor, writer: Writer, where: str) -> str:
    """Return the name of the user's function that rebuilds a network with identical outputs."""
    wanted = _outputs(network, rows)
    for name, factory in writer.factories.items():
        if _rebuilds(factory, arguments, network, rows, wanted):
            return name
    if not writer.factories:
        raise ModelError(
            f"{where} is a network that a function of yours made, and functions are not saved: name it with "
            "factories={'my_network': ...}, the same for save and load."
        )
    raise ModelError(
        f"{where} is a network that none of factories= rebuilds: called with {arguments} and given the "
        "network's weights, it must return a network with the same outputs."
    )


def _rebuilds(
    factory: Callable[..., Any], arguments: tuple[Any, ...], network: nn.Module, rows: Tensor, wanted: Tensor
) -> bool:
    try:
        with undisturbed():
            twin = factory(*arguments).to(rows.device)
        twin.load_state_dict(network.state_dict())
        return torch.equal(_outputs(twin, rows), wanted)
    except Exception:
        # A function that makes another network may fail in any way: then it is not the one.
        return False


def _outputs(network: nn.Module, rows: Tensor) -> Tensor:
    with torch.inference_mode():
        outputs: Tensor = network.eval()(rows)
    return outputs


def _write_state(network: nn.Module, writer: Writer, where: str) -> dict[str, Node]:
    return {
        name: write_tensor(tensor, writer, f"{where}.{name}") for name, tensor in network.state_dict().items()
    }


def _read_state(nodes: dict[str, Node], reader: Reader, where: str) -> dict[str, Tensor]:
    return {
        name: read_tensor({**node, "device": "cpu"}, reader, f"{where}.{name}")
        for name, node in nodes.items()
    }


def _row_shape(encoder: Encoder) -> tuple[int, ...]:
    """Shape of one row as the networks see it."""
    row = np.zeros((1, *encoder.row_shape), dtype=np.float32)
    return tuple(as_tensor(row, torch.device("cpu")).shape[1:])


def _probe(encoder: Encoder, device: torch.device) -> Tensor:
    """Return a few made-up rows to compare networks on."""
    rng = np.random.default_rng(0)
    shape = (_PROBE_ROWS, *encoder.row_shape)
    # Rows that are not standardised may be token ids, of which 0 and 1 always exist.
    rows = rng.integers(2, size=shape) if isinstance(encoder, Verbatim) else rng.standard_normal(shape)
    return as_tensor(rows, device)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple | list) else value


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value
