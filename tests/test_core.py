"""The small things that every room uses: statistics, names, parameters, weighted samples."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import examples
from osls import baselines, mixture
from osls._core.arrays import dkw_radius, effective_size, keep_as_novel, with_novel
from osls._core.names import exported_classes, nearest, unknown
from osls._core.parameters import AtLeast, Between, OneOf, check_parameters, inherit_parameters
from osls._core.saving import marked
from osls.base import OpenSetAdapter
from osls.mixture import BBE, MixtureEstimator
from osls.mixture.sample import Sample
from osls.streaming import ScoreSummary
from osls.streaming.counts import CountedSample

scores = st.lists(st.floats(0, 1), min_size=1, max_size=40)
weights = st.floats(0.01, 100)


class TestStatistics:
    def test_effective_size_by_hand(self):
        assert effective_size(np.ones(7)) == 7
        assert effective_size(np.array([3.0, 1.0])) == pytest.approx(16 / 10)

    @given(st.lists(weights, min_size=1, max_size=30), st.floats(0.1, 10))
    @examples(50)
    def test_effective_size_has_no_unit_and_is_at_most_the_number_of_rows(self, values, factor):
        weight = np.array(values)
        size = effective_size(weight)
        assert 1 - 1e-9 <= size <= len(weight) + 1e-9
        assert effective_size(factor * weight) == pytest.approx(size)

    def test_dkw_radius_by_hand(self):
        assert dkw_radius(50, 0.1) == pytest.approx(np.sqrt(np.log(40) / 100))

    @pytest.mark.parametrize(
        ("n", "delta", "word"), [(0, 0.1, "n must"), (-3, 0.1, "n must"), (5, 0, "delta"), (5, 1, "delta")]
    )
    def test_dkw_radius_names_what_is_wrong(self, n, delta, word):
        with pytest.raises(ValueError, match=word):
            dkw_radius(n, delta)

    def test_shares_with_the_novel_one(self):
        np.testing.assert_allclose(with_novel(np.array([0.25, 0.75]), 0.2), [0.2, 0.6, 0.2])

    def test_the_keep_rule_by_hand(self):
        kept = keep_as_novel(np.array([0.9, 0.1, 0.5, 0.2]), 0.5)
        assert kept.tolist() == [False, True, False, True]

    @pytest.mark.parametrize("share", [0.0, 1e-9, 0.1])
    def test_the_keep_rule_never_keeps_nothing(self, share):
        """With a share below 1 / m the authors' code keeps every row."""
        assert keep_as_novel(np.arange(5.0), share).sum() == 1

    @given(scores, st.floats(0, 1), st.integers(1, 3))
    @examples(50)
    def test_the_keep_rule_keeps_the_lowest(self, values, share, least):
        known = np.array(values)
        kept = keep_as_novel(known, share, least=least)
        assert min(least, len(known)) <= kept.sum() <= len(known)
        if not kept.all():
            assert known[kept].max() <= known[~kept].min()


class TestNames:
    def test_the_nearest_name(self):
        assert nearest("treess", ["trees", "linear"]) == " Did you mean 'trees'?"
        assert nearest(None, ["trees"]) == ""
        assert nearest("x", []) == ""

    def test_an_unknown_name_lists_those_there_are(self):
        assert unknown("model", "x", ["b", "a"]) == "unknown model 'x'. Known: a, b."

    def test_what_a_package_exports_has_a_name(self):
        package = ModuleType("package")

        class Base: ...

        class FirstThing(Base): ...

        class Other(Base):
            short_name: ClassVar[str] = "short"

        class Child(Other): ...

        for each in (Base, FirstThing, Other, Child):
            setattr(package, each.__name__, each)
        package.helper = len
        package.__all__ = ["Base", "Child", "FirstThing", "Other", "helper"]
        # A subclass does not take over its parent's short name: one would hide the other.
        assert exported_classes(package, Base) == {"child": Child, "first-thing": FirstThing, "short": Other}

    @pytest.mark.parametrize(
        ("package", "base", "some"),
        [
            (baselines, OpenSetAdapter, {"k-pu", "sta", "source-only"}),
            (mixture, MixtureEstimator, {"bbe", "dedpul"}),
        ],
        ids=["baselines", "mixture"],
    )
    def test_every_method_has_a_name_of_its_own(self, package, base, some):
        named = exported_classes(package, base)
        exported = [getattr(package, name) for name in package.__all__]
        concrete = [
            each
            for each in exported
            if isinstance(each, type) and issubclass(each, base) and each is not base
        ]
        assert len(named) == len(concrete)
        assert some <= set(named)


class _Checked:
    parameter_constraints: ClassVar = {"kind": OneOf(("one", "two")), "steps": AtLeast(1, optional=True)}

    def __init__(self, kind="one", steps=None, level=0.5):
        self.kind, self.steps, self.level = kind, steps, level


class _Stricter(_Checked):
    parameter_constraints: ClassVar = {"steps": AtLeast(5), "level": Between(0, 1)}


class TestParameters:
    @pytest.mark.parametrize(
        "values", [{}, {"kind": "two"}, {"steps": 1}, {"steps": np.int64(3)}, {"level": 7}]
    )
    def test_what_is_allowed_passes(self, values):
        check_parameters(_Checked(**values))

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"kind": "tow"}, "kind must be 'one' or 'two'; got 'tow'. Did you mean 'two'?"),
            ({"kind": None}, "kind must be 'one' or 'two'; got None."),
            ({"steps": 0}, "steps must be at least 1 or None; got 0."),
            ({"steps": "3"}, "steps must be at least 1 or None; got '3'."),
            ({"steps": True}, "steps must be at least 1 or None; got True."),
            ({"steps": float("nan")}, "steps must be at least 1 or None; got nan."),
            ({"steps": 2.5}, "steps must be a whole number; got 2.5."),
        ],
    )
    def test_what_is_not_is_named(self, values, message):
        with pytest.raises(ValueError, match="must be") as error:
            check_parameters(_Checked(**values))
        assert str(error.value) == message

    def test_a_subclass_may_be_stricter_and_keeps_the_rest(self):
        check_parameters(_Stricter(steps=5))
        for values, word in (
            ({"steps": None}, "at least 5"),
            ({"steps": 5, "level": 1}, "(0, 1)"),
            ({"kind": "x"}, "kind"),
        ):
            with pytest.raises(ValueError, match="must") as error:
                check_parameters(_Stricter(**values))
            assert word in str(error.value)

    def test_closed_ends_are_inside(self):
        assert Between(0, 1, closed=True).complaint(1) is None
        assert Between(0, 1).complaint(1) == "must lie in (0, 1); got 1."
        assert (
            Between(0, 1, closed=True, optional=True).complaint(2) == "must lie in [0, 1] or be None; got 2."
        )
        assert Between(0, 1, optional=True).complaint(None) is None

    def test_inherited_parameters_stand_in_the_signature(self):
        from inspect import signature

        class Parent:
            def __init__(self, *, a=1, b=2): ...

        @inherit_parameters
        class Child(Parent):
            def __init__(self, *, b=3, c=4, **shared): ...

        assert list(signature(Child).parameters) == ["b", "c", "a"]
        assert signature(Child).parameters["b"].default == 3

    @pytest.mark.parametrize("adapter", exported_classes(baselines, OpenSetAdapter).values())
    def test_constraints_name_parameters_that_exist(self, adapter):
        known = set(adapter().get_params())
        for kind in adapter.__mro__:
            assert set(vars(kind).get("parameter_constraints", ())) <= known


class TestSample:
    @given(scores, st.data())
    @examples(50)
    def test_equal_weights_are_none(self, values, data):
        plain, weighted = Sample(np.array(values)), Sample(np.array(values), np.full(len(values), 3.0))
        threshold = data.draw(st.sampled_from(values))
        assert weighted.mean == pytest.approx(plain.mean, abs=1e-12)
        assert weighted.effective_n == pytest.approx(plain.effective_n)
        assert weighted.share_at_least(threshold) == pytest.approx(plain.share_at_least(threshold))
        assert (weighted.n, weighted.lowest, weighted.highest) == (plain.n, plain.lowest, plain.highest)

    def test_by_hand(self):
        sample = Sample(np.array([0.2, 0.8]), np.array([3.0, 1.0]))
        assert sample.mean == pytest.approx(0.35)
        assert sample.effective_n == pytest.approx(1.6)
        assert sample.share_at_least(0.5) == 0.25
        assert sample.scaled(2).weights.tolist() == [6, 2]
        assert sample.scaled(2).squares.tolist() == [36, 4]
        joined = sample.joined(Sample(np.array([0.5])))
        assert joined.weights.tolist() == [3, 1, 1]
        assert joined.effective_n == pytest.approx(25 / 11)

    def test_the_highest_rows_of_rows_and_of_counts(self):
        rows = Sample(np.array([0.1, 0.9, 0.5, 0.9]))
        assert sorted(rows.highest_rows(3).scores.tolist()) == [0.5, 0.9, 0.9]
        counts = Sample(np.array([0.1, 0.5, 0.9]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]))
        best = counts.highest_rows(3)
        assert dict(zip(best.scores.tolist(), best.weights.tolist(), strict=True)) == {0.9: 2.0, 0.5: 1.0}
        # Of an entry of two rows, one.
        assert counts.highest_rows(1).weights.tolist() == [1.0]
        assert counts.highest_rows(1).squares.tolist() == [1.0]

    @given(st.lists(st.integers(0, 9).map(lambda i: i / 9), min_size=1, max_size=50))
    @examples(50)
    def test_counts_know_what_the_rows_know(self, values):
        rows, counts = Sample(np.array(values)), ScoreSummary().update(values).sample()
        assert isinstance(counts, CountedSample)
        assert counts.n == rows.n
        assert counts.mean == pytest.approx(rows.mean)
        assert counts.effective_n == pytest.approx(rows.effective_n)
        assert (counts.lowest, counts.highest) == (rows.lowest, rows.highest)
        for threshold in values:
            assert counts.share_at_least(threshold) == pytest.approx(rows.share_at_least(threshold))

    @given(st.lists(st.integers(0, 5).map(lambda i: i / 5), min_size=2, max_size=40), st.integers(0, 5))
    @examples(50)
    def test_a_resample_of_counts_has_as_many_rows_inside_the_range(self, values, seed):
        counts = ScoreSummary().update(values).sample()
        drawn = counts.resampled(np.random.default_rng(seed))
        assert drawn.n == len(values)
        assert drawn.weights.sum() == len(values)
        assert counts.lowest <= drawn.lowest <= drawn.mean <= drawn.highest <= counts.highest

    def test_thinning_out_keeps_all_or_nothing_at_the_ends(self):
        counts = ScoreSummary().update([0.1, 0.1, 0.9]).sample()
        rng = np.random.default_rng(0)
        assert counts.thinned(np.ones(2), rng).n == 3
        assert counts.thinned(np.zeros(2), rng).n == 0
        kept = counts.thinned(np.array([0.0, 1.0]), rng)
        assert (kept.n, kept.lowest, kept.mean) == (1, 0.9, 0.9)

    def test_weights_of_the_unlabelled_rows_count(self):
        """Two copies of a row are one row of weight two."""
        positive = [0.9, 0.8, 0.7, 0.6]
        copied = BBE().fit(positive, [0.9, 0.9, 0.7, 0.2, 0.2, 0.1])
        weighted = BBE().fit(positive, [0.9, 0.7, 0.2, 0.1], unlabeled_weight=[2, 1, 2, 1])
        assert weighted.alpha_ == pytest.approx(copied.alpha_)
        dropped = BBE().fit(positive, [0.9, 0.7, 0.95], unlabeled_weight=[1, 1, 0])
        assert dropped.alpha_ == BBE().fit(positive, [0.9, 0.7]).alpha_

    @pytest.mark.parametrize("bad", [[1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]])
    def test_wrong_weights_of_the_unlabelled_rows_are_named(self, bad):
        with pytest.raises(ValueError, match="unlabeled_weight"):
            BBE().fit([0.5], [0.1, 0.2], unlabeled_weight=bad)


def test_marks_are_read_by_kind():
    assert marked("class")["BBE"] is BBE
    assert "confidence" in marked("function")
    assert not set(marked("network")) & set(marked("class"))
