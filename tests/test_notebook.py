"""What a fitted adapter shows in a notebook."""

from __future__ import annotations

import re
from html import escape

import numpy as np
import pytest

from conftest import FOREST
from osls import PULSE
from osls._core.progress import progress_bar
from osls.baselines import SourceOnly

QUICK = {"n_folds": 2, "rounds": 1, "n_bootstrap": 5, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(120, 2)), rng.normal(size=(80, 2)) + 7])
    y = np.repeat(["<b>cold</b>", "flu"], [120, 80])
    target = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) - 9])
    return X, y, target


@pytest.fixture(scope="module")
def model(rows):
    X, y, target = rows
    pulse = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK)
    return pulse.fit(X, y, X_target=target)


def shown(model) -> str:
    return model._repr_mimebundle_()["text/html"]


def test_a_fitted_model_shows_its_answer(model):
    html = shown(model)
    assert html == model._repr_html_()
    share, low, high = re.search(r"<b>(\d+)% \((\d+) to (\d+)%\) of the target", html).groups()
    assert int(low) <= int(share) <= int(high)
    assert share == f"{100 * model.novel_prevalence_:.0f}"
    assert html.count("<tr>") == 4
    assert html.count("class='novel'") == 1
    # The share of the source, which the model does not keep, comes from the weights: 120 of 200.
    assert "<td>60.0%</td>" in html
    assert f"Verdict: {model.diagnostics_.verdict.status}." in html


def test_it_stands_for_itself(model):
    html = shown(model)
    for word in ("<script", "http", "src=", "href=", "<b>cold"):
        assert word not in html
    assert "&lt;b&gt;cold&lt;/b&gt;" in html
    # Text and paper are the notebook's, so that it is read in light and in dark.
    assert "color:inherit" in html
    assert "background:#fff" not in html


def test_before_the_fit_it_shows_the_parameters(model):
    html = shown(PULSE(n_folds=7))
    assert "osls-answer" not in html
    assert "n_folds" in html
    assert repr(model).startswith("PULSE(")


def test_without_intervals_and_diagnostics_too(rows):
    X, y, target = rows
    html = shown(SourceOnly(source_classifier=FOREST, n_folds=2, random_state=0).fit(X, y, X_target=target))
    assert "Verdict" not in html
    assert html.count("<tr>") == 4


def test_a_verdict_of_no_trust_comes_first():
    rng = np.random.default_rng(0)
    model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK)
    model.fit(rng.normal(size=(200, 2)), np.arange(200) % 2, X_target=rng.normal(size=(100, 2)))
    assert model.diagnostics_.verdict.status == "do not trust"
    html = shown(model)
    assert "<p><b>Do not trust these figures.</b></p>" in html
    reason = escape(model.diagnostics_.verdict.reasons[0])
    assert html.count(reason) == 1
    assert html.index("Do not trust") < html.index(reason) < html.index("<table")


def test_without_a_target_there_is_no_answer_to_show(rows):
    X, y, _ = rows
    with pytest.warns(UserWarning, match="X_target was not given"):
        model = PULSE(source_classifier=FOREST, discriminator=FOREST, **QUICK).fit(X, y)
    assert "osls-answer" not in shown(model)


def test_progress_is_lines_in_a_notebook_too(monkeypatch, capsys):
    # Jupyter's kernels ask every program for colours, though nobody reads the marks of a terminal there.
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("PULSE", 2, visible=True) as advance:
        advance()
        advance()
    assert [line.rpartition(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "PULSE: step 1 of 2",
        "PULSE: step 2 of 2",
    ]
