"""The page of weeks: its numbers are the folder's, in figures, tables and the browser."""

import csv
import json
import shutil

import polars as pl
import pytest

from rostam_py.cli.main import main
from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput.result import CAUSES
from rostam_py.report.report import write_report
from rostam_py.report.sinks.static import write_static
from rostam_py.report.weeks.load import is_weeks_folder, load_weeks
from rostam_py.report.weeks.page import weeks_page
from tests.report.page.test_browser import CHROMIUM, open_page

JOB = [
    "model=gpt_125m", "fabric=cluster_64", "strategy.tp=8", "global_batch=64", "strategy.micro_batch=1",
    "fleet.days=20.5", "fleet.mtbf=20 d", "fleet.spares=1", "target=600 G tokens", "accelerator_usd_per_hour=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("weeks") / "out"
    assert main(["fleet", *JOB, "report=false", f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def data(folder):
    return load_weeks(folder)


@pytest.fixture(scope="module")
def figures(data):
    return {one.name: one for section in weeks_page(data).sections for one in section.figures}


def test_every_figure_is_there(figures, data):
    goodputs = [f"goodput-{policy}" for policy in data.policies]
    assert list(figures) == ["trained", *goodputs, "servers-down", "break-even-spares", "break-even-interval"]


def test_shares_of_a_day_are_the_seconds_of_the_table(figures, folder):
    rows = [row for row in csv.DictReader((folder / "days.csv").open()) if row["policy"] == "shrink"]
    table = figures["goodput-shrink"].table.to_dicts()
    assert len(rows) == len(table) == 21
    for row, drawn in zip(rows, table, strict=True):
        length_s = (drawn["to_day"] - drawn["from_day"]) * 86_400
        for cause in CAUSES:
            assert drawn[cause] * length_s == pytest.approx(float(row[f"{cause}_s"]), abs=1e-6)
        assert sum(drawn[cause] for cause in CAUSES) == pytest.approx(1)
    bars = {bar.name: list(bar.y) for bar in figures["goodput-shrink"].plotly.data}
    assert bars["useful"] == pytest.approx([100 * one["useful"] for one in table])


def test_tokens_end_at_what_was_trained_and_the_target_is_marked(figures, data):
    table = figures["trained"].table
    for policy, one in data.policies.items():
        line = table.filter(policy=policy)
        assert line["tokens"][0] == 0
        assert line["tokens"][-1] == pytest.approx(one["iterations"] * 64 * 2048, rel=1e-6)
        assert line["tokens"].is_sorted()
    stars = [one for one in figures["trained"].plotly.data if one.hovertext]
    assert len(stars) == len([one for one in data.policies.values() if one["time_to_target_s"] < 3 * 20.5 * 86_400])
    for star in stars:
        one = data.policies[star.legendgroup]
        wanted_s = one["target_reached_s"] or one["time_to_target_s"]
        assert star.x[1] == pytest.approx(wanted_s / 86_400)


def test_servers_down_are_those_of_the_document(figures, data):
    day, down = [*data.down["day"], 20.5], data.down["servers_down"]
    area = sum((b - a) * count for a, b, count in zip(day, day[1:], down, strict=False))
    assert area / 20.5 == pytest.approx(data.document["faults"]["mean_servers_down"])
    assert max(down) == data.document["faults"]["most_servers_down"]
    assert "servers down" in [trace.name for trace in figures["servers-down"].plotly.data]


def test_stars_of_break_even_are_the_cheapest_of_each_curve(figures, data):
    for name, column in (("spares", "num_spares"), ("interval", "checkpoint_every_s")):
        table = figures[f"break-even-{name}"].table
        for policy in data.policies:
            rows = table.filter(policy=policy).sort(column)
            cheapest = rows.sort("usd_per_G_tokens", maintain_order=True).row(0, named=True)
            star = rows.filter("is_least_cost").row(0, named=True)
            assert star["usd_per_G_tokens"] == pytest.approx(cheapest["usd_per_G_tokens"])
            hours = (64 + 8 * star["num_spares"]) * 20.5 * 24  # of a window
            trained = star["goodput"] * 20.5 * 86_400 / data.document["iteration_s"] * 64 * 2048
            assert star["accelerator_hours_per_G_tokens"] == pytest.approx(hours / trained * 1e9, rel=1e-3)
    own = [row for row in data.document["break_even"]["points"] if row["num_spares"] == 1 and row["curve"] == "spares"]
    assert len(own) == 4


def test_costs_of_the_window_and_to_the_target_are_stated(data):
    for one in data.policies.values():
        hours = (64 + 8) * 20.5 * 24
        assert one["cost"]["accelerator_hours"] == pytest.approx(hours)
        assert one["cost"]["usd"] == pytest.approx(2 * hours)
        wanted = one["time_to_target_s"] / 3_600 * 72
        assert one["cost_to_target"]["accelerator_hours"] == pytest.approx(wanted)
    costs = next(table for table in weeks_page(data).tables if table.name == "costs")
    assert len(costs.rows) == 8
    assert costs.rows[0][-1] == f"{2 * 72 * 20.5 * 24:,.0f}"


def test_static_figures_are_drawn_and_equal_folders_give_equal_pages(figures, folder, tmp_path):
    assert len(write_static(list(figures.values()), tmp_path, ["svg"])) == len(figures)
    texts = [write_report(folder, out=tmp_path / f"{name}.html").read_bytes() for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_damaged_folders_are_refused_with_what_is_wrong(folder, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    document = json.loads((own / "result.json").read_text())
    (own / "result.json").write_text(json.dumps(document | {"version": 99}))
    assert is_weeks_folder(own)
    with pytest.raises(ConfigError, match="has version 99; this rostam reads version 1"):
        write_report(own)
    (own / "result.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        write_report(own)
    (own / "result.json").write_text(json.dumps(document))
    (own / "down.csv").unlink()
    with pytest.raises(ConfigError, match=r"down\.csv is missing"):
        write_report(own)


def test_days_of_years_are_joined(folder, data, monkeypatch):
    from rostam_py.report.weeks import goodput_figure

    monkeypatch.setattr(goodput_figure, "_MOST_BARS", 7)
    table = goodput_figure.goodput_figure(data, "spares").table
    assert len(table) == 7
    useful = (table["useful"] * (table["to_day"] - table["from_day"])).sum() / 20.5
    assert useful == pytest.approx(data.policies["spares"]["goodput"])
    assert isinstance(table, pl.DataFrame)


@pytest.mark.skipif(CHROMIUM is None, reason="needs the chromium binary")
def test_the_browser_draws_every_figure_in_silence(folder, figures, tmp_path):
    def use(page):
        page.wait_for_selector("html[data-ready=true]")
        return page.locator("figure.card .main-svg").count(), page.locator(".plot.failed").count()

    seen = open_page(write_report(folder, out=tmp_path / "page.html"), tmp_path, use)
    assert seen.console == []
    assert seen.requests == []
    assert seen.used[0] >= len(figures)
    assert seen.used[1] == 0


def test_weeks_are_no_run_to_compare(folder, capsys):
    assert main(["compare", str(folder), str(folder)]) == 2
    assert "holds rostam-weeks, not a run" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("days", "step"), [(3.3, 0.5), (30, 5), (60, 10), (349, 50), (0.04, 0.005)])
def test_days_are_marked_at_round_numbers(days, step):
    from rostam_py.report.weeks.goodput_figure import _ticks

    assert _ticks(days) == pytest.approx(step)
