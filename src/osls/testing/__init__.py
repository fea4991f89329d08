"""Checks for your own adapters and mixture estimators, in the manner of scikit-learn's ``check_estimator``.

An adapter is any object with ``fit(X, y, X_target=...)``, ``classes_``, ``target_marginal_``,
``novel_prevalence_``, ``target_proba_``, ``target_labels_``, ``predict`` and ``predict_proba``; a mixture
estimator has ``fit(positive_scores, unlabeled_scores)`` and ``alpha_``. Neither has to inherit from a class
of this package; for those that do, the inherited behaviour is checked as well.

In a test file, with one test per check:

.. code-block:: python

    import pytest
    from osls.testing import adapter_checks

    CHECKS = list(adapter_checks(MyAdapter()))


    @pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in CHECKS])
    def test_contract(check):
        check()
"""

from osls.testing.contracts import adapter_checks, check_adapter, check_mixture_estimator, mixture_checks
from osls.testing.running import ContractError, blobs, small_problem

__all__ = [
    "ContractError",
    "adapter_checks",
    "blobs",
    "check_adapter",
    "check_mixture_estimator",
    "mixture_checks",
    "small_problem",
]
