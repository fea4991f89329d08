"""Forests as a few flat arrays, to answer for single rows.

scikit-learn asks tree after tree, which costs about 20 microseconds each whatever the number of rows: ten
milliseconds for the 400 trees of a default model. Here all trees go down one level at a time, as one array.
For many rows at once scikit-learn's compiled loop is the faster one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from osls._core.arrays import AnyArray, Floats, Ints

# With more rows than this the compiled loop is faster.
FEW_ROWS = 64


@dataclass(frozen=True)
class PackedForest:
    """All trees of several forests, which know the same classes and have equal weight.

    A leaf is its own child on both sides, so that a row which has arrived stays where it is.

    Attributes
    ----------
    roots : array of shape (trees,)
        Numbers of the first nodes.
    feature, threshold : arrays of shape (nodes,)
        A row goes left if the value of the feature is not above the threshold.
    children : array of shape (2, nodes)
        Where to go on, right and left.
    proba : array of shape (nodes, classes)
        Probabilities of the classes.
    depth : int
        The longest way to a leaf.
    """

    roots: Ints
    feature: Ints
    threshold: Floats
    children: Ints
    proba: Floats
    depth: int

    def predict_proba(self, X: AnyArray) -> Floats:
        """Mean over the trees, for rows of float32 without missing values."""
        rows = np.arange(len(X))[:, None]
        node = np.broadcast_to(self.roots, (len(X), len(self.roots)))
        for _ in range(self.depth):
            left = X[rows, self.feature[node]] <= self.threshold[node]
            node = self.children[left.view(np.int8), node]
        return np.asarray(self.proba[node].mean(axis=1))


# By the first of the models, as long as it lives: not an attribute, which would be saved with the model.
_PACKED: WeakKeyDictionary[Any, dict[tuple[int, ...], PackedForest | None]] = WeakKeyDictionary()


def packed(models: Sequence[Any]) -> PackedForest | None:
    """Return the same as :func:`pack`, which is called once for the same models."""
    if not models:
        return None
    known = _PACKED.setdefault(models[0], {})
    key = tuple(map(id, models))
    if key not in known:
        known[key] = pack(models)
    return known[key]


def pack(models: Sequence[Any]) -> PackedForest | None:
    """Return fitted forests in this form; None if one of them is not a forest, or has other classes."""
    if not models:
        return None
    first = models[0]
    for model in models:
        if type(model) not in (ExtraTreesClassifier, RandomForestClassifier) or model.n_outputs_ != 1:
            return None
        if not np.array_equal(model.classes_, first.classes_) or len(model) != len(first):
            return None
    trees = [tree.tree_ for model in models for tree in model.estimators_]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    own = np.arange(roots[-1] + trees[-1].node_count)
    feature = np.concatenate([tree.feature for tree in trees])
    is_leaf = feature < 0
    children = [
        np.concatenate([getattr(tree, side) + root for tree, root in zip(trees, roots, strict=True)])
        for side in ("children_right", "children_left")
    ]
    value = np.concatenate([tree.value[:, 0, :] for tree in trees])
    return PackedForest(
        roots,
        np.where(is_leaf, 0, feature),
        np.concatenate([tree.threshold for tree in trees]),
        np.where(is_leaf, own, np.stack(children)),
        value / value.sum(axis=1, keepdims=True),
        max(tree.max_depth for tree in trees),
    )
