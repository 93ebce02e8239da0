"""Figures of a single run: they show the document's numbers, draw on both engines, and hide nothing hot."""

import copy
import json

import numpy as np
import polars as pl
import pytest

import rostam_py as rostam
from rostam_py.fabrics import FABRICS, example_fabric
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task
from rostam_py.report.run.fabric_figure import RAMP
from rostam_py.report.run.figures import run_figures
from rostam_py.report.run.headline import run_headline
from rostam_py.report.run.traffic_figure import bin_labels
from rostam_py.simulation.detail import run_detail

ALWAYS = ["breakdown-by-stage", "critical-path", "fabric", "link-utilization", "memory-by-stage"]


def make_plan(fabric, accelerators, num_bytes=10**6, name="hand", memory=10**9):
    """One millisecond of compute and an all-reduce of all accelerators."""
    tasks = (
        Task(kind="compute", name="work", kernels=(KernelTime(name="work", module="", op_type="", duration_s=1e-3),)),
        Task(kind="collective", name="gradients", deps=(0,), group="dp", collective="all_reduce", num_bytes=num_bytes),
    )[: 2 if num_bytes else 1]
    strategy = rostam.Strategy(dp=len(accelerators), allow_idle=True, accelerators=accelerators, precision="fp32")
    stage = Stage(
        index=0,
        templates={"iteration": tasks},
        program=(("iteration", 0),),
        memory=MemoryBytes(activations=memory),
        num_parameters=0,
    )
    batches = Batches(len(accelerators), 1, 1)
    return Plan.on_grid(
        name, rostam.Machine(fabric=fabric), strategy, batches, (stage,),
        np.array(accelerators).reshape(-1, 1, 1), algorithms={"all_reduce": "ring"},
    )  # fmt: skip


def tree(**changes):
    return rostam.fabric("fat_tree", num_accelerators=8, radix=4, link_bandwidth="100 Gb/s", **changes)


def make_detail(fabric=None, accelerators=(0, 1, 2, 3), **options):
    """Detail of a run on a fabric, a small tree by default."""
    fabric = fabric or tree()
    return run_detail(rostam.simulate(make_plan(fabric, list(accelerators), **options)))


@pytest.fixture(scope="module")
def detail():
    return make_detail()


@pytest.fixture(scope="module")
def mix():
    fabric = tree()
    plans = [make_plan(fabric, [0, 1, 2], name="one"), make_plan(fabric, [4, 5], name="<b>two</b>")]
    results = rostam.simulate(plans)
    rows = [
        {"name": f"job {result.plan.graph_name}", "model": result.plan.graph_name, "num_accelerators": 2,
         "start_s": 0.0, "iteration_time_s": result.iteration_time_s, "alone_s": 0.001, "ideal_s": None,
         "slowdown": result.iteration_time_s / 0.001, "slowdown_ideal": None}
        for result in results
    ]  # fmt: skip
    return run_detail(results, jobs=rows)


def named(detail, prefix=""):
    return {figure.name: figure for figure in run_figures(detail, prefix)}


def lines_of(figure):
    """Traces of lines on a fabric's drawing."""
    return [trace for trace in figure.plotly.data if trace.mode == "lines"]


@pytest.mark.parametrize("name", FABRICS.names())
def test_every_figure_is_drawn_for_every_fabric_on_both_engines(name):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    figures = run_figures(make_detail(example_fabric(name)))
    assert [figure.name for figure in figures] == [*ALWAYS[:4], "traffic", *ALWAYS[4:]]
    for figure in figures:
        assert figure.title
        assert figure.caption.endswith(".")
        assert isinstance(figure.table, pl.DataFrame)
        assert len(figure.table)
        assert json.loads(figure.plotly.to_json())["data"]
        canvas, axes = plt.subplots()
        figure.paper(axes)
        canvas.canvas.draw()
        assert axes.has_data()
        plt.close(canvas)


def test_a_prefix_makes_names_of_several_runs_unique(detail):
    names = [figure.name for prefix in ("", "gpt 1.3B on torus", "b") for figure in run_figures(detail, prefix)]
    assert len(set(names)) == len(names)
    assert "gpt-1-3b-on-torus-fabric" in names


def test_a_run_without_messages_has_no_traffic_matrix():
    assert list(named(make_detail(num_bytes=0))) == ALWAYS


def test_stacked_bars_reach_the_iteration(detail):
    figure = named(detail)["breakdown-by-stage"]
    # 1 ms of compute: drawn in milliseconds
    assert figure.plotly.layout.yaxis.title.text == "time [ms]"
    heights = sum(bar.y[0] for bar in figure.plotly.data)
    assert heights == pytest.approx(1e3 * detail["result"]["iteration_time_s"])
    kinds = [kind for kind in figure.table.columns if kind not in ("stage", "devices")]
    assert sum(figure.table[kind][0] for kind in kinds) == pytest.approx(detail["result"]["iteration_time_s"])


def test_stages_of_a_sip_ml_plan_are_called_devices(detail):
    sip = copy.deepcopy(detail)
    sip["result"]["strategy"] = {"dp": 2, "mp": 2}
    figures = named(sip)
    assert figures["memory-by-stage"].plotly.layout.xaxis.title.text == "device of a group"
    assert figures["critical-path"].plotly.layout.yaxis.title.text == "device of a group"


def test_capacity_is_a_line_where_memory_comes_near_it():
    # 80 GiB: 40 GB is near, 1 GB is not
    for memory, is_line in ((40 * 10**9, True), (10**9, False)):
        figure = named(make_detail(memory=memory))["memory-by-stage"]
        assert bool(figure.plotly.layout.shapes) == is_line
        assert "85.9 GB" in figure.caption


def test_the_timeline_covers_the_iteration_and_shares_sum_to_one(detail):
    figure = named(detail)["critical-path"]
    timeline = [bar for bar in figure.plotly.data if bar.xaxis in (None, "x")]
    shares = [bar for bar in figure.plotly.data if bar.xaxis == "x2"]
    assert sum(sum(bar.x) for bar in timeline) == pytest.approx(1e3 * detail["result"]["iteration_time_s"])
    assert sum(bar.x[0] for bar in shares) == pytest.approx(1)
    # bars of shares follow one another
    assert [bar.base[0] for bar in shares[1:]] == pytest.approx(
        [bar.base[0] + bar.x[0] for bar in shares[:-1]], abs=1e-12
    )


def test_shares_and_tasks_of_the_critical_path_are_drawn_to_one_scale(detail):
    layout = named(detail)["critical-path"].plotly.layout
    assert layout.xaxis2.range == layout.xaxis3.range == (0, 1)
    assert layout.xaxis2.domain == layout.xaxis3.domain
    total, task = sum(detail["result"]["critical_path_s"].values()), detail["result"]["critical_tasks"][0]
    assert any(one.text.endswith(f"x: {task['duration_s'] / total:.1%}") for one in layout.annotations)


def test_kinds_that_have_no_colour_are_drawn_and_named(detail):
    strange = copy.deepcopy(detail)
    for table in (strange["critical_path"], strange["result"]["critical_tasks"]):
        table[0]["kind"] = "moonlight"
    strange["result"]["critical_path_s"] = {"compute": 0.001, "mp_gradient": 0.001, "moonlight": 0.002}
    shares = [bar for bar in named(strange)["critical-path"].plotly.data if bar.xaxis == "x2"]
    assert [bar.hovertext[0].split(":")[0] for bar in shares] == [
        "<b>compute</b>", "<b>model-parallel gradients</b>", "<b>moonlight</b>",
    ]  # fmt: skip


def test_the_hottest_link_has_the_last_colour_and_lies_on_top(detail):
    hottest = copy.deepcopy(detail)
    links = hottest["drawing"]["planes"][0]["links"]
    for link in links:
        link["max_utilization"] = link["utilization"] = 0.01
    links[3]["max_utilization"] = 0.97
    figure = named(hottest)["fabric"]
    traces = lines_of(figure)
    assert traces[-1].line.color == RAMP[-1]
    assert len([x for x in traces[-1].x if x is None]) == 1  # one link
    assert traces[-1].line.width > traces[0].line.width
    assert figure.table["max_utilization"].max() == 0.97
    touch = next(trace for trace in figure.plotly.data if trace.marker.showscale)
    assert sum("97.00%" in text for text in touch.hovertext) == 0  # a single link is its own maximum
    links[3]["count"] = 2
    touch = next(trace for trace in named(hottest)["fabric"].plotly.data if trace.marker.showscale)
    assert sum("2 links, the busiest 97.00%" in text for text in touch.hovertext) == 1


def test_a_drawing_says_bytes_and_names_of_both_directions_where_touched(detail):
    figure = named(detail)["fabric"]
    touch = next(trace for trace in figure.plotly.data if trace.marker.showscale)
    text = next(text for text in touch.hovertext if "accelerator 0 -> leaf 0" in text)
    # a ring of four: 2 (3/4) of 1 MB out of and into every accelerator
    assert "leaf 0 -> accelerator 0" in text
    assert text.count("1.5 MB") == 2


def test_kinds_of_vertices_are_in_the_legend(detail):
    legend = [trace.name for trace in named(detail)["fabric"].plotly.data if trace.name]
    assert legend == ["accelerator", "idle accelerator", "leaf", "spine"]


def test_failed_links_are_dotted(detail):
    failed = copy.deepcopy(detail)
    for link in failed["drawing"]["planes"][0]["links"]:
        if {link["source"], link["target"]} == {0, 8}:
            link.update(num_bytes=0, utilization=0.0, max_utilization=0.0, num_failed=1)
    figure = named(failed)["fabric"]
    assert lines_of(figure)[0].line.dash == "dot"
    assert "Failed parts are dotted" in figure.caption


def test_a_pair_that_has_lost_one_of_two_links_is_dashed():
    # 16 accelerators, radix 8: leaves have two cables to each spine; hosts are cables 0 to 15.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8).with_failures(links=[16])
    figure = named(make_detail(fabric, range(16)))["fabric"]
    dashed = [line for line in lines_of(figure) if line.line.dash == "dash"]
    assert [line.line.dash for line in lines_of(figure) if line.line.dash == "dot"] == []
    assert len(dashed) == 1
    assert len([x for x in dashed[0].x if x is None]) == 1  # one pair


def test_marks_of_switches_do_not_cover_one_another():
    fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=(6, 6), radix=8)
    plot = named(make_detail(fabric))["fabric"].plotly
    (x0, x1), (y0, y1) = plot.layout.xaxis.range, plot.layout.yaxis.range
    pixels = min(460 / (x1 - x0), (plot.layout.height - 120) / (y1 - y0))  # a drawing beside another is 460 wide
    marks = [t for t in plot.data if t.name and ("switch" in t.name or "spine" in t.name)]
    places = sorted((x, y, size) for t in marks for x, y, size in zip(t.x, t.y, t.marker.size, strict=True))
    assert len(places) == 6 * 2 * 5 * 2  # a tree of 3 leaves and 2 spines for each line of accelerators
    for k, (x, y, size) in enumerate(places):
        for other_x, other_y, other in places[k + 1 :]:
            apart = max(abs(other_x - x), abs(other_y - y)) * pixels
            assert apart >= (size + other) / 2 * 0.9 or size <= 3


@pytest.mark.parametrize(("load", "place"), [(0.01, 0), (0.35, 3), (0.97, 9), (1.0, 9)])
def test_colours_span_0_to_100_percent_whatever_the_busiest_link(detail, load, place):
    """A network at 1% load is pale, not red."""
    one = copy.deepcopy(detail)
    for link in one["drawing"]["planes"][0]["links"]:
        link.update(utilization=load, max_utilization=load)
    figure = named(one)["fabric"]
    assert {line.line.color for line in lines_of(figure)} == {RAMP[place]}
    bar = next(trace.marker for trace in figure.plotly.data if trace.marker and trace.marker.showscale)
    assert (bar.cmin, bar.cmax) == (0, 100)


def test_the_matrix_says_which_accelerators_a_cell_holds(detail):
    assert bin_labels(1, 3) == ["0", "1", "2"]
    assert bin_labels(8, 20) == ["0-7", "8-15", "16-19"]
    table = named(detail)["traffic"].table
    assert table.rows() == [("0", "1", 1.5e6), ("1", "2", 1.5e6), ("2", "3", 1.5e6), ("3", "0", 1.5e6)]


def test_utilization_falls_along_the_links(detail):
    figure = named(detail)["link-utilization"]
    values = figure.table["utilization"].to_list()
    assert values == sorted(values, reverse=True)
    assert figure.plotly.data[0].y[0] == pytest.approx(100 * values[0])
    assert figure.plotly.layout.yaxis.range == (0, 100)
    assert f"Routing: {detail['result']['routing']}." in figure.caption
    assert f"Routing: {detail['result']['routing']}." in named(detail)["fabric"].caption


def test_a_mix_shows_its_jobs_alone_and_together_and_by_colour(mix):
    figures = named(mix)
    assert next(iter(figures)) == "jobs"
    bars = figures["jobs"].plotly.data
    assert [bar.name for bar in bars] == ["alone", "in the mix"]
    assert list(bars[0].y) == pytest.approx([1.0, 1.0])
    legend = [trace.name for trace in figures["fabric"].plotly.data if trace.name]
    assert legend[:3] == ["job one", "job &lt;b&gt;two&lt;/b&gt;", "idle accelerator"]
    assert [tuple(x) for x in figures["breakdown-by-stage"].plotly.data[0].x] == [
        ("job one", "job &lt;b&gt;two&lt;/b&gt;"), ("0", "0"),
    ]  # fmt: skip


def test_users_names_are_never_markup(mix):
    for figure in run_figures(mix):
        assert "<b>two" not in figure.plotly.to_json()
        assert "\\u003cb\\u003etwo" not in figure.plotly.to_json()


def test_planes_that_differ_have_a_drawing_each_and_the_page_says_which_has_the_fault():
    whole = tree(planes=3)
    per_plane = whole.num_links // 3
    detail = make_detail(whole.with_failures(links=[per_plane + 8]))
    figures = named(detail)
    drawn = [name for name in figures if name.startswith("fabric")]
    assert drawn == ["fabric-plane-0", "fabric-plane-1"]
    assert [figures[name].title for name in drawn] == [
        "Link utilisation in planes 0 and 2", "Link utilisation in plane 1, with a fault",
    ]  # fmt: skip
    intact, faulty = (figures[name].caption for name in drawn)
    assert intact.startswith("Planes 0 and 2 of 3, which are alike and carry equal bytes. Every line")
    assert faulty.startswith("Plane 1 of 3. Failed there: link leaf 0 - spine 0. Every line")
    dotted = [[line.line.dash for line in lines_of(figures[name])].count("dot") for name in drawn]
    assert dotted == [0, 1]
    assert run_headline(detail)[2:] == ["Plane 1 of 3. Failed there: link leaf 0 - spine 0."]
    assert "of every plane that differs" in figures["link-utilization"].caption


def test_planes_that_are_alike_share_a_drawing_without_words_of_faults(detail):
    assert run_headline(detail)[2:] == []
    alike = make_detail(tree(planes=2))
    assert named(alike)["fabric"].caption.startswith("Planes 0 and 1 of 2, all alike. Every line")
    everywhere = make_detail(tree(planes=2).with_failures(switches=[4], planes="all"))
    caption = named(everywhere)["fabric"].caption
    assert caption.startswith("Planes 0 and 1 of 2, all alike. Failed in each: spine 0. Every line")
    assert [t.name for t in named(everywhere)["fabric"].plotly.data if t.name and "failed" in t.name] == [
        "failed spine"
    ]


def test_an_mfu_that_no_job_reached_is_said_to_be_an_upper_bound(detail):
    """Also to whom the report alone is sent; of the ideal program one sentence says so already."""
    result = detail["result"] | {"is_upper_bound": True, "highest_measured_mfu": 0.4, "mfu": 0.5}
    expected = {"jobs": 9, "of": "torchtitan", "ratio": 1.2, "iteration_time_s": 1.2, "low_s": 1.1, "high_s": 1.3}
    said = run_headline(detail | {"result": result | {"expected": expected}})
    assert "The simulated MFU of 50.0% is an upper bound: the most measured is 40.0%." in said
    assert any("expect 1.2 s (80% of such jobs: 1.1 s to 1.3 s)" in one for one in said)
    within = result | {"expected": expected, "is_upper_bound": False}
    assert not any("upper bound" in one for one in run_headline(detail | {"result": within}))
