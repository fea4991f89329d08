"""The pages in a real browser: nothing is loaded, nothing hostile runs, all fits and can be clicked."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from answers import image_answer, table_answer
from osls.app.report.adaptation import render_report
from osls.app.report.timeline import render_timeline
from osls.monitor import Monitor

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
        for picture in page.locator("img").all():
            assert picture.evaluate("i => i.complete && i.naturalWidth > 0")
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


@pytest.mark.parametrize("name", ["table", "images", "timeline"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_nothing_sticks_out_sideways(browser, pages, name, width):
    with Visit(browser, pages / f"{name}.html", width=width) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        ends = visit.page.locator("svg.chart").evaluate_all(
            "charts => charts.map(chart => chart.getBoundingClientRect().right)"
        )
        assert max(ends) <= width


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


@pytest.mark.parametrize("name", ["table", "timeline"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(browser, pages, name, scheme):
    with Visit(browser, pages / f"{name}.html", scheme=scheme) as visit:
        dark = visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
        assert dark == (scheme == "dark")
        assert visit.page.evaluate(CONTRAST) == []


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
