"""Learn positive against negative from positive and unlabelled rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import AnyArray, Floats
from osls._core.copies import copies_among
from osls._core.parameters import AtLeast, Between, Constraint, OneOf, check_parameters
from osls._core.progress import History
from osls._core.saving import saveable
from osls._core.validation import check_rows, stack_rows
from osls.mixture import BBE, MixtureEstimator
from osls.pu.cvir import Discriminator, PUProblem, refit
from osls.pu.objectives import NETWORK_OBJECTIVES, train_objective
from osls.training.choose import LearnerSpec, choose_learner, choose_network
from osls.training.learners import FoldModels, Learner, NetworkLearner
from osls.training.predictors import Constant, Predictor
from osls.training.sampling import assign_folds
from osls.training.trainer import Device


def check_positive_unlabeled(estimator: Any, X: Any, y: Any, n_folds: int) -> tuple[AnyArray, AnyArray]:
    """Return validated positive and unlabelled rows from either form of ``fit``'s arguments.

    ``y`` holds labels if it has one dimension, or one column while X has several. Otherwise ``y`` holds the
    unlabelled rows.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: pass the "
            "unlabelled rows, fit(X_positive, X_unlabeled), or labels, fit(X, y) with y = 1 or 0."
        )
    if _are_labels(y, X):
        positive, unlabeled = _split(estimator, X, y)
    else:
        positive, unlabeled = _check_both(estimator, X, y)
    n, m = positive.shape[0], unlabeled.shape[0]
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2; got {n_folds}.")
    if min(n, m) < n_folds:
        raise ValueError(
            f"n_folds={n_folds} needs at least that many positive and unlabelled rows; got {n} and {m}. "
            "Lower n_folds or add rows."
        )
    return positive, unlabeled


def _are_labels(y: Any, X: Any) -> bool:
    shape = _shape(y)
    return len(shape) < 2 or (len(shape) == 2 and shape[1] == 1 and _shape(X)[1:] != (1,))


def _shape(a: Any) -> tuple[int, ...]:
    return tuple(a.shape) if hasattr(a, "shape") else np.asarray(a).shape


def _split(estimator: Any, X: Any, y: Any) -> tuple[AnyArray, AnyArray]:
    X, y = check_rows(estimator, X, y, reset=True)
    values = np.unique(y)
    if not np.isin(values, [0, 1]).all():
        shown = ", ".join(repr(value) for value in values[:5].tolist())
        # The wording that scikit-learn's estimator checks expect.
        many = "Only binary classification is supported. " if len(values) > 2 else ""
        raise ValueError(
            f"{many}y must be 1 for positive rows and 0 for unlabelled ones; got {shown}. "
            "You can also pass the unlabelled rows in place of y: fit(X_positive, X_unlabeled)."
        )
    if len(values) < 2:
        missing = "0 (unlabelled)" if values[0] == 1 else "1 (positive)"
        raise ValueError(f"y has one class, {int(values[0])}; at least one row of {missing} is needed.")
    return X[y == 1], X[y == 0]


def _check_both(estimator: Any, positive: Any, unlabeled: Any) -> tuple[AnyArray, AnyArray]:
    positive, _ = check_rows(estimator, positive, np.ones(_shape(positive)[0]), reset=True)
    if _shape(unlabeled)[1:] != positive.shape[1:]:
        raise ValueError(
            f"X_unlabeled has {_columns(_shape(unlabeled))} but X_positive has {_columns(positive.shape)}; "
            "both must hold the same features in the same order."
        )
    unlabeled = check_rows(estimator, unlabeled, reset=False)
    if sparse.issparse(positive) and not sparse.issparse(unlabeled):
        unlabeled = sparse.csr_matrix(unlabeled)
    elif sparse.issparse(unlabeled) and not sparse.issparse(positive):
        unlabeled = unlabeled.toarray()
    return positive, unlabeled


def _columns(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} features" if len(shape) == 2 else f"rows of shape {shape[1:]}"


def correct_domain_score(domain_score: ArrayLike, alpha: float, ratio: float = 1.0) -> Floats:
    r"""Probability that an unlabelled row is positive, by Bayes' rule.

    .. math:: P(y = 1 \mid x) = \alpha\, p_p(x) / p_u(x) = \min\Big\{1,\;
        \alpha\, \frac{m}{n}\, \frac{f(x)}{1 - f(x)}\Big\}

    The true ratio of densities is at most 1 / alpha; an estimate that exceeds it is clipped.

    Parameters
    ----------
    domain_score : array-like of shape (rows,)
        f(x), the probability of "positive sample" against "unlabelled sample".
    alpha : float
        Share of positives among the unlabelled rows.
    ratio : float, default=1.0
        m / n, unlabelled to positive weight in f's training; 1 if both sides weighed the same.

    Returns
    -------
    array of shape (rows,)
        In [0, 1].

    References
    ----------
    .. [1] Elkan, Noto. Learning Classifiers from Only Positive and Unlabeled Data. KDD 2008.

    Examples
    --------
    >>> from osls.pu.classifier import correct_domain_score
    >>> correct_domain_score([0.0, 0.5, 0.9, 1.0], alpha=0.5)
    array([0. , 0.5, 1. , 1. ])
    """
    f = np.asarray(domain_score, dtype=np.float64)
    # a f / (1 - f) >= 1 if and only if a f >= 1 - f, which needs no division by zero at f = 1.
    scaled, rest = alpha * ratio * f, 1 - f
    certain = scaled >= rest
    return np.where(certain, 1.0, scaled / np.where(certain, 1.0, rest))


@saveable
@dataclass(frozen=True)
class CorrectedDiscriminator:
    """Turns a domain discriminator, whose last column is f, into probabilities of (negative, positive)."""

    predictor: Predictor
    alpha: float

    def predict_proba(self, X: AnyArray) -> Floats:
        positive = correct_domain_score(self.predictor.predict_proba(X)[:, 1], self.alpha)
        return np.column_stack([1 - positive, positive])


@saveable
class PUClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify positive against negative after training on positives and an unlabelled mixture of both.

    Scores are out-of-fold: a model of positive against unlabelled gives the share of positives, alpha, and
    the objective then learns the classifier with alpha fixed.

    Parameters
    ----------
    objective : {"cvir", "cvir-penalty", "pvu", "upu", "nnpu", "upu-sigmoid", "nnpu-sigmoid", "elkan-noto"}
        "cvir" trains positives against the unlabelled rows that look least positive, in a few cross-fitted
        rounds; "elkan-noto" corrects the positive-versus-unlabelled classifier by Bayes' rule; both take any
        model. The others are minimised by gradient descent (:mod:`osls.pu.losses`) and need a network; the
        surrogate is the logistic loss unless the name says "sigmoid".
    discriminator : "auto", "mlp", "trees", "linear", "convnet", estimator or factory
        The model, as in :class:`osls.PULSE`. A scikit-learn classifier is cloned.
    mixture : mixture estimator, optional
        How alpha is estimated; default :class:`osls.mixture.BBE`.
    prevalence : float, optional
        alpha, strictly between 0 and 1, if it is known; then it is not estimated. (With 0 all unlabelled rows
        are negatives, an ordinary binary task; with 1 there are no negatives to learn from.)
    n_folds : int, default=5
        Folds of the cross-fitting.
    rounds : int, default=3
        Largest number of refits of "cvir".
    penalty : float, default=1.0
        Weight of the extra loss on the positives of "cvir-penalty".
    max_steps : int, optional
        Optimiser steps of each network training; by default about thirty epochs and at least 1,000.
    device : str, default="auto"
        "cpu", "cuda", "mps", or "auto" for the best available.
    n_jobs : int, optional
        Threads for trees.
    random_state : int, RandomState instance or None
        Seed for all random steps.

    Attributes
    ----------
    classes_ : array of shape (2,)
        0, negative, and 1, positive.
    alpha_ : float
        Share of positives among the unlabelled rows, estimated or given.
    unlabeled_proba_ : array of shape (m, 2)
        Out-of-fold probabilities of the unlabelled rows, in their order. Prefer them to ``predict_proba``.
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

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "objective": OneOf(("cvir", *NETWORK_OBJECTIVES, "elkan-noto")),
        "prevalence": Between(0, 1, optional=True),
        "rounds": AtLeast(1),
        "penalty": AtLeast(0, whole=False),
        "max_steps": AtLeast(1, optional=True),
        "device": Device(),
    }

    classes_: AnyArray
    alpha_: float
    unlabeled_proba_: Floats
    history_: History

    def __init__(
        self,
        objective: Literal[
            "cvir", "cvir-penalty", "pvu", "upu", "nnpu", "upu-sigmoid", "nnpu-sigmoid", "elkan-noto"
        ] = "cvir",
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
        check_parameters(self)
        self.classes_ = np.array([0, 1])
        self.history_ = []
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        n, m = positive.shape[0], unlabeled.shape[0]
        problem = PUProblem(
            np.zeros(n, dtype=np.int64), np.ones(n), m, copy_of=copies_among(positive, unlabeled)
        )
        discriminator = self._learn(self._learner(stack_rows(positive, unlabeled)), problem, rng)
        self._predictor = discriminator.predictor
        self.unlabeled_proba_ = discriminator.target_proba
        return self

    def _learner(self, pool: AnyArray) -> Learner:
        spec, steps, device = self.discriminator, self.max_steps, self.device
        if self.objective not in NETWORK_OBJECTIVES:
            return choose_learner(spec, pool, max_steps=steps, device=device, n_jobs=self.n_jobs)
        return choose_network(
            spec,
            pool,
            max_steps=steps,
            device=device,
            complaint=f"objective={self.objective!r} is minimised by gradient descent and discriminator="
            f"{spec!r} is not a network; pass 'mlp', 'convnet' or a function that makes one, "
            "or choose objective='cvir' or 'elkan-noto'.",
        )

    def _learn(self, learner: Learner, problem: PUProblem, rng: np.random.Generator) -> Discriminator:
        n, m = problem.n_source, problem.n_target
        if self.prevalence is not None and self.objective in NETWORK_OBJECTIVES:
            # alpha is given and the objective trains on its own: no domain scores are needed.
            self.alpha_ = float(self.prevalence)
            return self._descend(learner, problem, rng)
        domain = self._discriminate_domains(learner, problem, rng)
        self.alpha_ = self._share(domain.scores[:n, 1], domain.scores[n:, 1])
        if round((1 - self.alpha_) * m) < 1:
            return Discriminator(np.ones(m), Constant((0.0, 1.0)), 0.0)
        if self.objective in NETWORK_OBJECTIVES:
            return self._descend(learner, problem, rng)
        # With alpha = 0 the positives would have no weight, and no row could be predicted positive.
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
        fold = assign_folds(domain, self.n_folds, rng, problem.copy_of)
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
        """Probabilities of (negative, positive) for rows with a share ``alpha_`` of positives."""
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
