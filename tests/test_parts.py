"""The formulas and small mechanisms, each against a value computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from osls._core.arrays import keep_as_novel
from osls._core.parts import Part
from osls.base import combine, combine_opinions
from osls.inference import novelty_test
from osls.metrics import accuracy, mix_error, regret
from osls.pu import losses
from osls.shift.calibration import fit_pool, fit_temperature, pool
from osls.shift.joint import domain_score, joint_estimate, solve_bins
from osls.shift.programme import largest_mix
from osls.training.choose import choose_learner
from osls.training.learners import (
    Blend,
    FoldModels,
    FoldTask,
    Learner,
    NetworkLearner,
    SklearnLearner,
    continue_from,
    cross_fit_all,
)
from osls.training.nets import SmallResNet, StackedMLP
from osls.training.predictors import Constant, Encoder
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Schedule, as_tensor, seeded

LOG2, SOFT1 = np.log(2), np.log1p(np.e)  # softplus(0), softplus(1)


def sharpened(proba, power):
    powers = proba**power
    return powers / powers.sum(axis=1, keepdims=True)


class TestCombine:
    def test_two_opinions_by_hand(self):
        """The discriminator says (.2, .2, .4) up to scale, so novel is 1/2; the classifier says (.9, .1)."""
        proba = combine_opinions(np.array([[0.2, 0.2, 0.4]]), np.array([[0.9, 0.1]]), np.ones(2))
        np.testing.assert_allclose(proba, [[(0.45 + 0.25) / 2, (0.05 + 0.25) / 2, 0.5]])

    def test_uninformative_row_takes_the_target_mix(self):
        """The authors' code multiplies by p'_t without dividing by p_s and gives (.5, .5) here."""
        p_s, p_t = np.array([0.8, 0.2]), np.array([0.2, 0.8])
        proba = combine(np.array([1.0]), p_s[None, :], p_t / p_s)
        np.testing.assert_allclose(proba, [[0.2, 0.8, 0.0]])

    def test_hand_computed_value(self):
        proba = combine(np.array([0.6]), np.array([[0.5, 0.5]]), np.array([3.0, 1.0]))
        np.testing.assert_allclose(proba, [[0.45, 0.15, 0.4]])

    def test_all_weighted_classes_ruled_out(self):
        proba = combine(np.array([0.5]), np.array([[1.0, 0.0]]), np.array([0.0, 1.0]))
        np.testing.assert_allclose(proba, [[0.5, 0.0, 0.5]])


class TestLosses:
    positive, unlabeled = torch.tensor([0.0, 1.0]), torch.tensor([0.0])

    def test_pvu(self):
        # l+(0) = log 2, l+(1) = log(1 + e) - 1, l-(0) = log 2.
        assert losses.pvu(self.positive, self.unlabeled).item() == pytest.approx(
            (LOG2 + SOFT1 - 1) / 2 + LOG2, rel=1e-6
        )

    def test_upu(self):
        expected = 0.5 * (LOG2 + SOFT1 - 1) / 2 + LOG2 - 0.5 * (LOG2 + SOFT1) / 2
        assert losses.upu(self.positive, self.unlabeled, 0.5).item() == pytest.approx(expected, rel=1e-6)

    def test_nnpu_stops_at_zero(self):
        strong, weak = torch.tensor([3.0]), torch.tensor([-3.0])
        assert losses.upu(strong, weak, 0.9).item() < 0
        assert losses.nnpu(strong, weak, 0.9).item() == pytest.approx(0.9 * np.log1p(np.exp(-3)), rel=1e-5)
        assert losses.nnpu(self.positive, self.unlabeled, 0.1).item() == pytest.approx(
            losses.upu(self.positive, self.unlabeled, 0.1).item()
        )

    def test_cvir(self):
        expected = 0.75 * (LOG2 + SOFT1 - 1) / 2 + 0.25 * LOG2
        assert losses.cvir(self.positive, self.unlabeled, 0.75).item() == pytest.approx(expected, rel=1e-6)


class TestKeepRule:
    def test_lowest_scores_are_kept(self):
        assert keep_as_novel(np.array([0.9, 0.1, 0.5, 0.2]), 0.5).tolist() == [False, True, False, True]

    def test_a_share_below_one_row_keeps_one_not_all(self):
        """The authors' ``[-0:]`` keeps every row as novel."""
        assert keep_as_novel(np.linspace(0, 1, 100), 0.001).sum() == 1

    @given(st.floats(0, 1), st.integers(1, 200))
    def test_never_empty(self, share, m):
        kept = keep_as_novel(np.zeros(m), share)
        assert 1 <= kept.sum() <= m
        assert abs(kept.sum() - share * m) <= 1


class TestSampling:
    @given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(2, 6))
    def test_folds_spread_each_stratum(self, strata, n_folds):
        strata = np.array(strata)
        fold = assign_folds(strata, n_folds, np.random.default_rng(0))
        for value in np.unique(strata):
            counts = np.bincount(fold[strata == value], minlength=n_folds)
            assert counts.max() - counts.min() <= 1

    @given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
    def test_one_fold_is_a_fifth_with_every_stratum(self, strata):
        strata = np.array(strata)
        fold = assign_folds(strata, 1, np.random.default_rng(0))
        assert set(fold) <= {0, -1}
        assert set(strata[fold == 0]) == set(strata)
        assert len(strata) // 5 <= (fold == 0).sum() <= len(strata) // 5 + 1 + len(set(strata))

    def test_equal_weights_make_a_permutation(self):
        sampler = EpochSampler(np.ones(50), torch.Generator().manual_seed(0))
        assert sorted(sampler.next(50).tolist()) == list(range(50))

    def test_weights_are_expected_counts(self):
        weight = np.array([0.0, 1.0, 2.0, 5.0])
        drawn = EpochSampler(weight, torch.Generator().manual_seed(0)).next(8000)
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 8000, weight / 8, atol=0.01)

    def test_nothing_to_train_on(self):
        with pytest.raises(ValueError, match="positive weight"):
            EpochSampler(np.zeros(3), torch.Generator())


class TestShift:
    def test_programme_solves_the_papers_second_example(self):
        classes = np.array([[0.5, 0.2], [0.3, 0.4], [0.1, 0.35], [0.1, 0.05]])
        target = np.array([0.24, 0.2, 0.35, 0.21])
        # Restricted to the subdomain that holds no novel mass, the solution is the paper's.
        np.testing.assert_allclose(largest_mix(classes[:2], target[:2]), [0.4, 0.2], atol=1e-9)
        # On the whole domain the constraint holds and the total is maximal at the same point.
        np.testing.assert_allclose(largest_mix(classes, target, np.ones(2)), [0.4, 0.2], atol=1e-9)

    def test_programme_never_explains_more_than_there_is(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            shares, target = rng.dirichlet(np.ones(6), 3).T, rng.dirichlet(np.ones(6))
            mix = largest_mix(shares, target)
            assert (shares @ mix <= target + 1e-9).all()
            assert mix.sum() <= 1 + 1e-9

    def test_joint_subtracts_strays_that_class_wise_bins_count_twice(self):
        # Exact scores p_j / p_t on four cells: two classes that overlap in cell 1, novel mass in cell 3.
        cells = np.array([[0.6, 0.0], [0.4, 0.4], [0.0, 0.6], [0.0, 0.0]])
        truth = np.array([0.5, 0.2])
        target = cells @ truth
        target[3] = 0.3
        scores = np.column_stack([cells, target])
        scores = scores / scores.sum(axis=1, keepdims=True)
        per_class = [np.repeat(np.arange(4), (2000 * cells[:, j]).astype(int)) for j in (0, 1)]
        source = np.concatenate(per_class)
        y = np.repeat([0, 1], [len(c) for c in per_class])
        rows = np.repeat(np.arange(4), np.round(4000 * target).astype(int))
        np.testing.assert_allclose(joint_estimate(scores[source], y, scores[rows]).mix, truth, atol=1e-6)

    def test_one_stray_row_does_not_rule_a_class_out(self):
        """Class 1 is absent from the target; one of 50 rows of class 0 strays into its bin."""
        counts, sizes = np.array([[40, 0], [1, 45]]), np.array([50, 50])
        mix = solve_bins(counts, sizes, np.array([240, 0]), 600, start=np.array([0.5, 0.0]))
        np.testing.assert_allclose(mix, [0.5, 0.0], atol=0.02)
        # The programme without slack has no choice but zero.
        np.testing.assert_allclose(largest_mix(counts / sizes, np.array([0.4, 0.0])), 0, atol=1e-12)

    def test_domain_score_is_bayes_rule(self):
        # p_1 = p_t and p_2 = 0 here: with the mix (.5, .5) the source has half the target's density.
        assert domain_score(np.array([[0.5, 0.0, 0.5]]), np.array([0.5, 0.5]))[0] == pytest.approx(
            1 / 3, abs=1e-5
        )

    def test_temperature_undoes_overconfidence(self):
        rng = np.random.default_rng(0)
        honest = rng.dirichlet([1, 1, 1], 4000)
        y = np.array([rng.choice(3, p=p) for p in honest])
        assert fit_temperature(sharpened(honest, 3.0), y) == pytest.approx(1 / 3, rel=0.15)

    def test_a_pool_undoes_both_overconfidences_and_leaves_out_who_knows_nothing(self):
        rng = np.random.default_rng(0)
        # Independent evidence: the truth is proportional to the product of both.
        one, two = rng.dirichlet([1, 1, 1], (2, 4000))
        honest = pool(one, two, (1.0, 1.0))
        y = np.array([rng.choice(3, p=p) for p in honest])
        found = fit_pool(sharpened(one, 2.0), two, y, np.ones(4000))
        assert found == pytest.approx((0.5, 1.0), rel=0.15)
        noise = rng.dirichlet([1, 1, 1], 4000)
        assert fit_pool(honest, noise, y, np.ones(4000)) == pytest.approx((1.0, 0.0), abs=0.15)


class TestNovelty:
    def test_false_alarms_are_rare_and_a_new_class_is_seen(self):
        rng = np.random.default_rng(0)
        ones = np.ones(300)
        null = [novelty_test(rng.random(300), rng.random(400), ones).pvalue for _ in range(60)]
        assert np.mean(np.array(null) <= 0.05) <= 0.15
        target = np.concatenate([rng.random(340), 0.1 * rng.random(60)])
        assert novelty_test(rng.random(300), target, ones).pvalue < 0.05

    def test_tiny_samples_cannot_reject(self):
        assert novelty_test(np.array([1.0]), np.array([0.0, 0.1]), np.ones(1)).pvalue == 1.0


class TestMetrics:
    def test_hand_computed_values(self):
        measured = accuracy([0, 1, 1, -1, -1], [0, 1, 0, -1, 0], novel_label=-1)
        assert measured == (0.6, pytest.approx(2 / 3), 0.5)
        assert mix_error([0.5, 0.3, 0.2], [0.4, 0.1, 0.5]) == (pytest.approx(0.3), pytest.approx(0.3))
        assert regret(0.9, 0.85) == pytest.approx(0.05)

    def test_no_novel_rows(self):
        assert np.isnan(accuracy([0, 1], [0, 1], novel_label=-1).novel)

    def test_lengths_must_agree(self):
        with pytest.raises(ValueError, match="same, positive length"):
            accuracy([0], [0, 1], novel_label=-1)


class TestNetworks:
    def test_stack_members_are_independent(self):
        torch.manual_seed(0)
        stack = StackedMLP(3, 4, 2, (8,), dropout=0.0)
        x = torch.randn(3, 16, 4)
        before = stack(x)[1]
        changed = x.clone()
        changed[0] = 0
        torch.testing.assert_close(stack(changed)[1], before)

    def test_a_stack_normalises_as_torch_does_once_trained(self):
        torch.manual_seed(0)
        stack = StackedMLP(3, 4, 2, (8,), dropout=0.0)
        for _ in range(5):
            stack(3 + 2 * torch.randn(3, 64, 4))
        stack.eval()
        linear, norm, relu, _, last = stack.layers
        x = torch.randn(3, 5, 4)
        flat = linear(x).transpose(0, 1).reshape(5, 24)
        expected = last(relu(norm.norm(flat)).reshape(5, 3, 8).transpose(0, 1))
        torch.testing.assert_close(stack(x), expected)

    def test_convnet_handles_tiny_images(self):
        assert SmallResNet(1, 5, width=4)(torch.zeros(2, 1, 8, 8)).shape == (2, 5)

    def test_seeding_leaves_the_global_state_alone(self):
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        with seeded(7):
            torch.rand(5)
        torch.testing.assert_close(torch.rand(1), expected)

    def test_channels_last_images_are_turned(self):
        assert as_tensor(np.zeros((2, 8, 9, 3)), torch.device("cpu")).shape == (2, 3, 8, 9)
        assert as_tensor(np.zeros((2, 3, 8, 9)), torch.device("cpu")).shape == (2, 3, 8, 9)

    def test_small_data_is_not_starved(self):
        assert Schedule.for_rows(100).steps >= 1000
        assert Schedule.for_rows(1_000_000).steps > 10_000

    def test_encoder_survives_constant_and_wild_columns(self):
        X = np.column_stack([np.ones(50), np.r_[np.zeros(49), 1e9], np.arange(50)]).astype(np.float32)
        encoded = Encoder(X)(X)
        assert np.isfinite(encoded).all()
        assert np.abs(encoded).max() <= 8
        assert (encoded[:, 0] == 0).all()

    @pytest.mark.parametrize("shape", [(9000, 3), (5000, 1, 2, 2)])
    def test_encoder_standardises_more_rows_than_it_takes_at_a_time(self, shape):
        encoded = Encoder(X := np.random.default_rng(0).normal(5, 3, shape))(X)
        axes = 0 if len(shape) == 2 else None
        np.testing.assert_allclose(encoded.mean(axis=axes), 0, atol=1e-4)
        np.testing.assert_allclose(encoded.std(axis=axes), 1, atol=1e-4)


class TestLearners:
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    y = np.repeat([0, 1], 20)
    fold = np.tile([0, 1], 20)

    def test_rows_are_scored_by_models_that_did_not_see_them(self):
        """One nearest neighbour knows its training labels by heart; out of fold it must be wrong on noise."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(200, 2)), rng.integers(0, 2, 200)
        fold = assign_folds(y, 4, rng)
        learner = SklearnLearner(X, KNeighborsClassifier(1))
        scores = learner.cross_fit(y, np.ones(200), fold, 2, seed=0).scores
        assert 0.3 < np.mean(scores.argmax(axis=1) == y) < 0.7

    def test_networks_score_rows_by_the_member_that_did_not_see_them(self):
        """Also where the folds are uneven, a row is everybody's, and rows come in several pieces."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(9000, 2)), rng.integers(2, size=9000)
        fold = rng.choice([-1, 0, 1, 2], 9000, p=[0.5, 0.3, 0.15, 0.05])
        learner = NetworkLearner(X, factory=None, schedule=Schedule(5, 32), device=torch.device("cpu"))
        models = learner.cross_fit(y, np.ones(9000), fold, 2, seed=0)
        by_member = softmax(models.predictor.logits(learner.rows), axis=2)
        mean = by_member.mean(axis=0)
        expected = np.where(fold[:, None] < 0, mean, by_member[fold, np.arange(9000)])
        np.testing.assert_allclose(models.scores, expected, atol=1e-6)
        np.testing.assert_allclose(models.predictor.predict_proba(X), mean, atol=1e-6)

    def test_many_rows_are_left_to_a_network(self):
        def choose(rows):
            X = np.zeros((rows, 1), dtype=np.float32)
            return choose_learner("auto", X, max_steps=None, device="cpu", n_jobs=None)

        assert isinstance(choose(50_000), Blend)
        assert isinstance(choose(50_001), NetworkLearner)

    def test_zero_weight_is_never_trained_on(self):
        wrong = np.where(np.arange(40) % 4 == 0, 1 - self.y, self.y)
        weight = (np.arange(40) % 4 != 0).astype(float)
        models = SklearnLearner(self.X, LogisticRegression()).cross_fit(wrong, weight, self.fold, 2, seed=0)
        assert (models.scores.argmax(axis=1) == self.y).all()

    def test_unknown_classes_get_a_column(self):
        models = SklearnLearner(self.X, LogisticRegression()).cross_fit(
            self.y, np.ones(40), self.fold, 4, seed=0
        )
        assert models.scores.shape == (40, 4)
        assert (models.predictor.predict_proba(self.X)[:, 2:] == 0).all()

    def test_blend_prefers_the_family_that_knows(self):
        class Known(Learner):
            def __init__(self, proba):
                self.proba = proba

            def parts(self, task):
                return []

            def n_parts(self, task):
                return 0

            def assemble(self, task, results):
                return FoldModels(self.proba, Constant((0.5, 0.5)))

        good, bad = np.eye(2)[self.y] * 0.9 + 0.05, np.full((40, 2), 0.5)
        task = FoldTask(self.y, np.ones(40), self.fold, 2, seed=0, ranked=True)
        (ranked,) = cross_fit_all([(Blend(Known(good), Known(bad)), task)])
        np.testing.assert_allclose(ranked.scores, good)
        # Of two that are the answer, one that knows nothing changes nothing: the other's odds, to a power.
        pooled = Blend(Known(good), Known(bad)).cross_fit(self.y, np.ones(40), self.fold, 2, seed=0)
        a = pooled.predictor.exponents[0]
        np.testing.assert_allclose(pooled.scores.max(axis=1), 19**a / (19**a + 1))

    def test_the_second_family_is_tried_on_one_fold_where_scores_are_only_ranked(self):
        fitted, progress = [], []

        class Model(SklearnLearner):
            def parts(self, task):
                advance, share = lambda amount=1: progress.append(amount / 2), 1 / task.n_folds
                return [Part(self._fit, (f,), advance, share) for f in range(task.n_folds)]

            def _fit(self, f, advance):
                fitted.append(f)
                advance()
                return None, self.proba[fold == f]

        def model(proba):
            learner = Model(self.X, LogisticRegression())
            learner.proba = proba
            return learner

        fold = np.arange(40) % 4
        good, bad = np.eye(2)[self.y] * 0.9 + 0.05, np.full((40, 2), 0.5)
        task = FoldTask(self.y, np.ones(40), fold, 2, seed=0, ranked=True)
        for first, second, expected in (
            (good, bad, [0, 1, 2, 3, 0]),
            (bad, good, [0, 1, 2, 3, 0, 1, 2, 3]),
        ):
            fitted.clear(), progress.clear()
            (models,) = cross_fit_all([(Blend(model(first), model(second)), task)])
            assert fitted == expected
            assert sum(progress) == pytest.approx(1)
            np.testing.assert_allclose(models.scores, good)
        # What is an answer has both.
        fitted.clear()
        cross_fit_all([(Blend(model(good), model(bad)), replace(task, ranked=False))])
        assert fitted == [0, 1, 2, 3, 0, 1, 2, 3]


def test_the_linear_model_stops_early_without_a_warning():
    # Columns of very different scale take more iterations than it has; warnings are errors here.
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.poisson(1.0, (300, 30)) * 10.0 ** np.arange(30)[None] / 1e10)
    y, fold = rng.integers(3, size=300), np.arange(300) % 2
    learner = choose_learner("linear", X, max_steps=None, device="cpu", n_jobs=None)
    assert learner.cross_fit(y, np.ones(300), fold, 3, 0).scores.shape == (300, 3)


class TestContinuing:
    def test_weights_that_fit_are_taken_over(self):
        def network(n_outputs):
            return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, n_outputs))

        old, new = network(2), network(3)
        old(torch.rand(8, 4))
        fresh = new[2].weight[2].detach().clone()
        continue_from(old, new)
        torch.testing.assert_close(new[0].weight, old[0].weight)
        torch.testing.assert_close(new[1].running_mean, old[1].running_mean)
        assert int(new[1].num_batches_tracked) == 1
        torch.testing.assert_close(new[2].weight[:2], old[2].weight)
        torch.testing.assert_close(new[2].bias[:2], old[2].bias)
        torch.testing.assert_close(new[2].weight[2], fresh)

    def test_stacks_grow_too(self):
        old, new = (StackedMLP(1, 4, k, (3,), 0.0).eval() for k in (2, 3))
        continue_from(old, new)
        x = torch.rand(1, 5, 4)
        torch.testing.assert_close(new(x)[..., :2], old(x))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (nn.Linear(4, 2), nn.Linear(5, 3)),
            (nn.Linear(4, 3), nn.Linear(4, 2)),
            (nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 3))),
            (nn.Linear(4, 2), nn.Conv1d(4, 2, 1)),
        ],
    )
    def test_another_kind_of_network_is_refused(self, old, new):
        with pytest.raises(ValueError, match=r"networks of the same kind.*'weight'"):
            continue_from(old, new)
