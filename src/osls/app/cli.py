"""The command line. It imports only what ``--help`` needs; :func:`_call` imports the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from osls import __version__
from osls._core.printing import printable
from osls.app.bench import app as bench
from osls.app.options import (
    ALL_CORES,
    MIN_ROWS,
    AdaptOptions,
    Against,
    ImageMode,
    MonitorOptions,
    TextMode,
    as_names,
)

_ADAPT = AdaptOptions()
_MONITOR = MonitorOptions(Path())
# Addresses, most of which are libraries that are mapped and never touched.
_LEAST_MEMORY = 3 << 30
_SafeCsv = Annotated[
    bool,
    typer.Option("--safe-csv", help="Put ' before texts in the CSV that a spreadsheet would compute."),
]


@contextmanager
def _input_errors() -> Iterator[None]:
    """End with one sentence and exit code 2 if the input cannot be used."""
    try:
        with _shown_warnings():
            yield
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"osls: {printable(error, lines=False)}", err=True)
        raise typer.Exit(2) from None
    except MemoryError:
        typer.echo("osls: the memory is full; give fewer rows (--max-rows) or columns (--ignore).", err=True)
        raise typer.Exit(2) from None


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Print warnings, which may quote the data, in one line each."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: typer.echo(
            f"osls: {printable(message, lines=False)}", err=True
        )
        yield


class _Commands(TyperGroup):
    """Commands whose complaints about arguments, such as the names of a folder's files, do not steer."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _shown_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _shown_usage():
            return super().invoke(ctx)


@contextmanager
def _shown_usage() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Complaints of click have a message that is printed later; everything else passes as it is.
        if hasattr(error, "format_message"):
            error.message = printable(error.message, lines=False)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=_Commands,
    help="Adapt a classifier when the class mix changes and something new appears.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: rich would take longer to import than the help takes to print, and would read the users'
    # own words as markup.
    rich_markup_mode=None,
)


def _call(module: str, function: str, *arguments: Any, **options: Any) -> Any:
    """Import the module of a command and run its function."""
    with _input_errors():
        _check_memory()
        # Imported here, and only here: pandas and torch take seconds to load, and --help must not wait.
        return getattr(import_module(f"osls.app.{module}"), function)(*arguments, **options)


def _check_memory() -> None:
    """Raise if the shell allows too little memory to load the libraries: they would hang or crash."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < _LEAST_MEMORY:
        raise ValueError(
            f"this shell allows {allowed >> 20} MB of memory and osls needs {_LEAST_MEMORY >> 20}; "
            "raise the limit with ulimit -v."
        )


def _version(show: bool) -> None:
    if show:
        typer.echo(f"osls {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Adapt a classifier when the class mix changes and something new appears."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("osls-demo.html"),
    seed: Annotated[int, typer.Option(help="Seed of the draw and of the fit.")] = 0,
) -> None:
    """PULSE on handwritten digits, two of which have no labels."""
    _call("files.staging", "check_writable", out)  # before a minute is spent on the fit
    _call("demo", "run_demo", out, seed)


@app.command()
def adapt(
    source: Annotated[
        Path,
        typer.Option(
            help="Labelled rows: CSV, Parquet, Arrow, JSON lines, npz, h5ad, or a folder of class folders."
        ),
    ],
    target: Annotated[Path, typer.Option(help="New rows without labels, in any of these formats.")],
    out: Annotated[Path, typer.Option(help="Folder for the answer; it appears whole or not at all.")],
    label: Annotated[
        str | None, typer.Option(help="Column of the source with the classes. Folders need none.")
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(help="Column to carry into the predictions and not to learn from; may be repeated."),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals, between 0 and 1.")] = _ADAPT.level,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = _ADAPT.random_state,
    text: Annotated[
        TextMode, typer.Option(help="Features of free text; auto: minilm for up to 6,000 short texts.")
    ] = _ADAPT.text,
    images: Annotated[
        ImageMode, typer.Option(help="Features of pictures; auto: efficientnet if installed.")
    ] = _ADAPT.images,
    novel_label: Annotated[str, typer.Option(help="Name for what is new.")] = _ADAPT.novel_label,
    fast: Annotated[
        bool, typer.Option("--fast", help="Small models and three folds: a first look.")
    ] = _ADAPT.fast,
    max_rows: Annotated[
        int,
        typer.Option(min=MIN_ROWS, help="Fit on at most this many rows of either side; all are predicted."),
    ] = _ADAPT.max_rows,
    jobs: Annotated[int, typer.Option(min=0, help="Threads for trees; 0 for one a core.")] = 0,
    allow_one_class: Annotated[
        bool,
        typer.Option("--allow-one-class", help="Accept a source of a single class: everything else is new."),
    ] = _ADAPT.allow_one_class,
    ignore_target_label: Annotated[
        bool,
        typer.Option(
            "--ignore-target-label", help="Accept a target with the label column; it is not looked at."
        ),
    ] = _ADAPT.ignore_target_label,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    safe_csv: _SafeCsv = False,
) -> None:
    """Say how common each class is in new data, how much of it is new, and what each row is."""
    with _input_errors():
        options = AdaptOptions(
            label=label,
            id=as_names(id),
            level=level,
            random_state=seed,
            text=text,
            images=images,
            ignore=as_names(ignore),
            novel_label=novel_label,
            ignore_target_label=ignore_target_label,
            allow_one_class=allow_one_class,
            fast=fast,
            max_rows=max_rows,
            n_jobs=jobs or ALL_CORES,
        )
    _call("adapt", "run_adapt", source, target, out, options, overwrite=overwrite, safe_csv=safe_csv)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder 'model' that osls adapt wrote.")],
    rows: Annotated[Path, typer.Argument(help="Rows with the columns that the model was fitted on.")],
    out: Annotated[Path, typer.Option(help="Where to write the predictions, .parquet or .csv.")] = Path(
        "predictions.parquet"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier file.")] = False,
    safe_csv: _SafeCsv = False,
) -> None:
    """Predict more rows with a saved model."""
    _call("predict", "run_predict", model, rows, out, overwrite=overwrite, safe_csv=safe_csv)


@app.command()
def monitor(
    model: Annotated[Path, typer.Argument(help="The folder 'model' that osls adapt wrote.")],
    batches: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of rows, in order of time; those counted before are skipped."),
    ] = None,
    watch: Annotated[
        Path | None, typer.Option(help="A folder to take new files from, until interrupted by Ctrl-C.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks into it.")
    ] = _MONITOR.every,
    state: Annotated[
        Path, typer.Option(help="File for what was counted so far; the next call goes on from it.")
    ] = _MONITOR.state,
    out: Annotated[
        Path, typer.Option(help="The page to write; the history lies beside it as .csv and .json.")
    ] = _MONITOR.out,
    against: Annotated[
        Against,
        typer.Option(help="What a batch is compared with: the data of the fit, or the first batch."),
    ] = _MONITOR.against,
    level: Annotated[
        float, typer.Option(help="Level of the intervals; 1 - level bounds the chance of any false alarm.")
    ] = _MONITOR.level,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = _MONITOR.seed,
) -> None:
    """Follow the mix and the novel share over batches; raise an alarm if one of them changes.

    Exit code 0: no alarm. 3: a batch that is new in this call raised an alarm. 2: bad input.
    """
    options = MonitorOptions(
        model=model,
        batches=tuple(batches or ()),
        watch=watch,
        every=every,
        state=state,
        out=out,
        against=against,
        level=level,
        seed=seed,
    )
    if _call("watch", "run_monitor", options):
        raise typer.Exit(3)


app.add_typer(bench, name="bench")


if __name__ == "__main__":
    app()
