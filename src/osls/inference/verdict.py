"""What one may conclude from an estimate: identified, an upper bound only, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from osls._typing import Floats

__all__ = ["Check", "Diagnostics", "Status", "Verdict"]

Status = Literal["identified", "upper bound only", "do not trust"]
_ORDER: tuple[Status, ...] = ("identified", "upper bound only", "do not trust")


@dataclass(frozen=True)
class Check:
    """One diagnostic: a figure, the limit it is held against, and what it means in plain words."""

    name: str
    value: float
    limit: float
    passed: bool
    message: str
    consequence: Status = "do not trust"


@dataclass(frozen=True)
class Verdict:
    """The conclusion, and why."""

    status: Status
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return self.status + "".join(f"\n- {reason}" for reason in self.reasons)


@dataclass(frozen=True)
class Diagnostics:
    """All checks of a fit, and curves worth drawing (name -> (x, y))."""

    checks: tuple[Check, ...]
    curves: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst consequence among the failed checks decides; their messages say why."""
        failed = [check for check in self.checks if not check.passed]
        status = max((check.consequence for check in failed), key=_ORDER.index, default=_ORDER[0])
        return Verdict(status, tuple(check.message for check in failed))

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)
