"""Groups inside the novel part, and example rows of every kind, with small pictures of them."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler, normalize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.extras import require
from osls.app.answer import Answer
from osls.app.files.guards import PICTURE_FORMATS
from osls.app.report.traits import Trait, data_columns, id_columns, text_column, traits_of, without_header
from osls.app.report.wording import number, percent, shown

MAX_GROUPS = 8
# Below this a split could not be checked on halves.
_SMALLEST_TO_SPLIT = 30
_SAMPLE = 3000
_DIMENSIONS = 10
# Tibshirani and Walther take the largest number of groups with a prediction strength above 0.8 or 0.9. Known
# rows that were called novel belong to no group and cost some of it, so a little less is asked for.
_STRENGTH = 0.75
_HALVINGS = 5


@dataclass(frozen=True)
class Clustering:
    """Group of each row (largest group first), and the distance of the row to its group's centre."""

    labels: Ints
    distance: Floats
    strength: float


@dataclass(frozen=True)
class Group:
    """Rows of the target that are novel in the same way."""

    rows: Ints
    share: float
    traits: tuple[Trait, ...]
    resembles: str | None


def novel_rows(answer: Answer) -> Ints:
    """Row numbers of the target that were called novel."""
    called = answer.predictions["predicted"].astype(str).to_numpy() == str(answer.classes[-1])
    return np.flatnonzero(called)


def find_groups(answer: Answer, *, seed: int = 0) -> tuple[Group, ...]:
    """Split the rows called novel into groups, the largest first; rows are the most typical first."""
    rows = novel_rows(answer)
    if len(rows) == 0:
        return ()
    clusters = cluster(answer.features_target[rows], spherical=answer.kind != "table", seed=seed)
    members = [
        rows[part[np.argsort(clusters.distance[part], kind="stable")]]
        for part in (np.flatnonzero(clusters.labels == j) for j in range(int(clusters.labels.max()) + 1))
    ]
    m = len(answer.predictions)
    return tuple(
        Group(part, len(part) / m, traits, _resembles(answer, part))
        for part, traits in zip(members, traits_of(answer, members, seed=seed), strict=True)
    )


def _resembles(answer: Answer, rows: Ints) -> str | None:
    """The known class that the classifier would choose for most of the rows, if it had to."""
    known = [str(name) for name in answer.classes[:-1]]
    columns = [f"p_{name}" for name in known]
    if len(known) < 2 or not set(columns) <= set(answer.predictions.columns):
        return None
    proba = answer.predictions[columns].to_numpy(dtype=float)[rows]
    votes = np.bincount(proba.argmax(axis=1)[proba.sum(axis=1) > 0], minlength=len(known))
    best = int(votes.argmax())
    return shown(known[best]) if votes[best] > 0.5 * len(rows) else None


def cluster(features: AnyArray, *, spherical: bool, seed: int = 0) -> Clustering:
    """Group rows by k-means on their leading components; the number of groups is chosen by the data.

    A number of groups is kept if it predicts: centres found on one half of the rows must put the other
    half's pairs together as that half's own centres do. The largest number for which this holds for at least
    75% of the pairs of the worst group is taken, and one group if none does.

    Parameters
    ----------
    features : array or CSR matrix of shape (n, ...)
        The rows as the models saw them.
    spherical : bool
        Whether only the direction of a row counts (texts, embeddings), or columns have units of their own.
    seed : int
        Seed of the halves and of k-means.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.app.report.groups import cluster
    >>> rng = np.random.default_rng(0)
    >>> rows = np.concatenate([rng.normal(0, 1, (80, 3)), rng.normal(9, 1, (40, 3))])
    >>> clusters = cluster(rows, spherical=False)
    >>> np.bincount(clusters.labels).tolist()
    [80, 40]

    References
    ----------
    .. [1] Tibshirani, Walther. Cluster Validation by Prediction Strength. JCGS, 2005.
    """
    # Hundreds of small k-means: threads cost more than they bring, the more so on a busy machine.
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer distinct rows than groups: such a number of groups has no strength, and is not chosen.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _cluster(features, spherical, np.random.default_rng(seed))


def _cluster(features: AnyArray, spherical: bool, rng: np.random.Generator) -> Clustering:
    n = features.shape[0]
    components = _components(features, spherical, rng)
    sample = components[rng.permutation(n)[:_SAMPLE]]
    strengths = {1: 1.0}
    if n >= _SMALLEST_TO_SPLIT:
        largest = min(MAX_GROUPS, n // (_SMALLEST_TO_SPLIT // 2))
        strengths |= {k: _prediction_strength(sample, k, rng) for k in range(2, largest + 1)}
    k = max(k for k, strength in strengths.items() if strength >= _STRENGTH)
    model = KMeans(k, n_init=10, random_state=int(rng.integers(2**31))).fit(sample)
    # The largest group comes first.
    labels = model.predict(components)
    rank = np.argsort(np.argsort(-np.bincount(labels, minlength=k), kind="stable"))
    distance = np.linalg.norm(components - model.cluster_centers_[labels], axis=1)
    return Clustering(np.unique(rank[labels], return_inverse=True)[1], distance, strengths[k])


def _components(features: AnyArray, spherical: bool, rng: np.random.Generator) -> Floats:
    seed = int(rng.integers(2**31))
    n = features.shape[0]
    if issparse(features):
        unit = normalize(features)
        d = min(_DIMENSIONS, n, features.shape[1])
        return np.asarray(normalize(TruncatedSVD(d, random_state=seed).fit_transform(unit)))
    rows = np.nan_to_num(np.asarray(features, dtype=float).reshape(n, -1), posinf=0.0, neginf=0.0)
    rows = normalize(rows) if spherical else StandardScaler().fit_transform(rows)
    d = min(_DIMENSIONS, n, rows.shape[1])
    return np.asarray(PCA(d, random_state=seed).fit_transform(rows))


def _prediction_strength(rows: Floats, k: int, rng: np.random.Generator) -> float:
    strengths = []
    for _ in range(_HALVINGS):
        order = rng.permutation(len(rows))
        half = len(rows) // 2
        one, other = (
            KMeans(k, n_init=5, random_state=int(rng.integers(2**31))).fit(rows[part])
            for part in (order[:half], order[half:])
        )
        predicted = one.predict(rows[order[half:]])
        strengths.append(min(_pairs_kept(predicted[other.labels_ == j]) for j in range(k)))
    return float(np.mean(strengths))


def _pairs_kept(predicted: Ints) -> float:
    """Share of the pairs of rows that stay together."""
    n = len(predicted)
    counts = np.bincount(predicted)
    return float((counts * (counts - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0


_EXCERPT = 260
_LONGEST_TEXT = 1500
_MAX_COLUMNS = 8
_FEWEST_COLUMNS = 4


@dataclass(frozen=True)
class TableValue:
    """A value of a table as text, and as a number to sort by if it is one."""

    words: str
    value: float | None = None


@dataclass(frozen=True)
class Example:
    """One row; what its kind does not have is empty."""

    name: str
    novelty: float
    novelty_words: str
    resembles: str
    entries: tuple[TableValue, ...] = ()
    excerpt: str = ""
    rest: str = ""
    picture: str | None = None


def most_novel(answer: Answer, count: int) -> Ints:
    """Row numbers with the largest novelty, the largest first."""
    novelty = answer.predictions["novel"].to_numpy(dtype=float)
    if len(novelty) <= count:
        return np.argsort(-novelty, kind="stable")
    best = np.argpartition(-novelty, count)[:count]
    return np.asarray(best[np.argsort(-novelty[best], kind="stable")])


def example_columns(answer: Answer, telling: Sequence[str] = ()) -> list[str]:
    """Columns of a table worth showing: the telling ones first, then as they come."""
    if answer.kind != "table":
        return []
    columns = data_columns(answer)
    chosen = list(dict.fromkeys(c for c in telling if c in columns))
    if len(chosen) < _FEWEST_COLUMNS:
        chosen = list(dict.fromkeys([*chosen, *columns]))
    return chosen[:_MAX_COLUMNS]


def examples(answer: Answer, rows: Ints, columns: Sequence[str] = ()) -> list[Example]:
    """Rows as a page shows them."""
    # A picture's file is its name already.
    ids = [c for c in id_columns(answer) if not (answer.kind == "images" and c == "file")]
    known = [str(name) for name in answer.classes[:-1]]
    frame = answer.predictions.iloc[rows]
    part = answer.target_rows.iloc[rows]
    proba = [f"p_{name}" for name in known]
    texts = text_column(answer) if answer.kind == "text" else None
    made = []
    for i, row in enumerate(rows):
        record = frame.iloc[i]
        likely = int(np.argmax([float(record[c]) for c in proba])) if set(proba) <= set(frame.columns) else 0
        novelty = float(record["novel"])
        content = _content(answer, part.iloc[i], columns, texts)
        name = ", ".join(shown(record[c], 40) for c in ids) or _row_name(answer, part, i, int(row))
        made.append(Example(name, novelty, percent(novelty), shown(known[likely]), **content))
    return made


def _content(answer: Answer, row: Any, columns: Sequence[str], texts: str | None) -> dict[str, Any]:
    """What a row shows of itself: values, a text or a picture."""
    if answer.kind == "table":
        return {"entries": tuple(_table_value(row[column]) for column in columns)}
    if texts is not None:
        excerpt, rest = _excerpt(row[texts])
        return {"excerpt": excerpt, "rest": rest}
    return {"picture": _picture(answer, str(row["file"]))} if "file" in row.index else {}


def _row_name(answer: Answer, part: Any, i: int, row: int) -> str:
    if answer.kind == "images" and "file" in part.columns:
        return shown(Path(str(part["file"].iloc[i])).name, 40)
    sampled = answer.settings.get("n_target", 0) > len(answer.predictions)
    return f"row\u00a0{row + 1:,}{' of the sample' if sampled else ''}"


def _table_value(value: Any) -> TableValue:
    if isinstance(value, (float, np.floating)):
        if np.isfinite(value):
            return TableValue(number(float(value)), float(value))
        return TableValue("missing" if np.isnan(value) else str(value))
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return TableValue(f"{int(value):,}", float(value))
    if value is None or str(value) in ("NaT", "<NA>"):
        return TableValue("missing")
    return TableValue(shown(value, 60))


def _excerpt(value: Any) -> tuple[str, str]:
    """The beginning of a text, cut at a word, and what follows it."""
    text = shown(without_header(str(value)), _LONGEST_TEXT)
    if len(text) <= _EXCERPT:
        return text, ""
    cut = text.rfind(" ", _EXCERPT // 2, _EXCERPT)
    cut = cut if cut > 0 else _EXCERPT
    return text[:cut], text[cut:].lstrip()


def _picture(answer: Answer, file: str) -> str | None:
    path = Path(file)
    folder = answer.settings.get("target")
    if not path.is_file() and isinstance(folder, (str, Path)):
        path = Path(folder) / file
    return thumbnail_uri(path)


def thumbnail_uri(path: Path, *, side: int = 112, quality: int = 72) -> str | None:
    """Encode a picture as WebP of at most ``side`` pixels; None if it cannot be read.

    A picture that is missing, broken or suspiciously large does not stop a report. Metadata, which may say
    where and by whom a photograph was taken, is not copied.
    """
    Image, ImageOps = (require(f"PIL.{name}", extra="images") for name in ("Image", "ImageOps"))
    try:
        with warnings.catch_warnings():
            # Pillow warns of decompression bombs before it refuses them.
            warnings.simplefilter("error")
            with Image.open(path, formats=PICTURE_FORMATS) as image:
                image.draft("RGB", (2 * side, 2 * side))
                upright = ImageOps.exif_transpose(image).convert("RGBA")
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError):
        return None
    # Very small pictures are enlarged without smoothing, so that their pixels can be seen.
    scale = side / max(upright.size)
    size = tuple(max(1, round(scale * length)) for length in upright.size)
    how = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    file = io.BytesIO()
    upright.resize((size[0], size[1]), how).save(file, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
