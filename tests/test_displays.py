"""Plots with matplotlib: what is on them, not how they look."""

from __future__ import annotations

import sys
from copy import copy

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import osls
from conftest import FOREST
from osls import PULSE
from osls.app.displays import MixDisplay, NoveltyDisplay, TimelineDisplay, TrustDisplay
from osls.baselines import SourceOnly
from osls.monitor import Monitor
from osls.testing import blobs

FEW = {"source_classifier": FOREST, "discriminator": FOREST, "n_folds": 2, "rounds": 1, "n_bootstrap": 5}


@pytest.fixture(scope="module")
def rows():
    X, y = blobs(sizes=(60, 60, 60))
    labelled = (y < 2) & (np.arange(len(y)) % 2 == 0)
    return X[labelled], y[labelled], X[~labelled]


@pytest.fixture(scope="module")
def model(rows):
    X, y, X_target = rows
    return PULSE(random_state=0, **FEW).fit(X, y, X_target=X_target)


@pytest.fixture(scope="module")
def answer(rows):
    X, y, X_target = rows
    names = [f"x{i}" for i in range(X.shape[1])]
    source = pd.DataFrame(X, columns=names).assign(kind=np.array(["a", "b"])[y])
    return osls.adapt(source, pd.DataFrame(X_target, columns=names), label="kind", **FEW)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def widths(display: MixDisplay) -> list[float]:
    return [bar.get_width() for bar in display.ax_.patches]


def test_the_mix_of_a_model(model, rows):
    display = MixDisplay.from_estimator(model)
    before = np.bincount(rows[1]) / len(rows[1])
    np.testing.assert_allclose(widths(display), [*before, 0, *model.target_marginal_], atol=1e-6)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["0", "1", "-1"]
    assert display.figure_ is display.ax_.figure


def test_a_class_that_is_gone_has_no_share_before(model):
    model = copy(model)
    del model.marginal_interval_
    model.importance_weights_ = np.array([0.0, 2.0])
    model.target_marginal_ = np.array([0.0, 1.0, 0.0])
    model.novel_prevalence_ = 0.0
    np.testing.assert_allclose(widths(MixDisplay.from_estimator(model))[:3], [np.nan, 0.5, 0])


def test_the_mix_of_an_answer_on_given_axes(answer):
    _, ax = plt.subplots()
    display = MixDisplay.from_answer(answer, ax=ax)
    assert display.ax_ is ax
    np.testing.assert_allclose(widths(display)[3:], answer.target_share)
    assert display.plot().ax_ is not ax


def test_the_legend_hides_no_bar(answer):
    display = MixDisplay.from_answer(answer)
    display.figure_.canvas.draw()
    legend = display.ax_.get_legend().get_window_extent()
    assert legend.y0 >= display.ax_.get_window_extent().y1 - 1


@pytest.mark.parametrize("display", [MixDisplay, NoveltyDisplay, TrustDisplay])
def test_the_other_way_in_is_named(display, model, answer):
    with pytest.raises(TypeError, match="use from_answer"):
        display.from_estimator(answer)
    with pytest.raises(TypeError, match=r"this is a PULSE, .*use from_estimator"):
        display.from_answer(model)


@pytest.mark.parametrize("display", [MixDisplay, NoveltyDisplay])
@pytest.mark.parametrize("given", [PULSE(), None])
def test_what_is_not_fitted_is_named(display, given):
    with pytest.raises(TypeError, match="not a fitted adapter; fit it with X_target first"):
        display.from_estimator(given)


def test_scores_of_both_sides(model, answer, rows):
    def labels(display: NoveltyDisplay) -> list[str]:
        return [text.get_text() for text in display.ax_.get_legend().get_texts()]

    assert labels(NoveltyDisplay.from_estimator(model)) == ["target", "novel to the right"]
    assert "source" in labels(NoveltyDisplay.from_estimator(model, rows[0]))
    display = NoveltyDisplay.from_answer(answer)
    assert len(display.source) == len(answer.source_rows)
    assert len(display.target) == len(answer.predictions)


def test_checks(model, answer):
    display = TrustDisplay.from_estimator(model)
    assert len(display.ax_.get_yticklabels()) == len(model.diagnostics_.checks)
    assert model.diagnostics_.verdict.status in display.ax_.get_title(loc="left")
    TrustDisplay.from_answer(answer)
    # One check far from its limit leaves room between those that are near theirs.
    assert display.ax_.get_xscale() == "symlog"
    with pytest.raises(ValueError, match="no diagnostics"):
        TrustDisplay.from_estimator(SourceOnly())


def test_batches(model):
    def ticks(display: TimelineDisplay) -> list[str]:
        return [label.get_text() for label in display.ax_.get_xticklabels()]

    names = [str(name) for name in model.classes_]
    monitor = Monitor(model.target_marginal_, names, reference_proba=model.target_proba_)
    for day in range(3):
        monitor.update(f"day {day}", model.target_proba_)
    for place in (len(names), "-1"):
        with pytest.raises(ValueError, match=f"class_index must be a whole number from -{len(names)} to"):
            TimelineDisplay.from_monitor(monitor, class_index=place)
    display = TimelineDisplay.from_monitor(monitor)
    assert len(display.ax_.collections) == 3
    assert display.ax_.get_ylabel() == "share of -1"
    assert ticks(display) == ["day 0", "day 1", "day 2"]
    for day in range(3, 13):
        monitor.update(f"day {day}", model.target_proba_)
    assert ticks(TimelineDisplay.from_monitor(monitor)) == ["day 0", "day 3", "day 6", "day 9", "day 12"]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"osls\[plot\]"):
        MixDisplay(["a", "novel"], np.zeros(2), np.zeros(2)).plot()
