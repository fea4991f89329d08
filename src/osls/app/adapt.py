"""``osls.adapt`` and ``osls adapt``: two tables in, the answer out. Both go through :func:`fit_rows`."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from osls._core.screen import Screen
from osls._core.writing import only_writer
from osls.app.files.opening import as_rows
from osls.app.files.staging import check_destination
from osls.app.options import AdaptOptions, EffortName, ImageMode, Method, ReadOptions, TextMode, as_names
from osls.app.report.wording import verdict_beside_headline
from osls.app.tables.problem import Problem, read_problem
from osls.inference.diagnostics import TrustWarning

if TYPE_CHECKING:
    from osls.app.fit import Fit
    from osls.app.output import AdaptAnswer
    from osls.pulse import PULSE

Reading = tuple[ReadOptions, ReadOptions]

_DEFAULTS = AdaptOptions()
_AS_THEY_ARE: Reading = (ReadOptions(), ReadOptions())


def adapt(
    source: Any,
    target: Any,
    label: str | None = None,
    *,
    id: str | Sequence[str] | None = None,
    method: Method | PULSE = _DEFAULTS.method,
    level: float = _DEFAULTS.level,
    random_state: int = _DEFAULTS.random_state,
    text: TextMode = _DEFAULTS.text,
    images: ImageMode = _DEFAULTS.images,
    ignore: str | Sequence[str] = _DEFAULTS.ignore,
    novel_label: str = _DEFAULTS.novel_label,
    ignore_target_label: bool = _DEFAULTS.ignore_target_label,
    allow_one_class: bool = _DEFAULTS.allow_one_class,
    effort: EffortName = _DEFAULTS.effort,
    fast: bool = False,
    max_rows: int | None = _DEFAULTS.max_rows,
    n_jobs: int | None = _DEFAULTS.n_jobs,
    verbose: bool = _DEFAULTS.verbose,
    **parameters: Any,
) -> AdaptAnswer:
    """Say how common each class is now, how much is new, and what each row is.

    Parameters
    ----------
    source, target : DataFrame (pandas, polars, Arrow) or path
        Labelled rows, and new rows without labels; :func:`osls.app.files.read_table` says what can be read.
    label : str
        The column of the source with the classes. For folders it is the name of the sub-folder.
    id : str or list of str, optional
        Columns of the target to carry into the predictions and not to learn from.
    method : {"pulse", "pulse-paper"} or PULSE, default="pulse"
        How to adapt.
    level : float, default=0.95
        Level of the intervals.
    random_state : int, default=0
        Seed of everything random.
    text : {"auto", "tfidf", "minilm", "both"}
        Features of free text, see :class:`osls.app.tables.table_encoder.TableEncoder`.
    images : {"auto", "efficientnet", "scratch"}
        Features of pictures, see :class:`osls.app.tables.pictures.PictureEncoder`.
    ignore : str or list of str
        Columns to leave out.
    novel_label : str, default="novel"
        Name for what is new.
    ignore_target_label : bool, default=False
        Do not look at the label column of the target. Without this a target that has one is an error.
    allow_one_class : bool, default=False
        Accept a source of a single class, so that everything else is new. Without this it is an error.
    effort : {"balanced", "quick", "best"}, default="balanced"
        How much work a fit may be: "quick" is a first look with small models and three folds, "best" trains
        larger models for longer.
    fast : bool, default=False
        The same as effort="quick".
    max_rows : int, optional
        Fit on at most this many rows of either side; all rows are predicted. By default all rows, with
        effort="quick" 20,000.
    n_jobs : int, optional
        Threads for trees; -1 for one a core.
    verbose : bool, default=False
        Show progress.
    **parameters
        Further parameters of :class:`osls.PULSE`.

    Returns
    -------
    AdaptAnswer
        With ``predictions``, ``target_share``, ``interval``, ``summary()``, ``write(folder)``; it shows
        itself in notebooks.

    Raises
    ------
    InputError
        If the data cannot be used; the message names file, column or row and says what to do.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from osls import adapt
    >>> wine = load_wine(as_frame=True).frame
    >>> source = wine[wine.target < 2].iloc[::2]
    >>> target = wine.drop(source.index).drop(columns="target")
    >>> answer = adapt(source, target, label="target", fast=True)
    >>> answer.classes
    ('0', '1', 'novel')
    >>> bool(abs(answer.target_share[-1] - 48 / len(target)) < 0.1)
    True
    >>> answer.command
    "osls.adapt(source, target, label='target', effort='quick')"
    """
    options = AdaptOptions(
        label=label,
        id=as_names(id),
        method=method,
        level=level,
        random_state=random_state,
        text=text,
        images=images,
        ignore=as_names(ignore),
        novel_label=novel_label,
        ignore_target_label=ignore_target_label,
        allow_one_class=allow_one_class,
        effort="quick" if fast else effort,
        max_rows=max_rows,
        n_jobs=n_jobs,
        verbose=verbose,
        parameters=parameters,
    )
    return fit_rows(source, target, options).answer(options.as_python(), every_row=True)


def fit_rows(
    source: Any,
    target: Any,
    options: AdaptOptions,
    reading: Reading = _AS_THEY_ARE,
    say: Callable[[str], None] = lambda step: None,
) -> Fit:
    """Read and check both sides, then encode and fit. ``say`` is told what is being done."""
    say("Reading")
    problem = read_sides(source, target, options, reading)
    # Imported once the input is known to be in order, as torch takes seconds to load.
    from osls.app.fit import fit_problem

    return fit_problem(problem, options, say)


def read_sides(source: Any, target: Any, options: AdaptOptions, reading: Reading) -> Problem:
    """Open, read and check both sides."""
    sides = as_rows(source, "the source", reading[0]), as_rows(target, "the target", reading[1])
    return read_problem(*sides, options)


# -- The command ------------------------------------------------------------------------------------


def run_adapt(
    source: str,
    target: str,
    out: Path,
    options: AdaptOptions,
    reading: Reading = _AS_THEY_ARE,
    *,
    overwrite: bool = False,
    safe_csv: bool = False,
) -> AdaptAnswer:
    """Adapt, write the folder, and print the answer."""
    started = time.perf_counter()
    check_destination(out, overwrite=overwrite)
    screen = Screen(stderr=True)
    with only_writer(out), _progress(screen) as say, warnings.catch_warnings():
        # The verdict is printed with the answer.
        warnings.simplefilter("ignore", TrustWarning)
        fit = fit_rows(source, target, replace(options, verbose=screen.is_terminal), reading, say)
        # Imported after the input was checked, as above.
        from osls.app.output import write_folder

        # So that osls review and osls absorb find the rows again.
        inputs = describe_inputs(source, target, options, reading)
        adapted = replace(fit.adapted, metadata={**fit.adapted.metadata, "inputs": inputs})
        fit = replace(fit, adapted=adapted)
        # A large target is not held in memory: the answer has the rows of the fit, the files have them all.
        answer = fit.answer(options.as_command(source, target, out, reading), every_row=False)
        answer = write_folder(answer, out, fit.predictions(), overwrite=overwrite, safe_csv=safe_csv, say=say)
    print_answer(answer, out, time.perf_counter() - started, Screen())
    return answer


def describe_inputs(source: str, target: str, options: AdaptOptions, reading: Reading) -> dict[str, Any]:
    """What was read and how, as JSON values; :func:`read_again` is its inverse."""
    kept = {field.name: getattr(options, field.name) for field in fields(options)}
    left_out = ("method", "parameters", "verbose", "n_jobs")
    return {
        "source": _lasting(source),
        "target": _lasting(target),
        "options": {name: value for name, value in kept.items() if name not in left_out},
        "reading": [asdict(each) for each in reading],
    }


def read_again(inputs: Mapping[str, Any]) -> Problem:
    """Read both sides of an earlier run, and draw the same rows of them."""
    options: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in inputs["options"].items()
    }
    one, other = (ReadOptions(**each) for each in inputs["reading"])
    return read_sides(inputs["source"], inputs["target"], AdaptOptions(**options), (one, other))


def _lasting(path: str) -> str:
    """A path that holds from other folders as well; addresses and wildcards as they are."""
    return str(Path(path).absolute()) if Path(path).exists() else path


@contextmanager
def _progress(screen: Screen) -> Iterator[Callable[[str], None]]:
    """Yield a function that says on a terminal what is being done, and nothing elsewhere."""
    if not screen.is_terminal:
        yield lambda step: None
        return
    started = time.perf_counter()

    def say(step: str) -> None:
        # One line a step: a spinner and the progress bar of the fit would overwrite each other.
        screen.print(f"{time.perf_counter() - started:5.0f} s  {step} ...", style="dim")

    yield say


def print_answer(answer: AdaptAnswer, out: Path, seconds: float, screen: Screen) -> None:
    """Print the sentence, the mix, the verdict, the warnings, and where the files are."""

    def line(text: str, style: str | None = None) -> None:
        # Lines are folded only on a terminal.
        screen.print(text, style=style, soft_wrap=not screen.is_terminal)

    line("\n" + answer.summary(), "bold")
    screen.print(_mix_table(answer))
    if verdict := verdict_beside_headline(answer):
        line(verdict)
    for warning in answer.warnings:
        line(f"Note: {warning}")
    sizes = f"{answer.settings['n_source']:,} labelled and {answer.settings['n_target']:,} new"
    line(f"\n{sizes} rows in {seconds:.0f} s. In {out}:")
    files = {
        "report.html": "everything on one page",
        "predictions.parquet": "an answer for each new row (also predictions.csv)",
        "mix.json": "the table above",
        "model": f"for more rows: osls predict {shlex.quote(str(out / 'model'))} more.csv",
    }
    for name, what in files.items():
        line(f"  {name:<20} {what}")


def _mix_table(answer: AdaptAnswer) -> Table:
    table = Table(box=None, pad_edge=False)
    (first, *headings), *known, novel = answer.mix_table()
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in known:
        table.add_row(*row)
    table.add_row(*novel, style="bold")
    return table
