"""Figures of sweeps: the numbers drawn are the points' numbers, chosen as the captions say."""

import polars as pl
import pytest

from rostam_py.report.sweep.cost_figures import pareto_front
from rostam_py.report.sweep.figures import sweep_figures
from rostam_py.report.sweep.headline import sweep_headline
from rostam_py.report.sweep.load import SweepData, load_sweep
from rostam_py.report.sweep.reading import BANDWIDTH, Reading


@pytest.fixture(scope="module")
def data(run_sweep, tmp_path_factory):
    return load_sweep(run_sweep(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def figures(data):
    return {figure.name: figure for figure in sweep_figures(data)}


@pytest.fixture(scope="module")
def mix_figures_by_name(mix_sweep, tmp_path_factory):
    data = load_sweep(mix_sweep(tmp_path_factory.mktemp("mix")))
    return data, {figure.name: figure for figure in sweep_figures(data)}


def _small(rows, axes, mode="run"):
    """A sweep from rows; axes maps axis to labels; every row is an "ok" point."""
    table = pl.DataFrame(rows).with_row_index("index").with_columns(
        pl.col("index").cast(pl.Int64), pl.col("index").cast(pl.String).alias("key"), pl.lit("ok").alias("status")
    )  # fmt: skip
    axes = [{"key": key, "labels": [str(label) for label in labels]} for key, labels in axes.items()]
    return SweepData({"version": 1, "mode": mode, "axes": axes, "title": "small"}, table)


def test_a_sweep_of_runs_has_every_figure_for_every_model(figures):
    kinds = ("time-to-accuracy", "strategy", "breakdown", "cost-network_usd", "memory")
    assert set(figures) == {f"{kind}-{model}" for kind in kinds for model in ("resnet50", "gpt_1_3b")} | {"errors"}
    assert all(len(figure.caption) > 40 and len(figure.table) for figure in figures.values())


def test_each_place_shows_the_best_setting_by_its_middle_seed(data, figures):
    # torus_8x8 at 400 Gb/s: two degrees of tp, three seeds each; the lesser of the two medians is drawn.
    rows = data.finished().filter(model="resnet50", fabric="torus_8x8").filter(pl.col(BANDWIDTH) == 50e9)
    medians = rows.group_by("strategy.tp").agg(pl.col("time_to_accuracy_s").median(), pl.len())
    assert medians["len"].to_list() == [3, 3]
    drawn = figures["time-to-accuracy-resnet50"].table.filter(fabric="torus_8x8").filter(pl.col(BANDWIDTH) == 50e9)
    assert drawn["time_to_accuracy_s"].item() == pytest.approx(medians["time_to_accuracy_s"].min())
    of_best = rows.filter(pl.col("strategy") == drawn["strategy"].item())["time_to_accuracy_s"]
    assert drawn["time_to_accuracy_s_min"].item() == of_best.min()
    assert drawn["time_to_accuracy_s_max"].item() == of_best.max()
    assert (drawn["num_seeds"].item(), drawn["num_settings"].item()) == (3, 2)


def test_a_lucky_seed_does_not_make_a_setting_best():
    # tp 2 is 1 s once and 9 s twice; tp 1 is always 5 s: its median is less.
    times = {1: [5.0, 5.0, 5.0], 2: [1.0, 9.0, 9.0]}
    rows = [{"model": "m", "fabric": "f", "strategy.tp": str(tp), "seed": str(seed), "samples_per_s": 1 / time}
            for tp, of_tp in times.items() for seed, time in enumerate(of_tp)]  # fmt: skip
    data = _small(rows, {"model": ["m"], "fabric": ["f"], "strategy.tp": [1, 2], "seed": [0, 1, 2]})
    found = Reading(data)
    assert found.line == "strategy.tp"  # the only axis that varies and is no seed
    assert found.models[0].best["time_per_sample_s"].to_list() == [5.0, 9.0]


def test_failed_points_are_counted_and_not_drawn(data, figures):
    errors = figures["errors"].table.to_dicts()
    assert [(row["error_type"], row["num_points"]) for row in errors] == [("MemoryCapacityError", 2)]
    failed = set(data.failed()["key"])
    for name, figure in figures.items():
        if name != "errors" and "key" in figure.table.columns:
            assert not failed & set(figure.table["key"])


def test_drawn_lines_are_the_tables_numbers(figures):
    figure = figures["time-to-accuracy-gpt_1_3b"]
    for trace in figure.plotly.data:
        if trace.mode == "lines+markers":
            rows = figure.table.filter(fabric=trace.name)
            assert list(trace.x) == pytest.approx((rows[BANDWIDTH] * 8e-9).to_list())
            assert list(trace.y) == pytest.approx((rows["time_to_accuracy_s"] / 3600).to_list())  # drawn in hours


def test_the_breakdown_adds_up_to_the_iteration(figures):
    table = figures["breakdown-resnet50"].table
    parts = [name for name in table.columns if name.startswith(("compute", "launch", "exposed", "bubble"))]
    assert table.select(pl.sum_horizontal(parts)).to_series().to_list() == pytest.approx(
        table["iteration_time_s"].to_list()
    )


def test_strategy_ratios_are_one_at_the_best_of_each_column(figures):
    table = figures["strategy-resnet50"].table
    assert table.group_by(BANDWIDTH).agg(pl.col("ratio").min())["ratio"].to_list() == [1.0] * 4
    assert (table["ratio"] >= 1).all()


def test_memory_and_capacity_are_in_one_unit_that_suits_the_larger():
    rows = [{"model": "m", "fabric": name, "samples_per_s": 1.0, "memory_bytes": size, "accelerator": "a100_80gb"}
            for name, size in (("a", 8 * 10**8), ("b", 9 * 10**9))]  # fmt: skip
    figure = next(one for one in sweep_figures(_small(rows, {"fabric": ["a", "b"]})) if one.name == "memory-m")
    assert figure.plotly.layout.xaxis.title.text == "memory per device [GB]"
    assert figure.plotly.layout.annotations[0].text == "a100_80gb: 85.9 GB"


def test_labels_of_capacities_that_are_close_together_stand_above_one_another():
    rows = [{"model": "m", "fabric": name, "samples_per_s": 1.0, "memory_bytes": 7 * 10**10, "accelerator": name}
            for name in ("a100_80gb", "h100_80gb", "h100_96gb")]  # fmt: skip
    names = [row["fabric"] for row in rows]
    figure = next(one for one in sweep_figures(_small(rows, {"fabric": names})) if one.name == "memory-m")
    labels = [one for one in figure.plotly.layout.annotations if "GB" in str(one.text)]
    assert len(labels) == 3
    heights = sorted(one.yshift for one in labels)
    assert all(b - a >= 15 for a, b in zip(heights, heights[1:], strict=False))
    assert figure.plotly.layout.margin.t >= heights[-1] + 15  # and inside the figure


def test_capacity_far_above_all_memory_is_said_and_not_drawn():
    rows = [{"model": "m", "fabric": "a", "samples_per_s": 1.0, "memory_bytes": 4 * 10**8, "accelerator": "a100_80gb"}]
    figure = next(one for one in sweep_figures(_small(rows, {"fabric": ["a"]})) if one.name == "memory-m")
    assert not figure.plotly.layout.shapes
    assert "at most 0.5% of the 85.9 GB of a100_80gb" in figure.caption


def test_memory_stands_beside_the_data_sheets_capacity(figures):
    assert figures["memory-gpt_1_3b"].table["capacity_bytes"].unique().to_list() == [85_899_345_920]


def test_the_pareto_front_is_what_nobody_beats_in_both():
    # (cost, time): b is beaten by a in time at equal cost, d by c in cost at equal time, f by e in both.
    table = pl.DataFrame({"cost": [1.0, 1.0, 2.0, 3.0, 4.0, 5.0], "time": [9.0, 10.0, 5.0, 5.0, 1.0, 2.0],
                          "name": list("abcdef")})  # fmt: skip
    assert pareto_front(table, "cost", "time")["name"].to_list() == ["a", "c", "e"]
    assert pareto_front(table.reverse(), "cost", "time")["name"].to_list() == ["a", "c", "e"]


def test_a_network_is_on_the_front_unless_another_beats_it(figures):
    table = figures["cost-network_usd-resnet50"].table
    for row in table.to_dicts():
        cost, time = pl.col("network_usd"), pl.col("time_to_accuracy_s")
        better = ((cost <= row["network_usd"]) & (time < row["time_to_accuracy_s"])) | (
            (cost < row["network_usd"]) & (time <= row["time_to_accuracy_s"])
        )
        assert row["on_front"] == (len(table.filter(better)) == 0)
    assert table.filter("on_front")[BANDWIDTH].n_unique() > 1


def _networks(*rows):
    """A sweep of fabrics: name, bandwidth [Gb/s], seconds, dollars and, if not a tree, kind."""
    table = [{"model": "m", "fabric": name, BANDWIDTH: bandwidth * 1e9 / 8, "samples_per_s": 1 / time,
              "network_usd": usd, "fabric_kind": kind[0] if kind else "fat_tree"}
             for name, bandwidth, time, usd, *kind in rows]  # fmt: skip
    return _small(table, {"fabric": dict.fromkeys(row[0] for row in rows)})


def _priced(data):
    return next((figure for figure in sweep_figures(data) if figure.name == "cost-network_usd-m"), None)


def test_one_front_of_network_prices_joins_all_bandwidths():
    # Thin at 800 beats wide at 400 in both; every other network is the cheapest of those that are as fast.
    data = _networks(
        ("wide", 400, 4.0, 9e5), ("thin", 400, 5.0, 1e5), ("wide", 800, 2.0, 18e5), ("thin", 800, 3.0, 2e5)
    )
    figure = _priced(data)
    assert figure.table.sort("network_usd")["on_front"].to_list() == [True, True, False, True]
    fronts = [trace for trace in figure.plotly.data if trace.name == "Pareto front"]
    assert [list(trace.y) for trace in fronts] == [[5.0, 3.0, 2.0]]


def test_price_figures_say_what_the_prices_are_of():
    figure = _priced(_networks(("a", 400, 4.0, 9e5), ("b", 400, 5.0, 1e5)))
    assert figure.plotly.layout.xaxis.title.text == "price of the network in 400 Gb/s parts [thousand US$ of 2022]"
    assert "ceil(bandwidth / 400 Gb/s) of them per link and plane" in figure.caption


def test_networks_that_the_price_list_does_not_cover_are_not_drawn():
    rows = [("a", 400, 4.0, 9e5), ("b", 400, 5.0, 1e5),
            ("servers", 400, 4.5, 2e4, "electrical_cluster"), ("ideal", 400, 3.0, None, "electrical_flat")]  # fmt: skip
    figure = _priced(_networks(*rows))
    assert figure.table["fabric"].to_list() == ["b", "a"]
    assert "have no price: ideal." in figure.caption
    assert "only partly on the list: servers." in figure.caption


@pytest.mark.parametrize(
    ("other", "is_said"),
    [
        (("near", 800, 1.05, 5e5), True), (("near", 400, 1.05, 5e5), True),
        (("near", 800, 1.05, 5e5, "electrical_cluster"), False), (("near", 800, 1.05, 3e6), False),
    ],
)  # fmt: skip
def test_the_headline_compares_prices_of_networks_that_the_list_covers(other, is_said):
    said = sweep_headline(_networks(("fast", 800, 1.0, 2e6), ("fast", 400, 2.0, 2e6), other))[0]
    where = f"near at {other[1]} Gb/s, US$ 500 thousand against US$ 2 million"
    assert (where in said) == is_said
    assert ("ceil(bandwidth / 400 Gb/s) of them per link and plane" in said) == is_said


def test_cost_that_is_only_time_in_other_units_is_not_drawn(figures):
    assert not [name for name in figures if "accelerator_hours" in name or "cost_usd" in name]


def test_without_a_curve_time_per_sample_is_drawn(run_sweep, tmp_path):
    data = load_sweep(run_sweep(tmp_path, seeds=1, convergence=False, mode="search", num_errors=0))
    figures = {figure.name: figure for figure in sweep_figures(data)}
    table = figures["time-per-sample-resnet50"].table
    best = data.table.filter(model="resnet50")["samples_per_s"].max()
    assert table["time_per_sample_s"].min() == pytest.approx(1 / best)
    assert "errors" not in figures


def test_without_bandwidths_time_is_against_size_and_without_sizes_a_bar_a_case():
    rows = [{"model": "m", "fabric": fabric, "num_accelerators": size, "samples_per_s": size / slow}
            for fabric, slow in (("a", 1.0), ("b", 2.0)) for size in (16, 64)]  # fmt: skip
    axes = {"fabric": ["a", "b"], "num_accelerators": [16, 64]}
    sized = _small(rows, axes)
    assert Reading(sized).x == "num_accelerators"
    assert sweep_figures(sized)[0].title == "m: time per sample against size"
    cases = _small(rows[::2], {"fabric": ["a", "b"]})
    assert Reading(cases).x is None
    figure = sweep_figures(cases)[0]
    assert figure.title == "m: time per sample by case"
    assert list(figure.plotly.data[0].y) == ["a", "b"]


def test_of_many_cases_the_fastest_are_drawn_and_the_caption_says_so():
    rows = [{"model": "m", "case": f"case {one}", "samples_per_s": 1.0 / (1 + one)} for one in range(50)]
    figure = sweep_figures(_small(rows, {"case": [f"case {one}" for one in range(50)]}))[0]
    assert figure.table["case"].to_list() == [f"case {one}" for one in range(21)]
    assert "21 fastest of 50" in figure.caption


def test_many_marks_are_thinned_with_the_front_whole_and_the_caption_says_so():
    rows = [{"model": "m", "fabric": "f", "x": str(one), "samples_per_s": 1.0 + (one * 7919) % 4999,
             "network_usd": 1.0 + (one * 104_729) % 5003} for one in range(5000)]  # fmt: skip
    data = _small(rows, {"fabric": ["f"], "x": range(5000), "model": ["m"]})
    data.manifest["axes"][0]["key"] = "case"
    data = SweepData(data.manifest, data.table.with_columns(pl.col("fabric").alias("case")))
    figure = next(one for one in sweep_figures(data) if one.name.startswith("cost"))
    whole = pareto_front(data.table.with_columns((1 / pl.col("samples_per_s")).alias("t")), "network_usd", "t")
    assert set(figure.table.filter("on_front")["key"]) == set(whole["key"])
    assert len(figure.table) <= 1600 + len(whole)
    assert f"{len(figure.table):,} of 5,000 marks" in figure.caption


def test_a_mix_shows_its_slowdowns_by_size_and_model(mix_figures_by_name):
    data, figures = mix_figures_by_name
    names = ["slowdown-by-num-jobs", "slowdown-by-model", "slowdown-distribution", "slowdown-ideal-by-num-jobs"]
    assert list(figures) == names
    jobs = data.table.select("routing", "num_jobs", "jobs").explode("jobs").unnest("jobs")
    of_five = jobs.filter(routing="hash", num_jobs=5)["slowdown"]
    row = figures["slowdown-by-num-jobs"].table.filter(routing="hash", num_jobs=5).to_dicts()[0]
    assert row["median"] == pytest.approx(of_five.median())
    assert (row["least"], row["most"], row["num_values"]) == (of_five.min(), of_five.max(), 100)


def test_jobs_alone_are_not_slowed_down(mix_figures_by_name):
    table = mix_figures_by_name[1]["slowdown-by-num-jobs"].table.filter(num_jobs=1)
    assert table["most"].to_list() == [1.0, 1.0]


def test_the_headline_names_the_fastest_and_the_gap(data):
    said = sweep_headline(data)[0]
    best = data.finished().filter(model="resnet50").group_by("fabric", BANDWIDTH, "strategy.tp").agg(
        pl.col("time_to_accuracy_s").sort().get((pl.len() - 1) // 2)
    ).sort("time_to_accuracy_s")  # fmt: skip
    assert f"resnet50: {best['fabric'][0]} at 3,200 Gb/s" in said
    assert "From 400 Gb/s to 3,200 Gb/s it gains" in said


def test_the_headline_names_a_cheaper_network_that_is_nearly_as_fast():
    rows = [{"model": "m", "fabric": fabric, "samples_per_s": 1 / time, "network_usd": cost}
            for fabric, time, cost in (("fast", 1.0, 2e6), ("near", 1.05, 5e5), ("slow", 2.0, 1e5))]  # fmt: skip
    said = sweep_headline(_small(rows, {"fabric": ["fast", "near", "slow"]}))[0]
    assert "within 10% of that time: near, US$ 500 thousand against US$ 2 million, 1.05x as long" in said


def test_a_sweep_of_which_nothing_finished_still_says_why(run_sweep, tmp_path):
    data = load_sweep(run_sweep(tmp_path, seeds=1, num_errors=80))
    assert [figure.name for figure in sweep_figures(data)] == ["errors"]
    assert "No point of this sweep finished" in sweep_headline(data)[0]


def _lines(**times):
    """Lines over three bandwidths by their times at each."""
    rows = [{"model": "m", "fabric": fabric, BANDWIDTH: 50e9 * 2**k, "samples_per_s": 1 / one, "num_accelerators": 8}
            for fabric, given in times.items() for k, one in enumerate(given)]  # fmt: skip
    data = _small(rows, {"model": ["m"], "fabric": list(times)})
    return next(figure for figure in sweep_figures(data) if figure.name == "time-per-sample-m")


def test_a_line_under_another_is_broader_so_that_both_are_seen():
    # flat and tree differ by 0.1%, of an axis that spans a factor of 8; the torus goes its own way.
    figure = _lines(flat=(4.0, 2.0, 1.0), tree=(4.004, 2.002, 1.001), torus=(8.0, 6.0, 5.0))
    flat, tree, torus = figure.plotly.data
    assert flat.line.width > tree.line.width == torus.line.width
    assert flat.marker.size > tree.marker.size == torus.marker.size
    assert "A line that others lie on is drawn broader" in figure.caption


def test_lines_apart_are_all_alike():
    figure = _lines(flat=(4.0, 2.0, 1.0), tree=(5.0, 3.0, 2.0))
    assert len({(one.line.width, one.marker.size) for one in figure.plotly.data}) == 1
    assert "broader" not in figure.caption


def test_marks_off_the_front_are_open_and_as_opaque_as_those_on_it(figures):
    figure = figures["cost-network_usd-resnet50"]
    marks = [trace for trace in figure.plotly.data if trace.mode == "markers"]
    symbols = [symbol for trace in marks for symbol in trace.marker.symbol]
    assert sum(not symbol.endswith("-open") for symbol in symbols) == figure.table["on_front"].sum()
    assert 0 < sum(symbol.endswith("-open") for symbol in symbols) < len(symbols)
    assert {trace.marker.opacity for trace in marks} == {1}
    assert min(size for trace in marks for size in trace.marker.size) >= 6
    assert "filled on the front, open off it" in figure.caption


def test_bars_stand_below_a_heading_for_each_bandwidth(figures):
    axis = figures["memory-resnet50"].plotly.layout.yaxis
    shown = [text.strip("\u00a0") for text in axis.ticktext]
    assert shown[:7] == ["<b>400 Gb/s</b>", "tree_64", "tapered_tree_64", "torus_8x8", "hx2mesh_8x8", "flat_64",
                         "<b>800 Gb/s</b>"]  # fmt: skip
    assert axis.range == (len(shown) - 0.5, -0.5)


def test_captions_name_the_routing_unless_the_lines_do():
    rows = [{"model": "m", "fabric": fabric, BANDWIDTH: 50e9 * 2**k, "samples_per_s": 1.0 + k, "num_accelerators": 8,
             "routing": "spray"} for fabric in ("tree", "torus") for k in range(2)]  # fmt: skip
    axes = {"model": ["m"], "fabric": ["tree", "torus"]}
    captions = {figure.name: figure.caption for figure in sweep_figures(_small(rows, axes))}
    assert all("Routing: spray." in caption for caption in captions.values())
    mixed = [row | {"routing": "hash" if row["fabric"] == "tree" else "spray"} for row in rows]
    figures = {figure.name: figure for figure in sweep_figures(_small(mixed, axes))}
    assert "Routings differ between points: hash, spray." in figures["time-per-sample-m"].caption
    assert "routing hash" in figures["time-per-sample-m"].plotly.data[0].hovertext[0]
    named = [row | {"algorithms": f"dp all_reduce {'ring' if row['fabric'] == 'tree' else 'torus_2d'}"} for row in rows]
    figure = next(one for one in sweep_figures(_small(named, axes)) if one.name == "time-per-sample-m")
    assert "Algorithms differ between points: dp all_reduce ring | dp all_reduce torus_2d." in figure.caption
    assert "dp all_reduce ring" in figure.plotly.data[0].hovertext[0]
    assert figure.table["algorithms"].n_unique() == 2
    alone = [row | {"fabric": "tree", "routing": routing} for routing in ("hash", "spray") for row in rows[:2]]
    data = _small(alone, {"model": ["m"], "routing": ["hash", "spray"]})
    assert Reading(data).line == "routing"
    assert all("outing" not in figure.caption for figure in sweep_figures(data))
