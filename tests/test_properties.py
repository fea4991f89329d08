"""What holds for all inputs: invariances of the estimators, rows of the simulator, copies through files.

``make fuzz`` runs each of these ten thousand times.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from conftest import ESTIMATORS, examples
from osls import load
from osls.app.files import read_table
from osls.app.predict import write_predictions
from osls.datasets import simulate_osls
from osls.mixture import BBE, ElkanNoto, Regroup, Subsample, bbe_by_class
from osls.persist import save
from osls.shift import BBSE, MLLS, RLLS

GRID = 40
grid_scores = st.lists(st.integers(0, GRID), min_size=1, max_size=60).map(np.array)
scores = grid_scores.map(lambda values: values / GRID)
shuffles = st.randoms(use_true_random=False)


def keep_half(score):
    return np.full(len(score), 0.5)


every = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
# These read the order of the scores and nothing else. Subsample does if what it keeps does not depend on the
# score; an acceptance of the caller's would have to be transformed with it.
BY_ORDER = {"bbe": BBE(), "regroup": Regroup(), "subsample": Subsample(keep_half)}


@st.composite
def rising_tables(draw):
    """A strictly rising function on the grid: its values from 0 to GRID, anywhere between -1e6 and 1e6."""
    steps = draw(st.lists(st.integers(1, 10**6), min_size=GRID + 1, max_size=GRID + 1))
    return draw(st.integers(-(10**6), 0)) + np.cumsum(steps) / draw(st.integers(1, 1000))


class TestMixture:
    @pytest.mark.parametrize("estimator", BY_ORDER.values(), ids=BY_ORDER)
    @examples(30, cases=len(BY_ORDER))
    @given(positive=grid_scores, unlabeled=grid_scores, table=rising_tables())
    def test_rising_transformations_change_nothing(self, estimator, positive, unlabeled, table):
        alpha = clone(estimator).fit(positive, unlabeled).alpha_
        assert clone(estimator).fit(table[positive], table[unlabeled]).alpha_ == alpha

    @pytest.mark.parametrize("name", ["dedpul", "elkan-noto", "mean", "max", "regroup-dedpul"])
    def test_those_that_read_probabilities_are_not_invariant(self, name):
        """DEDPUL smooths densities of logits and Elkan-Noto averages: squaring the scores moves both."""
        rng = np.random.default_rng(0)
        positive, unlabeled = rng.beta(6, 2, 500), np.r_[rng.beta(6, 2, 250), rng.beta(2, 6, 250)]
        plain = clone(ESTIMATORS[name]).fit(positive, unlabeled).alpha_
        squared = clone(ESTIMATORS[name]).fit(positive**2, unlabeled**2).alpha_
        assert abs(plain - squared) > 1e-3

    @examples(30)
    @given(positive=scores, unlabeled=scores, factor=st.floats(0.1, 1))
    def test_elkan_notos_ratio_does_not_depend_on_the_scale(self, positive, unlabeled, factor):
        alpha = ElkanNoto().fit(positive, unlabeled).alpha_
        assert ElkanNoto().fit(factor * positive, factor * unlabeled).alpha_ == pytest.approx(alpha)

    @every
    @examples(20, cases=len(ESTIMATORS))
    @given(positive=scores, unlabeled=scores, random=shuffles)
    def test_alpha_is_a_share_whatever_the_order(self, estimator, positive, unlabeled, random):
        alpha = clone(estimator).fit(positive, unlabeled).alpha_
        order = np.array(random.sample(range(len(positive)), len(positive)))
        assert 0 <= alpha <= 1
        assert clone(estimator).fit(positive[order], unlabeled[::-1]).alpha_ == pytest.approx(alpha, abs=1e-9)

    @pytest.mark.parametrize("name", ["bbe", "dedpul", "elkan-noto", "mean", "max", "regroup-dedpul"])
    @examples(15, cases=6)
    @given(positive=scores, unlabeled=scores, power=st.integers(-10, 10))
    def test_only_the_ratios_of_weights_matter(self, name, positive, unlabeled, power):
        weight = np.linspace(0.5, 1.5, len(positive))
        one = clone(ESTIMATORS[name]).fit(positive, unlabeled, weight).alpha_
        # A power of two scales without rounding, which could decide between two bins that are equally good.
        assert clone(ESTIMATORS[name]).fit(positive, unlabeled, 2.0**power * weight).alpha_ == one

    @pytest.mark.parametrize("form", ["ratio", "mean", "max"])
    @examples(20, cases=3)
    @given(positive=scores, unlabeled=scores, times=st.integers(2, 5))
    def test_elkan_noto_does_not_see_duplication(self, form, positive, unlabeled, times):
        plain = ElkanNoto(form).fit(positive, unlabeled).alpha_
        copied = ElkanNoto(form).fit(np.repeat(positive, times), np.tile(unlabeled, times)).alpha_
        assert copied == pytest.approx(plain, abs=1e-12)

    @examples(30)
    @given(positive=scores, unlabeled=scores, times=st.integers(2, 5))
    def test_duplication_leaves_the_bins_of_bbe_and_narrows_its_bound(self, positive, unlabeled, times):
        """More rows mean more confidence, so another bin may be the best; the bins are the same.

        DEDPUL follows the ratio at as many quantiles as there are rows, Regroup moves a whole number of rows
        and Subsample draws: to none of them are copies exactly nothing.
        """
        plain = BBE().fit(positive, unlabeled)
        copied = BBE().fit(np.repeat(positive, times), np.tile(unlabeled, times))
        np.testing.assert_allclose(copied.curve_.ratio, plain.curve_.ratio)
        np.testing.assert_array_equal(copied.curve_.threshold, plain.curve_.threshold)
        assert copied.upper_bound_ <= plain.upper_bound_

    @every
    @examples(10, cases=len(ESTIMATORS))
    @given(positive=scores, unlabeled=scores, times=st.integers(2, 4))
    def test_duplication_leaves_a_share(self, estimator, positive, unlabeled, times):
        alpha = clone(estimator).fit(np.repeat(positive, times), np.tile(unlabeled, times)).alpha_
        assert 0 <= alpha <= 1

    @examples(20)
    @given(seed=st.integers(0, 10**6), k=st.integers(2, 5), random=shuffles)
    def test_best_bins_by_class_follow_the_order_of_the_classes(self, seed, k, random):
        rng = np.random.default_rng(seed)
        y = np.repeat(np.arange(k), 8)
        source, target = rng.dirichlet(np.ones(k), len(y)), rng.dirichlet(np.ones(k), 30)
        order = np.array(random.sample(range(k), k))
        plain = bbe_by_class(source, y, target).alpha
        moved = bbe_by_class(source[:, order], np.argsort(order)[y], target[:, order]).alpha
        np.testing.assert_array_equal(moved, plain[order])


class TestShift:
    @pytest.mark.parametrize("estimator", [BBSE(), RLLS(), MLLS()], ids=["bbse", "rlls", "mlls"])
    @examples(10, cases=3)
    @given(seed=st.integers(0, 10**6), k=st.integers(2, 4), random=shuffles)
    def test_the_mix_is_a_distribution_and_follows_the_classes(self, estimator, seed, k, random):
        rng = np.random.default_rng(seed)
        y = np.repeat(np.arange(k), 10)
        source = 0.7 * np.eye(k)[y] + 0.3 * rng.dirichlet(np.ones(k), len(y))
        target = 0.7 * np.eye(k)[rng.integers(k, size=40)] + 0.3 * rng.dirichlet(np.ones(k), 40)
        plain = clone(estimator).fit(source, y, target).target_marginal_
        order = np.array(random.sample(range(k), k))
        moved = clone(estimator).fit(source[:, order], np.argsort(order)[y], target[:, order])
        assert plain.min() >= 0
        assert plain.sum() == pytest.approx(1)
        np.testing.assert_allclose(moved.target_marginal_, plain[order], atol=1e-3)


# -- The simulator ----------------------------------------------------------------------------------


@st.composite
def labelled_sets(draw):
    sizes = draw(st.lists(st.integers(4, 30), min_size=2, max_size=6))
    y = np.repeat(np.arange(len(sizes)), sizes)
    novel = draw(st.integers(0, len(sizes) - 1))
    return y[draw(st.permutations(range(len(y))))], novel


def parts_of(problem):
    return (
        (problem.X_source, problem.y_source),
        (problem.X_target, problem.y_target),
        (problem.X_test, problem.y_test),
    )


class TestSimulator:
    @examples(60)
    @given(data=labelled_sets(), seed=st.integers(0, 10**6), test_size=st.floats(0, 0.9))
    def test_rows_are_conserved_with_their_labels(self, data, seed, test_size):
        y, novel = data
        rows = np.arange(float(len(y)))[:, None]
        try:
            p = simulate_osls(rows, y, novel=novel, test_size=test_size, random_state=seed)
        except ValueError as error:
            if "source or target came out empty" not in str(error):
                raise
            return
        everywhere = np.concatenate([X for X, _ in parts_of(p)]).ravel()
        assert sorted(everywhere) == list(range(len(y)))
        assert len(p.classes) == len(set(y)) - novel
        for X, labels in parts_of(p):
            truth = y[X.ravel().astype(int)]
            np.testing.assert_array_equal(labels, np.where(np.isin(truth, p.classes), truth, -1))
        assert set(p.y_source) == set(p.classes)
        assert p.source_marginal.sum() == pytest.approx(1)
        assert p.target_marginal.sum() == pytest.approx(1)
        assert p.target_marginal[-1] == np.mean(p.y_target == -1)

    @examples(40)
    @given(
        data=labelled_sets(),
        seed=st.integers(0, 10**6),
        weights=st.lists(st.integers(1, 9), min_size=7, max_size=7),
    )
    def test_wanted_mixes_use_no_row_twice(self, data, seed, weights):
        y, novel = data
        k = len(set(y)) - novel
        target = np.array(weights[: k + 1], dtype=float)
        target[-1] *= novel > 0
        rows = np.arange(float(len(y)))[:, None]
        try:
            p = simulate_osls(rows, y, novel=novel, target_marginal=target / target.sum(), random_state=seed)
        except ValueError as error:
            if "came out empty" not in str(error) and "target_marginal" not in str(error):
                raise
            return
        everywhere = np.concatenate([X for X, _ in parts_of(p)]).ravel()
        assert len(set(everywhere)) == len(everywhere) <= len(y)


# -- Files ------------------------------------------------------------------------------------------

# What UTF-8 can hold; a zero byte makes a file one that is not text.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
headers = texts.map(str.strip).filter(lambda word: word not in ("", "\ufeff", "p", "predicted"))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


class TestRoundTrips:
    @pytest.mark.parametrize("name", ["bbe", "dedpul", "elkan-noto", "regroup"])
    @examples(5, cases=4)
    @given(positive=scores, unlabeled=scores)
    def test_saved_estimators_know_what_they_knew(self, name, positive, unlabeled, scratch):
        fitted = clone(ESTIMATORS[name]).fit(positive, unlabeled)
        save(fitted, scratch / name)
        again = load(scratch / name)
        assert again.alpha_ == fitted.alpha_
        assert again.interval(n_boot=3) == fitted.interval(n_boot=3)

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    @examples(25, cases=2)
    @given(data=st.data(), header=headers)
    def test_what_is_written_is_read(self, suffix, data, header, scratch):
        """Predictions: strings with any letters, and numbers to the last digit."""
        n = data.draw(st.integers(1, 4))
        words = [data.draw(texts) for _ in range(n)]
        shares = [data.draw(st.floats(0, 1)) for _ in range(n)]
        frame = pd.DataFrame({header: words, "p": shares, "predicted": "x"})
        path = scratch / f"round{suffix}"
        path.unlink(missing_ok=True)
        write_predictions([frame], path)
        found = read_table(path)
        assert list(found.columns) == list(frame.columns)
        assert found["p"].astype(float).tolist() == shares
        if suffix == ".parquet":
            assert found[header].tolist() == words
