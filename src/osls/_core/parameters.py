"""Parameters that estimators share, written once."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

__all__ = ["inherit_parameters"]

C = TypeVar("C", bound=type[Any])


def inherit_parameters(cls: C) -> C:
    """Complete the signature of ``__init__(self, *, own, **shared)`` by the parameters of the parent's.

    scikit-learn reads an estimator's parameters off that signature, and so do ``help`` and editors.
    """
    initialise: Any = vars(cls)["__init__"]
    own = [p for p in signature(initialise).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    names = {p.name for p in own}
    inherited = signature(vars(cls.__mro__[1])["__init__"]).parameters.values()
    initialise.__signature__ = Signature([*own, *(p for p in inherited if p.name not in names)])
    return cls
