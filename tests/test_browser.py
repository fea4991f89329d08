"""The pages in a real browser: nothing is loaded, nothing hostile runs, all fits and can be clicked."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from answers import image_answer, table_answer, text_answer
from osls.app.report.adaptation import render_report
from osls.app.report.review import render_review
from osls.app.report.timeline import render_timeline
from osls.growth import Suggestion
from osls.monitor import Monitor
from test_growth import TRUTH, invoke, run

__all__ = ["run"]  # the fixture

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed; the pages are not looked at in a browser"
)

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"><svg onload=alert(3)>',
    "' onmouseover='alert(4)",
    "</title><script>alert(5)</script>",
    "</style><script>alert(6)</script>",
    "</script><script>alert(7)</script>",
    "javascript:alert(8)",
    "<a href=javascript:alert(9)>click</a>",
    "<iframe srcdoc='<script>alert(10)</script>'>",
    "{{ 7 * 7 }}{% raw %}",
    "<!-- --><script>alert(11)</script>",
    "<body onload=alert(12)>",
    "<math><mtext><script>alert(13)</script>",
    "&lt;script&gt;alert(14)&lt;/script&gt;",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=data:text/html,x'>",
    "\u202e<script>alert(15)</script>\u0000",
    "<form action=//x><button>go</button></form>",
    "<details open ontoggle=alert(16)>",
]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers often lack what the sandbox needs; the pages are our own.
        engine = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield engine
        engine.close()


@pytest.fixture(scope="module")
def table():
    return table_answer()


@pytest.fixture(scope="module")
def pages(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    monitor = Monitor([0.5, 0.3, 0.2], ["a long name of a known class", "b", "novel"])
    for day in range(12):
        novel = 0.2 if day < 9 else 0.5
        monitor.update(f"day {day}", np.eye(3)[rng.choice(3, 400, p=[0.7 - novel, 0.3, novel])])
    texts = {
        "table": render_report(table),
        "text": render_report(text_answer()),
        "images": render_report(image_answer(folder / "digits")),
        "timeline": render_timeline(monitor, model="model", command="osls monitor model"),
    }
    for name, html in texts.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return folder


class Visit:
    """A page with a record of all that should not happen."""

    def __init__(self, browser, path, *, width=1280, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        self.page.on("console", lambda m: self.trouble.append(f"console: {m.text}"))
        self.page.on("pageerror", lambda e: self.trouble.append(f"error: {e}"))
        self.page.on("dialog", lambda d: (self.trouble.append(f"dialog: {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self._request(r.url, path))
        self.page.goto(path.as_uri())

    def _request(self, url, path):
        if not url.startswith("data:") and url.split("#")[0] != path.as_uri():
            self.trouble.append(f"request: {url}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()


@pytest.mark.parametrize("name", ["table", "images", "timeline"])
def test_everything_can_be_clicked_and_nothing_is_loaded(browser, pages, name):
    with Visit(browser, pages / f"{name}.html") as visit:
        page = visit.page
        for link in page.locator("nav a").all():
            link.click()
            anchor = link.get_attribute("href")
            assert page.url.endswith(anchor)
            assert page.locator(anchor).is_visible()
        for summary in page.locator("summary").all():
            summary.click()
        for button in page.locator("thead button").all():
            if button.is_visible():
                button.click()
                button.click()
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown = page.locator("img").evaluate_all("all => all.map(i => i.complete && i.naturalWidth > 0)")
        assert all(shown)
        assert visit.trouble == []


def test_tables_sort_by_number_and_by_name(browser, pages):
    with Visit(browser, pages / "table.html") as visit:
        table = visit.page.locator("table").first
        heading = table.locator("thead th").nth(2)
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "descending"
        values = [
            float(v)
            for v in table.locator("tbody td:nth-child(3)").evaluate_all(
                "cells => cells.map(c => c.dataset.value)"
            )
        ]
        assert values == sorted(values, reverse=True)
        table.locator("thead th").first.locator("button").press("Enter")
        names = table.locator("tbody th").all_inner_texts()
        assert names == sorted(names, reverse=True)


BENCH = Path(__file__).parent.parent / "benchmarks" / "results"


@pytest.mark.parametrize("name", ["table", "text", "images", "timeline", "methods", "pu"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_sticks_out_sideways(browser, pages, name, width):
    path = pages / f"{name}.html"
    with Visit(browser, path if path.exists() else BENCH / path.name, width=width) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        cut = visit.page.locator(".scroll").evaluate_all(
            "frames => frames.filter(f => f.scrollWidth > f.clientWidth + 1).map(f => f.ariaLabel)"
        )
        assert cut == []
        assert visit.trouble == []
        ends = visit.page.locator("svg.chart").evaluate_all(
            "charts => charts.map(chart => chart.getBoundingClientRect().right)"
        )
        assert max(ends) <= width


def test_a_phone_keeps_ids_whole_and_counts_the_columns_it_shows(browser, table, tmp_path):
    names = [f"ward-{i:05d}" for i in range(len(table.predictions))]
    predictions = table.predictions.assign(patient=names)
    path = tmp_path / "report.html"
    path.write_text(render_report(replace(table, predictions=predictions)), encoding="utf-8")
    with Visit(browser, path, width=390) as visit:
        section = visit.page.locator("section[aria-labelledby=novel]")
        ids = section.locator("tbody th .whole")
        lines = ids.evaluate_all("all => all.map(e => e.getClientRects().length)")
        assert lines == [1] * len(lines) != []
        headings = section.locator("thead th:visible").count() - 3  # row, novelty, nearest class
        assert headings == 1
        assert "1 of 64 columns is shown here" in section.inner_text()
        assert "columns are shown" not in section.inner_text()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


# Text against the nearest painted background behind it; svg text is painted with its fill.
CONTRAST = """() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const lum = c => { const f = c.slice(0, 3).map(v => { v /= 255;
    return v <= .04045 ? v / 12.92 : Math.pow((v + .055) / 1.055, 2.4); });
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || ["SCRIPT", "title"].includes(e.tagName)) continue;
    const s = getComputedStyle(e); const ink = parse(e.tagName === "text" ? s.fill : s.color);
    const [a, b] = [lum(ink), lum(back(e))].sort((x, y) => x - y); const ratio = (b + .05) / (a + .05);
    if (ratio < 4.5) bad.push(e.tagName + "." + e.getAttribute("class") + " " + ratio.toFixed(2)); }
  return bad; }"""


@pytest.mark.parametrize("name", ["table", "text", "timeline"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(browser, pages, name, scheme):
    with Visit(browser, pages / f"{name}.html", scheme=scheme) as visit:
        dark = visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
        assert dark == (scheme == "dark")
        assert visit.page.evaluate(CONTRAST) == []


def test_pointing_at_a_row_of_the_map_names_it(browser, pages):
    with Visit(browser, pages / "table.html") as visit:
        spot = visit.page.locator("svg .spot.novel").last
        spot.scroll_into_view_if_needed()
        before = spot.evaluate("e => getComputedStyle(e).strokeWidth")
        spot.hover()
        assert spot.evaluate("e => getComputedStyle(e).strokeWidth") != before
        assert spot.locator("title").text_content().startswith("row ")


def test_the_keyboard_reaches_everything(browser, pages):
    with Visit(browser, pages / "table.html") as visit:
        page = visit.page
        wanted = page.locator("a, button:visible, summary, [tabindex='0']").count()
        reached = set()
        for _ in range(wanted + 5):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        assert len(reached) >= wanted


def test_it_reads_without_scripts(browser, pages):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((pages / "table.html").as_uri())
    assert page.locator("h1").is_visible()
    assert page.locator("svg.chart").first.is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.locator("thead button").count() == 0
    context.close()


def test_hostile_data_stays_data(browser, table, tmp_path):
    m, k = len(table.predictions), len(HOSTILE)
    rng = np.random.default_rng(0)
    names = (*HOSTILE, "<b>novel</b>")
    proba = rng.dirichlet(np.ones(k + 1), m)
    share = proba.mean(axis=0)
    predictions = pd.DataFrame(proba, columns=[f"p_{n}" for n in names]).assign(
        predicted=np.array(names)[proba.argmax(axis=1)], novel=proba[:, -1]
    )
    predictions.insert(0, HOSTILE[3], rng.choice(HOSTILE, m))
    predictions[HOSTILE[3]] = rng.choice(HOSTILE, m)
    values = {name: np.where(proba[:, -1] > 0.1, HOSTILE[i], "x") for i, name in enumerate(HOSTILE) if i != 3}
    common = {
        "classes": names,
        "source_share": np.append(share[:-1] / share[:-1].sum(), 0),
        "target_share": share,
        "interval": np.column_stack([share * 0.9, share * 1.1]),
        "predictions": predictions,
        "warnings": tuple(HOSTILE),
        "command": " ".join(HOSTILE),
        "settings": dict(zip(HOSTILE, HOSTILE, strict=True)),
    }
    rows = pd.DataFrame(values)
    tables = replace(table, target_rows=rows, source_rows=rows, **common)
    text = pd.DataFrame({HOSTILE[0]: rng.choice(HOSTILE, m) + " " + "word " * 200})
    texts = replace(table, kind="text", target_rows=text, source_rows=text, **common)
    files = pd.DataFrame({"file": rng.choice(HOSTILE, m)})
    pictures = replace(table, kind="images", target_rows=files, source_rows=files, **common)
    monitor = Monitor(share, names, n_bootstrap=2)
    for name in HOSTILE:
        monitor.update(name, rng.permutation(proba)[:50])
    monitor.update("moved", np.eye(k + 1)[np.full(200, k)])
    htmls = [
        *map(render_report, (tables, texts, pictures)),
        render_timeline(monitor, model=HOSTILE[4], command=HOSTILE[5]),
    ]
    for i, html in enumerate(htmls):
        path = tmp_path / f"hostile {i}.html"
        path.write_text(html, encoding="utf-8")
        with Visit(browser, path) as visit:
            page = visit.page
            for summary in page.locator("summary").all():
                if summary.is_visible():
                    summary.click()
            for button in page.locator("button:visible").all():
                button.click()
            assert page.locator("script").count() == 1
            assert page.locator("iframe, form, object, embed, math").count() == 0
            assert page.locator("main a").count() == 0
            assert page.locator("body").evaluate("b => getComputedStyle(b).display") == "block"
            assert "<script>alert(1)</script>" in page.locator("body").inner_text()
            assert visit.trouble == []


# -- The page that asks ---------------------------------------------------------------------------------


def many_rows(table, m=5000):
    """The answer with its rows repeated until there are ``m`` of them, all in two groups."""
    found = table.discovery
    pick = np.resize(np.flatnonzero(found.group >= 0), m)
    groups = tuple(replace(found.groups[0], rows=np.arange(m)[i::2]) for i in range(2))
    return replace(
        table,
        predictions=table.predictions.iloc[pick].reset_index(drop=True),
        target_rows=table.target_rows.iloc[pick].reset_index(drop=True),
        groups=replace(found, groups=groups),
    )


@pytest.fixture(scope="module")
def review(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("review")
    asked = [Suggestion(int(row), 0, "typical of group 1") for row in range(6)]
    (folder / "review.html").write_text(render_review(many_rows(table), asked, run="run"), encoding="utf-8")
    return folder / "review.html"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_review_page_fits_and_reads(browser, review, width, scheme):
    with Visit(browser, review, width=width, scheme=scheme) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        assert visit.trouble == []


def test_of_thousands_of_rows_only_some_are_drawn_until_more_are_wanted(browser, review):
    with Visit(browser, review) as visit:
        page = visit.page
        drawn = page.locator("#list li").count()
        assert 0 < drawn < 200
        page.locator("button", has_text="Show more").first.click()
        # On a busy machine the list is drawn again a moment after the click; nothing is asserted in between.
        more = "least => document.querySelectorAll('#list .items li').length >= least"
        page.wait_for_function(more, arg=drawn + 50)
        page.locator("#list input[type=text]").first.fill("thing")
        assert "thing (10)" in page.locator("#summary").inner_text()


def test_the_review_page_by_keyboard_alone(browser, review):
    with Visit(browser, review) as visit:
        page = visit.page
        page.locator("#list input[type=text]").first.focus()
        page.keyboard.type("first")
        page.keyboard.press("Enter")
        page.keyboard.type("second")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Not new":
                break
        page.keyboard.press("Space")
        assert "first (10)" in page.locator("#summary").inner_text()
        assert "(not new) (10)" in page.locator("#summary").inner_text()


def test_name_split_merge_export_absorb(browser, run, tmp_path):
    assert invoke("review", run, "--out", tmp_path / "review.html").exit_code == 0
    with Visit(browser, tmp_path / "review.html", width=390) as visit:
        page = visit.page
        box = "#group-{} .ask input[type=text]"
        page.locator(box.format(0)).first.fill("d")
        page.locator(box.format(1)).first.fill('E, "so called"')
        page.locator("#group-1 input[type=checkbox]").first.check()
        page.locator("#group-1 button", has_text="Split off").click()
        assert page.locator("#list article").count() == 3
        page.locator("#group-2 select").nth(1).select_option("1")
        assert "Merged into Group 2" in page.locator("#group-2").inner_text()
        page.locator(box.format(0)).first.fill("A")
        assert "differs from the class 'a'" in page.locator("#group-0").inner_text()
        page.locator(box.format(0)).first.fill("d")
        # Nothing is lost on reload.
        page.reload()
        assert page.locator(box.format(0)).first.input_value() == "d"
        assert page.locator("#list article").count() == 3
        with page.expect_download() as download:
            page.locator("#download").click()
        download.value.save_as(tmp_path / "labels.csv")
        page.locator("#again").click()
        assert page.locator("#download").is_disabled()
        assert visit.trouble == []
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert labels.columns.tolist() == ["name", "label"]
    assert labels["label"].value_counts().to_dict() == {"d": 10, 'E, "so called"': 11}
    done = invoke("absorb", run, tmp_path / "labels.csv", "--out", tmp_path / "second")
    assert done.exit_code == 0, done.output
    predicted = pd.read_parquet(tmp_path / "second" / "predictions.parquet")["predicted"]
    assert (predicted.to_numpy() == np.where(TRUTH == "e", 'E, "so called"', TRUTH)).mean() > 0.95


def test_hostile_names_and_rows_of_the_review_page_run_nothing(browser, table, tmp_path):
    rows = table.target_rows.astype(object)
    for j, column in enumerate(rows.columns):
        rows[column] = [HOSTILE[(i + j) % len(HOSTILE)] for i in range(len(rows))]
    hostile = replace(
        table,
        target_rows=rows,
        source_rows=rows,
        classes=(*HOSTILE[: len(table.classes) - 1], "<b>novel</b>"),
    )
    asked = [Suggestion(row, 0, HOSTILE[row]) for row in range(len(HOSTILE))]
    path = tmp_path / "review.html"
    path.write_text(render_review(hostile, asked, run=HOSTILE[6]), encoding="utf-8")
    with Visit(browser, path) as visit:
        page = visit.page
        boxes = page.locator(".ask input[type=text]")
        for i in range(min(boxes.count(), 12)):
            boxes.nth(i).fill(HOSTILE[i % len(HOSTILE)])
        page.reload()
        for button in page.locator("#list button:visible, #list summary").all()[:12]:
            if button.is_enabled():
                button.click()
                break
        assert page.locator("script").count() == 2
        assert page.locator("iframe, form, object, embed, math, main a").count() == 0
        assert "<script>alert(1)</script>" in page.locator("body").inner_text()
        assert visit.trouble == []
