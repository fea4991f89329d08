"""BBSE, RLLS, MLLS and the calibration before them, by hand and against abstention and QuaPy."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from osls.mixture import BBE
from osls.shift import BBSE, MLLS, RLLS, fit_calibrator
from osls.shift.joint import joint_estimate
from osls.shift.rlls import least_norms
from osls.shift.scores import HeldOutScores
from osls.shift.separability import refined_marginal

PEER = json.loads((Path(__file__).parent / "peers" / "shift.json").read_text())["cases"]
peers = pytest.mark.parametrize("case", PEER, ids=lambda case: f"k{case['input']['k']}")
METHODS = {
    "bbse": BBSE(),
    "bbse-soft": BBSE(soft=True),
    "rlls": RLLS(),
    "rlls-soft": RLLS(soft=True),
    "mlls": MLLS(),
    "mlls-raw": MLLS("none"),
    "mlls-labels": MLLS("none", source_prior="labels"),
}
every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def problem(seed, n, m, k, noise, q):
    """Gaussian classes, an even source, a target with shares q, and a classifier that hedges by a tenth."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * np.random.default_rng(seed + 100).normal(size=(k, k))

    def draw(size, share):
        y = rng.choice(k, size, p=share)
        gap = (centres[y] + noise * rng.normal(size=(size, k)))[:, None, :] - centres[None]
        logits = (-0.5 * gap**2).sum(axis=2) / noise**2
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return y, 0.9 * e / e.sum(axis=1, keepdims=True) + 0.1 / k

    y, source = draw(n, np.full(k, 1 / k))
    _, target = draw(m, np.asarray(q))
    return source, y, target


class TestPeers:
    @peers
    def test_inputs_are_those_the_peers_saw(self, case):
        source, _, target = problem(**case["input"])
        np.testing.assert_allclose([source[:, 0].mean(), target[:, 0].mean()], case["check"], atol=1e-8)

    @peers
    @pytest.mark.parametrize("soft", [False, True])
    def test_bbse_and_rlls(self, case, soft):
        data = problem(**case["input"])
        np.testing.assert_allclose(BBSE(soft).fit(*data).weights_, case[f"bbse_{soft:d}"], atol=1e-6)
        np.testing.assert_allclose(RLLS(soft).fit(*data).weights_, case[f"rlls_{soft:d}"], atol=1e-5)
        strong = RLLS(soft, strength=0.3).fit(*data)
        np.testing.assert_allclose(strong.weights_, case[f"rlls_strong_{soft:d}"], atol=1e-5)

    @peers
    def test_mlls(self, case):
        data = problem(**case["input"])
        np.testing.assert_allclose(MLLS("none").fit(*data).weights_, case["mlls"], atol=1e-4)
        by_label = MLLS("none", source_prior="labels").fit(*data)
        np.testing.assert_allclose(by_label.weights_, case["mlls_labels"], atol=1e-4)
        np.testing.assert_allclose(by_label.target_marginal_, case["emq_marginal"], atol=1e-4)

    @peers
    @pytest.mark.parametrize("calibration", ["temperature", "vector", "bcts"])
    def test_calibration(self, case, calibration):
        source, y, target = problem(**case["input"])
        calibrated = fit_calibrator(source, y, calibration)(target[:5])
        np.testing.assert_allclose(calibrated, case[f"cal_{calibration}"], atol=1e-3)


class TestEvery:
    @every
    def test_recovers_the_target_and_improves_the_predictions(self, method):
        q = np.array([0.7, 0.2, 0.1])
        source, y, target = problem(0, 8000, 8000, 3, 1.5, q)
        fitted = clone(method).fit(source, y, target)
        # The raw likelihood believes the hedged classifier and overshoots; the others do not care.
        slack = 0.05 if "none" in repr(method) else 0.02
        np.testing.assert_allclose(fitted.target_marginal_, q, atol=slack)
        corrected = fitted.correct(target)
        np.testing.assert_allclose(corrected.sum(axis=1), 1)
        assert np.abs(corrected.mean(axis=0) - q).max() < np.abs(target.mean(axis=0) - q).max()

    @every
    def test_renaming_classes_permutes_the_answer(self, method):
        source, y, target = problem(1, 600, 500, 4, 2.0, [0.4, 0.3, 0.2, 0.1])
        order = np.array([2, 0, 3, 1])
        plain = clone(method).fit(source, y, target)
        renamed = clone(method).fit(source[:, order], np.argsort(order)[y], target[:, order])
        np.testing.assert_allclose(renamed.weights_, plain.weights_[order], atol=1e-3)

    @every
    @settings(max_examples=20, deadline=None)
    @given(seed=st.integers(0, 1000), k=st.integers(2, 5), m=st.integers(1, 30))
    def test_shares_are_shares_whatever_the_rows(self, method, seed, k, m):
        rng = np.random.default_rng(seed)
        source, target = rng.dirichlet(np.ones(k), 4 * k), rng.dirichlet(np.full(k, 0.3), m)
        y = np.tile(np.arange(k), 4)
        fitted = clone(method).fit(source, y, target)
        assert (fitted.weights_ >= 0).all()
        assert (fitted.target_marginal_ >= 0).all()
        assert fitted.target_marginal_.sum() == pytest.approx(1)
        corrected = fitted.correct(target)
        assert np.isfinite(corrected).all()
        np.testing.assert_allclose(corrected.sum(axis=1), 1)
        shuffled = clone(method).fit(source, y, target[rng.permutation(m)])
        np.testing.assert_allclose(shuffled.weights_, fitted.weights_, rtol=1e-4, atol=1e-4)

    @every
    def test_an_unshifted_target_stays_as_it_is(self, method):
        source, y, _ = problem(2, 500, 10, 3, 2.0, [0.3, 0.3, 0.4])
        fitted = clone(method).fit(source, y, source)
        # Against the labels' shares a miscalibrated classifier looks shifted; against its own mean it cannot.
        slack = 0.3 if getattr(method, "source_prior", "") == "labels" else 1e-3
        np.testing.assert_allclose(fitted.weights_, 1, atol=slack)

    @every
    def test_one_hot_probabilities_and_an_absent_class(self, method):
        y = np.repeat([0, 1, 2], 10)
        fitted = clone(method).fit(np.eye(3)[y], y, np.eye(3)[np.repeat([0, 1], [10, 30])])
        slack = 0.05 if isinstance(method, RLLS) else 1e-3
        np.testing.assert_allclose(fitted.target_marginal_, [0.25, 0.75, 0], atol=slack)
        np.testing.assert_allclose(fitted.correct([[0.0, 0.0, 1.0]]).sum(), 1)

    @every
    def test_pickle_and_purity(self, method):
        source, y, target = problem(3, 200, 200, 3, 2.0, [0.5, 0.3, 0.2])
        before = source.copy(), target.copy()
        fitted = clone(method).fit(source, y, target)
        copy = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copy.correct(target), fitted.correct(target))
        np.testing.assert_array_equal(source, before[0])
        np.testing.assert_array_equal(target, before[1])


def test_a_class_that_is_never_predicted_stays_unshifted_in_bbse():
    source, y = np.array([[0.9, 0.1, 0.0]] * 10 + [[0.1, 0.9, 0.0]] * 20), np.repeat([0, 1, 2], 10)
    weights = BBSE().fit(source, y, source).weights_
    np.testing.assert_allclose(weights, 1)


def test_correction_is_bayes_rule():
    source, y = [[0.75, 0.25], [0.25, 0.75]], [0, 1]
    fitted = BBSE().fit(source, y, [[0.75, 0.25]] * 3 + [[0.25, 0.75]])
    np.testing.assert_allclose(fitted.weights_, [1.5, 0.5])
    np.testing.assert_allclose(fitted.correct([[0.5, 0.5]]), [[0.75, 0.25]])
    # Only a class without weight is possible: the row keeps its probabilities.
    gone = BBSE().fit(source, y, [[0.75, 0.25]])
    np.testing.assert_allclose(gone.correct([[0.0, 1.0]]), [[0.0, 1.0]])


def test_two_norms_are_minimised_exactly():
    rng = np.random.default_rng(0)
    for penalty in (0.001, 0.1, 0.3, 2.0):
        A, b = rng.dirichlet(np.ones(3), 3) / 3, rng.normal(size=3) / 5

        def cost(theta, A=A, b=b, penalty=penalty):
            return np.linalg.norm(A @ theta - b) + penalty * np.linalg.norm(theta)

        rival = min(
            minimize(
                cost, start, bounds=[(-1, None)] * 3, method="Nelder-Mead", options={"maxiter": 4000}
            ).fun
            for start in rng.random((4, 3))
        )
        assert cost(least_norms(A, b, penalty)) <= rival + 1e-7
    np.testing.assert_array_equal(least_norms(A, b, 10.0), 0)


class TestCalibration:
    rng = np.random.default_rng(0)
    honest = rng.dirichlet([1, 1, 1], 6000)
    y = (honest.cumsum(axis=1) < rng.random((6000, 1))).sum(axis=1)

    def test_a_biased_overconfident_classifier_is_mended(self):
        wrong = self.honest**2 * [3.0, 1.0, 0.5]
        wrong /= wrong.sum(axis=1, keepdims=True)
        error = {
            name: np.abs(fit_calibrator(wrong, self.y, name)(wrong) - self.honest).mean()
            for name in ("none", "temperature", "bcts", "vector")
        }
        assert error["temperature"] < error["none"]
        assert max(error["bcts"], error["vector"]) < 0.02 < error["temperature"]

    def test_bias_makes_mean_predictions_the_class_shares(self):
        for name in ("bcts", "vector", "bias"):
            mean = fit_calibrator(self.honest**2, self.y, name)(self.honest**2).mean(axis=0)
            np.testing.assert_allclose(mean, np.bincount(self.y) / len(self.y), atol=1e-4)

    def test_biases_alone_keep_the_order_of_the_odds(self):
        calibrated = fit_calibrator(self.honest * [3.0, 1.0, 0.5], self.y, "bias", floor=1e-12)(self.honest)
        ratio = (calibrated[:, 0] / calibrated[:, 1]) / (self.honest[:, 0] / self.honest[:, 1])
        # The odds of the first two classes change by one factor, a third.
        np.testing.assert_allclose(ratio, 1 / 3, rtol=0.1)
        assert np.ptp(ratio) < 1e-9

    def test_biases_cost_as_many_rows_as_the_penalty_says(self):
        wrong = self.honest * [3.0, 1.0, 0.5]
        wrong /= wrong.sum(axis=1, keepdims=True)

        def size(rows, penalty):
            found = fit_calibrator(wrong[:rows], self.y[:rows], "bcts", penalty=penalty)
            return np.abs(found.bias).max()

        assert size(6000, 10.0) == pytest.approx(size(6000, 0.0), rel=0.05)
        assert size(60, 10.0) < 0.7 * size(60, 0.0)
        free = fit_calibrator(wrong, self.y, "temperature")
        fixed = fit_calibrator(wrong, self.y, "bcts", penalty=1e9)
        np.testing.assert_allclose(fixed.bias, 0, atol=1e-4)
        assert fixed.scale[0] == pytest.approx(free.scale[0], rel=0.02)

    def test_unknown_names_are_listed(self):
        with pytest.raises(ValueError, match="must be one of none, temperature, vector, bcts, bias"):
            MLLS(calibration="platt").fit([[0.5, 0.5]] * 2, [0, 1], [[0.5, 0.5]])


@pytest.mark.parametrize(
    ("source", "y", "target", "message"),
    [
        ([[2.0, -1.0]], [0], [[0.5, 0.5]], "proba_source must hold probabilities.*softmax"),
        ([[0.5, 0.5]] * 2, [0, 1], [[0.9, 0.9]], "proba_target must hold probabilities"),
        ([[0.5, 0.5]] * 2, [0, 1], [[np.nan, 0.5]], "proba_target contains NaN"),
        ([[0.5, 0.5]] * 2, [0, 1], np.empty((0, 2)), "proba_target must be a matrix"),
        ([0.5, 0.5], [0, 1], [[0.5, 0.5]], "proba_source must be a matrix"),
        ([[0.5, 0.5]] * 2, [0, 1], [[0.2, 0.3, 0.5]], "2 columns and proba_target 3"),
        ([[0.5, 0.5]] * 2, [0], [[0.5, 0.5]], "y_source has shape"),
        ([[0.5, 0.5]] * 2, ["a", "b"], [[0.5, 0.5]], "class indices 0..1"),
        ([[0.5, 0.5]] * 2, [0, 2], [[0.5, 0.5]], "class indices 0..1"),
        ([[0.5, 0.5]] * 2, [0, 0], [[0.5, 0.5]], "no example of class 1"),
    ],
)
def test_bad_input_is_named(source, y, target, message):
    with pytest.raises(ValueError, match=message):
        BBSE().fit(source, y, target)


def test_other_errors():
    data = [[0.6, 0.4], [0.4, 0.6]], [0, 1], [[0.5, 0.5]]
    with pytest.raises(NotFittedError):
        MLLS().correct([[0.5, 0.5]])
    with pytest.raises(ValueError, match="proba has 3 columns; fit saw 2"):
        BBSE().fit(*data).correct([[0.2, 0.3, 0.5]])
    with pytest.raises(ValueError, match="strength must not be negative"):
        RLLS(strength=-1).fit(*data)
    with pytest.raises(ValueError, match="source_prior must be"):
        MLLS(source_prior="uniform").fit(*data)
    with pytest.raises(ValueError, match="max_iter"):
        MLLS(max_iter=0).fit(*data)


class TestRefinedMarginal:
    """Three classes that are told apart without error, and novel rows that are too."""

    def scores(self, shares, n=200, m=400):
        y = np.repeat(np.arange(3), n)
        y_target = np.repeat(np.arange(4), (np.array(shares) * m).astype(int))
        proba = np.vstack([np.eye(3) * 0.94 + 0.02, np.full((1, 3), 1 / 3)])
        joint = np.vstack([np.eye(3, 4) * 0.5, np.zeros(4)])
        joint[:, 3] = [0.5, 0.5, 0.5, 1.0]
        return HeldOutScores(y, proba[y], proba[y_target], joint[y], joint[y_target])

    def test_likelihood_decides_within_the_errors(self):
        # The accepted rows are 5/8, 2/8, 1/8; the bins said otherwise, but with errors that allow for it.
        scores = self.scores([0.5, 0.2, 0.1, 0.2])
        found = refined_marginal(scores, np.array([0.55, 0.3, 0.15]), np.full(3, 0.2), BBE())
        np.testing.assert_allclose(found, [5 / 8, 2 / 8, 1 / 8], atol=0.02)

    def test_it_cannot_move_what_the_bins_are_sure_of(self):
        scores = self.scores([0.5, 0.2, 0.1, 0.2])
        mix, error = np.array([0.5, 0.3, 0.2]), np.full(3, 0.01)
        found = refined_marginal(scores, mix, error, BBE())
        np.testing.assert_allclose(found, np.array([0.51, 0.29, 0.19]) / 0.99)

    def test_standard_errors_are_those_of_a_share(self):
        # Every class has its own bin with all of its rows and no others: the error is the binomial's.
        scores = self.scores([0.5, 0.2, 0.1, 0.2])
        found = joint_estimate(scores.domain_source, scores.y, scores.domain_target)
        np.testing.assert_allclose(found.mix, [0.5, 0.2, 0.1], atol=0.01)
        share = np.array([0.5, 0.2, 0.1])
        np.testing.assert_allclose(found.error, np.sqrt(share * (1 - share) / 400), rtol=0.05)
