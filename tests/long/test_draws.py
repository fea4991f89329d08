"""What the first benchmark promises of the default recipe, on many random draws (about ten minutes)."""

from __future__ import annotations

import numpy as np
import pytest

from osls.app.bench.runner import run_study
from osls.app.bench.study import parse_study

DRAWS = 20


def results(tmp_path_factory, **options):
    data = [{"name": "digits"} | options]
    study = parse_study({"name": "draws", "data": data, "methods": ["pulse"], "draws": DRAWS})
    rows = run_study(study, tmp_path_factory.mktemp("draws"), jobs=2)
    assert [row["error"] for row in rows] == [None] * DRAWS
    return {column: np.array([row[column] for row in rows], dtype=float) for column in NUMBERS}


NUMBERS = ("acc_all", "test_acc_all", "acc_novel", "mpe_novel", "novel_estimate")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return results(tmp_path_factory)


def test_accuracy(digits):
    assert digits["acc_all"].mean() >= 0.94
    assert digits["test_acc_all"].mean() >= 0.94


def test_novel_share(digits):
    assert digits["mpe_novel"].mean() <= 0.02


def test_no_draw_misses_the_novel_class(digits):
    assert digits["acc_novel"].min() >= 0.8


def test_nothing_new(tmp_path_factory):
    assert results(tmp_path_factory, novel=0)["novel_estimate"].mean() <= 0.02


def test_one_known_class(tmp_path_factory):
    assert results(tmp_path_factory, novel=9)["mpe_novel"].mean() <= 0.03
