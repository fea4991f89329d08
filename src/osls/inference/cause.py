"""What most likely made the target differ from the source, from held-out scores and counts of copies.

Five answers: the class mix alone moved; a class is new; the known classes look different now (another batch,
another camera, drift); rows stand on both sides; or labels of the source are wrong. benchmarks/violations.py
counts how often each is named rightly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import beta

from osls._core.arrays import Bools, Floats
from osls._core.copies import SharedRows
from osls._core.saving import saveable
from osls.shift.scores import HeldOutScores

CauseName = Literal["label shift only", "novel class", "changed looks", "copies", "wrong labels"]

_SENTENCES: dict[CauseName, str] = {
    "label shift only": "the known classes are more or less common than they were, and nothing else",
    "novel class": "a class that the labels do not cover",
    "changed looks": (
        "the known classes look different now (another batch, another camera, drift), or none of them is "
        "left; if the change is small, align=True corrects for it"
    ),
    "copies": "the same rows stand on both sides",
    "wrong labels": "labels of the source are wrong",
}

# Copies are a leak from so many rows and so large a share of the target on, beyond what chance gives.
_MIN_COPIES = 3
COPIED = 0.005
# The part of the source rows that the source classifier is surest of. Of these nearly all are right in clean
# data, however hard the others are: labels are wrong if surely more than this part is not, and errors are
# nearly as frequent there as elsewhere. Of a classifier that is wrong more often nothing can be said.
_SUREST = 0.25
WRONG = 0.03
_SURELY = 0.01
_AS_FREQUENT = 0.35
_OFTEN_WRONG = 0.4
# Part of the source rows of most classes that is called novel: a new class takes from a few classes only.
REJECTED = 0.25


@saveable
@dataclass(frozen=True)
class Cause:
    """The most likely cause of what changed, and a sentence about it."""

    name: CauseName

    def __str__(self) -> str:
        return f"Most likely cause: {_SENTENCES[self.name]}."


def likely_cause(
    scores: HeldOutScores, novel_share: float, source_called_novel: Bools, shared: SharedRows | None = None
) -> Cause:
    """Name the most likely cause.

    Parameters
    ----------
    scores : HeldOutScores
        Scores of the source classifier are used.
    novel_share : float
        As reported: zero unless "nothing is new" was rejected.
    source_called_novel : array of shape (n,)
        Which of the source rows look more like the novel part of the target than like its known part.
    shared : SharedRows, optional
        Target rows that are copies of source rows.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.cause import likely_cause
    >>> from osls.shift.scores import HeldOutScores
    >>> y = np.repeat([0, 1], 50)
    >>> sure = np.where(y[:, None] == [0, 1], 0.9, 0.1)
    >>> scores = HeldOutScores(y, sure, sure, sure, sure)
    >>> print(likely_cause(scores, 0.3, y < 0))
    Most likely cause: a class that the labels do not cover.
    >>> likely_cause(scores, 0.3, y >= 0).name
    'changed looks'
    """
    if shared is not None and leaks(shared):
        return Cause("copies")
    if wrong_labels(scores)[1] > WRONG:
        return Cause("wrong labels")
    if novel_share == 0:
        return Cause("label shift only")
    if in_most(scores.by_class(source_called_novel)) > REJECTED:
        return Cause("changed looks")
    return Cause("novel class")


def in_most(by_class: Floats) -> float:
    """The share that most classes reach: the lower of the two in the middle, if their number is even.

    Of two classes one may be absent from the target, and looks newer than anything there.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.cause import in_most
    >>> in_most(np.array([0.0, 0.9])), in_most(np.array([0.2, 0.9, 0.4]))
    (0.0, 0.4)
    """
    return float(np.quantile(by_class, 0.5, method="lower"))


def leaks(shared: SharedRows) -> bool:
    """Whether more target rows are copies of source rows than rows repeat by chance."""
    return shared.count >= _MIN_COPIES and shared.share > COPIED + 2 * shared.by_chance


def wrong_labels(scores: HeldOutScores) -> tuple[float, float]:
    """Share of wrong answers among those the source classifier is surest of, and a lower bound of it (99 %).

    Where classes overlap a classifier errs and is unsure. With wrong labels it errs nearly as often where it
    is surest, because the labels it is compared with are wrong there too. The bound is zero if it does not.

    Examples
    --------
    A fifth of the labels is wrong, at random:

    >>> import numpy as np
    >>> from osls.inference.cause import wrong_labels
    >>> from osls.shift.scores import HeldOutScores
    >>> true = np.repeat([0, 1], 500)
    >>> y = np.where(np.arange(1000) % 5 == 0, 1 - true, true)
    >>> proba = np.where(true[:, None] == [0, 1], 0.8, 0.2)
    >>> [round(v, 2) for v in wrong_labels(HeldOutScores(y, proba, proba, proba, proba))]
    [0.2, 0.17]
    """
    sure = scores.class_source.max(axis=1)
    error = scores.class_source.argmax(axis=1) != scores.y
    surest = error[sure >= np.quantile(sure, 1 - _SUREST)]
    wrong, share = int(surest.sum()), float(surest.mean())
    if error.mean() > _OFTEN_WRONG or share <= _AS_FREQUENT * error.mean():
        return share, 0.0
    return share, float(beta.ppf(_SURELY, wrong, len(surest) - wrong + 1))
