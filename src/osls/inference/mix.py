"""From held-out scores to the mix: steps 3 and 5 of PULSE as pure functions of the scores.

The shares, their intervals and the novelty test depend on a fit only through held-out scores of its models.
So the same code serves a fit, its bootstrap replicates, and a study that has stored the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
from scipy.stats import norm
from sklearn.base import clone

from osls._core.arrays import Floats, Ints, with_novel
from osls._core.parts import Part, run_parts, worker_count
from osls._core.progress import Advance
from osls.inference.calibrated import calibrated_interval, known_factor
from osls.inference.novelty import NoveltyTest, novelty_test
from osls.inference.separation import inseparable_groups, share_out, widen
from osls.mixture import BBE, MixtureEstimator, shares_by_class
from osls.shift.joint import JointEstimate, joint_estimate
from osls.shift.scores import HeldOutScores
from osls.shift.separability import refined_marginal, separability_marginal

# Largest bootstrap replicate; larger data uses subsamples of this size, and their spread is scaled down.
BOOTSTRAP_ROWS = 20_000


def bootstrap_mix(
    estimate: Callable[[Ints, Ints], Floats],
    y_source: Ints,
    n_target: int,
    *,
    repeats: int,
    rng: np.random.Generator,
    copies: tuple[Ints, Ints] | None = None,
) -> tuple[Floats, float]:
    """Re-estimate the mix on resampled rows; source rows are resampled within each class.

    Rows that are copies of each other (``copies``: the same number for source, for target rows) are drawn
    together, because twice as many copies are not twice as much information.

    ``estimate`` takes row numbers of the source and of the target and repeats every step from scores to mix,
    the label shift weights included, so that their uncertainty is included. It must be possible to send it to
    another process: the replicates are parts, which ``joblib.parallel_config`` spreads over a cluster.

    Returns
    -------
    replicates : array of shape (repeats, k + 1)
    scale : float
        Factor by which the replicates' spread has to be multiplied (1 unless the data was thinned).
    """
    thin = min(1.0, BOOTSTRAP_ROWS / (len(y_source) + n_target))
    members = [np.flatnonzero(y_source == j) for j in range(int(y_source.max()) + 1)]
    source_copies, target_copies = (None, None) if copies is None else copies
    classes = [_resampler(rows, thin, rng, source_copies) for rows in members]
    target = _resampler(np.arange(n_target), thin, rng, target_copies)

    def draw() -> tuple[Ints, Ints]:
        return np.concatenate([resample() for resample in classes]), target()

    # The rows are drawn here, in one order, so that the replicates do not depend on who computes them.
    if worker_count() == 1:
        return np.array([estimate(*draw()) for _ in range(repeats)]), float(np.sqrt(thin))
    shares = np.array_split(np.arange(repeats), min(repeats, 2 * worker_count()))
    parts = [Part(_estimate_all, (estimate, [draw() for _ in share])) for share in shares]
    return np.concatenate(run_parts(parts)), float(np.sqrt(thin))


def _resampler(
    rows: Ints, thin: float, rng: np.random.Generator, copies: Ints | None = None
) -> Callable[[], Ints]:
    """Return a function that draws a part ``thin`` of the rows with replacement, copies together."""
    if copies is None:
        return lambda: rng.choice(rows, max(2, round(thin * len(rows))))
    _, first, size = np.unique(np.sort(copies[rows]), return_index=True, return_counts=True)
    together = rows[np.argsort(copies[rows], kind="stable")]

    def resample() -> Ints:
        drawn = rng.integers(len(first), size=max(2, round(thin * len(first))))
        # The places of each drawn unit: from its first one on, as many as it has rows.
        within = np.arange(size[drawn].sum()) - np.repeat(np.cumsum(size[drawn]) - size[drawn], size[drawn])
        return np.asarray(together[np.repeat(first[drawn], size[drawn]) + within])

    return resample


def _estimate_all(
    estimate: Callable[[Ints, Ints], Floats], drawn: Sequence[tuple[Ints, Ints]], advance: Advance
) -> Floats:
    return np.array([estimate(source, target) for source, target in drawn])


def normal_interval(point: Floats, replicates: Floats, scale: float, level: float) -> Floats:
    """Point ± z times the replicates' standard deviation, within [0, 1]; shape (k + 1, 2).

    Not half the distance between two percentiles: replicates that jump to a very different best bin are part
    of the uncertainty.
    """
    half_width = norm.ppf(0.5 + level / 2) * scale * replicates.std(axis=0)
    return np.asarray(np.clip(np.column_stack([point - half_width, point + half_width]), 0.0, 1.0))


SHIFTS = ("refined", "joint", "bbe", "separability")
# Those that each recipe of PULSE can use, its default first.
SHIFTS_OF = {"cross-fit": SHIFTS, "paper": ("bbe", "separability"), "fine-tune": ("separability", "bbe")}


@dataclass(frozen=True)
class MixFromScores:
    """How the mix is estimated.

    Attributes
    ----------
    shift : {"refined", "joint", "bbe", "separability"}
        Estimator of the known classes' shares, see :class:`osls.PULSE`.
    mixture : MixtureEstimator
        Estimator of the share of known rows.
    corrected : bool
        Whether that share is corrected for rows that hide among known classes, see
        :func:`osls.inference.calibrated.known_factor`.
    """

    shift: str = "refined"
    mixture: MixtureEstimator = field(default_factory=BBE)
    corrected: bool = True

    @classmethod
    def of(cls, recipe: str, shift: str, mixture: MixtureEstimator | None) -> Self:
        """Return what these parameters of :class:`osls.PULSE` ask for.

        Raises
        ------
        ValueError
            If the recipe cannot estimate the label shift in this way.
        """
        possible = SHIFTS_OF[recipe]
        if shift not in ("auto", *possible):
            which = " or ".join(f"shift={name!r}" for name in possible)
            raise ValueError(f"recipe={recipe!r} estimates the label shift with {which}.")
        # What hides was measured for cross-fitted scores; from a discriminator that is trained with the known
        # rows taken out of the target, less does. An estimator that was asked for is used as it is.
        corrected = mixture is None and recipe == "cross-fit"
        chosen = BBE() if mixture is None else clone(mixture)
        return cls(possible[0] if shift == "auto" else shift, chosen, corrected)

    def known_marginal(self, scores: HeldOutScores) -> Floats:
        """p'_t, the mix among the known classes."""
        return self._known_marginal(scores, inseparable_groups(scores))

    def _known_marginal(self, scores: HeldOutScores, groups: list[Ints]) -> Floats:
        if self.shift != "refined":
            marginal = self._first_marginal(scores)
        else:
            marginal = refined_marginal(scores, *_joint(scores), clone(self.mixture))
        return share_out(marginal, scores.source_marginal, groups)

    def novel_share(self, scores: HeldOutScores, marginal: Floats) -> float:
        """Share of the target that the known classes, in the mix ``marginal``, do not explain.

        Bins are never quite pure, the less so the harder the known classes are to tell apart; the share of
        known rows is corrected for what this adds to it on average.
        """
        fitted = clone(self.mixture).fit(*scores.domain(marginal), scores.weights(marginal))
        known = float(fitted.alpha_)
        if self.corrected:
            known *= known_factor(scores.accuracy, scores.rows(marginal))
        return 1 - known

    def mix(self, scores: HeldOutScores) -> Floats:
        """Shares of all k + 1 classes."""
        return self._mix(scores, inseparable_groups(scores))

    def _mix(self, scores: HeldOutScores, groups: list[Ints]) -> Floats:
        marginal = self._known_marginal(scores, groups)
        return with_novel(marginal, self.novel_share(scores, marginal))

    def _mix_of_rows(self, scores: HeldOutScores, groups: list[Ints], source: Ints, target: Ints) -> Floats:
        return self._mix(scores.take(source, target), groups)

    def test(self, scores: HeldOutScores, level: float) -> NoveltyTest:
        """Test the null hypothesis "nothing is novel".

        The test compares domain scores, so it uses the mix that was estimated from them. The maximum
        likelihood mix is more accurate, but does not fit these scores exactly, and the difference would look
        like novelty.
        """
        first = self._first_marginal(scores)
        domain, weight, sizes = scores.domain(first), scores.weights(first), scores.sizes(first)
        return novelty_test(*domain, weight, sizes=sizes, cross_fitted=True, level=level)

    def replicates(
        self, scores: HeldOutScores, groups: list[Ints], *, repeats: int, rng: np.random.Generator
    ) -> tuple[Floats, float]:
        """Mixes of resampled rows, and the factor of their spread, as in :func:`bootstrap_mix`.

        ``groups`` are the classes that cannot be told apart; every replicate has the same.
        """
        return bootstrap_mix(
            partial(self._mix_of_rows, scores, groups),
            scores.y,
            len(scores.class_target),
            repeats=repeats,
            rng=rng,
            copies=scores.copies,
        )

    def interval(
        self, scores: HeldOutScores, mix: Floats, *, level: float, repeats: int, rng: np.random.Generator
    ) -> Floats:
        """Bootstrap the estimate, the label shift included, and add what a bootstrap cannot see.

        The latter was measured for cross-fitted (k+1)-way models. With the scores of a discriminator of one
        split the interval is that of the bootstrap alone.
        """
        groups = inseparable_groups(scores)
        replicates, factor = self.replicates(scores, groups, repeats=repeats, rng=rng)
        marginal = self._known_marginal(scores, groups)
        estimate = with_novel(marginal, self.novel_share(scores, marginal))
        if scores.domain_source.ndim == 1:
            interval = normal_interval(estimate, replicates, factor, level)
        else:
            spread = factor * replicates.std(axis=0)
            rows = scores.rows(marginal)
            interval = calibrated_interval(estimate, spread, scores.accuracy, rows, level)
        # If nothing novel was found, zero is reported: that is possible, and so is the estimate.
        interval = np.column_stack([np.minimum(interval[:, 0], mix), np.maximum(interval[:, 1], mix)])
        for members in groups:
            sums = normal_interval(
                mix[members].sum(keepdims=True),
                replicates[:, members].sum(axis=1, keepdims=True),
                factor,
                level,
            )
            widen(interval, sums[0], members)
        return interval

    def _first_marginal(self, scores: HeldOutScores) -> Floats:
        """p'_t from bins only (class by class: from ``mixture``), or by the separability variant."""
        if self.shift == "bbe":
            parts = (scores.class_source, scores.y, scores.class_target)
            return shares_by_class(*parts, self.mixture, scores.weight).marginal
        if self.shift == "separability":
            return separability_marginal(scores, clone(self.mixture))
        return _joint(scores).mix


def _joint(scores: HeldOutScores) -> JointEstimate:
    """Return the joint estimate, normalised to sum one, and its errors."""
    mix, error = joint_estimate(scores.domain_source, scores.y, scores.domain_target, scores.weight)
    total = float(mix.sum())
    if total == 0:
        # No known class was found in the target: fall back to the source's mix.
        return JointEstimate(scores.source_marginal, np.zeros(len(mix)))
    return JointEstimate(mix / total, error / total)
