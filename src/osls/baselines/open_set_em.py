"""Open set EM: k+1 classes by maximum likelihood, from a frozen classifier and any novelty score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from osls._core.arrays import AnyArray, Floats, Ints, with_novel
from osls._core.parameters import AtLeast, Constraint, inherit_parameters
from osls._core.saving import kept_as, saveable
from osls.base import Adaptation, Task, combine
from osls.baselines.source_only import SourceOnly
from osls.shift.calibration import fit_calibrator
from osls.training.predictors import Calibrated, Predictor


@kept_as("function")
def confidence(proba: Floats) -> Floats:
    """Largest class probability: the simplest score for "this row is of a known class"."""
    return np.asarray(proba.max(axis=1))


def open_set_em(proba: Floats, known: Floats, source_mix: Floats, *, iterations: int = 500) -> Floats:
    r"""Maximum likelihood mix of k+1 classes, from classifiers made for the mix ``source_mix``.

    The E-step is Bayes' rule with the current mix, the M-step its mean:
    :math:`\pi_j \leftarrow \frac1m \sum_i r_{ij} / \sum_l r_{il}` with
    :math:`r_{ij} = \tilde f_j(x_i)\,\pi_j/c_j` and :math:`\tilde f = (h f_1, \dots, h f_k, 1 - h)`.
    """
    likelihood = np.column_stack([known[:, None] * proba, 1 - known]) / source_mix
    mix = source_mix.copy()
    for _ in range(iterations):
        posterior = likelihood * mix
        posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
        previous, mix = mix, posterior.mean(axis=0)
        if np.abs(mix - previous).max() < 1e-7:
            break
    return np.asarray(mix)


@saveable
@inherit_parameters
class OpenSetEM(SourceOnly):
    r"""The method of Ye et al.: no training on the target, only EM over the outputs of the source classifier.

    Three stages. A *reference* of synthetic novel rows scales the novelty score to [0, 1] and gives the
    novel share that the score implies for the source, :math:`1 - \rho_s` with
    :math:`\rho_s = \mu_0 / (1 - \mu_1 + \mu_0)`, :math:`\mu_1` and :math:`\mu_0` being the mean score of
    source and reference. The EM estimates the target's mix. The novel share is then corrected for the
    score's errors, :math:`\rho_t = (\bar h_t - \mu_0) / (\mu_1 - \mu_0)`.

    Parameters
    ----------
    source_classifier : as in :class:`osls.PULSE`
        A fitted classifier is used as it is.
    known_score : callable, default=confidence
        From class probabilities (n, k) to scores that are larger for rows of known classes.
    reference_discount : float, default=2.0
        Divides the reference's mean score, because synthetic rows are easier to detect than real novel ones.
    n_folds, max_steps, patience, novel_label, device, n_jobs, random_state
        As in :class:`osls.PULSE`.

    References
    ----------
    .. [1] Ye, Tsuchida, Petersson, Barnes. Open Set Label Shift with Test Time Out-of-Distribution
       Reference. CVPR 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from osls.baselines import OpenSetEM
    >>> from osls.datasets import simulate_osls
    >>> problem = simulate_osls(*load_digits(return_X_y=True), novel=[8, 9], random_state=0)
    >>> model = OpenSetEM(source_classifier="trees", random_state=0).fit(**problem.training_data())
    >>> bool(0 <= model.novel_prevalence_ <= 1)
    True
    """

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {"n_folds": AtLeast(2)}

    def __init__(
        self,
        *,
        known_score: Callable[[Floats], Floats] = confidence,
        reference_discount: float = 2.0,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.known_score = known_score
        self.reference_discount = reference_discount

    def _adapt(self, task: Task) -> Adaptation:
        classifier, out_of_fold = self._classify(task)
        reference = classifier.predict_proba(_mix_pairs(task.X, task.y, task.rng))
        # Stage 1: scale the score to [0, 1], centred half way between the two medians, and compute rho_s.
        medians = [float(np.median(self.known_score(proba))) for proba in (out_of_fold, reference)]
        knows = KnownScore(self.known_score, sum(medians) / 2, max((medians[0] - medians[1]) / 2, 1e-3))
        mu_1 = float(knows(out_of_fold).mean())
        mu_0 = float(knows(reference).mean()) / self.reference_discount
        rho_s = mu_0 / (1 - mu_1 + mu_0)
        # Stage 2: EM over k+1 classes.
        proba = classifier.predict_proba(task.X_target)
        known = knows(proba)
        source_mix = np.append(rho_s * task.source_marginal, 1 - rho_s)
        mix = open_set_em(proba, known, source_mix)
        # Stage 3: the novel share, corrected for the score's own errors.
        share_known = (known.mean() - mu_0) / (mu_1 - mu_0) if mu_1 > mu_0 else 1.0
        novel_share = 1 - float(np.clip(share_known, 0, 1))
        task.history.append({"step": "em", "rho_s": rho_s, "novel_by_em": float(mix[-1])})
        marginal = mix[:-1] / mix[:-1].sum()
        corrected = Reweighted(classifier, knows, with_novel(marginal, novel_share) / source_mix)
        return Adaptation(marginal, novel_share, corrected.correct(proba), learned={"_predictor": corrected})

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        classifier, _ = self._classify(task)
        everything_known = KnownScore(self.known_score, -np.inf, 1.0)
        learned = {"_predictor": Reweighted(classifier, everything_known, np.append(np.ones(task.k), 0.0))}
        return Adaptation(task.source_marginal, 0.0, np.zeros((0, task.k + 1)), learned=learned)

    def _classify(self, task: Task) -> tuple[Calibrated, Floats]:
        """Train the source classifier, calibrate it, and return its out-of-fold probabilities as well."""
        models = self._train(task, least_folds=2)
        calibrator = fit_calibrator(models.scores, task.y, "temperature")
        return Calibrated(models.predictor, calibrator), calibrator(models.scores)


@saveable
@dataclass(frozen=True)
class KnownScore:
    """Maps class probabilities to a score in [0, 1] that is higher for rows of known classes."""

    score: Callable[[Floats], Floats]
    centre: float
    width: float

    def __call__(self, proba: Floats) -> Floats:
        return np.asarray(expit((self.score(proba) - self.centre) / self.width))


@saveable
@dataclass(frozen=True)
class Reweighted:
    """A source classifier corrected by Bayes' rule, with the target's mix in place of the source's."""

    classifier: Predictor
    knows: KnownScore
    ratio: Floats

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.correct(self.classifier.predict_proba(X))

    def correct(self, proba: Floats) -> Floats:
        """Return probabilities of all k + 1 classes."""
        known = self.knows(proba)
        weighted_known = known * (proba @ self.ratio[:-1])
        total = weighted_known + (1 - known) * self.ratio[-1]
        return combine(weighted_known / np.maximum(total, 1e-300), proba, self.ratio[:-1])


def _mix_pairs(X: AnyArray, y: Ints, rng: np.random.Generator) -> AnyArray:
    """Return synthetic novel rows: midpoints of two rows, of different classes where possible."""
    first = rng.permutation(len(y))
    second = first[::-1].copy()
    alike = np.flatnonzero(y[first] == y[second])
    for _ in range(10):
        second[alike] = rng.integers(len(y), size=len(alike))
        alike = alike[y[first[alike]] == y[second[alike]]]
    pairs: AnyArray = (X[first] + X[second]) * 0.5
    return pairs
