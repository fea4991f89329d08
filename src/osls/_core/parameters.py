"""Parameters of estimators: what they may be, and how a subclass takes over its parent's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any, Protocol, TypeVar

import numpy as np

from osls._core.names import nearest

C = TypeVar("C", bound=type[Any])


class Constraint(Protocol):
    """What a parameter may be."""

    def complaint(self, value: Any) -> str | None:
        """Return what the value must be and what it is, or None if it is valid."""


@dataclass(frozen=True)
class OneOf:
    """One of a few names."""

    names: Sequence[str]

    def complaint(self, value: Any) -> str | None:
        if isinstance(value, str) and value in self.names:
            return None
        *most, last = (repr(name) for name in self.names)
        known = f"{', '.join(most)} or {last}" if most else last
        return f"must be {known}; got {value!r}.{nearest(value, self.names)}"


@dataclass(frozen=True)
class AtLeast:
    """A number that is not too small, or None where that is allowed; a whole one unless ``whole=False``."""

    least: float
    optional: bool = False
    whole: bool = True

    def complaint(self, value: Any) -> str | None:
        if self.whole and isinstance(value, float | np.floating) and np.isfinite(value):
            return f"must be a whole number; got {value!r}."
        if (value is None and self.optional) or (_is_number(value) and value >= self.least):
            return None
        otherwise = " or None" if self.optional else ""
        return f"must be at least {self.least:g}{otherwise}; got {value!r}."


@dataclass(frozen=True)
class Between:
    """A number between two others; the ends themselves are excluded unless ``closed``."""

    low: float
    high: float
    closed: bool = False
    optional: bool = False

    def complaint(self, value: Any) -> str | None:
        if value is None and self.optional:
            return None
        if _is_number(value) and (
            self.low <= value <= self.high if self.closed else self.low < value < self.high
        ):
            return None
        left, right = "[]" if self.closed else "()"
        otherwise = " or be None" if self.optional else ""
        return f"must lie in {left}{self.low:g}, {self.high:g}{right}{otherwise}; got {value!r}."


def _is_number(value: Any) -> bool:
    return not isinstance(value, str | bool) and hasattr(value, "__float__")


@dataclass(frozen=True)
class Estimator:
    """An estimator, or None; neither its name nor its class."""

    example: str

    def complaint(self, value: Any) -> str | None:
        if value is None or (hasattr(value, "get_params") and not isinstance(value, type)):
            return None
        return f"must be None or an estimator, such as {self.example}; got {value!r}."


@dataclass(frozen=True)
class Function:
    """A callable, or None."""

    def complaint(self, value: Any) -> str | None:
        return None if value is None or callable(value) else f"must be callable or None; got {value!r}."


# Parameters that mean the same wherever an estimator has them. They are checked also where a fit happens to
# make no use of them: a mistake would come to light with other data only.
_SHARED: Mapping[str, Constraint] = {
    "mixture": Estimator("osls.mixture.BBE()"),
    "callback": Function(),
}


def check_parameters(estimator: Any) -> None:
    """Check an estimator's parameters against ``parameter_constraints`` of its class and of its parents.

    Raises
    ------
    ValueError
        Naming the first parameter that is wrong, what it must be, and what it is.
    """
    constraints = {name: each for name, each in _SHARED.items() if hasattr(estimator, name)}
    for kind in reversed(type(estimator).__mro__):
        own: Mapping[str, Constraint] = vars(kind).get("parameter_constraints", {})
        constraints |= own
    for name, constraint in constraints.items():
        complaint = constraint.complaint(getattr(estimator, name))
        if complaint is not None:
            raise ValueError(f"{name} {complaint}")


def inherit_parameters(cls: C) -> C:
    """Add the parent's parameters to the signature of ``__init__(self, *, own, **shared)``.

    scikit-learn reads an estimator's parameters from that signature, and so do ``help`` and editors.
    """
    initialise: Any = vars(cls)["__init__"]
    own = [p for p in signature(initialise).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    names = {p.name for p in own}
    inherited = signature(vars(cls.__mro__[1])["__init__"]).parameters.values()
    initialise.__signature__ = Signature([*own, *(p for p in inherited if p.name not in names)])
    return cls
