"""Numbers inside scikit-learn's parts that compiled code follows without looking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import Tree

from osls._typing import AnyArray
from osls.persist.errors import ModelError

__all__ = ["check_contents"]


def check_contents(part: Any, name: str) -> None:
    """Refuse trees and sparse matrices that would make a prediction read outside of its memory.

    scikit-learn walks a tree from node to node by the numbers that are stored in it. A file in which they
    point elsewhere loads, and ends the process at the first prediction.
    """
    for thing in _everything_in(part):
        if isinstance(thing, Tree) and not _is_sound(thing):
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
                # Kept, so that no other object gets its address.
                seen[id(inner)] = inner
                waiting.append(inner)


def _held_by(thing: Any) -> list[Any]:
    held = list(vars(thing).values()) if hasattr(thing, "__dict__") and not isinstance(thing, type) else []
    if isinstance(thing, dict):
        held += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set) or (isinstance(thing, np.ndarray) and thing.dtype == object):
        held += list(thing.ravel()) if isinstance(thing, np.ndarray) else list(thing)
    return held


def _is_sound(tree: Tree) -> bool:
    # First the count: what the properties below return is cut from memory by it.
    if not 1 <= tree.node_count <= tree.capacity:
        return False
    return _nodes_are_sound(
        tree.children_left, tree.children_right, tree.feature, tree.children_left == -1, tree.n_features
    )


def _nodes_are_sound(
    left: AnyArray, right: AnyArray, feature: AnyArray, leaf: AnyArray, columns: int
) -> bool:
    """Children come after their parent, so that every walk ends, and inside the tree."""
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
    """Whether an estimator lets only rows in that have the columns which its trees look at."""
    held = vars(thing) if hasattr(thing, "__dict__") and not isinstance(thing, type) else {}
    columns = held.get("n_features_in_")
    if isinstance(held.get("tree_"), Tree):
        return bool(held["tree_"].n_features == columns)
    if isinstance(thing, BaseForest | BaseGradientBoosting) and "estimators_" in held:
        inner = np.asarray(held["estimators_"], dtype=object).ravel()
        return all(getattr(tree, "n_features_in_", None) == columns for tree in inner)
    if "_predictors" in held:
        categorical = np.asarray(getattr(held.get("_bin_mapper"), "is_categorical_", None))
        return categorical.shape == (columns,) and all(
            _predictor_is_sound(tree, categorical != 0) for group in held["_predictors"] for tree in group
        )
    return True


def _predictor_is_sound(tree: Any, categorical: AnyArray) -> bool:
    """The same for the trees of histogram gradient boosting; the flags say which columns are categories."""
    if not isinstance(tree, TreePredictor) or not len(tree.nodes):
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
