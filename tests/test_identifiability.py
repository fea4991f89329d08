"""What the population determines: the paper's examples, the three sets of mixes, and their ranges."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from osls.identifiability import check, independence_gap, strictly_linearly_independent
from osls.shift.programme import largest_mix, maximal_range, mix_range

EXAMPLE_1 = (
    np.array([[0.4, 0.56], [0.3, 0.3], [0.2, 0.1], [0.1, 0.04], [0.0, 0.0]]),
    np.array([0.356, 0.207, 0.09, 0.042, 0.305]),
)
EXAMPLE_2 = (
    np.array([[0.5, 0.2], [0.3, 0.4], [0.1, 0.35], [0.1, 0.05]]),
    np.array([0.24, 0.2, 0.35, 0.21]),
)


def random_problem(seed: int):
    """Known classes, a true mix and a novel class that spares some cells: the target they add up to."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 4))
    n = int(rng.integers(k + 1, k + 5))
    classes = rng.dirichlet(np.ones(n), k).T
    if rng.random() < 0.5:  # cells that some classes never visit
        classes *= rng.random((n, k)) < 0.6
        classes[rng.integers(n, size=k), np.arange(k)] += 0.1
        classes /= classes.sum(axis=0)
    novel = rng.dirichlet(np.ones(n)) * (rng.random(n) < 0.6)
    novel[rng.integers(n)] += 0.1
    mix = rng.dirichlet(np.ones(k + 1))
    return classes, classes @ mix[:k] + mix[k] * novel / novel.sum(), mix


def vertices(rows, room):
    """Every vertex of {rows @ pi <= room}, by brute force."""
    k = rows.shape[1]
    subsets = np.array(list(combinations(range(len(rows)), k)))
    subsets = subsets[np.linalg.matrix_rank(rows[subsets], tol=1e-9) == k]
    points = np.linalg.solve(rows[subsets], room[subsets][..., None])[..., 0]
    return points[(points @ rows.T <= room + 1e-9).all(axis=1)]


def corners(classes, target):
    """Every vertex of the feasible mixes, non-negativity among the constraints."""
    k = classes.shape[1]
    return vertices(np.vstack([classes, -np.eye(k)]), np.append(target, np.zeros(k)))


def maximal(points, classes, target):
    full = points @ classes.T >= target - 1e-9
    return points[((full[:, :, None] & (classes > 0)).any(axis=1)).all(axis=1)]


class TestThePapersExamples:
    def test_example_1_has_the_papers_two_solutions(self):
        found = check(*EXAMPLE_1)
        assert found.identified is False
        assert found.weak_positivity
        assert not found.strong_positivity
        assert not found.separability
        by_subdomain = {s.subdomain: s for s in found.solutions}
        one, two = by_subdomain[(2, 3)], by_subdomain[(0, 1)]
        np.testing.assert_allclose(one.marginal, [0.3, 0.3, 0.4], atol=1e-12)
        np.testing.assert_allclose(one.novel_conditional, [0.17, 0.0675, 0, 0, 0.7625], atol=1e-12)
        np.testing.assert_allclose(two.marginal, [0.19, 0.5, 0.31], atol=1e-12)
        # The paper prints .0645 for .00645 (its five numbers sum to 1.058) and cuts .00968 to .0096.
        np.testing.assert_allclose(two.novel_conditional, [0, 0, 0.002 / 0.31, 0.003 / 0.31, 0.305 / 0.31])

    def test_example_1_has_a_third_solution_that_the_paper_does_not_list(self):
        classes, target = EXAMPLE_1
        third = {s.subdomain: s for s in check(classes, target).solutions}[(1, 2)]
        np.testing.assert_allclose(third.marginal, [0.21, 0.48, 0.31], atol=1e-12)
        # By hand: the residual 0.0032, 0, 0, 0.0018, 0.305 is non-negative, zero on x2 and x3, and their
        # rows (.3, .3) and (.2, .1) are independent.
        residual = target - classes @ [0.21, 0.48]
        np.testing.assert_allclose(residual, [0.0032, 0, 0, 0.0018, 0.305], atol=1e-12)
        assert len(check(classes, target).solutions) == 3

    def test_example_1_ranges(self):
        found = check(*EXAMPLE_1)
        assert found.novel_range == pytest.approx((0.31, 1.0))
        np.testing.assert_allclose(found.class_ranges, [[0, 0.42], [0, 0.356 / 0.56]], atol=1e-9)
        assert found.irreducible.novel == pytest.approx((0.31, 0.58))  # class 1 alone takes .42
        assert found.weak.novel == pytest.approx((0.31, 0.4))
        np.testing.assert_allclose(found.weak.classes, [[0.19, 0.3], [0.3, 0.5]], atol=1e-9)
        assert "3 different mixes" in found.reason

    def test_example_2_has_one_solution(self):
        found = check(*EXAMPLE_2)
        assert found.identified is True
        assert not found.strong_positivity
        assert not found.separability
        (only,) = found.solutions
        np.testing.assert_allclose(only.marginal, [0.4, 0.2, 0.4], atol=1e-12)
        np.testing.assert_allclose(only.novel_conditional, [0, 0, 0.6, 0.4], atol=1e-12)
        assert only.subdomain == (0, 1)
        assert found.novel_range[0] == pytest.approx(0.4)
        assert found.weak.novel == pytest.approx((0.4, 0.4))
        assert "rests on that assumption" in found.reason


class TestConditions:
    def test_strong_positivity(self):
        classes = np.array([[0.6, 0.0], [0.4, 0.4], [0.0, 0.6], [0.0, 0.0]])
        found = check(classes, classes @ [0.5, 0.2] + [0, 0.1, 0, 0.2])
        assert found.strong_positivity
        assert found.identified
        assert not found.separability
        np.testing.assert_allclose(found.solutions[0].marginal, [0.5, 0.2, 0.3])
        # Irreducibility alone is enough here.
        np.testing.assert_allclose(found.irreducible.classes, [[0.5, 0.5], [0.2, 0.2]])

    def test_separability_without_strong_positivity(self):
        found = check([[0.75, 0.25], [0.25, 0.75], [0.0, 0.0]], [0.4, 0.4, 0.2])
        assert (found.identified, found.strong_positivity, found.separability) == (True, False, True)
        np.testing.assert_allclose(found.solutions[0].marginal, [0.4, 0.4, 0.2])
        # Irreducibility alone is not: one class by itself also explains all it can.
        assert found.irreducible.novel == pytest.approx((0.2, 1 - 0.4 / 0.75))

    def test_no_novel_class(self):
        classes = np.array([[0.7, 0.2], [0.2, 0.3], [0.1, 0.5]])
        found = check(classes, classes @ [0.25, 0.75])
        assert found.identified
        assert found.separability
        assert found.solutions[0].novel_conditional is None
        assert found.solutions[0].marginal[-1] == 0
        assert found.novel_range[0] == pytest.approx(0, abs=1e-9)

    def test_dependent_classes_are_not_identified(self):
        found = check([[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]], [0.3, 0.3, 0.4])
        assert found.identified is False
        assert found.weak_positivity is False
        assert found.solutions == ()
        assert found.weak is None
        assert "linearly dependent" in found.reason
        assert found.irreducible.novel == pytest.approx((0.4, 0.4))  # their total is known all the same

    def test_all_novel_is_identified_without_weak_positivity(self):
        """The paper's remark on vertices of the simplex."""
        found = check([[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]], [0.0, 0.0, 1.0])
        assert found.identified is True
        assert found.weak_positivity is False
        assert found.novel_range == (1.0, 1.0)

    def test_no_solution_satisfies_weak_positivity(self):
        # Class 1 fills cell 0 before class 2 can reach its only other limit with class 1 present.
        found = check([[0.5, 0.4], [0.5, 0.6]], [0.1, 0.9])
        assert found.identified is False
        assert found.weak_positivity is False
        assert "No mix satisfies weak positivity" in found.reason

    def test_positive_unlabelled_learning_is_always_identified(self):
        found = check([[0.5], [0.3], [0.2]], [0.2, 0.3, 0.5])
        assert found.strong_positivity
        np.testing.assert_allclose(found.solutions[0].marginal, [0.4, 0.6])
        assert found.solutions[0].subdomain == (0,)

    def test_too_many_subsets_are_searched_not_enumerated(self):
        assert check(*EXAMPLE_2, max_subsets=1).identified is None
        assert check(*EXAMPLE_2, max_subsets=1).weak_positivity is True
        two = check(*EXAMPLE_1, max_subsets=1)
        assert two.solutions is None
        assert two.weak is None
        assert two.identified is False
        assert "at least" in two.reason

    def test_inputs_are_left_alone(self):
        classes, target = (a.copy() for a in EXAMPLE_1)
        classes[0, 0] += 1e-14
        before = classes.copy()
        check(classes, target)
        np.testing.assert_array_equal(classes, before)


class TestRangesAgreeWithEnumeration:
    def test_1000_random_problems(self):
        """Linear programme against brute force: both ends are attained, and the solutions lie between."""
        attained = 0
        for seed in range(1000):
            classes, target, truth = random_problem(seed)
            found = check(classes, target)
            points = corners(classes, target)
            assert found.novel_range[0] == pytest.approx(1 - points.sum(axis=1).max(), abs=1e-7)
            assert found.novel_range[1] == pytest.approx(1 - points.sum(axis=1).min(), abs=1e-7)
            np.testing.assert_allclose(found.class_ranges[:, 0], points.min(axis=0), atol=1e-7)
            np.testing.assert_allclose(found.class_ranges[:, 1], points.max(axis=0), atol=1e-7)
            assert found.novel_range[0] <= truth[-1] + 1e-9

            free = vertices(classes, target)
            expected = np.unique(free[(free >= -1e-9).all(axis=1)].round(6), axis=0)
            mixes = np.array([s.marginal[:-1] for s in found.solutions]).reshape(expected.shape)
            np.testing.assert_allclose(mixes[np.lexsort(mixes.round(6).T[::-1])], expected, atol=2e-6)
            if len(mixes):
                best = largest_mix(classes, target, np.ones(classes.shape[1]))
                full = classes @ best >= target - 1e-9
                if np.linalg.matrix_rank(classes[full], tol=1e-7) == classes.shape[1]:
                    # The programme's optimum is itself a solution: the smallest novel shares agree.
                    assert found.weak.novel[0] == pytest.approx(found.novel_range[0], abs=1e-7)
                    attained += 1
                assert found.weak.novel[0] >= found.novel_range[0] - 1e-7
        assert attained > 500

    @pytest.mark.parametrize("start", range(0, 1000, 100))
    def test_maximal_mixes(self, start):
        """Both ends under irreducibility, and what is one point, against brute force."""
        for seed in range(start, start + 10):
            classes, target, _ = random_problem(seed)
            points = maximal(corners(classes, target), classes, target)
            novel = 1 - points.sum(axis=1)
            found = maximal_range(classes, target)
            assert found.novel == pytest.approx((novel.min(), novel.max()), abs=1e-5)
            np.testing.assert_allclose(found.classes[:, 0], points.min(axis=0), atol=1e-5)
            np.testing.assert_allclose(found.classes[:, 1], points.max(axis=0), atol=1e-5)
            result = check(classes, target)
            for solution in result.solutions:
                assert novel.min() - 1e-7 <= solution.marginal[-1] <= novel.max() + 1e-7
            if np.ptp(points, axis=0).max() < 1e-9:
                assert result.identified

    @given(st.integers(0, 10**6))
    @settings(max_examples=50, deadline=None)
    def test_every_solution_explains_the_target(self, seed):
        classes, target, _ = random_problem(seed)
        for solution in check(classes, target).solutions:
            assert solution.marginal.sum() == pytest.approx(1)
            assert (solution.marginal >= 0).all()
            conditional = 0.0 if solution.novel_conditional is None else solution.novel_conditional
            rebuilt = classes @ solution.marginal[:-1] + solution.marginal[-1] * conditional
            np.testing.assert_allclose(rebuilt, target, atol=1e-7)
            inside = classes[list(solution.subdomain)]
            assert np.linalg.matrix_rank(inside) == classes.shape[1]

    @given(st.integers(0, 10**6), st.randoms(use_true_random=False))
    @settings(max_examples=30, deadline=None)
    def test_order_of_classes_and_cells_does_not_matter(self, seed, random):
        classes, target, _ = random_problem(seed)
        columns, rows = list(range(classes.shape[1])), list(range(len(target)))
        random.shuffle(columns)
        random.shuffle(rows)
        one, two = check(classes, target), check(classes[rows][:, columns], target[rows])
        assert one.identified == two.identified
        assert one.novel_range == pytest.approx(two.novel_range, abs=1e-7)
        np.testing.assert_allclose(one.class_ranges[columns], two.class_ranges, atol=1e-7)
        assert len(one.solutions) == len(two.solutions)


class TestSamplingSlack:
    classes = np.array([[0.8, 0.0], [0.2, 0.5], [0.0, 0.5], [0.0, 0.0]])
    target = np.array([0.32, 0.23, 0.15, 0.3])
    pure = np.array([True, False, True, False])

    def test_no_slack_in_pure_regions_gives_the_point(self):
        found = mix_range(self.classes, self.target, pure=self.pure)
        np.testing.assert_allclose(found.classes, [[0.4, 0.4], [0.3, 0.3]], atol=1e-9)
        assert found.novel == pytest.approx((0.3, 0.3))

    def test_closed_forms_are_the_programmes(self):
        for seed in range(30):
            classes, target, _ = random_problem(seed)
            high = mix_range(classes, target, slack=0.05, class_slack=0.01).classes[:, 1]
            least = np.maximum(classes - 0.01, 0)
            for j, e in enumerate(np.eye(classes.shape[1])):
                assert high[j] == pytest.approx(largest_mix(least, target + 0.05, e)[j], abs=1e-7)

    def test_simultaneous_coverage(self):
        """Hoeffding slack, all regions and both sides together: the ranges hold all at once."""
        rng, truth, m, n, misses = np.random.default_rng(0), np.array([0.4, 0.3]), 2000, 1000, 0
        slack, class_slack = (np.sqrt(np.log(2 * 12 / 0.1) / (2 * size)) for size in (m, n))
        for _ in range(40):
            target = rng.multinomial(m, self.target) / m
            classes = np.column_stack([rng.multinomial(n, column) / n for column in self.classes.T])
            found = mix_range(classes, target, slack, class_slack, self.pure)
            low, high = np.array([*found.classes, found.novel]).T
            misses += not ((low <= [*truth, 0.3]) & ([*truth, 0.3] <= high)).all()
        assert misses <= 4

    def test_regions_that_cannot_be_pure(self):
        with pytest.raises(ValueError, match="pure marks a region"):
            mix_range(self.classes, self.target, pure=np.ones(4, dtype=bool))


class TestStrictIndependence:
    x = np.linspace(-5, 6, 221)

    def normal(self, *means):
        return np.exp(-((self.x[:, None] - np.array(means)) ** 2) / 2) / np.sqrt(2 * np.pi)

    def test_normals_are_independent_until_one_is_a_mixture(self):
        weights = np.full(221, 0.05)
        pair = self.normal(0.0, 1.0)
        assert strictly_linearly_independent(self.normal(0.0, 1.0, 0.5), weights, tol=1e-3)
        mixture = np.column_stack([pair, pair @ [0.3, 0.7]])
        assert independence_gap(mixture, weights) == pytest.approx(0, abs=1e-6)
        assert not strictly_linearly_independent(mixture, weights)

    @pytest.mark.parametrize("points", [101, 1001])
    def test_a_set_of_measure_zero_counts_as_little_as_the_grid_allows(self, points):
        densities = np.ones((points, 2))
        densities[points // 2, 0] = 2
        assert independence_gap(densities, np.full(points, 1 / points)) <= 1 / points + 1e-9
        assert not strictly_linearly_independent(densities, np.full(points, 1 / points), tol=2 / points)

    def test_disjoint_classes_have_the_largest_gap_and_weights_have_a_default(self):
        disjoint = np.repeat(np.eye(2), 10, axis=0)
        assert independence_gap(disjoint) == pytest.approx(1.0)
        assert independence_gap(disjoint, np.full(20, 0.1)) == pytest.approx(1.0)
        assert independence_gap(np.zeros((3, 2))) == 0.0

    @given(hnp.arrays(float, (4, 2), elements=st.floats(0.01, 1)))
    @settings(max_examples=40, deadline=None)
    def test_two_classes_against_a_search(self, densities):
        t = np.linspace(-1, 1, 401)
        with_first = np.abs(densities[:, :1] + densities[:, 1:] * t).sum(axis=0).min()
        with_second = np.abs(densities[:, 1:] + densities[:, :1] * t).sum(axis=0).min()
        assert independence_gap(densities, np.ones(4)) == pytest.approx(
            min(with_first, with_second), abs=0.005 * 4
        )


class TestBadInput:
    good = EXAMPLE_2

    @pytest.mark.parametrize(
        ("classes", "target", "message"),
        [
            (good[0][:, 0], good[1], "p_x_given_y must be a matrix"),
            (np.empty((0, 2)), [], "p_x_given_y must be a matrix"),
            (good[0], good[1][:3], "p_target must have one entry for each of the 4 rows"),
            (good[0].T, [0.5, 0.5], "pass its transpose"),
            (2 * good[0], good[1], "every column of p_x_given_y must sum to 1"),
            (good[0], 2 * good[1], "p_target must sum to 1"),
            (-good[0], good[1], "p_x_given_y contains negative"),
            (good[0], [1.2, -0.2, 0, 0], "p_target contains negative"),
            (np.full((4, 2), np.nan), good[1], "p_x_given_y contains NaN"),
            (good[0], [np.inf, 0, 0, 0], "p_target contains NaN or infinite"),
            ([["a", "b"]], [1.0], "p_x_given_y must be a rectangular array of numbers"),
            ([[1.0, 1.0], [0.0]], [1.0, 0.0], "p_x_given_y must be a rectangular array of numbers"),
        ],
    )
    def test_check(self, classes, target, message):
        with pytest.raises(ValueError, match=message):
            check(classes, target)

    def test_densities(self):
        with pytest.raises(ValueError, match="densities must be a matrix"):
            independence_gap([1.0, 2.0])
        with pytest.raises(ValueError, match="weights must have one entry for each of the 2 points"):
            independence_gap([[1.0], [2.0]], [1.0])
        with pytest.raises(ValueError, match="weights contains negative"):
            strictly_linearly_independent([[1.0], [2.0]], [1.0, -1.0])
