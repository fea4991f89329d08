"""What a PU classifier is given: two samples, or one sample with labels 1 and 0 = unlabelled."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from osls._typing import AnyArray
from osls.validation import check_rows

__all__ = ["check_positive_unlabeled"]


def check_positive_unlabeled(estimator: Any, X: Any, y: Any, n_folds: int) -> tuple[AnyArray, AnyArray]:
    """Return validated positive and unlabelled rows from either form of ``fit``'s arguments.

    ``y`` is labels if it has one dimension, or a single column where X has more; otherwise it is the
    unlabelled rows.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: pass the "
            "unlabelled rows, fit(X_positive, X_unlabeled), or labels, fit(X, y) with y = 1 or 0."
        )
    if _are_labels(y, X):
        positive, unlabeled = _split(estimator, X, y)
    else:
        positive, unlabeled = _check_both(estimator, X, y)
    n, m = positive.shape[0], unlabeled.shape[0]
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2; got {n_folds}.")
    if min(n, m) < n_folds:
        raise ValueError(
            f"n_folds={n_folds} needs as many positive and unlabelled rows, at least; got {n} and {m}. "
            "Lower n_folds or add rows."
        )
    return positive, unlabeled


def _are_labels(y: Any, X: Any) -> bool:
    shape = _shape(y)
    return len(shape) < 2 or (len(shape) == 2 and shape[1] == 1 and _shape(X)[1:] != (1,))


def _shape(a: Any) -> tuple[int, ...]:
    return tuple(a.shape) if hasattr(a, "shape") else np.asarray(a).shape


def _split(estimator: Any, X: Any, y: Any) -> tuple[AnyArray, AnyArray]:
    X, y = check_rows(estimator, X, y, reset=True)
    values = np.unique(y)
    if not np.isin(values, [0, 1]).all():
        shown = ", ".join(repr(value) for value in values[:5].tolist())
        # scikit-learn's wording for the commonest mistake.
        many = "Only binary classification is supported. " if len(values) > 2 else ""
        raise ValueError(
            f"{many}y must be 1 for positive rows and 0 for unlabelled ones; got {shown}. "
            "Unlabelled rows may also be passed in its place, fit(X_positive, X_unlabeled)."
        )
    if len(values) < 2:
        missing = "0 (unlabelled)" if values[0] == 1 else "1 (positive)"
        raise ValueError(f"y has one class, {int(values[0])}; at least one row of {missing} is needed.")
    return X[y == 1], X[y == 0]


def _check_both(estimator: Any, positive: Any, unlabeled: Any) -> tuple[AnyArray, AnyArray]:
    positive, _ = check_rows(estimator, positive, np.ones(_shape(positive)[0]), reset=True)
    if _shape(unlabeled)[1:] != positive.shape[1:]:
        raise ValueError(
            f"X_unlabeled has {_columns(_shape(unlabeled))} but X_positive has {_columns(positive.shape)}; "
            "both must hold the same features in the same order."
        )
    unlabeled = check_rows(estimator, unlabeled, reset=False)
    if sparse.issparse(positive) and not sparse.issparse(unlabeled):
        unlabeled = sparse.csr_matrix(unlabeled)
    elif sparse.issparse(unlabeled) and not sparse.issparse(positive):
        unlabeled = unlabeled.toarray()
    return positive, unlabeled


def _columns(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} features" if len(shape) == 2 else f"rows of shape {shape[1:]}"
