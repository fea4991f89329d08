"""The contracts of adapters and mixture estimators, as checks that anybody's own can be put through.

An adapter is whatever has ``fit(X, y, X_target=...)`` and answers with ``classes_``, ``target_marginal_``,
``novel_prevalence_``, ``target_proba_``, ``target_labels_``, ``predict`` and ``predict_proba``; a mixture
estimator has ``fit(positive_scores, unlabeled_scores)`` and ``alpha_``. Neither has to inherit from a class
of this package; those that do are also asked for what they inherit.

In a test file, one test a check:

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
