"""The options of ``osls adapt`` and ``osls monitor``: defaults, checks, and the line that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from osls.pulse import PULSE

Method = Literal["pulse", "pulse-paper"]
TextMode = Literal["auto", "tfidf", "minilm", "both"]
ImageMode = Literal["auto", "efficientnet", "scratch"]
Against = Literal["fit", "first"]
Higher = Literal["new", "known"]
EffortName = Literal["balanced", "quick", "best"]

# Fewer rows than this on either side are too few to fit on.
MIN_ROWS = 20
# A first look at this many rows: the sampling error of a share is below 0.4%, and more cost time.
QUICK_ROWS = 20_000
# The command uses all cores unless told otherwise; a call in Python uses one, as scikit-learn does.
ALL_CORES = -1
_LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class AdaptOptions:
    """How to adapt; :func:`osls.adapt` says what each option means.

    Attributes
    ----------
    parameters : mapping
        Further parameters of :class:`osls.PULSE`.
    """

    label: str | None = None
    id: tuple[str, ...] = ()
    method: Method | PULSE = "pulse"
    level: float = 0.95
    random_state: int = 0
    text: TextMode = "auto"
    images: ImageMode = "auto"
    ignore: tuple[str, ...] = ()
    novel_label: str = "novel"
    ignore_target_label: bool = False
    allow_one_class: bool = False
    effort: EffortName = "balanced"
    max_rows: int | None = None
    n_jobs: int | None = None
    verbose: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Numbers of NumPy become numbers of Python, whose text can be read back.
        object.__setattr__(self, "level", _number("level", self.level, Real, float))
        for name in ("random_state", "max_rows", "n_jobs"):
            if (value := getattr(self, name)) is not None or name == "random_state":
                object.__setattr__(self, name, _number(name, value, Integral, int))
        self._check_ranges()
        self._check_choices()

    def _check_ranges(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1; got {self.level}.")
        if not 0 <= self.random_state <= _LARGEST_SEED:
            raise ValueError(f"the seed must lie between 0 and {_LARGEST_SEED}; got {self.random_state}.")
        if self.max_rows is not None and self.max_rows < MIN_ROWS:
            raise ValueError(f"max_rows must be at least {MIN_ROWS}; got {self.max_rows}.")
        if self.n_jobs == 0:
            raise ValueError(f"n_jobs must not be 0; give a number of threads, or {ALL_CORES} for all cores.")

    def _check_choices(self) -> None:
        if self.method not in get_args(Method) and not hasattr(self.method, "fit"):
            raise ValueError(
                f"method must be 'pulse', 'pulse-paper' or a PULSE instance; got {self.method!r}."
            )
        if not isinstance(self.method, str) and self.parameters:
            raise ValueError(
                f"{next(iter(self.parameters))} has no effect if method is a PULSE instance; set it there."
            )
        for name, choices in (
            ("text", get_args(TextMode)),
            ("images", get_args(ImageMode)),
            ("effort", get_args(EffortName)),
        ):
            if getattr(self, name) not in choices:
                *others, last = map(repr, choices)
                raise ValueError(
                    f"{name} must be {', '.join(others)} or {last}; got {getattr(self, name)!r}."
                )

    @property
    def rows_to_fit(self) -> int | None:
        """Largest number of rows of either side to fit on; None for all."""
        return QUICK_ROWS if self.max_rows is None and self.effort == "quick" else self.max_rows

    def as_python(self) -> str:
        """Return the call that repeats this: every option that is not the default."""
        given = {**_changed(self, AdaptOptions()), **self.parameters}
        given.pop("parameters", None)
        words = [f"{name}={value!r}" for name, value in given.items()]
        return f"osls.adapt({', '.join(['source', 'target', *words])})"

    def as_command(
        self,
        source: str | Path,
        target: str | Path,
        out: Path,
        reading: tuple[ReadOptions, ReadOptions] | None = None,
    ) -> str:
        """Return the command that repeats this: every option that is not the default.

        ``verbose`` is left out, as the command shows progress wherever it writes to a terminal.
        """
        given = _changed(self, AdaptOptions(n_jobs=ALL_CORES))
        given.pop("verbose", None)
        if given.keys() & {"method", "parameters"} or self.n_jobs is None or self.n_jobs < ALL_CORES:
            raise ValueError("the command has no such method, parameters or n_jobs; repeat it in Python.")
        flags = {"random_state": "seed", "n_jobs": "jobs"}
        options = {flags.get(name, name): value for name, value in given.items()}
        paths = {"source": source, "target": target, "out": out}
        return shlex.join(["osls", "adapt", *_flags({**paths, **options, **_reading_flags(reading)})])


@dataclass(frozen=True)
class ReadOptions:
    """How to read files that do not say it themselves.

    Attributes
    ----------
    sep : str, optional
        What stands between the values of a text file; found by looking if not given.
    encoding : str, optional
        Encoding of a text file if it is not UTF-8.
    decimal : {".", ","}
        What stands before the decimals of a text file; with the comma, dots between thousands are dropped.
    table, query : str, optional
        Table of a database or sheet of a workbook; the query to put to a database.
    """

    sep: str | None = None
    encoding: str | None = None
    decimal: str = "."
    table: str | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if self.sep is not None:
            object.__setattr__(self, "sep", {"tab": "\t", "\\t": "\t"}.get(self.sep, self.sep))
            if len(self.sep) != 1:
                raise ValueError(f"sep must be one character, or 'tab'; got {self.sep!r}.")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        if self.table is not None and self.query is not None:
            raise ValueError("give a table or a query, not both.")


def read_options(
    sep: str | None,
    encoding: str | None,
    decimal: str,
    table: Sequence[str] | None = None,
    query: Sequence[str] | None = None,
) -> tuple[ReadOptions, ReadOptions]:
    """Return how to read source and target; a table or query that is given once is that of both."""
    for name, values in (("table", table), ("query", query)):
        if values and len(values) > 2:
            raise ValueError(f"--{name} is given once, or once for the source and once for the target.")
    tables: Sequence[str | None] = table or [None]
    queries: Sequence[str | None] = query or [None]
    first, last = (ReadOptions(sep, encoding, decimal, tables[i], queries[i]) for i in (0, -1))
    return first, last


@dataclass(frozen=True)
class MonitorOptions:
    """How to monitor; see ``osls monitor --help``."""

    model: Path
    batches: tuple[str, ...] = ()
    watch: Path | None = None
    every: float = 10.0
    state: Path = Path("monitor.json")
    out: Path = Path("timeline.html")
    against: Against = "fit"
    level: float = 0.95
    seed: int = 0
    reading: ReadOptions = field(default_factory=ReadOptions)
    prometheus: Path | None = None
    webhook: str | None = None

    def as_command(self) -> str:
        """Return the command that continues this, with the files that it keeps."""
        given = _changed(self, MonitorOptions(self.model, self.batches, reading=self.reading))
        given |= {"state": self.state, "out": self.out, **_changed(self.reading, ReadOptions())}
        return shlex.join(["osls", "monitor", str(self.model), *self.batches, *_flags(given)])


def as_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one name, several or none as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def _number(name: str, value: Any, kind: type, to: Callable[[Any], float]) -> float:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} must be a {'whole ' * (kind is Integral)}number; got {value!r}.")
    return to(value)


def _changed(options: Any, defaults: Any) -> dict[str, Any]:
    """Return the options that differ from the defaults, by name."""
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def _reading_flags(reading: tuple[ReadOptions, ReadOptions] | None) -> dict[str, Any]:
    """Name the options that are not the default; tables and queries may differ between the sides."""
    if reading is None:
        return {}
    source, target = (_changed(each, ReadOptions()) for each in reading)
    both = {name: (source[name], target[name]) for name in source if name in ("table", "query")}
    return {**source, **{name: pair if pair[0] != pair[1] else pair[0] for name, pair in both.items()}}


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Write options as words of a command line; an option with several values is repeated."""
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, tuple) else (value,):
            if each is True:
                yield flag
            elif str(each).startswith("-"):  # would look like an option of its own
                yield f"{flag}={each}"
            else:
                yield from (flag, str(each))
