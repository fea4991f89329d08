r"""Checks of whether a fit can be trusted, all from out-of-fold scores.

Most of them use :math:`\kappa(x) = \sum_j \pi_j p_j(x) / p_t(x)`, the probability that a target row at x is
known. Under open set label shift with a separable novel class, it is one in the region of the known classes
and zero in that of the novel class. If it calls source rows novel, or if accepted source and target rows can
still be distinguished, then the assumption or the separation fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from sklearn.isotonic import IsotonicRegression

from osls._core.arrays import Bools, Floats, effective_size
from osls._core.copies import SharedRows
from osls._core.saving import saveable
from osls.inference.cause import (
    COPIED,
    REJECTED,
    WRONG,
    Cause,
    in_most,
    leaks,
    likely_cause,
    wrong_labels,
)
from osls.inference.separation import groups_of, pairwise_area
from osls.mixture import BBE, DEDPUL
from osls.shift.scores import HeldOutScores

# From best to worst. "upper bound only": a share of a known class may be smaller than estimated, even zero.
# "not identified": the data also fits other mixes, and the error can go either way.
Status = Literal["no violation seen", "upper bound only", "not identified", "do not trust"]
_ORDER: tuple[Status, ...] = ("no violation seen", "upper bound only", "not identified", "do not trust")

# Those that something must have caused: that a class may be absent is no violation.
_ASSUMPTION_FAILED: tuple[Status, ...] = ("not identified", "do not trust")


class TrustWarning(UserWarning):
    """The answer of a fit is not to be trusted; the message says why."""


@saveable
@dataclass(frozen=True)
class Check:
    """One diagnostic: a value, the limit it is compared with, and what it means in plain words."""

    name: str
    value: float
    limit: float
    passed: bool
    message: str
    consequence: Status = "do not trust"


@saveable
@dataclass(frozen=True)
class Verdict:
    """The conclusion, and why."""

    status: Status
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return self.status + "".join(f"\n- {reason}" for reason in self.reasons)


@saveable
@dataclass(frozen=True, repr=False)
class Diagnostics:
    """All checks of a fit, curves to plot (name -> (x, y)), and what most likely changed.

    ``cause`` is None for models of an earlier version.
    """

    checks: tuple[Check, ...]
    curves: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    cause: Cause | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst consequence among the failed checks decides; their messages say why."""
        failed = [check for check in self.checks if not check.passed]
        status = max((check.consequence for check in failed), key=_ORDER.index, default=_ORDER[0])
        reasons = [check.message for check in failed]
        if self.cause is not None and status in _ASSUMPTION_FAILED:
            reasons.append(str(self.cause))
        return Verdict(status, tuple(reasons))

    def __repr__(self) -> str:
        # Without the messages: they say what a failed check means, and most checks pass.
        lines = [
            f"  {check.name}: {'passed' if check.passed else 'failed'} "
            f"({check.value:.3g}, limit {check.limit:.3g})"
            for check in self.checks
        ]
        return "\n".join([f"Diagnostics: {self.verdict.status}", *lines])

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)


_TINY = 1e-6
# Limits, tuned on sixteen data sets (benchmarks/violations.py). Those of rejected rows are raised by what the
# known classes lose to each other on held-out source rows: where these are hard to tell apart, a new class is
# no easier, and nothing is wrong.
_CLASS_REJECTED = 0.65
_PER_ERROR = 0.5
_ACCEPTED_Z = 4.0
_ACCEPTED_AREA = 0.02
_ABSENT = 0.002
_FEW = 4
_MIN_CLASS = 20
_MIN_BIN = 10
_MIN_EFFECTIVE = 30
_CALIBRATION = 0.15
_DISAGREEMENT = 0.15
_UNSETTLED = 0.1


def known_probability(source: Floats, target: Floats, weight: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return kappa = alpha p_s / p_t of source and target rows, monotone in their domain scores.

    The scores of a model need not be calibrated (trees are underconfident, networks overconfident): isotonic
    regression of "from the source" on them gives the ratio of the densities for any scale of the scores.

    Parameters
    ----------
    source, target : arrays of shape (n,) and (m,)
        Domain scores, high for the source.
    weight : array of shape (n,)
        Weights of the source rows.
    alpha : float
        Share of known rows in the target.
    """
    scores = np.concatenate([source, target])
    weights = np.concatenate([weight / weight.sum(), np.full(len(target), 1 / len(target))])
    from_source = np.repeat([1.0, 0.0], [len(source), len(target)])
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, from_source, weights)
    share = fitted.predict(scores)
    kappa = alpha * share / np.maximum(1 - share, _TINY)
    return kappa[: len(source)], kappa[len(source) :]


def diagnose(
    scores: HeldOutScores,
    mix: Floats,
    interval: Floats | None = None,
    *,
    class_names: Sequence[object] | None = None,
    changed: float | None = None,
    shared: SharedRows | None = None,
    contradiction: float | None = None,
) -> Diagnostics:
    """Check the assumptions behind an estimated mix.

    Parameters
    ----------
    scores : HeldOutScores
        Scores of the source classifier and of the (k+1)-way model or discriminator.
    mix : array of shape (k + 1,)
        The estimate, the novel share last.
    interval : array of shape (k + 1, 2), optional
        Its interval.
    class_names : sequence, optional
        Names of the k known classes, for the messages.
    changed : float, optional
        Share of the target rows that changed between known and novel in the last round of CVIR.
    shared : SharedRows, optional
        Target rows that are copies of source rows.
    contradiction : float, optional
        By how much the ends of the finite-sample bound contradict each other
        (:func:`osls.theory.bbe_contradiction`).
    """
    k = len(mix) - 1
    names = [str(name) for name in (range(k) if class_names is None else class_names)]
    known = float(mix[:-1].sum())
    known_mix = mix[:-1] / known if known > 0 else scores.source_marginal
    present = _present(mix, interval, names, len(scores.class_target))
    checks = [_effective_size(scores, known_mix), _calibration(scores), present, _told_apart(scores, names)]
    checks += [_enough_labels(scores, names), _right_labels(scores)]
    if shared is not None:
        checks.append(_on_one_side(shared))
    if contradiction is not None:
        checks.append(_ends_agree(contradiction))
    curves = {}
    rejected, alike = _assumption(scores, mix, known_mix, names)
    checks += alike
    bin_checks, curves["top bin"] = _top_bin(scores, known_mix)
    checks += bin_checks
    if changed is not None:
        message = f"{changed:.0%} of the target still changed sides in the last round of training."
        checks.append(Check("convergence", changed, _UNSETTLED, changed <= _UNSETTLED, message))
    return Diagnostics(tuple(checks), curves, likely_cause(scores, float(mix[-1]), rejected, shared))


def _assumption(
    scores: HeldOutScores, mix: Floats, known_mix: Floats, names: list[str]
) -> tuple[Bools, list[Check]]:
    """Which source rows would be called novel, and checks whether the known classes look as they did."""
    source, target = scores.domain(known_mix)
    weight = scores.weights(known_mix)
    kappa_s, kappa_t = known_probability(source, target, weight, 1 - float(mix[-1]))
    rejected = kappa_s < 0.5
    checks = [_alike(source, target, weight, kappa_s >= 0.5, kappa_t >= 0.5)]
    if mix[-1] > 0:
        checks = [*_accepted(scores, mix, known_mix, scores.by_class(rejected), names), *checks]
    return rejected, checks


def _accepted(
    scores: HeldOutScores, mix: Floats, known_mix: Floats, rejected: Floats, names: list[str]
) -> list[Check]:
    """Check whether the source rows of the known classes would be taken for known: of most classes, of each.

    ``rejected`` is the share of each class's source rows that would be called novel. A novel class overlaps
    some of the known ones. If most of them lose rows to it, they themselves have changed.
    """
    confused = _confused(scores, known_mix)
    error = float(np.average(confused, weights=scores.weights(known_mix)))
    typical, most = in_most(rejected), REJECTED + _PER_ERROR * error
    changed = (
        f"{typical:.0%} of the source rows of a typical class would be called novel: the known classes do "
        "not look in the target as they did in the source; what is called new may be changed known rows."
    )
    # The rejected share of a class with few rows is unreliable.
    counted = (mix[:-1] > _ABSENT) & (np.bincount(scores.y, minlength=len(names)) >= _MIN_CLASS)
    limits = _CLASS_REJECTED + scores.by_class(confused)
    j = int(np.argmax(np.where(counted, rejected - limits, -np.inf)))
    worst, limit = (float(rejected[j]) if counted[j] else 0.0), float(limits[j])
    overlapped = (
        f"{worst:.0%} of the source rows of {names[j]!r} would be called novel: the novel class overlaps it, "
        "or part of it has become rare or looks different now."
    )
    return [
        Check("source rows accepted", typical, most, typical <= most, changed),
        Check("every class accepted", worst, limit, worst <= limit, overlapped, "not identified"),
    ]


def _confused(scores: HeldOutScores, known_mix: Floats) -> Bools:
    """Source rows that are taken for another known class, at the mix of the target."""
    answers = (scores.class_source * (known_mix / scores.source_marginal)).argmax(axis=1)
    return np.asarray(answers != scores.y)


def _alike(source: Floats, target: Floats, weight: Floats, in_source: Bools, in_target: Bools) -> Check:
    """Check whether accepted source and target rows are alike, by the AUC of one against the other.

    It fails only if the AUC is both significantly above 1/2 and above it by more than a small margin: in
    large data any difference is significant.
    """
    z, area = _difference(source, target, weight, in_source, in_target)
    message = (
        "Among the rows that are taken for known, source and target can still be told apart: p(x|y) has "
        "changed, or the novel class overlaps the known ones."
    )
    passed = z <= _ACCEPTED_Z or area <= 0.5 + _ACCEPTED_AREA
    return Check("accepted rows alike", z, _ACCEPTED_Z, passed, message, "not identified")


def _difference(
    source: Floats, target: Floats, weight: Floats, in_source: Bools, in_target: Bools
) -> tuple[float, float]:
    """AUC of accepted source against target rows (0.5 if alike): its z-score, and the AUC itself."""
    a, b, w = source[in_source], target[in_target], weight[in_source]
    if len(a) < 10 or len(b) < 10 or w.sum() <= 0:
        return float("inf"), 1.0
    order = np.argsort(np.concatenate([a, b]), kind="stable")
    below = np.cumsum(np.concatenate([w / w.sum(), np.zeros(len(b))])[order])
    area = 1 - float(below[order >= len(a)].mean())
    effective = effective_size(w)
    return (area - 0.5) / float(np.sqrt((1 / effective + 1 / len(b)) / 12)), area


def _present(mix: Floats, interval: Floats | None, names: list[str], m: int) -> Check:
    """Find a class that may be absent: its interval reaches zero, and its estimate is a few rows at most.

    An interval that reaches zero says no more than that the share is uncertain, if the estimate is larger.
    """
    j = int(np.argmin(mix[:-1]))
    bound = "" if interval is None else f" (at most {interval[j, 1]:.1%})"
    message = f"{names[j]!r} may be absent from the target{bound}: only an upper bound of its share is known."
    value = float(mix[j])
    limit = _ABSENT if interval is None else _FEW / m
    present = value > limit or (interval is not None and interval[j, 0] > 2 / m)
    return Check("every class present", value, limit, present, message, "upper bound only")


def _told_apart(scores: HeldOutScores, names: list[str]) -> Check:
    """Check whether the features separate the known classes; otherwise only sums of shares are known."""
    area, error = pairwise_area(scores)
    groups = groups_of(area, error)
    worst = float(area.min())
    if not groups:
        return Check("classes told apart", worst, 0.5, True, "The features tell the labelled classes apart.")
    shown = " and ".join(repr(names[j]) for j in groups[0][:3]) + (
        " and others" if len(groups[0]) > 3 else ""
    )
    if len(groups[0]) == len(names):
        message = (
            "The labelled classes cannot be told apart by these features: how common each of them is now "
            "cannot be known, and the source's proportions are kept."
        )
        return Check("classes told apart", worst, 0.5, False, message)
    message = (
        f"{shown} cannot be told apart by these features: the sum of their shares is known, how it divides "
        "is not, and it is divided as in the source."
    )
    return Check("classes told apart", worst, 0.5, False, message, "upper bound only")


def _enough_labels(scores: HeldOutScores, names: list[str]) -> Check:
    counts = np.bincount(scores.y, minlength=len(names))
    j = int(np.argmin(counts))
    message = (
        f"{names[j]!r} has {counts[j]} labelled rows: too few to say how common it is. "
        f"Label at least {_MIN_CLASS}."
    )
    enough = bool(counts[j] >= _MIN_CLASS)
    return Check("labelled rows", float(counts[j]), _MIN_CLASS, enough, message, "not identified")


def _right_labels(scores: HeldOutScores) -> Check:
    share, at_least = wrong_labels(scores)
    message = (
        f"{share:.0%} of the answers that the source classifier is surest of contradict the labels: labels "
        "are wrong, or these features say little about them."
    )
    # No worse a consequence: on clean but hard data it may fail as well.
    return Check("labels agree", at_least, WRONG, at_least <= WRONG, message, "not identified")


def _on_one_side(shared: SharedRows) -> Check:
    """Find rows that stand in both tables, more than rows repeat by chance."""
    leak = leaks(shared)
    example = "" if shared.example is None else " (row {} and row {}, counted from 0)".format(*shared.example)
    message = (
        f"{shared.count} target rows ({shared.share:.1%}) are copies of source rows{example}: the target "
        "must be new data. Remove them from one of the two sides."
    )
    return Check("rows on one side only", shared.share, COPIED, not leak, message)


def _ends_agree(contradiction: float) -> Check:
    message = (
        "More target rows look like the most typical source rows than any share of the known classes "
        "explains: rows stand on both sides, or part of a known class became more common than the rest of it."
    )
    return Check("bounds agree", contradiction, 0.0, contradiction <= 0, message, "not identified")


def _effective_size(scores: HeldOutScores, known_mix: Floats) -> Check:
    weight = scores.weights(known_mix)
    size = effective_size(weight)
    message = f"The re-weighted source is worth only {size:.0f} rows: too few to estimate from."
    return Check("effective sample size", size, _MIN_EFFECTIVE, size >= _MIN_EFFECTIVE, message)


def _calibration(scores: HeldOutScores, bins: int = 10) -> Check:
    """Expected calibration error of the source classifier."""
    confidence = scores.class_source.max(axis=1)
    hit = scores.class_source.argmax(axis=1) == scores.y
    cell = np.minimum((confidence * bins).astype(int), bins - 1)
    weight = np.ones(len(cell)) if scores.weight is None else scores.weight
    gap = np.bincount(cell, weights=weight * (hit - confidence), minlength=bins)
    error = float(np.abs(gap).sum() / weight.sum())
    message = f"The source classifier's probabilities are off by {error:.2f} on average."
    return Check("calibration", error, _CALIBRATION, error <= _CALIBRATION, message)


def _top_bin(scores: HeldOutScores, known_mix: Floats) -> tuple[list[Check], tuple[Floats, Floats]]:
    """Check the size of BBE's top bin and the agreement with DEDPUL; return BBE's ratio as a curve."""
    source, target = scores.domain(known_mix)
    weight = scores.weights(known_mix)
    bbe = BBE().fit(source, target, weight)
    top = source >= bbe.threshold_
    size = float(weight[top].sum() ** 2 / max(np.square(weight[top]).sum(), _TINY))
    message = f"The share of known rows rests on {size:.0f} source rows."
    checks = [Check("top bin size", size, _MIN_BIN, size >= _MIN_BIN, message)]
    other = float(DEDPUL().fit(source, target, weight).alpha_)
    gap = abs(other - bbe.alpha_)
    message = f"Two estimators of the known share differ: {bbe.alpha_:.2f} (BBE) and {other:.2f} (DEDPUL)."
    checks.append(
        Check("estimators agree", gap, _DISAGREEMENT, gap <= _DISAGREEMENT, message, "not identified")
    )
    order = np.argsort(-source, kind="stable")
    mass = np.cumsum(weight[order]) / weight.sum()
    cuts = source[order][np.searchsorted(mass, np.linspace(0.02, 1, 50)).clip(max=len(order) - 1)]
    share_s = np.array([weight[source >= cut].sum() / weight.sum() for cut in cuts])
    share_t = np.array([np.mean(target >= cut) for cut in cuts])
    return checks, (share_s, share_t / np.maximum(share_s, _TINY))
