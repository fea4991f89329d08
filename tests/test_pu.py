"""PU learning: losses against hand-computed values, selection without negatives, and the classifier."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import osls.pu
from conftest import blobs
from osls.mixture import BBE
from osls.pu import PUClassifier, losses, pu_auc, unbiased_risk
from osls.pu.classifier import correct_domain_score
from osls.pu.cvir import (
    Discriminator,
    PUProblem,
    _Alternation,
    _Converged,
    _possible_best,
    _Validated,
    agreeing,
)
from osls.pu.objectives import NETWORK_OBJECTIVES, train_objective
from osls.training.learners import NetworkLearner
from osls.training.predictors import Constant
from osls.training.trainer import Schedule

LOG2 = np.log(2)
FOREST = ExtraTreesClassifier(20)
OBJECTIVES = ("cvir", *NETWORK_OBJECTIVES, "elkan-noto")
scores = st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=1, max_size=30)


def separable(seed: int = 0, n: int = 120, hidden: int = 80, negatives: int = 100):
    """Two far apart pairs of blobs: positives, unlabelled rows, and the latter's true classes."""
    X, y = blobs(seed, sizes=(n, hidden, negatives // 2, negatives // 2))
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.flatnonzero(y < 2))
    unlabeled = rng.permutation(np.concatenate([positive[n:], np.flatnonzero(y >= 2)]))
    return X[positive[:n]], X[unlabeled], (y[unlabeled] < 2).astype(int)


def quick(objective: str = "cvir", **changes) -> PUClassifier:
    """Return a classifier small enough for a test, of a kind that the objective can train."""
    settings = {"discriminator": "mlp", "max_steps": 100, "n_folds": 2, "rounds": 2, "random_state": 0}
    return PUClassifier(objective, **{**settings, **changes})


class TestLosses:
    def test_penalty_adds_to_the_positives(self):
        # cvir = (log 2 + log 2) / 2 at zero logits; the penalty adds 3 log 2.
        zero = torch.zeros(4)
        assert losses.cvir_with_penalty(zero, zero, 0.5, 3.0).item() == pytest.approx(4 * LOG2)
        assert losses.cvir_with_penalty(zero, zero, 0.3, 0.0).item() == pytest.approx(
            losses.cvir(zero, zero, 0.3).item()
        )

    def test_penalty_frees_positives_that_were_kept_by_mistake(self):
        """The paper's local optimum: where labelled and kept positives coincide CVIR has no gradient."""
        z = torch.zeros(1, requires_grad=True)
        (stuck,) = torch.autograd.grad(losses.cvir(z, z, 0.5), z)
        (freed,) = torch.autograd.grad(losses.cvir_with_penalty(z, z, 0.5, 1.0), z)
        assert stuck.item() == 0
        assert freed.item() == pytest.approx(-0.5)

    def test_sigmoid_surrogate(self):
        # s(log 3) = 3/4: 0.4 * 1/4 + 1/2 - 0.4 * 3/4.
        positive, unlabeled = torch.full((2,), float(np.log(3))), torch.zeros(3)
        assert losses.upu(positive, unlabeled, 0.4, "sigmoid").item() == pytest.approx(0.3)
        # The negatives' part, 1/4 - 0.4 * 3/4, is below zero and is cut off.
        assert losses.nnpu(positive, -positive, 0.4, "sigmoid").item() == pytest.approx(0.1)
        assert losses.upu(positive, -positive, 0.4, "sigmoid").item() == pytest.approx(0.05)

    def test_upu_is_positive_versus_negative_risk_when_the_mixture_is_exact(self):
        positive, negative = torch.tensor([2.0, -1.0]), torch.tensor([0.5, -3.0])
        mixed = torch.cat([positive, negative])
        expected = losses.cvir(positive, negative, 0.5)
        torch.testing.assert_close(losses.upu(positive, mixed, 0.5), expected)
        torch.testing.assert_close(losses.nnpu(positive, mixed, 0.5), expected)

    def test_a_stack_has_one_loss_a_member(self):
        positive, unlabeled = torch.randn(3, 8), torch.randn(3, 5)
        for loss in (losses.upu, losses.nnpu, losses.cvir, losses.cvir_with_penalty):
            each = [loss(p, u, 0.4) for p, u in zip(positive, unlabeled, strict=True)]
            torch.testing.assert_close(loss(positive, unlabeled, 0.4), torch.stack(each))

    def test_objectives_by_name(self):
        """Positive logit 1; unlabelled 1 and -3, of which CVIR with alpha = .5 keeps the second."""
        positive, unlabeled = torch.tensor([1.0]), torch.tensor([1.0, -3.0])

        def loss(name):
            return losses.OBJECTIVES[name].on_batch(positive, unlabeled, 0.5).item()

        def soft(z):
            return np.log1p(np.exp(z))

        def sigmoid(z):
            return 1 / (1 + np.exp(-z))

        assert loss("cvir") == pytest.approx(soft(-1) + soft(-3))
        assert loss("pvu") == pytest.approx(soft(-1) + (soft(1) + soft(-3)) / 2)
        assert loss("cvir-penalty") == pytest.approx(soft(-1) / 2 + soft(-3) / 2 + soft(-1))
        assert loss("upu") == pytest.approx(soft(-1) / 2 + (soft(1) + soft(-3)) / 2 - soft(1) / 2)
        rest = (sigmoid(1) + sigmoid(-3)) / 2 - sigmoid(1) / 2
        assert loss("upu-sigmoid") == loss("nnpu-sigmoid") == pytest.approx(sigmoid(-1) / 2 + rest)

    def test_keep_lowest(self):
        z = torch.tensor([3.0, -1.0, 2.0, 0.0])
        assert sorted(losses.keep_lowest(z, 0.5).tolist()) == [-1.0, 0.0]
        assert losses.keep_lowest(z, 0.01).tolist() == [-1.0]
        assert len(losses.keep_lowest(z, 1.0)) == 4


class TestSelection:
    def test_hand_computed_auc(self):
        # AUC_pu = (3.5 + 1.5) / 8 with the ties; (5/8 - 1/4) / (1/2).
        assert pu_auc([0.9, 0.4], [0.9, 0.4, 0.5, 0.1], 0.5) == pytest.approx(0.75)
        assert pu_auc([1.0], [0.0], 0.0) == 1.0

    @given(scores, scores)
    def test_auc_is_exact_when_the_mixture_is(self, positive, negative):
        alpha = len(positive) / (len(positive) + len(negative))
        true = roc_auc_score(np.repeat([1, 0], [len(positive), len(negative)]), positive + negative)
        assert pu_auc(positive, positive + negative, alpha) == pytest.approx(true)

    @given(scores, scores, st.floats(0, 0.9))
    def test_auc_only_ranks(self, positive, unlabeled, alpha):
        doubled = [2 * np.array(s) + 1 for s in (positive, unlabeled)]
        # Scores that are so close that they become one number change the ranking.
        if all(
            len(np.unique(a)) == len(np.unique(b))
            for a, b in zip(doubled, (positive, unlabeled), strict=True)
        ):
            both = np.concatenate(doubled)
            if len(np.unique(both)) == len(np.unique(positive + unlabeled)):
                assert pu_auc(*doubled, alpha) == pytest.approx(pu_auc(positive, unlabeled, alpha))

    @given(scores, scores)
    def test_zero_one_risk_is_the_error_rate_when_the_mixture_is_exact(self, positive, negative):
        mixed = np.array(positive + negative)
        truth = np.repeat([True, False], [len(positive), len(negative)])
        alpha = truth.mean()
        error = np.mean((mixed > 0) != truth)
        assert unbiased_risk(positive, mixed, alpha) == pytest.approx(error)

    def test_logistic_risk_and_weights(self):
        # log 2 for the unlabelled row; l(z, +1) - l(z, -1) = -z, weighted mean of -2 and -4.
        assert unbiased_risk(
            [2.0, 4.0], [0.0], 0.5, loss="logistic", positive_weight=[3, 1]
        ) == pytest.approx(LOG2 - 0.5 * 2.5)

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\)"):
            pu_auc([1.0], [0.0], 1.0)
        with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
            unbiased_risk([1.0], [0.0], -0.1)
        with pytest.raises(ValueError, match="zero-one"):
            unbiased_risk([1.0], [0.0], 0.5, loss="hinge")
        with pytest.raises(ValueError, match="unlabeled_scores is empty"):
            pu_auc([1.0], [], 0.5)


class TestAlgorithm3:
    @pytest.fixture
    def training(self):
        """Six source rows of two classes and four target rows; two and one of them are held out."""
        rows = np.zeros((10, 1))
        learner = NetworkLearner(rows, factory=None, schedule=Schedule(8, 4), device=torch.device("cpu"))
        problem = PUProblem(np.array([0, 0, 0, 1, 1, 1]), np.array([3.0, 3, 3, 1, 1, 1]), 4)
        held_out = np.isin(np.arange(10), [0, 3, 9])
        return _Alternation(
            learner,
            problem,
            held_out,
            BBE(),
            losses.OBJECTIVES["cvir"],
            torch.Generator(),
            lambda *_: None,
            None,
        )

    def scored(self, alpha: float) -> _Validated:
        return _Validated(
            np.array([-1.0, 1.0]), np.array([2.0, -1.0, 0.5, 0.0]), np.empty(0), np.empty(0), alpha
        )

    def test_line_12_weighs_the_held_out_source(self, training):
        """The held-out row of class 0, weight 3, is wrong, that of class 1, weight 1, is right: 3/4. Of the
        kept rows 6 and 7 (logits 2 and -1) one is taken for known: 1/2."""
        assert training.error(self.scored(0.5), np.array([6, 7])) == pytest.approx(3 / 4 + 1 / 2)

    @pytest.mark.parametrize(("alpha", "kept"), [(0.0, [6, 7, 8]), (1 / 3, [7, 8]), (2 / 3, [7]), (1.0, [7])])
    def test_lines_15_and_16_keep_the_lowest_of_the_training_rows(self, training, alpha, kept):
        """Row 9 is held out; with alpha = 1 one row is kept all the same."""
        assert training.keep(self.scored(alpha)).tolist() == kept

    def test_the_error_has_converged_when_it_hardly_moved_for_long_enough(self):
        converged = _Converged(tolerance=0.1, patience=2)
        assert [converged(e) for e in (0.9, 0.5, 0.45, 0.3, 0.25, 0.2)] == [False] * 5 + [True]

    def test_a_network_takes_the_steps_of_its_schedule_and_no_more(self, training):
        """Three training rows of the target, four of the source, batches of four: an epoch is one step."""
        taken = 0
        while training.has_another_epoch:
            training.train_epoch(np.array([7]), 0.5)
            taken += 1
        assert taken == 8


class TestWarmStart:
    def test_only_epochs_that_can_still_win_are_remembered(self):
        """Risks at alpha = 0 and 1: the first is best below 1/2, the second above, the third nowhere."""
        risks = [(1.0, 3.0), (2.0, 2.0), (1.6, 2.7)]
        assert _possible_best(risks[:1]) == {0}
        assert _possible_best(risks) == {0, 1}


class TestElkanNoto:
    def test_hand_computed_values(self):
        # 0.4 * 2 * (1/3) / (2/3) = 0.4; 0.4 * 2 * 3 > 1.
        np.testing.assert_allclose(correct_domain_score([1 / 3, 0.75], 0.4, ratio=2.0), [0.4, 1.0])

    @given(st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 100))
    def test_always_a_probability(self, score, alpha, ratio):
        assert 0 <= correct_domain_score([score], alpha, ratio)[0] <= 1


class TestTrainObjective:
    def problem(self):
        P, U, truth = separable()
        learner = NetworkLearner(
            np.concatenate([P, U]), factory=None, schedule=Schedule(120, 32), device=torch.device("cpu")
        )
        return learner, PUProblem(np.zeros(len(P), dtype=np.int64), np.ones(len(P)), len(U)), truth

    def test_a_loss_of_the_users_own(self):
        learner, problem, truth = self.problem()

        def squared(positive, unlabeled, alpha):
            as_positive, as_negative = (1 - positive) ** 2, (1 + positive) ** 2
            difference = (as_positive - as_negative).mean(dim=-1)
            return alpha * difference + ((1 + unlabeled) ** 2).mean(dim=-1)

        history = []
        found = train_objective(
            learner, problem, squared, 0.44, n_folds=2, rng=np.random.default_rng(0), history=history
        )
        assert np.mean((found.target_scores > 0.5) == truth) > 0.85
        assert {record["step"] for record in history} == {"squared"}
        assert history[-1]["steps"] == 120

    def test_the_snapshot_of_least_risk_is_returned(self):
        learner, problem, _ = self.problem()
        history = []
        found = train_objective(
            learner, problem, "upu", 0.44, n_folds=2, rng=np.random.default_rng(0), history=history
        )
        # The kept networks reproduce the returned scores: each row is scored by the fold that left it out.
        by_member = 1 / (1 + np.exp(-found.predictor.logits(learner.rows)[:, problem.n_source :, 0]))
        assert np.isclose(by_member, found.target_scores, atol=1e-5).any(axis=0).all()
        assert len(history) == 10

    def test_unknown_objective(self):
        learner, problem, _ = self.problem()
        with pytest.raises(ValueError, match="unknown objective 'nnpv'"):
            train_objective(
                learner, problem, "nnpv", 0.5, n_folds=2, rng=np.random.default_rng(0), history=[]
            )


class TestClassifier:
    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_every_objective_separates_blobs(self, objective):
        P, U, truth = separable()
        model = quick(objective).fit(P, U)
        assert abs(model.alpha_ - truth.mean()) < 0.12
        assert np.mean(model.unlabeled_proba_.argmax(axis=1) == truth) > 0.85
        fresh = separable(seed=1)
        assert model.score(fresh[1], fresh[2]) > 0.85
        proba = model.predict_proba(fresh[1])
        assert ((proba >= 0) & (proba <= 1)).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)

    @pytest.mark.parametrize("objective", ["cvir", "nnpu"])
    def test_both_forms_agree(self, objective):
        P, U, _ = separable()
        two = quick(objective).fit(P, U)
        X, y = np.concatenate([P, U]), np.repeat([1, 0], [len(P), len(U)])
        order = np.random.default_rng(0).permutation(len(y))
        # Within each sample the order must be the same, for the same random numbers.
        order = order[np.argsort(y[order], kind="stable")]
        order = np.concatenate([np.sort(order[y[order] == 0]), np.sort(order[y[order] == 1])])
        one = quick(objective).fit(X[order], y[order])
        assert one.alpha_ == two.alpha_
        np.testing.assert_array_equal(one.unlabeled_proba_, two.unlabeled_proba_)
        np.testing.assert_array_equal(one.predict_proba(U), two.predict_proba(U))
        assert two.classes_.tolist() == one.classes_.tolist() == [0, 1]

    def test_one_feature_can_be_passed_as_two_samples(self):
        P, U, truth = separable()
        P, U = P[:, 1:2], U[:, 1:2]
        model = quick(discriminator=FOREST).fit(P, U)
        assert model.unlabeled_proba_.shape == (len(U), 2)
        assert np.mean(model.unlabeled_proba_.argmax(axis=1) == truth) > 0.85

    def test_containers_and_pickle(self):
        P, U, _ = separable()
        model = quick(discriminator=FOREST)
        expected = clone(model).fit(P, U).unlabeled_proba_
        for kind in (pd.DataFrame, torch.from_numpy, np.float64):
            np.testing.assert_array_equal(clone(model).fit(kind(P), kind(U)).unlabeled_proba_, expected)
        fitted = clone(model).fit(sparse.csr_matrix(P), U)
        copy = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copy.predict_proba(U), fitted.predict_proba(sparse.csr_matrix(U)))
        dense = clone(model).fit(P, sparse.csr_matrix(U))
        np.testing.assert_array_equal(dense.unlabeled_proba_, expected)

    def test_known_prevalence(self):
        P, U, truth = separable()
        for objective, kind in (("nnpu", "mlp"), ("elkan-noto", "mlp"), ("cvir", FOREST)):
            model = quick(objective, discriminator=kind, prevalence=0.44).fit(P, U)
            assert model.alpha_ == 0.44
            assert not any(record["step"] == "mixture" for record in model.history_)
            assert np.mean(model.unlabeled_proba_.argmax(axis=1) == truth) > 0.85

    def test_any_mixture_estimator(self):
        class Half(BBE):
            def _fit(self, positive, unlabeled):
                self.alpha_ = 0.5

        P, U, _ = separable()
        assert quick(discriminator=FOREST, mixture=Half()).fit(P, U).alpha_ == 0.5

    @pytest.mark.parametrize(
        ("objective", "kind"), [("cvir", FOREST), ("nnpu", "mlp"), ("elkan-noto", FOREST)]
    )
    def test_no_negatives_or_no_positives_among_the_unlabelled(self, objective, kind):
        P, _, _ = separable()
        half = len(P) // 2
        all_positive = quick(objective, discriminator=kind).fit(P[:half], P[half:])
        assert all_positive.alpha_ > 0.7
        none = quick(objective, discriminator=kind).fit(P, P + 20)
        assert none.alpha_ < 0.1
        assert none.predict(P + 20).mean() < 0.1
        assert np.isfinite(none.predict_proba(P)).all()

    def test_alpha_of_one_calls_every_row_positive(self):
        class One(BBE):
            def _fit(self, positive, unlabeled):
                self.alpha_ = 1.0

        P, U, _ = separable()
        model = quick(discriminator=FOREST, mixture=One()).fit(P, U)
        assert (model.predict(U) == 1).all()
        assert (model.unlabeled_proba_ == [0, 1]).all()

    def test_digits(self):
        """Even digits are positive; half of them are labelled."""
        X, y = load_digits(return_X_y=True)
        even = y % 2 == 0
        labelled = even & (np.random.default_rng(0).random(len(y)) < 0.5)
        model = PUClassifier(discriminator=ExtraTreesClassifier(50), n_folds=3, rounds=2, random_state=0)
        model.fit(X, labelled.astype(int))
        assert abs(model.alpha_ - even[~labelled].mean()) < 0.08
        assert np.mean(model.unlabeled_proba_.argmax(axis=1) == even[~labelled]) > 0.88

    def test_a_fitted_estimator_is_cloned_not_used(self):
        P, U, _ = separable()
        wrong = LogisticRegression().fit(P, np.arange(len(P)) % 2)
        np.testing.assert_array_equal(
            quick(discriminator=wrong).fit(P, U).unlabeled_proba_,
            quick(discriminator=LogisticRegression()).fit(P, U).unlabeled_proba_,
        )


class TestBadInput:
    P, U, _ = separable(n=30, hidden=20, negatives=20)

    def refuse(self, match, *data, **changes):
        with pytest.raises(ValueError, match=match):
            quick(**{"discriminator": FOREST, **changes}).fit(*(data or (self.P, self.U)))

    def test_empty(self):
        self.refuse("0 sample", self.P[:0], self.U)
        self.refuse("0 sample", self.P, self.U[:0])

    def test_other_columns(self):
        self.refuse("X_unlabeled has 3 features but X_positive has 5", self.P, self.U[:, :3])

    def test_labels(self):
        X = np.concatenate([self.P, self.U])
        y = np.repeat([1, 0], [len(self.P), len(self.U)])
        self.refuse("y must be 1 for positive rows and 0 for unlabelled ones; got -1, 1", X, 2 * y - 1)
        self.refuse("got 'no', 'yes'", X, np.where(y == 1, "yes", "no"))
        self.refuse("at least one row of 1", X, np.zeros_like(y))
        self.refuse("at least one row of 0", X, np.ones_like(y))
        self.refuse("inconsistent numbers of samples", X, y[:-1])
        self.refuse("requires y to be passed", X, None)

    def test_not_finite(self):
        bad = self.U.copy()
        bad[0, 0] = np.nan
        self.refuse("contains NaN", self.P, bad)
        self.refuse("contains NaN", bad, self.U)

    @pytest.mark.parametrize("alpha", [0, 1, -0.5, 2])
    def test_prevalence(self, alpha):
        self.refuse(r"prevalence must lie in \(0, 1\)", prevalence=alpha)

    def test_fewer_rows_than_folds(self):
        self.refuse("n_folds=4 needs .* got 3 and 40", self.P[:3], self.U, n_folds=4)
        self.refuse("n_folds must be at least 2", n_folds=1)

    def test_parameters(self):
        self.refuse("objective must be .*; got 'nnpv'. Did you mean 'nnpu'", objective="nnpv")
        self.refuse("rounds must be at least 1", rounds=0)
        self.refuse("max_steps must be at least 1", max_steps=0)
        self.refuse("penalty must be at least 0", penalty=-1)
        self.refuse("objective='nnpu' is minimised by gradient descent", objective="nnpu")


OTHER_LABELS = "its y is not in {0, 1}: here 0 means unlabelled, so labels of other names are an error"
NO_POSITIVES = "its rows of y = 0 hold no positives: with a share of zero, calling no row positive is right"


def not_applicable(estimator):
    failing = dict.fromkeys(
        (
            "check_classifier_data_not_an_array",
            "check_classifiers_classes",
            "check_estimators_dtypes",
            "check_fit2d_1feature",
        ),
        OTHER_LABELS,
    )
    return failing | ({"check_classifiers_train": NO_POSITIVES} if estimator.objective == "cvir" else {})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        quick(discriminator=LogisticRegression()),
        quick("nnpu", max_steps=10),
    ],
    expected_failed_checks=not_applicable,
)
def test_scikit_learn_contract(estimator, check):
    if check.func.__name__ == "check_methods_sample_order_invariance":
        pytest.skip("single precision: test_the_order_of_rows_matters_only_for_rounding has its tolerance")
    check(estimator)


def test_a_share_that_source_rows_contradict_shifts_nothing():
    # P(novel) averages to .5, the share says .2; but of held-out source rows only 1 % would be called novel.
    found = Discriminator(np.full(9, 0.5), Constant((0.5, 0.5)), 0.2, np.full(4, 0.99))
    assert agreeing(found, np.ones(4)) is found


@pytest.mark.parametrize("discriminator", ["mlp", LogisticRegression()])
def test_the_order_of_rows_matters_only_for_rounding(discriminator):
    # Rows are in single precision, and how a product of matrices is rounded depends on a row's place in it
    # and on the processor; scikit-learn's check allows 1e-7, and one value in a hundred exceeds it.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.repeat([1, 0], 30)
    objective = "nnpu" if discriminator == "mlp" else "cvir"
    model = quick(objective, discriminator=discriminator, max_steps=10).fit(X, y)
    order = rng.permutation(60)
    np.testing.assert_allclose(model.predict_proba(X[order]), model.predict_proba(X)[order], rtol=1e-5)


def test_public_names_resolve():
    for name in osls.pu.__all__:
        assert getattr(osls.pu, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'PUClasifier'"):
        _ = osls.pu.PUClasifier
