"""What people do without adaptation: a source classifier, and a detector of rows that look unusual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import expit, logsumexp
from sklearn.covariance import ledoit_wolf
from sklearn.ensemble import IsolationForest
from sklearn.metrics.pairwise import euclidean_distances

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.parameters import Between, Constraint, OneOf, inherit_parameters
from osls._core.saving import saveable
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, Task
from osls.baselines.rejection import predicted_mix, reject
from osls.baselines.source_only import SourceOnly
from osls.training.choose import choose_network
from osls.training.predictors import Constant, Encoder, Networks, Predictor, as_table
from osls.training.sampling import assign_folds
from osls.training.trainer import as_tensor

# Rows whose distances to the source are computed at once.
_PIECE = 1_000
# The nearest source row that counts.
_NEIGHBOUR = 10


class KnownScorer(Protocol):
    """Scores rows, higher if they look known."""

    def __call__(self, X: AnyArray) -> Floats: ...


@saveable
@dataclass(frozen=True)
class Mahalanobis:
    """Minus the smallest Mahalanobis distance to a class's mean, under one covariance (Lee 2018).

    The covariance within the classes is shrunk by Ledoit and Wolf's rule.
    """

    whiten: Floats
    means: Floats

    @classmethod
    def of(cls, X: Floats, y: Ints, seed: int) -> Mahalanobis:
        labels, index = np.unique(y, return_inverse=True)
        means = np.array([X[y == label].mean(axis=0) for label in labels])
        covariance, _ = ledoit_wolf(X - means[index], assume_centered=True)
        values, vectors = np.linalg.eigh(covariance)
        whiten = vectors / np.sqrt(np.maximum(values, 1e-9 * max(float(values.max()), 1e-300)))
        return cls(whiten, means @ whiten)

    def __call__(self, X: AnyArray) -> Floats:
        return np.asarray(-euclidean_distances(X @ self.whiten, self.means).min(axis=1))


@saveable
@dataclass(frozen=True)
class NearestRows:
    """Minus the distance to the tenth nearest source row (Sun 2022)."""

    rows: Floats

    @classmethod
    def of(cls, X: Floats, y: Ints, seed: int) -> NearestRows:
        return cls(X)

    def __call__(self, X: AnyArray) -> Floats:
        rank = min(_NEIGHBOUR, len(self.rows)) - 1
        pieces = np.array_split(X, 1 + len(X) // _PIECE)
        nearest = [np.partition(euclidean_distances(piece, self.rows), rank)[:, rank] for piece in pieces]
        return -np.concatenate(nearest)


@saveable
@dataclass(frozen=True)
class Isolation:
    """Score of an isolation forest: how many random cuts it takes to isolate a row (Liu 2008).

    A saved one keeps the rows and the seed and grows its small trees again.
    """

    rows: Floats
    seed: int
    forest: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forest", IsolationForest(random_state=self.seed).fit(self.rows))

    @classmethod
    def of(cls, X: Floats, y: Ints, seed: int) -> Isolation:
        return cls(X, seed)

    def __call__(self, X: AnyArray) -> Floats:
        return np.asarray(self.forest.score_samples(X))


@saveable
@dataclass(frozen=True)
class OfFeatures:
    """A score of encoded features."""

    encoder: Encoder
    score: KnownScorer

    def __call__(self, X: AnyArray) -> Floats:
        return self.score(as_table(self.encoder, X))


@saveable
@dataclass(frozen=True)
class LargestProbability:
    """The classifier's confidence (Hendrycks 2017)."""

    classifier: Predictor

    def __call__(self, X: AnyArray) -> Floats:
        return np.asarray(self.classifier.predict_proba(X).max(axis=1))


@saveable
@dataclass(frozen=True)
class LargestPValue:
    """How usual the row is for the class that it fits best: low where a conformal set would be empty.

    A class's p-value is the share of its held-out source rows that had no more of its probability (the
    label-conditional sets of Vovk 2005, which MAPIE and others compute).
    """

    classifier: Predictor
    held_out: tuple[Floats, ...]

    @classmethod
    def of(cls, classifier: Predictor, held_out: Floats, y: Ints) -> LargestPValue:
        return cls(classifier, tuple(np.sort(held_out[y == j, j]) for j in range(held_out.shape[1])))

    def __call__(self, X: AnyArray) -> Floats:
        return self.judge(self.classifier.predict_proba(X))

    def judge(self, proba: Floats) -> Floats:
        """Return the score of rows whose probabilities are known."""
        by_class = [
            (1 + np.searchsorted(usual, proba[:, j], side="right")) / (1 + len(usual))
            for j, usual in enumerate(self.held_out)
        ]
        return np.asarray(np.max(by_class, axis=0))


@saveable
@dataclass(frozen=True)
class NegativeEnergy:
    """The log sum exp of a row's logits, low where no class is supported (Liu 2020); mean over networks."""

    networks: Networks

    def __call__(self, X: AnyArray) -> Floats:
        logits = self.networks.logits(as_tensor(self.networks.encoder(X), self.networks.device))
        return np.asarray(logsumexp(logits.astype(np.float64), axis=2).mean(axis=0))


# Scores of features: fitted to encoded rows and their classes, with a seed.
_OF_FEATURES: Mapping[str, Callable[[Floats, Ints, int], KnownScorer]] = {
    "mahalanobis": Mahalanobis.of,
    "isolation-forest": Isolation.of,
    "knn": NearestRows.of,
}
# The largest number below 1/2.
_BELOW = float(np.nextafter(0.5, 0.0))
_KINDS = ("max-softmax", "conformal", "energy", *_OF_FEATURES)


def threshold_of(held_out: Floats, target: Floats, false_alarms: float, share: float | None) -> float:
    """Return the score below which rows are novel: by the held-out source rows, or by the target's share.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.baselines.novelty_detectors import threshold_of
    >>> threshold_of(np.arange(101.0), np.arange(10.0), 0.05, None)
    5.0
    >>> threshold_of(np.arange(101.0), np.arange(10.0), 0.05, 0.3)
    3.0
    """
    if share is None:
        return float(np.quantile(held_out, false_alarms))
    novel = round(share * len(target))
    ordered = np.append(np.sort(target), np.inf)
    return float(ordered[novel])


@saveable
@inherit_parameters
class Detector(SourceOnly):
    """The source classifier, with a threshold on a score below which a row is called novel.

    The target is not learned from. Its label shift is not corrected, and a detector that is right about the
    source calls the same share of any target's known rows novel. The novel share is the share of rows that
    are called so.

    Parameters
    ----------
    kind : {"max-softmax", "conformal", "energy", "mahalanobis", "isolation-forest", "knn"}
        What is low for rows that look novel: the classifier's largest probability (the default); the largest
        conformal p-value of a class, so that rows with an empty set are novel; the log sum exp of its
        logits (it is then a network); minus the distance to the nearest class mean; the score of an isolation
        forest; minus the distance to the tenth nearest source row. The last three look at the features,
        standardised as for networks.
    false_alarms : float, default=0.05
        The threshold: so many of the held-out source rows fall below it.
    share : float, optional
        The novel share, if it is known: the threshold is then the one that calls this share of the target
        novel. A benchmark that passes the true share favours the method.
    source_classifier, n_folds, max_steps, patience, novel_label, device, n_jobs, random_state
        As in :class:`osls.baselines.SourceOnly`; at least two folds.

    Attributes
    ----------
    threshold_ : float
        Rows that score below it are novel.
    known_score_ : array of shape (m,)
        Score of each row of X_target.
    known_labels_ : array of shape (m,)
        The most probable known class of each row.

    References
    ----------
    .. [1] Hendrycks, Gimpel. A Baseline for Detecting Misclassified and Out-of-Distribution Examples in
       Neural Networks. ICLR 2017.
    .. [2] Liu, Wang, Owens, Li. Energy-based Out-of-distribution Detection. NeurIPS 2020.
    .. [3] Lee, Lee, Lee, Shin. A Simple Unified Framework for Detecting Out-of-Distribution Samples and
       Adversarial Attacks. NeurIPS 2018.
    .. [4] Liu, Ting, Zhou. Isolation Forest. ICDM 2008.
    .. [5] Sun, Ming, Zhu, Li. Out-of-Distribution Detection with Deep Nearest Neighbors. ICML 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import Detector
    >>> X, y = load_iris(return_X_y=True)
    >>> model = Detector(kind="mahalanobis", source_classifier="trees", random_state=0)
    >>> model = model.fit(X[y < 2], y[y < 2], X_target=X)
    >>> bool(model.novel_prevalence_ > 0.2)
    True
    """

    short_name: ClassVar[str] = "max-softmax"
    threshold_: float
    known_score_: Floats
    known_labels_: AnyArray

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "kind": OneOf(_KINDS),
        "false_alarms": Between(0, 1),
        "share": Between(0, 1, closed=True, optional=True),
    }

    def __init__(
        self,
        *,
        kind: str = "max-softmax",
        false_alarms: float = 0.05,
        share: float | None = None,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.kind = kind
        self.false_alarms = false_alarms
        self.share = share

    def _adapt(self, task: Task) -> Adaptation:
        classifier, scorer, held_out = self._detect(task)
        score = scorer(task.X_target)
        class_proba = classifier.predict_proba(task.X_target)
        threshold = threshold_of(held_out, score, self.false_alarms, self.share)
        scale = float(np.std(held_out)) or 1.0
        rejecting = ScoreRejection(classifier, scorer, threshold, scale)
        proba = rejecting.combine(class_proba, score)
        learned = {
            "_predictor": rejecting,
            "threshold_": threshold,
            "known_score_": score,
            "known_labels_": task.classes[class_proba.argmax(axis=1)],
        }
        return Adaptation(*predicted_mix(proba, task.source_marginal), proba, learned=learned)

    def _detect(self, task: Task) -> tuple[Predictor, KnownScorer, Floats]:
        """Return the classifier, the score, and the scores of source rows that it was not fitted to."""
        if self.kind == "energy":
            return self._by_energy(task)
        models = self._train(task, least_folds=2)
        if self.kind == "max-softmax":
            return models.predictor, LargestProbability(models.predictor), models.scores.max(axis=1)
        if self.kind == "conformal":
            largest = LargestPValue.of(models.predictor, models.scores, task.y)
            return models.predictor, largest, largest.judge(models.scores)
        fold = self._folds(task)
        # Of both sides, as everywhere: components of the source alone would fit it better than the target.
        encoder = Encoder(stack_rows(task.X, task.X_target))
        seed = int(task.rng.integers(2**31))
        rows, fit = as_table(encoder, task.X), _OF_FEATURES[self.kind]
        held_out = np.empty(len(rows))
        for f in range(int(fold.max()) + 1):
            inside = fold == f
            held_out[inside] = fit(rows[~inside], task.y[~inside], seed)(rows[inside])
        return models.predictor, OfFeatures(encoder, fit(rows, task.y, seed)), held_out

    def _by_energy(self, task: Task) -> tuple[Predictor, KnownScorer, Floats]:
        spec = "mlp" if self.source_classifier == "auto" and task.X.ndim == 2 else self.source_classifier
        learner = choose_network(
            spec,
            task.X,
            max_steps=self.max_steps,
            patience=self.patience,
            device=self.device,
            complaint=f"source_classifier must be a network for kind='energy'; got {spec!r}.",
        )
        fold = self._folds(task)
        seed = int(task.rng.integers(2**31))
        # A single output would be read as the logit of two classes.
        outputs = max(task.k, 2)
        networks = learner.cross_fit(task.y, np.ones(len(task.y)), fold, outputs, seed).predictor
        assert isinstance(networks, Networks)
        held_out = networks.held_out_logits(learner.rows, fold).astype(np.float64)
        classifier = networks if task.k > 1 else Constant((1.0,))
        return classifier, NegativeEnergy(networks), np.asarray(logsumexp(held_out, axis=1))

    def _folds(self, task: Task) -> Ints:
        n_folds = check_folds(task.y, task.classes, self.n_folds, len(task.y))
        return assign_folds(task.y, n_folds, task.rng, task.copy_of)


@saveable
@dataclass(frozen=True)
class ScoreRejection:
    """A classifier whose rows are rejected where a score lies below the threshold; ``scale`` spreads odds."""

    classifier: Predictor
    score: KnownScorer
    threshold: float
    scale: float

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.combine(self.classifier.predict_proba(X), self.score(X))

    def combine(self, class_proba: Floats, score: Floats) -> Floats:
        """Return probabilities of all k + 1 classes."""
        # A share of one puts the threshold at infinity: everything is novel, in the order of the scores.
        distance = (
            (score - self.threshold) / self.scale if np.isfinite(self.threshold) else score - score.max() - 1
        )
        # Below the threshold strictly less than 1/2, however near.
        known = np.where(distance >= 0, np.maximum(expit(distance), 0.5), np.minimum(expit(distance), _BELOW))
        return reject(class_proba, known)
