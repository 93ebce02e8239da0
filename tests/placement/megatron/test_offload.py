"""Activations in the host's memory: bytes against Korthikanti et al.'s formula, times by hand, what is refused."""

import pytest

import rostam_py as rostam
from rostam_py.costs import get_accelerator
from rostam_py.costs.families import HOST_COPY
from rostam_py.errors import ConfigError
from rostam_py.placement.megatron.offload import OFFLOAD, Offload

# megatron_22b: hidden size, heads, sequence.
HIDDEN, HEADS, LENGTH, BLOCKS = 6144, 64, 2048, 48


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("megatron_22b")


def plan_of(graph, host_bandwidth, batch=1, **strategy):
    device = get_accelerator("h100_80gb").with_overrides("linked", host_bandwidth_bytes_per_s=host_bandwidth)
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator=device)
    given = rostam.Strategy.of(dp=1, precision="fp16_mixed", check_memory=False, **strategy)
    return rostam.place(graph, machine, global_batch=batch, strategy=given, cost="roofline", software="ideal")


def block_bytes(samples=1):
    # Korthikanti et al. 2022, equation 1, of one layer without tensor parallelism.
    return LENGTH * samples * HIDDEN * (34 + 5 * HEADS * LENGTH / HIDDEN)


def seconds(plan, phase, block):
    """Return the time of a block's kernels. Modules of a block are those under its path."""
    kernels = [k for task in plan.stages[0].templates[phase] for k in task.kernels]
    return sum(k.duration_s for k in kernels if k.module.split(".")[:2] == ["blocks", str(block)])


# While the last block computes, those that stay are on the device; where it alone stays, the copied one before it too.
@pytest.mark.parametrize(
    ("count", "freed"), [(1, 1), (2, 2), (7, 7), (BLOCKS - 2, BLOCKS - 2), (BLOCKS - 1, BLOCKS - 2)]
)
def test_blocks_in_the_hosts_memory_leave_the_device(graph, count, freed):
    whole, left = (plan_of(graph, 64e9, offload_blocks=n).stages[0].memory.activations for n in (0, count))
    assert whole - left == pytest.approx(freed * block_bytes(), rel=2e-5)  # norms keep 4 numbers a token


@pytest.mark.parametrize("count", range(6))
def test_freed_bytes_are_what_a_walk_over_blocks_of_any_size_finds(count):
    sizes = [3.0, 1.0, 7.0, 2.0, 2.0, 5.0]
    most = 0.0
    for running in range(len(sizes)):  # kept blocks done, the copied one before, the running one
        there = set(range(count, running)) | ({running - 1} if 0 < running <= count else set()) | {running}
        most = max(most, sum(sizes[block] for block in there))
    copied, kept = dict(enumerate(sizes[:count])), dict(enumerate(sizes[count:], count))
    assert Offload(copied, kept, 1e9).freed_bytes == sum(sizes) - most


def test_waits_are_no_kernels_of_any_family(graph):
    plan = plan_of(graph, 2e9, offload_blocks=2)
    found, plain = (rostam.simulate(one) for one in (plan, plan_of(graph, 2e9)))
    waits = [k.duration_s for name in ("forward", "backward_last") for t in plan.stages[0].templates[name]
             for k in t.kernels if k.op_type == OFFLOAD]  # fmt: skip
    assert found.compute_by_family[HOST_COPY] == pytest.approx(sum(waits), rel=1e-6)
    rest = {family: seconds for family, seconds in found.compute_by_family.items() if family != HOST_COPY}
    assert rest == pytest.approx(plain.compute_by_family, rel=1e-6)
    inputs = [row.name for row in rostam.sensitivity(plan).rows]
    assert "waits for copies to and from hosts" in inputs
    assert not any(HOST_COPY in name for name in inputs)


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
    with pytest.raises(ConfigError, match=r"offload_blocks is 2, which needs strategy\.pp=1; strategy\.pp is 2"):
        rostam.Strategy(dp=1, pp=2, offload_blocks=2)
    with pytest.raises(ConfigError) as caught:
        plan_of(graph, 0.0, offload_blocks=2)
    words = ["offload_blocks is 2", "linked has no host_bandwidth_bytes_per_s", "b200_180gb", "gb200_186gb"]
    assert all(word in str(caught.value) for word in words)


def test_copies_are_slower_than_the_data_sheet(graph):
    shares = {"a100_80gb": 32e9, "h100_80gb": 64e9, "b200_180gb": 64e9, "b300_288gb": 64e9, "gb300_288gb": 225e9}
    for name, data_sheet in shares.items():
        assert 0.7 < get_accelerator(name).host_bandwidth_bytes_per_s / data_sheet < 0.9
