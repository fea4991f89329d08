"""The baselines: every mechanism that makes a method what it is, by hand where it can be."""

from __future__ import annotations

import inspect
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from torch import nn

from conftest import ADAPTERS, FOREST, blobs
from osls.app.bench.methods import METHODS
from osls.baselines import (
    CMU,
    DANCE,
    KPU,
    UAN,
    BackpropODA,
    DomainDiscriminator,
    OpenSetEM,
    SeparateToAdapt,
    SourceOnly,
    best_threshold,
)
from osls.baselines import open_set_losses as losses
from osls.baselines.cmu import Ensemble, known_weight
from osls.baselines.dance import CosineClassifier, MemoryBank
from osls.baselines.deep import DeepAdapter, source_loss
from osls.baselines.domain_discriminator import rescale
from osls.baselines.kpu import best_head
from osls.baselines.open_set_em import open_set_em
from osls.baselines.rejection import known_odds, predicted_mix, reject
from osls.datasets import simulate_osls
from osls.metrics import accuracy
from osls.mixture import BBE, DEDPUL
from osls.training.nets.features import ConvFeatures, MLPFeatures

FIVE = [BackpropODA, SeparateToAdapt, UAN, CMU, DANCE]
LOG2 = math.log(2)


def close(actual, expected):
    torch.testing.assert_close(torch.as_tensor(actual), torch.tensor(expected), atol=1e-5, rtol=1e-5)


class TestLosses:
    def test_gradient_reversal_flips_the_sign_and_nothing_else(self):
        x = torch.tensor([1.0, -2.0], requires_grad=True)
        out = losses.reverse_gradient(x, 0.5)
        close(out, [1.0, -2.0])
        (out * torch.tensor([2.0, 3.0])).sum().backward()
        close(x.grad, [-1.0, -1.5])

    def test_reversal_goes_from_none_to_full(self):
        assert losses.reversal_strength(0.0) == 0
        assert losses.reversal_strength(0.1) == pytest.approx(2 / (1 + math.exp(-1)) - 1)
        assert losses.reversal_strength(1.0) == pytest.approx(1, abs=1e-4)

    def test_entropies(self):
        proba = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
        close(losses.entropy(proba), [LOG2, 0.0])
        close(losses.normalised_entropy(proba), [1.0, 0.0])
        close(losses.normalised_entropy(torch.ones(3, 1)), [0.0, 0.0, 0.0])

    def test_boundary_loss_is_least_at_the_boundary(self):
        close(losses.boundary_loss(torch.tensor([0.5]), 0.5), LOG2)
        close(losses.boundary_loss(torch.tensor([0.2]), 0.25), -(0.25 * math.log(0.2) + 0.75 * math.log(0.8)))
        unknown = torch.tensor([0.3], requires_grad=True)
        losses.boundary_loss(unknown, 0.3).backward()
        close(unknown.grad, [0.0])

    def test_domain_loss_weighs_rows(self):
        source, target = torch.tensor([0.0, 5.0]), torch.tensor([0.0, 5.0])
        weight = torch.tensor([1.0, 0.0])
        close(losses.domain_loss(source, target, weight, weight), LOG2)
        assert losses.domain_loss(torch.tensor([9.0]), torch.tensor([-9.0])) < 1e-3

    def test_weights_are_scaled_and_have_mean_one(self):
        values = torch.tensor([-1.0, 0.0, 3.0])
        close(losses.min_max(values), [0.0, 0.25, 1.0])
        close(losses.unit_mean_weight(values), [0.0, 0.6, 2.4])
        close(losses.unit_mean_weight(torch.ones(2)), [0.0, 0.0])

    def test_one_versus_rest_sums_over_the_classes(self):
        close(losses.one_versus_rest(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])), 3 * LOG2)
        assert losses.one_versus_rest(torch.tensor([[9.0, -9.0]]), torch.tensor([0])) < 1e-3

    def test_extremes(self):
        low, high = losses.extremes(torch.tensor([0.3, 0.9, 0.1, 0.5]), 0.25)
        assert (low.tolist(), high.tolist()) == ([2], [1])
        low, high = losses.extremes(torch.tensor([0.3, 0.9, 0.1, 0.5]), 0.0)
        assert len(low) == len(high) == 1

    def test_k_heads_learn_from_their_own_class_and_their_kept_rows(self):
        source, y = torch.tensor([[0.0, 50.0], [50.0, 0.0]]), torch.tensor([0, 1])
        target = torch.tensor([[0.0, 30.0], [40.0, 0.0]])
        kept = torch.tensor([[True, False], [False, True]])
        # The row of class 0 counts for head 0 alone; rows not kept by a head do not count for it.
        close(losses.k_positive_unlabeled(source, y, target, kept), 2 * LOG2)
        close(losses.k_positive_unlabeled(source, y, target, torch.zeros_like(kept)), LOG2)
        close(
            losses.k_positive_unlabeled(source, y, target, torch.ones_like(kept)), LOG2 + (70 + 2 * LOG2) / 4
        )

    def test_ensemble_uncertainty(self):
        proba = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
        found = losses.ensemble_uncertainty(proba)
        close(found.entropy, [0.0, 1.0])
        close(found.consistency, [math.sqrt(0.5), 0.0])
        close(found.confidence, [1.0, 0.5])
        close(known_weight(found), [(1 + 1 - math.sqrt(0.5) + 1) / 3, (0 + 1 + 0.5) / 3])

    def test_entropy_separation_pushes_away_from_the_centre_but_leaves_the_middle_alone(self):
        proba = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.8, 0.2]])
        middle = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
        centre, margin = LOG2 / 2, 0.2
        assert abs(middle - centre) < margin
        close(losses.entropy_separation(proba, centre, margin), -(LOG2 / 2 + LOG2 / 2) / 3)

    def test_a_row_is_no_neighbour_of_itself(self):
        bank = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        rows = torch.tensor([0, 1])
        found = losses.neighbour_similarities(features, bank, rows, 0.5)
        close(found, [[-2.0, -2.0, 2.0, -2.0, 0.0], [-2.0, -2.0, 0.0, 0.0, -2.0]])


class TestRejection:
    def test_the_novel_class_wins_exactly_below_the_threshold(self):
        rng = np.random.default_rng(0)
        score = np.append(rng.uniform(-1, 1, 500), [-0.5, np.nextafter(-0.5, -1), -1, 1])
        classes = rng.dirichlet(np.ones(4), size=len(score))
        for threshold in (-2.0, -1.0, -0.5, 0.3, 1.0, 2.0):
            proba = reject(classes, known_odds(score, threshold, -1.0, 1.0))
            np.testing.assert_allclose(proba.sum(axis=1), 1)
            best = np.where(score >= threshold, classes.argmax(axis=1), 4)
            np.testing.assert_array_equal(proba.argmax(axis=1), best)

    def test_odds_are_monotone_and_half_at_the_threshold(self):
        odds = known_odds(np.array([0.0, 0.1, 0.2, 0.6, 1.0]), 0.2, 0.0, 1.0)
        np.testing.assert_allclose(odds, [0, 0.25, 0.5, 0.75, 1])

    def test_predicted_mix(self):
        proba = np.eye(3)[[0, 0, 1, 2]]
        marginal, novel = predicted_mix(proba, np.ones(2) / 2)
        np.testing.assert_allclose(marginal, [2 / 3, 1 / 3])
        assert novel == 0.25
        marginal, novel = predicted_mix(np.eye(3)[[2, 2]], np.array([0.9, 0.1]))
        assert (marginal.tolist(), novel) == ([0.9, 0.1], 1.0)

    def test_best_threshold_is_the_best_of_all(self):
        rng = np.random.default_rng(0)
        score = rng.integers(0, 20, 200) / 20
        labels, truth = rng.integers(0, 3, 200), rng.integers(-1, 3, 200)
        found = best_threshold(score, labels, truth, -1)
        every = [np.mean(np.where(score >= t, labels, -1) == truth) for t in np.append(np.unique(score), 2.0)]
        assert found.accuracy == pytest.approx(max(every))
        assert found.accuracy == np.mean(np.where(score >= found.threshold, labels, -1) == truth)
        with pytest.raises(ValueError, match="known_score and y_true"):
            best_threshold([], [], [], -1)


class TestDomainDiscriminator:
    def test_rescaled_output_is_a_probability(self):
        # f = n / (n + alpha m) where only positives are: the rescaled output is 1 there.
        n, m, alpha = 200, 100, 0.5
        np.testing.assert_allclose(
            rescale(np.array([n / (n + alpha * m), 0.0, 1.0]), alpha, m / n), [1, 0, 1]
        )
        assert rescale(np.array([0.5]), 0.4, 1.0)[0] == pytest.approx(0.4)
        assert rescale(np.array([1.0]), 0.0, 1.0)[0] == 0

    def test_without_label_shift_it_finds_the_novel_rows(self):
        X, y = blobs(sizes=(400, 400, 400, 400))
        p = simulate_osls(X, y, novel=[3], source_fraction=(0.5, 0.5), random_state=0)
        # Leaves of more than one row: the method needs outputs that are not all or nothing.
        forest = ExtraTreesClassifier(50, min_samples_leaf=3)
        model = DomainDiscriminator(source_classifier=FOREST, discriminator=forest, random_state=0)
        model.fit(**p.training_data())
        assert model.novel_prevalence_ == pytest.approx(p.target_marginal[-1], abs=0.1)
        assert accuracy(p.y_target, model.target_labels_, -1).all > 0.9

    def test_label_shift_deceives_it(self):
        shares = {"source_marginal": [0.45, 0.45, 0.1], "target_marginal": [0.15, 0.15, 0.5, 0.2]}
        p = simulate_osls(*blobs(sizes=(400, 400, 400, 200)), novel=[3], **shares, random_state=0)
        model = DomainDiscriminator(source_classifier=FOREST, discriminator=FOREST, random_state=0)
        model.fit(**p.training_data())
        assert model.novel_prevalence_ > p.target_marginal[-1] + 0.1

    def test_its_epochs_can_be_followed(self, problem):
        calls = []
        model = DomainDiscriminator(
            source_classifier=FOREST, discriminator="mlp", n_folds=1, max_steps=60, random_state=0
        ).set_params(callback=lambda epoch, proba: calls.append((epoch, proba)))
        model.fit(**problem.training_data())
        assert [epoch for epoch, _ in calls] == list(range(1, len(calls) + 1))
        assert len(calls) > 2
        np.testing.assert_allclose(calls[-1][1], model.target_proba_, atol=1e-6)
        epochs = [record for record in model.history_ if record["step"] == "epoch"]
        np.testing.assert_allclose(epochs[-1]["target_marginal"], model.target_marginal_, atol=1e-6)


class TestOneSplit:
    """One model, a fifth of the rows held out, as in the paper."""

    def test_source_only(self, problem):
        model = SourceOnly(source_classifier=FOREST, n_folds=1, random_state=0).fit(**problem.training_data())
        assert len(model._predictor.classifier.models) == 1
        assert accuracy(problem.y_target, model.target_labels_, -1).seen > 0.95

    def test_the_known_share_comes_from_held_out_rows(self):
        """A discriminator that knows its training rows by heart would call every target row novel."""
        shares = {"source_marginal": [1 / 3] * 3, "target_marginal": [0.25] * 4}
        p = simulate_osls(*blobs(sizes=(400, 400, 400, 300)), novel=[3], **shares, random_state=0)
        model = DomainDiscriminator(
            source_classifier=FOREST, discriminator=FOREST, n_folds=1, random_state=0
        ).fit(**p.training_data())
        assert model.novel_prevalence_ == pytest.approx(0.25, abs=0.15)

    def test_open_set_em_needs_rows_that_its_models_did_not_see(self, problem):
        with pytest.raises(ValueError, match="n_folds must be at least 2"):
            OpenSetEM(source_classifier=FOREST, n_folds=1).fit(**problem.training_data())


class TestKPU:
    @pytest.mark.parametrize("n_folds", [1, 3])
    def test_shares_and_novel_share(self, problem, n_folds):
        model = KPU(max_steps=300, n_folds=n_folds, random_state=0).fit(**problem.training_data())
        # One split leaves a fifth of the rows to estimate from.
        tolerance = 0.2 if n_folds == 1 else 0.1
        np.testing.assert_allclose(model.class_shares_, problem.target_marginal[:-1], atol=tolerance)
        assert model.novel_prevalence_ == pytest.approx(max(0, 1 - model.class_shares_.sum()))
        assert accuracy(problem.y_target, model.target_labels_, -1).all > 0.9

    @pytest.mark.parametrize("objective", ["nnpu", "upu-sigmoid"])
    def test_other_objectives(self, problem, objective):
        model = KPU(objective=objective, max_steps=300, n_folds=1, random_state=0)
        model.fit(**problem.training_data())
        assert accuracy(problem.y_target, model.target_labels_, -1).all > 0.8

    def test_the_shares_come_from_the_estimator_that_was_asked_for(self, problem):
        class Half(BBE):
            def _fit(self, positive, unlabeled):
                self.alpha_ = 0.5

        model = KPU(mixture=Half(), max_steps=40, n_folds=1, random_state=0).fit(**problem.training_data())
        assert model.class_shares_.tolist() == [0.5] * 3
        assert model.target_marginal_.tolist() == pytest.approx([1 / 3] * 3 + [0])

    def test_the_papers_alternative(self, problem):
        model = KPU(mixture=DEDPUL(), objective="nnpu", max_steps=40, n_folds=1, random_state=0)
        assert model.fit(**problem.training_data()).target_marginal_.sum() == pytest.approx(1)

    def test_the_unbiased_loss_of_the_heads_by_hand(self):
        """Head 0 has one positive of logit 1, head 1 none; all target logits are 0, so l = log 2."""
        source, y = torch.tensor([[1.0, 9.0]]), torch.tensor([0])
        alpha, log2 = torch.tensor([0.5, 0.25]), np.log(2)
        first = 0.5 * np.log1p(np.exp(-1)) + log2 - 0.5 * np.log1p(np.exp(1))
        upu = losses.k_unbiased(source, y, torch.zeros(3, 2), alpha, surrogate="logistic", clipped=False)
        assert upu.item() == pytest.approx((first + log2) / 2)
        # With target logits of -9 the first head's estimate of the negatives' loss is below zero.
        low = torch.full((3, 2), -9.0)
        nnpu = losses.k_unbiased(source, y, low, alpha, surrogate="logistic", clipped=True)
        assert nnpu.item() == pytest.approx((0.5 * np.log1p(np.exp(-1)) + np.log1p(np.exp(-9))) / 2)

    def test_a_row_that_no_head_wants_is_novel(self):
        answer = best_head(np.array([[0.49, 0.1, 0.2], [0.6, 0.7, 0.1], [0.5, 0.1, 0.1]]))
        assert answer.argmax(axis=1).tolist() == [3, 1, 0]

    def test_cvir_begins_after_the_warm_start(self, problem):
        history = clone(ADAPTERS["k-pu"]).fit(**problem.training_data()).history_
        steps = [record["step"] for record in history]
        assert steps == sorted(steps, key=["warm start", "cvir"].index)
        assert {"warm start", "cvir"} == set(steps)

    def test_history_and_callback(self, problem):
        calls = []
        model = clone(ADAPTERS["k-pu"]).set_params(callback=lambda epoch, proba: calls.append((epoch, proba)))
        model.fit(**problem.training_data())
        assert [epoch for epoch, _ in calls] == [r["epoch"] for r in model.history_]
        np.testing.assert_array_equal(calls[-1][1], model.target_proba_)
        np.testing.assert_allclose(model.history_[-1]["target_marginal"], model.target_marginal_)

    def test_needs_a_network(self, problem):
        with pytest.raises(ValueError, match="network must be a neural network"):
            KPU(network="trees").fit(**problem.training_data())
        with pytest.raises(ValueError, match="warm_start"):
            KPU(warm_start=1.0).fit(**problem.training_data())


def test_sta_as_its_authors_have_it_takes_the_rows_most_similar_to_any_class():
    """Two classes; both rows most similar to a class are of class 0, so class 1 selects nothing."""
    similarity = torch.tensor([[9.0, 0.0], [8.0, 0.0], [0.0, 1.0], [-9.0, -9.0]])
    chosen = {}
    for original in (False, True):
        model = SeparateToAdapt(original=original, extreme=0.5)
        seen = []

        def separator(features, seen=seen):
            seen.append(features[:, 0].tolist())
            return features[:, 0]

        net = {"similarity": lambda _: similarity, "separator": separator, "classifier": lambda x: x}
        model._learn_similarity = lambda fit, batch: torch.tensor(0.0)
        fit = type("Fit", (), {"net": net})
        batch = type("Batch", (), {"target": torch.arange(4.0)[:, None]})
        model._separate(fit, batch)
        chosen[original] = sorted(seen[0])
    assert chosen == {False: [0.0, 2.0], True: [0.0, 1.0]}


class TestStopping:
    """The paper's rule: until the accuracy on held-out source rows ceases to increase."""

    @pytest.mark.parametrize("method", [KPU, UAN, SeparateToAdapt], ids=lambda c: c.__name__)
    def test_easy_data_ends_the_training_early(self, problem, method):
        model = method(max_steps=5000, patience=2, random_state=0)
        if method is KPU:
            model.set_params(n_folds=1, warm_start=0.01)
        model.fit(**problem.training_data())
        assert accuracy(problem.y_target, model.target_labels_, -1).seen > 0.5
        # An epoch is a few steps; all 5,000 would be hundreds of them.
        assert len(model.history_) < 100


class TestTheFive:
    @pytest.fixture(params=FIVE, ids=lambda c: c.__name__)
    def method(self, request):
        return request.param

    def test_parameters_are_all_in_the_signature(self, method):
        shared = set(inspect.signature(DeepAdapter.__init__).parameters)
        own = set(inspect.signature(method.__init__).parameters)
        assert shared < own
        assert "shared" not in own
        assert set(method().get_params()) == own - {"self"}
        assert method(threshold=0.3).set_params(align=False).get_params()["threshold"] == 0.3
        with pytest.raises(TypeError, match="treshold"):
            method(treshold=0.3)

    def test_align_false_removes_the_term(self, method, problem, monkeypatch):
        """Without alignment its loss is never computed, or its discriminator never learns."""
        fitted = {
            steps: method(align=False, max_steps=steps, random_state=0).fit(**problem.training_data())
            for steps in (1, 20)
        }
        if "discriminator" in fitted[1]._net:
            before, after = (fitted[steps]._net["discriminator"].state_dict() for steps in (1, 20))
            learned = method(max_steps=20, random_state=0).fit(**problem.training_data())
            now = learned._net["discriminator"].state_dict()
            for name in before:
                torch.testing.assert_close(before[name], after[name])
                assert not torch.equal(before[name], now[name])
        else:
            term = {BackpropODA: "boundary_loss", DANCE: "entropy_separation"}[method]
            monkeypatch.setattr(inspect.getmodule(method), term, None)
            method(align=False, max_steps=2, random_state=0).fit(**problem.training_data())
            with pytest.raises(TypeError, match="not callable"):
                method(max_steps=2, random_state=0).fit(**problem.training_data())

    def test_threshold_moves_the_rule(self, method, problem):
        low, high = method.score_range
        model = method(max_steps=40, random_state=0, threshold=low).fit(**problem.training_data())
        assert model.novel_prevalence_ == 0
        model.set_params(threshold=high + 1)
        assert (model.predict(problem.X_target) == -1).all()
        with pytest.raises(ValueError, match="threshold must be a finite number"):
            method(threshold=np.nan).fit(**problem.training_data())

    def test_own_threshold_in_hindsight_is_no_better_than_the_best(self, method, problem):
        model = method(max_steps=60, random_state=0).fit(**problem.training_data())
        best = best_threshold(model.known_score_, model.known_labels_, problem.y_target, -1)
        assert best.accuracy >= accuracy(problem.y_target, model.target_labels_, -1).all
        model.set_params(threshold=best.threshold)
        assert model.score(problem.X_target, problem.y_target) == pytest.approx(best.accuracy)

    def test_history_and_callback(self, method, problem):
        calls = []

        def remember(epoch, proba):
            calls.append((epoch, proba.argmax(axis=1)))

        model = method(max_steps=40, callback=remember, random_state=0).fit(**problem.training_data())
        assert [epoch for epoch, _ in calls] == [r["epoch"] for r in model.history_]
        for (_, labels), record in zip(calls, model.history_, strict=True):
            assert record["novel_share"] == pytest.approx(np.mean(labels == 3))
            assert sum(record["target_marginal"]) == pytest.approx(1)
            assert np.isfinite(record["loss"])
        assert model.history_[-1]["novel_share"] == model.novel_prevalence_

    def test_both_sides_go_through_the_network_together(self, method, problem):
        shapes = []

        class Spy(MLPFeatures):
            def forward(self, x):
                if self.training:
                    shapes.append(len(x))
                return super().forward(x)

        method(network=lambda shape: Spy(shape[0], 16), max_steps=10, random_state=0).fit(
            **problem.training_data()
        )
        # One pass a step, of both sides.
        assert shapes == [64] * 10

    def test_images(self, method):
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1], 30)
        X = rng.normal(size=(60, 1, 8, 8)).astype(np.float32)
        X[y == 1, :, 2:5] += 3
        model = method(max_steps=20, random_state=0).fit(X, y, X_target=X)
        assert isinstance(model._net["features"], ConvFeatures)
        assert model.predict_proba(X[:3]).shape == (3, 3)

    def test_network_without_out_features(self, method, problem):
        with pytest.raises(TypeError, match="out_features"):
            method(network=lambda shape: nn.Identity()).fit(**problem.training_data())
        with pytest.raises(ValueError, match="max_steps"):
            method(max_steps=0).fit(**problem.training_data())

    def test_pickles_small(self, method, problem):
        """No training state (rows, memory bank) stays in the fitted model."""
        model = method(network=_tiny, max_steps=10, random_state=0).fit(**problem.training_data())
        assert len(pickle.dumps(model)) < 60_000


def _tiny(shape):
    return MLPFeatures(shape[0], 8)


class TestMechanisms:
    def test_boda_features_and_classifier_pull_in_opposite_directions(self):
        """Through the reversal, the classifier's gradient is the loss's and the features' is its opposite."""
        features = torch.randn(6, 4, requires_grad=True)
        head = nn.Linear(4, 3)

        def gradients(strength):
            features.grad = head.weight.grad = None
            x = features if strength is None else losses.reverse_gradient(features, strength)
            losses.boundary_loss(head(x).softmax(dim=1)[:, -1], 0.5).backward()
            return features.grad.clone(), head.weight.grad.clone()

        (plain, plain_head), (flipped, flipped_head) = gradients(None), gradients(1.0)
        torch.testing.assert_close(flipped, -plain)
        torch.testing.assert_close(flipped_head, plain_head)

    def test_boda_without_its_target_loss_knows_no_novel_class(self, problem):
        model = BackpropODA(align=False, max_steps=200, random_state=0).fit(**problem.training_data())
        assert model.novel_prevalence_ < 0.02

    def test_sta_separator_ranks_novel_below_seen(self, problem):
        kept = {}

        class Spied(SeparateToAdapt):
            def _hold_weights(self, fit):
                super()._hold_weights(fit)
                kept.update(fit.kept)

        Spied(max_steps=300, random_state=0).fit(**problem.training_data())
        weight, novel = kept["known_weight"].numpy(), problem.y_target == -1
        assert weight[novel].mean() < weight[~novel].mean() - 0.3
        assert np.mean(weight[novel][:, None] < weight[~novel][None]) > 0.9

    def test_uan_weighs_transferable_rows(self, problem):
        """Novel target rows get a lower transferability than seen ones, without being asked to."""
        model = UAN(align=False, max_steps=300, random_state=0).fit(**problem.training_data())
        novel = problem.y_target == -1
        assert model.known_score_[novel].mean() < model.known_score_[~novel].mean()
        features = model._net["features"](torch.from_numpy(model._encoder(problem.X_target[:5])))
        proba = model._net["classifier"](features).softmax(dim=1)
        expected = model._net["separate"](features).sigmoid() - losses.normalised_entropy(proba)
        np.testing.assert_allclose(model.known_score_[:5], expected.detach(), atol=1e-5)

    def test_uan_separate_discriminator_does_not_touch_the_features(self, problem):
        """Without alignment the features learn from the source's classes alone."""

        class Spied(UAN):
            def _loss(self, fit, batch):
                loss, alone = super()._loss(fit, batch), source_loss(fit, batch)
                assert loss > alone
                sides = batch.source, batch.target
                self.gradients = torch.autograd.grad(loss, sides, retain_graph=True, allow_unused=True)
                (self.expected,) = torch.autograd.grad(alone, batch.source, retain_graph=True)
                return loss

        model = Spied(align=False, max_steps=1, random_state=0).fit(**problem.training_data())
        torch.testing.assert_close(model.gradients[0], model.expected)
        assert model.gradients[1] is None

    def test_cmu_members_differ_and_weights_use_them(self, problem):
        ensemble = Ensemble(5, 4, 3)
        assert ensemble(torch.randn(7, 4)).shape == (5, 7, 3)
        model = CMU(max_steps=60, random_state=0).fit(**problem.training_data())
        members = model._net["ensemble"].members
        assert len(members) == 5
        for one in range(5):
            for two in range(one):
                assert not torch.allclose(members[one].weight, members[two].weight, atol=1e-2)
        with pytest.raises(ValueError, match="n_classifiers must be at least 2"):
            CMU(n_classifiers=1).fit(**problem.training_data())

    def test_cmu_bootstrap_gives_every_member_its_own_sample(self, problem):
        kept = {}

        class Spied(CMU):
            def _draw_bootstrap(self, fit):
                super()._draw_bootstrap(fit)
                kept.update(fit.kept)

        Spied(max_steps=20, random_state=0).fit(**problem.training_data())
        counts = kept["bootstrap"]
        n = len(problem.y_source)
        assert counts.shape == (5, n)
        assert (counts.sum(dim=1) == n).all()
        assert not torch.equal(counts[0], counts[1])

    def test_cmu_scores_span_the_target(self, problem):
        model = CMU(max_steps=60, random_state=0).fit(**problem.training_data())
        low, high = model._calibration
        assert (low < high).all()
        assert 0 <= model.known_score_.min() < model.known_score_.max() <= 1

    def test_memory_bank_updates_the_rows_it_is_given(self):
        bank = MemoryBank(torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]]), momentum=0.0)
        close(bank.features, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        old = bank.features
        bank.update(torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
        close(bank.features, [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
        close(old, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        slow = MemoryBank(torch.tensor([[1.0, 0.0]]), momentum=0.5)
        slow.update(torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
        close(slow.features, [[math.sqrt(0.5), math.sqrt(0.5)]])

    def test_dance_keeps_a_bank_of_the_whole_target(self, problem):
        kept = {}

        class Spied(DANCE):
            def _loss(self, fit, batch):
                kept.setdefault("first", fit.kept["bank"].features)
                loss = super()._loss(fit, batch)
                kept["last"] = fit.kept["bank"].features
                return loss

        Spied(max_steps=30, random_state=0).fit(**problem.training_data())
        assert len(kept["first"]) == len(problem.X_target)
        close(kept["last"].norm(dim=1), [1.0] * len(problem.X_target))
        assert not torch.equal(kept["first"], kept["last"])

    def test_dance_classifier_sees_directions_only(self):
        head = CosineClassifier(4, 3, temperature=0.05)
        x = torch.randn(5, 4)
        torch.testing.assert_close(head(x), head(7 * x))
        assert head(x).abs().max() <= 20 + 1e-4

    def test_dance_cannot_reject_with_one_class(self):
        p = simulate_osls(*blobs(sizes=(120, 120)), novel=[1], random_state=0)
        model = DANCE(max_steps=30, random_state=0).fit(**p.training_data())
        assert model.novel_prevalence_ == 0


def test_every_baseline_has_a_name_in_the_benchmark():
    assert {"source-only", "domain-disc", "k-pu", "backprop-oda", "sta", "uan", "cmu", "dance"} <= set(
        METHODS
    )


def test_em_that_is_stopped_has_taken_a_step():
    proba, known, mix = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0.9, 0.5]), np.full(3, 1 / 3)
    assert open_set_em(proba, known, mix, iterations=0).tolist() == mix.tolist()
    # One step is the mean of the posteriors, here the classifiers' own: the mix is even.
    step = np.column_stack([known[:, None] * proba, 1 - known]).mean(axis=0)
    np.testing.assert_allclose(open_set_em(proba, known, mix, iterations=1), step)
