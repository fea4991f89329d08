"""From "something new" to named classes: groups, suggestions, absorbed labels, and the commands for them."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from typer.testing import CliRunner

from conftest import FOREST
from osls import PULSE, discover, load
from osls.app.answer import mix_schema
from osls.app.cli import app
from osls.app.report.review import render_review
from osls.growth import NOT_NEW
from osls.inference.discovery import class_parts, compare_parts, group_shares
from osls.inference.labels import combine_named, spread_labels
from osls.inference.partition import (
    Usual,
    core_rows,
    group_rows,
    mean_figures,
    median_number,
    modularity,
    valley,
)
from osls.inference.space import Space, telling_view, within_class_scale
from osls.training.embed import column_space, learnt_space
from osls.training.predictors import Blended

CENTRES = np.array([[0, 0, 0], [8, 0, 0], [0, 8, 0], [8, 8, 0], [0, 8, 8], [8, 0, 8]])
NAMES = np.array(["a", "b", "c", "d", "e", "f"])


def rows_of(counts, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    return rng.normal(size=(len(y), 3)) + CENTRES[y], NAMES[y]


def grouped(source, y, target, novelty=None, seed=0):
    rows = np.concatenate([source, target])
    novelty = np.ones(len(target)) if novelty is None else novelty
    return group_rows(Space.of(rows, rows, y), y, novelty, seed=seed)


SOURCE, LABELS = rows_of([60, 60, 60])
# d and e are new.
TARGET, TRUTH = rows_of([50, 40, 30, 60, 40], seed=1)


def cheap(**parameters):
    return PULSE(
        source_classifier=FOREST, discriminator=FOREST, rounds=1, n_folds=3, random_state=0, **parameters
    )


@pytest.fixture(scope="module")
def model():
    return cheap().fit(SOURCE, LABELS, X_target=TARGET)


@pytest.fixture(scope="module")
def grown(model):
    rows = model.suggest(8)
    return model.absorb(TARGET[rows], TRUTH[rows])


class OneColumn:
    """A predictor that looks at one column of its rows."""

    def __init__(self, column):
        self.column = column

    def predict_proba(self, X):
        return np.column_stack([X[:, self.column], 1 - X[:, self.column]])


class TestDiscover:
    def test_two_hidden_classes_are_two_groups(self, model):
        found = discover(model)
        assert len(found) == 2
        assert found is model.discover()
        for group, name in zip(found.groups, ("d", "e"), strict=True):
            # Known rows that the fit called novel have a group as well, as its least typical ones.
            mine = TRUTH[group.rows]
            assert (mine[np.isin(mine, ["d", "e"])] == name).mean() > 0.97
            assert (mine[: len(mine) * 3 // 4] == name).mean() > 0.95
            part = (name == TRUTH).sum() / np.isin(TRUTH, ["d", "e"]).sum()
            assert group.share / model.novel_prevalence_ == pytest.approx(part, abs=0.03)
            assert group.interval[0] < (name == TRUTH).mean() < group.interval[1]
            assert 0.5 < group.purity <= 1
        assert sum(group.share for group in found.groups) == pytest.approx(model.novel_prevalence_)
        novel = model.target_labels_ == model.classes_[-1]
        assert np.array_equal(found.group >= 0, novel)
        assert np.allclose(found.membership.sum(axis=1), 1)

    @pytest.mark.parametrize("seed", range(3))
    def test_one_class_is_one_group(self, seed):
        X, y = rows_of([60, 60, 60, 0, 0, 0], seed)
        target, _ = rows_of([0, 0, 0, 80, 0, 0], seed + 9)
        number = np.unique(y, return_inverse=True)[1]
        assert grouped(X, number, target, seed=seed).shape == (80, 1)

    def test_nothing_new_has_no_groups(self):
        assert grouped(SOURCE, np.repeat([0, 1, 2], 60), TARGET, np.zeros(220)).shape == (220, 0)

    def test_few_rows_and_a_single_known_class(self):
        one = np.zeros(60, dtype=int)
        few = grouped(SOURCE[:60], one, TARGET[:5])
        assert few.shape == (5, 1)
        two, _ = rows_of([0, 0, 0, 60, 60], seed=3)
        assert grouped(SOURCE[:60], one, two).shape == (120, 2)

    def test_more_rows_of_one_class_are_still_one_group(self):
        X, y = rows_of([60, 60, 60, 0, 0, 0])
        number = np.unique(y, return_inverse=True)[1]
        for count in (40, 400, 4000):
            target, _ = rows_of([0, 0, 0, count, 0, 0], seed=count)
            assert grouped(X, number, target).shape == (count, 1)

    @pytest.mark.parametrize("columns", [1, 2])
    def test_tables_of_one_or_two_columns(self, columns):
        """A single column, or the second of two, is not lost on the way to the groups."""
        rng = np.random.default_rng(0)
        kind = np.repeat([0, 1, 0, 1, 2, 3], [80, 80, 60, 60, 60, 60])
        rows = np.column_stack([12.0 * kind, np.zeros(400)])[:, :columns] + rng.normal(size=(400, columns))
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, random_state=0)
        found = model.fit(rows[:160], kind[:160], X_target=rows[160:]).discover()
        assert len(found) >= 1
        assert np.mean(found.group[120:] >= 0) > 0.9
        assert column_space(rows).shape == (400, columns)

    def test_columns_that_say_nothing(self):
        constant = np.ones((60, 2))
        assert column_space(constant).shape == (60, 0)
        assert (
            class_parts(
                Space.of(constant[:, :0], constant[:, :0], np.zeros(60, int)),
                np.zeros(60, int),
                np.zeros(0, int),
                ["a"],
            )
            == ()
        )
        nothing = Space(constant[:, :0], constant[:, :0])
        assert group_rows(nothing, np.zeros(30, int), np.ones(30)).shape == (30, 1)

    def test_rows_among_labelled_ones_are_no_group(self):
        """Known rows that were called novel would be a second group; without their labels they are one."""
        number = np.repeat([0, 1, 2], 60)
        target, _ = rows_of([0, 0, 40, 80], seed=4)
        assert grouped(SOURCE, number, target).shape == (120, 1)
        assert grouped(SOURCE[:120], number[:120], target).shape == (120, 2)

    def test_core_rows_by_hand(self):
        # On a line: twelve called rows lie together, two among rows that were not called.
        rows = np.append(np.arange(12.0), [101.5, 102.5, *np.arange(100.0, 120.0)])[:, None]
        rng = np.random.default_rng(0)
        assert core_rows(rows, np.arange(14), rng).tolist() == list(range(12))
        # Where all of them lie among others, half of them at least are taken.
        assert len(core_rows(rows, np.arange(14, 34, 4), rng)) >= 3
        assert core_rows(rows[:3], np.arange(2), rng).tolist() == [0, 1]

    def test_the_median_number_by_hand(self):
        # Probabilities 3/8, 1/8, 4/8: half of the probability is at one or two groups.
        weights = {1: np.log(3), 2: np.log(1), 4: np.log(4)}
        assert median_number(weights) == 2
        assert median_number({**weights, 4: np.log(4.1)}) == 4
        assert median_number({1: 0.0}) == 1

    def test_figures_are_means_over_draws_with_the_seed(self):
        rows, _ = rows_of([0, 0, 0, 60, 60], seed=3)
        space = Space(rows, rows)
        # A known class would have a variance of one in each of the three columns.
        usual = Usual(np.zeros((2, 5)), np.full(2, np.log(3)))
        one, same = (mean_figures(space, usual, np.random.default_rng(1)) for _ in range(2))
        assert all(np.array_equal(one[count], same[count]) for count in one)
        # Two groups of equal size that are far apart: nearly all neighbours agree, and nothing lies between.
        assert one[2][[0, 1, 2, 3, 7, 8]] == pytest.approx([0.0, 0.5, 0.5, 0.5, np.log(2), 1.0], abs=0.02)
        # Each is as wide as a known class, and both together are wider.
        assert one[2][4:7] == pytest.approx([0.0, 0.0, 0.0], abs=0.3)
        assert one[1][4] > 1
        assert one[1][[0, 1, 2, 3, 7, 8]].tolist() == [0.0] * 6
        assert list(mean_figures(space[:10], usual, np.random.default_rng(1))) == [1]

    def test_columns_are_standardised_where_that_tells_more(self):
        """Columns in large units drown another unless standardised; noise in small ones is blown up."""
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1], 60)
        telling, noise = rng.normal(size=120) + 4 * y, rng.normal(size=(120, 30))
        mixed = np.column_stack([telling, 1e4 * noise])
        alike = np.column_stack([telling, 1e-3 * noise])
        for rows, best in ((mixed, 0), (alike, 1)):
            views = [column_space(rows, components=10), column_space(rows, components=10, scaled=False)]
            assert telling_view(views, y) is views[best]
        assert telling_view([noise, mixed], np.zeros(120, int)) is noise

    def test_modularity_by_hand(self):
        # Three of four neighbours are of the own group; by chance it would be 1/2.
        neighbours = np.array([[1], [0], [3], [1]])
        edges = np.array([[2, 0], [1, 1]]) / 4
        chance = ((edges.sum(axis=0) + edges.sum(axis=1)) / 2) ** 2
        assert modularity(neighbours, np.array([0, 0, 1, 1])) == pytest.approx(0.75 - chance.sum())

    def test_the_valley_of_known_densities(self):
        # At the middle of two unit normals four apart lies 2 phi(2) of a peak of about phi(0).
        z = np.sort(np.random.default_rng(0).normal(size=4000))
        assert valley(z + 4, z) == pytest.approx(2 * np.exp(-2), abs=0.06)
        assert valley(z + 0.1, z) == 1.0

    def test_within_class_scale_makes_classes_round(self):
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1], 500)
        rows = rng.normal(size=(1000, 2)) * [5, 1] + 40 * y[:, None]
        scaled = rows @ within_class_scale(rows, y)
        spread = (scaled - np.array([scaled[y == c].mean(axis=0) for c in (0, 1)])[y]).std(axis=0)
        assert spread.max() / spread.min() < 2.2 < 5

    def test_group_shares_by_hand(self):
        novelty = np.array([1.0, 1.0, 0.5, 0.5])
        membership = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
        shares, intervals = group_shares(novelty, membership, 0.3, (0.3, 0.3), 0.95)
        # Fractions 1.75 / 3 and 1.25 / 3.
        assert shares == pytest.approx([0.175, 0.125])
        f = 1.75 / 3
        noise = 1.959964 * 0.3 * np.sqrt(f * (1 - f) / 3 + 0.25 * 0.25 / 9)
        assert intervals[0] == pytest.approx([max(0, 0.175 - noise), 0.175 + noise], abs=1e-6)

    def test_every_kind_of_model_has_a_space(self):
        for kind in ("mlp", "linear", "auto"):
            fitted = PULSE(
                source_classifier=kind,
                discriminator=FOREST,
                max_steps=40,
                rounds=1,
                n_folds=2,
                n_bootstrap=5,
                random_state=0,
            ).fit(SOURCE, LABELS, X_target=TARGET)
            space = learnt_space(fitted._predictor.classifier, TARGET)
            assert space.shape[0] == len(TARGET)
            assert space.shape[1] >= 1
            assert np.isfinite(space).all()
        assert column_space(csr_matrix(TARGET)).shape == column_space(TARGET).shape

    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_a_family_without_weight_still_tells_groups_apart(self, share):
        """One model merges what the other keeps apart."""
        blend = Blended(OneColumn(0), OneColumn(1), share)
        rows = np.array([[0.2, 0.9], [0.2, 0.1], [0.8, 0.9], [0.8, 0.1]])
        space = learnt_space(blend, rows)
        assert len(np.unique(space.round(6), axis=0)) == 4


class TestParts:
    """Class "a" is two heaps, both labelled; in the target one of them may be rare."""

    @staticmethod
    def fit(target_counts, **parameters):
        X, y = rows_of([60, 60, 100, 0, 100], seed=1)
        X_target, _ = rows_of(target_counts, seed=2)
        y = np.where(y == "b", "a", y)
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, random_state=0, **parameters)
        return model.fit(X, y, X_target=X_target)

    def test_a_class_of_two_heaps_is_said_and_not_called_new(self):
        model = self.fit([90, 10, 80, 0, 80])
        found = model.discover()
        assert model.novel_prevalence_ == 0
        assert not found.groups
        (part,) = found.parts
        assert part.name == "a"
        assert part.source == pytest.approx((0.5, 0.5), abs=0.02)
        assert max(part.target) == pytest.approx(0.9, abs=0.04)
        assert part.moved
        for heap in part.rows:
            # Rows 0 to 89 of the target are the one heap, 90 to 99 the other.
            assert len({row < 90 for row in heap.tolist()}) == 1

    def test_the_same_proportions_have_not_moved(self):
        (part,) = self.fit([50, 50, 80, 0, 80]).discover().parts
        assert not part.moved
        assert part.interval[0] < 0.5 < part.interval[1]

    def test_whole_classes_have_no_parts(self, model):
        assert model.discover().parts == ()

    def test_counted_by_hand(self):
        source, target = np.repeat([0, 1], [30, 10]), np.repeat([0, 1], [10, 30])
        part = compare_parts("a", source, target, np.arange(40) + 5, 0.95)
        assert part.source == (0.75, 0.25)
        assert part.target == (0.25, 0.75)
        # 11 and 31 of 42, with a row more of each: 1.96 sqrt(11 * 31 / 42^3) on either side of a quarter.
        assert part.interval == pytest.approx((0.25 - 0.1330, 0.25 + 0.1330), abs=1e-4)
        assert part.rows[0].tolist() == list(range(5, 15))
        assert part.moved

    def test_they_are_saved_and_found_again_with_the_rows(self, tmp_path):
        model = self.fit([90, 10, 80, 0, 80])
        expected = model.discover().parts[0].target
        model.save(tmp_path / "found")
        assert load(tmp_path / "found").discover().parts[0].target == expected
        # Where nothing was found before saving, a model without its rows has no parts to tell of.
        self.fit([90, 10, 80, 0, 80]).save(tmp_path / "not")
        assert load(tmp_path / "not").discover().parts == ()


class TestSuggest:
    def test_rows_come_from_all_groups_and_say_why(self, model):
        chosen = model.suggestions(10)
        assert len({each.row for each in chosen}) == 10
        assert {each.group for each in chosen} == {0, 1}
        assert chosen[0].reason == "typical of group 1"
        assert any(each.reason.startswith("undecided") for each in chosen)
        assert model.suggest(10).tolist() == [each.row for each in chosen]

    def test_a_row_is_not_asked_for_twice(self, model, grown):
        assert not set(grown.suggest(5).tolist()) & set(model.suggest(8).tolist())

    def test_none_is_an_error(self, model):
        for n in (0, 2.5, "3"):
            with pytest.raises(ValueError, match="n must be a whole number, at least 1"):
                model.suggest(n)


class TestAbsorb:
    def test_a_few_labels_name_the_classes(self, model, grown):
        assert grown.classes_.tolist() == ["a", "b", "c", "d", "e", "novel"]
        assert (grown.target_labels_ == TRUTH).mean() > 0.97
        assert grown.target_marginal_.sum() == pytest.approx(1)
        for name in "de":
            j = grown.classes_.tolist().index(name)
            assert grown.target_marginal_[j] == pytest.approx((name == TRUTH).mean(), abs=0.03)
            low, high = grown.marginal_interval_[j]
            assert low < (name == TRUTH).mean() < high
        assert (grown.predict(TARGET) == TRUTH).mean() > 0.97
        assert np.allclose(grown.predict_proba(TARGET).sum(axis=1), 1)
        # The model itself is as it was.
        assert model.classes_.tolist() == ["a", "b", "c", "novel"]

    def test_what_was_labelled_does_not_change_what_is_counted(self, model):
        d, e = np.flatnonzero(TRUTH == "d"), np.flatnonzero(TRUTH == "e")
        called = model.target_labels_ == "novel"
        few = model.absorb_rows([d[called[d]][0], *e[called[e]][:15]], ["d"] + ["e"] * 15)
        many = model.absorb_rows([*d[called[d]][:15], e[called[e]][0]], ["d"] * 15 + ["e"])
        assert few.target_marginal_ == pytest.approx(many.target_marginal_, abs=0.02)

    def test_an_unnamed_group_stays_new(self, model):
        rows = np.flatnonzero((TRUTH == "d") & (model.target_labels_ == "novel"))[:5]
        one = model.absorb(TARGET[rows], TRUTH[rows])
        assert one.classes_.tolist() == ["a", "b", "c", "d", "novel"]
        assert one.novel_prevalence_ == pytest.approx((TRUTH == "e").mean(), abs=0.04)
        assert (one.target_labels_ == np.where(TRUTH == "e", "novel", TRUTH)).mean() > 0.95
        assert len(one.discover()) == 1
        # The second time adds to the first.
        rows = np.flatnonzero((TRUTH == "e") & (model.target_labels_ == "novel"))[:5]
        both = one.absorb(TARGET[rows], TRUTH[rows])
        assert both.classes_.tolist() == ["a", "b", "c", "d", "e", "novel"]
        assert (both.target_labels_ == TRUTH).mean() > 0.97

    def test_really_a_known_class_and_not_new(self, model):
        group = model.discover().groups[1].rows[:4]
        really = model.absorb_rows(group, ["a"] * 4)
        assert really.classes_.tolist() == model.classes_.tolist()
        moved = model.discover().groups[1].share
        assert really.target_marginal_[0] == pytest.approx(model.target_marginal_[0] + moved, abs=0.02)
        assert really.novel_prevalence_ == pytest.approx(model.novel_prevalence_ - moved, abs=0.02)
        back = model.absorb_rows(group, [NOT_NEW] * 4)
        assert back.novel_prevalence_ == pytest.approx(model.novel_prevalence_ - moved, abs=0.02)
        assert not (back.target_labels_[group] == "novel").any()

    @pytest.mark.parametrize(
        ("rows", "labels", "message"),
        [
            ([0, 0], ["x", "y"], "row 0 has two labels, 'x' and 'y'"),
            ([9999], ["x"], "no row 9999 in the target"),
            ([0], [" A"], "' A' differs from the class 'a' by case or blanks only"),
            ([0, 1], ["Late", "late"], "differs from the class 'Late'"),
            ([], [], "no label to absorb"),
            ([0, 1], ["x", None], "row 1 has no label"),
            ([0, 1], ["x"], "2 rows but 1 labels"),
            ([0.5], ["x"], "rows must be positions"),
            ([True, False], ["x", "x"], "rows must be positions"),
        ],
    )
    def test_conflicts_end_in_one_sentence(self, model, rows, labels, message):
        with pytest.raises(ValueError, match=message):
            model.absorb_rows(rows, labels)

    def test_rows_that_are_not_in_the_target(self, model):
        with pytest.raises(ValueError, match="X: row 1 is not one of the target"):
            model.absorb(np.array([TARGET[0], [99.0, 99.0, 99.0]]), ["x", "x"])
        with pytest.raises(ValueError, match="X has 2 rows but y has 1 labels"):
            model.absorb(TARGET[:2], ["x"])

    def test_a_group_with_labels_of_two_classes_is_split(self):
        rows, group = np.arange(8.0)[:, None], np.array([0, 0, 0, 0, 1, 1, -1, -1])
        spread = spread_labels(rows, group, np.array([0, 3, 7]), np.array([4, 5, 1]), 6)
        assert spread.tolist() == [4, 4, 5, 5, 6, 6, -1, 1]

    def test_combining_by_hand(self):
        before, named = np.array([[0.4, 0.6]]), np.array([[0.2, 0.6, 0.2]])
        # 0.6 is split 3 : 1 into .45 and .15; then the mean.
        assert combine_named(before, named)[0] == pytest.approx([0.3, 0.525, 0.175])
        assert combine_named(before, np.array([[1.0, 0.0, 0.0]]))[0] == pytest.approx([0.7, 0.0, 0.3])

    def test_labelled_rows_for_the_next_fit(self, grown):
        X, y = grown.as_source()
        assert np.array_equal(X[: len(SOURCE)], SOURCE)
        assert sorted(set(y.tolist())) == ["a", "b", "c", "d", "e"]
        assert (y == "d").sum() == pytest.approx((TRUTH == "d").sum(), abs=8)
        later, truth = rows_of([40, 40, 40, 40, 40, 60], seed=5)
        again = cheap().fit(X, y, X_target=later)
        assert again.classes_.tolist() == ["a", "b", "c", "d", "e", "novel"]
        assert again.novel_prevalence_ == pytest.approx((truth == "f").mean(), abs=0.1)

    def test_labels_of_another_type_than_the_classes(self):
        number = np.unique(LABELS, return_inverse=True)[1]
        fitted = cheap().fit(SOURCE, number, X_target=TARGET)
        rows = fitted.suggest(4)
        assert fitted.absorb_rows(rows, [7] * 4).classes_.tolist() == [0, 1, 2, 7, -1]
        assert fitted.absorb_rows(rows, ["seven"] * 4).classes_.tolist() == [0, 1, 2, "seven", -1]
        # NumPy would make words of all of them, and of a known class a new one.
        mixed = fitted.absorb(TARGET[rows], ["seven", 8, 0, 0])
        assert mixed.classes_.tolist() == [0, 1, 2, 8, "seven", -1]

    def test_sparse_rows(self):
        source, target = csr_matrix(SOURCE), csr_matrix(TARGET)
        fitted = cheap().fit(source, LABELS, X_target=target)
        rows = fitted.suggest(8)
        grown = fitted.absorb(target[rows], TRUTH[rows])
        assert grown.classes_.tolist()[:3] == ["a", "b", "c"]
        assert np.mean(grown.target_labels_ == TRUTH) > 0.9
        again = pickle.loads(pickle.dumps(grown)).recall(source, LABELS, target)
        assert again.suggest(3).tolist() == grown.suggest(3).tolist()

    def test_what_a_grown_model_has_not_is_said(self, grown):
        with pytest.raises(ValueError, match="this model has no prediction sets"):
            grown.predict_set(TARGET)


class TestSaving:
    def test_rows_are_not_saved_and_can_be_given_back(self, model, grown, tmp_path):
        model.discover()
        grown.save(tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert np.array_equal(loaded.predict_proba(TARGET), grown.predict_proba(TARGET))
        assert not hasattr(loaded, "_rows")
        with pytest.raises(ValueError, match="recall"):
            loaded.absorb_rows([0], ["x"])
        with pytest.raises(ValueError, match="X_target: these are not the rows"):
            loaded.recall(SOURCE, LABELS, TARGET[::-1])
        with pytest.raises(ValueError, match="not fitted on a class 'z'"):
            loaded.recall(SOURCE, ["z"] * len(SOURCE), TARGET)
        with pytest.raises(ValueError, match="y has 177 labels for the 180 rows of X"):
            loaded.recall(SOURCE, LABELS[:-3], TARGET)
        assert loaded.recall(SOURCE, LABELS, TARGET).suggest(3).tolist() == grown.suggest(3).tolist()
        assert not hasattr(pickle.loads(pickle.dumps(model)), "_rows")

    def test_groups_are_saved(self, model, tmp_path):
        model.discover()
        model.save(tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert [g.share for g in loaded.discover().groups] == [g.share for g in model.discover().groups]


# -- The commands -------------------------------------------------------------------------------------


def frame(X):
    return pd.DataFrame(X, columns=["x", "y", "z"])


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    frame(SOURCE).assign(kind=LABELS).to_csv(folder / "source.csv", index=False)
    frame(TARGET).assign(name=[f"n{i}" for i in range(len(TARGET))]).to_csv(
        folder / "target.csv", index=False
    )
    sides = ("--source", folder / "source.csv", "--target", folder / "target.csv", "--id", "name")
    done = invoke("adapt", *sides, "--label", "kind", "--out", folder / "run", "--fast", "--jobs", 1)
    assert done.exit_code == 0, done.output
    return folder / "run"


class TestCommands:
    def test_groups_are_in_all_that_is_written(self, run):
        import jsonschema

        mix = json.loads((run / "mix.json").read_text())
        jsonschema.validate(mix, mix_schema())
        predictions = pd.read_parquet(run / "predictions.parquet")
        assert [g["group"] for g in mix["groups"]] == [1, 2]
        counts = predictions["group"].value_counts()
        assert [g["rows"] for g in mix["groups"]] == [counts[1], counts[2]]
        assert predictions["group"].notna().equals(predictions["predicted"] == "novel")
        assert all(g["traits"] for g in mix["groups"])
        page = (run / "report.html").read_text()
        assert f"{mix['groups'][0]['rows']} rows called novel" in page

    def test_a_group_without_a_label_is_named(self, run, tmp_path):
        predictions = pd.read_csv(run / "predictions.csv")
        first = predictions[predictions["group"] == 1].tail(3)
        pd.DataFrame({"name": first["name"], "label": "d"}).to_csv(tmp_path / "labels.csv", index=False)
        done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "second")
        count = int((predictions["group"] == 2).sum())
        assert f"None of the {count} rows of group 2 has a label" in done.output.replace("\n", " ")
        assert "group 1 has a label" not in done.output

    def test_the_notes_of_the_fit_hold_for_what_was_absorbed(self, run, tmp_path):
        before = json.loads((run / "mix.json").read_text())["warnings"]
        assert any("first look (quick)" in note for note in before)
        (tmp_path / "labels.csv").write_text(f"row,name,label\n{len(TARGET)},n{len(TARGET) - 1},x\n")
        done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "second")
        assert done.exit_code == 0, done.output
        after = json.loads((tmp_path / "second" / "mix.json").read_text())
        assert after["warnings"][: len(before)] == before
        assert "notes" not in after["settings"]

    def test_when_all_has_a_name_nothing_is_said_of_what_could_be_missed(self, run, tmp_path):
        groups = pd.read_csv(run / "predictions.csv").dropna(subset="group")
        groups.assign(label="x")[["row", "label"]].to_csv(tmp_path / "labels.csv", index=False)
        done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "out")
        assert done.exit_code == 0, done.output
        assert "All that was found to be new has a name now" in " ".join(done.output.split())
        assert "could have been missed" not in done.output
        assert "othing new was found" not in done.output

    def test_absorb_knows_its_parent_and_changes_nothing_else(self, run, tmp_path):
        import jsonschema

        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        predictions = pd.read_csv(run / "predictions.csv")
        # The file begins with known classes, so the first rows of a group are those wrongly called novel.
        novel = predictions[predictions["group"].notna()].groupby("group").tail(5)
        labels = pd.DataFrame({"name": novel["name"], "label": TRUTH[novel.index]})
        labels.to_csv(tmp_path / "labels.csv", index=False)
        done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "second")
        assert done.exit_code == 0, done.output
        mix = json.loads((tmp_path / "second" / "mix.json").read_text())
        jsonschema.validate(mix, mix_schema())
        assert [c["name"] for c in mix["classes"]] == ["a", "b", "c", "d", "e", "novel"]
        assert (mix["parent"]["run"], mix["parent"]["labels"]) == (str(run), 10)
        answers = pd.read_parquet(tmp_path / "second" / "predictions.parquet")
        assert (answers["predicted"].to_numpy() == TRUTH).mean() > 0.95
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        # The absorbed model predicts and monitors as any other.
        more, truth = rows_of([30, 30, 30, 30, 30], seed=7)
        frame(more).to_csv(tmp_path / "more.csv", index=False)
        out = tmp_path / "more.parquet"
        assert invoke("predict", tmp_path / "second", tmp_path / "more.csv", "--out", out).exit_code == 0
        assert (pd.read_parquet(out)["predicted"].to_numpy() == truth).mean() > 0.95
        watched = ("--state", tmp_path / "state.json", "--out", tmp_path / "timeline.html")
        done = invoke("monitor", tmp_path / "second", tmp_path / "more.csv", *watched)
        assert done.exit_code in (0, 3), done.output
        history = pd.read_csv(tmp_path / "timeline.csv")
        share = history.set_index("class")["share"]
        assert share["d"] == pytest.approx(0.2, abs=0.06)
        assert share["e"] == pytest.approx(0.2, abs=0.06)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("name,label\nn1,x\nn1,y\n", "the name 'n1' has two labels, 'x' and 'y'"),
            ("name,label\nnobody,x\n", "no fitted row of the target has the name 'nobody'"),
            ("name,label\nn1,A\n", "differs from the class 'a' by case or blanks only"),
            ("row,label\n0,x\n", "no fitted row of the target has the row '0'"),
            ("line,label\n1,x\n", "needs a column 'name' or 'row' and a column 'label'"),
            ("name,label\nn1,\nn2,x\n", "has no name or no label"),
            ("row,name,label\n2,n1,x\n9,n3,y\n", "the name 'n3' has the row '4' in the target, not '9'"),
        ],
    )
    def test_labels_that_do_not_fit_end_in_one_sentence(self, run, tmp_path, text, message):
        (tmp_path / "labels.csv").write_text(text)
        done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "second")
        assert done.exit_code == 2
        assert message in done.output
        assert done.output.count("\n") == 1
        assert not (tmp_path / "second").exists()

    def test_a_run_whose_data_changed_and_a_folder_that_is_none(self, run, tmp_path):
        (tmp_path / "labels.csv").write_text("row,label\n1,x\n")
        done = invoke("absorb", tmp_path, tmp_path / "labels.csv", "--out", tmp_path / "second")
        assert done.exit_code == 2
        assert "is not the folder of a run" in done.output
        target = run.parent / "target.csv"
        text = target.read_text()
        try:
            target.write_text(text.replace(text.splitlines()[1], "1,2,3,n0"))
            done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "second")
            assert done.exit_code == 2
            assert "is not what" in done.output
        finally:
            target.write_text(text)

    def test_review_writes_a_page(self, run, tmp_path):
        done = invoke("review", run, "--out", tmp_path / "review.html", "--rows", 6)
        assert done.exit_code == 0, done.output
        page = (tmp_path / "review.html").read_text()
        assert "Look at these first" in page
        again = invoke("review", run, "--out", tmp_path / "review.html")
        assert again.exit_code == 2
        assert "--overwrite" in again.output


def test_a_run_on_hashed_words_can_be_reviewed_and_grown(tmp_path):
    rng = np.random.default_rng(0)
    words = {"pay": "refund invoice card charge", "login": "password reset account code"}
    words["outage"] = "server down timeout error"

    def table(counts):
        kinds = np.repeat(list(counts), list(counts.values()))
        texts = [" ".join(rng.choice((words[kind] + " please help today").split(), 8)) for kind in kinds]
        return pd.DataFrame({"text": texts, "kind": kinds})

    source, target = table({"pay": 60, "login": 60}), table({"pay": 40, "login": 40, "outage": 60})
    source.to_csv(tmp_path / "source.csv", index=False)
    target[["text"]].to_csv(tmp_path / "target.csv", index=False)
    labels = pd.DataFrame({"row": np.arange(100, 110) + 1, "label": "outage"})
    labels.to_csv(tmp_path / "labels.csv", index=False)
    sides = ("--source", tmp_path / "source.csv", "--target", tmp_path / "target.csv", "--label", "kind")
    done = invoke("adapt", *sides, "--text", "tfidf", "--fast", "--jobs", 1, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    done = invoke("review", tmp_path / "run", "--out", tmp_path / "review.html")
    assert done.exit_code == 0, done.exception
    done = invoke("absorb", tmp_path / "run", tmp_path / "labels.csv", "--out", tmp_path / "grown")
    assert done.exit_code == 0, done.exception
    mix = json.loads((tmp_path / "grown" / "mix.json").read_text())
    assert "outage" in [each["name"] for each in mix["classes"]]


def test_nothing_in_the_data_of_the_review_page_ends_its_element(run):
    from osls.app.grow import open_run

    answer = open_run(run).answer("", every_row=False)
    rows = answer.target_rows.astype(object)
    rows.iloc[answer.discovery.groups[0].rows] = "</script><script>alert(1)</script>"
    answer = replace(answer, target_rows=rows)
    page = render_review(answer, [], run="</code><b>")
    assert page.count("</script>") == 2
    assert "</code><b>" not in page
