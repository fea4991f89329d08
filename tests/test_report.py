"""The report: its sentences, its groups, and a page that is whole, safe and readable."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from answers import checks, image_answer, table_answer, text_answer, text_corpus
from osls.app.report.adaptation import Truth, describe_checks, describe_verdict, draw_curves, render_report
from osls.app.report.charts import Curve, ShareRow, axis_end, curve_chart, share_chart
from osls.app.report.groups import examples, find_groups, most_novel, thumbnail_uri
from osls.app.report.traits import apart_from_each_other, telling_words, text_column, traits_of
from osls.app.report.wording import (
    headline,
    history_words,
    number,
    percent,
    percent_range,
    shown,
    verdict_beside_headline,
)
from osls.inference.diagnostics import Check, Diagnostics
from osls.inference.discovery import Discovery

NO_GROUPS = Discovery((), np.empty(0, dtype=np.int64), np.empty((0, 0)))


@pytest.fixture(scope="module")
def table():
    return table_answer()


@pytest.fixture(scope="module")
def text():
    return text_answer()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return image_answer(tmp_path_factory.mktemp("digits"))


def plain(words: str) -> str:
    return str(words).replace("\u00a0", " ")


# -- Words --------------------------------------------------------------------------------------------


def mixed(table, *, before, now, low_high, p_value=0.002, classes=("flu", "pneumonia", "novel"), **changes):
    return replace(
        table,
        classes=classes,
        source_share=np.array(before),
        target_share=np.array(now),
        interval=np.array(low_high),
        novelty_pvalue=p_value,
        **changes,
    )


def test_the_answer_in_a_sentence(table):
    answer = mixed(
        table,
        before=[0.88, 0.12, 0],
        now=[0.46, 0.31, 0.23],
        low_high=[[0.40, 0.52], [0.27, 0.35], [0.19, 0.27]],
    )
    assert plain(headline(answer)) == (
        "23% (19 to 27%) of the new data is something your labels do not cover; 'flu' went from 88% to 46%."
    )
    assert headline(answer).tone == "new"


def test_nothing_new_says_what_could_have_been_missed(table):
    answer = mixed(
        table,
        before=[0.5, 0.5, 0],
        now=[0.52, 0.48, 0],
        low_high=[[0.4, 0.6], [0.4, 0.6], [0, 0.042]],
        p_value=0.43,
    )
    detectable = plain(percent(answer.model.detectable_share_))
    assert plain(headline(answer)) == (
        "Nothing new was found (p = 0.43); the known classes kept their proportions, as far as this data can "
        f"tell. {detectable} of a new kind would have been found. A new kind that makes up to 4.2% of the "
        "data could have been missed."
    )


def test_wide_intervals_and_weak_evidence_are_hedged(table):
    wide = mixed(
        table, before=[0.5, 0.5, 0], now=[0.4, 0.4, 0.2], low_high=[[0.2, 0.6], [0.2, 0.6], [0.05, 0.41]]
    )
    assert plain(headline(wide)).startswith("Roughly 20% (5 to 41%) of the new data")
    assert headline(wide).tone == "caution"
    weak = mixed(
        table,
        before=[0.5, 0.5, 0],
        now=[0.48, 0.48, 0.04],
        low_high=[[0.4, 0.6], [0.4, 0.6], [0.0, 0.08]],
        p_value=0.2,
    )
    assert "cannot be ruled out (p = 0.20)" in plain(headline(weak))


def test_a_class_is_said_to_move_only_beyond_what_the_novel_part_takes_from_all(table):
    diluted = mixed(
        table, before=[0.5, 0.5, 0], now=[0.25, 0.25, 0.5], low_high=[[0.2, 0.3], [0.2, 0.3], [0.45, 0.55]]
    )
    assert "kept their proportions" in plain(headline(diluted))


@pytest.mark.parametrize(
    ("status", "start", "tone"),
    [
        ("upper bound only", "23% (19 to 27%) of the new data is something", "new"),
        ("not identified", "23% (19 to 27%) of the new data is something", "caution"),
        ("do not trust", "Do not trust these figures: the purest bin is nearly empty.", "stop"),
    ],
)
def test_a_bad_verdict_comes_first(table, status, start, tone):
    answer = mixed(
        table,
        before=[0.88, 0.12, 0],
        now=[0.46, 0.31, 0.23],
        low_high=[[0.40, 0.52], [0.27, 0.35], [0.19, 0.27]],
        diagnostics=checks(status),
    )
    assert plain(headline(answer)).startswith(start)
    assert headline(answer).tone == tone
    large, rest = headline(answer).in_two()
    assert f"{large} {rest}".strip().replace("figures. The", "figures: the") == str(headline(answer))
    assert (large == "Do not trust these figures.") == (tone == "stop")


def test_what_is_not_identified_may_be_off_in_either_direction(table):
    """A part of a known class that became rare makes the share too high, an overlap makes it too low."""
    answer = mixed(
        table,
        before=[0.6, 0.4, 0],
        now=[0.5, 0.4, 0.1],
        low_high=[[0.4, 0.7], [0.3, 0.5], [0.05, 0.2]],
        diagnostics=checks("not identified"),
    )
    assert plain(headline(answer)).endswith("the shares may be too high or too low.")
    assert "at least" not in plain(headline(answer)).lower()
    found = describe_verdict(answer)
    assert found["badge"] == "Not identified"
    assert found["reasons"]


def test_an_absent_class_bounds_its_own_share_alone(table):
    absent = Check("every class present", 0.0, 0.01, False, "'b' may be gone.", "upper bound only")
    found = describe_verdict(replace(table, diagnostics=Diagnostics((absent,), {})))
    said = "The share of a known class is an upper bound. Nothing speaks against the others."
    assert found["words"] == said
    assert found["reasons"] == ("'b' may be gone.",)


def test_reasons_that_the_headline_gives_are_not_given_again(table):
    weak = Check("a", 1, 0, False, "Some rows overlap.", "not identified")
    bad = Check("b", 1, 0, False, "Classes have changed.", "do not trust")
    for failed in ((weak,), (weak, bad)):
        answer = replace(table, diagnostics=Diagnostics(failed))
        said = f"{headline(answer)}\n{verdict_beside_headline(answer)}"
        assert [said.lower().count(check.message.lower()) for check in failed] == [1] * len(failed)
    assert said.endswith("Verdict: do not trust")
    assert verdict_beside_headline(replace(table, diagnostics=None)) == ""


def test_a_curve_without_a_single_figure_is_not_drawn(table):
    x = np.linspace(0, 1, 5)
    curves = {"top bin": (x, x), "empty": (x, np.full(5, np.nan))}
    drawn = draw_curves(replace(table, diagnostics=replace(table.diagnostics, curves=curves)))
    assert [curve["name"] for curve in drawn] == ["Top bin"]


def test_figures_are_rounded_for_people():
    assert [plain(percent(v)) for v in (0, 1, 0.0996, 0.994, 0.9951)] == [
        "0%",
        "100%",
        "10%",
        "99.4%",
        "99.5%",
    ]
    assert plain(percent_range(0.0002, 0.031)) == "0 to 3.1%"
    assert plain(percent_range(0.231, 0.2312)) == "23%"
    assert [number(v) for v in (-3.0, 12345.6, 0.00001, 2e12)] == ["-3", "12,346", "1e-05", "2e+12"]
    assert [number(v) for v in (np.inf, np.nan)] == ["infinite", "no number"]
    assert shown("a\u202e<b>\x00\ud800\n c", 80) == "a <b> c"
    assert shown("x" * 100, 10) == "x" * 9 + "\u2026"
    assert shown("\U0001f468\u200d\U0001f469") == "\U0001f468\u200d\U0001f469"


def test_every_step_of_a_fit_has_a_sentence(table):
    sentences = " ".join(history_words([*table.model.history_, {"step": "em", "rho_s": 0.5, "note": "<b>"}]))
    for words in ("is right on", "leave unexplained", "Round 1 of separating", "Em: rho_s 0.5, note <b>."):
        assert words in plain(sentences)


# -- Groups -------------------------------------------------------------------------------------------


def test_groups_are_those_of_the_model(text):
    groups, found = find_groups(text), text.model.discover().groups
    assert [g.rows.tolist() for g in groups] == [g.rows.tolist() for g in found]
    assert [(g.share, g.interval) for g in groups] == [(g.share, g.interval) for g in found]
    assert sum(g.share for g in groups) == pytest.approx(text.model.novel_prevalence_)


def test_novel_texts_fall_into_groups_with_words_a_person_recognises(text):
    groups = find_groups(text)
    assert len(groups) == 2
    first = [set(g.traits[0].words) for g in groups]
    assert any({"telescope", "orbit", "lunar"} <= words for words in first)
    assert any({"compost", "tulip", "mulch"} <= words for words in first)
    assert sum(len(g.rows) for g in groups) == (text.predictions["predicted"] == "novel").sum()


def test_words_of_letters_numbers_and_headers_are_left_out():
    rng = np.random.default_rng(0)
    head = "From: someone@example.edu (Some One)\nOrganization: The University\nSubject: a {}\nLines: 12\n\n"
    space = [head.format("galaxy") + t + " 1993 see http://a.b/c" for t in text_corpus(rng, "astronomy", 40)]
    words = telling_words([space], text_corpus(rng, "chess", 40))[0]
    assert "galaxy" in words
    assert not set(words) & {"edu", "university", "someone", "organization", "lines", "http", "1993", "the"}
    assert telling_words([["12 34"]], ["5"]) == [()]
    assert telling_words([["engine engines", "engines", "engine"]], ["boat"]) == [("engine",)]


def test_what_sets_a_group_of_rows_apart_is_said_in_plain_words(table):
    m = len(table.predictions)
    rows = np.arange(60)
    inside = np.isin(np.arange(m), rows)
    frame = pd.DataFrame(
        {
            "glucose": np.where(inside, 181.0, 104.0) + np.linspace(-1, 1, m),
            "smoker": np.where(inside, "yes", np.where(np.arange(m) % 4, "no", "yes")),
            "admitted": pd.to_datetime("2021-03-01") + pd.to_timedelta(inside * 900 + np.arange(m) % 50, "D"),
            "lactate": np.where(inside & (np.arange(m) % 2 == 0), np.nan, 1.0),
            "dull": np.arange(m) % 7,
            "id": np.arange(m),
        }
    )
    predictions = table.predictions.assign(id=np.arange(m))
    answer = replace(table, target_rows=frame, predictions=predictions)
    sentences = [plain(t.sentence) for t in traits_of(answer, [rows])[0]]
    assert sentences[0] == "glucose is higher: 180 against 104"
    assert "smoker is 'yes' in 100% of the rows against 25%" in sentences
    assert "lactate is missing in 50% of the rows against 0%" in sentences
    assert any(s.startswith("admitted is later: mostly around 2023-") for s in sentences)
    assert not any(s.startswith(("dull", "id")) for s in sentences)


def test_groups_are_told_from_each_other(table):
    """Both are warmer than the known rows; only what one has and the other has not tells them apart."""
    m = len(table.predictions)
    first, second = np.arange(40), np.arange(40, 80)
    noise = np.linspace(-1, 1, m)
    frame = pd.DataFrame(
        {
            "fever": np.where(np.arange(m) < 80, 40.0, 37.0) + 0.1 * noise,
            "pulse": np.where(np.arange(m) < 40, 120.0, 70.0) + noise,
        }
    )
    answer = replace(table, target_rows=frame)
    for told in traits_of(answer, [first, second]):
        assert "fever" in {trait.column for trait in told}
    found = [[plain(t.sentence) for t in told] for told in apart_from_each_other(answer, [first, second])]
    assert found[0][0].startswith("pulse is higher: 119 against 69")
    assert found[1][0].startswith("pulse is lower: ")
    assert not any("40 against 37" in sentence for told in found for sentence in told)
    assert apart_from_each_other(answer, [first]) == [()]


def test_groups_are_contrasted_on_the_page(table):
    group = table.discovery.groups[0]
    dark = table.target_rows["pixel_3_5"].iloc[group.rows].to_numpy() > 8
    parts = tuple(replace(group, rows=group.rows[chosen]) for chosen in (dark, ~dark))
    one, two = (replace(table, groups=replace(table.discovery, groups=g)) for g in ((group,), parts))
    assert render_report(two).count("Against the other groups:") == 2
    assert "Against the other groups:" not in render_report(one)
    assert [told.apart[0].column for told in find_groups(two)] == ["pixel_3_5"] * 2


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ([None] * 4, [None] * 4),
        ([np.inf] * 4, [1.0, 2.0, 3.0, 4.0]),
        ([f"name {i}" for i in range(60)], ["a", "b", "c", "d"]),
        (["a", "b", "a", "b"], ["b", "a", "a", "b"]),
    ],
    ids=["missing", "infinite", "a name a row", "alike"],
)
def test_columns_that_tell_nothing_of_a_group_are_not_mentioned(table, here, there):
    values = pd.Series([*here, *np.resize(there, 40)])
    rows = table.predictions.iloc[: len(values)]
    answer = replace(table, target_rows=pd.DataFrame({"x": values}), predictions=rows)
    assert traits_of(answer, [np.arange(len(here))]) == [()]


def test_a_group_of_texts_without_words_has_no_traits(text):
    answer = replace(text, target_rows=text.target_rows.assign(text="12 34"))
    assert traits_of(answer, [np.arange(9)]) == [()]


def test_the_text_column_that_was_named_counts(text):
    rows = text.target_rows.assign(short="a b")
    assert text_column(replace(text, target_rows=rows)) == "text"
    named = {**text.settings, "text_column": "short"}
    assert text_column(replace(text, target_rows=rows, settings=named)) == "short"


def test_all_words_of_a_small_group_may_tell():
    assert telling_words([["orbit"]], []) == [("orbit",)]


def test_values_of_tables_are_written_for_people(table):
    values = [1234.5, np.nan, -np.inf, 12345, True, None, pd.NaT, "  much \n space "]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    answer = replace(table, target_rows=frame, predictions=table.predictions[: len(values)])
    entries = [example.entries[0] for example in examples(answer, np.arange(len(values)), ["x"])]
    words = ["1,234", "missing", "-inf", "12,345", "True", "missing", "missing", "much space"]
    assert [entry.words for entry in entries] == words
    assert [entry.value for entry in entries] == [1234.5, None, None, 12345.0, *[None] * 4]


def test_the_most_novel_rows_come_in_order(table):
    rows = most_novel(table, 15)
    novelty = table.predictions["novel"].to_numpy()
    assert (np.diff(novelty[rows]) <= 0).all()
    assert novelty[rows].min() >= np.sort(novelty)[-15]


# -- Pictures -----------------------------------------------------------------------------------------


def test_pictures_are_small_copies_without_metadata(tmp_path):
    import io

    photo = Image.effect_noise((900, 600), 60).convert("RGB")
    exif = Image.Exif()
    exif[0x010E] = "Ward 7, patient 12"
    photo.save(tmp_path / "a.jpg", exif=exif)
    uri = thumbnail_uri(tmp_path / "a.jpg")
    data = base64.b64decode(uri.removeprefix("data:image/webp;base64,"))
    assert b"patient" not in data
    assert len(data) < 20_000
    with Image.open(io.BytesIO(data)) as copy:
        assert copy.size == (112, 75)


def test_pictures_that_cannot_be_shown_do_not_stop_a_report(tmp_path, pictures):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    whole = tmp_path / "whole.png"
    Image.new("L", (8, 8)).save(whole)
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:40])
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    for name in ("broken.png", "cut.png", "bomb.png", "missing.png"):
        assert thumbnail_uri(tmp_path / name) is None
    gone = pictures.target_rows.assign(file="nowhere/at all.png")
    assert "cannot be shown" in render_report(replace(pictures, target_rows=gone))


def test_pictures_are_found_below_the_folder_of_the_run_or_left_out(tmp_path, pictures):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    named = pictures.target_rows.assign(file="a.png")
    settings = {**pictures.settings, "target": str(tmp_path)}
    (found,) = examples(replace(pictures, target_rows=named, settings=settings), np.arange(1))
    assert found.picture == thumbnail_uri(tmp_path / "a.png")
    assert found.name == "a.png"
    (bare,) = examples(replace(pictures, target_rows=named.rename(columns={"file": "path"})), np.arange(1))
    assert bare.picture is None
    assert plain(bare.name) == "row 1"


# -- The page -----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page is made of; unbalanced tags are an error."""

    VOID = ("meta", "img", "br", "line", "rect", "circle", "polyline", "polygon")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def check_page(html: str) -> Page:
    """What holds for every page: self-contained, a strict policy, and usable without eyes or mouse."""
    page = Page(html)
    assert len(html) < 3e6
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        assert len(page.all(kind)) == 1
        digest = base64.b64encode(hashlib.sha256(page.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not page.all("link")
    assert not re.search(r"url\(|@import|https?://", page.texts["style"] + page.texts["script"])
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for reference in ("aria-labelledby",):
            assert attributes.get(reference, ids[0]) in ids
        source = attributes.get("src", "data:")
        assert source.startswith("data:image/webp;base64,") or source == "data:"
        assert attributes.get("href", "#main").removeprefix("#") in ids
    assert all(a.get("alt") for a in page.all("img"))
    assert all(a.get("scope") in ("col", "row") for a in page.all("th"))
    charts = [a for a in page.all("svg") if a.get("class") == "chart"]
    assert all(a.get("role") == "img" and a.get("aria-label") for a in charts)
    assert len(page.all("table")) == len(page.all("caption"))
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.all(landmark)) == 1
    assert next(tag for tag, _ in page.tags if tag in ("h1", "h2", "h3")) == "h1"
    return page


def test_a_table_report_is_one_whole_page(table):
    html = render_report(table)
    page = check_page(html)
    assert re.search(r"<title>[^<]*labels do not cover; [^<]*\.</title>", html)
    assert len([a for a in page.all("svg") if a.get("class") == "chart"]) == 11  # five of columns
    text = " ".join(page.texts.values())
    for words in (
        "osls adapt --source labelled.csv",
        "Garg, Saurabh",
        "is higher:",
        "top bin size",
        "Column 'ward'",
    ):
        assert words in text


def test_a_text_report_shows_texts_and_words(text):
    page = check_page(render_report(text))
    assert "telescope" in page.texts["li"]
    assert text.target_rows["text"].iloc[most_novel(text, 1)[0]] in page.texts["p"]


def test_an_image_report_embeds_pictures(pictures):
    page = check_page(render_report(pictures))
    assert len(page.all("img")) == 24 + 6 * len(find_groups(pictures))


HOSTILE_NAMES = [
    "<script>alert(1)<&sol;script>.png",
    '"><img src=x onerror=alert(1)>.png',
    "' onload='alert(1).png",
    "javascript:alert(1).png",
    "data:text&comma;x.png",
    "\x1b]52;c;eA==\x07.png",
    "\u202egnp.exe.png",
    "two\nlines.png",
    "]]><svg onload=alert(1)>.png",
    "{{ 7 * 7 }}{% raw %}.png",
    "=cmd|' C calc'!A0.png",
]


def test_a_picture_report_with_hostile_file_names(tmp_path, pictures):
    for name in HOSTILE_NAMES:
        Image.new("L", (8, 8), 200).save(tmp_path / "a.png")
        os.rename(tmp_path / "a.png", os.fsencode(tmp_path) + b"/" + os.fsencode(name))
    # Given out by novelty, so that every name is among the most novel rows, which the page shows.
    files = np.empty(len(pictures.target_rows), dtype=object)
    files[most_novel(pictures, len(files))] = np.resize(np.array(HOSTILE_NAMES, dtype=object), len(files))
    answer = replace(
        pictures,
        target_rows=pictures.target_rows.assign(file=files),
        settings={**pictures.settings, "target": str(tmp_path)},
    )
    assert set(files[most_novel(answer, 24)]) == set(HOSTILE_NAMES)
    html = render_report(answer)
    page = check_page(html)
    assert len(page.all("img")) == 24 + 6 * len(find_groups(answer))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)
    html.encode()


@pytest.mark.parametrize("status", ["upper bound only", "do not trust"])
def test_the_verdict_and_its_reason_stand_at_the_top(table, status):
    html = render_report(replace(table, diagnostics=checks(status)))
    check_page(html)
    top = html[: html.index('id="mix"')]
    failed = next(c for c in checks(status).checks if not c.passed)
    # As a sentence of its own, or after "Do not trust these figures:".
    assert failed.message[1:].replace("'", "&#39;") in top
    assert (status.capitalize()) in top


def test_a_report_without_novelty_or_diagnostics(table):
    proba = table.predictions.assign(predicted="1", novel=0.0)
    share = np.append(table.source_share[:-1], 0.0)
    answer = replace(
        table,
        predictions=proba,
        target_share=share,
        novelty_pvalue=None,
        diagnostics=None,
        warnings=(),
        groups=NO_GROUPS,
    )
    html = render_report(answer)
    check_page(html)
    assert "there is nothing to group" in html
    assert "No diagnostics were run" in html
    assert "Nothing new was found;" in html


def test_many_classes_one_class_and_few_rows(table):
    k, m = 120, 12
    names = (*(f"class {i}" for i in range(k)), "novel")
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(k + 1), m)
    share = np.full(k + 1, 1 / (k + 1))
    many = replace(
        table,
        classes=names,
        source_share=np.append(rng.dirichlet(np.ones(k)), 0),
        target_share=share,
        interval=np.column_stack([share / 2, share * 2]),
        predictions=pd.DataFrame(proba, columns=[f"p_{n}" for n in names]).assign(
            predicted=["novel"] * 3 + ["class 7"] * 9, novel=proba[:, -1]
        ),
        target_rows=table.target_rows[:m].assign(odd=[np.inf, np.nan, *range(10)], when=pd.NaT),
        features_target=table.features_target[:m],
        groups=NO_GROUPS,
    )
    page = check_page(render_report(many))
    assert "All 121 classes as a table" in page.texts["summary"]
    one = replace(
        many,
        classes=("class 7", "novel"),
        source_share=np.array([1.0, 0.0]),
        target_share=np.array([0.7, 0.3]),
        interval=np.array([[0.6, 0.8], [0.2, 0.4]]),
    )
    check_page(render_report(one))


def test_of_a_sampled_target_all_rows_are_counted(table):
    counts = {"1": 700_000, "novel": 300_000}
    settings = {**table.settings, "n_target": 1_000_000, "predicted_counts": counts}
    html = plain(render_report(replace(table, settings=settings)))
    assert "300,000 rows, 30%" in html
    assert "1,000,000 new ones; fitted on 818 of these" in html
    assert "of the sample" in html


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_told_apart_in_both_themes():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    css = (files("osls.app.report") / "templates" / "report.css").read_text()
    themes = [
        dict(re.findall(r"--([a-z-]+): (#\w{6})", block)) for block in re.findall(r":root[^{]*\{([^}]*)", css)
    ]
    assert len(themes) == 3
    assert themes[1] == themes[2]
    for theme in themes:
        for paper in ("paper", "card"):
            for ink in ("ink", "soft", "known", "novel", "link", "stop", "good"):
                assert contrast(theme[ink], theme[paper]) >= 4.5, (ink, paper)
        for tone in ("good", "caution", "stop"):
            assert contrast(theme[tone], theme[f"{tone}-paper"]) >= 4.5
            assert contrast(theme["ink"], theme[f"{tone}-paper"]) >= 4.5


# -- Charts -------------------------------------------------------------------------------------------


def test_charts_put_shares_where_they_belong():
    chart = str(share_chart("t", [ShareRow("a", 0.1, 0.3, 0.2, 0.4, novel=False)]))
    assert 'cx="25.00%"' in chart  # 0.1 on an axis to 0.4
    assert 'cx="75.00%"' in chart
    assert 'x1="50.00%" x2="100.00%"' in chart
    assert "diamond" not in chart


def test_a_known_truth_is_a_diamond():
    chart = str(share_chart("t", [ShareRow("a", 0.1, 0.3, 0.2, 0.4, novel=False, truth=0.35)]))
    assert 'x="87.50%"' in chart
    assert "a, true share: 35" in chart


def test_the_truth_is_shown_only_where_it_is_known(table):
    share = np.array([*np.full(8, 0.08), 0.36])
    html = render_report(table, truth=Truth(share, "every 8 or 9", 0.91, 0.82, 0.73))
    page = check_page(html)
    assert "Compared with the truth" in html
    assert "every 8 or 9" in html
    for words in ("91", "82", "73", "36"):
        assert f"<b>{words}%</b>" in html
    assert html.count('class="diamond"') == 9 + 1  # one a class, one in the legend
    assert "#truth" in [a.get("href") for a in page.all("a")]
    plain_report = render_report(table)
    assert "diamond" not in plain_report.split("</style>")[1]
    assert "the truth" not in plain_report


def test_an_axis_of_nothing_ends_at_one():
    assert [axis_end(v) for v in (0.0, -1.0, 0.03, 7)] == [1.0, 1.0, 0.03, 8]


def test_a_curve_of_one_point_is_a_dot_and_names_are_escaped():
    hostile = "<script>alert(1)</script>"
    line = Curve(hostile, "known", np.array([0.5]))
    chart = str(curve_chart(hostile, np.array([1.0]), [line], x_ticks=[(1.0, hostile)], y_words=str))
    assert "<circle" in chart
    assert "<script" not in chart
    assert "nan" not in chart


def test_checks_say_which_side_is_good(table):
    low = Check("a", 0.3, 0.1, False, "Too high.")
    high = Check("b", 0.9, 0.5, True, "")
    found = describe_checks(replace(table, diagnostics=Diagnostics((low, high))))
    assert [check["limit"] for check in found] == ["at most 0.1", "at least 0.5"]
