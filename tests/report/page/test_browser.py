"""The page in headless Chromium: drawn whole, silent console, no request, and buttons that do what they say."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from rostam_py.report.report import write_report
from rostam_py.report.sweep.figures import sweep_figures
from rostam_py.report.sweep.load import load_sweep

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the chromium binary")
BANDWIDTH = "fabric.accelerator_bandwidth [Gb/s]"
# Text in the filter of this column, of 400, 800, 1,600 and 3,200, 40 rows each -> rows left.
NUMBER_FILTERS = {
    ">= 800": "120", "<800": "40", "400": "40", "400..1600": "120", "> 400 < 3,200": "80", "!= 400": "120",
    "1.6e3": "40", "fast": "160",
}  # fmt: skip
PATIENCE = 60_000  # ms until a page that never gets ready fails its test; nothing waits longer than it has to


def open_page(path: Path, folder: Path, use) -> SimpleNamespace:
    """Open the page, wait for its scripts, call ``use(page)``.

    Returns what it saw: ``used``, ``console`` lines, and the http(s) addresses that anything but the browser asked for.
    """
    log, console = folder / "net.json", []
    arguments = [
        f"--log-net-log={log}", "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
        "--disable-component-update",
    ]  # fmt: skip
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=arguments, chromium_sandbox=False)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda line: console.append(line.text))
        page.on("pageerror", lambda error: console.append(str(error)))
        page.goto(path.as_uri(), timeout=PATIENCE)
        used = use(page)
        browser.close()
    events = [one.get("params", {}) for one in json.loads(log.read_text())["events"]]
    asked = [one["url"] for one in events if one.get("initiator", "not an origin") != "not an origin"]
    requests = [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    return SimpleNamespace(used=used, console=console, requests=requests)


def _look_and_press(page: Page) -> SimpleNamespace:
    """Take the page's DOM once drawn, then press the first figure's buttons and the theme's, and filter the table."""
    page.wait_for_selector("html[data-ready=true]")
    seen = SimpleNamespace(dom=page.content(), saved={})
    card = page.locator("figure.card").first
    for button in ("CSV", "PNG"):
        with page.expect_download() as caught:
            card.get_by_role("button", name=button).click()
        download = caught.value
        seen.saved[download.suggested_filename] = Path(download.path()).read_bytes()
    look = "[document.documentElement.dataset.theme, document.querySelector('figure.card .plot').layout.font.color]"
    seen.before = page.evaluate(look)
    page.locator("#theme").click()
    seen.after = page.evaluate(look)
    rows = page.locator("#points-table tbody tr")
    seen.all = rows.count()
    page.locator("#points-table tfoot input").first.press_sequentially("error")
    expect(rows).not_to_have_count(seen.all, timeout=PATIENCE)
    seen.filtered = rows.all_inner_texts()
    page.locator("#points-table tfoot input").first.fill("")
    seen.numbers = {text: _filtered(page, BANDWIDTH, text) for text in NUMBER_FILTERS}
    seen.wrong = page.locator("#points-table tfoot input.wrong").count()
    _filtered(page, BANDWIDTH, "")
    page.locator("#points-table thead th", has_text=BANDWIDTH).click()
    expect(rows.first.locator("td").nth(_place(page, BANDWIDTH))).to_have_text("400")
    page.locator("#points-table thead th", has_text=BANDWIDTH).click()
    expect(rows.first.locator("td").nth(_place(page, BANDWIDTH))).to_have_text("3200")
    return seen


def _place(page: Page, name: str) -> int:
    return page.locator("#points-table thead th").all_inner_texts().index(name)


def _filtered(page: Page, name: str, text: str) -> str:
    """Return the line below the table that counts its rows, with ``text`` as the filter of a column."""
    page.get_by_label(f"filter {name}", exact=True).fill(text)
    return page.locator(".dt-info").inner_text().partition(" of ")[2].partition(" ")[0]


@pytest.fixture(scope="module")
def folder(run_sweep, tmp_path_factory):
    return run_sweep(tmp_path_factory.mktemp("browser"), seeds=2)


@pytest.fixture(scope="module")
def opened(folder, tmp_path_factory):
    return open_page(write_report(folder), tmp_path_factory.mktemp("log"), _look_and_press)


def test_console_is_silent(opened):
    assert opened.console == []


def test_no_request_leaves_the_page(opened):
    assert opened.requests == []


def test_every_figure_is_drawn(folder, opened):
    dom = opened.used.dom
    assert 'class="plot failed"' not in dom
    cards = re.split(r'<figure class="card" id="', dom)[1:]
    names = {figure.name for figure in sweep_figures(load_sweep(folder))}
    assert {card.split('"', 1)[0] for card in cards} == names
    for card in cards:
        drawing = card.split("<figcaption", 1)[0]
        assert 'class="main-svg"' in drawing
        assert len(re.findall(r"<(?:path|rect|image)", drawing)) > 5


def test_buttons_save_the_figures_table_and_picture(folder, opened):
    figure = sweep_figures(load_sweep(folder))[0]
    saved = opened.used.saved
    assert list(saved) == [f"{figure.name}.csv", f"{figure.name}.png"]
    assert saved[f"{figure.name}.csv"].decode() == figure.table.write_csv()
    picture = saved[f"{figure.name}.png"]
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") >= 1800  # pixels across: 900 or more at scale 2


def test_the_theme_changes_page_and_figures(opened):
    before, after = opened.used.before, opened.used.after
    assert {before[0], after[0]} == {"light", "dark"}
    assert before[1] != after[1]


def test_the_table_filters_by_column(opened):
    assert opened.used.all == 15  # one page of rows
    assert len(opened.used.filtered) == 2
    assert all("error" in row for row in opened.used.filtered)


def test_numbers_filter_as_numbers(opened):
    assert opened.used.numbers == NUMBER_FILTERS
    assert opened.used.wrong == 1  # the last of them is no number, said by its frame


def on_a_phone(page: Page) -> list[str]:
    """Reload at a phone's width and return what of the drawings sticks out."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    cut = """() => [...document.querySelectorAll("figure.card")].flatMap((card) => {
      const box = card.querySelector(".plot").getBoundingClientRect();
      return [...card.querySelectorAll(".xtitle, .ytitle, .x2title, .x3title, .cbtitle, .legendtext, .annotation-text")]
        .filter((one) => {
          const own = one.getBoundingClientRect();
          return own.width && (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1
            || own.bottom > box.bottom + 1);
        })
        .map((one) => `${card.id}: ${one.textContent}`);
    })"""
    found: list[str] = page.evaluate(cut)
    return found


def _look_on_a_phone(page: Page) -> SimpleNamespace:
    """Reload at a phone's width and return what of the drawings sticks out, and the heat maps' letters."""
    cut = on_a_phone(page)
    letters = """() => [...document.querySelectorAll(".heatmap-label, .hm text")]
      .map((one) => ({ size: parseFloat(getComputedStyle(one).fontSize), wide: one.getBoundingClientRect().width }))"""
    maps = """() => [...document.querySelectorAll("figure.card .plot")]
      .filter((plot) => plot.data.some((trace) => trace.type === "heatmap"))
      .map((plot) => plot._fullLayout.xaxis._length / plot.data[0].x.length)"""
    return SimpleNamespace(
        cut=cut, letters=page.evaluate(letters), columns=page.evaluate(maps),
        scrolls=page.evaluate("document.documentElement.scrollWidth"),
    )  # fmt: skip


def test_a_phone_sees_whole_titles_and_legible_heat_maps(folder, tmp_path):
    seen = open_page(write_report(folder, out=tmp_path / "page.html"), tmp_path, _look_on_a_phone)
    assert seen.console == []
    assert seen.used.scrolls == 390
    assert seen.used.cut == []
    assert seen.used.letters
    assert all(one["size"] >= 8 and one["wide"] <= min(seen.used.columns) for one in seen.used.letters)


def test_the_watch_sees_a_page_that_asks_outside(tmp_path):
    path = tmp_path / "asks.html"
    path.write_text('<img src="http://outside.invalid/x.png"><script>fetch("https://outside.invalid/y")</script>')
    watched = open_page(path, tmp_path, lambda page: page.wait_for_load_state("networkidle"))
    assert any("outside.invalid" in one for one in watched.requests)
    assert watched.console
