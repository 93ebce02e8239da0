"""Shipped tables: every row of every source is there, settings are complete, and quantities are what formulas say."""

import types

import pytest

from rostam_py.cli.compose import compose_config
from rostam_py.cli.point import point_settings
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.validation.names import table_names
from rostam_py.validation.quantities import QUANTITIES, gpt_flops
from rostam_py.validation.rows import HELD_OUT, Row, merged, overrides_of, run_settings
from rostam_py.validation.tables import read_table, select

TABLES = {table.name: table for table in select()}
# Rows of each source: V1 to V5 as spec/validation.md counts them, LLM Foundry's of 2,048 tokens or 7b, the step tables'
# files.
NUM_ROWS = {
    "V1": 7, "V2": 6, "V2_memory": 6, "V3": 5, "V3a": 3, "V4": 13, "V5": 5,
    "llm_foundry_a100": 61, "llm_foundry_h100": 44,
}  # fmt: skip
FILES = {"bridge": 50, "torchtitan": 23, "mlperf": 87}


def test_every_row_of_every_source_is_there_once():
    assert {name: len(table.rows) for name, table in TABLES.items() if name in NUM_ROWS} == NUM_ROWS
    for file, count in FILES.items():
        lines = [row.line for name, table in TABLES.items() if name.startswith(file) for row in table.rows if row.line]
        assert sorted(lines) == list(range(2, count + 2))
    steps = {name for name, table in TABLES.items() if table.kind != HELD_OUT}
    assert steps == {*NUM_ROWS, *(name for name in TABLES if name.partition("_")[0] in FILES)}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_a_table_says_where_it_is_from_and_how_it_fills_what_is_open(table):
    assert table.title
    assert table.source
    assert table.rule
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    assert all(row.measured or row.held_out for row in table.rows if not row.why_not)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_rows_have_settings_of_a_run_and_a_batch_that_divides(table):
    for row in table.rows:
        if row.why_not or row.held_out or row.subject == "collective":
            continue
        settings = run_settings(row.keys)
        strategy, count = settings["strategy"], settings["fabric"]["num_accelerators"]
        inner = strategy["tp"] * strategy["pp"] * strategy["cp"]
        assert count % inner == 0, row.name
        dp = strategy["dp"] or count // inner
        assert dp * inner == count or (strategy["allow_idle"] and dp * inner < count), row.name
        assert settings["global_batch"] % (dp * (strategy["micro_batch"] or 1)) == 0, row.name


def test_megatrons_formula_is_the_sum_of_its_products():
    """Each token: a layer's 12 h^2 weights and 2 s h of scores, forward, again, twice in backward; the head thrice."""
    shape = {"layers": 24, "width": 2304, "sequence": 2048, "vocabulary": 51200}
    tokens = 512 * 2048
    forward = 24 * 2 * (12 * 2304**2 + 2 * 2048 * 2304) * tokens
    head = 2 * 2304 * 51200 * tokens
    assert gpt_flops(shape, 512, is_recomputed=True) == pytest.approx(4 * forward + 3 * head, rel=1e-12)
    assert gpt_flops(shape, 512, is_recomputed=False) == pytest.approx(3 * forward + 3 * head, rel=1e-12)


def test_figures_of_speed_are_turned_into_times_as_by_hand():
    plan = types.SimpleNamespace(
        graph_name="llama3_8b", num_devices=8, global_batch=128,
        stages=[types.SimpleNamespace(index=0, flops=2e15)], devices_of=lambda stage: range(8),
    )  # fmt: skip
    result = types.SimpleNamespace(plan=plan)
    assert QUANTITIES["time_s"].of(result, 3.5, {}) == 3.5
    assert QUANTITIES["samples_per_s"].of(result, 64, {}) == 2
    # 128 x 8,192 tokens on 8 accelerators at 14,451 each: the 9.07 s that the source's tables derive.
    assert QUANTITIES["tokens_per_s_per_gpu"].of(result, 14451, {}) == pytest.approx(9.07, abs=0.005)
    assert QUANTITIES["model_tflops_per_gpu"].of(result, 400, {}) == pytest.approx(2e15 / 400e12)
    assert QUANTITIES["gpu_hours_per_trillion_tokens"].of(result, 1e6, {}) == pytest.approx(
        1e6 * 3600 / 8 * 128 * 8192 / 1e12
    )
    assert QUANTITIES["memory_gib"].of(result, 2, {}) == 2 * 2**30


def test_a_speedup_is_the_time_of_the_other_run_over_it():
    assert QUANTITIES["speedup"].of(None, 1.28, {"against_s": 6.4}) == pytest.approx(5.0)
    (row,) = TABLES["torchtitan_schedules"].rows
    slower = merged(row.keys, row.against)
    assert run_settings(row.keys)["strategy"]["virtual_stages"] == 2
    assert run_settings(slower)["strategy"]["virtual_stages"] == 1
    assert row.measured["speedup"] == 128 / 100  # tokens a second of the two rows of the same page
    with pytest.raises(ConfigError, match="its against"):
        Row("x", {}, {"speedup": 1.28})


def test_tables_and_rows_are_chosen_by_name_and_pattern():
    assert [table.name for table in select(["V2", "V1"])] == ["V2", "V1"]
    assert [[row.name for row in table.rows] for table in select(["V1", "V2"], ["*selective", "V1/1.7b"])] == [
        ["1.7B"], ["22B selective", "175B selective", "530B selective"],
    ]  # fmt: skip
    with pytest.raises(
        UnknownNameError, match=r"unknown table 'V22' \(did you mean 'V2'\?\); tables: kernels, collectives, V1, V2"
    ):
        select(["V22"])
    with pytest.raises(ConfigError, match=r"rows is \['V9\*'\], which matches no row; rows are, for example: 1\.7B"):
        select(["V1"], ["V9*"])
    assert table_names()[:4] == ["kernels", "collectives", "V1", "V2"]


def test_a_tables_file_is_checked():
    with pytest.raises(ConfigError, match=r"x\.yaml: unknown key 'row'; a table has: alternatives, bounds"):
        read_table("{row: []}", "x", "x.yaml")
    with pytest.raises(UnknownNameError, match=r"row 'a' measures 'seconds'; quantities: time_s"):
        read_table("rows: [{name: a, model: resnet50, measured: {seconds: 1}}]", "x", "x.yaml")
    unknown = read_table("rows: [{name: a, model: no_such, measured: {time_s: 1}}]", "x", "x.yaml").rows[0]
    assert unknown.why_not == "no model 'no_such'"


def test_a_row_is_of_one_subject():
    assert Row("a", {}, {"time_s": 1.0, "memory_gib": 2.0}).subject == "run"
    with pytest.raises(ConfigError, match="row 'a' measures time_s, collective_time_s; they are not of one subject"):
        Row("a", {}, {"time_s": 1.0, "collective_time_s": 1.0})


def test_a_rows_overrides_are_those_of_a_run():
    keys = {"model": "resnet50", "machine": {"name": "dgx_a100", "servers": 2}, "strategy": {"tp": 1, "dp": None},
            "fabric": {"server_bandwidth": "200 GB/s"}}  # fmt: skip
    assert overrides_of(Row("a", keys, {"time_s": 1.0}).keys) == [
        "model=resnet50", "machine=dgx_a100", "machine.servers=2", "strategy.tp=1", "strategy.dp=null",
        "fabric.server_bandwidth='200 GB/s'",
    ]  # fmt: skip


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_overrides_are_settings_of_a_run(step):
    # Composed as `rostam run` does, without running: rows that take a part of a rack as well.
    rows = [
        row
        for table in TABLES.values()
        for row in table.rows
        if row.subject == "run" and not row.why_not and row.measured
    ]
    parts = [row for row in rows if "num_accelerators" in row.keys.get("fabric", {})]
    assert len(parts) > 30
    for row in [*parts[::step], *rows[:: 7 * step]]:
        config = compose_config("run", overrides_of(row.keys))
        assert point_settings("run", config)["fabric"] == run_settings(row.keys)["fabric"], row.name
        assert point_settings("run", config)["accelerator"] == run_settings(row.keys)["accelerator"], row.name
