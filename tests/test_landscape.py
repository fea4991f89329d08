"""The map of the rows, and the telling columns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from answers import image_answer, table_answer, text_answer
from osls.app.report.charts import MapPoint, levels_chart, map_chart, mirror_chart
from osls.app.report.landscape import MAP_COLOURS, draw_contrasts, draw_map
from osls.app.tables.pictures import PictureEncoder


@pytest.fixture(scope="module")
def table():
    return table_answer()


def groups_of(answer):
    novel = np.flatnonzero(answer.predictions["predicted"] == "novel")
    return [novel[::2], novel[1::2]]


def test_a_map_shows_rows_where_they_are_alike(table, monkeypatch):
    monkeypatch.setattr("osls.app.report.landscape._STEPS", 1000)  # as users have it
    found = draw_map(table, groups_of(table), ["pixel_3_3"], seed=0)
    chart = str(found["chart"])
    places = re.findall(r'<circle class="spot (\w+)" cx="([\d.]+)%" cy="([\d.]+)"', chart)
    assert len(places) == found["drawn"] == min(600, len(table.predictions))
    styles = np.array([style for style, _, _ in places])
    xy = np.array([[float(x), float(y)] for _, x, y in places])
    assert xy[:, 0].min() >= 0
    assert xy[:, 0].max() <= 100
    # Novel rows have more novel rows beside them than chance would put there.
    distance = np.linalg.norm(
        (xy - xy.mean(0)) / xy.std(0) - ((xy - xy.mean(0)) / xy.std(0))[:, None], axis=2
    )
    nearest = distance.argsort(axis=1)[:, 1:6]
    novel = styles == "novel"
    assert novel[nearest[novel]].mean() > 1.5 * novel.mean()
    assert re.findall(r'class="place"[^>]*>(\d)<', chart) == ["1", "2"]


def test_the_number_of_a_group_stands_at_one_of_its_rows(table):
    chart = str(draw_map(table, groups_of(table), [], seed=0)["chart"])
    spots = re.findall(r'<circle class="spot novel" cx="([\d.]+)%" cy="([\d.]+)"', chart)
    places = re.findall(r'class="place" x="([\d.]+)%" y="([\d.]+)"', chart)
    assert len(places) == 2
    # The text begins six pixels below the middle of its height.
    assert {(x, f"{float(y) - 6:.1f}") for x, y in places} <= set(spots)


def test_each_row_says_which_it_is(table):
    chart = str(draw_map(table, [], ["pixel_3_3"], seed=0)["chart"])
    tips = re.findall(r"<title>(row [^<]*)</title>", chart)
    assert len(tips) == min(600, len(table.predictions))
    row, called, value = re.fullmatch(
        r"row ([\d,]+): called (\w+), novel .*\npixel_3_3: ([\d.]+)", tips[0]
    ).groups()
    index = int(row.replace(",", "")) - 1
    assert table.predictions["predicted"].iloc[index] == called
    assert table.target_rows["pixel_3_3"].iloc[index] == float(value)


def test_many_classes_share_colours_and_few_have_their_own(table):
    legend = dict(draw_map(table, [], [], seed=0)["legend"])
    assert len(table.classes) - 1 > MAP_COLOURS
    assert legend["other"] == "other known classes"
    assert legend["novel"] == "novel"
    assert len(legend) == MAP_COLOURS + 1


def test_texts_pictures_and_single_columns_have_maps(tmp_path):
    text = draw_map(text_answer(), [], [], seed=0)
    assert "text: " in str(text["chart"])
    pictures = image_answer(tmp_path / "digits")
    assert "digit 0000.png: called " in str(draw_map(pictures, [], [], seed=0)["chart"])
    assert draw_contrasts(pictures, seed=0) == []


def test_few_rows_and_one_feature(table):
    few = replace(table, predictions=table.predictions.head(9), target_rows=table.target_rows.head(9))
    assert draw_map(few, [], [], seed=0)["chart"] is None
    one = replace(table, features_target=table.features_target[:, 20:21])
    assert draw_map(one, [], [], seed=0)["drawn"] > 0


def test_telling_columns_are_drawn_novel_against_known():
    rng = np.random.default_rng(0)
    novel = np.arange(200) < 80
    rows = pd.DataFrame(
        {
            "height": np.where(novel, 9.0, 2.0) + rng.normal(size=200),
            "noise": rng.normal(size=200),
            "colour": np.where(novel, "red", "blue"),
        }
    )
    answer = table_answer()
    predictions = answer.predictions.head(200).assign(predicted=np.where(novel, "novel", "0"))
    answer = replace(answer, predictions=predictions, target_rows=rows)
    drawn = draw_contrasts(answer, seed=0)
    assert {each["name"] for each in drawn} == {"height", "colour"}
    sentences = {each["name"]: each["sentence"] for each in drawn}
    assert sentences["height"].startswith("height is higher: ")
    assert "100% of the novel rows" not in str(drawn[0]["chart"])
    nobody = answer.predictions.assign(predicted="0")
    assert draw_contrasts(replace(answer, predictions=nobody), seed=0) == []


def test_charts_by_hand():
    # Two bins: all known rows in the first, of the novel rows one of four there and three in the second.
    chart = str(mirror_chart("t", np.zeros(4), np.array([0.0, 1, 1, 1]), bins=2, height=124))
    bars = re.findall(r'class="bar (\w+)" x="[\d.]+%" width="[\d.]+%" y="([\d.]+)" height="([\d.]+)"', chart)
    # The room is (124 - 24) / 2 for the largest share, which is 1.
    assert bars == [("known", "0.0", "50.0"), ("novel", "50.0", "12.5"), ("novel", "50.0", "37.5")]
    levels = str(levels_chart("t", [("<a>", 0.5, 0.25)]))
    assert 'width="100.00%"' in levels
    assert 'width="50.00%"' in levels
    assert "&lt;a&gt;" in levels
    dots = str(map_chart("t", [MapPoint(0, 1, "novel", "x"), MapPoint(1, 0, "k0", "y")], [], height=420))
    assert re.findall(r'spot (\w+)" cx="([\d.]+)%" cy="([\d.]+)"', dots) == [
        ("k0", "99.00", "410.0"),
        ("novel", "1.00", "10.0"),
    ]


@pytest.mark.parametrize(
    ("kind", "size", "words"),
    [
        ("png", 16, None),
        ("jpg", 16, "mostly PNG files, the new ones mostly JPEG"),
        ("png", 64, "16 x 16 pixels"),
    ],
)
def test_pictures_that_were_stored_in_other_ways_are_noted(tmp_path, kind, size, words):
    from PIL import Image

    def folder(name, suffix, side):
        paths = [tmp_path / f"{name}{i}.{suffix}" for i in range(4)]
        for path in paths:
            Image.new("RGB", (side, side)).save(path)
        return pd.DataFrame({"file": list(map(str, paths))})

    encoder = PictureEncoder(images="scratch").fit(folder("a", "png", 16), folder("b", kind, size))
    assert len(encoder.warnings_) == (words is not None)
    assert words is None or words in encoder.warnings_[0]
