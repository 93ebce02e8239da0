"""Activations in the host's memory: bytes against Korthikanti et al.'s formula, times by hand, what is refused."""

import pytest

import rostam_py as rostam
from rostam_py.costs import get_accelerator
from rostam_py.errors import ConfigError
from rostam_py.placement.megatron.offload import OFFLOAD

# megatron_22b: hidden size, heads, sequence.
HIDDEN, HEADS, LENGTH, BLOCKS = 6144, 64, 2048, 48


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("megatron_22b")


def plan_of(graph, host_bandwidth, batch=1, **strategy):
    device = get_accelerator("h100_80gb").with_overrides("linked", host_bandwidth_bytes_per_s=host_bandwidth)
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator=device)
    given = rostam.Strategy(dp=1, precision="fp16_mixed", check_memory=False, **strategy)
    return rostam.place(graph, machine, global_batch=batch, strategy=given, cost="roofline")


def block_bytes(samples=1):
    # Korthikanti et al. 2022, equation 1, of one layer without tensor parallelism.
    return LENGTH * samples * HIDDEN * (34 + 5 * HEADS * LENGTH / HIDDEN)


def seconds(plan, phase, block):
    """Return the time of a block's kernels. Modules of a block are those under its path."""
    kernels = [k for task in plan.stages[0].templates[phase] for k in task.kernels]
    return sum(k.duration_s for k in kernels if k.module.split(".")[:2] == ["blocks", str(block)])


@pytest.mark.parametrize("count", [1, 2, 7, BLOCKS - 1])
def test_all_but_one_block_leave_the_device(graph, count):
    whole, left = (plan_of(graph, 64e9, offload_blocks=n).stages[0].memory.activations for n in (0, count))
    assert whole - left == pytest.approx((count - 1) * block_bytes(), rel=2e-5)  # norms keep 4 numbers a token


def test_a_fast_link_takes_no_time(graph):
    plain, offloaded = (rostam.simulate(plan_of(graph, 1e15, offload_blocks=n)) for n in (0, 9))
    assert offloaded.iteration_time_s == plain.iteration_time_s


@pytest.mark.parametrize(("count", "rate"), [(1, 2e9), (3, 2e9), (3, 64e9)])
def test_a_block_lasts_as_long_as_the_copy_beside_it(graph, count, rate):
    plain = plan_of(graph, rate)
    offloaded = rostam.simulate(plan_of(graph, rate, offload_blocks=count)).iteration_time_s
    copy = block_bytes() / rate
    lacking = [
        max(0.0, copy - seconds(plain, phase, block))
        for phase in ("forward", "backward_last")
        for block in range(1, count + 1)
    ]
    assert sum(lacking) > 0 if rate < 10e9 else True
    # Kernels at a block's edges name the module of one block and work for both.
    assert offloaded - rostam.simulate(plain).iteration_time_s == pytest.approx(sum(lacking), rel=0.01, abs=1e-4)


def test_what_waits_for_copies_is_named(graph):
    stage = plan_of(graph, 2e9, offload_blocks=2).stages[0]
    waits = [k for task in stage.templates["forward"] for k in task.kernels if k.op_type == OFFLOAD]
    assert [k.name for k in waits] == ["copies to and from the host"] * 2
    assert all(k.flops == 0 for k in waits)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offload_blocks": -1}, ["offload_blocks is -1", ">= 0"]),
        ({"offload_blocks": 1.5}, ["offload_blocks is 1.5", "integer"]),
        ({"offload_blocks": 2, "recompute": "full"}, ["offload_blocks is 2", "strategy.recompute=none", "full"]),
        ({"offload_blocks": BLOCKS}, [f"offload_blocks is {BLOCKS}", f"less than the {BLOCKS} blocks"]),
    ],
)
def test_what_cannot_be_is_refused(graph, changes, words):
    with pytest.raises(ConfigError) as caught:
        plan_of(graph, 64e9, **changes)
    assert all(word in str(caught.value) for word in words)


def test_pipelines_and_unknown_links_are_refused(graph):
    with pytest.raises(ConfigError, match=r"offload_blocks is 2, which needs strategy\.pp=1; it is 2"):
        rostam.Strategy(dp=1, pp=2, offload_blocks=2)
    with pytest.raises(ConfigError, match="the bandwidth between linked and its host is not known"):
        plan_of(graph, 0.0, offload_blocks=2)
