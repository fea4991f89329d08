"""LACForest: a forest whose splits use the unlabelled target (Xu et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.parameters import AtLeast, Between, Constraint
from osls._core.saving import saveable
from osls._core.validation import stack_rows
from osls.base import Adaptation, OpenSetAdapter, Task
from osls.baselines.known_share import known_share
from osls.baselines.rejection import predicted_mix
from osls.mixture import MixtureEstimator
from osls.training.choose import LearnerSpec
from osls.training.predictors import Encoder, as_table

# Nodes of so few rows are not split further (the authors' number).
_FEWEST_ROWS = 10


def augmented_gini(counts: Floats, known: Floats) -> Floats:
    r"""Gini index of k + 1 classes where the novel ones are only counted among the unlabelled rows.

    Parameters
    ----------
    counts : array of shape (..., k + 1)
        Labelled rows of each class and, last, unlabelled rows u.
    known : array of shape (...)
        How many of the unlabelled rows are expected to be of known classes.

    Returns
    -------
    array of shape (...)
        :math:`1 - \sum_j ((1 - \rho) p_j)^2 - \rho^2` with :math:`\rho = \max(0, u - known) / u` and
        :math:`p_j` the labelled classes' shares.
    """
    labelled, unlabelled = counts[..., :-1], counts[..., -1]
    rho = np.maximum(0, unlabelled - known) / np.maximum(unlabelled, 1)
    shares = labelled / np.maximum(labelled.sum(axis=-1, keepdims=True), 1)
    return np.asarray(1 - (1 - rho) ** 2 * np.square(shares).sum(axis=-1) - rho**2)


def split_score(left: Floats, right: Floats, known: float) -> Floats:
    """Mean augmented Gini index of both sides of a cut, by their unlabelled rows.

    Of the ``known`` unlabelled rows of the node, each side gets its part of the node's labelled rows.
    """
    labelled = left[..., :-1].sum(axis=-1), right[..., :-1].sum(axis=-1)
    total = np.maximum(labelled[0] + labelled[1], 1)
    weight = left[..., -1], right[..., -1]
    scores = [
        weight[i] * augmented_gini(side, known * labelled[i] / total) for i, side in enumerate((left, right))
    ]
    return np.asarray((scores[0] + scores[1]) / np.maximum(weight[0] + weight[1], 1))


def gini_score(left: Floats, right: Floats) -> Floats:
    """Mean Gini index of both sides of a cut, by their weight."""
    sums = left.sum(axis=-1), right.sum(axis=-1)
    pure = [
        np.square(side).sum(axis=-1) / np.maximum(s, 1e-12)
        for side, s in zip((left, right), sums, strict=True)
    ]
    return np.asarray(1 - (pure[0] + pure[1]) / np.maximum(sums[0] + sums[1], 1e-12))


@saveable
class LACForest(OpenSetAdapter):
    r"""A forest that looks for the novel class while it splits; no threshold is set.

    Given the novel share :math:`\theta`, a node with l of the n labelled rows should hold
    :math:`(1 - \theta)\, m\, l / n` known rows of the target; what it holds beyond that is novel. Splits
    minimise the Gini index of the k + 1 classes counted so. Such trees stay shallow. Their votes rank the
    target rows, the share :math:`\theta` at the top becomes novel by pseudo-label, and the trees grow on by
    the usual Gini index. A row gets the class with the highest mean vote.

    Parameters
    ----------
    n_trees : int, default=100
        Number of trees.
    leaf_share : float, default=0.01
        Smallest share of the labelled rows, and of the target rows, in a leaf of the shallow trees (gamma).
    novel_share : float, optional
        The novel share; estimated if it is not given.
    mixture : mixture estimator, optional
        How it is estimated; default :class:`osls.mixture.BBE` on the out-of-fold outputs of
        ``discriminator``. The authors use KM2 on those of a support vector machine.
    discriminator : default="trees"
        Model of source against target for that, as in :class:`osls.PULSE`.
    n_folds, novel_label, n_jobs, random_state
        As in :class:`osls.PULSE`.

    Notes
    -----
    All known rows are expected to be spread as in the source: a label shift among the known classes looks
    novel in part. The authors' code stops its search for a cut at negative values of a feature; this one
    does not.

    References
    ----------
    .. [1] Xu, Chen, Gao. On the Learning with Augmented Class via Forests. IJCAI 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import LACForest
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LACForest(n_trees=10, random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.target_proba_.shape
    (150, 3)
    """

    short_name: ClassVar[str] = "lacforest"
    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_trees": AtLeast(1),
        "leaf_share": Between(0, 0.5),
        "novel_share": Between(0, 1, closed=True, optional=True),
        "n_folds": AtLeast(2),
    }

    def __init__(
        self,
        *,
        n_trees: int = 100,
        leaf_share: float = 0.01,
        novel_share: float | None = None,
        mixture: MixtureEstimator | None = None,
        discriminator: LearnerSpec = "trees",
        n_folds: int = 5,
        novel_label: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.n_trees = n_trees
        self.leaf_share = leaf_share
        self.novel_share = novel_share
        self.mixture = mixture
        self.discriminator = discriminator
        self.n_folds = n_folds
        self.novel_label = novel_label
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _adapt(self, task: Task) -> Adaptation:
        alpha = known_share(
            task,
            novel_share=self.novel_share,
            mixture=self.mixture,
            discriminator=self.discriminator,
            n_folds=self.n_folds,
            n_jobs=self.n_jobs,
        )
        forest = self._grow(task, alpha)
        proba = forest.predict_proba(task.X_target)
        marginal, _ = predicted_mix(proba, task.source_marginal)
        return Adaptation(marginal, 1 - alpha, proba, learned={"_predictor": forest})

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        learned = {"_predictor": self._grow(task, 1.0)}
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned=learned)

    def _grow(self, task: Task, alpha: float) -> Forest:
        pool = stack_rows(task.X, task.X_target)
        encoder = Encoder(pool)
        rows = _Rows(as_table(encoder, pool), task.y, task.k, self.leaf_share, alpha)
        trees = [Tree.root(task.k)] * self.n_trees
        if rows.m:
            trees = [tree.split(rows, task.rng, shallow=True) for tree in trees]
            novelty = np.mean([tree.value[tree.leaves(rows.X[rows.n :]), -1] for tree in trees], axis=0)
            rows.call_novel(np.argsort(-novelty, kind="stable")[: int((1 - alpha) * rows.m)])
        return Forest.of(encoder, [tree.split(rows, task.rng, shallow=False) for tree in trees])


class _Rows:
    """The rows of a fit, source first, and what the trees ask about some of them."""

    def __init__(self, X: AnyArray, y: Ints, k: int, leaf_share: float, alpha: float):
        self.X, self.k, self.n, self.m = X, k, len(y), len(X) - len(y)
        # A column for each class and, last, the target's rows; later, those that were called novel.
        self.counts = np.zeros((len(X), k + 1))
        self.counts[np.arange(self.n), y] = 1
        self.counts[self.n :, -1] = 1
        self.smallest = leaf_share * self.n, leaf_share * self.m
        # How many known target rows there should be for each labelled row.
        self.known_per_row = alpha * self.m / self.n

    def call_novel(self, chosen: Ints) -> None:
        """Give pseudo-labels: of the target's rows only the chosen ones count from now on."""
        self.counts[self.n :, -1] = 0
        self.counts[self.n + chosen, -1] = 1

    def judge(self, rows: Ints, *, shallow: bool) -> tuple[Floats, bool]:
        """Probabilities of the k + 1 classes in a leaf, and whether the authors' rules end its growth."""
        counts = self.counts[rows].sum(axis=0)
        labelled, target = float(counts[:-1].sum()), int(np.count_nonzero(rows >= self.n))
        novel = max(0.0, target - self.known_per_row * labelled) if shallow else float(counts[-1])
        rho = novel / target if target else 0.0
        if shallow:
            final = labelled < 2 * self.smallest[0] or target < 2 * self.smallest[1]
        else:
            one_class = np.count_nonzero(counts[:-1]) == 1 and counts[-1] == 0
            final = labelled == 0 or one_class or len(rows) <= _FEWEST_ROWS
        counts[:-1] *= (1 - rho) / max(labelled, 1.0)
        counts[-1] = rho
        return counts, bool(final)

    def best_cut(self, rows: Ints, features: Ints, *, shallow: bool) -> tuple[int, float] | None:
        """Return the feature and the largest value on the left of the best cut, or None if there is none."""
        values, counts = self.X[np.ix_(rows, features)], self.counts[rows]
        order = values.argsort(axis=0, kind="stable")
        values = np.take_along_axis(values, order, axis=0)
        left = counts[order].cumsum(axis=0)
        right = left[-1] - left
        allowed = values[1:] > values[:-1]
        if shallow:
            labelled = [side[:-1, :, :-1].sum(axis=-1) for side in (left, right)]
            target = [side[:-1, :, -1] for side in (left, right)]
            allowed &= (np.minimum(*labelled) >= self.smallest[0]) & (np.minimum(*target) >= self.smallest[1])
            known = min(float(left[-1, 0, -1]), self.known_per_row * float(counts[:, :-1].sum()))
            scores = split_score(left[:-1], right[:-1], known)
        else:
            scores = gini_score(left[:-1], right[:-1])
        if not allowed.any():
            return None
        cut, column = np.unravel_index(np.where(allowed, scores, np.inf).argmin(), scores.shape)
        return int(features[column]), float(values[cut, column])


@saveable
@dataclass(frozen=True)
class Tree:
    """A binary tree: by node its feature (-1 in a leaf), cut, left child and a leaf's probabilities.

    The right child follows the left one.
    """

    feature: Ints
    cut: Floats
    left: Ints
    value: Floats

    @classmethod
    def root(cls, k: int) -> Tree:
        """A tree of one leaf."""
        nothing = np.full(1, -1, dtype=np.int64)
        return cls(nothing, np.zeros(1), nothing, np.zeros((1, k + 1)))

    def split(self, rows: _Rows, rng: np.random.Generator, *, shallow: bool) -> Tree:
        """Return a tree whose leaves are split as far as the rules allow, with new probabilities."""
        feature, cut, left = self.feature.tolist(), self.cut.tolist(), self.left.tolist()
        values, leaf, width = list(self.value), self.leaves(rows.X), rows.X.shape[1]
        waiting = [(node, np.flatnonzero(leaf == node)) for node in np.unique(leaf).tolist()]
        while waiting:
            node, inside = waiting.pop()
            values[node], final = rows.judge(inside, shallow=shallow)
            if final:
                continue
            some = rng.permutation(width)[: max(1, int(np.sqrt(width)))]
            found = rows.best_cut(inside, some, shallow=shallow)
            if found is not None:
                feature[node], cut[node], left[node] = *found, len(feature)
                goes_left = rows.X[inside, found[0]] <= found[1]
                waiting += [(len(feature), inside[goes_left]), (len(feature) + 1, inside[~goes_left])]
                for column, nothing in ((feature, -1), (cut, 0.0), (left, -1), (values, values[node])):
                    column.extend([nothing, nothing])
        return Tree(np.array(feature), np.array(cut), np.array(left), np.array(values))

    def leaves(self, X: AnyArray, root: int = 0) -> Ints:
        """Return the number of the leaf that each encoded row comes to from a root."""
        node = np.full(len(X), root, dtype=np.int64)
        inside = np.flatnonzero(self.feature[node] >= 0)
        while len(inside):
            at = node[inside]
            node[inside] = self.left[at] + (X[inside, self.feature[at]] > self.cut[at])
            inside = inside[self.feature[node[inside]] >= 0]
        return node


@saveable
@dataclass(frozen=True)
class Forest:
    """The mean vote of trees, kept as one with many roots; what no tree knows anything about is novel."""

    encoder: Encoder
    trees: Tree
    roots: Ints

    @classmethod
    def of(cls, encoder: Encoder, trees: Sequence[Tree]) -> Forest:
        """Put trees together."""
        roots = np.cumsum([0, *(len(tree.feature) for tree in trees)])
        left = [tree.left + root for tree, root in zip(trees, roots, strict=False)]
        joined = [
            np.concatenate([getattr(tree, name) for tree in trees]) for name in ("feature", "cut", "value")
        ]
        return cls(encoder, Tree(joined[0], joined[1], np.concatenate(left), joined[2]), roots[:-1])

    def predict_proba(self, X: AnyArray) -> Floats:
        rows = as_table(self.encoder, X)
        proba = np.zeros((len(rows), self.trees.value.shape[1]))
        for root in self.roots.tolist():
            proba += self.trees.value[self.trees.leaves(rows, root)]
        proba[proba.sum(axis=1) == 0, -1] = 1
        return np.asarray(proba / proba.sum(axis=1, keepdims=True))
