"""Learn positive against negative from positive and unlabelled rows."""

from __future__ import annotations

from typing import Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from osls._typing import AnyArray, Floats
from osls.mixture import BBE, MixtureEstimator
from osls.pu.cvir import Discriminator, PUProblem, refit
from osls.pu.elkan_noto import CorrectedDiscriminator, correct_domain_score
from osls.pu.objectives import NETWORK_OBJECTIVES, train_objective
from osls.pu.rows import check_positive_unlabeled
from osls.training.history import History
from osls.training.learners import FoldModels, Learner, NetworkLearner
from osls.training.predictors import Constant
from osls.training.sampling import assign_folds
from osls.training.select import LearnerSpec, choose_learner
from osls.validation import check_rows, stack_rows

__all__ = ["PUClassifier"]

_OBJECTIVES = ("cvir", *NETWORK_OBJECTIVES, "elkan-noto")


class PUClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify positive against negative, having seen positives and an unlabelled mixture of both.

    Every row is judged by models that never saw it: out-of-fold scores of positive against unlabelled give
    the share of positives, alpha, and the objective then learns the classifier with alpha held.

    Parameters
    ----------
    objective : {"cvir", "cvir-penalty", "pvu", "upu", "nnpu", "elkan-noto"}, default="cvir"
        "cvir" trains positives against the unlabelled rows that look least positive, in a few cross-fitted
        rounds; "elkan-noto" corrects the positive-versus-unlabelled classifier by Bayes' rule; both take any
        model. The others are minimised by gradient descent (:mod:`osls.pu.losses`) and need a network.
    discriminator : "auto", "mlp", "trees", "linear", "convnet", estimator or factory
        The model, as in :class:`osls.PULSE`. A scikit-learn classifier is cloned.
    mixture : mixture estimator, optional
        How alpha is estimated; default :class:`osls.mixture.BBE`.
    prevalence : float, optional
        alpha, strictly between 0 and 1, if it is known; then it is not estimated.
    n_folds : int, default=5
        Folds of the cross-fitting.
    rounds : int, default=3
        Refits of "cvir" at most.
    penalty : float, default=1.0
        Weight of the extra loss on the positives of "cvir-penalty".
    max_steps : int, optional
        Optimiser steps of each network training; by default about thirty epochs and at least 1,000.
    device : str, default="auto"
        "cpu", "cuda", "mps" or the best there is.
    n_jobs : int, optional
        Threads for trees.
    random_state : int, RandomState instance or None
        Seed of everything random.

    Attributes
    ----------
    classes_ : array of shape (2,)
        0, negative, and 1, positive.
    alpha_ : float
        Share of positives among the unlabelled rows, estimated or given.
    unlabeled_proba_ : array of shape (m, 2)
        Out-of-fold answers for the unlabelled rows, in their order; better than ``predict_proba`` of them.
    history_ : list of dict
        What each step of the fit did.

    Notes
    -----
    When alpha is estimated as 1 there is nothing to learn negatives from, and every row is called positive.

    References
    ----------
    .. [1] Garg, Wu, Smola, Balakrishnan, Lipton. Mixture Proportion Estimation and PU Learning:
       A Modern Approach. NeurIPS 2021.
    .. [2] Elkan, Noto. Learning Classifiers from Only Positive and Unlabeled Data. KDD 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.pu import PUClassifier
    >>> rng = np.random.default_rng(0)
    >>> positive, negative = rng.normal(2, 1, (300, 2)), rng.normal(-2, 1, (120, 2))
    >>> unlabeled = np.concatenate([positive[200:], negative])
    >>> model = PUClassifier(discriminator="linear", random_state=0).fit(positive[:200], unlabeled)
    >>> bool(abs(model.alpha_ - 100 / 220) < 0.1)
    True
    >>> model.predict([[2, 2], [-2, -2]])
    array([1, 0])
    """

    classes_: AnyArray
    alpha_: float
    unlabeled_proba_: Floats
    history_: History

    def __init__(
        self,
        objective: Literal["cvir", "cvir-penalty", "pvu", "upu", "nnpu", "elkan-noto"] = "cvir",
        *,
        discriminator: LearnerSpec = "auto",
        mixture: MixtureEstimator | None = None,
        prevalence: float | None = None,
        n_folds: int = 5,
        rounds: int = 3,
        penalty: float = 1.0,
        max_steps: int | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.objective = objective
        self.discriminator = discriminator
        self.mixture = mixture
        self.prevalence = prevalence
        self.n_folds = n_folds
        self.rounds = rounds
        self.penalty = penalty
        self.max_steps = max_steps
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from two samples, ``fit(X_positive, X_unlabeled)``, or from one, ``fit(X, y)``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, features), or images (n, channels, height, width)
            The positive rows; or, with labels as ``y``, all rows.
        y : like X, of m rows, or array-like of shape (n,)
            The unlabelled rows; or labels, 1 for positive and 0 for unlabelled.

        Returns
        -------
        self
        """
        positive, unlabeled = check_positive_unlabeled(self, X, y, self.n_folds)
        self._check_parameters()
        self.classes_ = np.array([0, 1])
        self.history_ = []
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        problem = PUProblem(
            np.zeros(positive.shape[0], dtype=np.int64), np.ones(positive.shape[0]), unlabeled.shape[0]
        )
        found = self._learn(self._learner(stack_rows(positive, unlabeled)), problem, rng)
        self._predictor = found.predictor
        self.unlabeled_proba_ = found.target_proba
        return self

    def _check_parameters(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(_OBJECTIVES)}; got {self.objective!r}.")
        if self.prevalence is not None and not 0 < self.prevalence < 1:
            raise ValueError(
                f"prevalence must lie strictly between 0 and 1; got {self.prevalence}. With 0 the "
                "unlabelled rows are the negatives of an ordinary task; with 1 there are none to learn from."
            )
        for name in ("rounds", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        if self.penalty < 0:
            raise ValueError(f"penalty must not be negative; got {self.penalty}.")

    def _learner(self, pool: AnyArray) -> Learner:
        spec = self.discriminator
        needs_network = self.objective in NETWORK_OBJECTIVES
        learner = choose_learner(
            spec,
            pool,
            max_steps=self.max_steps,
            device=self.device,
            n_jobs=self.n_jobs,
            networks_only=needs_network,
        )
        if needs_network and not isinstance(learner, NetworkLearner):
            raise ValueError(
                f"objective={self.objective!r} is minimised by gradient descent and discriminator="
                f"{self.discriminator!r} is no network; pass 'mlp', 'convnet' or a function that makes one, "
                "or choose objective='cvir' or 'elkan-noto'."
            )
        return learner

    def _learn(self, learner: Learner, problem: PUProblem, rng: np.random.Generator) -> Discriminator:
        n, m = problem.n_source, problem.n_target
        if self.prevalence is not None and self.objective in NETWORK_OBJECTIVES:
            # Nothing here needs domain scores.
            self.alpha_ = float(self.prevalence)
            return self._descend(learner, problem, rng)
        domain = self._discriminate_domains(learner, problem, rng)
        self.alpha_ = self._share(domain.scores[:n, 1], domain.scores[n:, 1])
        if round((1 - self.alpha_) * m) < 1:
            return Discriminator(np.ones(m), Constant((0.0, 1.0)), 0.0)
        if self.objective in NETWORK_OBJECTIVES:
            return self._descend(learner, problem, rng)
        # With a share of zero the positives would have no weight, and nothing could be called positive.
        alpha, scores = max(self.alpha_, 1 / m), domain.scores[n:, 1]
        if self.objective == "elkan-noto":
            corrected = CorrectedDiscriminator(domain.predictor, alpha)
            return Discriminator(correct_domain_score(scores, alpha), corrected, 1 - alpha)
        return refit(
            learner,
            problem,
            scores,
            1 - alpha,
            rounds=self.rounds,
            n_folds=self.n_folds,
            rng=rng,
            history=self.history_,
        )

    def _discriminate_domains(
        self, learner: Learner, problem: PUProblem, rng: np.random.Generator
    ) -> FoldModels:
        """Cross-fit positive against unlabelled, both sides with equal weight."""
        n, m = problem.n_source, problem.n_target
        domain = np.repeat([1, 0], [n, m])
        weight = np.repeat([(n + m) / (2 * n), (n + m) / (2 * m)], [n, m])
        fold = assign_folds(domain, self.n_folds, rng)
        return learner.cross_fit(domain, weight, fold, 2, seed=int(rng.integers(2**31)))

    def _share(self, positive: Floats, unlabeled: Floats) -> float:
        if self.prevalence is not None:
            return float(self.prevalence)
        mixture = BBE() if self.mixture is None else clone(self.mixture)
        alpha = float(mixture.fit(positive, unlabeled).alpha_)
        self.history_.append({"step": "mixture", "alpha": alpha})
        return alpha

    def _descend(self, learner: Learner, problem: PUProblem, rng: np.random.Generator) -> Discriminator:
        return train_objective(
            cast(NetworkLearner, learner),
            problem,
            self.objective,
            max(self.alpha_, 1 / problem.n_target),
            n_folds=self.n_folds,
            rng=rng,
            history=self.history_,
            penalty=self.penalty,
        )

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of negative and positive, the share of positives being ``alpha_``."""
        check_is_fitted(self)
        return self._predictor.predict_proba(check_rows(self, X, reset=False))

    def predict(self, X: Any) -> AnyArray:
        """Return 1 for rows that are more probably positive than not, else 0."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags
