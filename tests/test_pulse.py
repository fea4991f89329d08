"""PULSE as its users see it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from conftest import FOREST, blobs
from osls import PULSE, load
from osls.datasets import simulate_osls
from osls.metrics import accuracy, mix_error
from osls.mixture import BBE, DEDPUL, ElkanNoto, Regroup, Subsample

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


# For what says nothing about intervals and refits.
FEW = {"rounds": 1, "n_bootstrap": 2}


def trees(**options):
    return PULSE(source_classifier=FOREST, discriminator=FOREST, random_state=0, **options)


@pytest.fixture(scope="module")
def digits_model(digits_problem):
    return trees().fit(**digits_problem.training_data())


def test_answers_the_three_questions(digits_problem, digits_model):
    model = digits_model
    error = mix_error(digits_problem.target_marginal, model.target_marginal_)
    assert error.novel < 0.08
    assert error.seen < 0.15
    measured = accuracy(digits_problem.y_target, model.target_labels_, -1)
    assert measured.all > 0.88
    assert measured.novel > 0.8
    assert model.score(digits_problem.X_test, digits_problem.y_test) > 0.88
    assert model.novelty_pvalue_ < 0.05
    low, high = model.novel_interval_
    assert low < digits_problem.target_marginal[-1] < high
    assert low < model.novel_prevalence_ < high < low + 0.3
    assert model.marginal_interval_.shape == (9, 2)
    inside = (model.marginal_interval_[:, 0] <= model.target_marginal_) & (
        model.target_marginal_ <= model.marginal_interval_[:, 1]
    )
    assert inside.all()


def test_golden_numbers(digits_problem, digits_model):
    """Trees are the same on every machine; a change here is a change of the method."""
    model = digits_model
    measured = accuracy(digits_problem.y_target, model.target_labels_, -1)
    assert model.novel_prevalence_ == pytest.approx(GOLDEN["digits_trees"]["novel_prevalence"], abs=0.01)
    assert measured.all == pytest.approx(GOLDEN["digits_trees"]["accuracy"], abs=0.01)


def test_default_models_on_easy_data(problem):
    model = PULSE(n_bootstrap=2, random_state=0).fit(**problem.training_data())
    assert abs(model.novel_prevalence_ - problem.target_marginal[-1]) < 0.03
    assert np.mean(model.target_labels_ == problem.y_target) > 0.97
    steps = [record["step"] for record in model.history_]
    assert steps[:3] == ["source classifier", "label shift", "novel share"]
    assert "cvir" in steps


def test_paper_recipe_on_easy_data():
    problem = simulate_osls(*blobs(sizes=(300, 300, 300, 300)), novel=[3], random_state=0)
    model = PULSE(recipe="paper", max_steps=600, n_bootstrap=2, random_state=0).fit(**problem.training_data())
    assert abs(model.novel_prevalence_ - problem.target_marginal[-1]) < 0.1
    assert np.mean(model.target_labels_ == problem.y_target) > 0.9
    steps = list(dict.fromkeys(entry["step"] for entry in model.history_))
    assert steps[:4] == ["source classifier", "label shift", "epoch", "warm start"]
    kept = [record["kept"] for record in model.history_ if record["step"] == "cvir"]
    assert min(kept) >= 1


@pytest.fixture(scope="module")
def blob_problem():
    """Rows enough for one split, and a known mix that changed."""
    shares = {"source_marginal": [0.5, 0.3, 0.2], "target_marginal": [0.2, 0.3, 0.25, 0.25]}
    return simulate_osls(*blobs(sizes=(300, 300, 300, 200)), novel=[3], **shares, random_state=0)


@pytest.mark.parametrize("mixture", [DEDPUL(), ElkanNoto(), Regroup(), Subsample()], ids=repr)
@pytest.mark.parametrize("recipe", ["paper", "fine-tune", "cross-fit"])
def test_every_mixture_estimator_works_in_every_recipe(blob_problem, recipe, mixture):
    models = {"source_classifier": FOREST, "discriminator": FOREST} if recipe == "cross-fit" else {}
    model = PULSE(
        recipe=recipe, shift="bbe", mixture=mixture, max_steps=100, rounds=1, n_bootstrap=2, **models
    )
    model.set_params(random_state=0).fit(**blob_problem.training_data())
    assert model.target_marginal_.sum() == pytest.approx(1)
    assert accuracy(blob_problem.y_target, model.target_labels_, -1).all > 0.7


def test_the_mixture_estimator_serves_the_label_shift_too(blob_problem):
    """Step 3 of the paper's "alternative" is class by class with DEDPUL, not BBE."""

    class Half(BBE):
        def _fit(self, positive, unlabeled):
            self.alpha_ = 0.5

    model = PULSE(recipe="paper", mixture=Half(), max_steps=20, n_bootstrap=2, random_state=0)
    model.fit(**blob_problem.training_data())
    (record,) = [record for record in model.history_ if record["step"] == "label shift"]
    assert record["shares"] == [0.5] * 3
    np.testing.assert_allclose(record["marginal"], [1 / 3] * 3)
    np.testing.assert_allclose(model.target_marginal_, [1 / 6] * 3 + [0.5])


@pytest.mark.parametrize("objective", ["nnpu", "upu", "nnpu-sigmoid", "cvir-penalty"])
def test_other_objectives_in_the_paper_recipe(blob_problem, objective):
    model = PULSE(recipe="paper", objective=objective, max_steps=300, n_bootstrap=2, random_state=0)
    model.fit(**blob_problem.training_data())
    assert accuracy(blob_problem.y_target, model.target_labels_, -1).all > 0.85
    if objective == "upu":
        # It is trained after the warm start: of these losses only that of uPU can go below zero.
        assert min(record["loss"] for record in model.history_ if record["step"] == "cvir") < 0


def test_separability_in_the_paper_recipe_trains_the_discriminator_again(blob_problem):
    model = PULSE(recipe="paper", shift="separability", max_steps=200, n_bootstrap=2, random_state=0)
    model.fit(**blob_problem.training_data())
    steps = [record["step"] for record in model.history_]
    assert steps.count("warm start") == steps.count("label shift") > 1
    known = blob_problem.target_marginal[:-1] / blob_problem.target_marginal[:-1].sum()
    np.testing.assert_allclose(
        model.target_marginal_[:-1] / model.target_marginal_[:-1].sum(), known, atol=0.1
    )
    last = [record["marginal"] for record in model.history_ if record["step"] == "label shift"][-1]
    np.testing.assert_allclose(
        model.importance_weights_, last / np.bincount(blob_problem.y_source) * len(blob_problem.y_source)
    )


def test_separability_with_one_known_class():
    p = simulate_osls(*blobs(0), novel=[1, 2, 3], random_state=0)
    model = PULSE(recipe="paper", shift="separability", max_steps=60, n_bootstrap=2, random_state=0)
    assert model.fit(**p.training_data()).target_marginal_.sum() == pytest.approx(1)


def test_nothing_new_is_said_to_be_nothing():
    p = simulate_osls(*blobs(), novel=0, random_state=0)
    model = trees(**FEW).fit(**p.training_data())
    assert model.novel_prevalence_ == 0
    assert model.novelty_pvalue_ > 0.05
    assert (model.target_proba_[:, -1] == 0).all()
    assert np.mean(model.target_labels_ == p.y_target) > 0.97


@pytest.mark.parametrize("share", [0.001, 0.01, 0.03])
def test_extreme_shares(share):
    """None or a handful of rows to learn the novel class from."""
    p = simulate_osls(*blobs(sizes=(300, 300, 9)), novel=[2], test_size=0, random_state=0)

    class Given(BBE):
        def _fit(self, positive, unlabeled):
            self.alpha_ = 1 - share

    model = trees(novel_level=1.0, mixture=Given(), n_bootstrap=2).fit(**p.training_data())
    assert model.novel_prevalence_ == pytest.approx(share)
    assert np.mean(model.target_labels_ == -1) == pytest.approx(share, abs=0.1)
    # Also for rows that the models were trained on: what was not kept as novel is not learned as novel.
    assert np.mean(model.predict(p.X_target) == -1) == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize("shift", ["auto", "bbe"])
def test_fine_tuning_on_digits(digits_problem, shift):
    model = PULSE(recipe="fine-tune", shift=shift, max_steps=600, n_bootstrap=2, random_state=0)
    model.fit(**digits_problem.training_data())
    measured = accuracy(digits_problem.y_target, model.target_labels_, -1)
    assert measured.all > 0.85
    assert measured.novel > 0.7
    error = mix_error(digits_problem.target_marginal, model.target_marginal_)
    assert error.novel < 0.1
    np.testing.assert_allclose(model.predict_proba(digits_problem.X_target), model.target_proba_, atol=1e-5)


def test_fine_tuning_finds_a_class_again_that_the_bins_missed():
    """Overlapping classes, one of them hardly in the target: it must neither vanish nor take over."""
    shares = {"source_marginal": [1 / 3] * 3, "target_marginal": [0.5, 0.3, 0.01, 0.19]}
    X, y = blobs(sizes=(600, 600, 600, 200))
    noisy = X + np.random.default_rng(0).normal(scale=2, size=X.shape)
    p = simulate_osls(noisy, y, novel=[3], **shares, random_state=0)
    model = PULSE(recipe="fine-tune", max_steps=300, n_bootstrap=2, random_state=0).fit(**p.training_data())
    assert np.mean(model.target_labels_ == 2) < 0.1
    assert accuracy(p.y_target, model.target_labels_, -1).all > 0.6


def test_fine_tuning_without_a_novel_class():
    p = simulate_osls(*blobs(0), novel=[], random_state=0)
    model = PULSE(recipe="fine-tune", max_steps=300, n_bootstrap=2, random_state=0).fit(**p.training_data())
    assert model.novel_prevalence_ < 0.1
    assert accuracy(p.y_target, model.target_labels_, -1).all > 0.9


def test_fine_tuning_with_one_known_class():
    p = simulate_osls(*blobs(0), novel=[1, 2, 3], random_state=0)
    model = PULSE(recipe="fine-tune", max_steps=200, n_bootstrap=2, random_state=0).fit(**p.training_data())
    assert model.target_proba_.shape == (len(p.y_target), 2)
    assert accuracy(p.y_target, model.target_labels_, -1).all > 0.9


def test_paper_recipe_survives_a_target_without_novel_class():
    """The authors' keep rule would keep every row as novel once alpha reaches one."""
    p = simulate_osls(*blobs(), novel=0, random_state=0)
    model = PULSE(recipe="paper", max_steps=200, n_bootstrap=2, random_state=0).fit(**p.training_data())
    kept = [record["kept"] for record in model.history_ if record["step"] == "cvir"]
    assert min(kept) >= 1
    assert max(kept) < 0.5 * len(p.X_target)


@pytest.mark.parametrize(
    ("source_classifier", "discriminator"),
    [
        (LogisticRegression(), FOREST),
        (KNeighborsClassifier(5), KNeighborsClassifier(15)),
        ("linear", "trees"),
        (FOREST, "mlp"),
    ],
    ids=["mixed estimators", "no sample_weight", "names", "estimator and network"],
)
def test_any_model_in_either_role(problem, source_classifier, discriminator):
    model = PULSE(
        source_classifier=source_classifier,
        discriminator=discriminator,
        max_steps=100,
        random_state=0,
        **FEW,
    ).fit(**problem.training_data())
    assert abs(model.novel_prevalence_ - problem.target_marginal[-1]) < 0.1
    assert np.mean(model.target_labels_ == problem.y_target) > 0.9


def test_fitted_source_classifier_is_used_as_it_is(problem):
    n = len(problem.y_source) // 2
    given = LogisticRegression().fit(problem.X_source[:n], problem.y_source[:n])
    model = PULSE(source_classifier=given, discriminator=FOREST, random_state=0, n_bootstrap=2)
    model.fit(problem.X_source[n:], problem.y_source[n:], X_target=problem.X_target)
    assert model._predictor.classifier.predictor.estimator is given
    assert np.mean(model.target_labels_ == problem.y_target) > 0.95


def test_fitted_discriminator_is_trained_anew(problem):
    """A classifier somebody fitted for something else cannot know what is novel here."""
    fitted = ExtraTreesClassifier(20).fit(problem.X_source, problem.y_source)
    model = PULSE(source_classifier=FOREST, discriminator=fitted, random_state=0, **FEW)
    again = PULSE(source_classifier=FOREST, discriminator=FOREST, random_state=0, **FEW)
    np.testing.assert_array_equal(
        model.fit(**problem.training_data()).target_proba_, again.fit(**problem.training_data()).target_proba_
    )


def test_fitted_source_classifier_must_know_every_class(problem):
    known = problem.y_source != 2
    given = LogisticRegression().fit(problem.X_source[known], problem.y_source[known])
    with pytest.raises(ValueError, match="does not know the class 2"):
        PULSE(source_classifier=given).fit(**problem.training_data())


def small_network(input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(int(np.prod(input_shape)), 16), nn.ReLU(), nn.Linear(16, n_outputs)
    )


@pytest.mark.parametrize("recipe", ["cross-fit", "paper", "fine-tune"])
def test_network_of_the_users_own(problem, recipe):
    model = PULSE(
        recipe=recipe,
        source_classifier=small_network,
        discriminator=small_network,
        n_folds=2,
        max_steps=600 if recipe == "paper" else 300,
        n_bootstrap=2,
        random_state=0,
    ).fit(**problem.training_data())
    assert np.mean(model.target_labels_ == problem.y_target) > 0.85


@pytest.mark.parametrize("layout", ["channels first", "channels last"])
def test_images(layout):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    X = 0.1 * rng.normal(size=(180, 1, 8, 8))
    X[y == 0, :, :4] += 1
    X[y == 1, :, 4:] += 1
    X[y == 2, :, :, :4] += 1
    if layout == "channels last":
        X = np.moveaxis(X, 1, 3)
    p = simulate_osls(X, y, novel=[2], random_state=0)
    model = PULSE(max_steps=30, n_folds=2, random_state=0, **FEW).fit(**p.training_data())
    assert np.mean(model.target_labels_ == p.y_target) > 0.9
    assert model.predict(p.X_test).shape == p.y_test.shape
    with pytest.raises(ValueError, match="both must hold the same features"):
        PULSE().fit(p.X_source, p.y_source, X_target=p.X_target[:, :, :4])


def test_wide_sparse_text_like_input():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 120)
    words = rng.integers(0, 400, size=(360, 30)) + 400 * y[:, None]
    X = sparse.lil_matrix((360, 1500), dtype=np.float32)
    for i, row in enumerate(words):
        X[i, np.unique(row)] = 1.0
    p = simulate_osls(X.tocsr(), y, novel=[2], random_state=0)
    model = PULSE(max_steps=100, n_folds=3, random_state=0, **FEW).fit(**p.training_data())
    assert np.mean(model.target_labels_ == p.y_target) > 0.9
    assert sparse.issparse(p.X_test)
    assert model.score(p.X_test, p.y_test) > 0.9


def test_importance_weights_train_the_discriminator(problem):
    """Step 4, missing from the authors' code: the discriminator sees the re-weighted source."""
    seen = []

    class Spy(ExtraTreesClassifier):
        def fit(self, X, y, sample_weight=None):
            seen.append((y, sample_weight))
            return super().fit(X, y, sample_weight=sample_weight)

    model = PULSE(source_classifier=FOREST, discriminator=Spy(5), random_state=0, **FEW)
    model.fit(**problem.training_data())
    y, weight = seen[-1]
    known = weight[y == 1]
    ratio = np.sort(np.unique(np.round(known / known.min(), 4)))
    expected = np.sort(model.importance_weights_ / model.importance_weights_.min())
    np.testing.assert_allclose(ratio, expected, rtol=1e-3)
    # CVIR weighs known against novel as the target does.
    assert weight[y == 0].sum() / weight.sum() == pytest.approx(model.novel_prevalence_, abs=0.03)


def test_mixture_estimator_can_be_exchanged(problem):
    class Half(BBE):
        def _fit(self, positive, unlabeled):
            self.alpha_ = 0.5

    model = trees(mixture=Half(), **FEW).fit(**problem.training_data())
    assert model.novel_prevalence_ == 0.5


@pytest.mark.parametrize("objective", ["nnpu", "upu", "pvu", "cvir-penalty"])
def test_objectives(problem, objective):
    model = PULSE(
        source_classifier=FOREST,
        discriminator="mlp",
        objective=objective,
        mixture=DEDPUL(),
        n_folds=2,
        max_steps=300,
        n_bootstrap=2,
        random_state=0,
    ).fit(**problem.training_data())
    assert abs(model.novel_prevalence_ - problem.target_marginal[-1]) < 0.1
    assert np.mean(model.target_labels_ == problem.y_target) > 0.85
    assert objective in [record["step"] for record in model.history_]


@pytest.mark.parametrize("shift", ["refined", "joint", "bbe", "separability"])
def test_shift_methods_agree_on_separable_data(problem, shift):
    model = trees(shift=shift, **FEW).fit(**problem.training_data())
    assert mix_error(problem.target_marginal, model.target_marginal_).seen < 0.1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"recipe": "papers"}, ValueError, "recipe must be"),
        ({"shift": "magic"}, ValueError, "shift must be"),
        ({"recipe": "paper", "shift": "joint", "discriminator": "mlp"}, ValueError, "shift='bbe'"),
        ({"discriminator": "tree"}, ValueError, "Did you mean 'trees'"),
        ({"discriminator": nn.Linear(5, 2)}, TypeError, "pass a function"),
        ({"discriminator": RidgeClassifier()}, TypeError, "no predict_proba"),
        ({"discriminator": 3}, TypeError, "cannot use 3"),
        ({"recipe": "paper", "discriminator": FOREST}, ValueError, "needs a network"),
        (
            {"recipe": "fine-tune", "source_classifier": "mlp", "discriminator": FOREST},
            ValueError,
            "needs a network",
        ),
        ({"recipe": "fine-tune", "discriminator": "mlp"}, ValueError, "source classifier's network"),
        ({"recipe": "fine-tune", "shift": "joint"}, ValueError, "shift='separability' or shift='bbe'"),
        ({"objective": "nnPU"}, ValueError, "objective must be .* got 'nnPU'. Did you mean 'nnpu'"),
        ({"objective": "nnpu"}, ValueError, "needs a network"),
        ({"objective": "nnpu", "recipe": "fine-tune"}, ValueError, "objective='cvir'"),
        ({"patience": 0}, ValueError, "patience must be at least 1 or None"),
        ({"n_folds": 1}, ValueError, "n_folds must be at least 2"),
        ({"rounds": 0}, ValueError, "rounds must be at least 1"),
        ({"max_steps": 0}, ValueError, "max_steps must be"),
        ({"level": 95}, ValueError, "level must lie in"),
        ({"novel_level": 5}, ValueError, r"novel_level must lie in \[0, 1\]; got 5"),
        ({"mixture": "BBE"}, ValueError, r"mixture must be .* such as osls.mixture.BBE\(\); got 'BBE'"),
        ({"mixture": BBE}, ValueError, "mixture must be None or an estimator"),
        # Forests make no use of these two; a mistake is one all the same.
        ({"device": "gpu"}, ValueError, "device must be 'auto', 'cpu', 'cuda' or 'mps'; got 'gpu'"),
        ({"callback": 3}, ValueError, "callback must be callable or None; got 3"),
    ],
)
def test_wrong_parameters_are_named(problem, options, error, message):
    with pytest.raises(error, match=message):
        PULSE(**{"source_classifier": FOREST, "discriminator": FOREST, "max_steps": 20, **options}).fit(
            **problem.training_data()
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has what the test says it lacks")
def test_a_device_that_is_not_there_is_named(problem):
    with pytest.raises(ValueError, match="device is 'cuda', which this machine does not have"):
        PULSE(device="cuda").fit(**problem.training_data())


def test_verbose_shows_progress(problem, capsys):
    trees(verbose=True, **FEW).fit(**problem.training_data())
    captured = capsys.readouterr()
    assert captured.out == ""
    # Outside a terminal, a line a step: two cross-fittings and one round.
    assert [line.rpartition(",")[0] for line in captured.err.splitlines()] == [
        "PULSE: step 1 of 3",
        "PULSE: step 2 of 3",
        "PULSE: step 3 of 3",
    ]


def test_threads_do_not_change_the_answer(problem):
    few = {"rounds": 1, "n_folds": 2, "n_bootstrap": 2, "random_state": 0}
    one = PULSE(source_classifier="trees", discriminator="trees", n_jobs=1, **few)
    two = PULSE(source_classifier="trees", discriminator="trees", n_jobs=2, **few)
    np.testing.assert_allclose(
        one.fit(**problem.training_data()).target_proba_, two.fit(**problem.training_data()).target_proba_
    )
    assert torch.get_num_threads() >= 1


def test_target_without_any_known_row():
    X, y = blobs(sizes=(200, 200, 200))
    known = y < 2
    model = PULSE(source_classifier="trees", discriminator="trees", random_state=0)
    with pytest.warns(UserWarning, match="as if the two were in different units"):
        model.fit(X[known], y[known], X_target=X[~known] + 5)
    assert model.novel_prevalence_ > 0.9
    assert np.isfinite(model.marginal_interval_).all()
    assert model.diagnostics_.verdict.status != "no violation seen"


def test_with_few_labels_as_many_rows_are_called_novel_as_the_share_says(tmp_path):
    # Eleven source rows a class look newer out of their fold than they are.
    problem = simulate_osls(
        *load_digits(return_X_y=True), novel=range(6, 10), source_rows=(11, 11), random_state=0
    )
    model = PULSE(source_classifier="trees", discriminator="trees", n_bootstrap=5, random_state=0)
    model.fit(**problem.training_data())
    assert model.novel_prevalence_ > 0.2
    assert model.target_proba_[:, -1].mean() == pytest.approx(model.novel_prevalence_, abs=0.05)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(problem.X_test), model.predict_proba(problem.X_test))
