"""From a problem to a fitted model and to the answer: encode, fit, predict every row of the target."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from osls import __version__
from osls._core.arrays import AnyArray, Ints
from osls.app.files.reader import TEXT_COLUMN, Place
from osls.app.options import QUICK_ROWS, AdaptOptions
from osls.app.output import AdaptAnswer
from osls.app.predict import Adapted, tabulate
from osls.app.tables.pictures import PictureEncoder
from osls.app.tables.problem import Problem, made_columns
from osls.app.tables.table_encoder import TableEncoder
from osls.pulse import PULSE
from osls.training.cost import Cost

_Encoder = TableEncoder | PictureEncoder
# Seconds of a fit from which on other ways are offered.
_LONG = 600
_QUICK_NOTE = (
    "This was a first look (quick): small models and three folds. Shares can be several points off; run it "
    "with the default effort for figures to rely on."
)


@dataclass(frozen=True)
class Fit:
    """A fit, the problem it was made for, and the features of the target rows it was made on."""

    problem: Problem
    adapted: Adapted
    features: AnyArray
    warnings: tuple[str, ...]
    settings: Mapping[str, Any]
    parent: Mapping[str, Any] | None = None

    def predictions(self) -> Iterator[pd.DataFrame]:
        """Yield the predictions of all target rows in order.

        Rows that were fitted on get their out-of-fold answers, the others those of the fitted model.
        """
        problem, adapted = self.problem, self.adapted
        fitted, group = adapted.adapter.target_proba_, adapted.adapter.discover().group
        if not problem.is_sampled:
            yield _numbered(tabulate(fitted, adapted.classes, problem.ids, group), problem.sampled_rows)
            return
        first = 0
        for place, batch in problem.target.placed_batches(adapted.encoder.used_columns):
            start, stop = np.searchsorted(problem.sampled_rows, [first, first + len(batch)])
            inside = problem.sampled_rows[start:stop] - first
            rest = np.setdiff1d(np.arange(len(batch)), inside, assume_unique=True)
            proba = np.empty((len(batch), len(adapted.classes)))
            proba[inside] = fitted[start:stop]
            proba[rest] = adapted.predict_proba(batch.iloc[rest], Place(place.name, first + rest))
            # Groups are those of the rows that were fitted on.
            groups = np.full(len(batch), -1)
            groups[inside] = group[start:stop]
            answers = tabulate(proba, adapted.classes, problem.ids.iloc[first : first + len(batch)], groups)
            yield _numbered(answers, np.arange(first, first + len(batch)))
            first += len(batch)

    def answer(self, command: str, *, every_row: bool) -> AdaptAnswer:
        """Put the answer together, with every row of the target or with those that were fitted on."""
        problem, adapted, model = self.problem, self.adapted, self.adapted.adapter
        rows, features = problem.target_sample, self.features
        if every_row:
            predictions = pd.concat(list(self.predictions()), ignore_index=True)
            if problem.target.index is not None:
                # So that target["predicted"] = answer.predictions["predicted"] puts each answer in its row.
                predictions.index = problem.target.index
        else:
            ids = problem.ids.iloc[problem.sampled_rows]
            answers = tabulate(model.target_proba_, adapted.classes, ids, model.discover().group)
            predictions = _numbered(answers, problem.sampled_rows)
        if every_row and problem.is_sampled:
            rows, features = problem.target.read(problem.columns), _encode_all(problem, adapted.encoder)
        groups = model.discover()
        if every_row and problem.is_sampled:
            groups = groups.among(problem.sampled_rows, problem.n_target)
        source_share = np.zeros(len(adapted.classes))
        source_share[: len(problem.class_counts)] = problem.class_counts / problem.n_source
        return AdaptAnswer(
            kind=adapted.kind,
            classes=adapted.classes,
            source_share=source_share,
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
            warnings=self.warnings,
            model=model,
            command=command,
            settings=self.settings,
            groups=groups,
            parent=self.parent,
            adapted=adapted,
        )


def _numbered(answers: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Add the row's number in the target, counted from 1 as the report does, unless an id has that name."""
    if "row" not in answers.columns:
        answers.insert(0, "row", rows + 1)
    return answers


def fit_problem(problem: Problem, options: AdaptOptions, say: Callable[[str], None]) -> Fit:
    """Encode and fit. All rows are checked before anything is trained."""
    started = time.perf_counter()
    say("Encoding")
    encoder, X, X_target = _encode(problem, options)
    problem = _with_detected_ids(problem, encoder)
    model = make_adapter(options)
    if options.verbose and model.recipe == "cross-fit":
        cost = model.estimate_cost(X, problem.labels, X_target)
        for line in (f"Fitting, about {cost}", *too_long(cost, options)):
            say(line)
    else:
        say("Fitting")
    notes = [*encoder.warnings_, *fit_quietly(model, X, problem.labels, X_target)]
    if options.effort == "quick":
        notes.append(_QUICK_NOTE)
    settings = _settings(problem, options, encoder, time.perf_counter() - started)
    adapted = Adapted(
        encoder,
        model,
        tuple(map(str, model.classes_)),
        "text" if encoder.kind_ == "text" else problem.kind,
        problem.label,
        tuple(problem.ids.columns),
        # The notes are kept for osls absorb, whose answer they hold for as well.
        {
            **settings,
            "source_share": (problem.class_counts / problem.n_source).tolist(),
            "notes": notes,
        },
    )
    return Fit(problem, adapted, X_target, (*problem.warnings, *notes), settings)


# -- Rows to features -------------------------------------------------------------------------------


def _encode(problem: Problem, options: AdaptOptions) -> tuple[_Encoder, AnyArray, AnyArray]:
    """Return the fitted encoder and the features of both sides; check the rows that were not drawn, too."""
    encoder: _Encoder
    if problem.kind == "images":
        encoder = PictureEncoder(images=options.images)
    else:
        encoder = TableEncoder(text=options.text, texts=[TEXT_COLUMN] if problem.kind == "text" else [])
    encoder.fit(problem.source, problem.target_sample, problem.places)
    X = encoder.transform(problem.source, problem.places[0])
    X_target = encoder.transform(problem.target_sample, problem.places[1])
    if problem.is_sampled:
        for place, batch in problem.target.placed_batches(encoder.used_columns):
            encoder.check(batch, place)
    return encoder, X, X_target


def _with_detected_ids(problem: Problem, encoder: _Encoder) -> Problem:
    """Carry columns that name the row into the predictions as well; the user may not have thought of it.

    Not those that are called like a column of the predictions: nobody asked for them.
    """
    taken = {*problem.ids.columns, *made_columns(np.unique(problem.labels).tolist())}
    columns = [name for name in getattr(encoder, "id_columns_", []) if name not in taken]
    if not columns:
        return problem
    detected = problem.target.read(columns).reset_index(drop=True)
    return replace(problem, ids=pd.concat([problem.ids.reset_index(drop=True), detected], axis=1))


def _encode_all(problem: Problem, encoder: _Encoder) -> AnyArray:
    batches = problem.target.placed_batches(encoder.used_columns)
    parts = [encoder.transform(batch, place) for place, batch in batches]
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")  # type: ignore[no-any-return]
    return np.concatenate(parts)


# -- The model --------------------------------------------------------------------------------------


def make_adapter(options: AdaptOptions) -> PULSE:
    """Return the adapter that the options ask for, unfitted."""
    if isinstance(options.method, PULSE):
        return clone(options.method)  # type: ignore[no-any-return]
    parameters: dict[str, Any] = {
        "recipe": "paper" if options.method == "pulse-paper" else "cross-fit",
        "level": options.level,
        "random_state": options.random_state,
        "novel_label": options.novel_label,
        "effort": options.effort,
        "n_jobs": options.n_jobs,
        "verbose": options.verbose,
        **options.parameters,
    }
    known = PULSE().get_params(deep=False)
    for name in parameters:
        if name not in known:
            raise TypeError(f"adapt() has no argument {name!r}, and neither has PULSE.")
    return PULSE(**parameters)


def too_long(cost: Cost, options: AdaptOptions) -> list[str]:
    """What to do about a fit that takes longer than a break."""
    if cost.seconds < _LONG or options.effort == "quick":
        return []
    return [f"If that is too long: --max-rows {QUICK_ROWS} fits on a sample, --effort quick on small models."]


def fit_quietly(model: PULSE, X: AnyArray, y: AnyArray, X_target: AnyArray) -> list[str]:
    """Fit and return what the model warned of; what other libraries warn of is passed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, X_target=X_target)
    notes = []
    for each in caught:
        if each.category is UserWarning:
            notes.append(str(each.message))
        elif not issubclass(each.category, ConvergenceWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return list(dict.fromkeys(notes))


def _settings(problem: Problem, options: AdaptOptions, encoder: _Encoder, seconds: float) -> dict[str, Any]:
    packages = ("numpy", "scikit-learn", "torch", "pandas", "pyarrow")
    return {
        "method": options.method if isinstance(options.method, str) else repr(options.method),
        "effort": options.effort,
        "seed": options.random_state,
        "seconds": round(seconds, 1),
        "source": problem.places[0].name,
        "target": problem.target.name,
        "label": problem.label,
        "n_source": problem.n_source,
        "n_source_fitted": len(problem.labels),
        "n_target": problem.n_target,
        "n_target_fitted": len(problem.sampled_rows),
        **({"text_column": encoder.text_columns[0]} if encoder.text_columns else {}),
        "versions": {"osls": __version__, **{name: version(name) for name in packages}},
    }
