"""Batches over time: the mix, alarms that are rarely false, and a state that survives."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm
from typer.testing import CliRunner

from osls.app.cli import app
from osls.app.report.timeline import render_timeline, timeline_sentence
from osls.inference.batches import Moments, chance_of_difference, even_out
from osls.monitor import Alarm, Monitor
from osls.persist import load, save

CENTRES = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5], [3.0, 3.0]])
CLASSES = ["a", "b", "c", "novel"]
MIX = np.array([0.4, 0.25, 0.15, 0.2])


def posterior(x, mix, sharpness=1.0):
    """Probabilities under a mix; a sharpness other than one makes them wrong."""
    logits = sharpness * (-((x[:, None] - CENTRES) ** 2).sum(axis=2) / 2 + np.log(mix))
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    return proba / proba.sum(axis=1, keepdims=True)


def draw(rng, mix, n, sharpness=1.0):
    """Rows of overlapping classes, by a model that was fitted to ``MIX``."""
    x = CENTRES[rng.choice(4, n, p=mix)] + rng.normal(size=(n, 2))
    return posterior(x, MIX, sharpness)


def fitted(rng, *, sharpness=1.0, rows=800, **options):
    return Monitor(MIX, CLASSES, reference_proba=draw(rng, MIX, rows, sharpness), **options)


# -- Estimates ----------------------------------------------------------------------------------------


def test_the_mix_of_a_moved_batch_is_found():
    rng = np.random.default_rng(0)
    moved = np.array([0.2, 0.25, 0.15, 0.4])
    report = Monitor(MIX, CLASSES).update("x", draw(rng, moved, 4000))
    assert np.abs(np.array(report.share) - moved).max() < 0.03
    assert sum(report.share) == pytest.approx(1)
    assert report.novel_share == report.share[-1]


def test_intervals_cover_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(40):
        report = Monitor(MIX, CLASSES).update("x", draw(rng, MIX, 300))
        hits.append([low <= q <= high for q, (low, high) in zip(MIX, report.interval, strict=True)])
    assert 0.88 <= np.mean(hits) <= 0.99


def test_a_batch_without_a_class_leaves_room_for_it():
    report = Monitor([0.5, 0.4, 0.1], ["a", "b", "novel"]).update("x", np.eye(3)[[0, 1] * 20])
    low, high = report.interval[-1]
    assert low == 0
    assert high >= 1 - 0.025 ** (1 / 40)


def test_a_model_that_is_too_sure_gets_the_reference_back():
    rng = np.random.default_rng(2)
    proba = draw(rng, MIX, 3000, sharpness=3.0)
    assert np.abs(proba.mean(axis=0) - MIX).max() > 0.015
    weighted = proba * even_out(proba, MIX)
    weighted /= weighted.sum(axis=1, keepdims=True)
    assert weighted.mean(axis=0) == pytest.approx(MIX, abs=2e-3)


def test_a_class_that_the_model_never_sees_is_not_measured():
    monitor = Monitor([0.6, 0.4, 0.0], ["a", "b", "novel"])
    report = monitor.update("x", np.eye(3)[[0, 1, 0, 1, 0]])
    assert np.isnan(report.novel_share)
    assert report.share[:2] == pytest.approx((0.6, 0.4))
    assert monitor.to_dict()["batches"][0]["share"][2] is None
    html = render_timeline(monitor)
    assert "would not notice it coming" in html
    assert "nan" not in html.split("<main")[1]


def test_a_class_that_the_reference_does_not_have_is_drawn_without_it():
    monitor = Monitor(MIX, CLASSES)
    monitor.update("x", draw(np.random.default_rng(0), MIX, 50))
    state = monitor.to_dict()
    words = "was new in the reference"
    assert words in render_timeline(Monitor.from_dict(state))
    lines = render_timeline(Monitor.from_dict(state)).count('class="reference"')
    state["reference"]["share"][-1] = None
    html = render_timeline(Monitor.from_dict(state))
    assert words not in html
    assert html.count('class="reference"') == lines - 1


def test_a_timeline_needs_a_batch():
    with pytest.raises(ValueError, match="no batches yet; add one with update"):
        render_timeline(Monitor(MIX, CLASSES))


# -- Alarms -------------------------------------------------------------------------------------------


def test_the_chance_of_a_difference_by_hand():
    # Certain answers are coin flips: E = 10 KL(0.75 || 0.5), with 8 of 10 taken half a row back.
    flips = Moments(np.array([0.8]), np.array([0.8]), 10)
    coin = Moments(np.array([0.5]), np.array([0.5]), np.inf)
    exponent = 10 * (0.75 * np.log(1.5) + 0.25 * np.log(0.5))
    expected = 2 * norm.sf(np.sqrt(2 * exponent))
    assert chance_of_difference(flips, coin) == pytest.approx(expected)
    assert expected == pytest.approx(2 * binom.sf(7, 10, 0.5), rel=0.05)
    # Far out, and for rare classes, it is not smaller than the truth.
    for rows, hits, share in ((400, 290, 0.5), (50, 4, 0.003), (1000, 12, 0.001)):
        rare = Moments(np.array([hits / rows]), np.array([hits / rows]), rows)
        there = Moments(np.array([share]), np.array([share]), np.inf)
        assert chance_of_difference(rare, there) > 0.8 * binom.sf(hits - 1, rows, share)
    # Two samples that agree are no news, and a reference of few rows weighs less than one of many.
    assert chance_of_difference(flips, flips) == pytest.approx(1.0)
    few, many = (Moments(coin.mean, coin.square, rows) for rows in (10, 10_000))
    assert chance_of_difference(flips, few) > chance_of_difference(flips, many) > expected * 0.9


@pytest.mark.parametrize(("rows", "sharpness"), [(20, 3.0), (300, 1.0)])
def test_false_alarms_are_rare_in_fifty_batches_without_a_move(rows, sharpness):
    rng = np.random.default_rng(3)
    alarmed = 0
    for _ in range(12):
        monitor = fitted(rng, sharpness=sharpness, n_bootstrap=2)
        for i in range(50):
            monitor.update(str(i), draw(rng, MIX, rows, sharpness))
        alarmed += any(batch.alarms for batch in monitor.batches)
    assert alarmed <= 2  # 5 % of 12 runs at most, and in truth fewer


def test_rare_classes_do_not_cry_wolf():
    rng = np.random.default_rng(4)
    mix = np.array([0.7, 0.296, 0.003, 0.001])
    alarmed = 0
    for _ in range(12):
        reference = np.eye(4)[rng.choice(4, 500, p=mix)]
        monitor = Monitor(mix, CLASSES, reference_proba=reference, n_bootstrap=2)
        for i in range(50):
            monitor.update(str(i), np.eye(4)[rng.choice(4, 30, p=mix)])
        alarmed += any(batch.alarms for batch in monitor.batches)
    assert alarmed <= 2


@pytest.mark.parametrize("against", ["fit", "first"])
def test_a_sudden_move_is_found_at_once_and_named(against):
    rng = np.random.default_rng(5)
    monitor = fitted(rng, against=against)
    for i in range(10):
        assert monitor.update(str(i), draw(rng, MIX, 500)).alarms == ()
    report = monitor.update("moved", draw(rng, [0.2, 0.25, 0.15, 0.4], 500))
    found = {alarm.class_name: alarm for alarm in report.alarms if alarm.scope == "batch"}
    assert {"a", "novel"} >= set(found) >= {"novel"}
    assert found["novel"].now > found["novel"].before + 0.1


def test_an_alarm_that_is_over_is_still_told():
    rng = np.random.default_rng(5)
    monitor = fitted(rng, rows=3000)
    assert monitor.update("friday", draw(rng, [0.2, 0.25, 0.15, 0.4], 500)).alarms
    # So many rows that the two together show no move.
    assert monitor.update("monday", draw(rng, MIX, 60_000)).alarms == ()
    sentence, addition, tone = timeline_sentence(monitor)
    assert sentence.endswith("something your labels do not cover; no class has moved.")
    assert addition == "The last alarm was in friday."
    assert tone == "caution"


def test_the_first_sentence_names_what_is_new_and_the_largest_moves():
    monitor = fitted(np.random.default_rng(7), rows=3000)
    report = monitor.update("monday", draw(np.random.default_rng(8), MIX, 500))
    moves = {"a": (0.4, 0.1), "b": (0.25, 0.5), "c": (0.15, 0.2), "d": (0.05, 0.04), "novel": (0.2, 0.25)}
    alarms = tuple(Alarm(name, *move, "batch", 0.01) for name, move in moves.items())
    monitor.batches[-1] = replace(report, alarms=alarms)
    sentence, _, tone = timeline_sentence(monitor)
    assert sentence == (
        "Alarm: 'novel' went from 20% to 25%; 'a' went from 40% to 10%; 'b' went from 25% to 50%; "
        "2 other classes moved less."
    )
    assert tone == "stop"


def test_a_small_move_is_found_in_many_small_batches():
    rng = np.random.default_rng(6)
    monitor = fitted(rng, rows=3000, n_bootstrap=2)
    moved = [0.28, 0.25, 0.15, 0.32]
    reports = [monitor.update(str(i), draw(rng, moved, 120)) for i in range(30)]
    first = next(report for report in reports if report.alarms)
    assert {alarm.scope for alarm in first.alarms} == {"recent batches"}


def test_a_smaller_move_that_stays_is_found_in_all_batches_together():
    rng = np.random.default_rng(9)
    monitor = fitted(rng, rows=20_000, n_bootstrap=2)
    moved = [0.36, 0.25, 0.15, 0.24]
    reports = [monitor.update(str(i), draw(rng, moved, 60)) for i in range(128)]
    alarms = [(i, alarm.scope) for i, report in enumerate(reports, 1) for alarm in report.alarms]
    assert {scope for _, scope in alarms} >= {"last 32 batches", "all batches"}
    # These are tested at every 16th batch only.
    assert {i % 16 for i, scope in alarms if scope != "recent batches"} == {0}


def test_the_interval_of_a_batch_counts_the_uncertainty_of_the_fit():
    rng = np.random.default_rng(10)
    proba = draw(rng, MIX, 2000)
    known = Monitor(MIX, CLASSES).update("a", proba)
    wide = [[max(0.0, share - 0.2), share + 0.2] for share in MIX]
    unsure = Monitor(MIX, CLASSES, reference_interval=wide)
    report = unsure.update("a", proba)
    for (low, high), (own_low, own_high), share in zip(
        report.interval, known.interval, known.share, strict=True
    ):
        assert high - share == pytest.approx(min(np.hypot(own_high - share, 0.2), 1 - share), abs=1e-9)
        assert low <= own_low
    again = Monitor.from_dict(json.loads(json.dumps(unsure.to_dict())))
    assert again.update("b", proba).interval == unsure.update("b", proba).interval


# -- State --------------------------------------------------------------------------------------------


def test_a_monitor_goes_on_where_it_stopped():
    rng = np.random.default_rng(7)
    batches = [draw(rng, MIX if i < 4 else [0.2, 0.25, 0.15, 0.4], 300) for i in range(6)]
    whole, parts = (fitted(np.random.default_rng(0), against="first") for _ in range(2))
    for i, batch in enumerate(batches):
        whole.update(str(i), batch)
        parts.update(str(i), batch)
        parts = Monitor.from_dict(json.loads(json.dumps(parts.to_dict())))
    assert parts.to_dict() == whole.to_dict()
    assert parts.continues(whole)
    assert any(batch.alarms for batch in parts.batches)


def test_a_state_without_batches_waits_for_the_first_one():
    batch = draw(np.random.default_rng(7), MIX, 50)
    new = Monitor(MIX, CLASSES, against="first")
    parts = Monitor.from_dict(json.loads(json.dumps(new.to_dict())))
    assert parts.reference is None
    parts.update("x", batch)
    new.update("x", batch)
    assert parts.to_dict() == new.to_dict()
    with pytest.raises(ValueError, match="no reference"):
        Monitor.from_dict(parts.to_dict() | {"reference": None})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"schema": 1}, "schema 1"),
        ({"classes": ["a", "novel"]}, "one share for each"),
        ({"reference": {}}, "incomplete"),
        ({"batches": [{"name": "x"}]}, "incomplete"),
        ({"level": "high"}, "incomplete"),
        ({"reference": None}, "it has no reference"),
        ({"weight": [1, 1, 1, -1]}, "weight of the state must be numbers, at least 0, for 4 classes"),
        ({"weight": [1, 1]}, "weight of the state must be numbers, at least 0, for 4 classes"),
        ({"seed": -1}, "seed of the state must be a whole number, at least 0; it is -1"),
        ({"seed": 0.5}, "seed of the state must be a whole number, at least 0; it is 0.5"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change, match):
    state = Monitor(MIX, CLASSES).to_dict() | change
    with pytest.raises(ValueError, match=match):
        Monitor.from_dict(state)


@pytest.mark.parametrize(
    ("proba", "match"),
    [
        (np.ones((3, 2)) / 2, "4 columns"),
        (np.zeros((0, 4)), "no rows"),
        (np.full((2, 4), np.nan), "probabilities"),
        (np.full((2, 4), 0.5), "probabilities"),
        (np.array(["a", "b"]), "batch 'x' must hold probabilities, model.predict_proba"),
    ],
)
def test_what_is_no_batch_is_refused_and_not_counted(proba, match):
    monitor = Monitor(MIX, CLASSES)
    with pytest.raises(ValueError, match=match):
        monitor.update("x", proba)
    assert monitor.batches == []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"reference_marginal": [0.5, 0.6]}, "sum to 1"),
        ({"level": 1.0}, "level"),
        ({"against": "yesterday"}, "against"),
        ({"n_bootstrap": 1}, "n_bootstrap"),
        ({"reference_interval": [[0, 1]]}, r"reference_interval must have two ends .* got shape \(1, 2\)"),
        ({"reference_interval": [[0, 40], [60, 100]]}, "must be shares, from 0 to 1; got"),
        ({"seed": -1}, "seed must be a whole number, at least 0; got -1"),
    ],
)
def test_parameters_are_checked(arguments, match):
    with pytest.raises(ValueError, match=match):
        Monitor(**{"reference_marginal": [0.5, 0.5], "classes": ["a", "novel"]} | arguments)


# -- The command --------------------------------------------------------------------------------------


def people(rng, mix, n):
    """A table of three kinds of people and one that nobody labelled, apart in two of four columns."""
    y = rng.choice(4, n, p=mix)
    x = 2.2 * CENTRES[y] + rng.normal(size=(n, 2))
    frame = pd.DataFrame({"age": x[:, 0], "weight": x[:, 1], "noise": rng.normal(size=n)})
    return frame.assign(city=rng.choice(["Oslo", "Rome"], n)), y


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model that osls adapt would write, and batches: five as in the fit, two moved."""
    from osls.app.adapt import adapt

    folder = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(8)
    rows, y = people(rng, [0.4, 0.3, 0.3, 0.0], 400)
    source = rows.assign(kind=np.array(["child", "adult", "elder"])[y])
    target, _ = people(rng, MIX, 400)
    answer = adapt(
        source,
        target,
        label="kind",
        source_classifier="linear",
        discriminator="linear",
        n_folds=2,
        rounds=1,
        n_bootstrap=20,
    )
    answer.write(folder / "run")
    (folder / "batches").mkdir()
    for i in range(7):
        mix = MIX if i < 5 else [0.1, 0.25, 0.15, 0.5]
        people(rng, mix, 400)[0].to_parquet(folder / "batches" / f"week {i}.parquet")
    return folder


def monitor_command(run, tmp_path, *words):
    arguments = ["monitor", str(run / "run" / "model"), *map(str, words)]
    files = ["--state", str(tmp_path / "state.json"), "--out", str(tmp_path / "timeline.html")]
    return CliRunner().invoke(app, [*arguments, *files])


def weeks(run, *numbers):
    return [run / "batches" / f"week {i}.parquet" for i in numbers]


def test_exit_codes_and_files(run, tmp_path):
    calm = monitor_command(run, tmp_path, *weeks(run, 0, 1, 2, 3))
    assert calm.exit_code == 0, calm.output
    assert "ALARM" not in calm.output
    assert "week 3.parquet: 400 rows, novel" in calm.output
    moved = monitor_command(run, tmp_path, *weeks(run, 3, 4, 5))
    assert moved.exit_code == 3, moved.output
    assert "week 3.parquet: counted already" in moved.output
    assert "ALARM: 'novel' went from" in moved.output
    again = monitor_command(run, tmp_path, *weeks(run, 5))
    assert again.exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "state.json",
        "timeline.csv",
        "timeline.html",
        "timeline.json",
    ]
    state = json.loads((tmp_path / "state.json").read_text())
    assert [b["name"] for b in state["batches"]] == [f"week {i}.parquet" for i in range(6)]
    assert set(state["batches"][0]["origin"]) == {"name", "bytes", "sha256", "added"}
    rows = list(csv.DictReader((tmp_path / "timeline.csv").read_text().splitlines()))
    assert len(rows) == 6 * 4
    assert {row["batch"] for row in rows if row["alarm"] == "1"} == {"week 5.parquet"}
    history = json.loads((tmp_path / "timeline.json").read_text())
    assert len(history["batches"]) == 6
    html = (tmp_path / "timeline.html").read_text()
    assert '<h1 id="answer">Alarm: ' in html
    assert html.count('class="mark"') >= 2


@pytest.mark.parametrize("unwritable", ["page", "gauges", "batch"])
def test_an_alarm_outlives_an_error_after_it(run, tmp_path, unwritable):
    """A second call would skip the batch: its alarm must reach whoever reads the exit code."""
    gauges = tmp_path / "osls.prom"
    words = [*weeks(run, 0, 5), "--prometheus", gauges]
    if unwritable == "batch":
        words.insert(2, tmp_path / "nowhere.csv")
    else:
        (tmp_path / "timeline.html" if unwritable == "page" else gauges).mkdir()
    result = monitor_command(run, tmp_path, *words)
    assert result.exit_code == 3, result.output
    assert "ALARM" in result.output
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("osls: ")
    if unwritable == "page":
        assert "osls_alarm" in gauges.read_text()


def test_a_page_that_cannot_be_written_is_an_error_without_an_alarm(run, tmp_path):
    (tmp_path / "timeline.html").mkdir()
    assert monitor_command(run, tmp_path, *weeks(run, 0)).exit_code == 2


def test_a_batch_that_the_model_does_not_know_is_noted(run, tmp_path):
    rows, _ = people(np.random.default_rng(1), MIX, 400)
    rows.assign(city="Paris").to_parquet(tmp_path / "abroad.parquet")
    result = monitor_command(run, tmp_path, *weeks(run, 0), tmp_path / "abroad.parquet")
    assert result.stderr.count("Note:") == 1
    assert "abroad.parquet: 'city' is unknown to the model in 400 of 400 rows (such as 'Paris')" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # The history beside the page would take the place of the default state, monitor.json.
        (["--out", "monitor.html"], "monitor.json: would be the history beside --out (.json) and --state"),
        (["--out", "page.csv"], "page.csv: would be the page of --out and the history"),
        (["--out", "page.html", "--prometheus", "page.csv"], "page.csv: would be the history"),
        (["--out", "week.html"], "week.csv: would be overwritten, as the history beside --out (.csv) has"),
    ],
)
def test_no_file_is_written_over_another(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    people(np.random.default_rng(1), MIX, 50)[0].to_csv("week.csv", index=False)
    before = (tmp_path / "week.csv").read_bytes()
    result = CliRunner().invoke(app, ["monitor", str(run / "run"), "week.csv", *words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["week.csv"]
    assert (tmp_path / "week.csv").read_bytes() == before


def test_a_folder_is_no_state(run, tmp_path):
    words = ["monitor", run / "run", *weeks(run, 1), "--state", tmp_path, "--out", tmp_path / "timeline.html"]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 2
    assert "is a folder; name a file with --state." in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_copy_is_not_counted_twice_and_a_changed_file_is_new(run, tmp_path):
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(weeks(run, 0)[0].read_bytes())
    result = monitor_command(run, tmp_path, *weeks(run, 0), copy)
    assert "copy.parquet: counted already (as week 0.parquet)" in result.output
    copy.write_bytes(weeks(run, 1)[0].read_bytes())
    assert "copy.parquet: 400 rows" in monitor_command(run, tmp_path, copy).output


def test_bad_input_ends_with_two_and_keeps_what_was_there(run, tmp_path):
    assert monitor_command(run, tmp_path, *weeks(run, 0)).exit_code == 0
    before = (tmp_path / "state.json").read_bytes()
    empty, other, broken = (tmp_path / f"{n}.csv" for n in ("empty", "other", "broken"))
    empty.write_text("age,weight,noise,city\n")
    other.write_text("height\n1\n")
    broken.write_bytes(b"\xff\xfe\x00")
    for bad, words in (
        ("nowhere.csv", "no such file"),
        (empty, "empty.csv"),
        (other, "other.csv"),
        (broken, "broken.csv"),
    ):
        result = monitor_command(run, tmp_path, bad)
        assert result.exit_code == 2, result.output
        assert result.output.count("\n") == 1
        assert words in result.output
        assert (tmp_path / "state.json").read_bytes() == before
    assert monitor_command(run, tmp_path).exit_code == 2
    assert monitor_command(run, tmp_path, "--watch", tmp_path / "nowhere").exit_code == 2
    level = monitor_command(run, tmp_path, *weeks(run, 1), "--level", "0.9")
    assert level.exit_code == 2
    assert "another --level" in level.output
    seed = monitor_command(run, tmp_path, *weeks(run, 1), "--seed", "7")
    assert seed.exit_code == 2
    assert "was begun with --seed 0" in seed.output
    words = tmp_path / "words.csv"
    words.write_text("age,weight,noise,city\n40,70,0,Rome\nforty,70,0,Rome\n")
    wrong = monitor_command(run, tmp_path, words)
    assert "row 2 has 'forty'; correct that value or empty it." in " ".join(wrong.output.split())
    (tmp_path / "state.json").write_text("{")
    assert "state.json: cannot be read as a state" in monitor_command(run, tmp_path, *weeks(run, 1)).output
    no_model = CliRunner().invoke(app, ["monitor", str(tmp_path), str(weeks(run, 0)[0])])
    assert no_model.exit_code == 2


@pytest.mark.parametrize(
    ("state", "words"), [(None, "letters: there is no column 'age'"), ("[1]", "it is not a JSON object")]
)
def test_bad_input_at_the_start_writes_nothing(run, tmp_path, state, words):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear all")
    if state is not None:
        (tmp_path / "state.json").write_text(state)
    before = sorted(tmp_path.iterdir())
    result = monitor_command(run, tmp_path, tmp_path / "letters")
    assert result.exit_code == 2
    assert words in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_a_model_that_found_nothing_new_says_so(run, tmp_path):
    adapted = load(run / "run" / "model")
    known = adapted.adapter.target_marginal_[:-1]
    adapted.adapter.target_marginal_ = np.append(known / known.sum(), 0.0)
    save(adapted, tmp_path / "run" / "model")
    result = monitor_command(tmp_path, tmp_path, *weeks(run, 0))
    words = "week 0.parquet: 400 rows, novel share not measured (the fit found nothing new)"
    assert words in result.output
    rows = list(csv.DictReader((tmp_path / "timeline.csv").read_text().splitlines()))
    assert [row["share"] == "" for row in rows] == [False, False, False, True]


def watch(run, tmp_path, folder, condition):
    """Watch in this process; end it as a polite kill does, once the condition holds."""
    before, over = signal.getsignal(signal.SIGTERM), threading.Event()

    def stop():
        if wait_for(lambda: over.is_set() or condition()) and not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    result = monitor_command(run, tmp_path, "--watch", folder, "--every", 0.1)
    over.set()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert "Stopped." in result.output
    return result


def test_a_watch_reads_what_has_settled_and_passes_over_the_rest(run, tmp_path):
    folder, out = tmp_path / "incoming", tmp_path / "timeline.json"
    folder.mkdir()
    for name in ("new.parquet", ".hidden.parquet", "notes.md"):
        (folder / name).write_bytes(weeks(run, 0)[0].read_bytes())
    (folder / "gone.parquet").symlink_to(tmp_path / "nowhere")
    result = watch(run, tmp_path, folder, out.exists)
    assert result.exit_code == 0
    assert "new.parquet: 400 rows, novel" in result.output
    assert [batch["name"] for batch in json.loads(out.read_text())["batches"]] == ["new.parquet"]


def test_a_watch_of_nothing_writes_nothing(run, tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    before, since = signal.getsignal(signal.SIGTERM), []

    def watching():
        if signal.getsignal(signal.SIGTERM) != before:
            since.append(time.monotonic())
        return since and time.monotonic() - since[0] > 0.2

    assert watch(run, tmp_path, folder, watching).exit_code == 0
    assert list(tmp_path.iterdir()) == [folder]


def wait_for(condition, seconds=900):
    for _ in range(int(seconds / 0.05)):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_watch_can_be_killed_continued_and_ended_by_ctrl_c(run, tmp_path):
    folder, state = tmp_path / "incoming", tmp_path / "state.json"
    folder.mkdir()
    command = [sys.executable, "-m", "osls.app.cli", "monitor", str(run / "run" / "model")]
    command += ["--watch", str(folder), "--every", "0.1"]
    command += ["--state", str(state), "--out", str(tmp_path / "timeline.html")]

    def counted():
        return len(json.loads(state.read_text())["batches"]) if state.exists() else 0

    def deliver(i):
        path = weeks(run, i)[0]
        # Half of it first: a file that is still being written must not be read.
        with (folder / path.name).open("wb") as file:
            file.write(path.read_bytes()[:500])
            file.flush()
            time.sleep(0.02)
            file.write(path.read_bytes()[500:])

    (folder / "bad.csv").write_text("height\n1\n")
    os.utime(folder / "bad.csv", (0, 0))
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deliver(0)
    assert wait_for(lambda: counted() == 1)
    deliver(1)
    first.kill()
    assert "bad.csv" in first.communicate()[1]
    assert counted() in (1, 2)  # whole, whenever it was killed
    second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deliver(5)
    assert wait_for(lambda: counted() == 3)
    second.send_signal(signal.SIGINT)
    output, errors = second.communicate(timeout=900)
    assert second.returncode == 3, output + errors
    assert "Stopped." in output
    assert "Traceback" not in errors
    assert "week 5.parquet" in (tmp_path / "timeline.html").read_text()
