"""Input validation: arrays, tables, sparse matrices and tensors become arrays, or raise a clear error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from osls._core.arrays import AnyArray, Ints

_MIN_TARGET_ROWS = 10


def _to_array(X: Any) -> Any:
    """Turn torch tensors into arrays; scikit-learn reads the other containers itself."""
    return X.detach().cpu().numpy() if hasattr(X, "detach") else X


def _array_options(X: Any) -> dict[str, Any]:
    is_image = getattr(X, "ndim", 2) == 4
    return {"accept_sparse": "csr", "dtype": np.float32, "ensure_2d": not is_image, "allow_nd": is_image}


def check_rows(estimator: Any, X: Any, y: Any = None, *, reset: bool) -> Any:
    """Validate X (and y) with scikit-learn's rules; X becomes float32, whatever its dtype."""
    X = _to_array(X)
    if not reset:
        with _naming("X"):
            return validate_data(estimator, X, reset=False, **_array_options(X))
    y = _to_array(y)
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: "
            "pass the labels of the source rows."
        )
    with _naming("X"):
        X, y = validate_data(estimator, X, y, reset=True, **_array_options(X))
    with _naming("y"):
        check_classification_targets(y)
    return X, column_or_1d(y)


def check_target(X_target: Any, X: Any) -> Any:
    """Validate the unlabelled target rows against the source rows."""
    X_target = _to_array(X_target)
    with _naming("X_target"):
        X_target = check_array(X_target, input_name="X_target", **_array_options(X_target))
    if X_target.shape[1:] != X.shape[1:]:
        raise ValueError(
            f"X_target has {_columns(X_target)} but X has {_columns(X)}; "
            "both must hold the same features in the same order."
        )
    if X_target.shape[0] < _MIN_TARGET_ROWS:
        raise ValueError(
            f"X_target has {X_target.shape[0]} rows; at least {_MIN_TARGET_ROWS} are needed to estimate its "
            "class mix. Collect more target rows, or use the source classifier as it is."
        )
    if sparse.issparse(X) and not sparse.issparse(X_target):
        X_target = sparse.csr_matrix(X_target)
    elif sparse.issparse(X_target) and not sparse.issparse(X):
        X_target = X_target.toarray()
    return X_target


@contextmanager
def _naming(argument: str) -> Iterator[None]:
    """Prefix scikit-learn's error message with the argument's name, unless it already contains it."""
    try:
        yield
    except ValueError as error:
        if re.search(rf"\b{argument}\b", str(error)):
            raise
        raise ValueError(f"{argument}: {error}") from error


def _columns(X: AnyArray) -> str:
    return f"{X.shape[1]} features" if X.ndim == 2 else f"rows of shape {X.shape[1:]}"


def stack_rows(first: AnyArray, second: AnyArray) -> AnyArray:
    """Return the pooled rows: those of ``first``, then those of ``second``, dense or sparse."""
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")  # type: ignore[no-any-return]
    return np.concatenate([first, second])


def check_folds(y: Ints, classes: AnyArray, n_folds: int, n_target: int, *, least: int = 2) -> int:
    """Return the number of folds the data allows.

    A class with fewer rows than folds gives a warning; a class with a single row is an error.
    """
    if n_folds < least:
        raise ValueError(f"n_folds must be at least {least}; got {n_folds}.")
    counts = np.bincount(y, minlength=len(classes))
    rarest = int(np.argmin(counts))
    name = classes.tolist()[rarest]
    if counts[rarest] < 2:
        raise ValueError(
            f"class {name!r} has 1 sample in y; at least 2 are needed to hold one out. "
            "Add labelled rows of that class or drop it."
        )
    if counts[rarest] < n_folds:
        warnings.warn(
            f"class {name!r} has {counts[rarest]} samples in y, fewer than n_folds={n_folds}; "
            f"using {counts[rarest]} folds. Its share will be uncertain.",
            UserWarning,
            stacklevel=4,
        )
    return int(min(n_folds, counts[rarest], n_target))


def append_novel_label(classes: AnyArray, novel_label: Any) -> AnyArray:
    """Return the known classes in sorted order and then the novel label: -1, "novel" or the caller's own."""
    textual = classes.dtype.kind in "OUS"
    if novel_label is None:
        novel_label = "novel" if textual else -1
    if novel_label in classes.tolist():
        raise ValueError(
            f"y contains {novel_label!r}, which is the label for novel examples; "
            "pass another one as novel_label=."
        )
    if classes.dtype.kind == "O" or textual != isinstance(novel_label, str):
        return np.array([*classes.tolist(), novel_label], dtype=object)
    return np.append(classes, novel_label)
