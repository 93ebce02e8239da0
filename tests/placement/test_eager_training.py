"""What eager PyTorch runs beside a model's own kernels: biases, casts, copies of gradients, steps; by hand."""

import math

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs.optimizers import (
    FOREACH,
    OPTIMIZERS,
    optimizer_traffic_bytes,
    passes_bytes,
    single_calls,
    update_bytes,
)
from rostam_py.errors import ConfigError, UnitError
from rostam_py.plan.host import HOSTS
from rostam_py.plan.host_calls import INPUT, REPLAY, X86_OVER_MEASURED

BATCH, CHANNELS, SIDE, RANKS = 2, 8, 16, 4
POSITIONS = BATCH * SIDE**2
SIZES = {"0.weight": 3 * 9 * CHANNELS, "0.bias": CHANNELS, "2.weight": CHANNELS * 9 * CHANNELS, "2.bias": CHANNELS,
         "5.weight": CHANNELS * SIDE**2 * 10, "5.bias": 10}  # fmt: skip


@pytest.fixture(scope="module")
def net():
    layers = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1), nn.LeakyReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.LeakyReLU(), nn.Flatten(), nn.Linear(CHANNELS * SIDE**2, 10),
    )  # fmt: skip
    return rostam.trace(layers, torch.zeros(BATCH, 3, SIDE, SIDE), name="net")


def plan_of(graph, ranks=1, machine=None, **strategy):
    fabric = rostam.fabric("electrical_flat", num_accelerators=ranks, link_bandwidth="400 Gb/s")
    given = {"precision": "fp16_mixed", "gradient_precision": "fp32", "optimizer": "momentum", "fusion": "none"}
    return rostam.place(
        graph, rostam.Machine(fabric=fabric, accelerator="h100_80gb", **(machine or {})), global_batch=BATCH * ranks,
        strategy=rostam.Strategy.of(**given | {"dp": ranks} | strategy), cost="roofline", software="ideal",
    )  # fmt: skip


def kernels(plan, part):
    """Return (bytes read, bytes written) of kernels whose name ends so, in order."""
    found = [
        kernel.call for name in ("forward", "backward_last") for task in plan.stages[0].templates[name]
        for kernel in task.kernels if kernel.name.endswith(part)
    ]  # fmt: skip
    return [(round(call.bytes_read), round(call.bytes_written)) for call in found]


def test_biases_of_convolutions_are_kernels(net):
    size = 2 * POSITIONS * CHANNELS  # both convolutions make as much; forward adds to it, backward sums it
    assert kernels(plan_of(net), "(bias)") == [(size, size), (size, size), (size, 0), (size, 0)]
    assert kernels(plan_of(net, fusion="pointwise"), "(bias)") == []


def test_autocast_casts_weights_inputs_and_gradients(net):
    plan = plan_of(net, autocast=True)
    inputs = POSITIONS * 3
    assert sorted(kernels(plan, "(cast)")) == sorted((4 * n, 2 * n) for n in (inputs, *SIZES.values()))
    assert sorted(kernels(plan, "(gradient cast)")) == sorted((2 * n, 4 * n) for n in SIZES.values())
    assert kernels(plan_of(net), "(cast)") == []
    # Of a parameter the optimizer writes no copy: momentum and the weight, 4 bytes each.
    ((_, written),), ((_, copied),) = (kernels(plan_of(net, autocast=one), "optimizer") for one in (True, False))
    assert copied - written == 2 * sum(SIZES.values())
    # Gradients are fp32 whatever the precision's default is.
    assert plan_of(net, autocast=True, gradient_precision="auto").stages == plan.stages


def test_autocast_leaves_norms_in_fp32():
    layers = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU())
    normed = rostam.trace(layers, torch.zeros(BATCH, 3, SIDE, SIDE), name="normed")
    weight = 3 * 9 * CHANNELS
    assert kernels(plan_of(normed, autocast=True), "(gradient cast)") == [(2 * weight, 4 * weight)]


def test_copies_of_gradients_by_hand(net):
    plan = plan_of(net, RANKS, gradient_buffer="copied")
    for what in ("(copied in)", "(copied out)"):
        assert sorted(kernels(plan, what)) == sorted((4 * n, 4 * n) for n in SIZES.values())
    tasks = plan.stages[0].templates["backward_last"]
    reduced = max(i for i, task in enumerate(tasks) if task.kind == "collective")
    out = [i for i, task in enumerate(tasks) for k in task.kernels if k.name.endswith("(copied out)")]
    assert min(out) > reduced
    assert not any(tasks[i].is_optimizer for i in out)  # a part of backward
    assert kernels(plan_of(net, gradient_buffer="copied"), "(copied in)") == []  # nobody to reduce with


def test_the_first_bucket_is_smaller(net):
    # Backward makes the linear layer's first: 20,480 elements of 4 bytes; convolutions' follow.
    def buckets(**strategy):
        tasks = plan_of(net, RANKS, **strategy).stages[0].templates["backward_last"]
        return [task.num_bytes for task in tasks if task.kind == "collective"]

    last = 4 * sum(SIZES[name] for name in ("0.weight", "0.bias", "2.weight", "2.bias"))
    assert buckets() == [4 * sum(SIZES.values())]
    first, rest = buckets(first_bucket="50 kB")
    assert first >= 4 * SIZES["5.weight"]
    assert first + rest == 4 * sum(SIZES.values())
    assert rest - last in (0, 4 * SIZES["5.bias"])
    with pytest.raises(UnitError, match=r"first_bucket is '30 MB'.*at most software.rules.bucket_size"):
        rostam.Strategy.of(first_bucket="30 MB")


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16_mixed", "bf16_mixed"])
def test_single_kernels_move_what_foreach_kernels_do(name, clips, precision):
    counts = [100, 7, 1]
    calls = single_calls(name, counts, precision, clips=clips)
    each = optimizer_traffic_bytes(name, precision, clips=clips, kernels=FOREACH)
    moved = (sum(call.bytes_read for call in calls), sum(call.bytes_written for call in calls))
    assert moved == pytest.approx(tuple(108 * one for one in each))
    has_pass = clips or precision == "fp16_mixed"
    assert len(calls) == 3 * OPTIMIZERS[name].steps + has_pass
    parts = passes_bytes(precision, clips=clips), update_bytes(name, precision, kernels=FOREACH)
    assert tuple(map(sum, zip(*parts, strict=True))) == each
    assert sum(call.flops for call in calls) == pytest.approx(108 * OPTIMIZERS[name].flops)


def test_a_loop_around_a_graph_by_hand(net):
    def seconds(host, inputs):
        machine = {"host": host, "launch_latency": "0 us"}
        plan = plan_of(net, machine=machine, optimizer_kernels="single", inputs=inputs)
        tasks = [t for name in ("forward", "backward_last") for t in plan.stages[0].templates[name]]
        steps = [k.duration_s for t in tasks if t.is_optimizer for k in t.kernels]
        copies = [k.duration_s for k in tasks[0].kernels if k.calls == INPUT]
        return rostam.simulate(plan, min_iterations=2, max_iterations=2).iteration_times_s, steps, copies

    # On x86 code takes twice what it took where it was measured: 32 us in front of the step, 64 from it to the replay,
    # which takes 2 us and 0.2 us to its first kernel; the scaler's update is one more launch.
    launch_s, code = 6.6e-6, X86_OVER_MEASURED
    assert (HOSTS["graphed_model"].launch, code) == ("6.6 us", 2.0)
    turn_s = code * 64e-6 + launch_s + 2.2e-6
    (ahead_s, ahead_again_s), steps, _ = seconds("graphs", "in_place")
    (first_s, again_s), _, _ = seconds("graphed_model", "in_place")
    # A pass that takes scales away, then three kernels for each of six parameters, launched from when gradients are
    # there; each runs in less than it takes to launch.
    assert len(steps) == 1 + 3 * len(SIZES)
    assert max(steps) < launch_s
    step_s = code * 32e-6 + len(steps) * launch_s + steps[-1] - math.fsum(steps)
    assert first_s - ahead_s == pytest.approx(turn_s + step_s, rel=1e-6)
    # From then on the host turns while the device finishes the step's last kernel.
    assert again_s - ahead_again_s == pytest.approx(turn_s - steps[-1] + step_s, rel=1e-6)
    # Kernels that copy inputs are launched first, one by one, and run while the host takes its turn.
    (copied_s, _), _, copies = seconds("graphed_model", "copied")
    assert math.fsum(copies) < turn_s
    assert copied_s - first_s == pytest.approx(len(copies) * launch_s, rel=1e-6)


def test_inputs_of_a_graph_by_hand(net):
    # Of each sample 3 x 16^2 values, and the output's shape of targets that the mean of outputs does not have.
    size = 4 * POSITIONS * 3
    for autocast in (False, True):
        held = size if autocast else size // 2
        plans = {one: plan_of(net, autocast=autocast, inputs=one) for one in ("in_place", "copied", "widened")}
        assert {one: kernels(plan, "(input copied)") for one, plan in plans.items()} == {
            "in_place": [], "copied": [(held, held)], "widened": [(held, held)],
        }  # fmt: skip
        assert kernels(plans["widened"], "(input widened)") == [(size // 2, held)]
        first, *others = plans["widened"].stages[0].templates["forward"][0].kernels
        assert first.name.endswith("(input widened)")
        assert [k.calls for k in others[:2]] == [INPUT, REPLAY]


def test_a_graph_is_replayed_once_however_many_share_it(net):
    def labels(plan):
        return [k.calls for t in plan.stages[0].templates["forward"] for k in t.kernels if k.calls in (INPUT, REPLAY)]

    for tp in (1, 2, 4):
        assert labels(plan_of(net, tp, dp=1, tp=tp, inputs="copied")) == [INPUT, REPLAY]


def test_decayed_weights_by_hand(net):
    def added(which):
        plan = plan_of(net, optimizer_kernels="single", weight_decay=which)
        found = [k for t in plan.stages[0].templates["backward_last"] if t.is_optimizer for k in t.kernels]
        return len(found), sum(k.call.bytes_read + k.call.bytes_written for k in found)

    (none, moved), (products, of_products), (every, of_all) = map(added, ("none", "products", "all"))
    assert (products - none, every - none) == (1, len(SIZES))  # the linear layer's weight, or all
    assert of_products - moved == pytest.approx(
        12 * SIZES["5.weight"]
    )  # gradient and weight read, their sum written, in fp32
    assert of_all - moved == pytest.approx(12 * sum(SIZES.values()))


def test_settings_that_do_not_fit(net):
    with pytest.raises(ConfigError, match=r"weight_decay is 'all', but adam's step already includes the decay"):
        plan_of(net, optimizer="adam", optimizer_kernels="single", weight_decay="all")
    for key, value in (("gradient_buffer", "copied"), ("optimizer_kernels", "single"), ("autocast", True)):
        said = repr(value) if value is not True else "true"
        with pytest.raises(ConfigError, match=rf"{key} is {said}, which needs strategy.shard to be 0; it is 1"):
            rostam.Strategy.of(**{key: value, "shard": 1})
    with pytest.raises(ConfigError, match=r"weight_decay is 'all', which needs .*optimizer_kernels to be single"):
        rostam.Strategy.of(weight_decay="all")
    with pytest.raises(ConfigError, match=r"inputs is 'moved'; it must be one of: in_place, copied, widened"):
        rostam.Strategy.of(inputs="moved")
    with pytest.raises(ConfigError, match=r"inputs is 'copied', which needs .*recompute to be none; it is 'full'"):
        rostam.Strategy.of(inputs="copied", recompute="full")
    with pytest.raises(ConfigError, match=r"autocast is true, which needs strategy.precision .*; it is 'fp32'"):
        rostam.Strategy.of(autocast=True, precision="fp32", fusion="none")
    with pytest.raises(ConfigError, match=r"autocast is true, which needs software.rules.fusion .*; it is 'pointwise'"):
        rostam.Strategy.of(autocast=True, precision="fp16_mixed")
    with pytest.raises(ConfigError, match=r"gradient_precision must be fp32 or auto; it is 'fp16'"):
        rostam.Strategy.of(autocast=True, precision="fp16_mixed", fusion="none", gradient_precision="fp16")
    with pytest.raises(ConfigError, match=r"autocast is true, .* it is 'fp32', the model's own"):
        plan_of(net, autocast=True, precision=None)
