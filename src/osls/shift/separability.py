"""Label shift among the rows that the discriminator accepts as known (the paper's separability variant).

If the novel class does not overlap the known ones, the rows accepted as known are a closed-set label shift
problem, which maximum likelihood solves with every row instead of one bin a class. What is accepted depends
on the mix, so the two are alternated.
"""

from __future__ import annotations

import numpy as np

from osls._typing import Floats
from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import bbe_by_class
from osls.pu.keep import keep_as_novel
from osls.shift.held_out import HeldOutScores
from osls.shift.mlls import em_marginal

__all__ = ["separability_marginal"]


def separability_marginal(
    scores: HeldOutScores, mixture: MixtureEstimator, *, tol: float = 1e-3, max_rounds: int = 20
) -> Floats:
    """Alternate: accept rows given the mix, estimate the mix among the accepted, starting from Algorithm 2.

    Parameters
    ----------
    scores : HeldOutScores
        With calibrated class probabilities.
    mixture : MixtureEstimator
        Says how many rows to accept.
    tol, max_rounds : float, int
        Stop when no share moves more than ``tol``, or after so many rounds.
    """
    prior = scores.source_marginal
    mix = bbe_by_class(scores.class_source, scores.y, scores.class_target).marginal
    for _ in range(max_rounds):
        source, target = scores.domain(mix)
        alpha = mixture.fit(source, target, scores.weights(mix)).alpha_
        accepted = ~keep_as_novel(target, 1 - alpha)
        if not accepted.any():
            break
        previous = mix
        mix, _ = em_marginal(scores.class_target[accepted] / prior, prior, tol=1e-7, max_iter=1000)
        if np.abs(mix - previous).max() < tol:
            break
    return mix
