"""The sip_ml placer: plans as a whole, against megatron where they must agree, and what users get wrong."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.errors import ConfigError, DegreeError, MemoryCapacityError, UnitError
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, KERNEL
from rostam_py.plan import Machine, Strategy
from rostam_py.tracing import trace

place = partial(rostam.place, software="ideal", cost="roofline")  # quanta and windows here are set for data-sheet times
NO_LAUNCH = {"launch_latency": "0 s"}
NO_FLOOR = {"min_kernel_time": "0 s"}


def machine(count, fabric="electrical_flat", accelerator="v100_32gb", physics=None, **params):
    """Return accelerators on a fabric at 1 Tb/s each."""
    params = {"accelerator_bandwidth": "1 Tb/s"} | params
    built = rostam.fabric(fabric, num_accelerators=count, **params)
    return Machine(fabric=built, accelerator=accelerator, **(physics or {}))


def sip(**options):
    """Return a strategy of Algorithm 1."""
    return Strategy.of(**({"placer": "sip_ml"} | options))


# Against megatron: pure data parallelism is the same job


@pytest.mark.parametrize("dp", [1, 4])
@pytest.mark.parametrize("model", ["perceptron", "conv_net", "gpt_125m", "transformer_350m"])
def test_pure_data_parallelism_is_that_of_megatron(small_graphs, model, dp):
    graph, batch = small_graphs[model], 8 * dp
    ours = place(graph, machine(dp), global_batch=batch, strategy=sip(dp=dp))
    theirs = place(graph, machine(dp), global_batch=batch, strategy=Strategy.of(dp=dp, fusion="producer"))
    # Algorithm 1 knows no order of kernels: it counts what is kept, not what the loss hands on as backward begins, and
    # keeps the loss as wide as other activations; so memory is compared in fp32, behind the forward.
    plain = [place(graph, machine(dp), global_batch=batch, strategy=s) for s in
             (sip(dp=dp, precision="fp32"), Strategy.of(dp=dp, fusion="producer", precision="fp32"))]  # fmt: skip
    (mine,), (other,) = plain[0].stages, plain[1].stages
    kept = sum(change[0] for name, change in other.activation_changes.items() if name.startswith("forward"))
    assert mine.memory.activations == pytest.approx(kept, abs=1)
    assert replace(mine.memory, activations=0) == replace(other.memory, activations=0)
    sizes = [Counter((m.kind, m.group, m.num_bytes) for m in plan.messages()) for plan in (ours, theirs)]
    assert sum(m[2] * n for m, n in sizes[0].items()) == sum(m[2] * n for m, n in sizes[1].items())
    assert ours.traffic.total_bytes == theirs.traffic.total_bytes
    work = [sum(k.duration_s for s in p.stages for name, _ in s.program for t in s.templates[name]
                for k in t.kernels) for p in (ours, theirs)]  # fmt: skip
    assert work[0] == pytest.approx(work[1], rel=1e-12)
    times = [rostam.simulate(plan).iteration_time_s for plan in (ours, theirs)]
    # Compute tasks end at other places, so a few more launches of 1 us may be seen.
    assert times[0] == pytest.approx(times[1], rel=0.01, abs=20e-6)


# Speed


def ideal_time(graph, mp, batch):
    """Return the iteration time at 10^6 Tb/s without latency or launch."""
    fabric = {"accelerator_bandwidth": "1000000 Tb/s", "latency": "0 s"}
    strategy = sip(mp=mp, check_memory=False)
    return rostam.simulate(
        place(graph, machine(mp, physics=NO_LAUNCH, **fabric), global_batch=batch, strategy=strategy)
    ).iteration_time_s


@pytest.mark.parametrize("model", ["perceptron", "wide_perceptron", "conv_net", "tied_autoencoder", "gpt_125m"])
@pytest.mark.parametrize("batch", [8, 64])
def test_eight_devices_at_infinite_bandwidth_are_no_slower_than_one(small_graphs, model, batch):
    graph = small_graphs[model]
    alone, together = ideal_time(graph, 1, batch), ideal_time(graph, 8, batch)
    assert together <= alone
    if model in ("wide_perceptron", "gpt_125m") and batch == 64:
        assert together < alone / 2


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer_350m", "resnet50"])
def test_large_models_at_infinite_bandwidth_are_several_times_faster_on_eight_devices(cached_traces, model):
    graph = rostam.trace(model)
    alone, together = ideal_time(graph, 1, 64), ideal_time(graph, 8, 64)
    assert alone / 8 < together < alone / 5


# Co-location (SiP-ML 3.2, MODEL D14)


def test_forward_backward_and_gradient_of_a_parameter_shard_share_a_device(small_graphs):
    for graph in small_graphs.values():
        for options in ({}, {"max_circuit_degree": 5}):
            plan = place(
                graph, machine(8), global_batch=8, strategy=sip(mp=8, quantum="1 us", check_memory=False, **options)
            )
            homes, seen = {}, {}
            for node, devices in zip(plan.details.sub_ops.nodes, plan.details.placed.devices, strict=True):
                if node.shard < 0:
                    continue
                for part, device in enumerate(devices):
                    assert homes.setdefault((node.shard, part), device) == device, (graph.name, node.name)
                seen.setdefault(node.shard, set()).add(node.phase if node.kind == KERNEL else node.kind)
            assert any({"forward", "backward", GRADIENT} <= kinds for kinds in seen.values()), graph.name
            # The optimizer of a device updates what lies there, and nothing else does.
            local = [0] * 8
            for count, node in plan.details.sub_ops.parameters.values():
                for device in plan.details.placed.devices[node]:
                    local[device] += count
            assert [stage.num_parameters for stage in plan.stages] == local
            for stage in plan.stages:
                (optimizer,) = [t for t in stage.templates["iteration"] if t.is_optimizer]
                assert optimizer is stage.templates["iteration"][-1]
                assert bool(optimizer.kernels) == (stage.num_parameters > 0)


# Memory


def test_memory_of_a_perceptron_on_two_devices_matches_a_count_by_hand(perceptron):
    # Batch 4, columns then rows: half of both weights, 2 x 8,192 elements, 4 bytes each of parameters, gradients and
    # momentum. Kept: half of the ReLU's output (4 x 256 floats), half of y (4 x 64 floats), all of x (4 x 64 floats).
    plan = place(
        perceptron, machine(2, physics=NO_FLOOR), global_batch=4,
        strategy=sip(mp=2, quantum="0.2 us", optimizer="momentum", precision="fp32"),
    )  # fmt: skip
    for stage in plan.stages:
        memory = stage.memory
        assert (memory.parameters, memory.gradients, memory.optimizer_state) == (65536, 65536, 65536)
        assert memory.activations == 2048 + 512 + 1024
        assert stage.num_parameters == 16384
    assert plan.memory_bytes == 3 * 65536 + 3584


def test_frozen_weights_and_buffers_lie_where_their_sub_ops_run():
    # A trained first layer in columns, then a frozen one, which has no gradient to sum: split by sample, so that both
    # devices hold all of it, and of the vector that is added to their samples.
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(64, 256, bias=False), nn.Linear(256, 64, bias=False)
            self.down.requires_grad_(False)
            self.register_buffer("shift", torch.empty(64))

        def forward(self, x):
            return self.down(torch.relu(self.up(x))) + self.shift

    graph = trace(Half(), torch.empty(4, 64), loss_fn=lambda y: (y * y).mean(), name="half")
    options = {"quantum": "0.2 us", "optimizer": "momentum", "precision": "fp32"}
    plan = place(graph, machine(2, physics=NO_FLOOR), global_batch=4, strategy=sip(mp=2, **options))
    layer = 64 * 256 * 4
    for stage in plan.stages:
        assert stage.memory.parameters == layer // 2 + layer + 64 * 4
        assert stage.memory.gradients == stage.memory.optimizer_state == layer // 2
        assert stage.num_parameters == 64 * 256 // 2


def test_a_model_too_large_says_by_how_much_and_fits_more_devices(small_graphs):
    graph = small_graphs["gpt_125m"]
    with pytest.raises(MemoryCapacityError, match=r"too much.*Raise strategy\.mp"):
        place(graph, machine(1), global_batch=256, strategy=sip())
    assert place(graph, machine(4), global_batch=256, strategy=sip(mp=4)).memory_bytes < 32e9
    assert place(graph, machine(1), global_batch=256, strategy=sip(check_memory=False)).memory_bytes > 32e9


def test_weights_lie_in_slices_where_copies_do_not_fit():
    # 1,024 samples: the least is sent with both weights (4 MiB, 16 bytes a parameter with Adam) whole on every device.
    net = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 1024, bias=False))
    graph = trace(net, torch.empty(8, 1024), loss_fn=lambda y: y.square().mean(), name="wide")
    strategy = sip(mp=4, precision="fp32", optimizer="adam", quantum="1 us")
    copies = place(graph, machine(4), global_batch=1024, strategy=strategy)
    sliced = place(graph, machine(4), global_batch=1024, strategy=strategy.with_keys(weight_splits="sliced"))
    held = [plan.stages[0].memory.total - plan.stages[0].memory.activations for plan in (copies, sliced)]
    assert held == [2 * 1024**2 * 16, 2 * 1024**2 * 16 // 4]
    small = replace(get_accelerator("v100_32gb"), memory_bytes=25_000_000)
    fitted = place(graph, machine(4, accelerator=small), global_batch=1024, strategy=strategy)
    assert fitted.memory_bytes == sliced.memory_bytes < 25e6 < copies.memory_bytes
    assert any("weight matrices lie in slices" in note for note in fitted.notes)
    assert not any("lie in slices" in note for note in copies.notes)
    assert rostam.simulate(fitted).iteration_time_s == rostam.simulate(sliced).iteration_time_s


# Mapping, ranks, spares


def test_mapping_and_rank_order_move_the_result(small_graphs):
    # Two servers of four at 100 Gb/s each. With mp fastest a group fills a server, and its all-reduce rings cross; with
    # dp fastest every ring of two stays in a server, and half of each group is on the other side.
    cluster = machine(8, "electrical_cluster", server_size=4, server_bandwidth="100 Gb/s")
    graph = small_graphs["transformer_350m"]

    def run(**options):
        plan = place(graph, cluster, global_batch=16, strategy=sip(dp=2, mp=4, **options))
        return plan, rostam.simulate(plan)

    inside, across = run(), run(rank_order="dp,tp,pp")
    assert inside[0].accelerators[:, :, 0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert across[0].accelerators[:, :, 0].tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    for plan, result in (inside, across):
        crosses = plan.traffic.src // 4 != plan.traffic.dst // 4
        rings = plan.accelerators[:, :, 0].T
        is_ring = {(int(a), int(b)) for pair in rings for a in pair for b in pair if a != b}
        in_ring = np.array([pair in is_ring for pair in zip(plan.traffic.src, plan.traffic.dst, strict=True)])
        assert crosses[in_ring].all() == (plan is inside[0])
        assert crosses[~in_ring].any() == (plan is across[0])
        assert plan.traffic.num_bytes[in_ring].sum() == result.bytes_sent["dp"]
    assert abs(across[1].iteration_time_s / inside[1].iteration_time_s - 1) > 0.1
    by_hand = run(mapping=[0, 2, 4, 6, 1, 3, 5, 7])
    assert by_hand[1].iteration_time_s == across[1].iteration_time_s
    assert run(mapping="random(3)")[1].iteration_time_s != inside[1].iteration_time_s
    assert inside[0].traffic.total_bytes == across[0].traffic.total_bytes


def test_idle_and_spare_accelerators(small_graphs):
    graph = small_graphs["wide_perceptron"]
    strategy = sip(dp=2, mp=3, allow_idle=True, quantum="1 us")
    plan = place(graph, machine(8), global_batch=8, strategy=strategy)
    assert plan.accelerators.shape == (2, 3, 1)
    assert set(np.unique(plan.traffic.src)) <= set(range(6))
    broken = Machine(fabric=machine(8).fabric.with_failures(accelerators=[1]), accelerator="v100_32gb")
    replaced = place(graph, broken, global_batch=8, strategy=strategy)
    assert replaced.accelerators[:, :, 0].tolist() == [[0, 6, 2], [3, 4, 5]]
    assert 1 not in set(replaced.traffic.src) | set(replaced.traffic.dst)
    assert rostam.simulate(replaced).iteration_time_s == pytest.approx(rostam.simulate(plan).iteration_time_s)
    with pytest.raises(DegreeError, match=r"strategy\.dp x mp = 2 x 4 = 8.*7 healthy"):
        place(graph, broken, global_batch=8, strategy=sip(dp=2, mp=4))


def test_a_plan_moves_to_another_machine(small_graphs):
    graph, strategy = small_graphs["transformer_350m"], sip(dp=2, mp=8)
    plan = place(graph, machine(16), global_batch=16, strategy=strategy)
    optical = plan.on(machine(16, "sip_ocs"))
    assert optical.stages == plan.stages
    assert optical.circuits is not None
    assert optical.circuit_degree == plan.circuit_degree <= 8
    assert rostam.simulate(optical).iteration_time_s > rostam.simulate(plan).iteration_time_s
    # Placed without a limit, 7 others and the ring's are too many for 4 switches.
    with pytest.raises(DegreeError, match="gives it 4 circuits"):
        plan.on(machine(16, "sip_ocs", num_ocs=4))
    limited = place(graph, machine(16, "sip_ocs", num_ocs=4), global_batch=16, strategy=strategy)
    assert limited.circuit_degree <= 4
    assert any("exceeds the circuit degree 4" in note for note in limited.notes)


def test_a_device_that_waits_for_nobody_may_run_ahead(conv_net):
    # Three devices: the third makes a constant for the other two and then has nothing to do. It runs ahead: its
    # message is there before they ask for it; the critical path must end with the iteration all the same.
    plan = place(conv_net, machine(3, physics=NO_LAUNCH), global_batch=64, strategy=sip(mp=3))
    idle = plan.stages[2].templates["iteration"]
    assert [t.kind for t in idle if t.kind == "recv"] == []
    result = rostam.simulate(plan)
    path = result.critical_path()
    assert sum(step.duration_s for step in path) == pytest.approx(result.iteration_time_s, rel=1e-6)


# Settings


def test_quantum_sets_the_number_of_sub_ops(small_graphs):
    graph = small_graphs["gpt_125m"]
    counts = []
    for quantum in ("1 s", "100 us", "10 us"):
        plan = place(graph, machine(8), global_batch=8, strategy=sip(mp=8, quantum=quantum, check_memory=False))
        nodes = plan.details.sub_ops.nodes
        counts.append(sum(node.num_parts for node in nodes if node.kind == KERNEL))
        assert any(f"{counts[-1]} sub-ops of about {quantum} on 8 devices" in note for note in plan.notes)
        assert (max(node.num_parts for node in nodes) == 1) == (quantum == "1 s")
    assert counts == sorted(set(counts))


def test_ops_that_cannot_be_split_are_reported(perceptron):
    # One sample, and a quantum below every kernel: the loss gradient's factor is one op over all of y, without a split.
    plan = place(perceptron, machine(4, physics=NO_FLOOR), global_batch=4, strategy=sip(mp=4, quantum="0.5 ns"))
    whole = [node.name for node in plan.details.sub_ops.nodes if node.kind == KERNEL and node.num_parts == 1]
    assert len(whole) == plan.details.sub_ops.num_unsplit == 1
    assert any("run whole on one device, without a legal split: 1 ops" in note for note in plan.notes)


def test_equal_settings_give_equal_plans(small_graphs):
    for graph in small_graphs.values():
        strategy = sip(mp=6, max_circuit_degree=5, quantum="1 us", check_memory=False)
        one, two = (place(graph, machine(6), global_batch=6, strategy=strategy) for _ in range(2))
        assert one.stages == two.stages
        assert one.notes == two.notes


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"placer": "megatron", "mp": 2}, DegreeError, r"strategy\.mp is 2.*strategy\.placer=sip_ml"),
        ({"window": "ring"}, ConfigError, r"strategy\.placing\.window is 'ring'.*symmetric, paper"),
        ({"quantum": "0 s"}, UnitError, r"strategy\.placing\.quantum is '0 s'; it must be > 0"),
        ({"quantum": "-1 us"}, ConfigError, r"quantum"),
        ({"mp": 0}, DegreeError, r"strategy\.mp is 0"),
        ({"max_circuit_degree": 0}, DegreeError, r"strategy\.max_circuit_degree is 0"),
    ],
)
def test_strategies_that_make_no_sense_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        sip(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tp": 2}, r"strategy\.tp is 2.*takes strategy\.dp and strategy\.mp"),
        ({"pp": 2}, r"strategy\.pp is 2.*takes strategy\.dp and strategy\.mp"),
        ({"recompute": "full"}, r"strategy\.recompute is 'full'.*must be 'none'"),
        ({"micro_batch": 2}, r"strategy\.micro_batch is 2.*leave it out"),
        ({"dp": 3, "mp": 1, "allow_idle": True}, r"global_batch is 8; it must be divisible by strategy\.dp = 3"),
    ],
)
def test_settings_without_a_meaning_for_algorithm_1_are_refused(perceptron, options, words):
    with pytest.raises(ConfigError, match=words):
        place(perceptron, machine(4), global_batch=8, strategy=sip(**({"mp": 2} | options)))


def test_no_simulation_beats_the_makespan_of_its_placement(small_graphs):
    # Device by device: the largest makespan plus the largest optimizer may be of two devices, and bound nothing.
    fabric = rostam.fabric("electrical_flat", num_accelerators=4, accelerator_bandwidth="1000000 Gb/s", latency=0.0)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0)
    strategy = rostam.Strategy.of(dp=1, mp=4, placer="sip_ml", quantum="1 us")
    for graph in small_graphs.values():
        plan = rostam.place(graph, machine, global_batch=16, strategy=strategy, software="ideal")
        group = plan.details
        assert group.makespan_s <= group.placed.makespan_s + max(group.optimizer_s) + 1e-12
        assert 0 < group.makespan_s <= rostam.simulate(plan).iteration_time_s + 1e-12
