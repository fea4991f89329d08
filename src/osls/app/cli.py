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
    QUICK_ROWS,
    AdaptOptions,
    Against,
    EffortName,
    Higher,
    ImageMode,
    MonitorOptions,
    ReadOptions,
    TextMode,
    as_names,
    read_options,
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

_READ = ReadOptions()

# How to read what does not say it itself: the same for every command that takes rows.
Sep = Annotated[str | None, typer.Option(help="What stands between the values of a CSV file, or 'tab'.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of text files, if it is not UTF-8.")]
Decimal = Annotated[str, typer.Option(help="Decimal sign of text files, a point or a comma.")]
OneTable = Annotated[str | None, typer.Option(help="Table of a database, or sheet of a workbook.")]
OneQuery = Annotated[str | None, typer.Option(help="SQL query to a database.")]


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
    _call("files.staging", "check_file", out)  # before a minute is spent on the fit
    _call("demo", "run_demo", out, seed)


@app.command()
def adapt(
    source: Annotated[
        str,
        typer.Option(
            help="Labelled rows: CSV, Parquet, Arrow, JSON lines, npz, h5ad, Excel, SQLite, DuckDB; packed, "
            "as parts (a folder, a quoted wildcard), at s3://, gs://, az://, https://; or class folders."
        ),
    ],
    target: Annotated[str, typer.Option(help="New rows without labels, in any of these formats.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the answer; it appears whole or not at all.")
    ] = None,
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
        TextMode,
        typer.Option(help="Features of free text; auto: minilm for up to 6,000 short texts, else tfidf."),
    ] = _ADAPT.text,
    images: Annotated[
        ImageMode,
        typer.Option(
            "--images",
            "--encoder",
            help="Features of pictures, of a pretrained network or of one trained here; "
            "auto: efficientnet if installed.",
        ),
    ] = _ADAPT.images,
    novel_label: Annotated[str, typer.Option(help="Name for what is new.")] = _ADAPT.novel_label,
    effort: Annotated[
        EffortName,
        typer.Option(help="quick: small models, a first look; best: larger models."),
    ] = _ADAPT.effort,
    fast: Annotated[bool, typer.Option("--fast", help="The same as --effort quick.")] = False,
    max_rows: Annotated[
        int | None,
        typer.Option(
            min=MIN_ROWS,
            help="Fit on at most this many rows of either side; all are predicted. By default all, with "
            f"--effort quick {QUICK_ROWS:,}.",
        ),
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
    sep: Sep = None,
    encoding: Encoding = None,
    decimal: Decimal = _READ.decimal,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Table of a database, or sheet of a workbook; twice if source and target differ."),
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="SQL query to a database; twice if source and target differ.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be learned from, and for how long; fit nothing.")
    ] = False,
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
            effort="quick" if fast else effort,
            max_rows=max_rows,
            n_jobs=jobs or ALL_CORES,
        )
        reading = read_options(sep, encoding, decimal, table, query)
        if out is None and not dry_run:
            raise ValueError("where should the answer go? Name a folder with --out.")
    if dry_run:
        _call("preview", "run_preview", source, target, options, reading)
    else:
        _call(
            "adapt",
            "run_adapt",
            source,
            target,
            out,
            options,
            reading,
            overwrite=overwrite,
            safe_csv=safe_csv,
        )


_Run = Annotated[Path, typer.Argument(help="The folder that osls adapt wrote.")]


@app.command()
def review(
    run: _Run,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("review.html"),
    rows: Annotated[int, typer.Option(min=1, help="Rows to ask about first, over all groups.")] = 20,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier page.")] = False,
) -> None:
    """Write a page that shows what is new in groups, asks for names, and exports them as labels.csv."""
    _call("grow", "run_review", run, out, rows, overwrite=overwrite)


@app.command()
def absorb(
    run: _Run,
    labels: Annotated[
        Path, typer.Argument(help="Labels of target rows: columns 'row' or an id, and 'label'.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the new answer; the old one stays as it is.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    safe_csv: _SafeCsv = False,
) -> None:
    """Learn the labels that a person gave to some of the new rows, and answer again with their classes."""
    _call("grow", "run_absorb", run, labels, out, overwrite=overwrite, safe_csv=safe_csv)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder that osls adapt wrote, or 'model' in it.")],
    rows: Annotated[str, typer.Argument(help="Rows with the columns that the model was fitted on.")],
    out: Annotated[Path, typer.Option(help="Where to write the predictions, .parquet or .csv.")] = Path(
        "predictions.parquet"
    ),
    sep: Sep = None,
    encoding: Encoding = None,
    decimal: Decimal = _READ.decimal,
    table: OneTable = None,
    query: OneQuery = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier file.")] = False,
    safe_csv: _SafeCsv = False,
) -> None:
    """Predict more rows with a saved model."""
    with _input_errors():
        reading = ReadOptions(sep, encoding, decimal, table, query)
    _call("predict", "run_predict", model, rows, out, reading, overwrite=overwrite, safe_csv=safe_csv)


@app.command()
def share(
    known: Annotated[str, typer.Argument(help="Scores of rows that are known, one column.")],
    new: Annotated[str, typer.Argument(help="Scores of the new rows by the same detector, one column.")],
    higher: Annotated[Higher, typer.Option(help="Which rows have higher scores.")] = "new",
    level: Annotated[float, typer.Option(help="Level of the interval, between 0 and 1.")] = _ADAPT.level,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of the test.")] = 0,
    column: Annotated[str | None, typer.Option(help="Column of the scores, if there are several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say how much of the new rows is novel, from the scores of any detector.

    The known rows must not have trained the detector: their scores would look better than they are.
    """
    _call("shares", "run_share", known, new, higher, level=level, seed=seed, column=column, as_json=as_json)


@app.command()
def monitor(
    model: Annotated[Path, typer.Argument(help="The folder that osls adapt wrote, or 'model' in it.")],
    batches: Annotated[
        list[str] | None,
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
    prometheus: Annotated[
        Path | None, typer.Option(help="File for the latest shares, as Prometheus collects them.")
    ] = None,
    webhook: Annotated[str | None, typer.Option(help="Address to post alarms to, as JSON.")] = None,
    sep: Sep = None,
    encoding: Encoding = None,
    decimal: Decimal = _READ.decimal,
    table: OneTable = None,
    query: OneQuery = None,
) -> None:
    """Follow the mix and the novel share over batches; raise an alarm if one of them changes.

    Exit code 0: no alarm. 3: a batch that is new in this call raised an alarm. 2: bad input.
    """
    with _input_errors():
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
            reading=ReadOptions(sep, encoding, decimal, table, query),
            prometheus=prometheus,
            webhook=webhook,
        )
    if _call("watch", "run_monitor", options):
        raise typer.Exit(3)


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="The folder that osls adapt wrote, or 'model' in it.")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at.")] = 8000,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows that one request may hold.")] = 10_000,
    max_bytes: Annotated[int, typer.Option(min=1, help="Bytes that one request may hold.")] = 16 << 20,
) -> None:
    """Answer for rows over HTTP: POST /predict and /batch, GET /health and /metrics. There is no login."""
    _call("serve", "run_serve", model, host, port, max_rows=max_rows, max_bytes=max_bytes)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="The folder that osls adapt wrote, or 'model' in it.")],
    out: Annotated[Path, typer.Argument(help="The file to write, .onnx.")] = Path("model.onnx"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier file.")] = False,
) -> None:
    """Write a model of a table as ONNX: the same answers wherever onnxruntime runs, without Python."""
    _call("export", "run_export", model, out, overwrite=overwrite)


app.add_typer(bench, name="bench")


if __name__ == "__main__":
    app()
