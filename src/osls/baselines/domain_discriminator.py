"""Domain discriminator: positive and unlabelled learning as if the known classes had kept their mix."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from osls._core.arrays import AnyArray, Floats
from osls._core.parameters import inherit_parameters
from osls._core.validation import check_folds, stack_rows
from osls.base import Adaptation, Task, combine
from osls.baselines.rejection import predicted_mix
from osls.baselines.source_only import SourceOnly
from osls.mixture import ElkanNoto, MixtureEstimator
from osls.training.choose import LearnerSpec, choose_learner
from osls.training.predictors import Constant, Predictor
from osls.training.sampling import assign_folds

__all__ = ["DomainDiscriminator", "rescale"]


def rescale(score: Floats, alpha: float, odds: float) -> Floats:
    """P(known) by Bayes' rule, alpha (m / n) f / (1 - f) with odds = m / n, clipped to [0, 1]."""
    score = np.clip(score, 0.0, 1 - 1e-9)
    return np.clip(alpha * odds * score / (1 - score), 0.0, 1.0)


@inherit_parameters
class DomainDiscriminator(SourceOnly):
    r"""Tell source from target, rescale to P(known), and let the source classifier share that out.

    The share of known rows is Elkan and Noto's ratio of out-of-fold outputs. There is no correction of the
    label shift: a known class that became more frequent looks like target, and so like novel. The mix among
    the known classes is that of the predictions.

    Parameters
    ----------
    source_classifier, discriminator : "auto" or as in :class:`osls.PULSE`
        The models.
    mixture : mixture estimator, optional
        How the known share is estimated; default :class:`osls.mixture.ElkanNoto`.
    n_folds, max_steps, novel_label, device, n_jobs, random_state
        As in :class:`osls.baselines.SourceOnly`. With one fold the shares come from held-out rows, and the
        target's answers from the model that was trained on most of them.

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

    def __init__(
        self,
        *,
        discriminator: LearnerSpec = "auto",
        mixture: MixtureEstimator | None = None,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.discriminator = discriminator
        self.mixture = mixture

    def _adapt(self, task: Task) -> Adaptation:
        n, m = len(task.y), task.X_target.shape[0]
        self._models = self._train(task)
        pool = stack_rows(task.X, task.X_target)
        learner = choose_learner(
            self.discriminator,
            pool,
            max_steps=self.max_steps,
            device=self.device,
            n_jobs=self.n_jobs,
        )
        n_folds = check_folds(task.y, task.classes, self.n_folds, m, least=1)
        fold = assign_folds(np.concatenate([task.y, np.full(m, task.k)]), n_folds, task.rng)
        domain = np.repeat([1, 0], [n, m])
        models = learner.cross_fit(domain, np.ones(n + m), fold, 2, seed=int(task.rng.integers(2**31)))
        scores = models.scores[:, 1]
        self._discriminator: Predictor = models.predictor
        mixture = ElkanNoto() if self.mixture is None else clone(self.mixture)
        out = fold >= 0
        self._alpha = mixture.fit(scores[:n][out[:n]], scores[n:][out[n:]]).alpha_
        self._odds = m / n
        known = rescale(scores[n:], self._alpha, self._odds)
        proba = combine(known, self._models.predictor.predict_proba(task.X_target), np.ones(task.k))
        self.history_.append({"step": "known share", "alpha": self._alpha})
        marginal, _ = predicted_mix(proba[out[n:]], task.source_marginal)
        return Adaptation(marginal, 1 - self._alpha, proba)

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        self._discriminator, self._alpha, self._odds = Constant((0.0, 1.0)), 1.0, 1.0
        return super()._adapt_to_nothing(task)

    def _predict_proba(self, X: AnyArray) -> Floats:
        known = rescale(self._discriminator.predict_proba(X)[:, 1], self._alpha, self._odds)
        classes = self._models.predictor.predict_proba(X)
        return combine(known, classes, np.ones(classes.shape[1]))
