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
        strategy=rostam.Strategy(**given | {"dp": ranks} | strategy), cost="roofline",
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
    with pytest.raises(UnitError, match=r"first_bucket is '30 MB'.*at most strategy.bucket_size"):
        rostam.Strategy(first_bucket="30 MB")


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


def test_a_host_that_replays_the_model_launches_the_step_alone(net):
    def seconds(host):
        plan = plan_of(net, machine={"host": host, "launch_latency": "0 us"}, optimizer_kernels="single")
        steps = [k for t in plan.stages[0].templates["backward_last"] if t.is_optimizer for k in t.kernels]
        return rostam.simulate(plan).iteration_time_s, [k.duration_s for k in steps]

    (replayed_s, steps), (ahead_s, _) = seconds("graphed_model"), seconds("graphs")
    # A pass that takes scales away, then three kernels for each of six parameters: 10 us each, from when gradients are
    # there, and each runs in less.
    assert len(steps) == 1 + 3 * len(SIZES)
    launch_s = 10e-6
    assert HOSTS["graphed_model"].launch == "10 us"
    assert max(steps) < launch_s
    assert replayed_s - ahead_s == pytest.approx(len(steps) * launch_s + steps[-1] - math.fsum(steps), rel=1e-6)


def test_settings_that_do_not_fit(net):
    for key, value in (("gradient_buffer", "copied"), ("optimizer_kernels", "single"), ("autocast", True)):
        said = repr(value) if value is not True else "true"
        with pytest.raises(ConfigError, match=rf"{key} is {said}, which needs strategy.shard to be 0; it is 1"):
            rostam.Strategy(**{key: value, "shard": 1})
    with pytest.raises(ConfigError, match=r"autocast is true, which needs strategy.precision .*; it is 'fp32'"):
        rostam.Strategy(autocast=True, precision="fp32", fusion="none")
    with pytest.raises(ConfigError, match=r"autocast is true, which needs strategy.fusion .*; it is 'pointwise'"):
        rostam.Strategy(autocast=True, precision="fp16_mixed")
    with pytest.raises(ConfigError, match=r"gradient_precision must be fp32 or auto; it is 'fp16'"):
        rostam.Strategy(autocast=True, precision="fp16_mixed", fusion="none", gradient_precision="fp16")
    with pytest.raises(ConfigError, match=r"autocast is true, .* it is 'fp32', the model's own"):
        plan_of(net, autocast=True, precision=None)
