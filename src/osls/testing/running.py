"""How checks are named, run and reported; the small problems they run on, and the adapter under test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from osls._core.arrays import AnyArray, Floats, Ints
from osls.base import OpenSetAdapter
from osls.datasets.simulate import OSLSProblem, simulate_osls

Check = Callable[[], None]


class ContractError(AssertionError):
    """An estimator fails a check; the message says which one, and why."""


def demand(condition: Any, message: str) -> None:
    """Raise ContractError unless the condition holds."""
    if not condition:
        raise ContractError(message)


def same(actual: Any, expected: Any, what: str) -> None:
    """Demand exactly equal arrays."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    demand(actual.shape == expected.shape, f"{what}: the shape is {actual.shape}, not {expected.shape}.")
    unequal = int(np.sum(actual != expected))
    demand(not unequal, f"{what}: {unequal} of {expected.size} values differ{_by(actual, expected)}.")


def close(actual: Any, expected: Any, what: str, tolerance: float) -> None:
    """Demand arrays that differ by no more than the tolerance; NaN never passes."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    demand(actual.shape == expected.shape, f"{what}: the shape is {actual.shape}, not {expected.shape}.")
    demand(
        (np.abs(actual - expected) <= tolerance).all(),
        f"{what}: values differ{_by(actual, expected)}, where {tolerance:g} is allowed.",
    )


def _by(actual: AnyArray, expected: AnyArray) -> str:
    if not (actual.dtype.kind in "fiu" and expected.dtype.kind in "fiu"):
        return ""
    return f" by up to {np.abs(actual.astype(float) - expected).max():.3g}"


def demand_error(action: Callable[[], Any], words: tuple[str, ...], what: str) -> None:
    """Demand a ValueError (or TypeError) whose message has each of the words."""
    try:
        action()
    except (ValueError, TypeError) as error:
        message = str(error)
    else:
        raise ContractError(f"{what}: no error was raised; expected a ValueError that names {_list(words)}.")
    missing = tuple(word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message))
    demand(not missing, f"{what}: the message does not name {_list(missing)}; it is: {message}")


def _list(words: tuple[str, ...]) -> str:
    return " and ".join(repr(word) for word in words)


def named(function: Callable[[Any], None], subject: Any) -> tuple[str, Check]:
    """Return the check's name, from its function's name, and the check bound to its subject."""
    name = function.__name__.replace("_", " ")

    def check() -> None:
        try:
            function(subject)
        except ContractError as error:
            raise ContractError(f"{subject.name}, {name}: {error}") from None

    return name, check


def run_all(name: str, checks: Iterator[tuple[str, Check]]) -> None:
    """Run every check; raise one ContractError that lists all that failed."""
    failures: list[str] = []
    cause: BaseException | None = None
    for title, check in checks:
        try:
            check()
        except ContractError as error:
            failures.append(str(error))
            cause = cause or error
        except Exception as error:
            failures.append(f"{name}, {title}: stopped with {type(error).__name__}: {error}")
            cause = cause or error
    if failures:
        count = "1 check" if len(failures) == 1 else f"{len(failures)} checks"
        raise ContractError(f"{name} fails {count}.\n- " + "\n- ".join(failures)) from cause


def blobs(seed: int = 0, sizes: tuple[int, ...] = (120, 120, 120, 120)) -> tuple[AnyArray, Ints]:
    """Return rows and classes of up to five Gaussian classes in five dimensions, 6 standard deviations apart.

    Examples
    --------
    >>> from osls.testing import blobs
    >>> X, y = blobs(sizes=(20, 30))
    >>> X.shape, X.dtype.name, y.tolist().count(1)
    ((50, 5), 'float32', 30)
    """
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [6, 0], [0, 6], [6, 6], [12, 3]])[: len(sizes)]
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(y), 5))
    X[:, :2] += centres[y]
    return X.astype(np.float32), y


def small_problem() -> OSLSProblem:
    """Return the problem that most checks share: three known classes of 120 rows, one novel."""
    return simulate_osls(*blobs(), novel=[3], random_state=0)


def mixed_scores(seed: int, n: int, m: int, alpha: float) -> tuple[Floats, Floats]:
    """Return n scores of positives, and m of which a share alpha is positive and the rest scores lower."""
    rng = np.random.default_rng(seed)
    k = round(alpha * m)
    return rng.beta(6, 2, n), np.r_[rng.beta(6, 2, k), rng.beta(1, 6, m - k)]


def calibrated_scores(seed: int, n: int, m: int, alpha: float) -> tuple[Floats, Floats]:
    """Return scores of separable classes by a discriminator that knows alpha: 1 / (1 + alpha), or 0."""
    rng = np.random.default_rng(seed)
    k, c = round(alpha * m), 1 / (1 + alpha)
    noise = rng.uniform(-0.02, 0.02, n + k)
    return c + noise[:n], np.r_[c + noise[n:], np.zeros(m - k)]


class UnderTest:
    """The estimator under test.

    Copies are scikit-learn's clones if it has ``get_params``, and deep copies otherwise. A ``random_state``
    that is not an integer is set to 0, because most checks need a fixed seed.
    """

    # What an estimator of this package inherits from: its behaviour is then checked as well.
    base: ClassVar[type]

    def __init__(self, estimator: Any):
        self.name = type(estimator).__name__
        self.inherits = isinstance(estimator, self.base)
        self._unfitted = self.copy(estimator)
        parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
        if "random_state" in parameters and not isinstance(parameters["random_state"], int):
            self._unfitted.set_params(random_state=0)

    @staticmethod
    def copy(estimator: Any) -> Any:
        """Return an unfitted estimator with the same parameters."""
        return clone(estimator) if hasattr(estimator, "get_params") else deepcopy(estimator)

    def fresh(self) -> Any:
        """Return a new, unfitted estimator."""
        return self.copy(self._unfitted)


class Subject(UnderTest):
    """The adapter under test."""

    base = OpenSetAdapter

    @cached_property
    def problem(self) -> OSLSProblem:
        """Three known classes and a novel one, far apart."""
        return small_problem()

    @cached_property
    def given(self) -> dict[str, AnyArray]:
        """Copies of the problem's arrays; what ``fitted`` was fitted to."""
        return {key: value.copy() for key, value in self.problem.training_data().items()}

    @cached_property
    def fitted(self) -> Any:
        """The adapter, fitted to the problem; checks must not change it."""
        return self.fresh().fit(**self.given)

    def fit(self, **changes: Any) -> Any:
        """Return a fresh adapter fitted to the problem with other arguments."""
        return self.fresh().fit(**{**self.problem.training_data(), **changes})
