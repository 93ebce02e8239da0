"""Embedding tables spread over ranks: messages, memory and the greedy spread by hand."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.models import dlrm
from rostam_py.placement.tables.loads import spread_by_load
from rostam_py.placement.tables.table import Table
from rostam_py.plan import Strategy
from rostam_py.plan.table_ids import frequencies
from rostam_py.tracing import trace

RANKS, LOCAL, DIMENSION = 16, 4096, 128


def distinct(num_samples):
    """Rows of all tables that so many samples look up, ids being uniform: V (1 - (1 - 1/V)^n), multiplied out."""
    return [
        rows * (1 - (1 - 1 / rows) ** (num_samples * hot))
        for rows, hot in zip(dlrm.TABLE_ROWS, dlrm.HOTNESS, strict=True)
    ]


@pytest.fixture(scope="module")
def graph():
    return trace("dlrm")


def listed(plan):
    return {(m.group, m.num_bytes): m.count for m in plan.messages() if m.kind == "all_to_all"}


def test_dlrm_on_128_has_one_table_at_most_on_a_rank(graph, placed):
    """26 tables, fewer than ranks, of which the largest have 40 M rows: no rank has more than one."""
    plan = placed(graph, Strategy(dp=128, tables="sharded"), 128 * LOCAL)
    assert listed(plan) == {("tables", LOCAL * 128 * DIMENSION * 4): 2}  # one vector of each rank's samples
    dense = graph.num_parameters - sum(dlrm.TABLE_ROWS) * DIMENSION
    assert plan.stages[0].num_parameters == pytest.approx(40_000_000 * DIMENSION + dense, abs=26)


@pytest.mark.parametrize(
    ("where", "vectors"),
    [("sharded", RANKS * 2), ("columns", 26)],  # 26 tables on 16 ranks: some rank holds two
)
def test_dlrm_on_16_exchanges_pooled_vectors_once_each_way(graph, placed, where, vectors):
    plan = placed(graph, Strategy(dp=RANKS, tables=where), RANKS * LOCAL)
    assert listed(plan) == {("tables", LOCAL * vectors * DIMENSION * 4): 2}
    dense = graph.num_parameters - sum(dlrm.TABLE_ROWS) * DIMENSION
    reduced = [m for m in plan.messages() if m.kind == "all_reduce"]
    assert {m.group for m in reduced} == {"dp"}
    assert sum(m.num_bytes * m.count for m in reduced) == 4 * dense  # no table among them
    assert plan.members("tables").tolist() == [list(range(RANKS))]
    assert any("26 embedding tables" in note for note in plan.notes)


def test_columns_hold_write_and_update_an_even_share_of_what_is_looked_up(graph, placed):
    stage = placed(graph, Strategy(dp=RANKS, tables="columns"), RANKS * LOCAL, cost="roofline").stages[0]
    entries = sum(dlrm.TABLE_ROWS) * DIMENSION
    dense = graph.num_parameters - entries
    looked = sum(distinct(RANKS * LOCAL)) * DIMENSION / RANKS  # all ranks' ids, a sixteenth of the columns
    assert stage.num_parameters == pytest.approx(dense + entries / RANKS, abs=26)
    assert stage.memory.parameters == 4 * stage.num_parameters
    assert stage.memory.gradients == pytest.approx(4 * (dense + looked), abs=4 * 27)
    forward = [k for task in stage.templates["forward"] for k in task.kernels if k.module == "tables.20"]
    # 100 rows a sample, read once, and their ids; the pooled vector written: at half of 2,039 GB/s
    read = RANKS * LOCAL * 100 * (DIMENSION // RANKS * 4) + LOCAL * 100 * 8
    written = LOCAL * DIMENSION * 4
    table = next(k for k in forward if "embedding" in k.op_type)
    assert table.duration_s == pytest.approx((read + written) / (0.5 * 2039e9), rel=0.02)


def test_bottom_layers_run_while_vectors_travel(graph, placed):
    tasks = placed(graph, Strategy(dp=RANKS, tables="columns"), RANKS * LOCAL).stages[0].templates["forward"]
    sent = next(i for i, task in enumerate(tasks) if task.group == "tables")
    free, waiting = tasks[sent + 1], tasks[sent + 2]
    assert free.deps == ()
    assert free.kernels[0].module.startswith("bottom")
    assert sent in waiting.deps


def test_errors_say_what_excludes_what(graph, perceptron, placed):
    with pytest.raises(ConfigError, match=r"strategy\.tables is 'sharded'.*set strategy\.tp=1, or strategy\.tables"):
        Strategy(dp=2, tp=2, tables="sharded")
    with pytest.raises(
        ConfigError, match=r"strategy\.tables is 'rows'; it must be one of: replicated, sharded, columns"
    ):
        Strategy(dp=2, tables="rows")
    with pytest.raises(DegreeError, match=r"strategy\.dp = 3 must divide the 128 columns of tables\.0\.weight"):
        placed(graph, Strategy(dp=3, tables="columns"), 3)
    with pytest.raises(ConfigError, match=r"'sharded', but perceptron has no embedding table from which"):
        placed(perceptron, Strategy(dp=2, tables="sharded"), 2)


@pytest.mark.parametrize("model", ["gpt_125m", "llama2_7b"])  # positions, and tokens whose head is not tied
def test_tables_of_language_models_are_not_pooled(placed, model):
    with pytest.raises(ConfigError, match=r"Tables of tokens and positions, which are not pooled.*tables=replicated"):
        placed(trace(model, num_layers=1), Strategy(dp=2, tables="sharded", check_memory=False), 2)


def test_balanced_tables_of_dlrm_on_8_ranks(graph, placed):
    """MLPerf's 55,296 samples: table 20 has 100 of 214 lookups, whole on a rank 3.7 times the mean."""
    rows = distinct(55_296)
    dense = graph.num_parameters - sum(dlrm.TABLE_ROWS) * DIMENSION
    updated = {}
    for where in ("sharded", "balanced"):
        strategy = Strategy(dp=8, tables=where, optimizer="sgd", check_memory=False)
        stage = placed(graph, strategy, 55_296).stages[0]
        updated[where] = stage.memory.gradients / 4 - dense
    assert updated["sharded"] == pytest.approx(rows[20] * DIMENSION, rel=1e-6)
    # a quarter of it, and with it, for its lookups are as many, what others have on the side: table 9's 7 ids a sample
    assert updated["balanced"] == pytest.approx((rows[20] / 4 + rows[9]) * DIMENSION, rel=1e-6)


def test_adagrad_on_tables_moves_the_bytes_of_looked_up_rows(graph, placed):
    """fp32: gradient, sum of squares and row read, the last two written: 20 bytes for each entry."""
    strategy = Strategy(dp=RANKS, tables="columns", optimizer="adagrad")
    stage = placed(graph, strategy, RANKS * LOCAL, cost="roofline").stages[0]
    dense = graph.num_parameters - sum(dlrm.TABLE_ROWS) * DIMENSION
    moved = 20.0 * (dense + sum(distinct(RANKS * LOCAL)) * DIMENSION / RANKS)
    found = [
        k for tasks in stage.templates.values() for task in tasks for k in task.kernels if "optimizer" in k.op_type
    ]
    assert found[0].duration_s == pytest.approx(moved / (0.9 * 2039e9), rel=1e-3)


def test_measured_ids_update_fewer_rows_and_look_up_as_many(graph, placed):
    """Table 21, whole on a rank with tables 15 and 25, now has most: 20 repeats its ids more. Lookups stay."""
    known = frequencies("criteo_1tb", dlrm.TABLE_ROWS, "dlrm", 55_296)
    dense = graph.num_parameters - sum(dlrm.TABLE_ROWS) * DIMENSION
    stages = {}
    for ids in ("uniform", "criteo_1tb"):
        strategy = Strategy.of(dp=8, tables="balanced", table_ids=ids, optimizer="sgd", check_memory=False)
        plan = placed(graph, strategy, 55_296)
        stages[ids] = plan.stages[0]
        assert any(f"strategy.placing.table_ids={ids}" in note for note in plan.notes)
    rows = [one.distinct_rows(55_296, hot) for one, hot in zip(known, dlrm.HOTNESS, strict=True)]
    updated = stages["criteo_1tb"].memory.gradients / 4 - dense
    assert updated == pytest.approx((rows[21] + rows[15] + rows[25]) * DIMENSION, rel=1e-6)
    assert updated > (rows[20] / 4 + rows[9]) * DIMENSION  # the busiest with uniform ids
    assert updated < 0.4 * (stages["uniform"].memory.gradients / 4 - dense)
    read = [
        [k.duration_s for task in stage.templates["forward"] for k in task.kernels if "embedding" in k.op_type]
        for stage in stages.values()
    ]
    assert read[0] == read[1]


def test_errors_say_which_tables_a_profile_of_ids_is_of(graph, placed):
    with pytest.raises(
        ConfigError, match=r"strategy\.placing\.table_ids is 'criteo'; it must be one of: uniform, criteo_1tb"
    ):
        Strategy.of(dp=2, tables="sharded", table_ids="criteo")
    with pytest.raises(ConfigError, match=r"table_ids is 'criteo_1tb', but strategy\.tables is 'replicated'"):
        Strategy.of(dp=2, table_ids="criteo_1tb")
    with pytest.raises(ConfigError, match=r"26 tables have 40000000, 39060, 17295, 7424, \.\.\. rows; those of other"):
        frequencies("criteo_1tb", [10, 20], "other", 1)
    with pytest.raises(ConfigError, match=r"frequencies of 10,000,000 samples, but 10,000,001 are looked up at once"):
        frequencies("criteo_1tb", dlrm.TABLE_ROWS, "dlrm", 10_000_001)


@pytest.fixture(scope="module")
def on_two_servers(graph):
    machine = rostam.machine("dgx_h100", servers=2)

    def made(**given):
        strategy = Strategy.of(dp=RANKS, tables="hierarchical", check_memory=False, **given)
        return rostam.place(graph, machine, global_batch=RANKS * LOCAL, strategy=strategy, software="ideal")

    return made


def test_tables_over_servers_are_added_up_inside_before_servers_exchange_them(graph, on_two_servers):
    """Rows of a table lie on all 8 ranks of a server: each adds up what it has of 65,536 samples' vectors."""
    plan = on_two_servers()
    tables = [
        Table(i, str(i), rows, DIMENSION, hot, 1.0)
        for i, (rows, hot) in enumerate(zip(dlrm.TABLE_ROWS, dlrm.HOTNESS, strict=True))
    ]
    vectors = spread_by_load(tables, 2, 16, 1e12, is_balanced=True).vectors
    whole = round(RANKS * LOCAL * vectors * 4)  # fp32
    sent = {(m.group, m.kind): (m.num_bytes, m.count) for m in plan.messages() if m.group.startswith("tables")}
    assert sent == {
        ("tables_inside", "reduce_scatter"): (whole, 1), ("tables_between", "all_to_all"): (whole // 8, 2),
        ("tables_inside", "all_gather"): (whole, 1),
    }  # fmt: skip
    assert plan.members("tables_inside").tolist() == [list(range(8)), list(range(8, 16))]
    assert plan.members("tables_between").tolist() == [[i, i + 8] for i in range(8)]
    kinds = [task.collective for name in ("forward", "backward") for task in plan.stages[0].templates[name]
             if task.group.startswith("tables")]  # fmt: skip
    assert kinds == ["reduce_scatter", "all_to_all", "all_to_all", "all_gather"]


def test_small_tables_are_on_every_rank(on_two_servers):
    """fp32 and no state: 4 bytes an entry, so 12,207 rows of 128 take 6.25 MB; 12 of 26 tables have more."""
    plan = on_two_servers(replicated_tables="6.25 MB")
    assert any(note.startswith("12 embedding tables over servers") for note in plan.notes)
    reduced = sum(m.num_bytes * m.count for m in plan.messages() if m.kind == "all_reduce")
    few = sum(rows for rows in dlrm.TABLE_ROWS if rows * DIMENSION * 4 <= 6.25e6) * DIMENSION * 4
    other = sum(m.num_bytes * m.count for m in on_two_servers().messages() if m.kind == "all_reduce")
    assert reduced == other + few


def test_ids_are_sorted_once_for_all_tables_and_gradients_read_for_each(graph, placed):
    """One rank of two of columns has all ids: 214 a sample, of 187,767,399 rows, so 28 bits, four passes of 8."""
    plan = placed(graph, Strategy(dp=2, tables="columns", check_memory=False), 2 * LOCAL, cost="roofline")
    kernels = [k for task in plan.stages[0].templates["backward"] for k in task.kernels]
    ids = 2 * LOCAL * sum(dlrm.HOTNESS)
    moved = {what: [k.duration_s for k in kernels if f"({what})" in k.name] for what in
             ("digits counted", "ids sorted by a digit", "distinct ids")}  # fmt: skip
    assert [len(found) for found in moved.values()] == [1, 4, 1]
    rate = 4 * ids / moved["digits counted"][0]  # roofline: some share of the bandwidth
    assert moved["ids sorted by a digit"] == pytest.approx([16 * ids / rate] * 4, rel=0.02)
    assert moved["distinct ids"] == pytest.approx([48 * ids / rate], rel=0.02)
    gradient = next(k for k in kernels if k.module == "tables.20" and "embedding" in k.op_type)
    read = 2 * LOCAL * (100 * (DIMENSION // 2 * 4 + 8))  # 100 gradients of half a vector a sample, and ids
    written = distinct(2 * LOCAL)[20] * DIMENSION // 2 * 4  # read as well, and added to
    assert gradient.duration_s == pytest.approx((read + 2 * written) / (0.5 * 2039e9), rel=0.03)


def test_errors_say_what_tables_over_servers_need(graph, placed, on_two_servers):
    with pytest.raises(ConfigError, match=r"which needs servers of several accelerators; \w+ has none"):
        placed(graph, Strategy(dp=12, tables="hierarchical", check_memory=False), 12)
    with pytest.raises(ConfigError, match=r"replicated_tables is '1 MB', but strategy\.tables is 'replicated'"):
        Strategy.of(dp=2, replicated_tables="1 MB")
    with pytest.raises(ConfigError, match=r"replicated_tables is .* B, and no table of dlrm is larger"):
        on_two_servers(replicated_tables="1 TB")
    with pytest.raises(ConfigError, match=r"some 8 consecutive data-parallel ranks are not on one server"):
        on_two_servers(mapping="random(1)")


def test_single_kernels_update_the_rows_that_are_looked_up(graph, placed):
    def updated(kernels):
        strategy = Strategy.of(dp=RANKS, tables="columns", optimizer="adagrad", optimizer_kernels=kernels)
        tasks = placed(graph, strategy, RANKS * LOCAL, cost="roofline").stages[0].templates["backward_last"]
        calls = [k.call for t in tasks if t.is_optimizer for k in t.kernels if "optimizer" in k.op_type]
        return sum(call.bytes_read for call in calls), sum(call.bytes_written for call in calls)

    assert updated("single") == pytest.approx(updated("foreach"), rel=1e-6)
