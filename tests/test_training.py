"""How a learner is chosen, how long it trains, and what is left of it: each formula with a value by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from joblib import parallel_config
from scipy import sparse
from scipy.sparse import csr_matrix
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from osls.base import Combined
from osls.baselines.domain_discriminator import DomainRejection, rescale
from osls.baselines.kpu import Heads
from osls.baselines.open_set_em import KnownScore, Reweighted, confidence, open_set_em
from osls.baselines.source_only import NeverNovel
from osls.shift.calibration import Calibrator
from osls.training.choose import as_fitted, choose_learner, choose_network, is_network
from osls.training.effort import EFFORTS, Effort
from osls.training.learners import (
    Blend,
    FoldModels,
    FoldTask,
    NetworkLearner,
    SklearnLearner,
    cross_fit_all,
)
from osls.training.packed import PackedForest, pack
from osls.training.predictors import (
    Blended,
    Calibrated,
    Constant,
    Encoder,
    Networks,
    Offsets,
    Pooled,
    SklearnModels,
)
from osls.training.trainer import Schedule, Trainer, seeded, undisturbed

rng = np.random.default_rng(0)
TABLE = rng.normal(size=(120, 4))
IMAGES = rng.random((12, 1, 8, 8), dtype=np.float32)
WORDS = sparse.random(80, 30, density=0.2, random_state=0, format="csr")


def factory(shape, n_outputs):
    return nn.Linear(shape[0], n_outputs)


def choose(spec, X=TABLE, **options):
    return choose_learner(spec, X, max_steps=10, device="cpu", n_jobs=None, **options)


def network(spec, X=TABLE, **options):
    return choose_network(spec, X, max_steps=10, device="cpu", **options)


class TestChoice:
    def test_auto_is_a_blend_for_tables_and_words_and_a_network_for_images(self):
        assert isinstance(choose("auto"), Blend)
        assert isinstance(choose("auto").second.estimator, ExtraTreesClassifier)
        assert isinstance(choose("auto", WORDS).second.estimator, LogisticRegression)
        assert isinstance(choose("auto", IMAGES), NetworkLearner)

    def test_auto_is_a_network_alone_for_very_many_rows(self):
        many = np.zeros((50_001, 1), dtype=np.float32)
        many[::2] = 1
        assert isinstance(choose("auto", many), NetworkLearner)

    @pytest.mark.parametrize(
        ("spec", "kind"),
        [
            ("mlp", NetworkLearner),
            ("trees", SklearnLearner),
            ("linear", SklearnLearner),
            (factory, NetworkLearner),
        ],
        ids=["mlp", "trees", "linear", "factory"],
    )
    def test_by_name_or_function(self, spec, kind):
        assert isinstance(choose(spec), kind)

    @pytest.mark.parametrize(
        "spec", ["auto", "mlp", "convnet", factory], ids=["auto", "mlp", "convnet", "factory"]
    )
    def test_these_can_be_networks(self, spec):
        assert is_network(spec)

    @pytest.mark.parametrize(
        "spec", ["trees", "linear", LogisticRegression()], ids=["trees", "linear", "estimator"]
    )
    def test_these_cannot(self, spec):
        assert not is_network(spec)
        with pytest.raises(ValueError, match="this needs a network"):
            network(spec, complaint="this needs a network")

    def test_a_network_that_alternates_trains_longer_than_one_that_is_cross_fitted(self):
        long = choose_network("mlp", TABLE, max_steps=None, device="cpu")
        short = choose_learner("mlp", TABLE, max_steps=None, device="cpu", n_jobs=None)
        assert long.schedule.steps == 1000
        assert short.schedule.steps == 300

    def test_the_budget_is_the_users(self):
        assert network("auto").schedule.steps == 10
        assert choose("mlp").schedule.steps == 10

    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            ("tree", ValueError, "unknown model 'tree'.*Did you mean 'trees'"),
            (nn.Linear(2, 2), TypeError, "pass a function"),
            (3, TypeError, "cannot use 3 as a model"),
            (None, TypeError, "cannot use None as a model"),
            (StandardScaler(), TypeError, "no predict_proba"),
        ],
    )
    def test_what_is_no_model_is_named(self, spec, error, message):
        with pytest.raises(error, match=message):
            choose(spec)

    def test_a_fitted_classifier_is_used_as_it_is(self):
        y = np.array(["b", "a"] * 60)
        fitted = LogisticRegression().fit(TABLE, y)
        learner = as_fitted(fitted, TABLE, np.array(["b", "a"]))
        scores = learner.cross_fit(None, None, None, 2, 0).scores
        np.testing.assert_allclose(scores, fitted.predict_proba(TABLE)[:, [1, 0]])
        assert as_fitted(LogisticRegression(), TABLE, np.array(["a"])) is None
        assert as_fitted("trees", TABLE, np.array(["a"])) is None
        with pytest.raises(ValueError, match="does not know the class 'c'"):
            as_fitted(fitted, TABLE, np.array(["c"]))


class TestWhatModelsSee:
    def test_trees_see_columns_with_digits(self):
        learner = choose("trees", TABLE + 1e9)
        assert isinstance(learner.encoder, Offsets)
        assert learner.X.dtype == np.float32
        assert all(len(np.unique(column)) == len(TABLE) for column in learner.X.T)

    def test_linear_models_see_standard_columns_unless_they_are_words(self):
        learner = choose("linear", TABLE * [1, 10, 100, 1000])
        np.testing.assert_allclose(learner.X.std(axis=0), 1, atol=1e-3)
        many = sparse.random(20, 2000, density=0.01, random_state=0, format="csr")
        assert sparse.issparse(choose("linear", many).X)
        np.testing.assert_allclose(choose("linear", WORDS).X, choose("linear", WORDS.toarray()).X)

    def test_a_pipeline_sees_the_rows_as_they_are(self):
        seen = []
        pipeline = make_pipeline(FunctionTransformer(lambda X: seen.append(X) or X), LogisticRegression())
        X = TABLE + 1e9
        learner = choose(pipeline, X)
        learner.cross_fit(np.arange(120) % 2, np.ones(120), np.arange(120) % 3, 2, seed=0)
        assert learner.encoder is None
        assert min(rows.min() for rows in seen) > 9e8

    def test_what_is_predicted_later_is_encoded_the_same_way(self):
        X, y = TABLE + 1e9, (TABLE[:, 0] > 0).astype(int)
        models = choose("trees", X).cross_fit(y, np.ones(120), np.arange(120) % 3, 2, seed=0)
        new = rng.normal(size=(200, 4))
        predicted = models.predictor.predict_proba(new + 1e9).argmax(axis=1)
        assert np.mean(predicted == (new[:, 0] > 0)) > 0.9

    def test_columns_in_one_unit_share_a_scale_for_linear_models(self):
        X = rng.normal(size=(60, 40)) * np.linspace(0.5, 1.5, 40)
        own, shared = Encoder(X), Encoder(X, common=True)
        np.testing.assert_allclose(own(X).std(axis=0), 1, atol=1e-3)
        ratio = shared(X).std(axis=0) / X.std(axis=0)
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)

    def test_a_column_that_hardly_varies_beside_its_like_is_not_blown_up(self):
        X = rng.normal(size=(60, 40))
        X[:, 0] *= 1e-4
        assert np.abs(Encoder(X)(X)[:, 0]).max() < 0.1
        # Among few columns nothing says that they are in one unit.
        assert np.abs(Encoder(X[:, :3])(X[:, :3])[:, 0]).max() > 1


class TestStopping:
    """The paper's rule: train until the accuracy on held-out source rows ceases to increase."""

    def epochs(self, patience: int | None) -> tuple[int, FoldModels]:
        """Epochs of one step each that a network takes to learn the sign of a column; at most 400."""
        X = np.random.default_rng(0).normal(size=(200, 2))
        learner = choose_network("mlp", X, max_steps=400, device="cpu", patience=patience)
        learner.schedule = replace(learner.schedule, batch_size=160)
        seen = []
        learner.on_epoch = lambda networks, fold: seen.append(fold)
        fold = np.where(np.arange(200) % 5 == 0, 0, -1)
        models = learner.cross_fit((X[:, 0] > 0).astype(int), np.ones(200), fold, 2, seed=0)
        return len(seen), models

    def test_it_stops_early_and_has_learnt(self):
        taken, models = self.epochs(patience=10)
        assert 10 < taken < 200
        assert models.scores.shape == (200, 2)

    def test_without_it_all_steps_are_taken(self):
        assert self.epochs(patience=None)[0] == 400

    def test_accuracy_is_by_weight_and_of_rows_that_were_held_out(self):
        """Rows 0 and 1 are held out, of weight 3 and 1; the network says class 0, which is right of row 0."""
        learner = network("mlp", X=np.zeros((4, 2)))
        nets = learner.new_networks(1, 2)
        for parameter in nets.parameters():
            nn.init.zeros_(parameter)
        y, weight, fold = np.array([0, 1, 1, 1]), np.array([3.0, 1, 1, 1]), np.array([0, 0, -1, -1])
        task = FoldTask(y, weight, fold, 2, seed=0)
        assert learner._held_out_accuracy(learner.predictor(nets, 1), task) == 0.75


class TestSchedule:
    @pytest.mark.parametrize(
        ("steps", "length", "ends"), [(10, 4, [4, 8, 10]), (8, 4, [4, 8]), (3, 5, [3]), (1, 1, [1])]
    )
    def test_ends_of_epochs(self, steps, length, ends):
        assert Schedule(steps, 8).ends(length) == ends

    def test_epochs_run_to_their_ends_and_yield_mean_losses(self):
        layer = nn.Linear(1, 1)
        trainer, calls = Trainer(layer, Schedule(5, 1, learning_rate=0.0, decay=False)), []

        def loss():
            calls.append(trainer.steps_done)
            return layer(torch.ones(1, 1)).sum() * 0 + len(calls)

        seen = [(trainer.steps_done, mean) for mean in trainer.epochs(loss, [2, 5])]
        assert seen == [(2, 1.5), (5, 4.0)]
        assert len(calls) == 5

    def test_what_is_decided_between_epochs_reaches_the_next(self):
        layer, factor = nn.Linear(1, 1), [1.0]
        trainer = Trainer(layer, Schedule(4, 1, learning_rate=0.0, decay=False))
        means = []
        for mean in trainer.epochs(lambda: layer(torch.ones(1, 1)).sum() * 0 + factor[0], [2, 4]):
            means.append(mean)
            factor[0] = 7.0
        assert means == [1.0, 7.0]

    def test_seeding_leaves_the_callers_state_alone(self):
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        with seeded(5):
            inside = torch.rand(3)
        with undisturbed():
            torch.manual_seed(5)
            assert torch.equal(torch.rand(3), inside)
        assert torch.equal(torch.rand(3), expected)

    def test_seeding_can_be_nested_in_one_thread(self):
        with seeded(1), seeded(2):
            pass


class TestPredictors:
    """What each adapter keeps to predict with."""

    X = np.zeros((1, 2))

    def proba(self, *values):
        return Constant(tuple(values))

    def test_never_novel(self):
        assert NeverNovel(self.proba(0.3, 0.7)).predict_proba(self.X).tolist() == [[0.3, 0.7, 0.0]]

    def test_combined_by_hand(self):
        """Step 6: P(known) = .6; .5 and .5 re-weighted by 1 and 3 are .25 and .75."""
        combined = Combined(self.proba(0.5, 0.5), self.proba(0.4, 0.6), np.array([1.0, 3.0]))
        np.testing.assert_allclose(combined.predict_proba(self.X), [[0.15, 0.45, 0.4]])

    def test_combined_with_a_discriminator_that_knows_the_classes(self):
        """(.2, .2, .6) times (1, 1, .5) is (.2, .2, .3), of sum .7: known with 4/7; both opinions agree."""
        combined = Combined(
            self.proba(0.5, 0.5), self.proba(0.2, 0.2, 0.6), np.ones(2), np.array([1.0, 1.0, 0.5])
        )
        np.testing.assert_allclose(combined.predict_proba(self.X), [[2 / 7, 2 / 7, 3 / 7]])

    def test_the_authors_slip_in_step_6_is_not_ours(self):
        """p_s = (.8, .2), p'_t = (.2, .8), x says nothing: (.2, .8), where their code has (.5, .5)."""
        source, target = np.array([0.8, 0.2]), np.array([0.2, 0.8])
        combined = Combined(Constant((0.8, 0.2)), self.proba(0.0, 1.0), target / source)
        np.testing.assert_allclose(combined.predict_proba(self.X), [[0.2, 0.8, 0.0]])

    def test_domain_rejection_by_hand(self):
        """f = .2 with alpha = .5 and odds 2: .5 * 2 * .2 / .8 = .25 known, against .75 for the best class."""
        assert rescale(np.array([0.2]), 0.5, 2.0)[0] == pytest.approx(0.25)
        rejection = DomainRejection(self.proba(0.4, 0.6), self.proba(0.8, 0.2), 0.5, 2.0)
        np.testing.assert_allclose(rejection.predict_proba(self.X), [[2 / 14, 3 / 14, 9 / 14]])

    def test_domain_rejection_rejects_first_and_then_asks_the_classifier(self):
        """P(known) = .6 in three parts: of the product "novel" is the largest, but .6 is not rejected."""
        rejection = DomainRejection(self.proba(0.4, 0.3, 0.3), self.proba(0.625, 0.375), 1.0, 1.0)
        assert rescale(np.array([0.375]), 1.0, 1.0)[0] == pytest.approx(0.6)
        assert rejection.predict_proba(self.X).argmax(axis=1).tolist() == [0]

    def test_reweighted_by_hand(self):
        """Half known; known classes weigh 2, the novel one 1: .5 * 2 / (.5 * 2 + .5 * 1) = 2/3 known."""
        halfway = KnownScore(lambda proba: np.zeros(len(proba)), 0.0, 1.0)
        corrected = Reweighted(self.proba(0.25, 0.75), halfway, np.array([2.0, 2.0, 1.0]))
        np.testing.assert_allclose(corrected.predict_proba(self.X), [[1 / 6, 1 / 2, 1 / 3]])

    def test_known_score_is_a_half_at_its_centre(self):
        knows = KnownScore(confidence, centre=float(confidence(np.array([[0.5, 0.5]]))[0]), width=0.1)
        assert knows(np.array([[0.5, 0.5]]))[0] == pytest.approx(0.5)
        assert knows(np.array([[0.99, 0.01]]))[0] > 0.9

    def test_open_set_em_finds_the_mix_of_certain_rows(self):
        proba, known = np.repeat(np.eye(2), [30, 10], axis=0), np.repeat([1.0, 1.0], [30, 10])
        proba, known = np.vstack([proba, np.full((60, 2), 0.5)]), np.append(known, np.zeros(60))
        mix = open_set_em(proba, known, np.array([0.4, 0.4, 0.2]))
        np.testing.assert_allclose(mix, [0.3, 0.1, 0.6], atol=1e-4)

    def test_calibrated_by_hand(self):
        """Odds of 4 to 1 with an inverse temperature of 1/2 are 2 to 1; a bias of log 3 makes them 6 to 1."""
        calibrator = Calibrator(np.array([0.5, 0.5]), np.log([3.0, 1.0]))
        calibrated = Calibrated(self.proba(0.8, 0.2), calibrator)
        np.testing.assert_allclose(calibrated.predict_proba(self.X), [[6 / 7, 1 / 7]])

    def test_blended_asks_only_whom_it_needs(self):
        class Refuses:
            def predict_proba(self, X):
                raise AssertionError("was asked")

        assert Blended(self.proba(0.1, 0.9), Refuses(), 1.0).predict_proba(self.X).tolist() == [[0.1, 0.9]]
        assert Blended(Refuses(), self.proba(0.1, 0.9), 0.0).predict_proba(self.X).tolist() == [[0.1, 0.9]]
        half = Blended(self.proba(0.1, 0.9), self.proba(0.5, 0.5), 0.25).predict_proba(self.X)
        np.testing.assert_allclose(half, [[0.4, 0.6]])

    def test_pooled_by_hand(self):
        # Odds 9 : 1, and 1 : 4 twice: 9 : 16.
        pooled = Pooled(self.proba(0.9, 0.1), self.proba(0.2, 0.8), (1.0, 2.0)).predict_proba(self.X)
        np.testing.assert_allclose(pooled, [[9 / 25, 16 / 25]])

    def test_models_that_saw_fewer_classes_have_zeros_for_the_others(self):
        X = np.zeros((4, 1))
        models = [DummyClassifier().fit(X, y) for y in ([0, 0, 2, 2], [1, 1, 1, 1])]
        proba = SklearnModels(models, 3).predict_proba(X[:1])
        np.testing.assert_allclose(proba, [[0.25, 0.5, 0.25]])

    @pytest.mark.parametrize("closed", [False, True])
    def test_heads(self, closed):
        """Two heads, whose logits are the columns; a row below 1/2 in both is novel, unless none can be."""
        stack = nn.Sequential(nn.Identity())
        networks = Networks(Encoder(np.array([[-1.0, -1.0], [1.0, 1.0]])), stack, 1, torch.device("cpu"))
        proba = Heads(networks, closed).predict_proba(np.array([[3.0, -3.0], [-3.0, -2.0]]))
        assert proba.argmax(axis=1).tolist() == [0, 1 if closed else 2]
        np.testing.assert_allclose(proba.sum(axis=1), 1)


# -- Less work for the same answer ----------------------------------------------------------------------


class TestEffort:
    @pytest.mark.parametrize(("rows", "folds"), [(1_000, 5), (200_000, 3), (1_000_000, 2)])
    def test_many_rows_need_fewer_folds(self, rows, folds):
        assert Effort().folds_for(rows) == folds
        assert EFFORTS["quick"].folds_for(rows) == min(folds, 3)

    def test_quick_has_no_networks_for_tables(self):
        assert isinstance(choose("auto", effort=EFFORTS["quick"]), SklearnLearner)
        assert choose("auto", effort=EFFORTS["quick"]).estimator.n_estimators == 50
        assert isinstance(choose("auto", WORDS, effort=EFFORTS["quick"]).estimator, LogisticRegression)
        quick = choose_learner(
            "auto", IMAGES, max_steps=None, device="cpu", n_jobs=None, effort=EFFORTS["quick"]
        )
        assert quick.schedule.steps == 300

    def test_epochs_fall_with_the_square_root_of_the_rows(self):
        # 8 epochs up to 6,400 rows, half as many with four times the rows, three at the least.
        assert Schedule.short(6_400).steps == 8 * 6_400 // 128
        assert Schedule.short(25_600).steps == 4 * 25_600 // 128
        assert Schedule.short(1_280_000).steps == 3 * 1_280_000 // 128

    def test_networks_that_go_on_take_a_third_of_the_steps_at_half_the_rate(self):
        on = Schedule(300, 64, learning_rate=0.02).continued()
        assert (on.steps, on.learning_rate) == (100, 0.01)


class TestGoingOn:
    y = np.arange(120) % 2
    fold = np.arange(120) // 2 % 3

    def test_networks_start_from_the_body_of_the_last_and_not_from_its_head(self):
        learner = choose("mlp")
        first = learner.cross_fit(np.arange(120) % 3, np.ones(120), self.fold, 3, seed=0)
        task = FoldTask(self.y, np.ones(120), self.fold, 2, 1, start=first.predictor)
        (part,) = learner.parts(task)
        old = first.predictor.networks.state_dict()
        new = next(each for each in part.arguments if isinstance(each, nn.Module)).state_dict()
        same = [name for name in old if old[name].shape == new[name].shape]
        assert same
        assert len(same) < len(old)
        assert all(torch.equal(old[name], new[name]) for name in same)

    def test_models_that_are_not_kept_have_scored_their_fold(self):
        kept, gone = (
            cross_fit_all([(choose("trees"), FoldTask(self.y, np.ones(120), self.fold, 2, 0, keep=keep))])[0]
            for keep in (True, False)
        )
        np.testing.assert_array_equal(kept.scores, gone.scores)
        assert len(kept.predictor.models) == 3
        assert len(gone.predictor.models) == 0

    def test_ranking_takes_the_smaller_forest(self):
        second = choose("auto").second
        task = FoldTask(self.y, np.ones(120), self.fold, 2, 0)
        assert second.parts(task)[0].arguments[4].n_estimators == EFFORTS["balanced"].blended_trees[0]
        ranked = FoldTask(self.y, np.ones(120), self.fold, 2, 0, ranked=True)
        assert second.parts(ranked)[0].arguments[4].n_estimators == EFFORTS["balanced"].blended_trees[1]

    @pytest.mark.parametrize("backend", ["threading", "loky"])
    def test_parts_on_other_workers_give_the_same_answer(self, backend):
        learner = choose("auto")
        task = FoldTask(self.y, np.ones(120), self.fold, 2, 0)
        (here,) = cross_fit_all([(learner, task)])
        with parallel_config(backend=backend, n_jobs=2):
            (there,) = cross_fit_all([(learner, task)])
        np.testing.assert_array_equal(here.scores, there.scores)
        np.testing.assert_array_equal(
            here.predictor.predict_proba(TABLE), there.predictor.predict_proba(TABLE)
        )


class TestPackedForests:
    def test_by_hand(self):
        # One split at 0.5: to the left 3 of 4 of the first class, to the right none.
        forest = PackedForest(
            roots=np.array([0]),
            feature=np.array([0, 0, 0]),
            threshold=np.array([0.5, 0.0, 0.0]),
            children=np.array([[2, 1, 2], [1, 1, 2]]),
            proba=np.array([[0.5, 0.5], [0.75, 0.25], [0.0, 1.0]]),
            depth=1,
        )
        rows = np.array([[0.2], [0.5], [0.6]], dtype=np.float32)
        np.testing.assert_array_equal(forest.predict_proba(rows), [[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]])

    def test_few_rows_get_the_answer_of_many(self):
        y = np.digitize(TABLE[:, 0] + TABLE[:, 1], [-0.5, 0.5])
        models = choose("trees").cross_fit(y, np.ones(120), np.arange(120) % 3, 3, seed=0).predictor
        many = models.predict_proba(TABLE)
        few = np.vstack([models.predict_proba(TABLE[i : i + 7]) for i in range(0, 120, 7)])
        np.testing.assert_allclose(few, many, atol=1e-12)

    def test_a_class_that_no_forest_has_seen_has_probability_zero(self):
        y = np.arange(120) % 2 + 1
        models = choose("trees").cross_fit(y, np.ones(120), np.arange(120) // 2 % 3, 4, seed=0).predictor
        proba = models.predict_proba(TABLE[:5])
        assert (proba[:, [0, 3]] == 0).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1)

    def test_what_is_no_forest_is_not_packed(self):
        y = np.arange(120) % 2
        trees = ExtraTreesClassifier(3, random_state=0)
        assert pack([]) is None
        assert pack([LogisticRegression().fit(TABLE, y)]) is None
        others = ExtraTreesClassifier(3, random_state=0).fit(TABLE, y + 1)
        assert pack([trees.fit(TABLE, y), others]) is None
        assert pack([trees]) is not None

    def test_rows_with_missing_values_go_where_scikit_learn_sends_them(self):
        X = TABLE.astype(np.float32)
        X[::7, 1] = np.nan
        y = (np.nan_to_num(X[:, 1], nan=2.0) > 0).astype(int)
        models = SklearnModels([ExtraTreesClassifier(5, random_state=0).fit(X, y)], 2)
        expected = models.models[0].predict_proba(X[:4])
        np.testing.assert_allclose(models.of_encoded(X[:4]), expected)


def test_scores_of_several_divisions_into_folds_are_averaged():
    X = np.random.default_rng(0).normal(size=(120, 4))
    y, fold = (X[:, 0] > 0).astype(np.int64), np.arange(120) % 3
    other = np.random.default_rng(1).permutation(fold)
    learner = choose_network("mlp", X, max_steps=20, device="cpu")
    task = FoldTask(y, np.ones(120), fold, 2, seed=0)
    brief = choose_network("mlp", X, max_steps=10, device="cpu")
    one, two = cross_fit_all([(learner, task), (brief, replace(task, fold=other, seed=1))])
    (both,) = cross_fit_all([(learner, replace(task, again=(other,)))])
    np.testing.assert_array_equal(both.scores, (one.scores + two.scores) / 2)
    # The networks that are kept, and that may go on learning, are those of the first division.
    np.testing.assert_array_equal(both.predictor.predict_proba(X), one.predictor.predict_proba(X))
    # Forests are means already.
    trees = choose("trees")
    alone, same = cross_fit_all([(trees, each) for each in (task, replace(task, again=(other,)))])
    np.testing.assert_array_equal(alone.scores, same.scores)
    # Networks of sparse tables are dear.
    sparse = choose_network("mlp", csr_matrix(X), max_steps=20, device="cpu")
    alone, same = cross_fit_all([(sparse, each) for each in (task, replace(task, again=(other,)))])
    np.testing.assert_array_equal(alone.scores, same.scores)


def test_networks_are_the_same_however_their_folds_are_divided():
    X = np.random.default_rng(0).normal(size=(200, 4))
    y, fold = (X[:, 0] > 0).astype(np.int64), np.arange(200) % 5
    weight = np.random.default_rng(1).uniform(0.5, 2, size=200)
    task = FoldTask(y, weight, fold, 2, seed=0)

    def train(workers):
        learner = choose_network("mlp", X, max_steps=20, device="cpu")
        before = torch.get_rng_state()
        with parallel_config(backend="threading", n_jobs=workers):
            parts = learner.n_parts(task)
            models = cross_fit_all([(learner, task)])[0]
        assert torch.equal(before, torch.get_rng_state())
        return parts, models

    (one, alone), (two, divided) = train(1), train(2)
    assert (one, two) == (1, 2)
    np.testing.assert_allclose(divided.scores, alone.scores, atol=2e-3)
    np.testing.assert_allclose(
        divided.predictor.predict_proba(X), alone.predictor.predict_proba(X), atol=2e-3
    )
