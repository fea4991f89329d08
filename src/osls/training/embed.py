"""The space that fitted models learnt: hidden layers of networks, leaves of trees, else log probabilities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD

from osls._core.arrays import AnyArray, Floats
from osls.training.nets import StackedMLP
from osls.training.predictors import (
    Blended,
    Calibrated,
    Constant,
    Encoder,
    Networks,
    Pooled,
    Predictor,
    SklearnModels,
    filled,
)
from osls.training.trainer import as_tensor, score_rows

_LEAST_PROBA = 1e-3
# Trees of one fold's forest that are asked; more hardly change the leading components.
_TREES = 20
# Rows that components are learnt from, and that are looked at together.
_SAMPLE = 10_000

# What a model makes of rows: a matrix with a row for each.
View = Callable[[AnyArray], Any]


def learnt_space(predictor: Predictor, X: AnyArray, *, components: int = 15) -> Floats:
    """Return rows as the models of a fit see them, in at most ``components`` columns a model family.

    Rows are near each other if hidden units respond to them alike, or if they fall into the same leaves of
    many trees: differences that the known classes showed to matter weigh more than others. The columns of
    one family have a total variance of one. A constant model has no columns.
    """
    parts = [_reduced(view, X, components) for view in _views(predictor)]
    return np.column_stack([np.empty((X.shape[0], 0)), *parts])


def column_space(X: AnyArray, *, components: int = 20, scaled: bool = True) -> Floats:
    """Return the columns by their leading components: standardised, or in proportion as they are.

    Standardised columns suit tables whose columns have different units. Where they are in one unit (pixels,
    components of a projection), it would blow up those that hardly vary, which are mostly noise.
    """
    if X.ndim == 2 and not sparse.issparse(X):
        X = filled(X)
    encoder = Encoder(X)
    size = 1.0 if scaled else encoder.scale / np.max(encoder.scale)

    def view(rows: AnyArray) -> Floats:
        dense = encoder(rows) * size
        return dense.reshape(len(dense), -1).astype(np.float64)

    return _reduced(view, X, components)


def _views(predictor: Any) -> list[View]:
    """What each family of models inside a predictor makes of rows, in as many columns as it takes."""
    if isinstance(predictor, Calibrated):
        return _views(predictor.predictor)
    if isinstance(predictor, Blended | Pooled):
        # Also a family without weight: the leaves tell groups apart where hidden units have merged them.
        return [*_views(predictor.first), *_views(predictor.second)]
    if isinstance(predictor, Constant):
        return []
    if isinstance(predictor, Networks) and isinstance(predictor.networks, StackedMLP):
        return [partial(_hidden_layer, predictor, predictor.networks)]
    if isinstance(predictor, SklearnModels) and all(_is_forest(model) for model in predictor.models):
        return [partial(_leaves, predictor)]
    return [lambda X: np.log(np.maximum(predictor.predict_proba(X), _LEAST_PROBA))]


def _is_forest(model: Any) -> bool:
    trees = getattr(model, "estimators_", ())
    return len(trees) > 0 and all(hasattr(tree, "tree_") for tree in trees)


def _leaves(predictor: SklearnModels, X: AnyArray) -> Any:
    """A column for each leaf of each tree: one where the row falls into it."""
    rows = X if predictor.encoder is None else predictor.encoder(X)
    rows = np.asarray(rows, dtype=np.float32) if not sparse.issparse(rows) else rows
    trees = [tree for model in predictor.models for tree in model.estimators_[:_TREES]]
    first = np.cumsum([0, *(tree.tree_.node_count for tree in trees)])
    columns = np.column_stack([tree.apply(rows) for tree in trees]) + first[:-1]
    ones = np.ones(columns.size, dtype=np.float32)
    ends = np.arange(0, columns.size + 1, len(trees))
    return sparse.csr_array((ones, columns.ravel(), ends), shape=(len(columns), int(first[-1])))


def _hidden_layer(predictor: Networks, networks: StackedMLP, X: AnyArray) -> Floats:
    """Activations of the last hidden layer of all members, side by side."""
    rows = as_tensor(predictor.encoder(X), predictor.device)
    networks.eval()

    def activations(chunk: torch.Tensor) -> torch.Tensor:
        members: torch.Tensor = networks.layers[:-1](chunk.expand(predictor.members, *chunk.shape))
        return members.transpose(0, 1).flatten(1)

    return score_rows(activations, rows)


def _reduced(view: View, X: AnyArray, components: int) -> Floats:
    """The leading components of a view, scaled to a total variance of one.

    They are those of a sample, and the rows are looked at a part at a time: a view can have many times the
    columns that the rows have.
    """
    n = X.shape[0]
    sample = X[np.sort(np.random.default_rng(0).permutation(n)[:_SAMPLE])] if n > _SAMPLE else X
    seen = view(sample)
    leaves = sparse.issparse(seen)
    # The first direction of uncentred leaves is their mean, which says nothing.
    d = min(components, seen.shape[0] - 1, seen.shape[1] - leaves)
    if d < 1 or (not leaves and np.ptp(seen, axis=0).max() == 0):
        return np.empty((n, 0))
    method = TruncatedSVD(d + 1, random_state=0) if leaves else PCA(d, random_state=0)
    reduced = method.fit_transform(seen)
    centre, total = reduced.mean(axis=0), float(np.sqrt(reduced.var(axis=0).sum()))
    if n > _SAMPLE:
        parts = (X[first : first + _SAMPLE] for first in range(0, n, _SAMPLE))
        reduced = np.concatenate([method.transform(view(part)) for part in parts])
    reduced = np.asarray(reduced - centre, dtype=np.float64)
    return reduced / total if total > 0 else reduced
