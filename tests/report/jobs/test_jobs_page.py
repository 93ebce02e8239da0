"""The page of many jobs: its numbers are those of the folder's tables, counted again in plain Python."""

import csv
import dataclasses
import json
import math
import shutil
import statistics

import pytest

from rostam_py.cli.main import main
from rostam_py.errors import ConfigError
from rostam_py.fleet.queueing.run import CAUSES
from rostam_py.fleet.queueing.timeline import STATES
from rostam_py.report.jobs.load import is_jobs_folder, load_jobs
from rostam_py.report.jobs.page import jobs_page
from rostam_py.report.report import write_report
from rostam_py.report.sinks.static import write_static
from rostam_py.units import format_time
from tests.report.page.test_browser import CHROMIUM, on_a_phone, open_page

DAY_S = 86_400.0
BOARDS = [
    "fleet.jobs=families", "fleet.draw={count: 700, load: 1.5, unit: 4}", "fabric=hx2mesh_8x8", "fleet.seed=3",
    "fleet.accelerators_per_server=4", "fleet.mtbf=20 d", "fleet.repair=20 h", "fleet.days=6",
    "accelerator_usd_per_hour=2",
]  # fmt: skip
MODELS = [
    "fabric=fat_tree", "num_accelerators=20", "fabric.levels=2", "fabric.leaf_down=5", "fabric.leaf_up=1",
    "fabric.accelerator_bandwidth=100 Gb/s", "strategy.micro_batch=1", "fleet.faults=none",
    "fleet.allocation=random", "software=ideal",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("jobs") / "out"
    assert main(["fleet", *BOARDS, f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    """Jobs of two sizes with a model, on a tree whose leaves share one link up."""
    own = tmp_path_factory.mktemp("neighbours")
    rows = ["0,6,gpt_125m,2000,", "0,6,gpt_125m,2000,", "0,4,,,3600", "60,6,gpt_125m,1000,"]
    (own / "jobs.csv").write_text("\n".join(["submit_s,gpus,model,iterations,duration_s", *rows]) + "\n")
    assert main(["fleet", f"fleet.jobs={own / 'jobs.csv'}", *MODELS, "report=false", f"out={own / 'out'}"]) == 0
    return own / "out"


@pytest.fixture(scope="module")
def data(folder):
    return load_jobs(folder)


@pytest.fixture(scope="module")
def page(data):
    return jobs_page(data)


@pytest.fixture(scope="module")
def figures(page):
    return {one.name: one for section in page.sections for one in section.figures}


def rows_of(folder, name):
    lines = [line for line in (folder / name).read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def quantile(values, share):
    """Return a quantile, linear between the values around it."""
    ordered, at = sorted(values), share * (len(values) - 1)
    low = math.floor(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def test_every_figure_is_there(figures):
    assert list(figures) == ["states", "allocation", "boards", "queue", "waiting", "slowdown", "hours", "goodput"]


def test_states_and_queue_are_the_means_of_series_csv(figures, folder, data):
    series = rows_of(folder, "series.csv")
    starts = [float(row["start_s"]) for row in series] + [data.window_s]
    for name, columns in (("states", STATES), ("queue", ("jobs_waiting", "accelerators_waited_for"))):
        table = figures[name].table
        total = 256 if name == "states" else 1
        assert table["from_day"][0] == 0
        assert table["to_day"][-1] == pytest.approx(6)
        assert table["from_day"][1:].to_list() == table["to_day"][:-1].to_list()
        for drawn in table.to_dicts():
            first, last = (starts.index(pytest.approx(drawn[key] * DAY_S, abs=1e-6)) for key in ("from_day", "to_day"))
            length = starts[last] - starts[first]
            for column in columns:
                whole = sum(
                    float(series[k][column.replace(" ", "_")]) * (starts[k + 1] - starts[k]) for k in range(first, last)
                )
                assert drawn[column] * total == pytest.approx(whole / length, abs=1e-9)
    bars = {bar.name: list(bar.y) for bar in figures["states"].plotly.data}
    assert list(bars) == [state for state in STATES if data.document["cluster_accelerator_hours"][state] > 0]
    for k in range(len(figures["states"].table)):
        assert sum(values[k] for values in bars.values()) == pytest.approx(100)


def test_waits_by_size_are_those_of_jobs_csv(figures, folder, data):
    jobs = rows_of(folder, "jobs.csv")
    waits = [(int(row["accelerators"]), float(row["first_start_s"] or data.window_s) - float(row["submit_s"]))
             for row in jobs]  # fmt: skip
    table = figures["waiting"].table
    assert table["num_jobs"].sum() == len(jobs) == data.document["num_jobs"]
    assert data.document["num_not_started"] == sum(not row["first_start_s"] for row in jobs) > 0
    for drawn in table.to_dicts():
        ends = [int(one) for one in drawn["accelerators"].replace(",", "").split("-")]
        own = [wait for size, wait in waits if ends[0] <= size <= ends[-1]]
        assert drawn["num_jobs"] == len(own)
        assert drawn["mean"] == pytest.approx(statistics.fmean(own))
        for key, share in (("p5", 0.05), ("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p95", 0.95)):
            assert drawn[key] == pytest.approx(quantile(own, share))
    box = figures["waiting"].plotly.data[0]
    scale = 1 / 3_600 if "[h]" in figures["waiting"].plotly.layout.yaxis.title.text else 1 / DAY_S
    assert list(box.median) == pytest.approx([scale * one for one in table["median"]])


def slowdowns(folder, end="end_s"):
    return [
        (int(row["accelerators"]),
         max(float(row[end]) - float(row["submit_s"]), 10) / max(float(row["work_s"]), 10))
        for row in rows_of(folder, "jobs.csv") if row[end]
    ]  # fmt: skip


def test_slow_downs_are_of_jobs_that_ended(figures, folder, data):
    table, found = figures["slowdown"].table, slowdowns(folder)
    assert table["num_jobs"].sum() == len(found) == data.document["num_ended"] < data.document["num_jobs"]
    mean = sum(row["mean"] * row["num_jobs"] for row in table.to_dicts()) / len(found)
    assert mean == pytest.approx(statistics.fmean(one for _, one in found))
    assert mean == pytest.approx(data.document["slowdown"]["mean"])


def test_slow_downs_without_network_are_a_box_beside(neighbours):
    found = load_jobs(neighbours)
    figure = next(one for section in jobs_page(found).sections for one in section.figures if one.name == "slowdown")
    for name, end, means in (
        ("beside neighbours", "end_s", found.document["slowdown"]),
        ("without network", "end_without_network_s", found.document["without_network"]["slowdown"]),
    ):
        table, plain = figure.table.filter(of=name), slowdowns(neighbours, end)
        assert table["accelerators"].to_list() == ["4", "6"]
        assert table["mean"][1] == pytest.approx(statistics.fmean(one for size, one in plain if size == 6))
        assert means["mean"] == pytest.approx(statistics.fmean(one for _, one in plain))
    beside, without = (figure.table.filter(of=one)["mean"][1] for one in ("beside neighbours", "without network"))
    assert beside > without >= 1
    goodput = next(one for section in jobs_page(found).sections for one in section.figures if one.name == "goodput")
    assert len(goodput.plotly.data) == 2


def test_hours_and_goodput_are_sums_over_jobs_csv(figures, folder, data):
    jobs = rows_of(folder, "jobs.csv")
    hours = {
        cause: sum(float(row[f"{cause}_s"]) * int(row["accelerators"]) for row in jobs) / 3_600 for cause in CAUSES
    }
    table = figures["hours"].table
    assert table["cause"].to_list() == [cause for cause in CAUSES if hours[cause] > 0]
    for row in table.to_dicts():
        assert row["accelerator_hours"] == pytest.approx(hours[row["cause"]])
        assert row["share"] == pytest.approx(hours[row["cause"]] / sum(hours.values()))
    held = sum(value for cause, value in hours.items() if cause != "waiting")
    running = hours["useful"] + hours["slower"]
    wanted = {
        "scheduling": held / (256 * 6 * 24), "runtime": running / held, "program": hours["useful"] / running,
        "whole": hours["useful"] / (256 * 6 * 24),
    }  # fmt: skip
    found = {row["factor"]: row["share"] for row in figures["goodput"].table.to_dicts()}
    assert found == pytest.approx(wanted)
    assert [100 * one for one in wanted.values()] == pytest.approx(list(figures["goodput"].plotly.data[0].y))
    assert data.document["usd"] == pytest.approx(2 * 256 * 6 * 24)


def test_the_headline_says_waits_utilisation_goodput_and_price(page, data, folder):
    jobs = rows_of(folder, "jobs.csv")
    waits = [float(row["first_start_s"] or data.window_s) - float(row["submit_s"]) for row in jobs]
    mean, median, most = statistics.fmean(waits), statistics.median(waits), quantile(waits, 0.95)
    spent = sum(
        float(row[f"{cause}_s"]) * int(row["accelerators"]) for row in jobs for cause in CAUSES if cause != "waiting"
    )
    text = " ".join(page.headline)
    half, least = format_time(median), format_time(most)
    assert (
        f"Jobs wait {format_time(mean)} on average; half of the jobs wait at most {half}, 95% wait at most {least}."
        in text
    )
    assert "73,728 USD" in text  # 2 x 256 x 6 x 24
    unfinished = sum(not row["end_s"] for row in jobs)
    assert (
        f"{unfinished} jobs had not ended at the end of the window, {sum(not one['first_start_s'] for one in jobs)}"
        in text
    )
    assert f"Jobs hold {spent / (256 * 6 * DAY_S):.1%} of the time of all accelerators" in text
    useful = sum(float(row["useful_s"]) * int(row["accelerators"]) for row in jobs)
    assert f"Goodput is {useful / (256 * 6 * DAY_S):.1%}" in text


@pytest.mark.parametrize(
    ("mean", "median", "p95", "said"),
    [
        (0.0, 0.0, 0.0, "No job waits."),
        (30.0, 0.0, 0.0, "Jobs wait 30 s on average, and 95% of them do not wait."),
        (600.0, 0.0, 7_200.0, "Jobs wait 10 min on average; half of the jobs do not wait, 95% wait at most 2 h."),
    ],
)
def test_waits_of_nothing_are_said_in_words(mean, median, p95, said, data):
    wait = {"mean": mean, "median": median, "p95": p95}
    assert jobs_page(dataclasses.replace(data, document=data.document | {"wait_s": wait})).headline[0] == said


def placed(folder):
    return [
        (row["job"], float(row["start_s"]), float(row["end_s"]),
         {one for text in row["accelerators"].split()
          for one in range(int(text.partition("-")[0]), int(text.partition("-")[2] or text.partition("-")[0]) + 1)})
        for row in rows_of(folder, "placements.csv")
    ]  # fmt: skip


def test_placements_hold_the_hours_that_the_cluster_gave(folder, data):
    found = placed(folder)
    held = sum((end - start) * len(members) for job, start, end, members in found if job)
    assert held / 3_600 == pytest.approx(data.document["cluster_accelerator_hours"]["held"])
    assert any(not job for job, *_ in found)


def test_the_map_shows_who_held_each_board_at_its_moments(figures, folder):
    names = [row["name"] for row in rows_of(folder, "jobs.csv")]
    found, heat = placed(folder), figures["allocation"].plotly.data[0]
    assert (len(heat.z), len(heat.z[0])) == (64, 400)
    for k in range(0, 400, 37):
        moment = (k + 0.5) / 400 * 6 * DAY_S
        at = {one: job for job, start, end, members in found if job and start <= moment < end for one in members}
        down = {one for job, start, end, members in found if not job and start <= moment < end for one in members}
        for board in range(64):
            inside = [at[one] for one in range(4 * board, 4 * board + 4) if one in at]
            text = heat.text[board][k]
            if inside:
                assert inside.count(str(names.index(text))) == max(inside.count(one) for one in inside)
                is_pale = len(inside) < 2
                assert heat.z[board][k] == 2 + int(inside[0]) % 6 + 6 * is_pale or len(set(inside)) > 1
            else:
                assert text == ("failed" if down & set(range(4 * board, 4 * board + 4)) else "")


def test_rows_of_the_maps_table_add_up_to_its_cells(figures):
    table, heat = figures["allocation"].table, figures["allocation"].plotly.data[0]
    coloured = sum(one != 0 for row in heat.z for one in row)
    assert (table["to_day"] - table["from_day"]).sum() == pytest.approx(coloured * 6 / 400)
    assert table["is_failed"].any()


def test_boards_are_drawn_where_the_queue_was_longest(figures, data):
    table = figures["boards"].table
    assert table["day"].n_unique() == len([one for one in figures["boards"].plotly.data if one.type == "heatmap"]) >= 3
    assert len(table) == 64 * table["day"].n_unique()
    queue = figures["queue"].table.sort("jobs_waiting", descending=True, maintain_order=True).row(0, named=True)
    titles = {note.text for note in figures["boards"].plotly.layout.annotations}
    day = (queue["from_day"] + queue["to_day"]) / 2
    assert any(text.startswith(f"day {day:,.2f}<br>") and "longest queue" in text for text in titles)
    fullest = figures["states"].table.sort("held", descending=True, maintain_order=True).row(0, named=True)
    assert any(text.startswith(f"day {(fullest['from_day'] + fullest['to_day']) / 2:,.2f}") for text in titles)


def test_many_servers_and_long_windows_are_thinned(folder, data, monkeypatch):
    from rostam_py.report.jobs import allocation_figure, stretches

    monkeypatch.setattr(allocation_figure, "MOST_ROWS", 20)
    monkeypatch.setattr(stretches, "MOST", 50)
    figure = allocation_figure.allocation_figure(data)
    assert len(figure.plotly.data[0].z) == 16
    assert "Every 4th of the 64 boards is drawn." in figure.caption
    assert set(figure.table["board"].to_list()) <= set(range(0, 64, 4))
    means = stretches.stretches(data)
    assert len(means) <= 50
    whole = sum((row["to_day"] - row["from_day"]) * row["held"] for row in means.to_dicts()) * 24
    assert whole == pytest.approx(data.document["cluster_accelerator_hours"]["held"])


def test_a_map_that_is_cut_says_so(folder, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    document = json.loads((own / "result.json").read_text())
    document["placements"] = {"num_left_out": 7, "until_s": 3 * DAY_S}
    (own / "result.json").write_text(json.dumps(document))
    found = {one.name: one for section in jobs_page(load_jobs(own)).sections for one in section.figures}
    assert "The map ends on day 3.0" in found["allocation"].caption
    assert "7 later starts of jobs are not in it" in found["allocation"].caption
    assert found["allocation"].table["to_day"].max() <= 3 + 1e-9
    assert found["boards"].table["day"].max() < 3


def test_the_page_is_written_with_the_folder_and_again_to_the_same_bytes(folder, figures, tmp_path):
    first = (folder / "report.html").read_bytes()
    assert len(first) < 7_000_000
    again = write_report(folder, out=tmp_path / "again.html").read_bytes()
    assert first == again
    assert len(write_static(list(figures.values()), tmp_path, ["svg"])) == len(figures)


def test_jobs_that_take_no_time_have_a_page_without_days(tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_s,gpus,duration_s\n0,4,0\n0,2,0\n")
    jobs = [f"fleet.jobs={tmp_path / 'jobs.csv'}", "fabric=cluster_64", "fleet.faults=none", f"out={tmp_path / 'out'}"]
    assert main(["fleet", *jobs]) == 0
    names = [one.name for section in jobs_page(load_jobs(tmp_path / "out")).sections for one in section.figures]
    assert names == ["waiting", "slowdown", "hours", "goodput"]
    assert (tmp_path / "out" / "report.html").exists()


def test_names_that_are_markup_stay_text(tmp_path):
    (tmp_path / "jobs.csv").write_text("name,submit_s,gpus,duration_s\n<b>x</b>$a$,0,4,600\n12,0,2,600\n")
    jobs = [f"fleet.jobs={tmp_path / 'jobs.csv'}", "fabric=cluster_64", "fleet.faults=none", f"out={tmp_path / 'out'}"]
    assert main(["fleet", *jobs, "report=false"]) == 0
    found = load_jobs(tmp_path / "out")
    heat = next(one for section in jobs_page(found).sections for one in section.figures if one.name == "allocation")
    assert heat.plotly.data[0].text[0][0] == "&lt;b&gt;x&lt;/b&gt;&#36;a&#36;"
    assert heat.table["job"][0] == "<b>x</b>$a$"


def test_damaged_folders_are_refused_with_what_is_wrong(folder, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    document = json.loads((own / "result.json").read_text())
    assert (document["format"], document["version"]) == ("rostam-jobs", 1)
    (own / "result.json").write_text(json.dumps(document | {"version": 99}))
    assert is_jobs_folder(own)
    with pytest.raises(ConfigError, match="has version 99; this rostam reads version 1"):
        write_report(own)
    (own / "result.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        write_report(own)
    (own / "result.json").write_text(json.dumps(document))
    text = (own / "placements.csv").read_text()
    (own / "placements.csv").write_text(text.replace("\n0,", "\nx,", 1))
    with pytest.raises(ConfigError, match=r"placements\.csv is damaged"):
        write_report(own)
    (own / "placements.csv").write_text("job,start_s,end_s,accelerators\n0,0.0,600000.0,0-x\n")
    with pytest.raises(ConfigError, match="own"):
        write_report(own)
    (own / "placements.csv").unlink()
    with pytest.raises(ConfigError, match=r"placements\.csv is missing"):
        write_report(own)


@pytest.mark.skipif(CHROMIUM is None, reason="needs the chromium binary")
def test_the_browser_draws_every_figure_in_silence(folder, figures, tmp_path):
    def use(page):
        page.wait_for_selector("html[data-ready=true]")
        cut = on_a_phone(page)
        drawn, failed = (page.locator(one).count() for one in ("figure.card .main-svg", ".plot.failed"))
        return drawn, failed, cut, page.evaluate("document.documentElement.scrollWidth")

    seen = open_page(write_report(folder, out=tmp_path / "page.html"), tmp_path, use)
    assert seen.console == []
    assert seen.requests == []
    assert seen.used[0] >= len(figures)
    assert seen.used[1:] == (0, [], 390)
