"""From a score of "known" to k+1 probabilities: rejection by a threshold, and the best threshold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from osls._core.arrays import Floats


def known_odds(score: Floats, threshold: float, low: float, high: float) -> Floats:
    """Map scores in [low, high] to [0, 1], linearly on each side of the threshold, which maps to 1/2."""
    above = 0.5 + 0.5 * (score - threshold) / max(high - threshold, 1e-12)
    below = 0.5 * (score - low) / max(threshold - low, 1e-12)
    # A score just below the threshold must not be rounded onto it.
    below = np.clip(below, 0.0, np.nextafter(0.5, 0.0))
    return np.asarray(np.where(score >= threshold, np.clip(above, 0.5, 1.0), below))


def reject(class_proba: Floats, known: Floats) -> Floats:
    """Give the novel class and the best known class the odds (1 - known) : known.

    So the novel class is predicted if and only if known < 1/2; the known classes keep their proportions.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.baselines.rejection import reject
    >>> reject(np.array([[0.8, 0.2]]), np.array([0.5])).round(3)
    array([[0.444, 0.111, 0.444]])
    """
    best = class_proba.max(axis=1, keepdims=True)
    classes = class_proba / np.where(best > 0, best, 1) * known[:, None]
    proba = np.column_stack([classes, 1 - known])
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def predicted_mix(proba: Floats, otherwise: Floats) -> tuple[Floats, float]:
    """Shares of the rows by their predicted class: among the known ones, and novel.

    Where no row is predicted known, the mix among the known classes is ``otherwise``.
    """
    counts = np.bincount(proba.argmax(axis=1), minlength=proba.shape[1])
    known = counts[:-1].sum()
    return counts[:-1] / known if known else otherwise, float(counts[-1] / counts.sum())


class BestThreshold(NamedTuple):
    """The threshold with the highest (k+1)-way accuracy, and that accuracy."""

    threshold: float
    accuracy: float


def best_threshold(
    known_score: ArrayLike, known_labels: ArrayLike, y_true: ArrayLike, novel_label: Any
) -> BestThreshold:
    """Find the best threshold, given the true labels, which only a benchmark has.

    Parameters
    ----------
    known_score : array-like of shape (m,)
        Score of each row, higher if it looks known; ``known_score_`` of a fitted method.
    known_labels : array-like of shape (m,)
        Best known class of each row; ``known_labels_``.
    y_true : array-like of shape (m,)
        The true labels.
    novel_label : object
        The label of novel rows in ``y_true``.

    Returns
    -------
    BestThreshold
        Pass ``threshold`` to the method.

    Examples
    --------
    >>> from osls.baselines import best_threshold
    >>> best_threshold([0.9, 0.8, 0.4, 0.3], [0, 1, 1, 0], [0, 1, -1, -1], novel_label=-1)
    BestThreshold(threshold=0.8, accuracy=1.0)
    """
    score, truth = np.asarray(known_score, dtype=np.float64), np.asarray(y_true)
    if score.shape != truth.shape or score.size == 0:
        raise ValueError(
            "known_score and y_true must have the same, positive length; "
            f"got {score.shape} and {truth.shape}."
        )
    order = np.argsort(score, kind="stable")
    right_if_known = (np.asarray(known_labels) == truth)[order]
    right_if_novel = (truth == novel_label)[order]
    # Position i: the i lowest scores are rejected. A threshold cannot separate equal scores.
    hits = (
        np.append(0, right_if_novel.cumsum()) + right_if_known.sum() - np.append(0, right_if_known.cumsum())
    )
    thresholds = np.append(score[order], np.nextafter(score.max(), np.inf))
    possible = np.append(True, thresholds[1:] != thresholds[:-1])
    best = int(np.flatnonzero(possible)[hits[possible].argmax()])
    return BestThreshold(float(thresholds[best]), float(hits[best] / len(score)))
