"""The guarantees: values by hand, and that they hold on draws with a known truth."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osls.mixture import BBE
from osls.theory import bbe_interval, dkw_radius, theorem1_bound, theorem3_bound

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import theorem2

SIZE = 10**6


def scores(rng, n, m, alpha, edge=0.6):
    """Positives on [0, 1], negatives on [0, edge]: the pure top bin holds 1 - edge of the positives."""
    count = rng.binomial(m, alpha)
    return rng.random(n), np.append(rng.random(count), edge * rng.random(m - count))


class TestBounds:
    def test_hand_computed_values(self):
        radius = np.sqrt(np.log(80) / (2 * SIZE))  # two classes, delta .1
        assert dkw_radius(SIZE, 0.1 / 2) == pytest.approx(radius)
        bound = theorem1_bound([0.3, 0.2], [0.5, 0.4], [0.1, 0.0], [SIZE, SIZE], SIZE, gamma=0.5)
        assert bound.bias == pytest.approx(0.7 * 0.1 / 0.5)
        assert bound.deviation == pytest.approx((5 / 0.5 / 0.5 + 5 / 0.5 / 0.4) * 2 * radius)
        assert bound.total == bound.bias + bound.deviation
        third = theorem3_bound(0.2, 0.5, 0.4, 0.1, SIZE, SIZE, gamma=0.5)
        assert third.bias == pytest.approx(0.8 * 0.1 / 0.4 + 0.2 * 0.1 / 0.4)
        assert third.deviation == pytest.approx(5 / 0.5 / 0.4 * 2 * np.sqrt(np.log(40) / (2 * SIZE)))

    def test_silent_below_the_least_sample_size(self):
        least = int(np.ceil(2 * np.log(40) / 0.3**2))
        assert np.isfinite(theorem1_bound([0.3], [0.3], [0.0], [least], least).deviation)
        assert theorem1_bound([0.3], [0.3], [0.0], [least - 1], least).deviation == np.inf
        assert theorem3_bound(0.3, 0.3, 0.3, 0.0, least, least - 1).deviation == np.inf

    def test_rates_in_n_m_and_k(self):
        def deviation(n, m, k):
            share = np.full(k, 0.5)
            return theorem1_bound(np.full(k, 0.5 / k), share, 0 * share, np.full(k, n / k), m).deviation

        assert deviation(SIZE, SIZE, 3) == pytest.approx(2 * deviation(4 * SIZE, 4 * SIZE, 3))
        # With m out of the way the bound grows like k^1.5 (and a logarithm).
        growth = deviation(SIZE, 10**16, 8) / deviation(SIZE, 10**16, 2)
        assert growth == pytest.approx(4**1.5 * np.sqrt(np.log(320) / np.log(80)), rel=0.01)

    @pytest.mark.parametrize("gamma", [0.01, 0.5, 1.0])
    def test_theorem_1_holds_on_draws_and_with_room_to_spare(self, gamma):
        rng, alpha, missed = np.random.default_rng(0), 0.4, 0
        bound = theorem1_bound([alpha], [0.4], [0.0], [1000], 1500, gamma=gamma).total
        # BBE itself refuses gamma = 1.
        estimator = BBE(gamma=min(gamma, 0.999))
        for _ in range(40):
            missed += abs(estimator.fit(*scores(rng, 1000, 1500, alpha)).alpha_ - alpha) > bound
        assert missed == 0

    def test_the_papers_bin_can_make_theorem_3_false(self):
        """Wrong weights: in the purest bin nothing is wrong, yet BBE rightly prefers another bin."""
        novel_share = 0.2  # four score levels, high to low
        known, source, novel = np.cumsum(
            [[0.3, 0.1, 0.6, 0.0], [0.3, 0.6, 0.1, 0.0], [0.0, 0.01, 0.01, 0.98]], axis=1
        )
        ratio = (0.8 * known + novel_share * novel) / source
        error = abs(ratio.min() - 0.8)  # BBE's in population

        def bound(c):
            return theorem3_bound(novel_share, known[c], source[c], novel[c], SIZE**2, SIZE**2).total

        assert np.argmin(novel / source) == 0
        assert error > 0.4 > bound(0)
        assert error <= bound(np.argmin(ratio))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"p_target": [0.9, 0.9]}, "p_target holds the known classes only"),
            ({"p_target": [[0.3, 0.2]]}, "p_target must be one-dimensional"),
            ({"p_target": [np.nan, 0.2]}, r"p_target must lie in \[0, 1\]"),
            ({"top_class": [0.5]}, "top_class must be one-dimensional with 2 entries"),
            ({"top_class": [0.5, 0.0]}, "top_class must be positive"),
            ({"top_rest": [0.1, -0.1]}, r"top_rest must lie in \[0, 1\]"),
            ({"n_by_class": [100]}, "n_by_class must have one count for each of the 2 classes"),
            ({"n_by_class": [100, 0]}, "n must be positive"),
            ({"m": 0}, "n must be positive"),
            ({"delta": 1.5}, r"delta must lie in \(0, 1\); got 1.5"),
            ({"gamma": 0.0}, "gamma must lie in"),
        ],
    )
    def test_bad_input(self, change, message):
        good = {
            "p_target": [0.3, 0.2],
            "top_class": [0.5, 0.5],
            "top_rest": [0, 0],
            "n_by_class": [9, 9],
            "m": 9,
        }
        with pytest.raises(ValueError, match=message):
            theorem1_bound(**{**good, **change})

    def test_an_empty_bin_in_theorem_3(self):
        with pytest.raises(ValueError, match="top_reweighted must be positive"):
            theorem3_bound(0.2, 0.3, 0.0, 0.1, 100, 100)


class TestInterval:
    def test_by_hand(self):
        positive, unlabeled = np.repeat([0.0, 1.0], 500), np.repeat([0.0, 1.0], [800, 200])
        e = np.sqrt(np.log(40) / 2000)
        low, high = bbe_interval(positive, unlabeled, pure_bin=0.6)
        assert high == pytest.approx((0.2 + e) / (0.5 - e))
        assert low == pytest.approx((0.2 - e) / (0.5 + e))

    @pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 0.95, 1.0])
    def test_covers_on_draws(self, alpha):
        rng = np.random.default_rng(1)
        for _ in range(40):  # at most 10 % may miss; the bands are wide enough that none does
            low, high = bbe_interval(*scores(rng, 800, 1200, alpha), 0.1, pure_bin=0.4)
            assert low <= alpha <= high

    def test_coverage_is_near_nominal_when_only_one_threshold_matters(self):
        """Two score levels and the worst case for the bands: misses are possible, and at most delta."""
        rng, missed = np.random.default_rng(0), 0
        for _ in range(400):
            positive = (rng.random(300) < 0.5).astype(float)
            unlabeled = (rng.random(300) < 0.5).astype(float)  # alpha = 1
            missed += bbe_interval(positive, unlabeled, 0.5, pure_bin=0.9)[0] > 1.0
            missed += bbe_interval(positive, unlabeled, 0.5, pure_bin=0.9)[1] < 1.0
        assert missed <= 200

    def test_shrinks_at_the_root_n_rate_around_the_truth(self):
        rng = np.random.default_rng(0)
        widths = []
        for n in (2_000, 32_000, 512_000):
            low, high = bbe_interval(*scores(rng, n, n, 0.5), pure_bin=0.4)
            widths.append(high - low)
        slope = np.polyfit(np.log([2_000, 32_000, 512_000]), np.log(widths), 1)[0]
        assert slope == pytest.approx(-0.5, abs=0.1)

    def test_the_upper_end_needs_no_assumption_and_the_lower_end_does(self):
        rng = np.random.default_rng(0)
        # Half of the negatives look exactly like positives: alpha is an upper bound only.
        unlabeled = np.concatenate([rng.random(6000), 0.5 * rng.random(4000)])
        assert bbe_interval(rng.random(10_000), unlabeled, pure_bin=0.0).low == 0
        assert bbe_interval(rng.random(10_000), unlabeled, pure_bin=0.0).high > 0.6
        assert bbe_interval(rng.random(10_000), unlabeled, pure_bin=0.5).low > 0.5

    @given(
        st.lists(st.floats(0, 1), min_size=1, max_size=40), st.lists(st.floats(0, 1), min_size=1, max_size=40)
    )
    @settings(deadline=None)
    def test_any_scores_give_an_ordered_interval_that_ignores_scale(self, positive, unlabeled):
        low, high = bbe_interval(positive, unlabeled, 0.9, pure_bin=1.0)
        assert 0 <= low <= high <= 1
        doubled = bbe_interval(2 * np.array(positive), 2 * np.array(unlabeled), 0.9, pure_bin=1.0)
        assert doubled == pytest.approx((low, high))

    def test_equal_weights_change_nothing(self):
        positive, unlabeled = scores(np.random.default_rng(0), 500, 500, 0.5)
        weighted = bbe_interval(positive, unlabeled, positive_weight=np.full(500, 3.0))
        assert weighted == pytest.approx(bbe_interval(positive, unlabeled))

    @pytest.mark.parametrize(
        ("arguments", "options", "message"),
        [
            (([], [1.0]), {}, "positive_scores is empty"),
            (([1.0], [np.nan]), {}, "unlabeled_scores contains NaN"),
            (([1.0], [1.0], 0.0), {}, "delta must lie in"),
            (([1.0], [1.0]), {"pure_bin": 1.5}, "pure_bin must lie in"),
            (([1.0], [1.0]), {"positive_weight": [1.0, 2.0]}, "positive_weight must hold one finite"),
            (([1.0], [1.0]), {"positive_weight": [-1.0]}, "positive_weight must hold one finite"),
            (([1.0], [1.0]), {"positive_weight": [0.0]}, "not be all zero"),
        ],
    )
    def test_bad_input(self, arguments, options, message):
        with pytest.raises(ValueError, match=message):
            bbe_interval(*arguments, **options)


class TestTheorem2:
    """CVIR in (almost) population, as printed: cold starts, steps of 1/2, alpha known."""

    @pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
    @pytest.mark.parametrize("angle", [20.0, 80.0])
    def test_the_loss_never_rises_and_the_separator_is_found(self, alpha, angle):
        row = theorem2.run_as_printed(alpha, angle, rows=8000, steps=800)
        assert row["first_loss"] < np.log(2)
        assert row["monotone"]
        assert row["last_loss"] < 0.5 * row["first_loss"]
        assert row["cosine"] > 0.99

    def test_a_step_that_is_far_too_long_is_no_descent(self):
        """What eta <= 1/2 is for: the check can fail."""
        assert not theorem2.run_as_printed(0.5, 80.0, rows=2000, steps=50, rate=500.0)["monotone"]
