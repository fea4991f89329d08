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

from osls._core.arrays import Ints
from osls._core.extras import require
from osls.app.answer import Answer
from osls.app.files.guards import PICTURE_FORMATS
from osls.app.report.traits import (
    Trait,
    apart_from_each_other,
    data_columns,
    id_columns,
    text_column,
    traits_of,
    without_header,
)
from osls.app.report.wording import number, percent, shown


@dataclass(frozen=True)
class Group:
    """Rows of the target that are novel in the same way; ``apart`` tells them from the other groups."""

    rows: Ints
    share: float
    interval: tuple[float, float]
    purity: float
    traits: tuple[Trait, ...]
    apart: tuple[Trait, ...]
    resembles: str | None


def find_groups(answer: Answer, *, seed: int = 0) -> tuple[Group, ...]:
    """The groups of the rows called novel with what tells them apart; rows are the most typical first."""
    found = answer.discovery.groups
    if not found:
        return ()
    rows = [group.rows for group in found]
    traits = traits_of(answer, rows, seed=seed)
    apart = apart_from_each_other(answer, rows, seed=seed)
    return tuple(
        Group(
            group.rows,
            group.share,
            group.interval,
            group.purity,
            told,
            others,
            None if group.nearest is None else shown(str(group.nearest)),
        )
        for group, told, others in zip(found, traits, apart, strict=True)
    )


_EXCERPT = 260
_LONGEST_TEXT = 1500
_MAX_COLUMNS = 8
# Characters of the headings that stand beside each other on the page, and what lies between two of them.
_WIDTH, _BETWEEN = 66, 2
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
    # Stable, so that rows which are equally novel come in the same order however many are asked for.
    return np.asarray(np.argsort(-novelty, kind="stable")[:count])


def example_columns(answer: Answer, telling: Sequence[str] = ()) -> list[str]:
    """Columns of a table worth showing: the telling ones first, then as they come."""
    if answer.kind != "table":
        return []
    columns = data_columns(answer)
    chosen = list(dict.fromkeys(c for c in telling if c in columns))
    if len(chosen) < _FEWEST_COLUMNS:
        chosen = list(dict.fromkeys([*chosen, *columns]))
    # As many as stand beside each other on the page.
    ends = np.cumsum([len(shown(name)) + _BETWEEN for name in chosen])
    return chosen[: max(1, min(_MAX_COLUMNS, int(np.searchsorted(ends, _WIDTH, side="right"))))]


def examples(answer: Answer, rows: Ints, columns: Sequence[str] = ()) -> list[Example]:
    """Rows as a page shows them."""
    # The file of a picture is its name already.
    ids = [c for c in id_columns(answer) if not (answer.kind == "images" and c in ("row", "file"))]
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
        # In a table the heading says that it is a row; beside a text a number alone says nothing.
        start = {"row": "row\u00a0"} if answer.kind == "text" else {}
        named = ", ".join(start.get(c, "") + shown(record[c], 40) for c in ids)
        name = named or _row_name(answer, part, i, int(row))
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
