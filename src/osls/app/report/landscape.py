"""A map of the rows, and the telling columns of the novel ones beside the known ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.sparse import issparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler, normalize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from osls._core.arrays import AnyArray, Floats, Ints
from osls.app.answer import Answer
from osls.app.report.charts import MapPoint, levels_chart, map_chart, mirror_chart
from osls.app.report.traits import data_columns, id_columns, text_column, traits_of
from osls.app.report.wording import number, percent, shown

# So many rows are drawn: more make the map no clearer, and the page large.
_DRAWN = 600
_FEWEST = 20
_DIMENSIONS = 15
# Steps of t-SNE, scikit-learn's own number.
_STEPS = 1000
# In standard deviations: one wild value must not press all other rows into one heap.
_CLIP = 5.0
# Colours for known classes; the others share one.
MAP_COLOURS = 6
_TELLING = 6
_LEVELS = 5
_TIP_COLUMNS = 3


def draw_map(answer: Answer, groups: Sequence[Ints], columns: Sequence[str], *, seed: int) -> dict[str, Any]:
    """Draw target rows so that rows that are alike lie together (t-SNE), coloured by what they were called.

    Parameters
    ----------
    answer : Answer
        Its rows are drawn, a sample if they are many.
    groups : sequence of arrays
        Row numbers of each group of novel rows; groups are labelled by their number, from 1.
    columns : sequence of str
        Columns that a row's tip shows, the most telling first.
    seed : int
        Seed of the sample and of the map.

    Returns
    -------
    dict
        ``chart``, or None if there are too few rows; ``legend``, pairs of style and words; ``drawn``.
    """
    rng = np.random.default_rng(seed)
    m = len(answer.predictions)
    rows = np.sort(rng.permutation(m)[:_DRAWN])
    if len(rows) < _FEWEST:
        return {"chart": None, "legend": [], "drawn": 0}
    place = _placed(answer, rows, rng)
    called = answer.predictions["predicted"].astype(str).to_numpy()[rows]
    styles = _styles(answer, called)
    points = [
        MapPoint(float(x), float(y), styles.get(name, "other"), tip)
        for (x, y), name, tip in zip(place, called, _tips(answer, rows, columns), strict=True)
    ]
    labels = [] if len(groups) < 2 else _group_labels(groups, rows, place)
    legend = {style: shown(name, 26) for name, style in styles.items() if style != "other"}
    if "other" in styles.values():
        legend["other"] = "other known classes"
    return {
        "chart": map_chart("Map of the new rows, like beside like", points, labels),
        "legend": list(legend.items()),
        "drawn": len(rows),
    }


def _placed(answer: Answer, rows: Ints, rng: np.random.Generator) -> Floats:
    """Positions in the unit square."""
    leading = _leading(answer.features_target[rows], answer.kind != "table")
    if leading.shape[1] < 2:
        # A single feature has an order and no more; spread the rows a little, so that they can be pointed at.
        place = np.column_stack([leading[:, 0], rng.random(len(rows))])
    else:
        perplexity = min(30.0, (len(rows) - 1) / 3)
        with threadpool_limits(1):
            model = TSNE(
                perplexity=perplexity,
                max_iter=_STEPS,
                init="pca",
                random_state=int(rng.integers(2**31)),
                n_jobs=1,
            )
            place = model.fit_transform(leading)
    low, high = place.min(axis=0), place.max(axis=0)
    return np.asarray((place - low) / np.where(high > low, high - low, 1.0), dtype=float)


def _leading(features: AnyArray, spherical: bool) -> Floats:
    """Leading components of rows; of texts and pictures only the direction of a row counts."""
    if issparse(features):
        width = min(_DIMENSIONS, *(length - 1 for length in features.shape))
        return np.asarray(TruncatedSVD(width, random_state=0).fit_transform(normalize(features)))
    rows = np.nan_to_num(np.asarray(features, dtype=float).reshape(len(features), -1))
    rows = normalize(rows) if spherical else StandardScaler().fit_transform(rows).clip(-_CLIP, _CLIP)
    return np.asarray(PCA(min(_DIMENSIONS, *rows.shape), random_state=0).fit_transform(rows))


def _styles(answer: Answer, called: Any) -> dict[str, str]:
    """A colour for each class: the novel one has its own, the largest known ones have others."""
    known = [str(name) for name in answer.classes[:-1]]
    by_size = sorted(known, key=lambda name: -int((called == name).sum()))
    coloured = by_size if len(by_size) <= MAP_COLOURS else by_size[: MAP_COLOURS - 1]
    styles = {
        name: f"k{known.index(name) if len(known) <= MAP_COLOURS else i}" for i, name in enumerate(coloured)
    }
    return {name: styles.get(name, "other") for name in known} | {str(answer.classes[-1]): "novel"}


def _group_labels(groups: Sequence[Ints], rows: Ints, place: Floats) -> list[tuple[float, float, str]]:
    """The number of each group, at the row that is nearest to the others.

    The middle of rows that lie in several heaps is nobody's place.
    """
    labels = []
    for i, group in enumerate(groups):
        mine = place[np.isin(rows, group)]
        if len(mine):
            x, y = mine[np.linalg.norm(mine[:, None] - mine, axis=2).sum(axis=1).argmin()]
            labels.append((float(x), float(y), str(i + 1)))
    return labels


def _tips(answer: Answer, rows: Ints, columns: Sequence[str]) -> list[str]:
    """What is shown for a row that is pointed at: its name, what it was called, and some of its values."""
    predictions, target = answer.predictions.iloc[rows], answer.target_rows.iloc[rows]
    ids = [column for column in id_columns(answer) if column in predictions.columns]
    texts = text_column(answer) if answer.kind == "text" else None
    values = [texts] if texts else [column for column in columns if column in target.columns][:_TIP_COLUMNS]
    tips = []
    for i, row in enumerate(rows):
        record = predictions.iloc[i]
        if answer.kind == "images" and "file" in target.columns:
            name = shown(Path(str(target["file"].iloc[i])).name, 40)
        else:
            named = [_row_name(record[c]) if c == "row" else shown(record[c], 40) for c in ids]
            name = ", ".join(named) or f"row {row + 1:,}"
        called = f"called {shown(record['predicted'], 40)}, novel {percent(float(record['novel']))}"
        more = [f"{shown(column, 30)}: {_value(target[column].iloc[i])}" for column in values]
        tips.append("\n".join([f"{name}: {called}", *more]))
    return tips


def _row_name(value: Any) -> str:
    """The number of a row, or what a column of the user's that is called so has in its place."""
    return f"row {value:,}" if isinstance(value, int | np.integer) else f"row {shown(value, 40)}"


def _value(value: Any) -> str:
    return number(float(value)) if isinstance(value, float | np.floating) else shown(value, 80)


# -- Columns, novel against known -----------------------------------------------------------------------


def draw_contrasts(answer: Answer, *, seed: int) -> list[dict[str, Any]]:
    """Draw the columns in which the rows called novel differ most from those called known.

    Returns
    -------
    list of dict
        ``name``, ``sentence`` and ``chart`` of each column; empty for texts and pictures, and if one of the
        two sides has no rows.
    """
    called = answer.predictions["predicted"].astype(str).to_numpy()
    novel = np.flatnonzero(called == str(answer.classes[-1]))
    known = np.setdiff1d(np.arange(len(answer.predictions)), novel, assume_unique=True)
    if answer.kind != "table" or not len(novel) or not len(known):
        return []
    drawn: list[dict[str, Any]] = []
    (traits,) = traits_of(answer, [novel], seed=seed)
    for trait in traits:
        if trait.words or trait.column not in data_columns(answer) or len(drawn) == _TELLING:
            continue
        if trait.column in [each["name"] for each in drawn]:
            continue
        values = answer.target_rows[trait.column]
        chart = _contrast(trait.column, values.iloc[known], values.iloc[novel])
        if chart is not None:
            drawn.append({"name": trait.column, "sentence": trait.sentence, "chart": chart})
    return [each | {"name": shown(each["name"], 40)} for each in drawn]


def _contrast(name: str, known: Any, novel: Any) -> Markup | None:
    title = f"{shown(name, 40)}: known rows and novel rows"
    known, novel = known.dropna(), novel.dropna()
    if not len(known) or not len(novel):
        return None
    if is_numeric_dtype(known) and is_numeric_dtype(novel) and not is_bool_dtype(known):
        sides = [side.to_numpy(dtype=float) for side in (known, novel)]
        return mirror_chart(title, *(side[np.isfinite(side)] for side in sides))
    shares = [side.astype(str).value_counts(normalize=True) for side in (known, novel)]
    total = shares[0].add(shares[1], fill_value=0.0).sort_values(ascending=False)
    if len(total) > len(known):
        return None
    levels = [str(level) for level in total.index[:_LEVELS]]
    pairs = [(level, float(shares[0].get(level, 0.0)), float(shares[1].get(level, 0.0))) for level in levels]
    return levels_chart(title, pairs)
