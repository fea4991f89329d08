"""The paper's measures: accuracy on all, seen and novel rows, and errors of the estimated mix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import f1_score, roc_auc_score

from osls._core.validation import is_missing, list_labels, refuse_other_types

__all__ = ["Accuracy", "MixError", "accuracy", "h_score", "macro_f1", "mix_error", "novelty_auroc", "regret"]


class Accuracy(NamedTuple):
    """Share of right answers among all, known and novel rows (nan where there are none)."""

    all: float
    seen: float
    novel: float


class MixError(NamedTuple):
    """Errors of an estimated target marginal: summed over the known classes, and of the novel share."""

    seen: float
    novel: float


def accuracy(y_true: ArrayLike, y_pred: ArrayLike, novel_label: Any) -> Accuracy:
    """Acc(all), Acc(seen) and Acc(novel), the last being the recall of novel examples.

    ``y_true`` has ``novel_label`` where a row is of no known class, as ``y_target`` of ``simulate_osls`` has.
    Which classes are known cannot be seen from labels: the original name of a novel class counts as a known
    one. ``model.score(X, y)``, which knows its classes, counts such names as novel.

    Examples
    --------
    >>> from osls.metrics import accuracy
    >>> accuracy([0, 1, 1, -1], [0, 1, 0, -1], novel_label=-1)
    Accuracy(all=0.75, seen=0.6666666666666666, novel=1.0)
    """
    truth, answer = list_labels(y_true), list_labels(y_pred)
    if len(truth) != len(answer) or not truth:
        raise ValueError(
            f"y_true and y_pred must have the same, positive length; got {len(truth)} and {len(answer)}."
        )
    refuse_other_types(truth, answer)
    present = [not is_missing(label) for label in truth]
    pairs = zip(present, truth, answer, strict=True)
    hit = np.array([there and not is_missing(y) and x == y for there, x, y in pairs])
    novel = np.array([there and label == novel_label for there, label in zip(present, truth, strict=True)])

    def mean(part: Any) -> float:
        return float(hit[part].mean()) if part.any() else float("nan")

    return Accuracy(float(hit.mean()), mean(~novel), mean(novel))


def h_score(y_true: ArrayLike, y_pred: ArrayLike, novel_label: Any) -> float:
    """Harmonic mean of the accuracy on known rows and on novel ones; nan without rows of either kind.

    Examples
    --------
    >>> from osls.metrics import h_score
    >>> round(h_score([0, 1, 1, -1], [0, 1, 0, -1], novel_label=-1), 3)
    0.8
    """
    _, seen, novel = accuracy(y_true, y_pred, novel_label)
    return 2 * seen * novel / (seen + novel) if seen + novel != 0 else 0.0


def macro_f1(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Mean over the classes of the harmonic mean of precision and recall, the novel class being one of them.

    Examples
    --------
    >>> from osls.metrics import macro_f1
    >>> round(macro_f1([0, 1, 1, -1], [0, 1, 0, -1]), 3)
    0.778
    """
    return float(f1_score(y_true, y_pred, average="macro", zero_division=0.0))


def novelty_auroc(y_true: ArrayLike, novelty: ArrayLike, novel_label: Any) -> float:
    """How well a novelty score ranks novel rows above known ones; nan without rows of either kind.

    Examples
    --------
    >>> from osls.metrics import novelty_auroc
    >>> novelty_auroc([0, 1, -1, -1], [0.1, 0.8, 0.9, 0.7], novel_label=-1)
    0.75
    """
    novel = np.asarray(y_true) == novel_label
    return float("nan") if novel.all() or not novel.any() else float(roc_auc_score(novel, novelty))


def mix_error(true_marginal: ArrayLike, estimated_marginal: ArrayLike) -> MixError:
    """MPE(seen), the sum of absolute errors over the k known classes, and MPE(novel).

    Examples
    --------
    >>> from osls.metrics import mix_error
    >>> mix_error([0.5, 0.25, 0.25], [0.25, 0.25, 0.5])
    MixError(seen=0.25, novel=0.25)
    """
    true, estimated = (np.asarray(mix, dtype=float) for mix in (true_marginal, estimated_marginal))
    if true.ndim != 1 or true.shape != estimated.shape:
        raise ValueError(
            "true_marginal and estimated_marginal must hold a share of each class, the novel one last; got "
            f"shapes {true.shape} and {estimated.shape}."
        )
    error = np.abs(true - estimated)
    return MixError(float(error[:-1].sum()), float(error[-1]))


def regret(accuracy_of_oracle: float, accuracy_of_method: float) -> float:
    """How much less accurate a method is than the oracle: the same models, trained with target labels."""
    return accuracy_of_oracle - accuracy_of_method
