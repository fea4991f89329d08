"""The checks of adapters and of mixture estimators, one by one or all at once."""

from __future__ import annotations

import pickle  # nosec B403  # what is unpickled here was pickled two lines before
from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np

from osls.mixture.base import MixtureEstimator
from osls.testing import answers, interface
from osls.testing.running import (
    Check,
    ContractError,
    Subject,
    UnderTest,
    calibrated_scores,
    close,
    demand,
    demand_error,
    mixed_scores,
    named,
    run_all,
    same,
)

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
    chosen = [*answers.ANSWERS, *answers.SYMMETRIES, *interface.EVERYONES]
    if subject.inherits:
        chosen += interface.INHERITED
    for function in chosen:
        yield named(function, subject)


def check_adapter(estimator: Any) -> None:
    """Run all checks on an adapter; raise one error that lists every failed check.

    Parameters
    ----------
    estimator : adapter
        As in :func:`adapter_checks`.

    Raises
    ------
    ContractError
        An AssertionError. Each line names a check, what was found, and what was expected.

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


_ROUNDING = 1e-6


class _Subject(UnderTest):
    """The mixture estimator under test."""

    base = MixtureEstimator

    def fit(self, *scores: Any) -> Any:
        return self.fresh().fit(*scores)

    def alpha(self, *scores: Any) -> float:
        model = self.fit(*scores)
        demand(hasattr(model, "alpha_"), "fit does not set alpha_.")
        return float(model.alpha_)


def mixture_checks(estimator: Any) -> Iterator[tuple[str, Check]]:
    """Yield the name of each check and a function without arguments that raises if it fails.

    Parameters
    ----------
    estimator : mixture estimator
        With ``fit(positive_scores, unlabeled_scores)``, which returns the estimator and sets ``alpha_``. It
        is not changed. ``positive_weight`` and ``interval_`` are checked only where they exist.

    Examples
    --------
    >>> from osls.mixture import BBE
    >>> from osls.testing import mixture_checks
    >>> checks = dict(mixture_checks(BBE()))
    >>> checks["alpha is a share"]()
    """
    if isinstance(estimator, type):
        raise TypeError(f"estimator is the class {estimator.__name__}; pass an instance.")
    if not callable(getattr(estimator, "fit", None)):
        raise ContractError(
            f"{type(estimator).__name__} has no method fit(positive_scores, unlabeled_scores)."
        )
    subject = _Subject(estimator)
    chosen = list(_EVERY)
    chosen += _WEIGHTED if "positive_weight" in signature(estimator.fit).parameters else []
    chosen += _INHERITED if subject.inherits else []
    for function in chosen:
        yield named(function, subject)


def check_mixture_estimator(estimator: Any) -> None:
    """Run all checks on a mixture estimator; raise one error that lists every failed check.

    Parameters
    ----------
    estimator : mixture estimator
        As in :func:`mixture_checks`.

    Raises
    ------
    ContractError
        An AssertionError. Each line names a check, what was found, and what was expected.

    Examples
    --------
    >>> from osls.mixture import DEDPUL
    >>> from osls.testing import check_mixture_estimator
    >>> check_mixture_estimator(DEDPUL())
    """
    run_all(type(estimator).__name__, mixture_checks(estimator))


# -- Every estimator --------------------------------------------------------------------------------


def alpha_is_a_share(subject: _Subject) -> None:
    for truth in (0.0, 0.1, 0.5, 1.0):
        alpha = subject.alpha(*mixed_scores(0, 200, 300, truth))
        demand(0 <= alpha <= 1, f"alpha_ is {alpha:.3g}; a share lies in [0, 1].")
    alpha = subject.alpha([0.5], [0.4])
    demand(0 <= alpha <= 1, f"alpha_ is {alpha:.3g} for one score each; a share lies in [0, 1].")


def more_positives_give_a_larger_share(subject: _Subject) -> None:
    # Calibrated and separable scores: the strictest assumptions of any of the estimators.
    few, many = (subject.alpha(*calibrated_scores(0, 1000, 1000, truth)) for truth in (0.1, 0.8))
    demand(few < many, f"alpha_ is {few:.3f} where 0.1 is true and {many:.3f} where 0.8 is.")


def same_scores_same_answer(subject: _Subject) -> None:
    scores = mixed_scores(1, 200, 300, 0.5)
    same(subject.alpha(*scores), subject.alpha(*scores), "alpha_ of a second fit")


def order_of_scores_does_not_matter(subject: _Subject) -> None:
    positive, unlabeled = mixed_scores(1, 200, 300, 0.5)
    shuffled = np.random.default_rng(0).permutation(positive), unlabeled[::-1]
    close(
        subject.alpha(*shuffled), subject.alpha(positive, unlabeled), "alpha_ of shuffled scores", _ROUNDING
    )


def inputs_are_left_alone(subject: _Subject) -> None:
    scores = mixed_scores(0, 200, 300, 0.5)
    given = tuple(each.copy() for each in scores)
    subject.fit(*given)
    for name, before, after in zip(("positive_scores", "unlabeled_scores"), scores, given, strict=True):
        same(after, before, f"{name} after fit")
        after.flags.writeable = False
    same(subject.alpha(*given), subject.alpha(*scores), "alpha_ from read-only arrays")


def lists_and_precisions_agree(subject: _Subject) -> None:
    positive, unlabeled = mixed_scores(2, 200, 300, 0.5)
    expected = subject.alpha(positive, unlabeled)
    close(subject.alpha(positive.tolist(), unlabeled.tolist()), expected, "alpha_ from lists", _ROUNDING)
    single = positive.astype(np.float32), unlabeled.astype(np.float32)
    close(subject.alpha(*single), expected, "alpha_ from float32", 0.01)


def fitting_again_forgets(subject: _Subject) -> None:
    first, second = mixed_scores(3, 60, 60, 0.2), mixed_scores(4, 60, 60, 0.8)
    again = subject.fit(*first).fit(*second)
    same(again.alpha_, subject.alpha(*second), "alpha_ of a fit after a fit to other scores")


def clones_and_pickles_agree(subject: _Subject) -> None:
    scores = mixed_scores(5, 100, 100, 0.5)
    fitted = subject.fit(*scores)
    same(subject.copy(fitted).fit(*scores).alpha_, fitted.alpha_, "alpha_ of a clone")
    try:
        copy = pickle.loads(pickle.dumps(fitted))  # nosec B301  # our own bytes
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ContractError(f"the fitted estimator cannot be pickled ({error}).") from error
    same(copy.alpha_, fitted.alpha_, "alpha_ of an unpickled copy")


def errors_name_the_scores(subject: _Subject) -> None:
    good = [0.2, 0.5]
    for bad in ([], [0.5, np.nan], [np.inf, 0.5], ["a", "b"]):
        demand_error(lambda: subject.fit(bad, good), ("positive_scores",), f"positive scores {bad}")  # noqa: B023
        demand_error(lambda: subject.fit(good, bad), ("unlabeled_scores",), f"unlabelled scores {bad}")  # noqa: B023


_EVERY = (
    alpha_is_a_share,
    more_positives_give_a_larger_share,
    same_scores_same_answer,
    order_of_scores_does_not_matter,
    inputs_are_left_alone,
    lists_and_precisions_agree,
    fitting_again_forgets,
    clones_and_pickles_agree,
    errors_name_the_scores,
)


# -- Those that take weights ------------------------------------------------------------------------


def equal_weights_change_nothing_and_zero_weights_remove(subject: _Subject) -> None:
    positive, unlabeled = mixed_scores(1, 300, 300, 0.5)
    plain = subject.alpha(positive, unlabeled)
    close(
        subject.alpha(positive, unlabeled, np.full(300, 7.0)), plain, "alpha_ under equal weights", _ROUNDING
    )
    padded, weight = np.append(positive, np.ones(50)), np.repeat([1.0, 0.0], [300, 50])
    close(subject.alpha(padded, unlabeled, weight), plain, "alpha_ with scores of weight zero", _ROUNDING)


def errors_name_the_weights(subject: _Subject) -> None:
    for bad in ([1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]):
        demand_error(lambda: subject.fit([0.1, 0.2], [0.3], bad), ("positive_weight",), f"weights {bad}")  # noqa: B023


_WEIGHTED = [equal_weights_change_nothing_and_zero_weights_remove, errors_name_the_weights]


# -- Those that inherit an interval -----------------------------------------------------------------


def interval_holds_the_estimate(subject: _Subject) -> None:
    fitted = subject.fit(*mixed_scores(2, 100, 120, 0.4))
    low, high = fitted.interval_
    demand(
        0 <= low <= fitted.alpha_ <= high <= 1, f"interval_ is ({low}, {high}) for alpha_ = {fitted.alpha_}."
    )
    demand(low < high, f"interval_ is the single point {low}.")
    same(pickle.loads(pickle.dumps(fitted)).interval_, (low, high), "interval_ of an unpickled copy")  # nosec B301
    wide, narrow = fitted.interval(0.99, n_boot=50), fitted.interval(0.5, n_boot=50)
    demand(narrow[1] <= wide[1], "the interval at level 0.5 is wider than that at 0.99.")


def interval_knows_what_it_does_not_know(subject: _Subject) -> None:
    low, high = subject.fit([0.9, 0.8, 0.7], [0.9, 0.2, 0.1, 0.05]).interval_
    demand(high - low > 0.5, f"interval_ of seven scores is ({low:.3f}, {high:.3f}): too narrow.")
    constant = subject.fit(np.full(50, 0.5), np.full(60, 0.5))
    same(constant.interval_, (0.0, 1.0), "interval_ of constant scores")


def interval_is_forgotten_by_the_next_fit(subject: _Subject) -> None:
    fitted = subject.fit(*mixed_scores(3, 60, 60, 0.2))
    first = fitted.interval_
    demand(
        fitted.fit(*mixed_scores(4, 60, 60, 0.8)).interval_ != first, "interval_ is that of the earlier fit."
    )


def interval_before_fitting_is_an_error(subject: _Subject) -> None:
    from sklearn.exceptions import NotFittedError

    try:
        subject.fresh().interval()
    except NotFittedError:
        return
    raise ContractError("interval() before fit raises no NotFittedError.")


_INHERITED = [
    interval_holds_the_estimate,
    interval_knows_what_it_does_not_know,
    interval_is_forgotten_by_the_next_fit,
    interval_before_fitting_is_an_error,
]
