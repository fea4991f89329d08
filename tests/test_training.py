"""How a learner is chosen, how long it trains, and what is left of it: each formula with a value by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from osls.baselines.domain_discriminator import DomainRejection, rescale
from osls.baselines.kpu import Heads
from osls.baselines.open_set_em import KnownScore, Reweighted, confidence, open_set_em
from osls.baselines.source_only import NeverNovel
from osls.pulse import Combined
from osls.training.choose import as_fitted, choose_learner, choose_network, is_network
from osls.training.learners import Blend, NetworkLearner, SklearnLearner
from osls.training.predictors import Blended, Constant, Encoder, Networks, Offsets, SklearnModels, Tempered
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
        """f = .2 with alpha = .5 and odds 2: .5 * 2 * .2 / .8 = .25 known."""
        assert rescale(np.array([0.2]), 0.5, 2.0)[0] == pytest.approx(0.25)
        rejection = DomainRejection(self.proba(0.4, 0.6), self.proba(0.8, 0.2), 0.5, 2.0)
        np.testing.assert_allclose(rejection.predict_proba(self.X), [[0.1, 0.15, 0.75]])

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

    def test_tempered_by_hand(self):
        """Odds of 4 to 1 with an inverse temperature of 1/2 are 2 to 1."""
        np.testing.assert_allclose(
            Tempered(self.proba(0.8, 0.2), 0.5).predict_proba(self.X), [[2 / 3, 1 / 3]]
        )

    def test_blended_asks_only_whom_it_needs(self):
        class Refuses:
            def predict_proba(self, X):
                raise AssertionError("was asked")

        assert Blended(self.proba(0.1, 0.9), Refuses(), 1.0).predict_proba(self.X).tolist() == [[0.1, 0.9]]
        assert Blended(Refuses(), self.proba(0.1, 0.9), 0.0).predict_proba(self.X).tolist() == [[0.1, 0.9]]
        half = Blended(self.proba(0.1, 0.9), self.proba(0.5, 0.5), 0.25).predict_proba(self.X)
        np.testing.assert_allclose(half, [[0.4, 0.6]])

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
