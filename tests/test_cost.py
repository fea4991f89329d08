"""What a fit will cost is said before it starts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from osls import PULSE
from osls.app.options import AdaptOptions
from osls.training import cost
from osls.training.choose import choose_learner
from osls.training.cost import Cost, _Model
from osls.training.effort import Plan
from osls.training.learners import SklearnLearner


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (90, "2 minutes"),
        (1800, "30 minutes"),
        (2 * 3600, "2.0 hours"),
    ],
)
def test_seconds_in_words(seconds, words):
    assert str(Cost(seconds, 2_500_000_000)) == f"{words} and 2,500 MB"


def test_fitting_grows_a_little_faster_than_the_rows():
    model = _Model(least=0.5, seconds=1.5, rows=100, scoring=0.0, size=0.0)
    assert model.fitting(100) == pytest.approx(1.5)
    # Of 10,000 rows: .5 + 1 * (10,000 * log 10,000) / (100 * log 100) = .5 + 200.
    assert model.fitting(10_000) == pytest.approx(200.5)


@pytest.mark.parametrize(("rows", "seconds"), [(100, 11.0), (20_000, 12.0)])
def test_replicates_are_thinned_and_all_else_is_done_once(monkeypatch, rows, seconds):
    monkeypatch.setattr(cost, "_seconds", lambda work: 1.0)
    shape = cost._Shape(rows, rows, 2, Plan(n_folds=5, rounds=2, replicates=30))
    # Three replicates are timed: 30 / 3 + 1. Of 40,000 rows half are in a replicate: 30 / 3 + 1 / .5.
    assert cost._of_inference(shape, np.random.default_rng(0)) == pytest.approx(seconds)


def test_models_beside_a_network_take_part_in_half_of_the_rounds(monkeypatch):
    model = _Model(least=1.0, seconds=1.0, rows=100, scoring=0.0, size=0.0)
    monkeypatch.setattr(_Model, "measure", lambda *about: model)
    shape = cost._Shape(100, 100, 2, Plan(n_folds=5, rounds=2, replicates=30))
    learner, labels = SklearnLearner(np.zeros((6, 1)), LogisticRegression()), np.arange(6) % 3
    # In each of five folds the classes, the domains, and .6 for each round.
    assert cost._of_models(learner, labels, shape, 1.0).seconds == pytest.approx(5 * (1 + 1 + 2 * 0.6))
    # The domains in one fold, in half of the draws also in the four others.
    assert cost._of_models(learner, labels, shape, 0.5).seconds == pytest.approx(5 * (1 + 0.6) + 1 + 4 / 2)


def test_networks_for_a_sample_are_as_wide_as_those_for_all_rows():
    learner = choose_learner("mlp", np.zeros((50, 3)), max_steps=None, device="cpu", n_jobs=None, n_rows=8000)
    widths = [max(p.shape[-1] for p in learner.new_networks(1, 2, rows).parameters()) for rows in (50, 8000)]
    assert widths == [128, 192]


SPECS = {
    "default": {},
    "quick": {"effort": "quick"},
    "mlp": {"source_classifier": "mlp", "discriminator": "mlp"},
    "estimator": {"discriminator": LogisticRegression()},
}


class TestEstimate:
    @pytest.mark.parametrize("parameters", SPECS.values(), ids=SPECS)
    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
    def test_any_model_and_nothing_is_fitted(self, problem, parameters, form):
        model = PULSE(**parameters)
        X, target = form(problem.X_source), form(problem.X_target)
        cost = model.estimate_cost(X, problem.y_source, target)
        assert cost.seconds > 0
        assert cost.memory > 8 * problem.X_source.size
        assert not hasattr(model, "classes_")

    def test_memory_grows_with_the_rows(self):
        X, y = np.zeros((200_000, 3)), np.arange(200_000) % 2
        few, many = (PULSE(effort="quick").estimate_cost(X[:n], y[:n], X[:n]) for n in (2_000, 200_000))
        assert 50 < many.memory / few.memory < 200

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"y": np.zeros(5)}, "X and y have inconsistent numbers of samples: .* and 5 labels"),
            ({"X_target": np.zeros((50, 3))}, "X_target has 3 features but X has 4"),
            ({"X_target": np.zeros(50)}, "X_target: Expected 2D array"),
            ({"X": np.full((100, 4), "a"), "y": np.arange(100) % 2}, "X: could not convert"),
        ],
    )
    def test_what_fit_refuses_is_refused_in_the_same_words(self, change, message):
        X = np.random.default_rng(0).normal(size=(100, 4))
        model, rows = PULSE(effort="quick"), {"X": X, "y": np.arange(100) % 2, "X_target": X} | change
        for call in (model.estimate_cost, model.fit):
            with pytest.raises(ValueError, match=message):
                call(**rows)
        assert not hasattr(model, "n_features_in_")

    def test_other_recipes_are_refused(self, problem):
        with pytest.raises(ValueError, match="recipe='cross-fit'"):
            PULSE(recipe="paper").estimate_cost(problem.X_source, problem.y_source, problem.X_target)


def test_all_rows_are_fitted_on_unless_a_first_look_is_asked_for():
    assert AdaptOptions().rows_to_fit is None
    assert AdaptOptions(effort="quick").rows_to_fit == 20_000
    assert AdaptOptions(effort="quick", max_rows=500).rows_to_fit == 500
