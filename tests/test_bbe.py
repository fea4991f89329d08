from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osls.mixture import BBE, ElkanNoto, bbe_by_class, shares_by_class

scores = st.lists(st.integers(0, 40), min_size=1, max_size=80).map(lambda s: np.array(s) / 40)


def brute_force(positive, unlabeled, delta=0.1, gamma=0.01):
    """The paper's criterion at every score that occurs, one by one."""
    slack = np.sqrt(np.log(4 / delta) / 2) * (len(unlabeled) ** -0.5 + len(positive) ** -0.5)
    best = (np.inf, np.nan)
    for c in np.union1d(positive, unlabeled):
        q_p, q_u = np.mean(positive >= c), np.mean(unlabeled >= c)
        if q_p > 0:
            best = min(best, ((q_u + (1 + gamma) * slack) / q_p, q_u / q_p))
    return best


def test_hand_computed_value():
    # q_p = (1/4, 2/4, 3/4, 1), q_u = (1/4, 1/4, 2/4, 2/4) at c = .9, .8, .7, .6; the slack decides for .6.
    slack = 1.01 * 2 * np.sqrt(np.log(40) / 8)
    bbe = BBE().fit([0.9, 0.8, 0.7, 0.6], [0.9, 0.7, 0.2, 0.1])
    assert bbe.alpha_ == 0.5
    assert bbe.threshold_ == 0.6
    assert bbe.upper_bound_ == min(1.0, 0.5 + slack)
    np.testing.assert_allclose(
        bbe.curve_.upper_bound, (np.array([1, 1, 2, 2]) / 4 + slack) / (np.arange(1, 5) / 4)
    )


@given(scores, scores)
def test_agrees_with_brute_force(positive, unlabeled):
    bound, ratio = brute_force(positive, unlabeled)
    bbe = BBE().fit(positive, unlabeled)
    assert bbe.curve_.upper_bound.min() == pytest.approx(bound)
    # Two thresholds may reach the bound within rounding; the ratio belongs to one of them.
    if np.sum(np.isclose(bbe.curve_.upper_bound, bound)) == 1:
        assert bbe.alpha_ == pytest.approx(min(1, ratio))


def test_branch_and_bound_is_exact_on_large_samples():
    rng = np.random.default_rng(0)
    positive = np.round(rng.beta(5, 1, 9000), 4)
    unlabeled = np.round(np.r_[rng.beta(5, 1, 3000), rng.beta(1, 3, 3000)], 4)
    bound, ratio = brute_force(positive, unlabeled)
    bbe = BBE().fit(positive, unlabeled)
    assert bbe.upper_bound_ == pytest.approx(bound, abs=1e-12)
    assert bbe.alpha_ == pytest.approx(ratio, abs=1e-12)


@given(scores, scores, st.randoms(use_true_random=False))
def test_invariances(positive, unlabeled, random):
    alpha = BBE().fit(positive, unlabeled).alpha_
    order = np.array(random.sample(range(len(positive)), len(positive)))
    assert BBE().fit(positive[order], unlabeled[::-1]).alpha_ == alpha
    assert BBE().fit(np.exp(3 * positive), np.exp(3 * unlabeled)).alpha_ == alpha
    assert 0 <= alpha <= 1


@given(scores, scores)
def test_integer_weights_are_repetitions_up_to_the_slack(positive, unlabeled):
    # The same shares at every threshold, whatever the slack makes of the sizes.
    weighted = BBE().fit(positive, unlabeled, np.full(len(positive), 3.0)).curve_
    repeated = BBE().fit(np.repeat(positive, 3), unlabeled).curve_
    np.testing.assert_allclose(weighted.ratio, repeated.ratio)
    np.testing.assert_allclose(weighted.threshold, repeated.threshold)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_recovers_a_known_share(alpha):
    rng = np.random.default_rng(1)
    m = 20_000
    positives = int(alpha * m)
    unlabeled = np.r_[rng.uniform(0.3, 1, positives), rng.uniform(0, 0.7, m - positives)]
    assert BBE().fit(rng.uniform(0.3, 1, m), unlabeled).alpha_ == pytest.approx(alpha, abs=0.02)


def test_proportion_never_exceeds_one():
    """The authors' code can return 5.08."""
    bbe = BBE().fit(np.linspace(0, 0.1, 50), np.linspace(0.9, 1, 50))
    assert bbe.alpha_ == 1.0
    assert bbe.upper_bound_ == 1.0


def test_constant_scores_give_the_trivial_bound():
    """The authors' code returns 0, which would call the whole target novel."""
    assert BBE().fit(np.full(30, 0.5), np.full(40, 0.5)).alpha_ == 1.0


def test_one_score_each():
    assert BBE().fit([0.5], [0.4]).alpha_ == 0.0
    assert BBE().fit([0.5], [0.6]).alpha_ == 1.0


@pytest.mark.parametrize(
    ("positive", "unlabeled", "message"),
    [
        ([], [0.5], "positive_scores is empty"),
        ([0.5], [], "unlabeled_scores is empty"),
        ([np.nan], [0.5], "positive_scores contains NaN"),
        ([0.5], [np.inf], "unlabeled_scores contains NaN or infinite"),
        ([[0.5, 0.5]], [0.5], "positive_scores must be one-dimensional"),
        (["a"], [0.5], "positive_scores must be numbers"),
    ],
)
def test_bad_scores_are_named(positive, unlabeled, message):
    with pytest.raises(ValueError, match=message):
        BBE().fit(positive, unlabeled)


@pytest.mark.parametrize("weight", [[1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_bad_weights_are_named(weight):
    with pytest.raises(ValueError, match="positive_weight"):
        BBE().fit([0.1, 0.2], [0.3], weight)


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match="delta and gamma"):
        BBE(delta=2).fit([0.1], [0.1])


class TestByClass:
    def test_hand_computed_value(self):
        source = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
        target = np.array([[0.9, 0.1], [0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
        bins = bbe_by_class(source, [0, 0, 1, 1], target)
        np.testing.assert_allclose(bins.alpha, [0.75, 0.25])
        np.testing.assert_allclose(bins.threshold, [0.8, 0.8])

    def test_each_column_is_a_plain_bbe(self):
        rng = np.random.default_rng(0)
        source, target = rng.dirichlet([1, 1, 1], 90), rng.dirichlet([2, 1, 1], 70)
        y = np.repeat([0, 1, 2], 30)
        bins = bbe_by_class(source, y, target)
        for j in range(3):
            assert bins.alpha[j] == BBE().fit(source[y == j, j], target[:, j]).alpha_
        assert bins.marginal.sum() == pytest.approx(1)

    def test_nothing_known_in_the_target_gives_a_flat_marginal(self):
        bins = bbe_by_class([[1.0, 0.0], [0.0, 1.0]], [0, 1], [[0.5, 0.5]] * 20)
        np.testing.assert_allclose(bins.marginal, [0.5, 0.5])

    def test_errors(self):
        with pytest.raises(ValueError, match="same number of columns"):
            bbe_by_class([[1.0]], [0], [[0.5, 0.5]])
        with pytest.raises(ValueError, match="no example of class 1"):
            bbe_by_class([[1.0, 0.0]], [0], [[0.5, 0.5]])
        with pytest.raises(ValueError, match="y_source has 2 entries"):
            bbe_by_class([[1.0, 0.0]], [0, 1], [[0.5, 0.5]])


def test_no_novel_class_means_a_share_near_one():
    """Identical source and target: the authors' code has false novel shares up to .249 here."""
    draws = [np.random.default_rng(seed).random((2, 1000)) for seed in range(100)]
    alpha = [BBE().fit(positive, unlabeled).alpha_ for positive, unlabeled in draws]
    assert min(alpha) > 0.8
    assert np.mean(alpha) > 0.93


def test_any_estimator_class_by_class_by_hand():
    """Elkan and Noto's ratio: mean of the target's column over mean of the class's own, .6/.8 and .4/.8."""
    source = np.array([[0.8, 0.2], [0.2, 0.8]])
    target = np.array([[0.9, 0.1], [0.3, 0.7]])
    shares = shares_by_class(source, [0, 1], target, ElkanNoto())
    np.testing.assert_allclose(shares.alpha, [0.75, 0.5])
    np.testing.assert_allclose(shares.marginal, [0.6, 0.4])
    np.testing.assert_allclose(
        shares_by_class(source, [0, 1], target, BBE()).alpha, bbe_by_class(source, [0, 1], target).alpha
    )
