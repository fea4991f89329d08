"""Domain discriminator: PU learning that assumes an unchanged mix of the known classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax
from sklearn.base import clone

from osls._core.arrays import AnyArray, Floats, Ints, with_novel
from osls._core.parameters import inherit_parameters
from osls._core.progress import History
from osls._core.saving import saveable
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, Task
from osls.baselines.deep import Callback
from osls.baselines.rejection import predicted_mix, reject
from osls.baselines.source_only import SourceOnly
from osls.mixture import ElkanNoto, MixtureEstimator
from osls.training.choose import LearnerSpec, choose_learner
from osls.training.learners import NetworkLearner
from osls.training.predictors import Networks, Predictor
from osls.training.sampling import assign_folds


def rescale(score: Floats, alpha: float, odds: float) -> Floats:
    """P(known) by Bayes' rule, alpha (m / n) f / (1 - f) with odds = m / n, clipped to [0, 1]."""
    score = np.clip(score, 0.0, 1 - 1e-9)
    return np.clip(alpha * odds * score / (1 - score), 0.0, 1.0)


@saveable
@inherit_parameters
class DomainDiscriminator(SourceOnly):
    r"""Discriminate source from target, rescale to P(known), reject, then ask the source classifier.

    A row with P(known) below 1/2 is novel; any other gets the source classifier's class. The share of known
    rows is Elkan and Noto's ratio of out-of-fold outputs. The label shift is not
    corrected: a known class that became more frequent looks like the target, and so like the novel class. The
    mix among the known classes is that of the predictions.

    Parameters
    ----------
    source_classifier, discriminator : "auto" or as in :class:`osls.PULSE`
        The models.
    mixture : mixture estimator, optional
        How the known share is estimated; default :class:`osls.mixture.ElkanNoto`.
    callback : callable, optional
        Called after each epoch of a discriminator that is a network, with its number and the target's current
        probabilities.
    n_folds, max_steps, patience, novel_label, device, n_jobs, random_state
        As in :class:`osls.baselines.SourceOnly`. With one fold the shares come from held-out rows, but the
        target's probabilities come from a model that was trained on most target rows.

    References
    ----------
    .. [1] Elkan, Noto. Learning Classifiers from Only Positive and Unlabeled Data. KDD 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from osls.baselines import DomainDiscriminator
    >>> from osls.datasets import simulate_osls
    >>> problem = simulate_osls(*load_digits(return_X_y=True), novel=[8, 9], random_state=0)
    >>> model = DomainDiscriminator(source_classifier="trees", discriminator="trees", random_state=0)
    >>> model = model.fit(**problem.training_data())
    >>> bool(0 <= model.novel_prevalence_ <= 1)
    True
    """

    short_name: ClassVar[str] = "domain-disc"

    def __init__(
        self,
        *,
        discriminator: LearnerSpec = "auto",
        mixture: MixtureEstimator | None = None,
        callback: Callback | None = None,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.discriminator = discriminator
        self.mixture = mixture
        self.callback = callback

    def _adapt(self, task: Task) -> Adaptation:
        n, m = len(task.y), task.X_target.shape[0]
        classifier = self._train(task).predictor
        pool = stack_rows(task.X, task.X_target)
        learner = choose_learner(
            self.discriminator,
            pool,
            max_steps=self.max_steps,
            patience=self.patience,
            device=self.device,
            n_jobs=self.n_jobs,
        )
        n_folds = check_folds(task.y, task.classes, self.n_folds, m, least=1)
        fold = assign_folds(np.concatenate([task.y, np.full(m, task.k)]), n_folds, task.rng, task.copy_of)
        domain = np.repeat([1, 0], [n, m])
        class_proba = classifier.predict_proba(task.X_target)
        out = fold >= 0

        def judge(scores: Floats, discriminator: Predictor) -> tuple[DomainRejection, Floats, Floats]:
            """Return the method, the target's probabilities and the mix, from P(source) of all rows."""
            mixture = ElkanNoto() if self.mixture is None else clone(self.mixture)
            alpha = float(mixture.fit(scores[:n][out[:n]], scores[n:][out[n:]]).alpha_)
            rejecting = DomainRejection(classifier, discriminator, alpha, m / n)
            proba = rejecting.combine(scores[n:], class_proba)
            return rejecting, proba, predicted_mix(proba[out[n:]], task.source_marginal)[0]

        if isinstance(learner, NetworkLearner) and self.callback is not None:
            learner.on_epoch = _Follower(learner, self.callback, task.history, judge)
        models = learner.cross_fit(domain, np.ones(n + m), fold, 2, seed=int(task.rng.integers(2**31)))
        rejecting, proba, marginal = judge(models.scores[:, 1], models.predictor)
        task.history.append({"step": "known share", "alpha": rejecting.alpha})
        return Adaptation(marginal, 1 - rejecting.alpha, proba, learned={"_predictor": rejecting})


class _Follower:
    """Judges the target after every epoch, as the finished method would."""

    def __init__(self, learner: NetworkLearner, callback: Callback, history: History, judge: Any):
        self._learner, self._callback, self._history, self._judge = learner, callback, history, judge
        self._epochs = 0

    def __call__(self, networks: Networks, fold: Ints) -> None:
        self._epochs += 1
        # With one split, all rows are scored by the only network; in a cross-fit by the one without them.
        logits = networks.held_out_logits(self._learner.rows, np.maximum(fold, 0))
        rejecting, proba, marginal = self._judge(softmax(logits, axis=1)[:, 1], networks)
        mix = with_novel(marginal, 1 - rejecting.alpha).tolist()
        self._history.append({"step": "epoch", "epoch": self._epochs, "target_marginal": mix})
        self._callback(self._epochs, proba)


@saveable
@dataclass(frozen=True)
class DomainRejection:
    """A source classifier whose rows a domain discriminator may reject."""

    classifier: Predictor
    discriminator: Predictor
    alpha: float
    odds: float

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.combine(self.discriminator.predict_proba(X)[:, 1], self.classifier.predict_proba(X))

    def combine(self, domain_score: Floats, class_proba: Floats) -> Floats:
        """Return probabilities of all k + 1 classes."""
        return reject(class_proba, rescale(domain_score, self.alpha, self.odds))
