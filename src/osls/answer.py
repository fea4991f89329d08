"""What `osls adapt` found, as one object: files, pages and notebooks are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from osls._typing import AnyArray, Floats
from osls.base import OpenSetAdapter
from osls.inference.verdict import Diagnostics

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Answer", "Kind"]

Kind = Literal["table", "text", "images"]


@dataclass(frozen=True)
class Answer:
    """The three questions answered for one target, with all that a report needs.

    Attributes
    ----------
    kind : {"table", "text", "images"}
        What the rows are.
    classes : tuple of str
        The k known classes, then the name of the novel one.
    source_share, target_share : arrays of shape (k + 1,)
        The mix before and now; the novel class had none before.
    interval : array of shape (k + 1, 2)
        Interval for ``target_share``.
    level : float
        Its level.
    novelty_pvalue : float or None
        p-value of "there is nothing new".
    predictions : DataFrame of m rows
        Id columns if any, ``predicted``, ``novel`` (probability of the novel class) and ``p_<class>``.
    target_rows : DataFrame of m rows
        The target as it was read; for images the column ``file``, for texts the text column.
    source_rows : DataFrame
        The source as it was read, label included (a sample if it was large).
    features_target : array or CSR matrix of m rows
        The rows as the models saw them; groups inside the novel part are found here.
    feature_names : tuple of str
        Names of those features, where they have any meaning to a person.
    diagnostics : Diagnostics or None
        What may be concluded.
    warnings : tuple of str
        What the reader of the files had to say (columns left out, rows dropped).
    model : OpenSetAdapter
        The fitted adapter.
    command : str
        How to reproduce it.
    settings : mapping
        Versions, seed, sizes, seconds.
    """

    kind: Kind
    classes: tuple[str, ...]
    source_share: Floats
    target_share: Floats
    interval: Floats
    level: float
    novelty_pvalue: float | None
    predictions: pd.DataFrame
    target_rows: pd.DataFrame
    source_rows: pd.DataFrame
    features_target: AnyArray
    feature_names: tuple[str, ...]
    diagnostics: Diagnostics | None
    warnings: tuple[str, ...]
    model: OpenSetAdapter
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
