"""Passes over gradients: kernels and bytes by hand, what waits for them, and what refuses them."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

FABRIC = rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth="400 Gb/s")


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m")


def plan_of(graph, **strategy):
    machine = rostam.Machine(fabric=FABRIC, accelerator="h100_80gb")
    given = rostam.Strategy.of(**{"precision": "bf16_mixed", "micro_batch": 1, "bucket_size": "100 MB"} | strategy)
    return rostam.place(graph, machine, global_batch=8, strategy=given, cost="roofline", software="ideal")


def passes(plan, template, stage=0):
    tasks = plan.stages[stage].templates[template]
    return [k for t in tasks for k in t.kernels if k.name.startswith("gradients (")]


def moved(kernels):
    found = list(kernels)
    return sum(k.call.bytes_read for k in found), sum(k.call.bytes_written for k in found)


@pytest.mark.parametrize(
    ("buffer", "read", "written"),
    [("none", 0, 0), ("zeroed", 0, 4), ("scaled", 4, 8), ("checked", 8, 8)],
)
@pytest.mark.parametrize("strategy", [{"dp": 4}, {"dp": 4, "shard": 1}, {"tp": 4}, {"tp": 2, "dp": 2}])
def test_every_gradient_is_passed_over_once_an_iteration(graph, buffer, read, written, strategy):
    # Bytes for each of a device's own parameters, gradients of 4 bytes: zeros written, scaled ones read and written,
    # checked ones read.
    plan = plan_of(graph, gradient_buffer=buffer, **strategy)
    assert passes(plan, "forward") == passes(plan, "backward") == []
    count = plan.stages[0].num_parameters
    found = moved(passes(plan, "backward_last"))
    assert found == pytest.approx((read * count, written * count), rel=1e-9)


@pytest.mark.parametrize(("accumulation", "more"), [("fused", 4), ("separate", 2 + 4 + 4), ("free", 0)])
def test_the_only_micro_batch_adds_to_zeros(graph, accumulation, more):
    # Products read what is there besides; kernels of autograd's read the new gradient and that, and write the sum.
    plain, zeroed = (
        plan_of(graph, tp=4, micro_batch=8, gradient_buffer=one, accumulation=accumulation)
        for one in ("none", "zeroed")
    )
    read, written = moved(
        k for t in plain.stages[0].templates["backward_last"] for k in t.kernels if not t.is_optimizer
    )
    again = moved(k for t in zeroed.stages[0].templates["backward_last"] for k in t.kernels if not t.is_optimizer)
    assert sum(again) - read - written == pytest.approx(more * plain.stages[0].num_parameters, rel=0.02)


def test_bf16_gradients_take_half_and_shares_are_zeroed_alone(graph):
    half = moved(passes(plan_of(graph, dp=4, gradient_buffer="checked", gradient_precision="bf16"), "backward_last"))
    full = moved(passes(plan_of(graph, dp=4, gradient_buffer="checked"), "backward_last"))
    assert [2 * one for one in half] == pytest.approx(full)
    shared = plan_of(graph, dp=4, shard=2, gradient_buffer="zeroed")
    assert moved(passes(shared, "backward_last"))[1] == pytest.approx(shared.stages[0].num_parameters, rel=1e-3)


@pytest.mark.parametrize("buffer", ["zeroed", "scaled", "checked"])
def test_shares_of_parameters_are_passed_over_as_those_of_buffers_are(graph, buffer):
    kept = {"dp": 4, "shard": 3, "gradient_buffer": buffer}
    buffers, parameters = (plan_of(graph, shard_layout=one, **kept) for one in ("buffers", "parameters"))
    found = moved(k for name in parameters.stages[0].templates for k in passes(parameters, name))
    assert found == moved(k for name in buffers.stages[0].templates for k in passes(buffers, name))
    assert sum(found) > 0


def test_a_bucket_is_reduced_behind_its_passes(graph):
    tasks = plan_of(graph, dp=4, gradient_buffer="checked").stages[0].templates["backward_last"]
    reductions = [t for t in tasks if t.kind == "collective"]
    assert len(reductions) > 1
    for task in reductions:
        last = tasks[max(task.deps)].kernels
        assert [k.name for k in last[-2:]] == ["gradients (check)", "gradients (scale)"]
        assert last[-1].call.bytes_read == task.num_bytes


def test_an_iteration_takes_as_much_longer_as_its_passes_where_nothing_overlaps(graph):
    plain, scaled = (plan_of(graph, tp=4, accumulation="free", gradient_buffer=one) for one in ("none", "scaled"))
    seconds = sum(k.duration_s for k in passes(scaled, "backward_last"))
    assert seconds > 0
    difference = rostam.simulate(scaled).iteration_time_s - rostam.simulate(plain).iteration_time_s
    assert difference == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"gradient_buffer": "cleared"},
            "software.rules.gradient_buffer is 'cleared'; it must be one of: none, zeroed",
        ),
        ({"gradient_buffer": "scaled", "placer": "sip_ml", "mp": 4}, "with strategy.placer=sip_ml it must be 'none'"),
    ],
)
def test_what_cannot_be_done_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        rostam.Strategy.of(**given)
