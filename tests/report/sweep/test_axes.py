"""Any key that a point's settings have may be an axis: reports hold it, also where a result's column has its name."""

import dataclasses
import itertools

import polars as pl
import pytest

from rostam_py.report.drawing.scales import named_label
from rostam_py.report.report import sweep_page
from rostam_py.report.sinks import wandb_content
from rostam_py.report.sweep.figures import sweep_figures
from rostam_py.report.sweep.headline import sweep_headline
from rostam_py.report.sweep.load import SweepData, load_sweep
from rostam_py.report.sweep.reading import Reading
from rostam_py.spec.keys import MODES
from rostam_py.spec.settings import complete_settings
from rostam_py.sweep.columns import column_types

# Axis -> two labels, of every setting that has the name of a column.
LABELS = {
    "model": ("resnet50", "gpt_1_3b"), "accelerator": ("a100_80gb", "h100_80gb"), "num_accelerators": ("64", "128"),
    "routing": ("spray", "hash"), "seed": ("0", "1"), "cost": ("roofline", "table"), "global_batch": ("512", "1024"),
    "strategy": ("dp 64", "dp 8, tp 8"), "convergence": ("none", "mlperf"), "mode": ("run", "search"),
    "controllers": ("none", "link_bandwidth"), "software": ("pytorch", "torchtitan"),
    "jobs": ("[{'model': 'gpt_125m'}]", "[{'model': 'resnet50'}]"),
}  # fmt: skip


def _with_axis(data, key, keep_fabric):
    """The sweep with its first points cut into two halves along a new axis, as the sweep's table would hold them."""
    fabrics = data.axes["fabric"][: 2 if keep_fabric else 1] if "fabric" in data.axes else []
    axes = {"model": data.axes.get("model", [None])[:1], "fabric": fabrics, key: list(LABELS[key])}
    axes = {one: labels for one, labels in axes.items() if labels and labels != [None]}
    places = list(itertools.product(*axes.values()))
    table = data.table.filter(pl.col("status") == "ok")
    table = pl.concat([table.filter(**({"fabric": one} if "fabric" in axes else {})).head(len(LABELS[key]))
                       for one in fabrics or [None]])  # fmt: skip
    table = table.head(len(places)).with_columns(pl.int_range(len(places), dtype=pl.Int64).alias("index"))
    for place, name in enumerate(axes):
        if column_types().get(name) != "jobs":
            kind = pl.Int64 if column_types().get(name) == "int" else pl.String
            table = table.with_columns(pl.Series(name, [one[place] for one in places]).cast(kind))
    listed = [{"key": name, "labels": list(labels)} for name, labels in axes.items()]
    return dataclasses.replace(data, manifest=data.manifest | {"axes": listed, "num_points": len(places)}, table=table)


def test_every_setting_with_the_name_of_a_column_is_tried():
    settings = {key for mode in MODES for key in complete_settings({"mode": mode, "jobs": [{"model": "gpt_125m"}]})}
    assert {key for key in settings | {"num_accelerators"} if key in column_types()} == set(LABELS)


@pytest.mark.parametrize("keep_fabric", [True, False], ids=["fabrics", "alone"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", LABELS)
def test_an_axis_may_have_the_name_of_a_column(run_sweep, mix_sweep, tmp_path, key, mode, keep_fabric):
    build = {"mix": mix_sweep}.get(mode, run_sweep)
    data = load_sweep(build(tmp_path, seeds=1, num_errors=0, **({} if mode == "mix" else {"mode": mode})))
    data = _with_axis(data, key, keep_fabric)
    figures, reading = sweep_figures(data), Reading(data)
    assert figures
    assert sweep_headline(data)
    assert sweep_page(data).table.num_shown == len(data.table)
    if not keep_fabric and key not in ("model", "seed", "num_accelerators"):
        assert reading.line == key
        assert reading.lines == [named_label(key, label) for label in LABELS[key]]
        assert figures[0].table[key].unique(maintain_order=True).to_list() == list(LABELS[key])
    rows = data.table.to_dicts()
    assert all(wandb_content.point_name(data, row) and wandb_content.point_config(data, row) for row in rows)
    wandb_content.sweep_summary(data), wandb_content.sweep_rows(data), wandb_content.sweep_charts(data)


def test_numbers_are_named_after_their_axis_wherever_they_stand_alone():
    rows = [{"model": "m", "failures.links": str(links), "samples_per_s": 1 / (1 + links), "strategy": "dp 64",
             "memory_bytes": 4 * 10**8, "accelerator": "a100_80gb", "iteration_time_s": 1.0, "compute_s": 1.0}
            for links in (0, 5, 60, 128)]  # fmt: skip
    table = pl.DataFrame(rows).with_columns(
        pl.int_range(4, dtype=pl.Int64).alias("index"), pl.lit("ok").alias("status"),
        pl.col("failures.links").alias("key"),
    )  # fmt: skip
    axes = [{"key": "failures.links", "labels": ["0", "5", "60", "128"]}]
    data = SweepData({"version": 1, "mode": "run", "axes": axes, "title": "small", "num_points": 4}, table)
    said = sweep_headline(data)[0]
    assert said.startswith("m: links 0 with dp 64 has the least time")
    assert "; links 5 takes 6.00x as long" in said
    figures = {figure.name: figure for figure in sweep_figures(data)}
    names = [f"links {one}" for one in (0, 5, 60, 128)]
    assert list(figures["time-per-sample-m"].plotly.data[0].y) == names
    for name in ("memory-m", "breakdown-m"):
        drawn = figures[name].plotly
        assert drawn.layout.yaxis.type == "category"
        assert [one.strip("\u00a0") for one in drawn.data[0].y] == names
    assert all(figure.table["failures.links"].to_list() == ["0", "5", "60", "128"] for figure in figures.values())


@pytest.mark.parametrize(
    ("axis", "label", "named"),
    [
        ("failures.links", "5", "links 5"), ("strategy.tp", "4", "tp 4"), ("fold", "True", "fold True"),
        ("global_batch", "null", "global_batch null"), ("fabric.link_latency", "20 ns", "link_latency 20 ns"),
        ("fabric.dims", "[8, 8]", "dims [8, 8]"), ("fabric", "tree_64", "tree_64"),
        ("fabric.accelerator_bandwidth", "400 Gb/s", "400 Gb/s"),
        ("case", "8 servers, no taper", "8 servers, no taper"),
    ],
)  # fmt: skip
def test_a_label_that_is_no_name_gets_its_axis(axis, label, named):
    assert named_label(axis, label) == named
