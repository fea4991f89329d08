"""The command line: one function a command, and heavy imports only where they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from osls.app.bench.app import app as bench

app = typer.Typer(
    help="Adapt a classifier when the class mix changes and something new appears.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _fail(message: str) -> typer.Exit:
    typer.echo(f"osls: {message}", err=True)
    return typer.Exit(2)


def _version(show: bool) -> None:
    if show:
        from osls import __version__

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
    """PULSE on handwritten digits, two of which nobody labelled."""
    from osls.app.files.staging import check_writable

    try:
        check_writable(out)  # before a minute is spent on the fit
        from osls.app.report.demo import run_demo

        run_demo(out, seed)
    except (ValueError, OSError) as error:
        raise _fail(str(error)) from None


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
    level: Annotated[float, typer.Option(help="Level of the intervals, between 0 and 1.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    text: Annotated[
        Literal["auto", "tfidf", "minilm"],
        typer.Option(help="Features of free text; auto: minilm for up to 6,000 short texts."),
    ] = "auto",
    images: Annotated[
        Literal["auto", "efficientnet", "scratch"],
        typer.Option(help="Features of pictures; auto: efficientnet if installed."),
    ] = "auto",
    novel_label: Annotated[str, typer.Option(help="Name for what is new.")] = "novel",
    fast: Annotated[bool, typer.Option("--fast", help="Small models and three folds: a first look.")] = False,
    max_rows: Annotated[
        int, typer.Option(min=20, help="Fit on at most this many rows of either side; all are predicted.")
    ] = 20_000,
    jobs: Annotated[int, typer.Option(min=0, help="Threads for trees; 0 for one a core.")] = 0,
    allow_one_class: Annotated[
        bool,
        typer.Option("--allow-one-class", help="Accept a source of a single class: everything else is new."),
    ] = False,
    ignore_target_label: Annotated[
        bool,
        typer.Option(
            "--ignore-target-label", help="Accept a target with the label column; it is not looked at."
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
) -> None:
    """Say how common each class is in new data, how much of it is new, and what each row is."""
    from osls.app.adapt_command import AdaptArguments, run_adapt

    arguments = AdaptArguments(
        source,
        target,
        out,
        label,
        tuple(id or ()),
        tuple(ignore or ()),
        level,
        seed,
        text,
        images,
        novel_label,
        fast,
        max_rows,
        jobs,
        allow_one_class,
        ignore_target_label,
        overwrite,
    )
    try:
        run_adapt(arguments)
    except (ValueError, OSError, ImportError) as error:
        raise _fail(str(error)) from None


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder 'model' that osls adapt wrote.")],
    rows: Annotated[Path, typer.Argument(help="Rows with the columns that the model was fitted on.")],
    out: Annotated[Path, typer.Option(help="Where to write the predictions, .parquet or .csv.")] = Path(
        "predictions.parquet"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier file.")] = False,
) -> None:
    """Answers of a saved model for more rows."""
    from osls.app.predict_command import run_predict

    try:
        run_predict(model, rows, out, overwrite=overwrite)
    except (ValueError, OSError, ImportError) as error:
        raise _fail(str(error)) from None


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
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks into it.")] = 10.0,
    state: Annotated[Path, typer.Option(help="Where to keep what was seen, to go on from.")] = Path(
        "monitor.json"
    ),
    out: Annotated[
        Path, typer.Option(help="The page to write; the history lies beside it as .csv and .json.")
    ] = Path("timeline.html"),
    against: Annotated[
        Literal["fit", "first"],
        typer.Option(help="A move from what: the data of the fit, or the first batch."),
    ] = "fit",
    level: Annotated[
        float, typer.Option(help="Level of the intervals; 1 - level bounds the chance of any false alarm.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Follow the mix and the novel share over batches; alarm when one has moved.

    Exit code 0: no alarm. 3: a batch that is new in this call raised an alarm. 2: bad input.
    """
    from osls.app.monitor_command import MonitorArguments, run_monitor

    arguments = MonitorArguments(model, tuple(batches or ()), state, out, watch, every, against, level, seed)
    try:
        alarmed = run_monitor(arguments)
    except (ValueError, OSError, ImportError) as error:
        raise _fail(str(error)) from None
    if alarmed:
        raise typer.Exit(3)


app.add_typer(bench, name="bench")


if __name__ == "__main__":
    app()
