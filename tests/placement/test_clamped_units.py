"""Clamps in front of a gated unit as Megatron-Core runs them, in eager PyTorch: kernels, bytes and times by hand."""

import pytest

import rostam_py as rostam
from rostam_py.costs.strided import STRIDED_ELEMENTS_PER_S, strided_seconds
from rostam_py.models.gpt_oss import Config, build

SEQUENCE, WIDTH, HIDDEN, CHOSEN = 4096, 2880, 2880, 4
ROWS = 4 * SEQUENCE * CHOSEN  # of a micro-batch of 4, as of GPT-OSS 120B's rows of bridge_moe
HALF = 2 * ROWS * HIDDEN  # bytes of one half of the unit's input


@pytest.fixture(scope="module")
def graph():
    return rostam.trace(build("small_gpt_oss", Config(num_layers=2, num_experts=16, vocabulary=1024)))


def placed(graph, fusion, accelerator="h100_80gb", **more):
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator=accelerator)
    strategy = rostam.Strategy.of(fusion=fusion, precision="bf16_mixed", micro_batch=4, check_memory=False, **more)
    return rostam.place(graph, machine, global_batch=4, strategy=strategy, cost="calibrated", software="ideal").stages[
        0
    ]


def apart(stage, template, module="blocks.1.mlp"):
    """Return the kernels beside a gated unit's own: what each does, and its kernel."""
    kernels = [k for t in stage.templates[template] for k in t.kernels if k.module == module]
    return [(k.name.split("_")[0], k) for k in kernels if k.name.endswith(("(alone)", "(joined)"))]


def gigabytes(kernel):
    return (kernel.call.bytes_read + kernel.call.bytes_written) / 1e9


def test_forward_clamps_two_halves_and_joins_them(graph):
    found = apart(placed(graph, "modules"), "forward")
    assert [name for name, _ in found] == ["clamp", "clamp", "clamp"]
    assert [gigabytes(k) for _, k in found] == pytest.approx([2 * HALF / 1e9, 2 * HALF / 1e9, 4 * HALF / 1e9])


def test_backward_compares_selects_and_joins(graph):
    # Bounds of one half, one bound of the other: masks have 1 byte of 2.
    found = apart(placed(graph, "modules"), "backward_last")
    assert [name for name, _ in found] == ["ge", "le", "logical", "where", "le", "where", "mul"]
    halves = [1.5, 1.5, 1.5, 2.5, 1.5, 2.5, 4]
    assert [gigabytes(k) for _, k in found] == pytest.approx([n * HALF / 1e9 for n in halves], rel=1e-6)


def test_what_reads_parts_of_rows_is_bound_by_its_elements(graph):
    for accelerator, multiprocessors in (("h100_80gb", 132), ("b200_180gb", 148)):
        found = apart(placed(graph, "modules", accelerator), "backward_last")
        strided = ROWS * HIDDEN / (2.66e9 * multiprocessors)
        for name, kernel in found:
            bound = kernel.duration_s == pytest.approx(strided)
            assert bound == (name in ("ge", "le", "where")), name


def test_kernels_of_an_h100_take_what_was_measured(graph):
    # torch.profiler on an H100 (PyTorch 2.11, CUDA 13.0), both directions of 65,536 rows [us]: clamps, selections,
    # comparisons (four times those of 16,384 rows, 277, less launches), joins; the conjunction was not told apart.
    measured = (1085, 1397, 1080, 1083)
    stage = placed(graph, "modules")
    found = apart(stage, "forward") + apart(stage, "backward_last")
    seconds = sum(k.duration_s for name, k in found if name != "logical")
    assert seconds == pytest.approx(sum(measured) * 1e-6, rel=0.06)


@pytest.mark.parametrize("fusion", ["pointwise", "none", "producer"])
def test_other_programs_have_no_kernels_beside_the_units(graph, fusion):
    assert apart(placed(graph, fusion), "forward") == []


def test_traffic_alone_counts_where_multiprocessors_are_not_known():
    assert strided_seconds(1e9, 0) == 0.0
    assert strided_seconds(STRIDED_ELEMENTS_PER_S * 132, 132) == pytest.approx(1.0)


def test_biased_units_of_experts_can_run_again(graph):
    # moe_act: of each layer the unit's result is not kept, the biased product in front of it is; no product runs again.
    kept = placed(graph, "modules")
    again = placed(graph, "modules", recompute="selective", recompute_modules=["activation"])
    assert kept.activation_changes["forward"][0] - again.activation_changes["forward"][0] == 2 * HALF
    assert again.hardware_flops == pytest.approx(kept.hardware_flops, rel=1e-3)
    assert len(apart(again, "backward_last")) == len(apart(kept, "backward_last")) + len(apart(kept, "forward"))
