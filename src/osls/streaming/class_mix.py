r"""The mix of all k + 1 classes in a target, from summaries of a fitted model's predictions.

Three methods need only one pass over the predictions:

- ``"mean"``: the mean probabilities. Exact, but it assumes the mix that the model was fitted to.
- ``"em"``: maximum likelihood of the shares. It assumes that the probabilities are true posteriors under the
  mix ``prior`` of the fit, and that the novel class is unchanged. Exact EM needs one pass per iteration; with
  one pass in total it uses a calibrated sample of rows (:mod:`osls.streaming.probabilities`), which is exact
  for up to 65,536 rows (fewer if k > 15) and accurate to about 0.001 beyond.
- ``"bins"``: the classes' best bins, solved jointly, then BBE for known against novel, as in the cross-fitted
  :class:`osls.PULSE`. It needs predictions of labelled rows that the model was not fitted to, but neither
  calibration nor an unchanged novel class: any top bin that holds one class is enough. It uses only counts
  by column, which summaries hold exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from osls._core.arrays import Floats, with_novel
from osls.inference.mix import normal_interval
from osls.mixture import BBE
from osls.mixture.sample import Sample
from osls.shift.joint import solve_bins
from osls.streaming.counts import CountedSample, GridCounts, fit_capacity
from osls.streaming.probabilities import ProbabilitySummary, calibrate

Method = Literal["auto", "mean", "em", "bins"]

# Bootstrap replicates use a coarser grid, which is enough for the spread of an estimate.
_REPLICATE_CELLS = 1 << 12


@dataclass(frozen=True)
class MixEstimate:
    """Estimated shares of the k known classes and, last, of the novel one.

    Attributes
    ----------
    marginal : array of shape (k + 1,)
        The shares; they sum to one.
    interval : array of shape (k + 1, 2)
        An interval for each. It covers sampling noise only, which is very small in a large target; the errors
        of the model and of the method's assumptions are not included.
    level : float
        The intervals' level.
    method : str
        How the mix was estimated.
    n : int
        Rows of the target.
    """

    marginal: Floats
    interval: Floats
    level: float
    method: str
    n: int

    @property
    def novel_share(self) -> float:
        """Share of the novel class."""
        return float(self.marginal[-1])

    @property
    def novel_interval(self) -> tuple[float, float]:
        """Interval of the novel share."""
        return float(self.interval[-1, 0]), float(self.interval[-1, 1])


def estimate_mix(
    target: ProbabilitySummary,
    *,
    prior: ArrayLike | None = None,
    reference: Sequence[ProbabilitySummary] | None = None,
    method: Method = "auto",
    level: float = 0.95,
    n_boot: int = 100,
    random_state: int = 0,
) -> MixEstimate:
    """Estimate the class mix of a target from a summary of its predictions.

    Parameters
    ----------
    target : ProbabilitySummary
        Predictions for the target, by a fitted model.
    prior : array-like of shape (k + 1,), optional
        The mix that the model was fitted to, ``target_marginal_``; "em" needs it.
    reference : sequence of k ProbabilitySummary, optional
        Predictions for held-out labelled rows, one summary per known class; "bins" needs it.
    method : {"auto", "mean", "em", "bins"}, default="auto"
        See the module's docstring. "auto" is "bins" if there is a reference, else "em" if there is a prior,
        else "mean".
    level : float, default=0.95
        Level of the intervals.
    n_boot : int, default=100
        Bootstrap replicates of "bins". The other methods have closed-form intervals.
    random_state : int, default=0
        Seed of the bootstrap.

    Returns
    -------
    MixEstimate

    Examples
    --------
    >>> import numpy as np
    >>> from osls.streaming import ProbabilitySummary, estimate_mix
    >>> rng = np.random.default_rng(0)
    >>> rows = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])  # p(j | x), an even mix
    >>> drawn = rng.choice(3, size=10_000, p=[0.66, 0.17, 0.17])  # as shares of .8, .1 and .1 would give
    >>> target = ProbabilitySummary(3).update(rows[drawn])
    >>> estimate_mix(target, prior=[1 / 3, 1 / 3, 1 / 3]).marginal.round(1)
    array([0.8, 0.1, 0.1])
    """
    if target.n == 0:
        raise ValueError("target has seen no rows; update it first.")
    if not 0 < level < 1 or n_boot < 2:
        raise ValueError(f"level must lie in (0, 1) and n_boot be at least 2; got {level} and {n_boot}.")
    if method == "auto":
        method = "bins" if reference is not None else "em" if prior is not None else "mean"
    if method == "mean":
        variance = np.diag(target.mean_product) - target.mean**2
        error = np.sqrt(np.maximum(variance, 0) / target.n)
        return _with_errors(target.mean, error, level, method, target.n)
    if method == "em":
        share, error = _maximum_likelihood(target, _check_prior(prior, target))
        return _with_errors(share, error, level, method, target.n)
    if method == "bins":
        rng = np.random.default_rng(random_state)
        by_class = _check_reference(reference, target)
        share = _Tables.of(target, by_class).mix()
        small = _Tables.of(target, by_class, _REPLICATE_CELLS)
        replicates = np.array([small.resampled(rng).mix() for _ in range(n_boot)])
        return MixEstimate(share, normal_interval(share, replicates, 1.0, level), level, method, target.n)
    raise ValueError(f"method must be 'auto', 'mean', 'em' or 'bins'; got {method!r}.")


def _with_errors(share: Floats, error: Floats, level: float, method: str, n: int) -> MixEstimate:
    reach = norm.ppf(0.5 + level / 2) * error
    interval = np.clip(np.column_stack([share - reach, share + reach]), 0.0, 1.0)
    return MixEstimate(share, interval, level, method, n)


def _maximum_likelihood(target: ProbabilitySummary, prior: Floats) -> tuple[Floats, Floats]:
    """Maximum likelihood shares on the sample, and standard errors from the curvature of the likelihood."""
    calibration = calibrate(target.sample, target.n, target.mean, target.mean_product)
    weight = calibration.weights
    ratio = target.sample.rows / np.maximum(prior, np.finfo(float).tiny)
    share = prior
    for _ in range(2000):
        # Weights may be negative, but shares may not.
        update = np.maximum(share * (ratio.T @ (weight / (ratio @ share))), 0.0)
        update /= update.sum()
        moved = np.abs(update - share).max()
        share = update
        if moved < 1e-7:
            break
    # The shares sum to one, so the last is determined by the others: differentiate along those only.
    slope = (ratio[:, :-1] - ratio[:, -1:]) / (ratio @ share)[:, None]
    inverse = np.linalg.pinv(slope.T @ slope / len(slope), hermitian=True)
    left = calibration.unexplained(slope) @ inverse
    covariance = inverse / target.n + left.T @ left / len(left) ** 2
    variance = np.append(np.diag(covariance), covariance.sum())
    return share, np.sqrt(np.maximum(variance, 0.0))


@dataclass(frozen=True)
class _Tables:
    """Counts by column: ``target[j]`` of all target rows, ``classes[i][j]`` of the rows of class i.

    All counts of a column are on one grid, so that a bin has the same edges for each class and the target.
    """

    target: list[Sample]
    classes: list[list[Sample]]

    @staticmethod
    def of(
        target: ProbabilitySummary, reference: Sequence[ProbabilitySummary], capacity: int | None = None
    ) -> _Tables:
        """Take the counts from summaries; with a ``capacity``, on a coarser grid."""
        columns = []
        for j in range(target.n_classes):
            counts = [summary.columns[j].counts for summary in (target, *reference)]
            if capacity is not None:
                counts = [fit_capacity(each, capacity) for each in counts]
            columns.append(_on_one_grid(counts))
        by_summary = [list(samples) for samples in zip(*columns, strict=True)]
        return _Tables(by_summary[0], by_summary[1:])

    def resampled(self, rng: np.random.Generator) -> _Tables:
        """Resample the counts of each column independently; the dependence between columns is ignored."""
        return _Tables(
            [sample.resampled(rng) for sample in self.target],
            [[sample.resampled(rng) for sample in row] for row in self.classes],
        )

    def mix(self) -> Floats:
        """Steps 3 and 5 of Algorithm 1 from counts: the mix among the known classes, and the novel share."""
        k = len(self.classes)
        start, inside, class_inside = np.empty(k), np.empty(k), np.empty((k, k))
        for j in range(k):
            bins = BBE().fit_samples(self.classes[j][j], self.target[j])
            start[j] = bins.alpha_
            inside[j] = self.target[j].share_at_least(bins.threshold_)
            class_inside[j] = [row[j].share_at_least(bins.threshold_) for row in self.classes]
        sizes = np.array([row[0].weights.sum() for row in self.classes])
        m = self.target[0].weights.sum()
        mix = solve_bins(class_inside * sizes, sizes, inside * m, m, start=start)
        if not mix.sum() > 0:
            mix = start if start.sum() > 0 else np.ones(k)
        mix = mix / mix.sum()
        known = _weighted([row[k] for row in self.classes], mix)
        return with_novel(mix, 1 - BBE().fit_samples(known, self.target[k]).alpha_)


def _on_one_grid(counts: Sequence[GridCounts]) -> list[Sample]:
    level = max(each.level for each in counts)
    samples = [each.sample(level) for each in counts]
    return [CountedSample(s.scores, s.weight, s.square, exact_range=(0.0, 1.0)) for s in samples]


def _weighted(classes: Sequence[Sample], mix: Floats) -> Sample:
    """Join the classes' counts so that class j has the weight mix[j]."""
    parts = [
        sample.scaled(share / sample.weights.sum())
        for sample, share in zip(classes, mix, strict=True)
        if share > 0
    ]
    return reduce(Sample.joined, parts)


def _check_prior(prior: ArrayLike | None, target: ProbabilitySummary) -> Floats:
    n_classes = target.n_classes
    if prior is None:
        raise ValueError("method='em' needs prior=, the mix that the model was fitted to (target_marginal_).")
    array = np.asarray(prior, dtype=np.float64)
    if array.shape != (n_classes,) or (array < 0).any() or not np.isclose(array.sum(), 1, atol=1e-3):
        raise ValueError(f"prior must hold {n_classes} non-negative shares that sum to one; got {array}.")
    impossible = np.flatnonzero((array == 0) & (target.mean > 0))
    if len(impossible):
        raise ValueError(
            f"prior gives class {impossible[0]} no share, but rows have a probability of it: that cannot be "
            "the mix that the model was fitted to. Pass target_marginal_ of the model that predicted them."
        )
    return np.asarray(array / array.sum())


def _check_reference(
    reference: Sequence[ProbabilitySummary] | None, target: ProbabilitySummary
) -> Sequence[ProbabilitySummary]:
    k = target.n_classes - 1
    if reference is None:
        raise ValueError("method='bins' needs reference=, summaries of held-out labelled rows by class.")
    if len(reference) != k or any(summary.n_classes != k + 1 for summary in reference):
        raise ValueError(f"reference must be {k} summaries of {k + 1} classes, one per known class.")
    for j, summary in enumerate(reference):
        if summary.n == 0:
            raise ValueError(f"reference has no row of class {j}; each known class needs some.")
    return reference
