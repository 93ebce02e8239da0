"""The page in headless Chromium: drawn whole, silent console, no request, and buttons that do what they say."""

import html
import json
import re
import shutil
import subprocess

import pytest

from rostam_py.report.load import load_sweep
from rostam_py.report.report import write_report
from rostam_py.report.sweep_figures import sweep_figures

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the chromium binary")

# Presses the first figure's buttons, the theme's, and filters the table, catching what would be downloaded.
PROBE = """
<script>
(() => {
  const saved = [], blobs = [];
  HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
  const create = URL.createObjectURL;
  URL.createObjectURL = (blob) => { blobs.push(blob); return create.call(URL, blob); };
  const until = (holds) => new Promise((resolve) => {
    const timer = setInterval(() => { if (holds()) { clearInterval(timer); resolve(); } }, 20);
  });
  const rows = () => document.querySelectorAll("#points-table tbody tr").length;
  (async () => {
    const root = document.documentElement;
    await until(() => root.dataset.ready);
    const card = document.querySelector("figure.card"), [png, csv] = card.querySelectorAll("button");
    csv.click();
    const text = await blobs[blobs.length - 1].text();
    png.click();
    await until(() => saved.length === 2);
    const before = [root.dataset.theme, card.querySelector(".plot").layout.font.color];
    document.getElementById("theme").click();
    const after = [root.dataset.theme, card.querySelector(".plot").layout.font.color];
    const all = rows();
    const filter = document.querySelectorAll("#points-table tfoot input")[0];
    filter.value = "error";
    for (const kind of ["keyup", "input", "change"]) filter.dispatchEvent(new Event(kind, { bubbles: true }));
    await until(() => rows() < all);
    const probe = document.createElement("pre");
    probe.id = "probe";
    probe.textContent = JSON.stringify({ saved, text, before, after, all, failed: rows() });
    document.body.append(probe);
  })();
})();
</script>
"""


def open_page(path, tmp_path) -> tuple[str, list[str], list[str]]:
    """Return the page's final HTML, its console lines, and the http(s) addresses that anything asked for."""
    log = tmp_path / "net.json"
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
        "--virtual-time-budget=30000", "--disable-background-networking", "--disable-component-update",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--log-net-log={log}", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,1000", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    events = [one.get("params", {}) for one in json.loads(log.read_text())["events"]]
    asked = [
        one["url"] for one in events if "initiator" in one and one["initiator"] != "not an origin"
    ]  # the browser's
    return done.stdout, console, [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture(scope="module")
def folder(run_sweep, tmp_path_factory):
    return run_sweep(tmp_path_factory.mktemp("browser"), seeds=2)


@pytest.fixture(scope="module")
def opened(folder, tmp_path_factory):
    path = write_report(folder)
    path.write_text(path.read_text().replace("</body>", f"{PROBE}</body>"))
    return open_page(path, tmp_path_factory.mktemp("profile"))


def test_console_is_silent(opened):
    assert opened[1] == []


def test_no_request_leaves_the_page(opened):
    assert opened[2] == []


def test_every_figure_is_drawn(folder, opened):
    dom = opened[0]
    assert 'data-ready="true"' in dom
    assert 'class="plot failed"' not in dom
    cards = re.split(r'<figure class="card" id="', dom)[1:]
    names = {figure.name for figure in sweep_figures(load_sweep(folder))}
    assert {card.split('"', 1)[0] for card in cards} == names
    for card in cards:
        drawing = card.split("<figcaption", 1)[0]
        assert 'class="main-svg"' in drawing
        assert len(re.findall(r"<(?:path|rect|image)", drawing)) > 5


def test_buttons_save_the_figures_table_and_picture(folder, opened):
    probe = _probe(opened)
    figure = sweep_figures(load_sweep(folder))[0]
    assert probe["saved"] == [f"{figure.name}.csv", f"{figure.name}.png"]
    assert probe["text"] == figure.table.write_csv()


def test_the_theme_changes_page_and_figures(opened):
    probe = _probe(opened)
    assert {probe["before"][0], probe["after"][0]} == {"light", "dark"}
    assert probe["before"][1] != probe["after"][1]


def test_the_table_filters_by_column(opened):
    probe = _probe(opened)
    assert probe["all"] == 15  # one page of rows
    assert probe["failed"] == 2


def test_the_watch_sees_a_page_that_asks_outside(tmp_path):
    path = tmp_path / "asks.html"
    path.write_text('<img src="http://outside.invalid/x.png"><script>fetch("https://outside.invalid/y")</script>')
    _, console, requests = open_page(path, tmp_path)
    assert any("outside.invalid" in one for one in requests)
    assert console


def _probe(opened):
    found = re.search(r'<pre id="probe">(.*?)</pre>', opened[0], re.DOTALL)
    assert found, "the probe did not end"
    return json.loads(html.unescape(found.group(1)))
