"""From a study to its cells: one for each (data set, setting, method, draw), with an identity of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from osls.app.bench.methods import MODEL_PARAMETERS
from osls.app.bench.networks import NetworkSpec
from osls.app.bench.paper import PAPER_NAMES
from osls.app.bench.parameters import check_parameters, parameter_names
from osls.app.bench.rows import config_key
from osls.app.bench.study import DataSpec, MethodSpec, Setting, Study

__all__ = ["Cell", "cells_of"]


@dataclass(frozen=True)
class Cell:
    """One run to be: what its row is called, and the config that alone decides its outcome.

    ``config`` has the keys ``data`` (name and split), ``method`` (name and parameters), ``draw``, ``seed``
    and, if the data set has one, ``network``. It can be written as JSON and sent to another machine.
    """

    study: str
    data: str
    setting: str
    method: str
    draw: int
    seed: int
    paper: str | None
    config: dict[str, Any]

    @property
    def key(self) -> str:
        """Identity of the run among the results."""
        return config_key(self.config)

    @property
    def title(self) -> str:
        """The run in a few words."""
        return " ".join(part for part in (self.data, self.setting, self.method, f"draw {self.draw}") if part)


def cells_of(study: Study) -> list[Cell]:
    """Return all runs of a study; those that share a problem are neighbours.

    Raises
    ------
    ValueError
        If two entries of the study come to the same run.
    """
    cells = [
        cell
        for data in study.data
        for setting in data.settings or study.settings or [Setting()]
        for draw in study.draw_numbers
        for method in study.methods
        for cell in _cells_of_method(study, data, setting, method, draw)
    ]
    by_key: dict[str, Cell] = {}
    for cell in cells:
        twin = by_key.setdefault(cell.key, cell)
        if twin is not cell:
            raise ValueError(f"{study.name}: {twin.title!r} and {cell.title!r} are the same run; drop one.")
    names = {(c.data, c.setting, c.method, c.draw) for c in cells}
    if len(names) < len(cells):
        raise ValueError(f"{study.name}: two different runs have the same name; give one of them a label.")
    return cells


def _cells_of_method(
    study: Study, data: DataSpec, setting: Setting, method: MethodSpec, draw: int
) -> Iterator[Cell]:
    split = data.split() | setting.split()
    if study.profile == "paper":
        split = {"rows": "all"} | split
    network = study.network_of(data)
    for label, parameters in method.variants():
        own = {k: v for k, v in study.defaults.items() if k in parameter_names(method.name)}
        config: dict[str, Any] = {
            "data": {"name": data.name, **split},
            "method": _method_config(method.name, own | parameters, study.all_networks),
            "draw": draw,
            "seed": study.seed,
        }
        if data.options:
            config["data"]["options"] = data.options
        if network is not None:
            config["network"] = network.model_dump(mode="json", exclude_none=True)
        paper = None
        if study.paper is not None:
            method_there = method.paper or PAPER_NAMES.get(method.name, method.name)
            paper = "/".join([study.paper, data.paper or data.name, setting.paper or "", method_there])
        name = setting.label or ", ".join(f"{k}={_short(v)}" for k, v in setting.split().items())
        yield Cell(study.name, data.label or data.name, name, label, draw, study.seed, paper, config)


def _method_config(
    name: str, parameters: Mapping[str, Any], networks: Mapping[str, NetworkSpec]
) -> dict[str, Any]:
    """Name and parameters; networks are written out, so that a changed network is another run."""
    checked = check_parameters(name, parameters, networks)
    for key in MODEL_PARAMETERS:
        if checked.get(key) in networks:
            checked[key] = networks[checked[key]].model_dump(mode="json", exclude_none=True)
    return {"name": name, "parameters": checked} if checked else {"name": name}


def _short(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
