"""DEDPUL, Elkan-Noto, regrouping, subsampling, and the intervals of all of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import osls.mixture
from conftest import ESTIMATORS, keep_two_thirds_at_the_top
from osls.mixture import BBE, DEDPUL, ElkanNoto, MixtureEstimator, Regroup, Subsample
from osls.mixture.bootstrap import bootstrap_interval, thin
from osls.mixture.dedpul import em_share
from osls.mixture.sample import Sample
from osls.testing import mixture_checks
from osls.testing.running import calibrated_scores

PEER = json.loads((Path(__file__).parent / "peers" / "dedpul.json").read_text())
scores = st.lists(st.integers(0, 40), min_size=1, max_size=60).map(lambda s: np.array(s) / 40)


def betas(seed, n, m, alpha, a_p=6, b_p=2, a_n=1, b_n=6):
    """Scores of positives, and of a mixture whose negatives score lower."""
    rng = np.random.default_rng(seed)
    k = round(alpha * m)
    return rng.beta(a_p, b_p, n), np.r_[rng.beta(a_p, b_p, k), rng.beta(a_n, b_n, m - k)]


CONTRACT = [
    pytest.param(check, id=f"{name}-{title}")
    for name, estimator in ESTIMATORS.items()
    for title, check in mixture_checks(estimator)
]


@pytest.mark.parametrize("check", CONTRACT)
def test_contract(check):
    check()


def test_discovery_misses_no_estimator():
    every = {
        c for c in vars(osls.mixture).values() if isinstance(c, type) and issubclass(c, MixtureEstimator)
    }
    assert {type(estimator) for estimator in ESTIMATORS.values()} == every - {MixtureEstimator}


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"subsample"}))
def test_constant_scores_give_the_trivial_bound(name):
    assert clone(ESTIMATORS[name]).fit(np.full(50, 0.5), np.full(60, 0.5)).alpha_ == 1.0


class TestInterval:
    def test_ends_of_the_range_are_widened(self):
        positive = np.random.default_rng(0).beta(6, 2, 400)
        low, high = ElkanNoto().fit(positive, positive).interval_
        assert high == 1.0
        band = 2 * np.sqrt(np.log(4 / 0.05) / 800)
        assert low <= 1 - band + 1e-9
        assert BBE().fit(np.linspace(0.6, 1, 400), np.linspace(0, 0.4, 400)).interval_ == (
            0.0,
            pytest.approx(band),
        )

    @pytest.mark.parametrize("estimator", [BBE(), ElkanNoto()], ids=["bbe", "ratio"])
    @pytest.mark.parametrize("alpha", [0.2, 0.6])
    def test_covers_the_truth_about_as_often_as_it_says(self, estimator, alpha):
        hits = 0
        for seed in range(40):
            low, high = estimator.fit(*calibrated_scores(seed, 200, 200, alpha)).interval(n_boot=60)
            hits += low <= alpha <= high
        assert hits >= 35

    def test_thinned_samples_are_rescaled(self):
        widths = []
        for size in (10_000, 160_000):
            low, high = ElkanNoto().fit(*betas(0, size, size, 0.5)).interval(n_boot=100)
            widths.append(high - low)
        assert widths[1] / widths[0] == pytest.approx(0.25, rel=0.3)
        positive, unlabeled, shrink = thin(Sample(np.arange(40_000.0)), Sample(np.arange(20_000.0)))
        assert (positive.n, unlabeled.n) == (10_000, 10_000)
        assert shrink == pytest.approx(np.sqrt(0.5))

    def test_later_changes_to_the_scores_do_not_reach_it(self):
        positive, unlabeled = betas(0, 100, 100, 0.5)
        expected = BBE().fit(positive, unlabeled).interval_
        fitted = BBE().fit(positive, unlabeled)
        positive[:] = 0
        assert fitted.interval_ == expected

    @pytest.mark.parametrize(("options", "message"), [({"level": 1}, "level"), ({"n_boot": 0}, "n_boot")])
    def test_bad_options_are_named(self, options, message):
        with pytest.raises(ValueError, match=message):
            bootstrap_interval(lambda p, u: 0.5, (Sample(np.ones(2)), Sample(np.ones(2))), 0.5, **options)


class TestDEDPUL:
    @pytest.mark.parametrize("case", PEER["cases"], ids=lambda case: str(case["input"]["alpha"]))
    def test_agrees_with_the_authors_programme(self, case):
        positive, unlabeled = betas(**case["input"])
        np.testing.assert_allclose([positive.mean(), unlabeled.mean()], case["check"], atol=1e-8)
        assert DEDPUL().fit(positive, unlabeled).alpha_ == pytest.approx(case["alpha"], abs=0.002)

    @pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
    def test_recovers_a_known_share(self, alpha):
        assert DEDPUL().fit(*betas(1, 20_000, 20_000, alpha)).alpha_ == pytest.approx(alpha, abs=0.03)

    def test_em_stops_at_the_first_fixed_point(self):
        # Half the unlabelled at ratio 0, half at 2: any share up to 1/2 agrees with itself.
        assert em_share(np.repeat([0.0, 2.0], 50)) == pytest.approx(0.5)
        assert em_share(np.ones(10)) == 1.0
        assert em_share(np.zeros(10)) == 0.0
        assert em_share(np.repeat([0.0, 2.0], 50), max_iter=1) == pytest.approx(0.5)

    def test_a_column_of_scores_will_do(self):
        positive, unlabeled = betas(0, 50, 60, 0.5)
        column = BBE().fit(positive[:, None], unlabeled[:, None])
        assert column.alpha_ == BBE().fit(positive, unlabeled).alpha_
        assert DEDPUL().fit(np.linspace(0.6, 0.9, 50), np.linspace(0.1, 0.3, 50)).alpha_ == pytest.approx(0)

    def test_precision_of_the_scores_hardly_matters(self):
        positive, unlabeled = betas(0, 500, 500, 0.5)
        single = DEDPUL().fit(positive.astype(np.float32), unlabeled.astype(np.float32)).alpha_
        assert single == pytest.approx(DEDPUL().fit(positive, unlabeled).alpha_, abs=1e-3)

    def test_integer_weights_are_repetitions(self):
        positive, unlabeled = betas(4, 300, 400, 0.4)
        weight = np.arange(300) % 3
        repeated = DEDPUL().fit(np.repeat(positive, weight), unlabeled).alpha_
        assert DEDPUL().fit(positive, unlabeled, weight).alpha_ == pytest.approx(repeated, abs=1e-6)

    def test_scores_of_exactly_zero_and_one(self):
        alpha = DEDPUL().fit(np.ones(50), np.repeat([0.0, 1.0], [75, 25])).alpha_
        assert alpha == pytest.approx(0.25, abs=0.01)

    def test_a_million_scores_take_seconds_at_most(self):
        positive, unlabeled = betas(0, 200_000, 1_000_000, 0.4)
        for estimator in (DEDPUL(), ElkanNoto()):
            start = time.perf_counter()
            estimator.fit(positive, unlabeled)
            assert time.perf_counter() - start < 2


class TestElkanNoto:
    def test_hand_computed_values(self):
        positive, unlabeled = [0.8, 0.6], [0.7, 0.7, 0.0, 0.0]
        ratio = ElkanNoto("ratio").fit(positive, unlabeled)
        assert ratio.alpha_ == pytest.approx(0.5)
        assert ratio.labeled_share_ == pytest.approx(2 / 3)
        assert ElkanNoto("mean").fit(positive, unlabeled).alpha_ == pytest.approx(0.3 / 0.7)
        assert ElkanNoto("max").fit(positive, unlabeled).alpha_ == pytest.approx(0.25)
        assert ElkanNoto("mean", size_ratio=0.5).fit(positive, unlabeled).alpha_ == pytest.approx(0.15 / 0.7)
        assert ElkanNoto("max", quantile=0.5).fit(positive, unlabeled).alpha_ == pytest.approx(0.4 / 0.6)

    def test_weights_weigh_the_positives(self):
        assert ElkanNoto().fit([0.8, 0.2], [0.4], [1.0, 0.0]).alpha_ == pytest.approx(0.5)

    def test_the_papers_ratio_needs_means_and_the_other_way_up(self):
        """As printed, sum over positives / sum over unlabelled: 4 here, for a true share of 0.25."""
        positive, unlabeled = np.full(400, 0.8), np.repeat([0.8, 0.0], [100, 300])
        assert positive.sum() / unlabeled.sum() == pytest.approx(4)
        assert ElkanNoto().fit(positive, unlabeled).alpha_ == pytest.approx(0.25)

    @pytest.mark.parametrize("n", [500, 2000])
    @pytest.mark.parametrize("form", ["ratio", "mean", "max"])
    def test_all_forms_agree_on_separable_calibrated_scores(self, form, n):
        # Trained on n positives and 1,000 unlabelled, a third of them positive.
        m, k = 1000, 333
        c = n / (n + k)
        unlabeled = np.repeat([c, 0.0], [k, m - k])
        fitted = ElkanNoto(form, size_ratio=n / m).fit(np.full(n, c), unlabeled)
        assert fitted.alpha_ == pytest.approx(0.333)
        assert fitted.labeled_share_ == pytest.approx(c)

    @given(scores, scores, st.floats(0.1, 1))
    def test_the_ratio_does_not_depend_on_the_scale(self, positive, unlabeled, factor):
        alpha = ElkanNoto().fit(positive, unlabeled).alpha_
        assert ElkanNoto().fit(factor * positive, factor * unlabeled).alpha_ == pytest.approx(alpha)

    def test_hopeless_scores(self):
        assert ElkanNoto().fit([0.0, 0.0], [0.0, 0.5]).alpha_ == 1.0
        assert ElkanNoto().fit([0.5], [0.0]).alpha_ == 0.0
        assert ElkanNoto("max").fit([1.0], [0.5]).alpha_ == 0.0


class TestWrappers:
    def test_regrouping_is_the_base_on_enlarged_positives(self):
        positive, unlabeled = betas(0, 500, 500, 0.5)
        best = np.sort(unlabeled)[-50:]
        for base in (BBE(), DEDPUL(), ElkanNoto()):
            expected = clone(base).fit(np.append(positive, best), unlabeled).alpha_
            assert Regroup(base).fit(positive, unlabeled).alpha_ == pytest.approx(expected)
            few = Regroup(base).fit(positive[:100], unlabeled)
            assert few.alpha_ > 0.5 * expected  # as many positives as unlabelled or not: the same weight

    def test_regrouping_lowers_an_estimate_that_overlap_made_too_high(self):
        rng = np.random.default_rng(0)
        positive = rng.normal(1, 1, 5000)
        unlabeled = np.r_[rng.normal(1, 1, 1500), rng.normal(0.5, 1.5, 3500)]
        plain, regrouped = BBE().fit(positive, unlabeled).alpha_, Regroup().fit(positive, unlabeled).alpha_
        assert abs(regrouped - 0.3) < abs(plain - 0.3)

    def test_regrouping_counts_a_pure_region_twice(self):
        """The price that its docstring states."""
        rng = np.random.default_rng(0)
        unlabeled = np.r_[rng.uniform(0.5, 1, 8000), rng.uniform(0, 0.5, 12_000)]
        alpha = Regroup().fit(rng.uniform(0.5, 1, 5000), unlabeled).alpha_
        assert alpha == pytest.approx(0.4 * 1.1 / 1.4, abs=0.03)

    @given(scores, scores)
    def test_regrouped_bbe_sees_only_the_order(self, positive, unlabeled):
        alpha = Regroup().fit(positive, unlabeled).alpha_
        assert Regroup().fit(np.exp(3 * positive), np.exp(3 * unlabeled)).alpha_ == alpha

    def test_subsampling_removes_the_bias_that_the_posterior_explains(self):
        # Above zero, two of three are positive everywhere: no pure region.
        rng = np.random.default_rng(0)
        positive = rng.random(8000)
        unlabeled = np.r_[rng.random(6000), np.zeros(2000)]
        assert BBE().fit(positive, unlabeled).alpha_ == pytest.approx(0.75, abs=0.03)
        fitted = Subsample(keep_two_thirds_at_the_top).fit(positive, unlabeled)
        assert fitted.alpha_ == pytest.approx(0.5, abs=0.03)
        assert fitted.accepted_ == pytest.approx(1 - np.mean(unlabeled > 0.5) / 3)

    def test_subsampling_nothing_is_the_base(self):
        positive, unlabeled = betas(0, 300, 500, 0.5)
        for base in (BBE(), DEDPUL()):
            plain = clone(base).fit(positive, unlabeled).alpha_
            assert Subsample(np.ones_like, base).fit(positive, unlabeled).alpha_ == pytest.approx(plain)
        assert Subsample(np.zeros_like).fit(positive, unlabeled).alpha_ == 0.0


@pytest.mark.parametrize(
    "estimator", [DEDPUL(), ElkanNoto(), Regroup(DEDPUL())], ids=["dedpul", "en", "regroup"]
)
@pytest.mark.parametrize(("positive", "unlabeled"), [([-3.0, 2.0], [0.5]), ([0.5], [0.5, 1.5])])
def test_logits_are_refused_with_a_hint(estimator, positive, unlabeled):
    with pytest.raises(ValueError, match=r"_scores must be probabilities in \[0, 1\].*exp\(-logits\)"):
        estimator.fit(positive, unlabeled)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (DEDPUL(bandwidth_positive=0), "bandwidth_positive"),
        (ElkanNoto("e4"), "form must be"),
        (ElkanNoto(size_ratio=0), "size_ratio"),
        (ElkanNoto(quantile=0), "quantile"),
        (Regroup(fraction=1.0), "fraction"),
        (Subsample(np.ones_like, n_draws=0), "n_draws"),
        (Subsample(lambda score: 2 * np.ones_like(score)), "acceptance must return"),
        (Subsample(lambda score: 0.5), "acceptance must return"),
    ],
)
def test_bad_parameters_are_named(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit([0.2, 0.5], [0.3, 0.4])
