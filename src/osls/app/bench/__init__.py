"""The ``osls bench`` commands; :mod:`osls.app.bench.actions` does the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from osls._core.extras import require
from osls._core.printing import printable

__all__ = ["app"]

app = typer.Typer(help="Compare methods on random draws.", add_completion=False, rich_markup_mode=None)

_Jobs = Annotated[int, typer.Option(min=0, help="Processes; 0 for one a core.")]
_Results = Annotated[
    list[Path], typer.Argument(help="Folders of results, or .parquet files.", show_default=False)
]


@contextmanager
def _actions() -> Iterator[ModuleType]:
    """Yield the module that does the work; wrong input ends in a message and the exit status 2."""
    try:
        for package in ("pooch", "psutil", "pydantic", "yaml"):
            require(package, extra="bench")
        # Imported here because it loads torch, which takes seconds; --help must not wait for that.
        from osls.app.bench import actions

        yield actions
    except (ValueError, OSError, ImportError) as error:
        for line in str(error).splitlines():
            typer.echo(f"osls: {printable(line, lines=False)}", err=True)
        raise typer.Exit(2) from None


@app.callback(invoke_without_command=True)
def quick(
    context: typer.Context,
    data: Annotated[
        str, typer.Option(help="Data sets, separated by commas; or, with --label, a file of your own.")
    ] = "digits",
    label: Annotated[
        str | None, typer.Option(help="Column of the classes in your own file; each is held out in turn.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; also module:Class or file.py:Class.")
    ] = "pulse,source-only",
    draws: Annotated[int, typer.Option(min=1, help="Random problems for each data set.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    novel: Annotated[
        int | None, typer.Option(min=0, help="Number of novel classes; default: the data set's own range.")
    ] = None,
    jobs: _Jobs = 0,
    out: Annotated[Path, typer.Option(help="Folder of results; finished runs are kept.")] = Path(
        "osls-bench/quick"
    ),
) -> None:
    """Compare methods on random draws; run the same command again to go on after an interruption.

    Without a command: the named methods on the named data sets. With one: studies from files.
    """
    if context.invoked_subcommand is not None:
        return
    with _actions() as actions:
        if label is not None:
            from osls.app.bench.own import run_own

            if novel is not None:
                raise ValueError(
                    "--novel: of a file of your own each class is held out in turn; leave it out."
                )
            raise typer.Exit(run_own(data, label, methods.split(","), draws=draws, seed=seed, out=out))
        if Path(data).is_file():
            raise ValueError(f"{data}: which column holds the classes? Name it with --label.")
        status = actions.run_quick(
            data.split(","), methods.split(","), draws=draws, seed=seed, novel=novel, jobs=jobs, out=out
        )
    raise typer.Exit(status)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study, a YAML file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder of results; default: osls-bench/ and the study's name.")
    ] = None,
    jobs: _Jobs = 0,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask cluster to run on instead of this machine.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Repeat the runs that ended in an error.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and list its runs, but run none.")
    ] = False,
) -> None:
    """Run a study: every data set, setting, method and draw once.

    It can be stopped (Ctrl-C, or a kill) and started again, and started more than once at a time: finished
    runs are kept, and no run is run twice.
    """
    with _actions() as actions:
        status = actions.run_file(
            study, out=out, jobs=jobs, scheduler=scheduler, retry_failed=retry_failed, dry_run=dry_run
        )
    raise typer.Exit(status)


@app.command()
def table(
    results: _Results,
    format: Annotated[str, typer.Option(help="markdown, latex or csv.")] = "markdown",
    metrics: Annotated[str, typer.Option(help="Columns, separated by commas; default: the usual ones.")] = "",
) -> None:
    """Print mean ± standard deviation (worst draw), the best in bold, beside the paper's figures."""
    with _actions() as actions:
        text = actions.text_table(results, format, [m for m in metrics.split(",") if m])
        typer.echo(printable(text), nl=False)


@app.command()
def page(
    results: _Results,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("osls-bench.html"),
    title: Annotated[str, typer.Option(help="Its title; default: the study's.")] = "",
) -> None:
    """Write one self-contained HTML page of tables and figures."""
    with _actions() as actions:
        actions.write_page(results, out, title)
    typer.echo(f"Wrote {printable(out, lines=False)}")


@app.command("list")
def list_(
    studies: Annotated[Path, typer.Option(help="Folder of study files.")] = Path("benchmarks/studies"),
) -> None:
    """List data sets, methods with their parameters, networks and studies."""
    with _actions() as actions:
        for heading, entries in actions.list_everything(studies):
            typer.echo(f"{heading}:")
            for name, words in entries:
                typer.echo(printable(f"  {name:24}{words}"))
            typer.echo()
