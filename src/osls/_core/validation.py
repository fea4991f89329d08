"""Input validation: arrays, tables, sparse matrices and tensors become arrays, or raise a clear error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_array, column_or_1d, validate_data

from osls._core.arrays import AnyArray, Ints
from osls._core.names import nearest

_MIN_TARGET_ROWS = 10
# Share of the columns in which most target rows lie outside the source's range.
_OTHER_UNITS = 0.3


def _to_array(X: Any) -> Any:
    """Turn torch tensors and masked arrays into arrays; scikit-learn reads the other containers itself."""
    if hasattr(X, "detach"):
        if "sparse" in str(X.layout):
            raise ValueError("a sparse tensor is not read; pass a CSR matrix of scipy, or X.to_dense().")
        # NumPy has no bfloat16, and float32 holds all of its values.
        return (X.detach().float() if "bfloat16" in str(X.dtype) else X.detach()).cpu().numpy()
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        # What lies under the mask is no value; scikit-learn would read it.
        return np.ma.filled(X.astype(np.float64), np.nan)
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        raise ValueError("a lazy frame holds no rows yet; pass X.collect().")
    return X


def _array_options(estimator: Any, X: Any) -> dict[str, Any]:
    is_image = getattr(X, "ndim", 2) == 4
    # Tables stay in double precision: float32 cannot represent small differences of large values (timestamps,
    # ids). Learners centre and scale the columns before they convert them to float32.
    dtype = np.float32 if is_image else [np.float64, np.float32]
    finite = "allow-nan" if get_tags(estimator).input_tags.allow_nan else True
    return {
        "accept_sparse": "csr",
        "dtype": dtype,
        "ensure_2d": not is_image,
        "allow_nd": is_image,
        "ensure_all_finite": finite,
    }


def check_rows(estimator: Any, X: Any, y: Any = None, *, reset: bool) -> Any:
    """Validate X (and y) with scikit-learn's rules; images become float32."""
    _warn_of_other_order(X, y)
    with _naming("X"):
        X = _to_array(X)
    if not reset:
        with _naming("X", X):
            return validate_data(estimator, X, reset=False, **_array_options(estimator, X))
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: "
            "pass the labels of the source rows."
        )
    # One after the other, so that what is wrong with y is not said of X.
    with _naming("X", X):
        X = validate_data(estimator, X, reset=True, **_array_options(estimator, X))
    with _naming("y"):
        y = _check_labels(y)
    if len(y) != X.shape[0]:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: {X.shape[0]} rows and {len(y)} labels."
        )
    return X, y


def _check_labels(y: Any) -> AnyArray:
    """Return one label a row that scikit-learn takes for a class, or raise."""
    y = _to_array(y)
    if not isinstance(y, np.ndarray) or y.dtype == object:
        # NumPy would turn [1, "a"] into two strings, and pandas refuses to compare a missing string.
        labels = np.asarray(y, dtype=object)
        _refuse_mixed(labels.ravel() if labels.ndim and labels.size == len(labels) else np.empty(0))
    y = column_or_1d(y, warn=True)
    if y.dtype == object and all(isinstance(label, int | float | np.number | np.bool_) for label in y):
        # A column of a table that holds words as well: its numbers are numbers still.
        y = np.array(y.tolist())
    if y.dtype.kind in "mM":
        raise ValueError("the labels are dates, which name no classes; pass them as text, y.astype(str).")
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    return np.asarray(y)


def _refuse_mixed(labels: AnyArray) -> None:
    """Raise for a missing label among labels that are objects, and for words beside numbers."""
    first: dict[bool, Any] = {}
    for row, label in enumerate(labels.tolist()):
        if is_missing(label):
            raise ValueError(
                f"row {row} has no label; leave such rows out, or pass them with the unlabelled ones."
            )
        first.setdefault(isinstance(label, str), label)
    if len(first) > 1:
        raise ValueError(
            f"{first[True]!r} is a word and {first[False]!r} is not; write all labels alike, as text or as "
            "numbers."
        )


def is_missing(value: Any) -> bool:
    """Whether this is what Python, NumPy or pandas have for "no value"."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def list_labels(y: Any) -> list[Any]:
    """Return labels as they were given, one a row, whatever holds them.

    Examples
    --------
    >>> import numpy as np
    >>> from osls._core.validation import list_labels
    >>> list_labels([0, "x"]), list_labels(np.array([[3], [4]]))
    ([0, 'x'], [3, 4])
    """
    labels = np.asarray(_to_array(y), dtype=object)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.ndim != 1:
        raise ValueError(f"y must hold one label a row; its shape is {labels.shape}.")
    return [label.item() if isinstance(label, np.generic) else label for label in labels]


def refuse_other_types(labels: Iterable[Any], known: Iterable[Any]) -> None:
    """Raise if a class is written as another type, "1" for 1: no row of it would ever be right."""
    spelled = {str(name): name for name in known if not is_missing(name)}
    written = {label: str(label) for label in labels if not is_missing(label)}
    other = next((label for label, text in written.items() if spelled.get(text, label) != label), None)
    if other is not None:
        raise ValueError(
            f"y has the label {other!r} where the other side has {spelled[str(other)]!r}; give both one type."
        )


def apply_weight(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, AnyArray | None]:
    """Return the rows that count, and how much each does: 1 on average, or None if all count the same."""
    if sample_weight is None:
        return X, y, None
    weight = check_weight(sample_weight, len(y))
    counted = weight > 0
    lost = np.setdiff1d(y, y[counted])
    if len(lost):
        raise ValueError(
            f"every row of class {lost.tolist()[0]!r} has a sample_weight of zero: give some of them weight, "
            "or leave the class out of y."
        )
    kept = np.flatnonzero(counted)
    # Divided twice: the sum of very large weights would be infinite.
    scaled = weight[kept] / weight.max()
    return X[kept], y[kept], scaled / scaled.mean()


def check_weight(sample_weight: Any, n_rows: int) -> AnyArray:
    """Return one weight a row, finite and not negative."""
    try:
        weight = np.asarray(_to_array(sample_weight), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must be an array of one number a row.") from None
    if weight.ndim == 2 and weight.shape[1] == 1:
        weight = weight.ravel()
    if weight.ndim != 1:
        raise ValueError(f"sample_weight must hold one number a row; its shape is {weight.shape}.")
    if len(weight) != n_rows:
        raise ValueError(f"sample_weight has {len(weight)} entries for the {n_rows} rows of X.")
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("sample_weight must be finite and not negative.")
    return weight


def check_target(estimator: Any, X_target: Any, X: Any, columns: Any = None) -> Any:
    """Validate the unlabelled target rows against the source rows that ``estimator`` was given.

    ``columns`` are those of the source if it was a table; scikit-learn keeps no names that are not strings.
    """
    with _naming("X_target"):
        X_target = _to_array(X_target)
    _check_column_names(X_target, getattr(estimator, "feature_names_in_", None))
    _check_column_order(columns, getattr(X_target, "columns", None))
    with _naming("X_target", X_target):
        X_target = check_array(X_target, input_name="X_target", **_array_options(estimator, X_target))
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
    _warn_of_other_scale(X, X_target)
    if sparse.issparse(X) and not sparse.issparse(X_target):
        X_target = sparse.csr_matrix(X_target)
    elif sparse.issparse(X_target) and not sparse.issparse(X):
        X_target = X_target.toarray()
    return X_target


def _check_column_names(X_target: Any, fitted: Any) -> None:
    """Hold the target's column names against the source's: the same names in the same order.

    scikit-learn's rule for ``predict``. Without it the columns of a reordered table would be read as others.
    """
    columns = getattr(X_target, "columns", None)
    if fitted is None or columns is None or not all(isinstance(name, str) for name in columns):
        return
    source, target = list(fitted), list(columns)
    missing = [name for name in source if name not in target]
    extra = [name for name in target if name not in source]
    if missing:
        hint = nearest(missing[0], extra)
        raise ValueError(f"X_target has no column {missing[0]!r}, which X has.{hint}")
    if extra:
        raise ValueError(f"X_target has the column {extra[0]!r}, which X does not have; drop it.")
    _check_column_order(source, target)


def _check_column_order(source: Any, target: Any) -> None:
    """Raise if these are the same names, strings or not, in another order."""
    if source is None or target is None or len(source) != len(target) or set(source) != set(target):
        return
    for i, (name, other) in enumerate(zip(source, target, strict=True)):
        if name != other:
            raise ValueError(
                f"X_target has the columns of X in another order: column {i} is {other!r} where X has "
                f"{name!r}. Pass X_target[X.columns]."
            )


def _warn_of_other_order(X: Any, y: Any) -> None:
    """Warn if X and y have the same index in another order: they are paired by position."""
    one: Any = getattr(X, "index", None)
    other: Any = getattr(y, "index", None)
    if not hasattr(one, "equals") or not hasattr(other, "equals") or one.equals(other):
        return
    if len(one) == len(other) and set(one) == set(other):
        warnings.warn(
            "y has the index of X in another order. Labels belong to rows by position, not by index; "
            "if that is not meant, pass y.loc[X.index].",
            UserWarning,
            stacklevel=5,
        )


def _warn_of_other_scale(X: Any, X_target: Any) -> None:
    """Warn if many columns of the target are in other units than the source's.

    This happens when only the source was scaled, for example in a pipeline. A novel class does not move the
    middle half of the target out of the source's range in many columns at once.
    """
    if sparse.issparse(X) or sparse.issparse(X_target) or X.ndim != 2 or X.shape[1] < 2:
        return
    if np.isnan(X).any() or np.isnan(X_target).any():
        return
    low, high = X.min(axis=0), X.max(axis=0)
    quarter, three_quarters = np.quantile(X_target, [0.25, 0.75], axis=0)
    varies = high > low
    outside = varies & ((quarter > high) | (three_quarters < low))
    if outside.sum() >= max(2, _OTHER_UNITS * varies.sum()):
        warnings.warn(
            f"most rows of X_target lie outside the range of X in {int(outside.sum())} of "
            f"{int(varies.sum())} columns, as if the two were in different units. If X went through a "
            "scaler, so must X_target: Pipeline(..., transform_input=['X_target']) does that, or pass "
            "scaler.transform(X_target).",
            UserWarning,
            stacklevel=5,
        )


@contextmanager
def _naming(argument: str, X: Any = None) -> Iterator[None]:
    """Prefix scikit-learn's error message with the argument's name, unless it already contains it.

    If ``X`` is a table with words in it, the error names their column instead.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        # Words are a ValueError, dates beside numbers a TypeError.
        if (isinstance(error, TypeError) or "could not convert" in str(error)) and (
            column := _column_of_words(X)
        ):
            raise ValueError(
                f"{argument}: the column {column[0]!r} holds {column[1]}, and only numbers can be learned "
                "from. osls.adapt(source, target, label=...) takes tables as they are; in a pipeline, encode "
                "the column first (OneHotEncoder, or skrub's TableVectorizer)."
            ) from None
        if isinstance(error, TypeError):
            raise
        if re.search(rf"\b{argument}\b", str(error)):
            raise
        raise ValueError(f"{argument}: {error}") from error


def _column_of_words(X: Any) -> tuple[str, str] | None:
    """The first column of a pandas or polars table that does not become numbers, and what it holds."""
    for name in getattr(X, "columns", ()):
        values = np.asarray(X[name])
        if values.dtype.kind in "mM":
            return str(name), "dates or times"
        try:
            values.astype(np.float64)
        except (TypeError, ValueError):
            return str(name), "words" if any(isinstance(value, str) for value in values) else "no numbers"
    return None


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
            stacklevel=6,
        )
    return int(min(n_folds, counts[rarest], n_target))


def append_novel_label(classes: AnyArray, novel_label: Any) -> AnyArray:
    """Return the known classes in sorted order and then the novel label: -1, "novel" or the caller's own."""
    textual = classes.dtype.kind in "OUS"
    if novel_label is None:
        novel_label = "novel" if textual else -1
    if not isinstance(novel_label, str | int | float | np.number) or is_missing(novel_label):
        raise ValueError(f"novel_label must be a word or a number that equals itself; got {novel_label!r}.")
    if novel_label in classes.tolist():
        raise ValueError(
            f"y contains {novel_label!r}, which is the label for novel examples; "
            "pass another one as novel_label=."
        )
    if classes.dtype.kind == "O" or textual != isinstance(novel_label, str):
        return np.array([*classes.tolist(), novel_label], dtype=object)
    return np.append(classes, novel_label)
