"""Weights of labelled rows, from a formula to a whole fit."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import FOREST
from osls import PULSE
from osls.baselines import SourceOnly
from osls.inference.expected_accuracy import expected_accuracy
from osls.inference.prediction_sets import PredictionSets
from osls.mixture import bbe_by_class
from osls.shift.calibration import fit_calibrator, fit_pool, fit_temperature
from osls.shift.joint import joint_estimate
from osls.shift.scores import HeldOutScores

QUICK = {"source_classifier": FOREST, "discriminator": FOREST, "n_folds": 3, "rounds": 1, "n_bootstrap": 10}


@pytest.fixture(scope="module")
def lopsided():
    """Class "a" has two parts of equal size, of which the labels hold one four times as often."""
    rng = np.random.default_rng(0)

    def rows(*parts):
        centres = np.repeat([[0, 0], [0, 8], [8, 0], [8, 8]], parts, axis=0)
        return rng.normal(size=(len(centres), 2)) + centres

    X = rows(240, 60, 150, 0)
    y = np.repeat(["a", "b"], [300, 150])
    weight = np.repeat([1.0, 4.0, 1.6], [240, 60, 150])
    return X, y, weight, rows(100, 100, 100, 100)


def fit(problem, sample_weight=None, **parameters) -> PULSE:
    X, y, _, target = problem
    model = PULSE(random_state=0, **QUICK | parameters)
    return model.fit(X, y, X_target=target, sample_weight=sample_weight)


class TestFormulas:
    """A row of weight 3 says what three rows do."""

    y = np.array([0, 0, 0, 1, 1])
    weight = np.array([3.0, 1.0, 1.0, 1.0, 1.0])
    proba = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]])
    repeated = np.array([0, 0, 0, 1, 2, 3, 4])

    def scores(self, rows=None, weight=None):
        rows = np.arange(5) if rows is None else rows
        joint = np.column_stack([self.proba, np.full(5, 0.5)])
        return HeldOutScores(self.y[rows], self.proba[rows], self.proba, joint[rows], joint, weight)

    def test_of_held_out_scores(self):
        weighted, repeated = self.scores(weight=self.weight), self.scores(self.repeated)
        np.testing.assert_allclose(weighted.source_marginal, [5 / 7, 2 / 7])
        np.testing.assert_allclose(repeated.source_marginal, [5 / 7, 2 / 7])
        assert weighted.accuracy == pytest.approx(6 / 7)
        np.testing.assert_allclose(weighted.by_class(self.proba[:, 0]), [3.6 / 5, 0.15])
        # Of the mix (.5, .5), class 0 has .5 in five parts, of which the first row has three.
        np.testing.assert_allclose(weighted.weights(np.array([0.5, 0.5])) / 7, [0.3, 0.1, 0.1, 0.25, 0.25])
        np.testing.assert_array_equal(weighted.take(np.array([0, 4]), np.arange(2)).weight, [3.0, 1.0])

    def test_of_bins(self):
        rng = np.random.default_rng(0)
        y, weight = np.arange(60) % 2, rng.integers(1, 4, 60)
        source, target = rng.random((60, 2)), rng.random((80, 2))
        weighted = bbe_by_class(source, y, target, weight.astype(float))
        for j in range(2):
            mine = y == j
            share = np.average(source[mine, j] >= weighted.threshold[j], weights=weight[mine])
            ratio = np.mean(target[:, j] >= weighted.threshold[j]) / share
            assert weighted.alpha[j] == pytest.approx(min(1.0, ratio))

    def test_of_the_joint_estimate(self):
        scores = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
        y, rows = np.repeat([0, 1], 60), np.repeat([0, 1, 2], [30, 50, 20])
        found = joint_estimate(scores[y], y, scores[rows], np.tile([1.0, 3.0], 60)).mix
        np.testing.assert_allclose(found, [0.3, 0.5], atol=1e-6)

    def test_of_temperatures(self):
        weighted = fit_temperature(self.proba, self.y, self.weight)
        assert weighted == pytest.approx(fit_temperature(self.proba[self.repeated], self.y[self.repeated]))

    def test_of_biases(self):
        weighted = fit_calibrator(self.proba, self.y, "bcts", self.weight)
        repeated = fit_calibrator(self.proba[self.repeated], self.y[self.repeated], "bcts")
        np.testing.assert_allclose(weighted(self.proba), repeated(self.proba), atol=1e-4)

    def test_of_pools(self):
        other = self.proba[::-1]
        weighted = fit_pool(self.proba, other, self.y, self.weight)
        rows = self.repeated
        assert weighted == pytest.approx(
            fit_pool(self.proba[rows], other[rows], self.y[rows], np.ones(len(rows))), abs=1e-3
        )

    def test_of_prediction_sets(self):
        # Two rows of class 0, of which the unsure one stands for nineteen of twenty.
        y, weight = np.zeros(40, dtype=int), np.tile([1.0, 19.0], 20)
        proba = np.column_stack([np.tile([0.9, 0.2], 20), np.tile([0.1, 0.8], 20)])
        target = np.array([[0.3, 0.7]])
        plain, weighted = (PredictionSets.learn(y, proba, target, w) for w in (None, weight))
        assert len(plain.known[0]) == 40
        assert len(weighted.known[0]) == int(400**2 / (20 * (1 + 19**2)))
        assert np.mean(weighted.known[0] == 0.2) > 0.9

    def test_of_expected_accuracy(self):
        mix, answers = np.array([0.5, 0.5, 0.0]), np.array([0, 0, 1, 1, 1])
        found = expected_accuracy(
            self.y,
            answers,
            answers,
            mix,
            np.column_stack([mix, mix]),
            level=0.95,
            rng=np.random.default_rng(0),
            weight=self.weight,
        )
        # Of class 0, rows of weight 3 and 1 of 5 are right.
        np.testing.assert_allclose(found.by_class[:2], [0.8, 1.0])
        assert found.overall == pytest.approx(0.9)


class TestFits:
    def test_weights_put_back_what_was_sampled_rarely(self, lopsided):
        plain, weighted = fit(lopsided), fit(lopsided, lopsided[2])
        truth = np.array([0.5, 0.25, 0.25])
        off_plain, off_weighted = (
            np.abs(model.target_marginal_ - truth).sum() for model in (plain, weighted)
        )
        assert off_weighted < 0.1 < off_plain
        # The mix of the source is that of the weights: 480 of 720 are "a".
        np.testing.assert_allclose(
            weighted.importance_weights_ * [480 / 720, 240 / 720], [2 / 3, 1 / 3], atol=0.05
        )

    def test_equal_weights_change_nothing(self, lopsided):
        plain, weighted = fit(lopsided), fit(lopsided, np.full(450, 7.0))
        np.testing.assert_allclose(weighted.target_proba_, plain.target_proba_, atol=1e-12)
        np.testing.assert_allclose(weighted.marginal_interval_, plain.marginal_interval_, atol=1e-9)

    def test_rows_of_weight_zero_are_left_out(self, lopsided):
        X, y, _, target = lopsided
        weight = np.where(np.arange(450) % 3 == 0, 0.0, 1.0)
        kept = weight > 0
        without = PULSE(random_state=0, **QUICK).fit(X[kept], y[kept], X_target=target)
        weighted = fit(lopsided, weight.tolist())
        np.testing.assert_allclose(weighted.target_proba_, without.target_proba_, atol=1e-12)

    @pytest.mark.parametrize(
        ("weight", "words"),
        [
            (np.ones(3), "sample_weight has 3 entries for the 450 rows of X"),
            (np.full(450, -1.0), "finite and not negative"),
            (np.append(np.ones(449), np.nan), "finite and not negative"),
            (np.repeat([1.0, 0.0], [300, 150]), "every row of class 'b' has a sample_weight of zero"),
            (np.ones((450, 2)), "sample_weight"),
        ],
        ids=["length", "negative", "nan", "class", "shape"],
    )
    def test_wrong_weights_are_named(self, lopsided, weight, words):
        with pytest.raises(ValueError, match=words):
            fit(lopsided, weight)

    @pytest.mark.parametrize("recipe", ["paper", "fine-tune"])
    def test_recipes_that_draw_whole_rows_say_so(self, lopsided, recipe):
        with pytest.raises(ValueError, match=rf"recipe='{recipe}' takes no sample_weight; use recipe='cross"):
            PULSE(recipe=recipe).fit(*lopsided[:2], X_target=lopsided[3], sample_weight=lopsided[2])

    def test_baselines_have_no_such_argument(self, lopsided):
        with pytest.raises(TypeError, match="sample_weight"):
            SourceOnly().fit(*lopsided[:2], X_target=lopsided[3], sample_weight=lopsided[2])
