"""The space that fitted models learnt: hidden layers of networks, leaves of trees, else log probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.preprocessing import OneHotEncoder

from osls._core.arrays import AnyArray, Floats
from osls.training.nets import StackedMLP
from osls.training.predictors import (
    Blended,
    Constant,
    Encoder,
    Networks,
    Predictor,
    SklearnModels,
    Tempered,
    filled,
)
from osls.training.trainer import as_tensor, score_rows

_LEAST_PROBA = 1e-3
# Trees of one fold's forest that are asked; more hardly change the leading components.
_TREES = 20


def learnt_space(predictor: Predictor, X: AnyArray, *, components: int = 15) -> Floats:
    """Return rows as the models of a fit see them, in at most ``components`` columns a model family.

    Rows are near each other if hidden units respond to them alike, or if they fall into the same leaves of
    many trees: differences that the known classes showed to matter weigh more than others. The columns of
    one family have a total variance of one. A constant model has no columns.
    """
    parts = [_reduced(part, components) for part in _views(predictor, X)]
    return np.column_stack([np.empty((X.shape[0], 0)), *parts])


def column_space(X: AnyArray, *, components: int = 20) -> Floats:
    """Return the standardised columns by their leading components, which every model starts from."""
    if X.ndim == 2 and not sparse.issparse(X):
        X = filled(X)
    dense = Encoder(X)(X)
    return _reduced(dense.reshape(len(dense), -1).astype(np.float64), components)


def _views(predictor: Any, X: AnyArray) -> list[Any]:
    """What each family of models inside a predictor makes of the rows, in as many columns as it takes."""
    if isinstance(predictor, Tempered):
        return _views(predictor.predictor, X)
    if isinstance(predictor, Blended):
        used = ((predictor.first, predictor.share), (predictor.second, 1 - predictor.share))
        return [view for part, share in used if share > 0 for view in _views(part, X)]
    if isinstance(predictor, Constant):
        return []
    if isinstance(predictor, Networks) and isinstance(predictor.networks, StackedMLP):
        return [_hidden_layer(predictor, predictor.networks, X)]
    if isinstance(predictor, SklearnModels) and all(_is_forest(model) for model in predictor.models):
        return [_leaves(predictor, X)]
    return [np.log(np.maximum(predictor.predict_proba(X), _LEAST_PROBA))]


def _is_forest(model: Any) -> bool:
    trees = getattr(model, "estimators_", ())
    return len(trees) > 0 and all(hasattr(tree, "tree_") for tree in trees)


def _leaves(predictor: SklearnModels, X: AnyArray) -> Any:
    rows = X if predictor.encoder is None else predictor.encoder(X)
    trees = [tree for model in predictor.models for tree in model.estimators_[:_TREES]]
    rows = np.asarray(rows, dtype=np.float32) if not sparse.issparse(rows) else rows
    leaves = np.column_stack([tree.apply(rows) for tree in trees])
    return OneHotEncoder(dtype=np.float32).fit_transform(leaves)


def _hidden_layer(predictor: Networks, networks: StackedMLP, X: AnyArray) -> Floats:
    """Activations of the last hidden layer of all members, side by side."""
    rows = as_tensor(predictor.encoder(X), predictor.device)
    networks.eval()

    def activations(chunk: torch.Tensor) -> torch.Tensor:
        members: torch.Tensor = networks.layers[:-1](chunk.expand(predictor.members, *chunk.shape))
        return members.transpose(0, 1).flatten(1)

    return score_rows(activations, rows)


def _reduced(view: Any, components: int) -> Floats:
    """The leading components, scaled to a total variance of one."""
    d = min(components, min(view.shape) - 1)
    if d < 1:
        return np.empty((view.shape[0], 0))
    # The first direction of uncentred leaves is their mean, which says nothing.
    method = TruncatedSVD(d + 1, random_state=0) if sparse.issparse(view) else PCA(d, random_state=0)
    reduced = method.fit_transform(view)
    reduced = np.asarray(reduced - reduced.mean(axis=0), dtype=np.float64)
    total = float(np.sqrt(reduced.var(axis=0).sum()))
    return reduced / total if total > 0 else reduced
