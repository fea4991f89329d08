from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from conftest import blobs
from osls.datasets import simulate_osls


def row_ids(n: int) -> np.ndarray:
    return np.arange(n, dtype=float)[:, None]


def test_source_fraction_is_respected():
    y = np.repeat([0, 1, 2], 1000)
    p = simulate_osls(row_ids(3000), y, novel=[2], source_fraction=(0.3, 0.4), random_state=0)
    for c in (0, 1):
        assert 300 <= np.sum(p.y_source == c) <= 400


def test_same_seed_same_problem_and_other_seed_another():
    X, y = blobs()
    one, two, three = (simulate_osls(X, y, novel=1, random_state=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(one.X_target, two.X_target)
    assert one.X_target.shape != three.X_target.shape or not np.array_equal(one.X_target, three.X_target)


def test_given_marginals_are_met():
    y = np.repeat([0, 1, 2], 2000)
    p = simulate_osls(
        row_ids(6000),
        y,
        novel=[2],
        source_marginal=[0.8, 0.2],
        target_marginal=[0.1, 0.6, 0.3],
        test_size=0,
        random_state=0,
    )
    np.testing.assert_allclose(p.source_marginal, [0.8, 0.2], atol=0.005)
    np.testing.assert_allclose(p.target_marginal, [0.1, 0.6, 0.3], atol=0.005)


@pytest.mark.parametrize("which", ["source_marginal", "target_marginal"])
def test_one_given_marginal_is_met(which):
    y = np.repeat([0, 1, 2], 2000)
    wanted = {"source_marginal": [0.9, 0.1], "target_marginal": [0.2, 0.2, 0.6]}[which]
    p = simulate_osls(row_ids(6000), y, novel=[2], test_size=0, random_state=0, **{which: wanted})
    np.testing.assert_allclose(getattr(p, which), wanted, atol=0.01)


def test_strings_sparse_and_frames():
    import pandas as pd

    X, y = blobs()
    names = np.array(["ant", "bee", "cat", "dog"])[y]
    p = simulate_osls(sparse.csr_matrix(X), names, novel=["dog"], random_state=0)
    assert p.novel_label == "novel"
    assert sparse.issparse(p.X_target)
    assert set(p.y_target) == {"ant", "bee", "cat", "novel"}
    q = simulate_osls(pd.DataFrame(X), pd.Series(names), novel=["dog"], random_state=0)
    np.testing.assert_array_equal(p.y_target, q.y_target)


def test_training_data_has_no_target_label():
    p = simulate_osls(*blobs(), random_state=0)
    assert set(p.training_data()) == {"X", "y", "X_target"}
    assert "y_target" not in repr(p)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"novel": 4}, "at least one class must stay known"),
        ({"novel": [0, 1, 2, 3]}, "names every class"),
        ({"novel": [7]}, "not a class in y"),
        ({"test_size": 1.0}, "test_size"),
        ({"source_fraction": (0, 1)}, "source_fraction"),
        ({"source_marginal": [1, 1, 1]}, "source_marginal must be 3"),
        ({"target_marginal": [0.5, 0.5]}, "target_marginal must be 4"),
        ({"novel_label": 0, "novel": [3]}, "novel_label"),
    ],
)
def test_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        simulate_osls(*blobs(), random_state=0, **options)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="3 rows but y has 2"):
        simulate_osls(np.zeros((3, 1)), [0, 1])
