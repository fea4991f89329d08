"""``osls share``: the scores of any detector for known and for new rows in, the novel share out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from osls._core.arrays import Floats
from osls._core.screen import Screen
from osls.app.files.opening import open_rows
from osls.app.files.reader import InputError, Place, RowFile, did_you_mean, shorten
from osls.app.options import Higher
from osls.app.report.wording import percent, percent_range
from osls.app.tables.parsing import as_numbers, refuse_doubtful, wrong_value
from osls.inference.novelty import novelty_test
from osls.mixture import BBE

_MIN_SCORES = 10
_SIGNIFICANT = 0.05


def share_of(known: Floats, new: Floats, higher: Higher, *, level: float, seed: int) -> dict[str, Any]:
    """Estimate the novel share: the part of ``new`` that the scores of ``known`` do not account for.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.app.shares import share_of
    >>> rng = np.random.default_rng(0)
    >>> known, new = rng.normal(size=500), np.append(rng.normal(size=700), rng.normal(8, 1, 300))
    >>> answer = share_of(known, new, "new", level=0.95, seed=0)
    >>> round(answer["novel_share"], 1), answer["interval"][0] < 0.3 < answer["interval"][1]
    (0.3, True)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level}.")
    if seed < 0:
        raise ValueError(f"the seed must be at least 0; got {seed}.")
    # BBE and the test look for rows that score lower than known ones.
    sign = -1.0 if higher == "new" else 1.0
    estimator = BBE().fit(sign * known, sign * new)
    low, high = estimator.interval(level, random_state=seed)
    test = novelty_test(sign * known, sign * new, seed=seed)
    other_way = novelty_test(-sign * known, -sign * new, seed=seed)
    turned = test.pvalue > _SIGNIFICANT >= other_way.pvalue
    return {
        "novel_share": 1 - estimator.alpha_,
        "interval": [1 - high, 1 - low],
        "level": level,
        "p_value": test.pvalue,
        "detectable_share": test.detectable_share,
        "rows": {"known": len(known), "new": len(new)},
        "notes": [_turned(higher)] if turned else [],
    }


def _turned(higher: Higher) -> str:
    lower, other = ("lower", "known") if higher == "new" else ("higher", "new")
    return f"The new rows have {lower} scores than the known ones; if that means novel, add --higher {other}."


def run_share(
    known: str, new: str, higher: Higher, *, level: float, seed: int, column: str | None, as_json: bool
) -> None:
    """Read both files and print the share, its interval and the test."""
    scores = [_read_scores(path, column) for path in (known, new)]
    answer = share_of(scores[0], scores[1], higher, level=level, seed=seed)
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    screen = Screen()
    for line in _sentences(answer):
        screen.print(line, soft_wrap=True)


def _sentences(answer: dict[str, Any]) -> list[str]:
    rows, p = answer["rows"], answer["p_value"]
    size = f"{rows['known']:,} known and {rows['new']:,} new scores"
    seen = "is not only chance" if p <= _SIGNIFICANT else "could be chance"
    return [
        f"{percent(answer['novel_share'])} of the new rows are novel "
        f"({100 * answer['level']:g}% interval: {percent_range(*answer['interval'])}).",
        f"Test of 'nothing is novel': p = {p:.2g}, so that the difference {seen}.",
        f"{size}; a novel share of {percent(answer['detectable_share'])} or more would usually be found.",
        "Novel rows that score like known ones cannot be counted: read the share as a lower bound.",
        *(f"Note: {note}" for note in answer["notes"]),
    ]


def _read_scores(path: str, column: str | None) -> Floats:
    rows = open_rows(path)
    name = _score_column(rows, column)
    place = Place(rows.name)
    values = rows.read([name])[name]
    parsed = as_numbers(values)
    if parsed.wrong.any():
        raise wrong_value(
            values, parsed, place, "scores", "correct that value, or name another column with --column"
        )
    refuse_doubtful(values, parsed, place)
    scores = np.append(_headless(rows), parsed.values)
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise InputError(
            f"{rows.name}: row {place.row(row)} has no score, or an infinite one; give each a number."
        )
    if len(scores) < _MIN_SCORES:
        raise InputError(f"{rows.name}: there are {len(scores)} scores, at least {_MIN_SCORES} are needed.")
    return scores


def _score_column(rows: RowFile, column: str | None) -> str:
    if column is None and len(rows.columns) == 1:
        return rows.columns[0]
    if column is None:
        names = ", ".join(map(shorten, rows.columns[:8]))
        raise InputError(f"{rows.name}: which column holds the scores? Name one of {names} with --column.")
    if column not in rows.columns:
        raise InputError(
            f"{rows.name}: there is no column {shorten(column)}; {did_you_mean(column, rows.columns)}"
        )
    return column


def _headless(rows: RowFile) -> list[float]:
    """The first score, if it stands where other files have the name of their only column."""
    try:
        return [float(rows.columns[0])] if len(rows.columns) == 1 else []
    except ValueError:
        return []
