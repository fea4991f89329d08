"""From two tables to an answer: read, encode, fit, and predict every row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from osls._core.arrays import AnyArray, Floats, Ints
from osls.app.answer import Answer, Kind
from osls.app.files.rows import TEXT_COLUMN, as_rows, rows_per_batch
from osls.app.tables.encoder import TableEncoder
from osls.app.tables.fitting import FitOptions, Method, fit_quietly, make_adapter
from osls.app.tables.pictures import ImageMode, PictureEncoder
from osls.app.tables.problem import Problem, pose
from osls.app.tables.text import TextMode
from osls.pulse import PULSE

if TYPE_CHECKING:
    from osls.app.files.rows import RowFile

__all__ = ["MAX_ROWS", "Adapted", "Fit", "FitOptions", "adapt", "answer_for", "fit_problem", "predict_target"]

# Rows of either side to fit on: the sampling error of a share is then below 0.4 %. More costs time.
MAX_ROWS = 20_000


@dataclass(frozen=True)
class Adapted:
    """A fitted adapter with what turns rows into its features: rows in, answers out.

    Attributes
    ----------
    encoder : TableEncoder or PictureEncoder
        Rows to features.
    adapter : PULSE
        Features to probabilities.
    classes : tuple of str
        The known classes, then the name of the novel one.
    kind : {"table", "text", "images"}
        What a row is.
    label : str
        The column that held the labels.
    ids : tuple of str
        Columns to carry through if the rows have them.
    metadata : mapping
        Where it comes from: names, sizes, seed, versions, the mix of the source.
    """

    encoder: TableEncoder | PictureEncoder
    adapter: PULSE
    classes: tuple[str, ...]
    kind: Kind
    label: str
    ids: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def predict(
        self, rows: pd.DataFrame, *, name: str = "the rows", first_row: int | Ints = 0
    ) -> pd.DataFrame:
        """Return the id columns, ``predicted``, ``novel`` and ``p_<class>`` of new rows."""
        proba = self.predict_proba(rows, name=name, first_row=first_row)
        carried = rows[[column for column in self.ids if column in rows.columns]]
        return tabulate(proba, self.classes, carried)

    def predict_proba(
        self, rows: pd.DataFrame, *, name: str = "the rows", first_row: int | Ints = 0
    ) -> Floats:
        """Return probabilities of ``classes``."""
        if not len(rows):
            return np.zeros((0, len(self.classes)))
        return self.adapter.predict_proba(self.encoder.transform(rows, name=name, first_row=first_row))


def tabulate(proba: Floats, classes: Sequence[str], ids: pd.DataFrame) -> pd.DataFrame:
    """Return probabilities as the columns that people and programs read."""
    predicted = np.asarray(classes, dtype=object)[proba.argmax(axis=1)]
    answers = {"predicted": pd.Series(predicted, dtype="str"), "novel": proba[:, -1].astype(np.float32)}
    shares = {f"p_{name}": proba[:, j].astype(np.float32) for j, name in enumerate(classes[:-1])}
    return pd.concat([ids.reset_index(drop=True), pd.DataFrame({**answers, **shares})], axis=1)


@dataclass(frozen=True)
class Fit:
    """A fit and the features of the target rows it was made on."""

    adapted: Adapted
    features: AnyArray
    warnings: tuple[str, ...]
    settings: Mapping[str, Any]


def adapt(
    source: Any,
    target: Any,
    label: str | None = None,
    *,
    id: str | Sequence[str] | None = None,
    method: Method | PULSE = "pulse",
    level: float = 0.95,
    random_state: int = 0,
    text: TextMode = "auto",
    images: ImageMode = "auto",
    ignore: Sequence[str] = (),
    novel_label: str = "novel",
    ignore_target_label: bool = False,
    fast: bool = False,
    max_rows: int = MAX_ROWS,
    verbose: bool = False,
    **parameters: Any,
) -> Answer:
    """Say how common each class is now, how much is new, and what each row is.

    Parameters
    ----------
    source, target : DataFrame (pandas, polars, Arrow) or path
        Labelled rows, and new rows without labels. See :func:`osls.app.files.read_table` for what can be read.
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
    text : {"auto", "tfidf", "minilm"}
        Features of free text, see :class:`osls.app.tables.TableEncoder`.
    images : {"auto", "efficientnet", "scratch"}
        Features of pictures, see :class:`osls.app.tables.PictureEncoder`.
    ignore : list of str
        Columns to leave out.
    novel_label : str, default="novel"
        Name for what is new.
    ignore_target_label : bool, default=False
        Do not look at the label column of the target. Without this a target that has one is an error.
    fast : bool, default=False
        Small models, three folds: good for a first look.
    max_rows : int, default=20000
        Fit on at most this many rows of either side; all rows are predicted.
    verbose : bool, default=False
        Show progress.
    **parameters
        Further parameters of :class:`osls.PULSE`.

    Returns
    -------
    Answer
        With ``predictions``, ``target_share``, ``interval``, ``summary()``, ``write(folder)``; it shows
        itself in notebooks.

    Raises
    ------
    InputError
        If the data cannot be used; the message names file, column or row and says what to do.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from osls.app.adapting import adapt
    >>> wine = load_wine(as_frame=True).frame
    >>> source = wine[wine.target < 2].iloc[::2]
    >>> target = wine.drop(source.index).drop(columns="target")
    >>> answer = adapt(source, target, label="target", fast=True)
    >>> answer.classes
    ('0', '1', 'novel')
    >>> bool(abs(answer.target_share[-1] - 48 / len(target)) < 0.1)
    True
    """
    options = FitOptions(
        method, level, random_state, text, images, novel_label, fast, verbose, dict(parameters)
    )
    problem = pose(
        as_rows(source, "the source"),
        as_rows(target, "the target"),
        label=label,
        ids=[id] if isinstance(id, str) else list(id or ()),
        ignore=ignore,
        novel_label=novel_label,
        max_rows=max_rows,
        seed=random_state,
        ignore_target_label=ignore_target_label,
    )
    fit = fit_problem(problem, options)
    predictions = pd.concat(list(predict_target(problem, fit)), ignore_index=True)
    given = {"label": label, "id": id, "random_state": random_state, "fast": fast or None, **parameters}
    words = ", ".join(f"{key}={value!r}" for key, value in given.items() if value is not None)
    return answer_for(problem, fit, predictions, command=f"osls.adapt(source, target, {words})")


def fit_problem(problem: Problem, options: FitOptions, say: Callable[[str], None] = lambda step: None) -> Fit:
    """Encode and fit. What is wrong with the rows is found before anything is trained."""
    started = time.perf_counter()
    say("Encoding")
    encoder: TableEncoder | PictureEncoder
    if problem.kind == "images":
        encoder = PictureEncoder(images=options.images)
    else:
        encoder = TableEncoder(text=options.text, texts=[TEXT_COLUMN] if problem.kind == "text" else [])
    encoder.fit(
        problem.source,
        problem.target_sample,
        source_name=problem.source_name,
        target_name=problem.target.name,
        source_rows=problem.source_rows,
        target_rows=problem.sampled_rows,
    )
    X = encoder.transform(problem.source, name=problem.source_name, first_row=problem.source_rows)
    X_target = encoder.transform(
        problem.target_sample, name=problem.target.name, first_row=problem.sampled_rows
    )
    if problem.is_sampled:
        _check_rest(problem, encoder)
    say("Fitting")
    model = make_adapter(options, X, X.shape[0] + X_target.shape[0])
    notes = fit_quietly(model, X, problem.labels, X_target)
    settings = _settings(problem, options, encoder, time.perf_counter() - started)
    adapted = Adapted(
        encoder,
        model,
        tuple(map(str, model.classes_)),
        "text" if encoder.kind_ == "text" else problem.kind,
        problem.label,
        tuple(problem.ids.columns),
        {**settings, "source_share": (problem.class_counts / problem.n_source).tolist()},
    )
    return Fit(adapted, X_target, (*problem.warnings, *encoder.warnings_, *notes), settings)


def _check_rest(problem: Problem, encoder: TableEncoder | PictureEncoder) -> None:
    """Look through the rows that were not drawn, so that a bad one does not show after the fit."""
    first = 0
    columns = encoder.used_columns
    for batch in problem.target.batches(columns, rows_per_batch(len(columns))):
        encoder.check(batch, name=problem.target.name, first_row=first)
        first += len(batch)


def _settings(
    problem: Problem, options: FitOptions, encoder: TableEncoder | PictureEncoder, seconds: float
) -> dict[str, Any]:
    from importlib.metadata import version

    from osls import __version__

    return {
        "method": options.method if isinstance(options.method, str) else repr(options.method),
        "fast": options.fast,
        "seed": options.random_state,
        "seconds": round(seconds, 1),
        "source": problem.source_name,
        "target": problem.target.name,
        "label": problem.label,
        "n_source": problem.n_source,
        "n_source_fitted": len(problem.labels),
        "n_target": problem.n_target,
        "n_target_fitted": len(problem.sampled_rows),
        **({"text_column": encoder.text_columns[0]} if encoder.text_columns else {}),
        "versions": {
            "osls": __version__,
            **{name: version(name) for name in ("numpy", "scikit-learn", "torch", "pandas", "pyarrow")},
        },
    }


def predict_target(problem: Problem, fit: Fit) -> Iterator[pd.DataFrame]:
    """Yield the predictions of all target rows in order.

    Rows that were fitted on get their out-of-fold answers, the others those of the fitted model.
    """
    adapted, fitted = fit.adapted, fit.adapted.adapter.target_proba_
    if not problem.is_sampled:
        yield tabulate(fitted, adapted.classes, problem.ids)
        return
    first = 0
    columns = adapted.encoder.used_columns
    for batch in problem.target.batches(columns, rows_per_batch(len(columns))):
        start, stop = np.searchsorted(problem.sampled_rows, [first, first + len(batch)])
        inside = problem.sampled_rows[start:stop] - first
        proba = np.empty((len(batch), len(adapted.classes)))
        proba[inside] = fitted[start:stop]
        rest = np.setdiff1d(np.arange(len(batch)), inside, assume_unique=True)
        proba[rest] = adapted.predict_proba(
            batch.iloc[rest], name=problem.target.name, first_row=first + rest
        )
        yield tabulate(proba, adapted.classes, problem.ids.iloc[first : first + len(batch)])
        first += len(batch)


def answer_for(problem: Problem, fit: Fit, predictions: pd.DataFrame | None, *, command: str) -> Answer:
    """Put an answer together; without ``predictions`` it holds the rows that were fitted on."""
    adapted, model = fit.adapted, fit.adapted.adapter
    rows, features = problem.target_sample, fit.features
    if predictions is None:
        predictions = tabulate(model.target_proba_, adapted.classes, problem.ids.iloc[problem.sampled_rows])
    elif problem.is_sampled:
        rows = problem.target.read(problem.columns)
        features = _encode_all(problem.target, adapted.encoder)
    return Answer(
        kind=adapted.kind,
        classes=adapted.classes,
        source_share=np.append(problem.class_counts / problem.n_source, 0.0),
        target_share=model.target_marginal_,
        interval=model.marginal_interval_,
        level=model.level,
        novelty_pvalue=getattr(model, "novelty_pvalue_", None),
        predictions=predictions,
        target_rows=rows,
        source_rows=problem.source.assign(**{problem.label: problem.labels}),
        features_target=features,
        feature_names=tuple(adapted.encoder.feature_names_),
        diagnostics=getattr(model, "diagnostics_", None),
        warnings=fit.warnings,
        model=model,
        command=command,
        settings=fit.settings,
        adapted=adapted,
    )


def _encode_all(target: RowFile, encoder: TableEncoder | PictureEncoder) -> AnyArray:
    parts = [encoder.transform(batch, name=target.name) for batch in target.batches(encoder.used_columns)]
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")  # type: ignore[no-any-return]
    return np.concatenate(parts)
