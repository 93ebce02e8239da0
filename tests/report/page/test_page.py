"""The page: one file, complete, closed to the network, and nobody's strings are markup in it."""

import html.parser
import json
import re

import polars as pl
import pytest

from rostam_py.errors import InternalError
from rostam_py.report.drawing.figure import Figure, Section, unique_names
from rostam_py.report.page.page import MOST_BYTES, Page, render
from rostam_py.report.page.table import MOST_ROWS, _quantity, points_table
from rostam_py.report.report import sweep_page, write_report
from rostam_py.report.sinks.static import write_static
from rostam_py.report.sweep.figures import sweep_figures
from rostam_py.report.sweep.load import load_sweep

EVIL = "</script><img src=x onerror=alert(1)>$x$<b>"


class _Reader(html.parser.HTMLParser):
    """Collects elements, the text of JSON scripts by id, and the text people see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.scripts, self.seen, self._open = [], {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, text):
        tag, name = self._open[-1] if self._open else (None, None)
        if tag == "script":
            if name:
                self.scripts[name] = self.scripts.get(name, "") + text
        elif tag != "style":
            self.seen.append(text)

    @property
    def text(self):
        return " ".join(self.seen)


@pytest.fixture(scope="module")
def folder(run_sweep, tmp_path_factory):
    return run_sweep(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def page(folder):
    return _Reader(write_report(folder).read_text())


def test_the_page_holds_every_figure_with_its_buttons_and_caption(folder, page):
    figures = sweep_figures(load_sweep(folder))
    cards = {attrs["data-figure"] for tag, attrs in page.elements if tag == "figure"}
    assert cards == {figure.name for figure in figures}
    for figure in figures:
        assert figure.title in page.text
        assert figure.caption in page.text
    assert len([one for one in page.seen if one in ("PNG", "CSV")]) == 2 * len(figures)


def test_the_figures_csv_is_their_table(folder, page):
    for figure in sweep_figures(load_sweep(folder)):
        read = pl.read_csv(json.loads(page.scripts[f"json-{figure.name}"])["csv"].encode(), schema=figure.table.schema)
        assert read.equals(figure.table)


def test_nothing_in_the_page_points_outside(folder, page):
    for tag, attrs in page.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            assert not re.match(r"\s*(?:https?:)?//", attrs.get(name) or ""), (tag, attrs)
        assert "@import" not in (attrs.get("style") or "")
    styles = re.findall(r"<style>(.*?)</style>", (folder / "report.html").read_text(), re.DOTALL)
    assert len(styles) == 2
    assert all(target.startswith("data:") for style in styles for target in re.findall(r"url\(['\"]?([^)]*)", style))
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "http" not in policy


def test_header_says_title_axes_versions_and_counts(page):
    for said in ("Fabrics for ResNet-50 and GPT 1.3B", "A sweep of 240 simulations",
                 "238 finished, 2 ended with an error",
                 "simulated by rostam 0.1.0", "tree_64, tapered_tree_64, torus_8x8"):  # fmt: skip
        assert said in page.text


def test_contents_link_to_sections_that_exist(page):
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert len(links) >= 6
    assert all(link.startswith("#") and link[1:] in ids for link in links)


def test_users_strings_stay_text(run_sweep, tmp_path):
    folder = run_sweep(tmp_path, seeds=1, title=EVIL)
    manifest = json.loads((folder / "sweep.json").read_text())
    table = pl.read_parquet(folder / "points.parquet")
    column = f"fabric.{EVIL}"
    table = table.with_columns(
        pl.format("{}{}", pl.lit(EVIL), "fabric").alias("fabric"), pl.col("seed").alias(column),
        pl.lit(EVIL).alias("cost"),
        pl.when(pl.col("status") == "error").then(pl.lit(EVIL)).alias("error"),
        pl.when(pl.col("status") == "error").then(pl.lit(EVIL)).alias("error_type"),
        pl.format("{}{}", pl.lit(EVIL), "strategy").alias("strategy"),
    )  # fmt: skip
    table.write_parquet(folder / "points.parquet")
    manifest["axes"].append({"key": column, "labels": [EVIL]})
    manifest["base"] = {EVIL: EVIL}
    (folder / "sweep.json").write_text(json.dumps(manifest))
    page = _Reader(write_report(folder).read_text())
    write_static(sweep_figures(load_sweep(folder))[::4], tmp_path, ["svg"])  # labels are no formulas: none raises
    assert EVIL in page.text
    assert not [tag for tag, attrs in page.elements if tag in ("img", "b") or "onerror" in attrs]
    points = json.loads(page.scripts["points-data"])
    assert "<img" not in points["data_json"] + points["table_html"]
    drawn = json.loads(page.scripts["json-errors"])["plotly"]["data"][0]
    assert "<img" not in drawn["y"][0] + drawn["hovertext"][0]


def test_equal_folders_give_equal_pages(run_sweep, tmp_path):
    pages = [write_report(run_sweep(tmp_path / name, seeds=1)).read_bytes() for name in ("a", "b")]
    assert pages[0] == pages[1]


def test_figures_that_would_make_the_page_too_large_are_named_instead():
    import plotly.graph_objects as go

    def figure(name, size):
        return Figure(name, f"figure {name}", "caption", pl.DataFrame({"x": ["y" * size]}), go.Figure())

    figures = [figure("small", 10), figure("huge", 6_000_000), figure("last", 10)]
    text = render(Page("t", "k", [], {}, [Section("s", figures)]))
    page = _Reader(text)
    assert len(text.encode()) < MOST_BYTES
    assert {attrs["data-figure"] for tag, attrs in page.elements if tag == "figure"} == {"small", "last"}
    assert "1 figures were left out to keep this page below 10 MB: figure huge." in page.text


def test_the_table_holds_every_point_best_first_and_failed_last(folder):
    data = load_sweep(folder)
    table = points_table(data)
    rows = json.loads(table.options["data_json"])
    assert table.num_shown == len(rows) == 240
    assert [row[0] for row in rows] == ["ok"] * 238 + ["error"] * 2
    ratios = [row[1] for row in rows[:238]]
    assert ratios[0] == 1
    assert ratios == sorted(ratios)
    assert "240 of 240 points are shown" in table.words
    assert "num_accelerators 64" in table.words  # the same everywhere: said once, no column


def test_a_capped_table_says_how_many_it_shows(run_sweep, tmp_path):
    data = load_sweep(run_sweep(tmp_path, seeds=100))
    table = points_table(data)
    assert table.num_shown <= MOST_ROWS < len(data.table) == 8000
    assert f"{table.num_shown:,} of 8,000 points are shown" in table.words
    assert "points.parquet in the sweep's folder hold all" in table.words


def test_figure_names_are_file_names_and_unique(folder):
    import plotly.graph_objects as go

    one = Figure("same", "t", "c", pl.DataFrame(), go.Figure())
    assert [figure.name for figure in unique_names([one, one, one])] == ["same", "same-2", "same-3"]
    with pytest.raises(InternalError, match="is not a file name"):
        Figure("no/slash", "t", "c", pl.DataFrame(), go.Figure())
    names = [one.name for section in sweep_page(load_sweep(folder)).sections for one in section.figures]
    assert len(names) == len(set(names))


def test_axes_of_quantities_are_numbers_in_the_table(run_sweep, tmp_path):
    table = points_table(load_sweep(run_sweep(tmp_path, seeds=1)))
    names = re.findall("<th>(.*?)</th>", table.options["table_html"].partition("<tfoot>")[0])
    rows = json.loads(table.options["data_json"])
    at = names.index("fabric.accelerator_bandwidth [Gb/s]")
    assert {row[at] for row in rows} == {400, 800, 1600, 3200}
    assert {row[names.index("strategy.tp")] for row in rows} == {1, 4}
    assert {
        at,
        names.index("strategy.tp"),
        next(k for k, name in enumerate(names) if name.startswith("time_to_accuracy [")),
    } <= set(table.options["numbers"])
    assert not {names.index("strategy"), names.index("fabric")} & set(table.options["numbers"])
    assert "accelerator_bandwidth [Gb/s]" not in names  # the axis once more


@pytest.mark.parametrize(
    ("labels", "unit", "numbers"),
    [
        (["400 Gb/s", "1.6 Tb/s", "null"], "Gb/s", [400, 1600, None]), (["5 us", "20 ns"], "us", [5, 0.02]),
        (["25 MB", "1 GB"], "GB", [0.025, 1]), (["0", "5"], "", [0, 5]), (["1%", "5%"], "%", [1, 5]),
        (["5%", "3"], None, None), (["tree_64", "8"], None, None), (["null"], None, None), (["nan", "1"], None, None),
    ],
)  # fmt: skip
def test_labels_of_quantities_are_read_with_their_units(labels, unit, numbers):
    found = _quantity(pl.Series(labels))
    if unit is None:
        assert found is None
    else:
        scale, values = found
        assert scale.unit == unit
        assert (values * scale.factor).round_sig_figs(6).to_list() == numbers
