"""EULAC: an unbiased estimate of the risk on the target, with one class more (Zhang et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import expit
from sklearn.metrics.pairwise import euclidean_distances
from torch import Tensor
from torch.nn.functional import softplus

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.parameters import Between, Constraint, OneOf, inherit_parameters
from osls._core.saving import saveable
from osls._core.validation import stack_rows
from osls.base import Adaptation, Task
from osls.baselines.both_sides import fold_of_both, train_on_both
from osls.baselines.known_share import known_share
from osls.baselines.open_set_losses import k_unbiased
from osls.baselines.rejection import predicted_mix
from osls.baselines.source_only import SourceOnly
from osls.mixture import BBE, MixtureEstimator, shares_by_class
from osls.training.choose import choose_network
from osls.training.predictors import Encoder, Networks, as_table
from osls.training.trainer import as_tensor

# Functions of a kernel are sums over so many rows at most.
_MOST_CENTRES = 1_000
_PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def augmented_risk(source: Floats, y: Ints, target: Floats, shares: Floats) -> float:
    r"""Unbiased estimate of the one-versus-rest risk on the target, with :math:`\psi(z) = (1 - z)^2 / 4`.

    .. math:: \sum_j \theta_j E_j[f_{new} - f_j] + E_t[\psi(f_{new}) + \sum_j \psi(-f_j)]

    All target rows count as novel, and :math:`\psi(z) - \psi(-z) = -z` corrects for those that are not.

    Parameters
    ----------
    source : array of shape (n, k + 1)
        Outputs :math:`f` on the source, the novel class last.
    y : array of shape (n,)
        Its classes.
    target : array of shape (m, k + 1)
        Outputs on the target.
    shares : array of shape (k,)
        :math:`\theta_j`, the known classes' shares of the target.
    """
    own = source[np.arange(len(y)), y]
    known = float(np.sum(_row_weight(y, shares) * (source[:, -1] - own)))
    as_novel = np.square(1 - target[:, -1]) + np.square(1 + target[:, :-1]).sum(axis=1)
    return known + float(as_novel.mean()) / 4


def _row_weight(y: Ints, shares: Floats) -> Floats:
    """Weights with which the sum over a class's rows is its share times their mean."""
    return np.asarray(shares[y] / np.bincount(y, minlength=len(shares))[y])


def minimise_risk(
    source: Floats, y: Ints, target: Floats, shares: Floats, gram: Floats, penalty: float
) -> Floats:
    """Minimise :func:`augmented_risk` plus ``penalty`` times v' gram v over linear functions, in closed form.

    ``source`` and ``target`` are features; the result has a column v for each of the k + 1 classes.
    """
    m, k = len(target), len(shares)
    weight = _row_weight(y, shares)
    own = np.zeros((len(y), k))
    own[np.arange(len(y)), y] = weight
    constant = target.sum(axis=0) / (2 * m)
    right = np.column_stack([source.T @ own - constant[:, None], constant - source.T @ weight])
    matrix = target.T @ target / (2 * m) + 2 * penalty * gram
    matrix[np.diag_indices_from(matrix)] += 1e-9 * np.trace(matrix) / len(matrix)
    return np.asarray(np.linalg.solve(matrix, right))


def non_negative_risk(source: Tensor, y: Tensor, target: Tensor, shares: Tensor) -> Tensor:
    """The same risk with the logistic loss, every class's part of it at least zero: for networks.

    Logits are (members, rows, k + 1); the risks of the members are summed.
    """
    members, k = source.shape[0], len(shares)
    heads = (
        k
        * members
        * k_unbiased(source[..., :k], y, target[..., :k], shares, surrogate="logistic", clipped=True)
    )
    weight = shares[y] / torch.stack([torch.bincount(row, minlength=k) for row in y]).gather(1, y)
    as_known = (weight * softplus(source[..., k])).sum(dim=1)
    as_novel = softplus(-target[..., k]).mean(dim=1) - (weight * softplus(-source[..., k])).sum(dim=1)
    return heads + (as_known + as_novel.clamp_min(0)).sum()


@saveable
@inherit_parameters
class EULAC(SourceOnly):
    r"""One-versus-rest classifiers of k + 1 classes that minimise an unbiased estimate of the target's risk.

    The distribution of the novel class is the target's minus that of the known classes at their shares
    :math:`\theta_j`, so the risk of any classifier on the target can be estimated without a label of it
    (:func:`osls.baselines.eulac.augmented_risk`). A row gets the class with the largest output.

    Parameters
    ----------
    model : {"kernel", "linear", "mlp"}, default="kernel"
        A Gaussian kernel with the median distance for its width, or linear functions, both with the squared
        loss and in closed form; or a network with the logistic loss, cross-fitted, each class's part of
        the risk kept from becoming negative.
    penalty : float, optional
        Weight of the squared norm of the functions; by default the one of five with the least risk on
        held-out rows.
    prior_shift : bool, default=True
        Whether the known classes' mix may have changed. Their shares are then estimated one by one from the
        source classifier's outputs; otherwise the source's mix is scaled by the known share.
    novel_share : float, optional
        The novel share; estimated if it is not given.
    mixture : mixture estimator, optional
        How shares are estimated; default :class:`osls.mixture.BBE`. The authors use KM2.
    source_classifier, n_folds, max_steps, patience, novel_label, device, n_jobs, random_state
        As in :class:`osls.baselines.SourceOnly`.

    Notes
    -----
    With more than 1,000 rows the kernel's functions are sums over 1,000 of them, drawn at random.

    References
    ----------
    .. [1] Zhang, Zhao, Ma, Zhou. An Unbiased Risk Estimator for Learning with Augmented Classes.
       NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from osls.baselines import EULAC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = EULAC(source_classifier="trees", random_state=0).fit(X[y < 2], y[y < 2], X_target=X)
    >>> model.target_proba_.shape
    (150, 3)
    """

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "model": OneOf(("kernel", "linear", "mlp")),
        "penalty": Between(0, np.inf, optional=True),
        "novel_share": Between(0, 1, closed=True, optional=True),
    }

    def __init__(
        self,
        *,
        model: str = "kernel",
        penalty: float | None = None,
        prior_shift: bool = True,
        novel_share: float | None = None,
        mixture: MixtureEstimator | None = None,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.model = model
        self.penalty = penalty
        self.prior_shift = prior_shift
        self.novel_share = novel_share
        self.mixture = mixture

    def _adapt(self, task: Task) -> Adaptation:
        shares = self._shares(task)
        task.history.append({"step": "known share", "alpha": float(shares.sum())})
        fit = self._fit_network if self.model == "mlp" else self._fit_functions
        predictor, proba = fit(task, shares)
        marginal = (
            shares / shares.sum() if shares.sum() > 0 else predicted_mix(proba, task.source_marginal)[0]
        )
        return Adaptation(
            marginal, max(0.0, 1 - float(shares.sum())), proba, learned={"_predictor": predictor}
        )

    def _shares(self, task: Task) -> Floats:
        """Shares of the known classes in the target; they sum to one at most."""
        mixture = BBE() if self.mixture is None else self.mixture
        # With one class there is no mix, and no classifier whose outputs would show its share.
        if not self.prior_shift or task.k == 1:
            total = known_share(
                task,
                novel_share=self.novel_share,
                mixture=mixture,
                discriminator="trees",
                n_folds=self.n_folds,
                n_jobs=self.n_jobs,
            )
            return total * task.source_marginal
        models = self._train(task, least_folds=2)
        target = models.predictor.predict_proba(task.X_target)
        shares = shares_by_class(models.scores, task.y, target, mixture)
        total = min(1.0, float(shares.alpha.sum())) if self.novel_share is None else 1 - self.novel_share
        return total * shares.marginal

    def _fit_functions(self, task: Task, shares: Floats) -> tuple[Functions, Floats]:
        encoder = Encoder(stack_rows(task.X, task.X_target))
        source, target = as_table(encoder, task.X), as_table(encoder, task.X_target)
        space = Space.of(np.concatenate([source, target]), self.model, task.rng)
        source, target = space.features(source), space.features(target)
        penalty = self.penalty
        if penalty is None:
            fold = fold_of_both(task, self.n_folds)
            risks = [_held_out_risk(source, task.y, target, shares, space.gram, p, fold) for p in _PENALTIES]
            penalty = _PENALTIES[int(np.argmin(risks))]
        functions = Functions(
            encoder, space, minimise_risk(source, task.y, target, shares, space.gram, penalty)
        )
        return functions, functions.proba(target)

    def _fit_network(self, task: Task, shares: Floats) -> tuple[OneVersusRest, Floats]:
        # "auto" is an MLP for tables and a convnet for pictures.
        learner = choose_network(
            "auto", stack_rows(task.X, task.X_target), max_steps=self.max_steps, device=self.device
        )
        theta = torch.from_numpy(shares).float().to(learner.device)
        networks, logits = train_on_both(
            learner,
            task,
            fold_of_both(task, self.n_folds),
            task.k + 1,
            lambda source, y, target: non_negative_risk(source, y, target, theta),
            balanced=True,
        )
        return OneVersusRest(networks), _normalised(expit(logits[len(task.y) :].astype(np.float64)))


def _held_out_risk(
    source: Floats, y: Ints, target: Floats, shares: Floats, gram: Floats, penalty: float, fold: Ints
) -> float:
    """Mean risk of the folds, each estimated on rows that its functions were not fitted to."""
    risks = []
    for f in range(int(fold.max()) + 1):
        s, t = fold[: len(y)] != f, fold[len(y) :] != f
        found = minimise_risk(source[s], y[s], target[t], shares, gram, penalty)
        risks.append(augmented_risk(source[~s] @ found, y[~s], target[~t] @ found, shares))
    return float(np.mean(risks))


def _normalised(scores: Floats) -> Floats:
    return np.asarray(scores / np.maximum(scores.sum(axis=1, keepdims=True), 1e-300))


@saveable
@dataclass(frozen=True)
class Space:
    """The functions to choose from: sums of Gaussians around ``centres``, or, without these, linear ones."""

    centres: Floats | None
    gamma: float
    gram: Floats

    @classmethod
    def of(cls, rows: Floats, model: str, rng: np.random.Generator) -> Space:
        """Make the space for the pooled rows; the width is the median distance between them."""
        if model == "linear":
            return cls(None, 0.0, np.eye(rows.shape[1] + 1))
        centres = rows[rng.permutation(len(rows))[:_MOST_CENTRES]]
        squared = euclidean_distances(centres, squared=True)
        median = float(np.median(squared[~np.eye(len(centres), dtype=bool)])) if len(centres) > 1 else 1.0
        gamma = 1 / max(median, 1e-12)
        return cls(centres, gamma, np.exp(-gamma * squared))

    def features(self, rows: Floats) -> Floats:
        """Features of encoded rows, in which the functions are linear."""
        if self.centres is None:
            return np.column_stack([rows, np.ones(len(rows))])
        return np.asarray(np.exp(-self.gamma * euclidean_distances(rows, self.centres, squared=True)))


@saveable
@dataclass(frozen=True)
class Functions:
    """One function for each of the k + 1 classes."""

    encoder: Encoder
    space: Space
    coefficients: Floats

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.proba(self.space.features(as_table(self.encoder, X)))

    def proba(self, features: Floats) -> Floats:
        """Probabilities: the squared loss is least at f = 2 p - 1, whose slope this has at zero."""
        return _normalised(expit(2 * features @ self.coefficients))


@saveable
@dataclass(frozen=True)
class OneVersusRest:
    """Networks with a logit for each of the k + 1 classes."""

    networks: Networks

    def predict_proba(self, X: AnyArray) -> Floats:
        logits = self.networks.logits(as_tensor(self.networks.encoder(X), self.networks.device))
        return _normalised(expit(logits.astype(np.float64)).mean(axis=0))
