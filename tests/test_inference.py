"""Novelty test, diagnostics and verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import expit
from sklearn.datasets import load_digits

import osls
from answers import quick_pulse
from osls import PULSE
from osls._core.copies import SharedRows, copies_among, shared_rows
from osls.datasets import simulate_osls
from osls.inference import Cause, Check, Diagnostics, TrustWarning, diagnose, novelty_test
from osls.inference.cause import leaks, likely_cause, wrong_labels
from osls.inference.diagnostics import known_probability
from osls.inference.mix import MixFromScores, bootstrap_mix
from osls.inference.novelty import _excesses
from osls.inference.prediction_sets import PredictionSets
from osls.shift.joint import joint_range
from osls.shift.scores import HeldOutScores
from osls.training.sampling import assign_folds


def gaussian(rng, *, novel=True, rows=1600, shift=0.0, missing=False):
    means = np.eye(4, 5) * 6
    y = rng.integers(4 if novel else 3, size=rows)
    X = means[y] + rng.normal(size=(rows, 5))
    problem = simulate_osls(X, y, novel=[3] if novel else [], source_fraction=(0.4, 0.6), random_state=0)
    X_target, y_target = problem.X_target + shift, problem.y_target
    if missing:
        X_target = X_target[y_target != 0]
    return problem.X_source, problem.y_source, X_target


def trees(**parameters):
    # Verdicts and causes are not about the noise of an interval's width: fewer replicates will do.
    few = {"rounds": 1, "n_bootstrap": 40, "random_state": 0}
    return PULSE(source_classifier="trees", discriminator="trees", **{**few, **parameters})


class TestNoveltyTest:
    def test_level_under_the_null(self):
        rng = np.random.default_rng(0)
        values = [novelty_test(rng.random(300), rng.random(300), seed=i).pvalue for i in range(60)]
        assert np.mean(np.array(values) <= 0.05) <= 0.15
        assert np.mean(values) > 0.3

    def test_finds_a_novel_class(self):
        rng = np.random.default_rng(1)
        target = np.concatenate([rng.beta(6, 2, 900), rng.beta(1, 6, 100)])
        found = novelty_test(rng.beta(6, 2, 1000), target)
        assert found.pvalue < 0.01
        assert found.statistic > found.critical
        assert found.detectable_share < 0.1

    def test_both_statistics_by_hand(self):
        # Twenty rows on each side, all of the target's below the source's. The best threshold is in the
        # middle: the excess is 1, its standard error sqrt(1/4 * (1/20 + 1/20)). The target's score is the
        # lower one in all 400 pairs: 1/2 more than by chance, with the error sqrt(41 / (12 * 400)).
        found = _excesses(np.arange(20.0) + 20, np.arange(20.0), np.ones(20), 20.0, 20.0)
        assert found == pytest.approx([1 / np.sqrt(0.025), 0.5 / np.sqrt(41 / 4800)])

    def test_finds_many_rows_that_overlap_the_known_ones(self):
        # Half of the target scores a little lower, nowhere much more often than the source.
        rng = np.random.default_rng(5)
        hits = []
        for seed in range(20):
            target = np.where(rng.random(600) < 0.5, rng.beta(1, 1.6, 600), rng.random(600))
            hits.append(novelty_test(rng.random(600), target, seed=seed).pvalue <= 0.05)
        assert np.mean(hits) > 0.8

    def test_more_rows_detect_less(self):
        rng = np.random.default_rng(2)
        few = novelty_test(rng.random(100), rng.random(100)).detectable_share
        many = novelty_test(rng.random(5000), rng.random(5000)).detectable_share
        assert many < few / 3

    def test_smallest_detectable_share_is_found_about_four_times_in_five(self):
        rng = np.random.default_rng(3)
        share = novelty_test(rng.random(800), rng.random(800)).detectable_share
        novel = rng.random(800) < share
        hits = []
        for seed in range(40):
            # The novel class as the promise describes it: nine in ten rows below the source's 5 % quantile.
            scores = rng.random(800)
            low = np.where(rng.random(800) < 0.9, 0.05 * rng.random(800), rng.uniform(0.05, 1, 800))
            novel = rng.random(800) < share
            hits.append(novelty_test(rng.random(800), np.where(novel, low, scores), seed=seed).pvalue <= 0.05)
        assert 0.6 <= np.mean(hits) <= 1.0


class TestVerdict:
    def test_worst_consequence_decides(self):
        good = Check("a", 1, 0, True, "fine")
        weak = Check("b", 1, 0, False, "weak", "upper bound only")
        bad = Check("c", 1, 0, False, "bad", "do not trust")
        assert Diagnostics((good,)).verdict.status == "no violation seen"
        assert Diagnostics((good, weak)).verdict.status == "upper bound only"
        verdict = Diagnostics((weak, bad)).verdict
        assert verdict.status == "do not trust"
        assert verdict.reasons == ("weak", "bad")
        assert str(verdict) == "do not trust\n- weak\n- bad"

    def test_clean_problem_is_identified(self):
        X, y, X_target = gaussian(np.random.default_rng(0))
        verdict = trees().fit(X, y, X_target=X_target).diagnostics_.verdict
        assert verdict.status == "no violation seen", verdict

    def test_changed_classes_are_noticed(self):
        X, y, X_target = gaussian(np.random.default_rng(0), shift=1.2)
        verdict = trees().fit(X, y, X_target=X_target).diagnostics_.verdict
        assert verdict.status == "do not trust"

    def test_missing_class_is_noticed_and_named(self):
        X, y, X_target = gaussian(np.random.default_rng(0), missing=True)
        model = trees().fit(X, y, X_target=X_target)
        verdict = model.diagnostics_.verdict
        assert verdict.status == "upper bound only"
        assert any("'0' may be absent" in reason for reason in verdict.reasons)

    def test_shown_without_what_a_check_that_passed_would_mean(self):
        good = Check("sample size", 817, 30, True, "Too few rows to estimate from.")
        bad = Check("convergence", 0.13, 0.1, False, "13% still changed sides.")
        assert repr(Diagnostics((good, bad))) == (
            "Diagnostics: do not trust\n"
            "  sample size: passed (817, limit 30)\n"
            "  convergence: failed (0.13, limit 0.1)"
        )

    def test_unknown_check_name(self):
        with pytest.raises(KeyError, match="nothing of that name"):
            Diagnostics(())["nothing of that name"]


def sure_scores(y, *, wrong=0, sure=0.9):
    """Scores of a classifier that names classes 0 and 1 rightly, but for ``wrong`` rows at the start."""
    labels = y.copy()
    labels[:wrong] = 1 - labels[:wrong]
    proba = np.where(y[:, None] == [0, 1], sure, 1 - sure)
    domain = np.column_stack([proba, np.full(len(y), 0.5)]) / 1.5
    return HeldOutScores(labels, proba, proba, domain, domain)


class TestCause:
    def test_each_cause_is_named(self):
        y = np.arange(400) % 2
        nobody, everybody = np.zeros(400, dtype=bool), np.ones(400, dtype=bool)
        clean, noisy = sure_scores(y), sure_scores(y, wrong=80)
        copied = SharedRows(count=40, share=0.1, by_chance=0.0)
        assert likely_cause(clean, 0.0, nobody).name == "label shift only"
        assert likely_cause(clean, 0.3, nobody).name == "novel class"
        assert likely_cause(clean, 0.3, everybody).name == "changed looks"
        # Of two classes one may be absent, or overlapped by the novel one.
        assert likely_cause(clean, 0.3, y == 0).name == "novel class"
        assert likely_cause(noisy, 0.3, nobody).name == "wrong labels"
        assert likely_cause(noisy, 0.3, everybody, copied).name == "copies"

    def test_copies_by_chance_are_no_leak(self):
        assert leaks(SharedRows(count=10, share=0.05, by_chance=0.02))
        assert not leaks(SharedRows(count=10, share=0.05, by_chance=0.03))
        assert not leaks(SharedRows(count=2, share=0.05, by_chance=0.0))

    def test_errors_of_an_unsure_classifier_are_no_wrong_labels(self):
        # A fifth is wrong in both, but in one of them only where the classifier is unsure.
        y = np.arange(400) % 2
        scores = sure_scores(y, wrong=80)
        unsure = scores.class_source.copy()
        unsure[:200] = 0.5 + (unsure[:200] - 0.5) / 10
        assert wrong_labels(scores)[0] == pytest.approx(0.2)
        assert 0.15 < wrong_labels(scores)[1] < 0.2
        assert wrong_labels(replace(scores, class_source=unsure)) == (0.0, 0.0)

    def test_a_classifier_that_is_mostly_wrong_says_nothing(self):
        assert wrong_labels(sure_scores(np.arange(400) % 2, wrong=240))[1] == 0

    def test_wrong_labels_fail_a_check_and_are_given_as_the_cause(self):
        found = diagnose(sure_scores(np.arange(400) % 2, wrong=80), np.array([0.5, 0.5, 0.0]))
        assert not found["labels agree"].passed
        assert found.verdict.reasons[-1] == "Most likely cause: labels of the source are wrong."

    def test_a_verdict_without_a_violation_names_no_cause(self):
        absent = Check("every class present", 0, 0.002, False, "absent", "upper bound only")
        verdict = Diagnostics((absent,), cause=Cause("novel class")).verdict
        assert verdict.reasons == ("absent",)

    def test_a_fit_with_changed_classes_names_them(self):
        X, y, X_target = gaussian(np.random.default_rng(0), shift=1.2)
        with pytest.warns(TrustWarning, match="look different now"):
            model = trees().fit(X, y, X_target=X_target)
        assert model.diagnostics_.cause.name == "changed looks"


def test_known_probability_is_the_ratio_of_densities():
    # Two score values; source (1/4, 3/4), target (5/8, 3/8), alpha = 1/2: kappa = alpha p_s / p_t = .2 and 1.
    source = np.array([0.1, 0.9, 0.9, 0.9])
    target = np.array([0.1] * 5 + [0.9] * 3)
    kappa_s, kappa_t = known_probability(source, target, np.ones(4), 0.5)
    np.testing.assert_allclose(kappa_s, [0.2, 1, 1, 1])
    np.testing.assert_allclose(kappa_t, [0.2] * 5 + [1] * 3)


def test_diagnose_takes_scores_of_one_discriminator():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    classes = np.where(y[:, None] == [0, 1], 0.9, 0.1)
    domain_t = np.concatenate([rng.beta(8, 2, 300), rng.beta(2, 8, 100)])
    scores = HeldOutScores(y, classes, np.full((400, 2), 0.5), rng.beta(8, 2, 400), domain_t)
    found = diagnose(scores, np.array([0.35, 0.4, 0.25]))
    assert found["source rows accepted"].passed
    shares, ratios = found.curves["top bin"]
    assert shares.shape == ratios.shape
    assert shares[-1] == pytest.approx(1)


class TestPresence:
    """Of 400 target rows, a class is estimated at ``rows`` of them, and its interval starts at ``low``."""

    def check(self, rows: float, low: float) -> Check:
        share = rows / 400
        interval = np.array([[low, 2 * share], [0.4, 1.0], [0.0, 0.1]])
        scores = sure_scores(np.arange(400) % 2)
        return diagnose(scores, np.array([share, 1 - share, 0.0]), interval)["every class present"]

    def test_an_estimate_of_a_few_rows_may_be_none(self):
        assert not self.check(rows=4, low=0.0).passed

    def test_an_uncertain_share_is_not_absence(self):
        assert self.check(rows=12, low=0.0).passed

    def test_a_few_rows_that_are_certain_are_there(self):
        assert self.check(rows=4, low=0.0075).passed


class TestOverlap:
    """Scores of a domain model: source rows of class 1 lie where half of the novel rows lie."""

    def scores(self, rejected: int) -> HeldOutScores:
        y = np.repeat([0, 1], 100)
        source = np.full(200, 0.9)
        source[100 : 100 + rejected] = 0.1
        target = np.concatenate([np.full(200, 0.9), np.full(200, 0.1)])
        classes = np.where(y[:, None] == [0, 1], 0.9, 0.1)
        return HeldOutScores(y, classes, np.full((400, 2), 0.5), source, target)

    def test_a_class_that_is_mostly_rejected_is_named(self):
        found = diagnose(self.scores(rejected=70), np.array([0.25, 0.25, 0.5]), class_names=["cat", "dog"])
        check = found["every class accepted"]
        assert check.value == pytest.approx(0.7)
        assert not check.passed
        assert "'dog'" in check.message
        assert found.verdict.status != "no violation seen"

    def test_more_may_be_rejected_where_known_classes_are_confused(self):
        # Seventy of the rows of class 1 are called novel; thirty of them are taken for class 0 as well.
        scores = self.scores(rejected=70)
        confused = scores.class_source.copy()
        confused[100:130] = [0.9, 0.1]
        check = diagnose(replace(scores, class_source=confused), np.array([0.25, 0.25, 0.5]))[
            "every class accepted"
        ]
        assert check.limit == pytest.approx(0.65 + 0.3)
        assert check.passed

    def test_separate_classes_pass(self):
        found = diagnose(self.scores(rejected=0), np.array([0.25, 0.25, 0.5]))
        assert found["every class accepted"].value == 0

    def test_one_class_that_the_novel_one_overlaps_is_no_change_of_looks(self):
        # Of three classes one loses all its rows to the novel class: the median class loses none.
        y = np.repeat([0, 1, 2], 100)
        source = np.where(y == 2, 0.1, 0.9)
        target = np.concatenate([np.full(200, 0.9), np.full(200, 0.1)])
        classes = np.where(y[:, None] == [0, 1, 2], 0.9, 0.05)
        scores = HeldOutScores(y, classes, np.full((400, 3), 1 / 3), source, target)
        found = diagnose(scores, np.array([0.25, 0.25, 0.0, 0.5]))
        assert found["source rows accepted"].value == 0
        assert found.cause.name == "novel class"

    def test_most_classes_that_lose_rows_have_changed(self):
        # Four in ten rows of either class are called novel; a fifth of all is confused, which is allowed for.
        y = np.repeat([0, 1], 100)
        source = np.where(np.arange(200) % 10 < 4, 0.1, 0.9)
        target = np.concatenate([np.full(200, 0.9), np.full(200, 0.1)])
        wrong = np.arange(200) % 5 == 0
        sure = np.where(wrong, 0.4, 0.9)[:, None]
        classes = np.where(y[:, None] == [0, 1], sure, 1 - sure)
        scores = HeldOutScores(y, classes, np.full((400, 2), 0.5), source, target)
        found = diagnose(scores, np.array([0.25, 0.25, 0.5]))
        check = found["source rows accepted"]
        assert (check.value, check.limit) == (pytest.approx(0.4), pytest.approx(0.25 + 0.5 * 0.2))
        assert not check.passed
        assert found.verdict.status == "do not trust"
        assert found.cause.name == "changed looks"

    def test_a_significant_but_tiny_difference_passes(self):
        # Rows apart by a seventieth of their spread: z is large, the area .504.
        rng = np.random.default_rng(0)
        n = 400_000
        classes = np.full((n, 1), 1.0)
        source, target = expit(rng.normal(0.015, 1, n)), expit(rng.normal(0, 1, n))
        scores = HeldOutScores(np.zeros(n, dtype=int), classes, classes, source, target)
        check = diagnose(scores, np.array([1.0, 0.0]))["accepted rows alike"]
        assert check.value > check.limit
        assert check.passed


def test_pooled_folds_need_a_larger_excess():
    rng = np.random.default_rng(0)
    source = rng.random(800)
    target = np.concatenate([rng.random(760), 0.05 * rng.random(40)])
    fresh, pooled = (novelty_test(source, target, cross_fitted=folds) for folds in (False, True))
    assert pooled.statistic == pytest.approx(fresh.statistic / 1.2)
    assert pooled.pvalue >= fresh.pvalue
    assert pooled.detectable_share > fresh.detectable_share


class TestJointRange:
    """Two classes and something new, told apart without error by a (k+1)-way model."""

    def draw(self, rng, n, m, mix):
        proba = np.array([[0.6, 0.0, 0.4], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]])
        y, y_target = np.repeat([0, 1], n), rng.choice(3, m, p=mix)
        return proba[y], y, proba[y_target]

    def test_hand_computed(self):
        # Every row of a class is in its bin; with slack e the programme reads, for class 0 alone,
        # pi (1 - e_s) <= .5 + e_t and pi (1 + e_s) + pi' e_s >= .5 - e_t.
        proba = np.array([[0.6, 0.4], [0.0, 1.0]])
        source, target = proba[np.zeros(2000, dtype=int)], proba[np.repeat([0, 1], 1000)]
        low, high = joint_range(source, np.zeros(2000, dtype=int), target, level=0.9)[0]
        slack = np.sqrt(np.log(2 * 1 * 2 / 0.1) / 4000)
        assert high == pytest.approx((0.5 + slack) / (1 - slack))
        assert low == pytest.approx((0.5 - slack) / (1 + slack))

    def test_all_shares_at_once(self):
        rng = np.random.default_rng(0)
        mix = np.array([0.3, 0.2, 0.5])
        for _ in range(20):
            bounds = joint_range(*self.draw(rng, 1000, 3000, mix))
            assert ((bounds[:, 0] <= mix) & (mix <= bounds[:, 1])).all()
            assert np.diff(bounds).max() < 0.3

    def test_contradictory_bins_leave_upper_ends(self):
        # The source rows of class 0 are half in the bin of class 1, which the target hardly visits.
        y = np.repeat([0, 1], 4000)
        source = np.array([[0.6, 0.0, 0.4], [0.0, 0.6, 0.4]])[np.where(np.arange(8000) < 2000, 0, 1)]
        target = np.array([[0.6, 0.0, 0.4]])[np.zeros(8000, dtype=int)]
        bounds = joint_range(source, y, target)
        assert (bounds[:2, 0] == 0).all()
        assert bounds[2, 1] == 1
        assert bounds[1, 1] < 0.1

    def test_pulse_reports_it(self):
        X, y, X_target = gaussian(np.random.default_rng(0))
        model = trees().fit(X, y, X_target=X_target)
        assert model.marginal_bound_.shape == (4, 2)
        assert (model.marginal_bound_[:, 0] <= model.target_marginal_).all()
        assert (model.target_marginal_ <= model.marginal_bound_[:, 1]).all()


def test_a_share_that_was_not_found_keeps_its_upper_end():
    # So few novel rows that the test does not reject: the answer is zero, but not "at most about zero".
    X, y, X_target = gaussian(np.random.default_rng(1), novel=False, rows=500)
    rng = np.random.default_rng(2)
    new = np.eye(4, 5)[3] * 6 + rng.normal(size=(12, 5))
    X_target = np.vstack([X_target, new])
    model = trees(novel_level=1e-4).fit(X, y, X_target=X_target)
    assert model.novel_prevalence_ == 0
    low, high = model.novel_interval_
    assert low == 0
    assert high > len(new) / len(X_target)


class TestCopies:
    """Rows that are copies of each other share a fold; rows that stand on both sides are named."""

    def test_equal_rows_have_equal_hashes_dense_and_sparse(self):
        rng = np.random.default_rng(0)
        X = np.where(rng.random((60, 30)) < 0.4, rng.normal(size=(60, 30)), 0.0)
        X[40:] = X[:20]
        X[3], X[43] = -0.0, 0.0
        dense, thin = copies_among(X[:30], X[30:]), copies_among(csr_matrix(X[:30]), csr_matrix(X[30:]))
        assert (dense == thin).all()
        assert (dense == np.append(np.arange(40), np.arange(20))).all()

    def test_rows_of_a_few_categories_are_no_copies(self):
        rows = np.random.default_rng(0).integers(2, size=(300, 4)).astype(float)
        assert (copies_among(rows) == np.arange(300)).all()

    @given(st.integers(0, 10_000), st.integers(2, 6))
    def test_copies_share_a_fold_and_no_stratum_vanishes(self, seed, n_folds):
        rng = np.random.default_rng(seed)
        strata = np.sort(rng.integers(3, size=40))
        copy_of = np.arange(40)
        copy_of[rng.integers(40, size=6)] = 0
        copy_of[0] = 0
        fold = assign_folds(strata, n_folds, rng, copy_of)
        for value in np.unique(strata):
            assert len(np.unique(fold[strata == value])) > 1 or np.sum(strata == value) == 1
        free = strata != strata[0]
        assert len(np.unique(fold[(copy_of == 0) & free])) <= 1 + len(np.unique(strata[free]))

    def test_shared_rows_are_counted_and_shown(self):
        X = np.random.default_rng(1).normal(size=(50, 3))
        found = shared_rows(copies_among(X, np.vstack([X[7:12], X[:45] + 1])), 50)
        assert (found.count, found.share, found.by_chance, found.example) == (5, 0.1, 0.0, (7, 0))

    def test_a_target_of_source_rows_is_not_trusted(self):
        rng = np.random.default_rng(2)
        y = np.repeat([0, 1], 150)
        X = rng.normal(size=(300, 4)) + 3 * y[:, None]
        target = np.vstack([X[::3], rng.normal(size=(60, 4)) - 6])
        with pytest.warns(TrustWarning, match="are copies of source rows"):
            model = quick_pulse().fit(X, y, X_target=target)
        check = model.diagnostics_["rows on one side only"]
        assert not check.passed
        assert check.value == pytest.approx(100 / 160)
        low, high = model.novel_bound_
        assert high - low > 0.1

    def test_few_labelled_rows_fail_a_check(self):
        scores = HeldOutScores(
            np.repeat([0, 1], [12, 60]), np.full((72, 2), 0.5), np.full((9, 2), 0.5), np.ones(72), np.ones(9)
        )
        check = diagnose(scores, np.array([0.5, 0.5, 0.0]), class_names=["rare", "common"])["labelled rows"]
        assert not check.passed
        assert "'rare' has 12 labelled rows" in check.message


@pytest.fixture(scope="module")
def digits_fit():
    X, y = load_digits(return_X_y=True)
    problem = simulate_osls(X, y, novel=[8, 9], test_size=0.3, random_state=0)
    return problem, trees().fit(**problem.training_data())


class TestPredictionSets:
    def test_known_classes_are_covered_and_novel_rows_hold_novel(self, digits_fit):
        problem, model = digits_fit
        sets = model.predict_set(problem.X_test, level=0.9)
        column = {label: j for j, label in enumerate(model.classes_.tolist())}
        truth = np.array([column[label] for label in problem.y_test.tolist()])
        held = sets[np.arange(len(truth)), truth]
        known = truth < len(model.classes_) - 1
        assert held[known].mean() > 0.82
        assert held[~known].mean() > 0.7
        # Without the novel class most rows have one label.
        assert 0.8 < sets[known].sum(axis=1).mean() < 1.6

    def test_sets_grow_with_the_level(self, digits_fit):
        problem, model = digits_fit
        small, large = (model.predict_set(problem.X_test[:200], level=level) for level in (0.6, 0.97))
        assert (large | ~small).all()
        assert large.sum() > small.sum()

    @pytest.mark.parametrize("level", [0.0, 1.0, 1.5, "0.9", None])
    def test_levels_outside_the_open_interval_are_refused(self, digits_fit, level):
        with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
            digits_fit[1].predict_set(digits_fit[0].X_test, level=level)

    def test_a_saved_model_gives_the_same_sets(self, digits_fit, tmp_path):
        problem, model = digits_fit
        model.save(tmp_path / "model")
        again = osls.load(tmp_path / "model")
        assert (again.predict_set(problem.X_test[:50]) == model.predict_set(problem.X_test[:50])).all()
        assert again.expected_accuracy_.overall == model.expected_accuracy_.overall

    def test_the_limit_is_the_conformal_quantile(self):
        # Nine held-out rows: at a level of .8 the second smallest of ten, counting the new one.
        y, scores = np.zeros(9, dtype=int), np.arange(1, 10) / 10
        sets = PredictionSets.learn(y, np.column_stack([scores, 1 - scores]), np.array([[1.0, 0.0]]))
        rows = np.array([[0.15, 0.0], [0.2, 0.0]])
        assert sets.of(rows, 0.8)[:, 0].tolist() == [False, True]
        # Too few rows to leave anything out at a level of .95; nothing novel was found.
        assert sets.of(rows, 0.95).tolist() == [[True, False], [True, False]]

    @given(st.integers(0, 1000), st.integers(5, 60))
    def test_the_guarantee_holds_on_average_for_any_scores(self, seed, n):
        rng = np.random.default_rng(seed)
        calibration, new = rng.beta(2, 1, size=(200, n)), rng.beta(2, 1, size=200)
        held = [
            PredictionSets.learn(
                np.zeros(n, dtype=int), np.column_stack([row, 1 - row]), np.array([[1.0, 0.0]])
            ).of(np.array([[value, 0.0]]), 0.9)[0, 0]
            for row, value in zip(calibration, new, strict=True)
        ]
        assert np.mean(held) > 0.82


class TestExpectedAccuracy:
    def test_it_is_near_the_truth_without_labels(self, digits_fit):
        problem, model = digits_fit
        truth = np.mean(model.target_labels_ == problem.y_target)
        found = model.expected_accuracy_
        assert abs(found.overall - truth) < 0.08
        assert found.interval[0] <= truth <= found.interval[1]
        assert 0.01 < np.diff(found.interval)[0] < 0.25
        assert found.by_class.shape == (9,)
        # The mean over possible mixes, so not quite what the estimated mix alone gives.
        assert found.overall == pytest.approx(found.by_class @ model.target_marginal_, abs=0.03)

    def test_the_source_classifier_is_wrong_on_every_novel_row(self, digits_fit):
        problem, model = digits_fit
        found = model.source_expected_accuracy_
        assert found.by_class[-1] == 0
        assert found.overall < model.expected_accuracy_.overall
        assert found.overall == pytest.approx(1 - problem.target_marginal[-1], abs=0.08)
        assert str(found).startswith(f"{found.overall:.3f} (")


class TestCopiesCountOnce:
    """Copies of a row say as much as the row."""

    def scores(self, rng, twice):
        n, m = 200, 150
        y = np.arange(n) % 2
        classes = rng.dirichlet([1, 1], n + m)
        joint = rng.dirichlet([1, 1, 1], n + m)
        rows = np.repeat(np.arange(m), 2 if twice else 1)
        copies = (np.arange(n), n + rows) if twice else None
        return HeldOutScores(y, classes[:n], classes[n:][rows], joint[:n], joint[n:][rows], copies=copies)

    def test_sizes_count_them_once(self):
        one, two = (self.scores(np.random.default_rng(0), twice) for twice in (False, True))
        assert len(two.class_target) == 300
        assert two.sizes(one.source_marginal) == pytest.approx(one.sizes(one.source_marginal)) == (200, 150)

    def test_a_copy_that_stands_three_times_among_single_rows_by_hand(self):
        # Sums of 3, 1 and 1: (3 + 1 + 1)^2 / (9 + 1 + 1).
        proba = np.full((5, 1), 1.0)
        copies = (np.arange(5), np.array([7, 7, 8, 7, 9]))
        scores = HeldOutScores(np.zeros(5, dtype=int), proba, proba, proba, proba, copies=copies)
        assert scores.sizes(np.ones(1)) == pytest.approx((5, 25 / 11))

    def test_they_are_drawn_together(self):
        drawn = []

        def estimate(source, target):
            drawn.append(target)
            return np.zeros(2)

        copies = (np.arange(4), np.array([5, 6, 5, 6, 7, 7]))
        rng = np.random.default_rng(0)
        bootstrap_mix(estimate, np.zeros(4, dtype=int), 6, repeats=50, rng=rng, copies=copies)
        counts = np.array([np.bincount(target, minlength=6) for target in drawn])
        assert np.array_equal(counts[:, [0, 1, 4]], counts[:, [2, 3, 5]])
        assert counts.sum() == 50 * 6
        assert counts.std() > 0

    def test_a_target_that_stands_twice_is_as_uncertain_and_as_hard_to_test(self):
        one, two = (self.scores(np.random.default_rng(1), twice) for twice in (False, True))
        estimator = MixFromScores()
        spreads = []
        for scores in (one, two):
            drawn, _ = estimator.replicates(scores, [], repeats=200, rng=np.random.default_rng(0))
            spreads.append(drawn.std(axis=0)[-1])
        assert spreads[1] == pytest.approx(spreads[0], rel=0.25)
        assert estimator.test(one, 0.05).pvalue == estimator.test(two, 0.05).pvalue


@pytest.mark.parametrize(
    ("recipe", "corrected"), [("cross-fit", True), ("fine-tune", False), ("paper", False)]
)
def test_only_a_cross_fitted_share_is_corrected_for_what_hides(recipe, corrected):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 150)
    # The source classifier is right about four of five rows.
    class_source = np.eye(2)[np.where(np.arange(300) % 5 == 0, 1 - y, y)]
    known, target = rng.beta(6, 2, 300), np.append(rng.beta(6, 2, 200), rng.beta(1, 6, 100))
    scores = HeldOutScores(y, class_source, class_source, known, target)
    marginal = np.array([0.5, 0.5])
    plain = 1 - osls.mixture.BBE().fit(known, target, np.ones(300)).alpha_
    # .45 of the error rate of .2, with 300 rows.
    expected = 1 - (1 - plain) * 0.91 if corrected else plain
    assert MixFromScores.of(recipe, "auto", None).novel_share(scores, marginal) == pytest.approx(expected)


@pytest.mark.parametrize("rounds", [1, 2])
def test_one_round_cannot_be_unsettled(rounds):
    rng = np.random.default_rng(0)
    # So much overlap that the second round moves rows, too.
    X, y = rng.normal(size=(300, 2)) + 2 * np.eye(2)[np.repeat([0, 1], 150)], np.repeat([0, 1], 150)
    X_target = np.concatenate([X + rng.normal(size=X.shape) / 10, rng.normal(size=(150, 2)) - 1.5])
    model = trees(rounds=rounds).fit(X, y, X_target=X_target)
    assert sum("changed" in entry for entry in model.history_) == rounds
    assert ("convergence" in {check.name for check in model.diagnostics_.checks}) == (rounds == 2)
