"""The adapter under test: fresh copies of it, and one fit that the checks share."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any

from sklearn.base import clone

from osls._typing import AnyArray
from osls.base import OpenSetAdapter
from osls.datasets.simulate import OSLSProblem
from osls.testing.problems import small_problem

__all__ = ["Subject"]


class Subject:
    """An adapter, whoever wrote it.

    Copies are scikit-learn's clones where there are parameters to clone by, and deep copies otherwise. A
    ``random_state`` that is no fixed number is set to 0, since most promises are about the same seed.
    """

    def __init__(self, estimator: Any):
        self.name = type(estimator).__name__
        self._unfitted = self.copy(estimator)
        parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
        if "random_state" in parameters and not isinstance(parameters["random_state"], int):
            self._unfitted.set_params(random_state=0)

    @staticmethod
    def copy(estimator: Any) -> Any:
        """Return an unfitted adapter with the same parameters."""
        return clone(estimator) if hasattr(estimator, "get_params") else deepcopy(estimator)

    @property
    def inherits(self) -> bool:
        """Whether the validation and the published attributes come from OpenSetAdapter."""
        return isinstance(self._unfitted, OpenSetAdapter)

    def fresh(self) -> Any:
        """Return an adapter that nobody has fitted."""
        return self.copy(self._unfitted)

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
