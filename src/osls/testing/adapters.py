"""What every adapter promises; the checks themselves stand in the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from osls.testing import answers, interface, symmetries
from osls.testing.problems import Subject
from osls.testing.running import Check, ContractError, named, run_all

__all__ = ["adapter_checks", "check_adapter"]

_METHODS = ("fit", "predict", "predict_proba")


def adapter_checks(estimator: Any) -> Iterator[tuple[str, Check]]:
    """Yield the name of each check and a function without arguments that raises if it fails.

    Parameters
    ----------
    estimator : adapter
        Not fitted, with parameters that make it fast: a check fits it to a few hundred rows, some checks
        more than once. It is not changed.

    Examples
    --------
    >>> from osls import PULSE
    >>> from osls.testing import adapter_checks
    >>> checks = dict(adapter_checks(PULSE(source_classifier="linear", discriminator="linear")))
    >>> checks["answers are distributions"]()
    """
    _demand_methods(estimator)
    subject = Subject(estimator)
    chosen = [*answers.CHECKS, *symmetries.CHECKS, *interface.EVERYONES]
    if subject.inherits:
        chosen += interface.INHERITED
    for function in chosen:
        yield named(function, subject)


def check_adapter(estimator: Any) -> None:
    """Put an adapter through all checks; raise one error that lists every broken promise.

    Parameters
    ----------
    estimator : adapter
        As in :func:`adapter_checks`.

    Raises
    ------
    ContractError
        An AssertionError. Each line names a promise, what was found, and what was expected.

    Examples
    --------
    >>> from osls.baselines import SourceOnly
    >>> from osls.testing import check_adapter
    >>> check_adapter(SourceOnly(source_classifier="linear"))
    """
    run_all(type(estimator).__name__, adapter_checks(estimator))


def _demand_methods(estimator: Any) -> None:
    if isinstance(estimator, type):
        raise TypeError(f"estimator is the class {estimator.__name__}; pass an instance.")
    missing = [name for name in _METHODS if not callable(getattr(estimator, name, None))]
    if missing:
        raise ContractError(
            f"{type(estimator).__name__} has no method {' and no '.join(missing)}; an adapter has "
            "fit(X, y, X_target=...), predict(X) and predict_proba(X)."
        )
