"""Summaries of scores: merging, storing, and estimates that agree with the exact ones."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import osls.mixture
from osls._core.names import exported_classes
from osls.mixture import BBE, ElkanNoto, MixtureEstimator, Subsample
from osls.shift.joint import solve_bins
from osls.shift.mlls import em_marginal
from osls.streaming import ProbabilitySummary, ScoreSummary, estimate_mix, estimate_share, merge_all
from osls.streaming.counts import keys_of, scores_of
from osls.streaming.probabilities import calibrate, draw_sample

# Every mixture estimator that the package exports, and the other forms of Elkan and Noto's.
ESTIMATORS = {
    **{name: each() for name, each in exported_classes(osls.mixture, MixtureEstimator).items()},
    "mean": ElkanNoto("mean"),
    "max": ElkanNoto("max"),
    "quantile": ElkanNoto("max", quantile=0.95),
}
every = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)

score_lists = st.lists(st.floats(0, 1), min_size=1, max_size=60)
# Among them scores that crowd at the ends, as those of confident models do.
scores = st.one_of(
    score_lists,
    score_lists.map(lambda s: (1 - np.array(s) * 1e-6).tolist()),
    st.lists(st.integers(0, 40).map(lambda i: i / 40), min_size=1, max_size=60),
)
# Shapes of score distributions: (a, b) of the positives and of the negatives.
SHAPES = {"smooth": (6, 2, 1, 6), "confident": (0.3, 0.05, 0.05, 0.3), "saturated": (30, 0.02, 0.02, 1)}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def mixture(seed, n, m, alpha, shape):
    rng = np.random.default_rng(seed)
    a_p, b_p, a_n, b_n = shape
    k = round(alpha * m)
    return rng.beta(a_p, b_p, n), np.r_[rng.beta(a_p, b_p, k), rng.beta(a_n, b_n, m - k)]


def summary(values, weight=None, capacity=1 << 14):
    return ScoreSummary(capacity).update(values, weight)


class TestKeys:
    @given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
    def test_are_in_the_order_of_the_scores_and_can_be_inverted(self, values):
        rising = np.unique(values)
        keys = keys_of(rising)
        assert (np.diff(keys) > 0).all()
        np.testing.assert_array_equal(scores_of(keys), rising)

    def test_minus_zero_is_zero(self):
        assert keys_of(np.array([-0.0])) == keys_of(np.array([0.0]))


class TestMerging:
    @settings(max_examples=60, deadline=None)
    @given(
        parts=st.lists(score_lists, min_size=1, max_size=6),
        capacity=st.integers(2, 40),
        random=st.randoms(use_true_random=False),
    )
    def test_neither_partition_nor_order_matters(self, parts, capacity, random):
        whole = summary(np.concatenate(parts), capacity=capacity)
        assert len(whole.counts.number) <= capacity
        pieces = [summary(part, capacity=capacity) for part in parts]
        random.shuffle(pieces)
        while len(pieces) > 1:  # any grouping, too
            i = random.randrange(len(pieces) - 1)
            pieces[i : i + 2] = [merge_all(pieces[i : i + 2])]
        assert pieces[0] == whole
        np.testing.assert_array_equal(pieces[0].counts.mass, whole.counts.mass)
        in_steps = ScoreSummary(capacity)
        for part in parts:
            in_steps.update(part)
        assert in_steps == whole

    @settings(max_examples=30, deadline=None)
    @given(values=score_lists, capacity=st.integers(2, 20), seed=st.integers(0, 99))
    def test_weights_are_merged_up_to_rounding(self, values, capacity, seed):
        rng = np.random.default_rng(seed)
        weight = np.where(rng.random(len(values)) < 0.2, 0.0, rng.random(len(values)))
        whole = summary(values, weight, capacity)
        cut = len(values) // 2
        parts = [summary(values[:cut], weight[:cut], capacity), summary(values[cut:], weight[cut:], capacity)]
        merged = merge_all(parts)
        assert merged == whole
        assert merged.n == np.count_nonzero(weight)
        if merged.n:
            assert merged.mean == pytest.approx(np.average(values, weights=weight))
            assert merged.effective_n == pytest.approx(weight.sum() ** 2 / np.square(weight).sum())

    def test_counts_are_exact_at_the_edges_of_cells(self):
        values = np.random.default_rng(0).beta(2, 0.1, 5000)
        coarse = summary(values, capacity=64)
        assert 16 < len(coarse.counts.number) <= 64
        for edge in coarse.counts.lower_edge:
            assert coarse.sample().share_at_least(edge) == pytest.approx(np.mean(values >= edge))
        assert coarse.mean == pytest.approx(values.mean())
        assert coarse.range == (values.min(), values.max())

    def test_resolution_is_relative_at_both_ends(self):
        near = 10.0 ** -np.arange(3, 12)
        crowd = np.concatenate([np.random.default_rng(0).random(50_000), near, 1 - near])
        cells = summary(crowd).counts
        at = np.searchsorted(cells.number, keys_of(np.concatenate([near, 1 - near])) >> cells.level)
        assert len(np.unique(at)) == 2 * len(near)

    def test_merging_leaves_the_parts_alone_and_differing_parts_are_refused(self):
        one, other = summary([0.1, 0.2]), summary([0.3])
        assert merge_all([one, other]).n == 3
        assert (one.n, other.n) == (2, 1)
        with pytest.raises(ValueError, match="capacity 16384 and 8"):
            one.merge(summary([0.1], capacity=8))
        with pytest.raises(TypeError, match="can only merge a ScoreSummary; got int"):
            one.merge(3)
        with pytest.raises(ValueError, match="summaries is empty"):
            merge_all([])
        assert one != 3


class TestStoring:
    @settings(max_examples=30, deadline=None)
    @given(values=score_lists, capacity=st.integers(2, 30), weighted=st.booleans())
    def test_bytes_restore_everything(self, values, capacity, weighted):
        stored = summary(values, np.arange(len(values)) + 1.0 if weighted else None, capacity)
        restored = ScoreSummary.from_bytes(stored.to_bytes())
        assert restored == stored
        assert restored.to_bytes() == stored.to_bytes()
        assert restored.update([0.5]) == merge_all([stored, summary([0.5], capacity=capacity)])

    def test_an_empty_summary_and_another_kind_of_summary(self):
        assert ScoreSummary.from_bytes(ScoreSummary().to_bytes()) == ScoreSummary()
        with pytest.raises(ValueError, match=r"not a stored summary: expected the format 'osls.ScoreSummary"):
            ScoreSummary.from_bytes(ProbabilitySummary(2).to_bytes())
        for data in (b"", b"a page", ScoreSummary().to_bytes()[:-9]):
            with pytest.raises(ValueError, match="not a stored summary, or one that was cut short"):
                ScoreSummary.from_bytes(data)
        assert ScoreSummary().sample().scores.tolist() == []
        assert ScoreSummary().update([]) == ScoreSummary()

    def test_size(self):
        filled = summary(np.random.default_rng(0).random(300_000))
        assert len(filled.to_bytes()) < 300_000


class TestShare:
    @every
    @settings(max_examples=40, deadline=None)
    @given(positive=scores, unlabeled=scores)
    def test_few_scores_are_estimated_as_if_they_were_there(self, estimator, positive, unlabeled):
        share = estimate_share(summary(positive), summary(unlabeled), estimator, n_boot=0)
        exact = estimator.fit(positive, unlabeled)
        assert share.alpha == pytest.approx(exact.alpha_, abs=1e-9)
        if isinstance(estimator, BBE):
            assert share.threshold == pytest.approx(exact.threshold_, abs=0)

    @every
    @shapes
    @pytest.mark.parametrize("alpha", [0.1, 0.7])
    def test_many_scores_in_parts_agree_with_the_exact_estimate(self, estimator, shape, alpha):
        positive, unlabeled = mixture(3, 60_000, 100_000, alpha, shape)
        parts = [summary(part) for part in np.array_split(np.random.default_rng(0).permutation(unlabeled), 7)]
        share = estimate_share(summary(positive), merge_all(parts), estimator, n_boot=0)
        assert share.alpha == pytest.approx(estimator.fit(positive, unlabeled).alpha_, abs=0.002)

    # A quantile below 1 counts rows by their weight, as the docstring says.
    @pytest.mark.parametrize("estimator", [e for name, e in ESTIMATORS.items() if name != "quantile"])
    @shapes
    def test_weighted_positives_agree_too(self, estimator, shape):
        positive, unlabeled = mixture(4, 40_000, 50_000, 0.4, shape)
        weight = np.random.default_rng(0).gamma(1, size=len(positive))
        share = estimate_share(summary(positive, weight), summary(unlabeled), estimator, n_boot=0)
        assert share.alpha == pytest.approx(estimator.fit(positive, unlabeled, weight).alpha_, abs=0.002)

    def test_rows_are_thinned_out_from_counts_as_well(self):
        """A ceiling on the posterior helps a summary as it helps the scores, up to the noise of the draw."""
        rng = np.random.default_rng(0)
        positive, unlabeled = rng.random(20_000), np.r_[rng.random(15_000), np.zeros(5000)]  # half positive
        half = Subsample(lambda score: np.where(score > 0.5, 2 / 3, 1.0), n_draws=3)
        for counts in (summary(unlabeled), summary(unlabeled, capacity=512)):
            share = estimate_share(summary(positive), counts, half, n_boot=0).alpha
            assert share == pytest.approx(half.fit(positive, unlabeled).alpha_, abs=0.02)
            assert share == pytest.approx(0.5, abs=0.03)

    def test_classes_can_be_weighted(self):
        rng = np.random.default_rng(0)
        classes = [rng.beta(6, 2, 20_000), rng.beta(20, 2, 5000)]
        unlabeled = np.r_[rng.beta(6, 2, 3000), rng.beta(20, 2, 9000), rng.beta(1, 6, 8000)]
        factor = [0.25 / 20_000, 0.75 / 5000]
        joined = merge_all(summary(c, np.full(len(c), f)) for c, f in zip(classes, factor, strict=True))
        exact = BBE().fit(np.concatenate(classes), unlabeled, np.repeat(factor, [20_000, 5000])).alpha_
        assert estimate_share(joined, summary(unlabeled), n_boot=0).alpha == pytest.approx(exact, abs=0.002)
        assert exact == pytest.approx(0.6, abs=0.03)

    @every
    def test_interval_is_about_that_of_the_scores(self, estimator):
        positive, unlabeled = mixture(5, 3000, 4000, 0.4, SHAPES["smooth"])
        share = estimate_share(summary(positive), summary(unlabeled), estimator, n_boot=200)
        low, high = estimator.fit(positive, unlabeled).interval(n_boot=200)
        assert share.interval is not None
        assert share.interval[0] <= share.alpha <= share.interval[1]
        assert share.interval[1] - share.interval[0] == pytest.approx(high - low, rel=0.5)

    def test_interval_of_weighted_scores_is_wider(self):
        positive, unlabeled = mixture(5, 2000, 20_000, 0.4, SHAPES["smooth"])
        heavy = np.random.default_rng(0).pareto(1.5, len(positive)) + 0.1
        plain, weighted = (
            estimate_share(summary(positive, w), summary(unlabeled), ElkanNoto(), n_boot=80).interval
            for w in (None, heavy)
        )
        assert np.diff(weighted) > 1.3 * np.diff(plain)

    def test_covers_the_truth_about_as_often_as_it_says(self):
        hits = 0
        for seed in range(40):
            rng = np.random.default_rng(seed)
            positive = 0.7 + rng.uniform(-0.02, 0.02, 300)
            unlabeled = np.r_[0.7 + rng.uniform(-0.02, 0.02, 120), np.zeros(180)]
            low, high = estimate_share(summary(positive), summary(unlabeled), n_boot=60).interval
            hits += low <= 0.4 <= high
        assert hits >= 36

    @every
    def test_little_is_known_from_little(self, estimator):
        low, high = estimate_share(summary([0.9, 0.8]), summary([0.9, 0.2]), estimator, n_boot=20).interval
        assert high - low > 0.5
        constant = estimate_share(summary(np.full(50, 0.5)), summary(np.full(60, 0.5)), estimator, n_boot=5)
        assert constant.interval == (0.0, 1.0)

    def test_mistakes_are_named(self):
        some = summary([0.5, 0.6])
        with pytest.raises(ValueError, match="unlabeled has seen no score"):
            estimate_share(some, ScoreSummary())
        with pytest.raises(ValueError, match="form must be"):
            estimate_share(some, some, ElkanNoto("e4"))
        with pytest.raises(ValueError, match="level"):
            estimate_share(some, some, level=1)
        with pytest.raises(ValueError, match="n_boot"):
            estimate_share(some, some, n_boot=-1)
        with pytest.raises(ValueError, match=r"scores must be probabilities in \[0, 1\]"):
            summary([1.5])
        with pytest.raises(ValueError, match="scores contains NaN"):
            summary([np.nan])
        with pytest.raises(ValueError, match="one entry for each of the 2 scores"):
            summary([0.1, 0.2], [1.0])
        with pytest.raises(ValueError, match="non-negative"):
            summary([0.1], [-1.0])
        with pytest.raises(ValueError, match="capacity"):
            ScoreSummary(1)


def gaussian_classes(seed, n, k, separation, mix=None):
    """Posteriors under an even mix, of rows drawn with another mix, and that mix and the classes."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(k, 4)) * separation
    mix = rng.dirichlet(np.ones(k)) if mix is None else mix
    y = rng.choice(k, n, p=mix)
    x = centre[y] + rng.normal(size=(n, 4))
    logits = x @ centre.T - np.square(centre).sum(axis=1) / 2
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    return proba / proba.sum(axis=1, keepdims=True), mix, y


class TestMix:
    @pytest.mark.parametrize("separation", [0.8, 2.0])
    @pytest.mark.parametrize("k", [3, 6])
    def test_em_in_one_pass_agrees_with_em_on_all_rows(self, k, separation):
        proba, mix, _ = gaussian_classes(k, 100_000, k, separation)
        even = np.full(k, 1 / k)
        parts = [ProbabilitySummary(k).update(part) for part in np.array_split(proba, 5)]
        found = estimate_mix(merge_all(parts), prior=even)
        exact, _ = em_marginal(proba / even, even, 1e-7, 2000)
        np.testing.assert_allclose(found.marginal, exact, atol=0.002)
        assert found.method == "em"
        wide = found.interval[:, 1] - found.interval[:, 0]
        assert (np.abs(found.marginal - mix) < 2 * wide).all()
        few = estimate_mix(ProbabilitySummary(k).update(proba[:5000]), prior=even)
        exact, _ = em_marginal(proba[:5000] / even, even, 1e-7, 2000)
        np.testing.assert_allclose(few.marginal, exact, atol=1e-5)

    def test_em_interval_covers(self):
        hits = 0
        for seed in range(40):
            proba, mix, _ = gaussian_classes(seed, 2000, 3, 1.0, np.array([0.5, 0.3, 0.2]))
            interval = estimate_mix(ProbabilitySummary(3).update(proba), prior=np.full(3, 1 / 3)).interval
            hits += np.sum((interval[:, 0] <= mix) & (mix <= interval[:, 1]))
        assert hits >= 105  # of 120; 114 expected

    def test_bins_are_those_of_the_exact_steps(self):
        proba, mix, y = gaussian_classes(1, 12_000, 4, 2.0)
        source, y_source = gaussian_classes(1, 8000, 4, 2.0, np.full(4, 0.25))[::2]
        reference = [ProbabilitySummary(4).update(source[y_source == j]) for j in range(3)]
        target = ProbabilitySummary(4).update(proba)
        found = estimate_mix(target, reference=reference, n_boot=20)
        assert found.method == "bins"
        # The same by hand, on the rows.
        known = y_source < 3
        source, y_source = source[known], y_source[known]
        fits = [BBE().fit(source[y_source == j, j], proba[:, j]) for j in range(3)]
        inside = np.column_stack([source[:, j] >= fits[j].threshold_ for j in range(3)])
        counts = np.stack([inside[y_source == j].sum(axis=0) for j in range(3)], axis=1)
        start = np.array([fit.alpha_ for fit in fits])
        target_counts = np.array([(proba[:, j] >= fits[j].threshold_).sum() for j in range(3)])
        sizes = np.bincount(y_source)
        shares = solve_bins(counts, sizes, target_counts, len(proba), start=start)
        shares /= shares.sum()
        alpha = BBE().fit(1 - source[:, 3], 1 - proba[:, 3], (shares / sizes)[y_source]).alpha_
        np.testing.assert_allclose(found.marginal, np.append(alpha * shares, 1 - alpha), atol=0.002)
        np.testing.assert_allclose(found.marginal, mix, atol=0.05)
        assert np.mean(y == 3) == pytest.approx(found.novel_share, abs=0.05)

    def test_mean_probabilities(self):
        proba, *_ = gaussian_classes(0, 4000, 3, 1.0)
        found = estimate_mix(ProbabilitySummary(3).update(proba))
        assert found.method == "mean"
        np.testing.assert_allclose(found.marginal, proba.mean(axis=0))
        error = 1.96 * proba.std(axis=0) / np.sqrt(4000)
        np.testing.assert_allclose(found.interval[:, 1] - found.marginal, error, rtol=1e-3)
        assert found.novel_interval == tuple(found.interval[-1])

    def test_a_class_that_the_model_never_saw_stays_absent(self):
        proba = np.column_stack([gaussian_classes(0, 500, 2, 1.0)[0], np.zeros(500)])
        found = estimate_mix(ProbabilitySummary(3).update(proba), prior=[0.5, 0.5, 0.0])
        assert found.novel_share == 0.0
        assert np.isfinite(found.interval).all()

    def test_merged_in_any_order_and_restored(self):
        proba, *_ = gaussian_classes(2, 90_000, 3, 1.0)
        parts = [ProbabilitySummary(3).update(part) for part in np.array_split(proba, 3)]
        one, other = merge_all(parts), merge_all(parts[::-1])
        np.testing.assert_array_equal(one.sample.rows, other.sample.rows)
        assert all(a == b for a, b in zip(one.columns, other.columns, strict=True))
        restored = ProbabilitySummary.from_bytes(one.to_bytes())
        assert restored.to_bytes() == one.to_bytes()
        assert len(one.sample.rows) == 65_536
        assert [part.n for part in parts] == [30_000] * 3

    def test_no_rows_change_nothing_and_foreign_bytes_are_refused(self):
        some = ProbabilitySummary(2).update([[0.2, 0.8]])
        before = some.to_bytes()
        assert some.update(np.empty((0, 2))).to_bytes() == before
        foreign = io.BytesIO()
        np.savez(foreign, head=np.frombuffer(b'{"format": "other"}', np.uint8))
        with pytest.raises(ValueError, match=r"expected the format .osls.ProbabilitySummary"):
            ProbabilitySummary.from_bytes(zlib.compress(foreign.getvalue()))

    @pytest.mark.parametrize(
        ("rows", "mix"),
        [([0] * 30 + [2] * 10, [0.75, 0.0, 0.25]), ([2] * 40, [0.0, 0.0, 1.0])],
        ids=["one absent", "all absent"],
    )
    def test_bins_of_classes_that_are_absent(self, rows, mix):
        reference = [ProbabilitySummary(3).update(np.eye(3)[[j] * 30]) for j in range(2)]
        target = ProbabilitySummary(3).update(np.eye(3)[rows])
        found = estimate_mix(target, reference=reference, n_boot=5)
        np.testing.assert_allclose(found.marginal, mix, atol=1e-6)

    @pytest.mark.parametrize("k", [3, 41])
    def test_a_weighted_sample_has_the_means_of_all_rows(self, k):
        rows = np.random.default_rng(0).dirichlet(np.ones(k), 2000)
        sample = draw_sample(rows, 500, 0)
        weights = calibrate(sample, 2000, rows.mean(axis=0), rows.T @ rows / 2000).weights
        kept = sample.rows.astype(float)
        np.testing.assert_allclose(weights @ kept / 500, rows.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(weights @ kept**2 / 500, (rows**2).mean(axis=0), rtol=1e-5)

    def test_a_sample_is_not_swayed_by_repeated_rows(self):
        rows = np.array([[0.9, 0.1], [0.1, 0.9]])[np.random.default_rng(0).integers(2, size=200_000)]
        kept = ProbabilitySummary(2).update(rows).sample.rows
        assert kept[:, 0].mean() == pytest.approx(rows[:, 0].mean(), abs=0.01)

    def test_mistakes_are_named(self):
        some = ProbabilitySummary(3).update([[0.2, 0.3, 0.5]])
        with pytest.raises(ValueError, match="target has seen no rows"):
            estimate_mix(ProbabilitySummary(3))
        with pytest.raises(ValueError, match="'em' needs prior="):
            estimate_mix(some, method="em")
        with pytest.raises(ValueError, match="prior must hold 3"):
            estimate_mix(some, prior=[0.5, 0.5])
        with pytest.raises(ValueError, match="prior gives class 2 no share, but rows have a probability"):
            estimate_mix(some, prior=[0.5, 0.5, 0.0])
        with pytest.raises(ValueError, match="'bins' needs reference="):
            estimate_mix(some, method="bins")
        with pytest.raises(ValueError, match="reference must be 2 summaries of 3 classes"):
            estimate_mix(some, reference=[some])
        with pytest.raises(ValueError, match="reference has no row of class 1"):
            estimate_mix(some, reference=[some, ProbabilitySummary(3)])
        with pytest.raises(ValueError, match="method must be"):
            estimate_mix(some, method="guess")
        with pytest.raises(ValueError, match="n_boot"):
            estimate_mix(some, n_boot=1)
        with pytest.raises(ValueError, match="summary has 3"):
            some.update([[0.5, 0.5]])
        with pytest.raises(ValueError, match="3 and 2 classes"):
            some.merge(ProbabilitySummary(2))
        with pytest.raises(TypeError, match="can only merge a ProbabilitySummary"):
            some.merge(3)
        with pytest.raises(ValueError, match="n_classes"):
            ProbabilitySummary(1)
