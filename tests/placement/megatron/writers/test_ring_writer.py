"""TP overlap: products run in parts while what they read is gathered, or their result reduce-scattered, in as many.

A = s b h elements of 2 bytes, t = tp, L layers, products of 16 bits. Forward cuts the gathers of both regions' inputs
into t - 1 copies of A / t each, and the reduce-scatters of both regions' outputs into 4 of A (t-1) / 4t; the head and
the embedding, outside the blocks, keep their collectives whole. Backward cuts the gathers of both regions' output
gradients; what runs beside a product already (inputs gathered again, input gradients) stays whole.
"""

from collections import Counter
from dataclasses import replace

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import llama
from rostam_py.plan import Machine, Strategy
from rostam_py.plan.strategy_names import key_of
from rostam_py.tracing import trace

LAYERS, WIDTH, TOKENS = 2, 1024, 2048
ACTIVATION = TOKENS * WIDTH * 2
STRATEGY = Strategy.of(dp=1, tp=4, sequence_parallel=True, tp_overlap=True, precision="bf16_mixed", micro_batch=1)


@pytest.fixture(scope="module")
def graphs():
    """Two layers of gpt_350m, and a Llama of that width with grouped queries."""
    config = llama.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=16, num_key_heads=8, hidden=2816, vocabulary=32000,
        sequence_length=TOKENS,
    )  # fmt: skip
    return {"gpt": trace("gpt_350m", num_layers=LAYERS), "llama": trace(llama.build("llama", config))}


def listed(tasks):
    return Counter((t.collective, t.num_bytes) for t in tasks if t.group == "tp" and t.num_bytes >= ACTIVATION // 8)


@pytest.mark.parametrize("model", ["gpt", "llama"])
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_collectives_of_products_are_cut_into_copies_of_the_same_bytes(graphs, placed, model, tp):
    plan = placed(graphs[model], replace(STRATEGY, tp=tp), 1, physics={"min_kernel_time": 0.0})
    templates = plan.stages[0].templates
    part, quarter = ("copy", ACTIVATION // tp), ("copy", ACTIVATION * (tp - 1) // tp // 4)
    forward = listed(templates["forward"])
    assert forward == {
        part: 2 * LAYERS * (tp - 1), quarter: 2 * LAYERS * 4, ("all_gather", ACTIVATION): 1,
        ("reduce_scatter", ACTIVATION): 1,
    }  # fmt: skip
    cut = sum(size * count for (kind, size), count in forward.items() if kind == "copy")
    assert cut == 4 * LAYERS * ACTIVATION * (tp - 1) // tp  # a ring's bytes
    assert listed(templates["backward"]) == {
        part: 2 * LAYERS * (tp - 1),
        ("all_gather", ACTIVATION): 2 * LAYERS + 1 + 1,
        ("reduce_scatter", ACTIVATION): 2 * LAYERS + 1,
    }


def test_parts_begin_as_their_inputs_come_and_sums_leave_as_they_are_made(graphs, placed):
    tasks = placed(graphs["gpt"], STRATEGY, 1).stages[0].templates["forward"]
    copies = [i for i, t in enumerate(tasks) if t.collective == "copy"]
    first = copies[
        :3
    ]  # of what the first product reads: one source, no step waits for the one before but in its stream
    assert len({tasks[i].deps for i in first}) == 1
    parts = [t for t in tasks[first[-1] + 1 :] if t.kind == "compute"][:4]
    assert [set(first) & set(t.deps) for t in parts] == [set(), {first[0]}, {first[1]}, {first[2]}]
    sums = [i for i in copies if "reduce_scatter" in tasks[i].name][:4]
    makers = [tasks[i].deps for i in sums]
    assert len(set(makers)) == 4
    for (maker,), index in zip(makers, sums, strict=True):
        assert tasks[maker].kernels[-1].op_type == "aten.addmm.default"
        assert f"part {sums.index(index) + 1} of 4" in tasks[maker].kernels[-1].name


def both_ways(graph, placed, **options):
    """The stage with whole products and with their parts; queries, keys and values are one either way."""
    base = STRATEGY.with_keys(fusion="modules")
    plans = [placed(graph, base.with_keys(tp_overlap=is_cut), 1, **options) for is_cut in (False, True)]
    return [plan.stages[0] for plan in plans]


def names_and_times(template):
    """Seconds of the whole kernels of a template, and of their parts together; copies into buffers left out."""
    found = Counter()
    for task in template:
        for kernel in task.kernels:
            if "buffer" not in kernel.name:
                found[kernel.name.split(" (part")[0]] += kernel.duration_s
    return found


@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_parts_do_the_same_work_and_take_what_products_of_their_sizes_take(graphs, placed, model):
    whole, cut = both_ways(graphs[model], placed)
    assert whole.hardware_flops == pytest.approx(cut.hardware_flops, rel=1e-12)
    longer = 0
    for name in whole.templates:
        one, other = (names_and_times(stage.templates[name]) for stage in (whole, cut))
        assert one.keys() == other.keys()
        parts = [k for t in cut.templates[name] for k in t.kernels if "(part " in k.name]
        assert all(k.duration_s == pytest.approx(k.stretch * k.cost.duration_s(k.call)) for k in parts)
        assert all(other[kernel] > 0.999 * one[kernel] for kernel in one)
        longer += sum(other[kernel] > 1.01 * one[kernel] for kernel in one)
    assert longer  # 512 rows leave multiprocessors idle


def test_a_part_reads_its_rows_and_the_whole_weight(graphs, placed):
    """The first product of gpt_350m: 2,048 x 1,024 by 1,024 x 3,072, its columns and its rows in 4 parts."""
    kernels = [k for t in both_ways(graphs["gpt"], placed)[1].templates["forward"] for k in t.kernels]
    part = next(k.call for k in kernels if "(part 1 of 4)" in k.name)
    assert part.flops == 2 * 512 * 1024 * 768
    assert part.bytes_read == pytest.approx(2 * (512 * 1024 + 1024 * 768 + 768))
    assert part.bytes_written == pytest.approx(2 * 512 * 768)


@pytest.mark.parametrize("algorithms", [{}, {"all_gather": "ring", "reduce_scatter": "ring"}])
@pytest.mark.parametrize("bandwidth", ["100 Gb/s", "4800 Gb/s"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_overlap_costs_no_more_than_its_parts_take_longer_and_sends_as_much(graphs, algorithms, bandwidth, recompute):
    fabric = rostam.fabric("electrical_cluster", num_accelerators=8, accelerator_bandwidth=bandwidth)
    machine = Machine(fabric=fabric, accelerator="a100_80gb")
    for graph in graphs.values():
        for tp in (2, 8):
            base = replace(STRATEGY, dp=8 // tp, tp=tp, algorithms=algorithms, recompute=recompute)
            results = []
            for is_cut in (False, True):
                plan = rostam.place(
                    graph, machine, global_batch=16, strategy=base.with_keys(tp_overlap=is_cut), software="ideal"
                )
                results.append(rostam.simulate(plan))
            longer_s = max(results[1].breakdown["compute"] - results[0].breakdown["compute"], 0)
            assert results[1].iteration_time_s < results[0].iteration_time_s + longer_s
            if bandwidth == "100 Gb/s":
                assert results[1].iteration_time_s < results[0].iteration_time_s
            assert results[1].bytes_sent == results[1].bytes_received
            if algorithms:  # rings send the same
                assert results[1].bytes_sent == results[0].bytes_sent


@pytest.mark.parametrize("tp", [2, 8])
def test_overlap_is_not_slower_on_links_that_cost_something_to_start(tp):
    # A layer of an 8B Llama with 8,192 tokens: parts of products take longer than the hops of copies.
    config = llama.Config(
        num_layers=1, width=4096, num_heads=32, num_key_heads=8, hidden=14336, vocabulary=32000, sequence_length=8192
    )  # fmt: skip
    graph = trace(llama.build("llama", config))
    machine = Machine(fabric=rostam.machine("dgx_h100").fabric, accelerator="h100_80gb")
    base = replace(STRATEGY, dp=8 // tp, tp=tp)
    plans = [
        rostam.place(graph, machine, global_batch=8, strategy=base.with_keys(tp_overlap=is_cut), software="ideal")
        for is_cut in (False, True)
    ]
    whole, cut = (rostam.simulate(plan).iteration_time_s for plan in plans)
    assert cut < whole


@pytest.mark.parametrize(
    ("given", "needed"),
    [({"sequence_parallel": False}, "sequence_parallel"), ({"asynchronous_tp": False}, "asynchronous_tp")],
)
def test_overlap_without_what_it_cuts_is_refused(given, needed):
    with pytest.raises(ConfigError, match=f"needs {key_of(needed)}=true; set that, or software.rules.tp_overlap=false"):
        STRATEGY.with_keys(**given)
