"""A study: one YAML file that says what is run on what, and the runs that this comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, field_validator, model_validator

from osls._core.names import unknown
from osls.app.bench.config import Strict, config_key, explain, read_yaml
from osls.app.bench.methods import (
    MODEL_PARAMETERS,
    can_split_once,
    check_parameters,
    find_method,
    parameter_names,
)
from osls.app.bench.network_plans import NETWORKS, PAPER_NETWORKS, NetworkSpec, as_in_paper
from osls.datasets import DATASETS

# The paper's tables, as the first column of paper.csv names them: Table 1 with the appendix's full results,
# the ablations of novel share and PU method, pre-training, open set adaptation (section E.5), age prediction.
TABLES = ("main", "novel-fraction", "pu", "pre-training", "osda", "age")
# The paper's names of methods, where they differ from ours.
_PAPER_NAMES = {"pulse-paper": "pulse"}

Share = Annotated[float, Field(ge=0, le=1)]


class Setting(Strict):
    """How a labelled data set becomes a problem; what is left out is the data set's or the simulator's."""

    label: str | None = None
    paper: str | None = None
    rows: PositiveInt | Literal["all"] | None = None
    novel: Annotated[int, Field(ge=0)] | list[int | str] | None = None
    source_fraction: tuple[Share, Share] | None = None
    source_rows: tuple[PositiveInt, PositiveInt] | None = None
    source_marginal: list[Share] | None = None
    target_marginal: list[Share] | None = None
    target_size: PositiveInt | None = None
    test_size: Annotated[float, Field(ge=0, lt=1)] | None = None
    looks: Annotated[float, Field(gt=0)] | None = None

    def split(self) -> dict[str, Any]:
        """What is set of the above that shapes the problem."""
        return self.model_dump(
            exclude_none=True, exclude={"label", "paper"}, include=set(Setting.model_fields)
        )


class DataSpec(Setting):
    """A data set, its split, and its network; ``options`` are those of its loader, such as ``size``."""

    name: str
    options: dict[str, Any] = Field(default={})
    network: str | None = None
    settings: list[Setting] = Field(default=[])

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in DATASETS:
            raise ValueError(unknown("data set", name, DATASETS))
        return name

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        parameters = signature(DATASETS[self.name].load).parameters.values()
        known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        for key in self.options:
            if key not in known:
                raise ValueError(f"options.{key}: {unknown(f'option of {self.name!r}', key, known)}")
        return self


class MethodSpec(Strict):
    """A method with parameters; a grid makes one method of each combination. ``draws`` limits its draws."""

    name: str
    label: str | None = None
    paper: str | None = None
    parameters: dict[str, Any] = Field(default={})
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default={})
    draws: PositiveInt | None = None

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        find_method(name)
        return name

    def variants(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Labels and parameters, one pair for each combination of the grid."""
        for values in product(*self.grid.values()):
            point = dict(zip(self.grid, values, strict=True))
            words = [self.label or self.name, *(f"{key}={value}" for key, value in point.items())]
            yield " ".join(words), self.parameters | point


def _by_name(given: Any) -> Any:
    """A bare name stands for a mapping with nothing else."""
    return {"name": given} if isinstance(given, str) else given


class Study(Strict):
    """Every (data set, setting, method, draw) of a study.

    ``profile`` decides what data sets get that name no network: "cpu" leaves the choice to the methods and
    caps the rows of large data sets; "paper" takes the paper's network and schedule (for the open set methods
    with their own rates), all rows, and one split for every method that can do with one.
    ``defaults`` are parameters for every method that has them. ``paper`` names the table of the paper whose
    figures stand beside ours.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str = ""
    about: str = ""
    profile: Literal["cpu", "paper"] = "cpu"
    paper: str | None = None
    seed: int = Field(default=0, ge=0)
    draws: PositiveInt | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = 3
    data: list[Annotated[DataSpec, BeforeValidator(_by_name)]] = Field(min_length=1)
    settings: list[Setting] = Field(default=[])
    networks: dict[str, NetworkSpec] = Field(default={})
    defaults: dict[str, Any] = Field(default={})
    methods: list[Annotated[MethodSpec, BeforeValidator(_by_name)]] = Field(min_length=1)

    @field_validator("paper")
    @classmethod
    def _known_table(cls, table: str | None) -> str | None:
        if table is not None and table not in TABLES:
            raise ValueError(unknown("table of the paper", table, TABLES))
        return table

    @property
    def draw_numbers(self) -> list[int]:
        """The draws; a number n stands for 0 to n - 1."""
        return list(range(self.draws)) if isinstance(self.draws, int) else self.draws

    @property
    def all_networks(self) -> dict[str, NetworkSpec]:
        """The built-in networks and the study's own, which win."""
        return NETWORKS | self.networks

    def network_of(self, data: DataSpec, method: str) -> NetworkSpec | None:
        """The network for a data set, or None to leave it to the methods."""
        own = PAPER_NETWORKS.get(data.name) if self.profile == "paper" else None
        name = data.network or own
        if name in (None, "auto"):
            return None
        spec = self.all_networks[name]
        return as_in_paper(spec, method) if self.profile == "paper" else spec

    def defaults_of(self, method: str) -> dict[str, Any]:
        """The study's defaults that a method has; in the profile "paper" also one split, if it takes that."""
        split = {"n_folds": 1} if self.profile == "paper" and can_split_once(method) else {}
        return split | {k: v for k, v in self.defaults.items() if k in parameter_names(method)}

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        for i, data in enumerate(self.data):
            if data.network not in (None, "auto", *self.all_networks):
                known = ["auto", *self.all_networks]
                raise ValueError(f"data[{i}].network: {unknown('network', data.network, known)}")
        self._check_defaults()
        for i, method in enumerate(self.methods):
            for _, parameters in method.variants():
                self._check_parameters(i, method, parameters)
        return self

    def _check_defaults(self) -> None:
        known = {p for method in self.methods for p in parameter_names(method.name)}
        for key in self.defaults:
            if key not in known:
                raise ValueError(f"defaults.{key}: {unknown('parameter of the methods here', key, known)}")

    def _check_parameters(self, i: int, method: MethodSpec, parameters: dict[str, Any]) -> None:
        try:
            check_parameters(method.name, parameters, self.all_networks)
        except ValueError as error:
            raise ValueError(f"methods[{i}].parameters.{error}") from None


def parse_study(content: dict[str, Any], source: str = "study") -> Study:
    """Validate the content of a study file; every problem in it is named with its path."""
    try:
        return Study.model_validate(content)
    except ValidationError as error:
        lines = explain(error).splitlines()
        raise ValueError("\n".join(f"{source}: {line}" for line in lines)) from None


def load_study(path: Path) -> Study:
    r"""Read and validate a study file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from osls.app.bench.study import load_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "mine.yml"
    ...     _ = file.write_text("name: mine\ndata: [digits]\nmethods: [pulse, source-only]\ndraws: 2\n")
    ...     study = load_study(file)
    >>> [method.name for method in study.methods], study.draw_numbers
    (['pulse', 'source-only'], [0, 1])
    """
    return parse_study(read_yaml(path), str(path))


# -- Runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run of a study: the names in its row, and the config that alone decides its outcome.

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
        """Data set, setting, method and draw."""
        return " ".join(part for part in (self.data, self.setting, self.method, f"draw {self.draw}") if part)


def runs_of(study: Study) -> list[Run]:
    """Return all runs of a study, those of one problem next to each other.

    Raises
    ------
    ValueError
        If two entries of the study mean the same run, or two runs have the same name.
    """
    runs = [
        run
        for data in study.data
        for setting in data.settings or study.settings or [Setting()]
        for number, draw in enumerate(study.draw_numbers)
        for method in study.methods
        if method.draws is None or number < method.draws
        for run in _runs_of_method(study, data, setting, method, draw)
    ]
    _check_distinct(study, runs)
    return runs


def _check_distinct(study: Study, runs: list[Run]) -> None:
    by_key: dict[str, Run] = {}
    for run in runs:
        twin = by_key.setdefault(run.key, run)
        if twin is not run:
            raise ValueError(f"{study.name}: {twin.title!r} and {run.title!r} are the same run; drop one.")
    names = {(run.data, run.setting, run.method, run.draw) for run in runs}
    if len(names) < len(runs):
        raise ValueError(f"{study.name}: two different runs have the same name; give one of them a label.")


def _runs_of_method(
    study: Study, data: DataSpec, setting: Setting, method: MethodSpec, draw: int
) -> Iterator[Run]:
    name = setting.label or ", ".join(f"{k}={_short(v)}" for k, v in setting.split().items())
    paper = _paper_key(study, data, setting, method)
    for label, parameters in method.variants():
        own = study.defaults_of(method.name)
        config: dict[str, Any] = {
            "data": _data_config(study, data, setting),
            "method": _method_config(method.name, own | parameters, study.all_networks),
            "draw": draw,
            "seed": study.seed,
        }
        network = study.network_of(data, method.name)
        if network is not None:
            config["network"] = network.model_dump(mode="json", exclude_none=True)
        yield Run(study.name, data.label or data.name, name, label, draw, study.seed, paper, config)


def _paper_key(study: Study, data: DataSpec, setting: Setting, method: MethodSpec) -> str | None:
    """Where the paper has this figure: table, data set, setting and method."""
    if study.paper is None:
        return None
    name = method.paper or _PAPER_NAMES.get(method.name, method.name)
    return "/".join([study.paper, data.paper or data.name, setting.paper or "", name])


def _data_config(study: Study, data: DataSpec, setting: Setting) -> dict[str, Any]:
    """Name, split and options of the loader."""
    all_rows = {"rows": "all"} if study.profile == "paper" else {}
    options = {"options": data.options} if data.options else {}
    return {"name": data.name, **all_rows, **data.split(), **setting.split(), **options}


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
