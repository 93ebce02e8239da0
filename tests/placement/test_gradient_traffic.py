"""What adding up the gradients of micro-batches costs: bytes by hand, how often, and where it costs nothing."""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.errors import ConfigError

WIDTH = 4096


@pytest.fixture(scope="module")
def graph():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False))
    return rostam.trace(model, torch.zeros(4, WIDTH), loss_fn=lambda y: y.sum(), name="two")


def place(graph, num_microbatches=4, **options):
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="100 Gb/s")
    strategy = {"dp": 2, "micro_batch": 4, "precision": "bf16_mixed"} | options
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    batch = 4 * num_microbatches * 2
    return rostam.place(
        graph, machine, global_batch=batch, strategy=rostam.Strategy.of(**strategy), cost="roofline",
        cost_config={"min_kernel_time": "0 s"}, software="ideal",
    )  # fmt: skip


def kernel_seconds(plan, template):
    kernels = [k for task in plan.stages[0].templates[template] if not task.is_optimizer for k in task.kernels]
    return sum(k.duration_s for k in kernels)


def count_kernels(plan, template):
    return sum(len(task.kernels) for task in plan.stages[0].templates[template] if not task.is_optimizer)


def read_again_s(gradient_bytes):
    """Two gradients of WIDTH x WIDTH, moved at 0.9 of the memory's rate: the products are bound by memory."""
    return 2 * WIDTH**2 * gradient_bytes / (0.9 * get_accelerator("h100_80gb").memory_bandwidth_bytes_per_s)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_all_micro_batches_but_one_read_the_gradients_that_are_there(graph, precision, size):
    fused, free = (place(graph, accumulation=how, gradient_precision=precision) for how in ("fused", "free"))
    again = kernel_seconds(fused, "backward") - kernel_seconds(free, "backward")
    assert again == pytest.approx(read_again_s(size), rel=1e-9)
    assert kernel_seconds(fused, "backward_last") == kernel_seconds(free, "backward_last")
    slower = rostam.simulate(fused).iteration_time_s - rostam.simulate(free).iteration_time_s
    assert slower == pytest.approx(3 * read_again_s(size), rel=1e-6)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_separate_kernels_read_both_gradients_and_write_their_sum(graph, precision, size):
    separate, free = (place(graph, accumulation=how, gradient_precision=precision) for how in ("separate", "free"))
    again = kernel_seconds(separate, "backward") - kernel_seconds(free, "backward")
    assert again == pytest.approx(read_again_s(2 + 2 * size), rel=1e-9)
    assert count_kernels(separate, "backward") == count_kernels(free, "backward") + 2
    assert kernel_seconds(separate, "backward_last") == kernel_seconds(free, "backward_last")
    slower = rostam.simulate(separate).iteration_time_s - rostam.simulate(free).iteration_time_s
    assert slower == pytest.approx(3 * read_again_s(2 + 2 * size), rel=1e-6)


@pytest.mark.parametrize("accumulation", ["fused", "separate"])
def test_one_micro_batch_adds_nothing(graph, accumulation):
    added, free = (rostam.simulate(place(graph, 1, accumulation=how)) for how in (accumulation, "free"))
    assert added.iteration_times_s == free.iteration_times_s


@pytest.mark.parametrize("shard", [2, 3])
def test_ranks_that_share_gradients_add_up_their_shares_for_nothing(graph, shard):
    fused, free = (rostam.simulate(place(graph, accumulation=how, shard=shard)) for how in ("fused", "free"))
    assert fused.iteration_times_s == free.iteration_times_s


@pytest.mark.parametrize("shard", [2, 3])
@pytest.mark.parametrize(("precision", "size"), [("fp32", 2 + 4), ("bf16", 2 + 2)])
def test_shares_come_from_gradients_that_are_copied_where_products_do_not_write_them(graph, shard, precision, size):
    # Megatron-FSDP without gradient_accumulation_fusion: 2 bytes of each weight are read, every micro-batch's, and
    # written as wide as they are reduced; nothing is added to.
    options = {"shard": shard, "gradient_precision": precision}
    copied, fused = (place(graph, accumulation=how, **options) for how in ("separate", "fused"))
    for template in ("backward", "backward_last"):
        more = kernel_seconds(copied, template) - kernel_seconds(fused, template)
        assert more == pytest.approx(read_again_s(size), rel=1e-9)
        assert count_kernels(copied, template) == count_kernels(fused, template) + 2


def test_units_of_parameters_are_copied_together_already(graph):
    options = {"shard": 3, "shard_layout": "parameters"}
    separate, fused = (place(graph, accumulation=how, **options) for how in ("separate", "fused"))
    assert count_kernels(separate, "backward") == count_kernels(fused, "backward")


@pytest.mark.parametrize(("accumulation", "size"), [("fused", 4), ("separate", 10)])
def test_weight_gradients_that_run_apart_read_what_is_there(graph, accumulation, size):
    options = {"dp": 1, "pp": 2, "schedule": "zb_h1"}
    added, free = (place(graph, accumulation=how, **options) for how in (accumulation, "free"))
    again = [
        sum(k.duration_s for stage in plan.stages for task in stage.templates["weight"] for k in task.kernels)
        for plan in (added, free)
    ]  # fmt: skip
    assert again[0] - again[1] == pytest.approx(read_again_s(size), rel=1e-9)


def test_published_times_have_it_in_them(graph):
    machine, times = place(graph).machine, {"forward_s": 1e-3, "backward_s": 2e-3}
    plans = [
        rostam.place(
            graph, machine, global_batch=32, cost="constant", cost_config=times,
            strategy=rostam.Strategy.of(dp=2, micro_batch=4, accumulation=how), software="ideal",
        )
        for how in ("fused", "free")
    ]  # fmt: skip
    assert kernel_seconds(plans[0], "backward") == kernel_seconds(plans[1], "backward")


def test_an_unknown_way_is_refused():
    with pytest.raises(ConfigError, match=r"software.rules.accumulation is 'later'; it must be"):
        rostam.Strategy.of(accumulation="later")
