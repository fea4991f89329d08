"""The methods that came after the paper: the mechanism of each, by hand where it can be."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone

from conftest import ADAPTERS, FOREST, blobs
from osls.app.bench.draws import draw_problem
from osls.app.bench.evaluation import summarise
from osls.app.bench.methods import METHODS, run_method
from osls.app.bench.study import parse_study, runs_of
from osls.baselines import EULAC, UAN, ClusterVote, CoLOR, Detector, LACForest, OVANet
from osls.baselines.color import Lagrangian, choose_head
from osls.baselines.eulac import augmented_risk, minimise_risk, non_negative_risk
from osls.baselines.lac_forest import Forest, Tree, augmented_gini, gini_score, split_score
from osls.baselines.novelty_detectors import (
    LargestPValue,
    Mahalanobis,
    NearestRows,
    NegativeEnergy,
    threshold_of,
)
from osls.baselines.ovanet import UnitDirections, hardest_negative, open_entropy
from osls.datasets import change_looks, simulate_osls
from osls.metrics import accuracy
from osls.mixture import KernelPrior

LOG2 = math.log(2)


class TestLACForest:
    def test_augmented_gini_counts_the_surplus_as_novel(self):
        # 3 and 1 labelled rows, 10 unlabelled ones of which 6 should be known: rho = .4.
        found = augmented_gini(np.array([3.0, 1.0, 10.0]), np.array(6.0))
        assert found == pytest.approx(1 - (0.6 * 0.75) ** 2 - (0.6 * 0.25) ** 2 - 0.4**2)
        # Fewer unlabelled rows than there should be: nothing is novel, and the usual index is left.
        assert augmented_gini(np.array([3.0, 1.0, 2.0]), np.array(6.0)) == pytest.approx(1 - 10 / 16)

    def test_a_split_shares_the_known_rows_by_labelled_rows(self):
        left, right = np.array([4.0, 0.0, 4.0]), np.array([0.0, 4.0, 8.0])
        # 8 known rows, 4 on each side: the left is pure, the right is half class 1 and half novel.
        assert split_score(left, right, 8.0) == pytest.approx((4 * 0 + 8 * 0.5) / 12)

    def test_gini_score_is_the_weighted_mean(self):
        assert gini_score(np.array([2.0, 2.0]), np.array([4.0, 0.0])) == pytest.approx(0.5 * 0.5)

    def test_trees_in_one_forest_keep_their_nodes(self):
        numbers = np.array([[0.0], [2.0]])
        trees = [
            Tree(np.array([0, -1, -1]), np.array([1.0, 0, 0]), np.array([1, -1, -1]), np.eye(3)[[0, 0, 1]]),
            Tree(np.array([-1]), np.array([0.0]), np.array([-1]), np.eye(3)[[2]]),
        ]
        forest = Forest.of(lambda X: X, trees)
        expected = [[0.5, 0, 0.5], [0, 0.5, 0.5]]
        np.testing.assert_allclose(forest.predict_proba(numbers), expected)

    def test_what_no_tree_knows_is_novel(self):
        nothing = Tree(np.array([-1]), np.array([0.0]), np.array([-1]), np.zeros((1, 3)))
        np.testing.assert_allclose(
            Forest.of(lambda X: X, [nothing]).predict_proba(np.zeros((1, 1))), [[0, 0, 1]]
        )

    def test_without_label_shift_it_finds_the_novel_rows(self):
        p = simulate_osls(*blobs(sizes=(300,) * 4), novel=[3], source_fraction=(0.5, 0.5), random_state=0)
        share = float(p.target_marginal[-1])
        model = LACForest(n_trees=20, novel_share=share, random_state=0).fit(**p.training_data())
        assert model.novel_prevalence_ == pytest.approx(share)
        assert accuracy(p.y_target, model.target_labels_, -1).all > 0.95


class TestEULAC:
    def test_risk_by_hand(self):
        source, y = np.array([[1.0, 0.0, -1.0], [0.5, 0.5, 0.0]]), np.array([0, 1])
        target = np.array([[1.0, -1.0, 0.0], [-1.0, -1.0, 1.0]])
        # .3 (-1 - 1) + .4 (0 - .5), and of the target rows ((1 - 0)^2 + 4 + 0) / 4 and 0.
        assert augmented_risk(source, y, target, np.array([0.3, 0.4])) == pytest.approx(-0.6 - 0.2 + 5 / 8)

    def test_it_is_the_risk_with_labels_if_the_sides_agree(self):
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1], [20, 30])
        known, novel = rng.normal(size=(50, 3)), rng.normal(size=(50, 3))
        sign = -np.ones((100, 3))
        sign[np.arange(50), y] = 1
        sign[50:, 2] = 1
        target = np.concatenate([known, novel])
        labelled = np.mean(np.square(1 - sign * target).sum(axis=1)) / 4
        assert augmented_risk(known, y, target, np.array([0.2, 0.3])) == pytest.approx(labelled)

    def test_the_closed_form_is_the_minimum(self):
        rng = np.random.default_rng(0)
        source, y, target = rng.normal(size=(30, 4)), np.arange(30) % 2, rng.normal(size=(40, 4))
        shares, gram, penalty = np.array([0.3, 0.5]), np.eye(4), 0.1
        best = minimise_risk(source, y, target, shares, gram, penalty)

        def objective(v):
            return augmented_risk(source @ v, y, target @ v, shares) + penalty * np.sum(v**2)

        assert all(
            objective(best) < objective(best + rng.normal(scale=0.01, size=best.shape)) for _ in "12345"
        )

    def test_networks_start_at_one_log_two_for_each_class(self):
        source, target = torch.zeros(2, 6, 3), torch.zeros(2, 5, 3)
        y = torch.tensor([[0, 1, 0, 1, 0, 1]] * 2)
        risk = non_negative_risk(source, y, target, torch.tensor([0.2, 0.3]))
        torch.testing.assert_close(risk, torch.tensor(2 * 3 * LOG2))

    def test_no_part_of_the_networks_risk_is_negative(self):
        # The target looks known with certainty: its part as novel would be far below zero.
        source, target = torch.full((1, 2, 2), -30.0), torch.full((1, 2, 2), 0.0)
        source[..., 0] = 30
        target[..., 1] = 30
        risk = non_negative_risk(source, torch.tensor([[0, 0]]), target, torch.tensor([1.0]))
        assert risk.item() == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("model", ["kernel", "linear", "mlp"])
    def test_every_form_finds_the_novel_rows(self, model, problem):
        share = float(problem.target_marginal[-1])
        found = EULAC(
            model=model, novel_share=share, source_classifier=FOREST, max_steps=300, n_folds=2, random_state=0
        ).fit(**problem.training_data())
        assert found.novel_prevalence_ == pytest.approx(share)
        assert accuracy(problem.y_target, found.target_labels_, -1).all > 0.85

    def test_without_prior_shift_the_sources_mix_is_scaled(self, problem):
        model = EULAC(prior_shift=False, novel_share=0.4, penalty=0.01, random_state=0)
        model.fit(**problem.training_data())
        np.testing.assert_allclose(model.target_marginal_[:-1], 0.6 * problem.source_marginal)


class TestCoLOR:
    def test_lagrangian_by_hand(self):
        device = torch.device("cpu")
        loss = Lagrangian([0.2, 0.6], 1, 1, sharpness=2.0, dual_rate=0.1, device=device)
        source, target = torch.zeros(1, 4, 3), torch.zeros(1, 4, 3)
        target[0, :, 2] = torch.tensor([9.0, 9.0, -9.0, -9.0])
        # One class: no cross-entropy. Both smooth recalls are 1/2, and multipliers start at one.
        value = loss(source, torch.zeros(1, 4, dtype=torch.long), target)
        assert value.item() == pytest.approx((2 * LOG2 + (0.2 - 0.5) + (0.6 - 0.5)) / 2, abs=1e-5)
        # No logit of the first head is positive, half of the second head's are: both are short of it.
        np.testing.assert_allclose(loss.multipliers.numpy(), [[1.1, 1.1]], rtol=1e-4)

    def test_multipliers_fall_to_zero_where_the_recall_is_reached(self):
        loss = Lagrangian([0.1], 1, 1, sharpness=2.0, dual_rate=0.6, device=torch.device("cpu"))
        for _ in range(3):
            loss(torch.zeros(1, 4, 2), torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4, 2))
        assert loss.multipliers.item() == 0

    def test_the_boldest_reliable_head_is_chosen(self):
        recall = np.array([0.1, 0.3, 0.5])
        assert choose_head(np.array([0.0, 0.01, 0.2]), recall, 0.01) == 1
        assert choose_head(np.array([0.3, 0.2, 0.4]), recall, 0.01) == 1

    def test_recalls_are_checked(self, problem):
        with pytest.raises(ValueError, match="recalls must be one or more numbers between 0 and 1"):
            CoLOR(recalls=[1.5]).fit(**problem.training_data())


class TestOVANet:
    def test_only_the_hardest_other_head_counts(self):
        logits = torch.tensor([[0.0, -30.0, 0.0], [30.0, 30.0, -30.0]])
        # First row: log 2 as own, log 2 for the third head. Second: nothing as own, 30 for the first.
        found = hardest_negative(logits, torch.tensor([0, 1]))
        assert found.item() == pytest.approx((0.5 * 2 * LOG2 + 0.5 * 30) / 2, abs=1e-5)

    def test_one_class_has_no_other_head(self):
        assert hardest_negative(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long)).item() == pytest.approx(
            LOG2 / 2
        )

    def test_entropy_of_the_heads(self):
        assert open_entropy(torch.tensor([[0.0, 50.0]])).item() == pytest.approx(LOG2 / 2, abs=1e-5)

    def test_the_length_of_weights_does_not_matter(self):
        head, x = UnitDirections(4, 3), torch.ones(2, 4)
        before = head(x)
        with torch.no_grad():
            head.weight *= 7
        torch.testing.assert_close(head(x), before)

    @pytest.mark.parametrize(("method", "passes"), [(OVANet, 2), (UAN, 1)])
    def test_only_here_the_sides_have_batch_statistics_of_their_own(self, method, passes):
        class Counting(torch.nn.Linear):
            training_passes = 0

            def forward(self, x):
                Counting.training_passes += self.training
                return super().forward(x)

        X = np.random.default_rng(0).normal(size=(60, 2))
        model = method(network=lambda shape: Counting(shape[0], 4), max_steps=3, random_state=0)
        model.fit(X[:30], np.arange(30) % 2, X_target=X[30:])
        assert Counting.training_passes == 3 * passes


class TestDetector:
    def test_mahalanobis_by_hand(self):
        score = Mahalanobis(np.diag([1.0, 0.5]), np.array([[0.0, 0.0], [10.0, 0.0]]))
        np.testing.assert_allclose(score(np.array([[0.0, 4.0], [10.0, 0.0]])), [-2, 0], atol=1e-6)

    def test_mahalanobis_whitens_within_the_classes(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(4000, 2)) * [1.0, 5.0]
        y = np.arange(4000) % 2
        X[y == 1] += 20
        score = Mahalanobis.of(X, y, 0)
        np.testing.assert_allclose(score(np.array([[0.0, 10.0], [22.0, 20.0]])), [-2, -2], atol=0.15)

    def test_nearest_rows(self):
        score = NearestRows(np.arange(12.0)[:, None])
        np.testing.assert_allclose(score(np.array([[0.0]])), [-9], atol=1e-6)
        assert NearestRows(np.zeros((2, 1)))(np.array([[3.0]])).tolist() == [-3]

    def test_the_p_value_of_the_best_class(self):
        # Of class 0 the held-out rows had .5, .7, .9 and of class 1 .6 and .8.
        held_out = np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
        score = LargestPValue.of(None, held_out, np.array([0, 0, 0, 1, 1]))
        np.testing.assert_allclose(score.judge(np.array([[0.75, 0.25], [0.45, 0.55]])), [3 / 4, 1 / 3])

    def test_threshold_keeps_ties_known(self):
        assert threshold_of(np.zeros(10), np.zeros(5), 0.05, None) == 0
        assert threshold_of(np.zeros(1), np.arange(4.0), 0.05, 1.0) == np.inf

    @pytest.mark.parametrize("kind", ["max-softmax", "energy", "mahalanobis", "isolation-forest", "knn"])
    def test_a_given_share_is_called_novel(self, kind, problem):
        name = "max-softmax" if kind == "max-softmax" else kind
        model = clone(ADAPTERS[name]).set_params(share=0.25, source_classifier="mlp", max_steps=60)
        model.fit(**problem.training_data())
        # Confident rows tie in their probability.
        assert model.novel_prevalence_ == pytest.approx(0.25, abs=0.05 if kind == "max-softmax" else 0.005)

    def test_all_of_the_target_can_be_novel(self, problem):
        model = Detector(kind="knn", source_classifier=FOREST, share=1.0, random_state=0)
        assert model.fit(**problem.training_data()).novel_prevalence_ == 1

    def test_energy_needs_logits(self, problem):
        with pytest.raises(ValueError, match="source_classifier must be a network for kind='energy'"):
            Detector(kind="energy", source_classifier="trees").fit(**problem.training_data())

    def test_energy_is_the_log_sum_exp(self):
        class Two:
            encoder, device = staticmethod(lambda X: X), torch.device("cpu")

            def logits(self, rows):
                return np.array([[[0.0, 0.0]], [[1.0, 1.0]]])

        np.testing.assert_allclose(NegativeEnergy(Two())(np.zeros((1, 2))), [LOG2 + 0.5])

    def test_it_has_few_false_alarms_without_anything_new(self):
        p = simulate_osls(*blobs(sizes=(400,) * 3), novel=0, random_state=0)
        model = Detector(kind="mahalanobis", source_classifier=FOREST, random_state=0)
        assert model.fit(**p.training_data()).novel_prevalence_ == pytest.approx(0.05, abs=0.03)


class TestClusterVote:
    def test_a_cluster_without_labels_is_novel(self, problem):
        model = ClusterVote().fit(**problem.training_data())
        assert np.mean(model.target_labels_ == problem.y_target) > 0.95
        assert model.novel_prevalence_ == pytest.approx(problem.target_marginal[-1], abs=0.03)

    def test_a_cluster_has_the_classes_of_its_labelled_rows(self):
        rng = np.random.default_rng(0)
        # Two groups; in the first, a quarter of the rows are of class 1.
        X, y = rng.normal(size=(120, 2)) + 20 * (np.arange(120) >= 80)[:, None], np.arange(120) // 60
        model = ClusterVote(min_cluster_size=30).fit(X, y, X_target=X)
        np.testing.assert_allclose(model.predict_proba([[0.0, 0.0]]), [[0.75, 0.25, 0.0]], atol=0.1)

    def test_without_clusters_the_nearest_labelled_row_counts(self):
        X = np.arange(12.0)[:, None] ** 3
        model = ClusterVote(min_cluster_size=24).fit(X, np.arange(12) // 6, X_target=X + 0.1)
        assert model.target_labels_.tolist() == [0] * 6 + [1] * 6


class TestBench:
    def test_names(self):
        detectors = {"max-softmax", "energy", "mahalanobis", "isolation-forest", "knn-distance", "conformal"}
        assert {"lacforest", "eulac", "color", "ovanet", "lacforest-oracle", *detectors} <= set(METHODS)
        assert {f"{name}-oracle" for name in detectors} <= set(METHODS)

    def test_a_method_that_is_told_the_share_gets_the_true_one(self, problem):
        answers = run_method("knn-distance-oracle", problem, seed=0, parameters={"source_classifier": FOREST})
        assert answers.target_marginal[-1] == pytest.approx(problem.target_marginal[-1], abs=0.005)

    def test_who_is_told_does_not_compete(self):
        def row(name, value):
            config = json.dumps({"method": {"name": name}})
            names = {"data": "d", "setting": "", "method": name, "draw": 0, "paper": None, "error": None}
            return {**names, "config": config, "commit": None, "acc_all": value}

        told, *others = summarise(
            [row("knn-distance-oracle", 0.9), row("knn-distance", 0.8), row("k-pu", 0.7)]
        )[0].lines
        assert not told.stats["acc_all"].best
        assert [line.stats["acc_all"].best for line in others] == [True, False]

    def test_a_study_can_change_looks_and_have_few_rows(self):
        settings = [{"label": "moved", "looks": 0.2}, {"label": "few", "source_rows": [5, 20]}]
        content = {"name": "s", "data": ["digits"], "methods": ["source-only"], "settings": settings}
        configs = [run.config["data"] for run in runs_of(parse_study({**content, "draws": 1}))]
        moved, few = (draw_problem(config, draw=0) for config in configs)
        plain = draw_problem({"name": "digits"}, draw=0)
        np.testing.assert_array_equal(moved.y_target, plain.y_target)
        np.testing.assert_array_equal(moved.X_source, plain.X_source)
        assert not np.array_equal(moved.X_target, plain.X_target)
        assert 5 <= np.unique(few.y_source, return_counts=True)[1].min() <= 20


class TestLooks:
    def test_classes_move_by_the_strength_and_novel_rows_do_not(self):
        p = simulate_osls(*blobs(sizes=(4000, 4000, 100)), novel=[2], test_size=0, random_state=0)
        changed = change_looks(p, 0.1, random_state=0)
        novel = p.y_target == p.novel_label
        np.testing.assert_array_equal(changed.X_target[novel], p.X_target[novel])
        np.testing.assert_array_equal(changed.X_source, p.X_source)
        moves = [
            changed.X_target[p.y_target == c].mean(0) - p.X_target[p.y_target == c].mean(0) for c in (0, 1)
        ]
        # The blobs have unit variance: ten normal numbers of standard deviation .1, the same for nobody.
        assert 0.04 < np.std(moves) < 0.2
        assert not np.allclose(moves[0], moves[1])

    def test_the_formula(self):
        p = simulate_osls(*blobs(), novel=[3], random_state=0)
        rng = np.random.RandomState(7)
        changed = change_looks(p, 0.3, random_state=rng)
        again = np.random.RandomState(7)
        a, b = again.normal(size=(3, 5)), again.normal(size=(3, 5))
        means = np.array([p.X_source[p.y_source == c].mean(axis=0) for c in p.classes])
        spread = np.sqrt(np.square(p.X_source - means[p.y_source]).mean(axis=0))
        row = np.flatnonzero(p.y_test == 1)[0]
        expected = means[1] + np.exp(0.3 * b[1]) * (p.X_test[row] - means[1]) + 0.3 * a[1] * spread
        np.testing.assert_allclose(changed.X_test[row], expected, rtol=1e-4, atol=1e-4)

    def test_strength_zero_changes_nothing(self, problem):
        np.testing.assert_allclose(
            change_looks(problem, 0, random_state=0).X_target, problem.X_target, atol=1e-5
        )

    def test_errors(self, problem):
        with pytest.raises(ValueError, match="strength must be at least 0"):
            change_looks(problem, -1)
        with pytest.raises(ValueError, match="dense table"):
            change_looks(replace(problem, X_target=sparse.csr_matrix(problem.X_target)), 0.1)

    def test_source_rows(self):
        X, y = blobs(sizes=(100, 100, 8, 50))
        p = simulate_osls(X, y, novel=[3], source_rows=(9, 12), random_state=0)
        counts = np.bincount(p.y_source)
        assert 9 <= counts[:2].min() <= counts[:2].max() <= 12
        assert counts[2] == 8
        with pytest.raises(ValueError, match="source_rows must satisfy"):
            simulate_osls(X, y, source_rows=(0, 5))
        with pytest.raises(ValueError, match="pass one of them"):
            simulate_osls(X, y, novel=[3], source_rows=(5, 9), source_marginal=[0.2, 0.3, 0.5])


class TestKernelPrior:
    def test_it_is_exact_on_exact_mixtures(self):
        positive, negative = [[0.0]], [[3.0]]
        for later, share in ((negative, 0.0), (positive, 1.0), (positive * 3 + negative * 7, 0.3)):
            found = KernelPrior(prior=0.4).fit(positive, positive * 2 + negative * 3, later)
            assert found.alpha_ == pytest.approx(share)

    def test_real_samples(self):
        rng = np.random.default_rng(0)

        def draw(n, share):
            return rng.normal(size=(n, 3)) + 2.0 * (rng.random(n) < share)[:, None]

        found = KernelPrior(prior=0.5).fit(draw(500, 1.0), draw(1000, 0.5), draw(1000, 0.2))
        assert found.alpha_ == pytest.approx(0.2, abs=0.05)

    def test_positives_like_the_rest_say_nothing(self):
        rows = [[0.0], [1.0]]
        assert KernelPrior(prior=0.4).fit(rows, rows, [[5.0]]).alpha_ == 0.4

    def test_errors(self):
        with pytest.raises(ValueError, match="prior must lie in"):
            KernelPrior(prior=1.0).fit([[0.0]], [[0.0]], [[0.0]])
        with pytest.raises(ValueError, match="later must be a table"):
            KernelPrior().fit([[0.0]], [[0.0]], [[np.nan]])
