"""scikit-learn's estimators, through skops: only types on a list are built, and their contents are checked.

The check is needed because compiled code uses the indices in trees and sparse matrices without bounds checks.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.exceptions import InconsistentVersionWarning

from osls._core.arrays import AnyArray
from osls.persist.tree import Codec, ModelError, Node, Reader, Writer, in_short

# Types that scikit-learn gives no public name.
_TREE = "sklearn.tree._tree.Tree"
_HISTOGRAM_TREE = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
_OF_TREES = (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
)


def check_contents(part: Any, name: str) -> None:
    """Raise an error for trees and sparse matrices that would make a prediction read invalid memory.

    scikit-learn walks a tree by the node numbers stored in it. A file with invalid numbers loads without
    error, and the process crashes at the first prediction.
    """
    for thing in _everything_in(part):
        if _is_a(thing, _TREE) and not _is_sound(thing):
            raise ModelError(f"{name} holds a decision tree whose nodes point outside of it.")
        if sparse.issparse(thing) and not _is_well_formed(thing):
            raise ModelError(f"{name} holds a sparse matrix with entries outside of it.")
        if not _columns_agree(thing):
            raise ModelError(f"{name} holds a {type(thing).__name__} whose trees ask for other columns.")


def _everything_in(part: Any) -> Iterator[Any]:
    """Yield an object and all that it holds, each once."""
    waiting, seen = [part], {id(part): part}
    while waiting:
        thing = waiting.pop()
        yield thing
        for inner in _held_by(thing):
            if id(inner) not in seen and not isinstance(inner, str | int | float):
                # A reference is kept, so that no new object can get the same id.
                seen[id(inner)] = inner
                waiting.append(inner)


def _held_by(thing: Any) -> list[Any]:
    held = list(vars(thing).values()) if hasattr(thing, "__dict__") and not isinstance(thing, type) else []
    if isinstance(thing, dict):
        held += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set) or (isinstance(thing, np.ndarray) and thing.dtype == object):
        held += list(thing.ravel()) if isinstance(thing, np.ndarray) else list(thing)
    return held


def _is_a(thing: Any, name: str) -> bool:
    return f"{type(thing).__module__}.{type(thing).__qualname__}" == name


def _is_sound(tree: Any) -> bool:
    # Check the count first: it sets the length of the arrays that the properties below return.
    if not 1 <= tree.node_count <= tree.capacity:
        return False
    return _nodes_are_sound(
        tree.children_left, tree.children_right, tree.feature, tree.children_left == -1, tree.n_features
    )


def _nodes_are_sound(
    left: AnyArray, right: AnyArray, feature: AnyArray, leaf: AnyArray, columns: int
) -> bool:
    """Check that children lie inside the tree and after their parent, so that every walk ends."""
    number, inner = np.arange(len(left)), ~leaf.astype(bool)
    return all(
        bool(np.all((child[inner] > number[inner]) & (child[inner] < len(left)))) for child in (left, right)
    ) and bool(np.all((feature[inner] >= 0) & (feature[inner] < columns)))


def _is_well_formed(matrix: Any) -> bool:
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except ValueError:
        return False
    return True


def _columns_agree(thing: Any) -> bool:
    """Whether the number of columns that an estimator accepts fits the columns that its trees use."""
    held = vars(thing) if hasattr(thing, "__dict__") and not isinstance(thing, type) else {}
    columns = held.get("n_features_in_")
    if _is_a(held.get("tree_"), _TREE):
        return bool(held["tree_"].n_features == columns)
    if isinstance(thing, _OF_TREES) and "estimators_" in held:
        inner = np.asarray(held["estimators_"], dtype=object).ravel()
        return all(getattr(tree, "n_features_in_", None) == columns for tree in inner)
    if "_predictors" in held:
        categorical = np.asarray(getattr(held.get("_bin_mapper"), "is_categorical_", None))
        return categorical.shape == (columns,) and all(
            _predictor_is_sound(tree, categorical != 0) for group in held["_predictors"] for tree in group
        )
    return True


def _predictor_is_sound(tree: Any, categorical: AnyArray) -> bool:
    """The same for trees of histogram gradient boosting; ``categorical`` marks the categorical columns."""
    if not _is_a(tree, _HISTOGRAM_TREE) or not len(tree.nodes):
        return False
    nodes = tree.nodes
    left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
    leaf = nodes["is_leaf"] != 0
    if not _nodes_are_sound(left, right, feature, leaf, len(categorical)):
        return False
    by_category = ~leaf & (nodes["is_categorical"] != 0)
    return bool(
        np.all(categorical[feature[by_category]])
        and np.all(nodes["bitset_idx"][by_category] < len(tree.raw_left_cat_bitsets))
    )


# Types in addition to those that skops trusts: Python's and numpy's plain types, scikit-learn's public ones.
# skops cannot check the node numbers of the two kinds of trees; check_contents does.
ALLOWED = (
    "numpy.dtype",
    "scipy.sparse._csc.csc_matrix",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    _HISTOGRAM_TREE,
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Matern",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.gaussian_process.kernels.Sum",
    "sklearn.gaussian_process.kernels.WhiteKernel",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    _TREE,
    "sklearn.utils._bunch.Bunch",
)

# Takes half the time of the default level, for a tenth more bytes.
_COMPRESSION = 3
# Largest ratio of unpacked to packed bytes; an archive of a few trees has about thirty.
_MOST_UNPACKED = 200
_SMALL = 10_000_000


def _write_part(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    # Imported here because skops imports all of scikit-learn.
    import skops.io

    try:
        data = skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION)
        types = skops.io.get_untrusted_types(data=data)
    except Exception as error:
        # skops calls the estimator's own methods, which may raise anything.
        raise ModelError(f"{where}: skops cannot save {type(value).__name__} ({in_short(error)}).") from error
    unknown = [name for name in types if name not in {*ALLOWED, *writer.trusted}]
    if unknown:
        raise ModelError(
            f"{where} holds the type {unknown[0]}, which is not on the list of trusted types; if you trust "
            f"it, pass trusted={unknown!r} to save and load."
        )
    return {"file": writer.add_part(data)}


def _read_part(node: dict[str, Node], reader: Reader, where: str) -> Any:
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    data = reader.fetch(node["file"])
    _check_archive(data, node["file"])
    try:
        with warnings.catch_warnings():
            # load warns once for the whole model.
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            part = skops.io.loads(data, trusted=[*ALLOWED, *reader.trusted])
    except UntrustedTypesFoundException as error:
        types = skops.io.get_untrusted_types(data=data)
        unknown = [name for name in types if name not in {*ALLOWED, *reader.trusted}]
        raise ModelError(
            f"{node['file']} holds the type {', '.join(unknown)}, which is not trusted; if you know where "
            f"the model comes from and trust the type, pass load(..., trusted={unknown!r})."
        ) from error
    except Exception as error:
        # skops passes damaged content to numpy, scipy and scikit-learn, which raise different errors.
        raise ModelError(f"{node['file']} is damaged ({in_short(error)}).") from error
    check_contents(part, node["file"])
    return part


def _check_archive(data: bytes, name: str) -> None:
    """Raise an error if the data is not an archive, or would unpack to far more bytes (a zip bomb)."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise ModelError(f"{name} is not a skops archive ({in_short(error)}).") from error
    if unpacked > max(_SMALL, _MOST_UNPACKED * len(data)):
        raise ModelError(f"{name} has {len(data)} bytes and claims to unpack to {unpacked}; it is refused.")


def _is_part(value: Any, writer: Writer) -> bool:
    kind = type(value)
    return isinstance(value, BaseEstimator) or f"{kind.__module__}.{kind.__qualname__}" in writer.trusted


SKLEARN_PARTS = (Codec("sklearn", _is_part, _write_part, _read_part),)
