"""The command line: one function a command, and heavy imports only where they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    from osls.report.demo import run_demo

    run_demo(out, seed)


@app.command()
def bench(
    data: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = "digits",
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = "pulse,source-only",
    draws: Annotated[int, typer.Option(min=1, help="Random problems for each data set.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    novel: Annotated[
        int | None, typer.Option(min=0, help="Number of novel classes; default: the data set's own range.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 for one a core.")] = 0,
    out: Annotated[Path, typer.Option(help="Results, one JSON line a run; finished runs are kept.")] = Path(
        "osls-bench/runs.jsonl"
    ),
) -> None:
    """Compare methods on random draws; run the same command again to go on after an interruption."""
    from osls.bench.command import run_bench

    try:
        run_bench(
            data.split(","),
            methods.split(","),
            draws=draws,
            seed=seed,
            novel=novel,
            jobs=jobs,
            out=out,
        )
    except (ValueError, FileNotFoundError) as error:
        raise _fail(str(error)) from None


if __name__ == "__main__":
    app()
