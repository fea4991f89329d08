"""Label shift among the rows that the discriminator accepts as known (the paper's separability variant).

If the novel class does not overlap the known ones, the rows accepted as known are a closed-set label shift
problem. Maximum likelihood solves it with all rows instead of one bin per class. Which rows are accepted
depends on the mix, so the two steps alternate.
"""

from __future__ import annotations

import numpy as np

from osls._core.arrays import Floats, keep_as_novel
from osls.mixture.base import MixtureEstimator
from osls.mixture.by_class import shares_by_class
from osls.shift.mlls import MLLS, em_marginal
from osls.shift.scores import HeldOutScores

# Start value for classes that the bins missed: EM never moves a share away from zero.
LEAST_SHARE = 1e-3


def separability_marginal(
    scores: HeldOutScores, mixture: MixtureEstimator, *, tol: float = 1e-3, max_rounds: int = 20
) -> Floats:
    """Alternate: accept rows given the mix, estimate the mix among the accepted, starting from Algorithm 2.

    Parameters
    ----------
    scores : HeldOutScores
        With calibrated class probabilities.
    mixture : MixtureEstimator
        Estimates the shares to start from, class by class, and how many rows to accept.
    tol, max_rounds : float, int
        Stop when no share moves more than ``tol``, or after ``max_rounds`` rounds.
    """
    parts = (scores.class_source, scores.y, scores.class_target)
    mix = shares_by_class(*parts, mixture, scores.weight).marginal
    for _ in range(max_rounds):
        previous = mix
        mix = _among_accepted(scores, mix, mixture, scores.source_marginal, tol=1e-7, max_iter=1000)
        if np.abs(mix - previous).max() < tol:
            break
    return mix


def accepted_marginal(scores: HeldOutScores) -> Floats:
    """Mix of the target rows that a discriminator accepts as known, by label shift estimation (MLLS).

    The variant of ``PULSE(recipe="paper", shift="separability")``, which trains the discriminator again for
    each new mix.

    Parameters
    ----------
    scores : HeldOutScores
        With P(known) of a discriminator as domain scores.
    """
    accepted = scores.domain_target >= 0.5
    if scores.class_source.shape[1] == 1 or not accepted.any():
        return scores.source_marginal
    return MLLS().fit(scores.class_source, scores.y, scores.class_target[accepted]).target_marginal_


def refined_marginal(scores: HeldOutScores, mix: Floats, error: Floats, mixture: MixtureEstimator) -> Floats:
    """Let one round of the alternation refine a mix, within its standard errors.

    Bins use few rows, which costs precision where classes are small. Maximum likelihood uses all rows, but
    relies on the classifier's probabilities and counts novel rows that were accepted by mistake. So it may
    move each share by at most one standard error.

    Parameters
    ----------
    scores, mixture
        As in :func:`separability_marginal`.
    mix, error : arrays of shape (k,)
        The joint estimate, of sum one, and its standard errors.
    """
    likely = _among_accepted(scores, mix, mixture, np.maximum(mix, LEAST_SHARE), tol=1e-4, max_iter=10)
    moved = np.maximum(mix + np.clip(likely - mix, -error, error), 0.0)
    return np.asarray(moved / moved.sum())


def _among_accepted(
    scores: HeldOutScores,
    mix: Floats,
    mixture: MixtureEstimator,
    start: Floats,
    *,
    tol: float,
    max_iter: int,
) -> Floats:
    """Maximum likelihood mix of the target rows that are accepted as known under ``mix``."""
    source, target = scores.domain(mix)
    alpha = mixture.fit(source, target, scores.weights(mix)).alpha_
    accepted = ~keep_as_novel(target, 1 - alpha)
    if not accepted.any():
        return mix
    ratio = scores.class_target[accepted] / scores.source_marginal
    return em_marginal(ratio, start, tol=tol, max_iter=max_iter)[0]
