"""Known classes that look a little different in the target."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from osls import PULSE
from osls.datasets import change_looks
from osls.shift.alignment import BLUR, align_looks, carried, within_class_spread

TREES = {"source_classifier": "trees", "discriminator": "trees", "n_bootstrap": 5, "random_state": 0}


def test_the_spread_is_that_within_classes():
    X = np.array([[0.0], [2.0], [10.0], [16.0]])
    # Variances 1 and 9, their mean 5.
    assert within_class_spread(X, np.array([0, 0, 1, 1])) == pytest.approx(np.sqrt(5))


def test_a_class_is_moved_and_stretched_but_not_far():
    rng = np.random.default_rng(0)
    before = rng.normal(size=(4000, 2))
    now = before * [1.3, 9.0] + [0.3, 5.0]
    moved = carried(before, before, now, np.ones(2))
    np.testing.assert_allclose(moved.mean(axis=0), [0.3, 0.4], atol=0.03)
    np.testing.assert_allclose(moved.std(axis=0), [1.3, 1.5], atol=0.03)


def test_a_constant_column_stays_constant():
    rows = np.column_stack([np.full(50, 7.0), np.arange(50.0)])
    assert (carried(rows, rows, rows, rows.std(axis=0))[:, 0] == 7).all()


def test_the_inputs_are_not_changed_and_the_blur_has_its_size(problem):
    y = np.searchsorted(problem.classes, problem.y_source)
    X, target = problem.X_source.astype(float), problem.X_target.astype(float)
    kept = X.copy(), target.copy()
    _, blurred = align_looks(X, y, target, np.random.default_rng(0))
    np.testing.assert_array_equal(X, kept[0])
    np.testing.assert_array_equal(target, kept[1])
    np.testing.assert_allclose((blurred - target).std(axis=0), BLUR * within_class_spread(X, y), rtol=0.2)


class TestPULSE:
    def test_changed_looks_are_not_taken_for_novelty(self, digits_problem):
        changed = change_looks(digits_problem, 0.2, random_state=1)
        plain, aligned = (
            PULSE(align=align, **TREES).fit(**changed.training_data()) for align in (False, True)
        )
        accuracies = [np.mean(model.target_labels_ == changed.y_target) for model in (plain, aligned)]
        assert accuracies[0] < 0.5
        assert accuracies[1] > 0.75
        true = changed.target_marginal[-1]
        assert abs(aligned.novel_prevalence_ - true) < abs(plain.novel_prevalence_ - true) / 2
        assert aligned.score(changed.X_test, changed.y_test) > 0.75

    @pytest.mark.parametrize("recipe", ["paper", "fine-tune"])
    def test_in_the_other_recipes_too(self, problem, recipe):
        model = PULSE(recipe=recipe, align=True, max_steps=30, n_bootstrap=2, random_state=0)
        model.fit(**problem.training_data())
        assert len(model.target_labels_) == len(problem.y_target)

    def test_sparse_rows_are_refused(self, problem):
        X, target = sparse.csr_array(problem.X_source), sparse.csr_array(problem.X_target)
        with pytest.raises(ValueError, match="align=True"):
            PULSE(align=True).fit(X, problem.y_source, X_target=target)
