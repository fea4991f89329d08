"""Finite-sample bounds of the shares, from held-out scores."""

from __future__ import annotations

from typing import Any

from osls._core.arrays import Floats
from osls.shift.joint import joint_range
from osls.shift.scores import HeldOutScores
from osls.theory import bbe_contradiction, bbe_interval


def share_bounds(scores: HeldOutScores, marginal: Floats, level: float) -> dict[str, Any]:
    """Return the bounds by the name of the attribute of :class:`osls.PULSE` that holds them."""
    source, target = scores.domain(marginal)
    known = bbe_interval(source, target, 1 - level, positive_weight=scores.weights(marginal))
    bounds: dict[str, Any] = {"novel_bound_": (1 - known.high, 1 - known.low)}
    if scores.domain_source.ndim == 2:
        bounds["marginal_bound_"] = joint_range(
            scores.domain_source, scores.y, scores.domain_target, scores.weight, level=level
        )
    return bounds


def contradiction(scores: HeldOutScores, marginal: Floats, level: float) -> float:
    """By how much the ends of the novel share's bound contradict each other."""
    source, target = scores.domain(marginal)
    weight = scores.weights(marginal)
    return bbe_contradiction(source, target, 1 - level, positive_weight=weight)
