"""Clusters of both sides together, named by the labelled rows in them: what an analyst tries first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.metrics import pairwise_distances_argmin

from osls._core.arrays import AnyArray, Floats
from osls._core.parameters import AtLeast, Constraint
from osls._core.saving import saveable
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.baselines.rejection import predicted_mix
from osls.training.predictors import Encoder, as_table


@saveable
class ClusterVote(OpenSetAdapter):
    """Cluster the source and the target by HDBSCAN; a cluster without labelled rows is novel.

    Other clusters have the classes of their labelled rows, by their shares. Rows that HDBSCAN calls noise,
    and later rows, belong to the cluster of the nearest row that has one. Nothing is known about label shift:
    the mix is the share of rows that are assigned to each class.

    Parameters
    ----------
    min_cluster_size : int, default=15
        Fewest rows of a cluster, of both sides together.
    novel_label, random_state
        As in :class:`osls.PULSE`; nothing here is random.

    References
    ----------
    .. [1] Campello, Moulavi, Sander. Density-Based Clustering Based on Hierarchical Density Estimates.
       PAKDD 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import ClusterVote
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ClusterVote().fit(X[y > 0], y[y > 0], X_target=X)
    >>> bool(model.novel_prevalence_ > 0.3)
    True
    """

    short_name: ClassVar[str] = "hdbscan"
    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {"min_cluster_size": AtLeast(2)}

    def __init__(self, *, min_cluster_size: int = 15, novel_label: Any = None, random_state: Any = None):
        self.min_cluster_size = min_cluster_size
        self.novel_label = novel_label
        self.random_state = random_state

    def _adapt(self, task: Task) -> Adaptation:
        named = self._cluster(task)
        proba = named.predict_proba(task.X_target)
        mix = predicted_mix(proba, task.source_marginal)
        return Adaptation(*mix, proba, learned={"_predictor": named})

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        encoder = Encoder(task.X)
        learned = {"_predictor": _each_for_itself(encoder, as_table(encoder, task.X), task)}
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned=learned)

    def _cluster(self, task: Task) -> NamedClusters:
        check_folds(task.y, task.classes, 2, len(task.y))  # as everywhere, one row is no class
        pool = stack_rows(task.X, task.X_target)
        encoder = Encoder(pool)
        rows, n = as_table(encoder, pool), len(task.y)
        fewest = min(self.min_cluster_size, len(rows))
        cluster = HDBSCAN(min_cluster_size=max(2, fewest), min_samples=min(5, fewest), copy=True).fit(rows)
        label = cluster.labels_
        if label.max() < 0:
            return _each_for_itself(encoder, rows[:n], task)
        votes = np.zeros((label.max() + 1, task.k + 1))
        inside = label[:n] >= 0
        np.add.at(votes, (label[:n][inside], task.y[inside]), task.row_weight[inside])
        votes[votes.sum(axis=1) == 0, -1] = 1
        votes /= votes.sum(axis=1, keepdims=True)
        member = label >= 0
        return NamedClusters(encoder, rows[member], votes[label[member]])


def _each_for_itself(encoder: Encoder, rows: Floats, task: Task) -> NamedClusters:
    """Without clusters every labelled row stands for its own class."""
    return NamedClusters(encoder, rows, np.eye(task.k + 1)[task.y])


@saveable
@dataclass(frozen=True)
class NamedClusters:
    """Rows of clusters, and the probabilities of the k + 1 classes in the cluster of each."""

    encoder: Encoder
    rows: Floats
    proba: Floats

    def predict_proba(self, X: AnyArray) -> Floats:
        encoded = as_table(self.encoder, X)
        if not len(encoded):
            return np.zeros((0, self.proba.shape[1]))
        return np.asarray(self.proba[pairwise_distances_argmin(encoded, self.rows)])
