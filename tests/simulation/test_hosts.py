"""Hosts of a placed GPT: limits, folding and fusion change nothing, what is reported, what is refused.

The core's times are checked kernel by kernel in tests/runtime/test_hosts.py.
"""

import json

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import mixtral
from rostam_py.plan.host import HOST_SYNCS, HOSTS
from rostam_py.plan.host_calls import MEGATRON_CORE_NODES

US, LAYERS = 1e-6, 4


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m")


def plan_of(graph, num=4, batch=8, cost="roofline", **options):
    strategy = options.pop("strategy", {"dp": num})
    fabric = rostam.fabric("electrical_flat", num_accelerators=num, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb", **options)
    return rostam.place(
        graph, machine, global_batch=batch, strategy=rostam.Strategy.of(**strategy), cost=cost, software="ideal"
    )


def launches(plan, stage=0):
    one = plan.stages[stage]
    return sum(
        count * sum(len(t.kernels) if t.kind == "compute" else 1 for t in one.templates[name])
        for name, count in one.program.counts().items()
    )


def test_graphs_are_the_default_and_take_no_time(graph):
    plain, graphs = (rostam.simulate(plan_of(graph, **o)) for o in ({}, {"host": "graphs", "host_sync": "none"}))
    assert plain.to_dict() == graphs.to_dict()
    assert "host" not in plain.breakdown


def test_a_host_that_limits_takes_launches_times_their_cost(graph):
    plan = plan_of(graph, host="eager", host_launch="1 ms", host_sync="none")
    result = rostam.simulate(plan)
    assert result.iteration_time_s == pytest.approx(launches(plan) * 1e-3, rel=1e-9)
    # With a stop the last launches before it and the work behind them are not hidden.
    stopped = rostam.simulate(plan_of(graph, host="eager", host_launch="1 ms"))
    assert stopped.iteration_time_s == pytest.approx(launches(plan) * 1e-3, rel=0.02)
    assert stopped.iteration_time_s > result.iteration_time_s
    assert sum(stopped.breakdown.values()) == pytest.approx(stopped.iteration_time_s, rel=1e-12)
    assert stopped.breakdown["host"] > 0.9 * stopped.iteration_time_s
    assert stopped.critical_path_by_kind()["host"] > 0.9 * stopped.iteration_time_s


@pytest.mark.parametrize("strategy", [{"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}, {"dp": 4, "shard": 3}])
@pytest.mark.parametrize("sync", HOST_SYNCS)
def test_folding_and_fusing_kernels_change_no_time(graph, strategy, sync):
    plan = plan_of(graph, strategy=strategy, host="eager", host_launch="25 us", host_sync=sync)
    one = rostam.simulate(plan)
    for options in ({"fold": False}, {"fuse": False}):
        other = rostam.simulate(plan, **options)
        assert other.iteration_times_s == one.iteration_times_s
        assert other.breakdown == pytest.approx(one.breakdown, abs=1e-15)


def test_waiting_at_messages_takes_no_less(graph):
    strategy = {"pp": 4, "micro_batch": 1}
    times = [
        rostam.simulate(plan_of(graph, strategy=strategy, host="eager", host_sync=sync)).iteration_time_s
        for sync in HOST_SYNCS
    ]
    assert times == sorted(times)
    assert times[-1] > times[1]


@pytest.fixture(scope="module")
def routed():
    """Four layers of 8 experts, 2 for a token."""
    config = mixtral.Config(
        num_layers=LAYERS, width=512, num_heads=8, num_key_heads=4, head_size=64, hidden=1024, num_experts=8,
        per_token=2, vocabulary=1000, sequence_length=256,
    )  # fmt: skip
    return rostam.trace(mixtral.build("routed", config))


def routed_tasks(plan):
    return {name: sum(t.is_routed for t in tasks) for name, tasks in plan.stages[0].templates.items()}


def test_a_host_that_reads_rows_of_experts_waits_once_a_layer_and_forward(routed, tmp_path):
    strategy = {"dp": 2, "ep": 2, "micro_batch": 1}
    plan = plan_of(routed, 2, strategy=strategy, host="eager")
    assert routed_tasks(plan) == {"forward": LAYERS, "backward": 0, "backward_last": 0}
    again = plan_of(routed, 2, strategy=strategy | {"recompute": "full"}, host="eager")
    assert routed_tasks(again) == {"forward": LAYERS, "backward": LAYERS, "backward_last": LAYERS}
    alone = plan_of(routed, 2, strategy={"dp": 2, "micro_batch": 1}, host="eager")
    assert routed_tasks(alone) == {"forward": 0, "backward": 0, "backward_last": 0}
    again.save(str(tmp_path / "plan.json"))
    assert routed_tasks(rostam.Plan.load(str(tmp_path / "plan.json"))) == routed_tasks(again)


@pytest.mark.parametrize(
    ("host", "sync", "words"),
    [
        ("eager", "experts", "software.rules.host_sync is experts, but no rows are sent to any"),
        ("graphs", "experts", "software.rules.host_sync is experts, but no device waits for its host"),
        ("graphs", "messages", "software.rules.host_sync is messages, but no device waits for its host"),
        ("eager", "optimizer", ""),
        ("graphs", "none", ""),
    ],
)
def test_waits_that_do_not_come_about_are_said(graph, host, sync, words):
    notes = [one for one in rostam.simulate(plan_of(graph, host=host, host_sync=sync)).notes if "host_sync" in one]
    assert len(notes) == bool(words)
    assert all(one.startswith(words) for one in notes)


def test_waits_for_routing_that_come_about_leave_no_note(routed):
    plan = plan_of(routed, 2, strategy={"dp": 2, "ep": 2, "micro_batch": 1}, host="eager", host_sync="experts")
    assert not any("host_sync" in one for one in rostam.simulate(plan).notes)


def test_parts_that_no_layer_has_to_replay_are_said(graph, routed):
    def notes(model, parts):
        plan = plan_of(model, host="transformer_engine", host_sync="none", host_graphs=parts)
        return [one for one in rostam.simulate(plan).notes if "host_graphs" in one]

    (note,) = notes(graph, ["attention", "router"])
    assert note.startswith("software.rules.host_graphs names router, which no layer has")
    assert notes(graph, ["attention"]) == notes(routed, ["attention", "router"]) == notes(graph, None) == []


def test_a_wait_for_routing_takes_the_launch_of_what_sends_the_rows(routed):
    # On a slow network hosts catch up while rows are sent: each wait costs the launch of the all-to-all behind it, less
    # the latency that it would have had anyway.
    launch, latency, micro_batches = 30 * US, US, 4
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="1 Gb/s")
    times = {}
    for sync in ("optimizer", "experts"):
        machine = rostam.Machine(
            fabric=fabric, accelerator="h100_80gb", host="eager", host_launch=launch, launch_latency=latency,
            host_sync=sync,
        )  # fmt: skip
        strategy = rostam.Strategy(dp=2, ep=2, micro_batch=1)
        plan = rostam.place(
            routed, machine, global_batch=2 * micro_batches, strategy=strategy, cost="roofline", software="ideal"
        )
        times[sync] = rostam.simulate(plan).iteration_time_s
    waits = LAYERS * micro_batches
    assert times["experts"] - times["optimizer"] == pytest.approx(waits * (launch - latency), rel=0.1)


def test_estimates_are_no_shorter_than_their_launches(graph):
    found = rostam.search(
        graph, plan_of(graph, host="eager", host_launch="1 ms").machine, batches=[8], num_simulated=1,
        placers=["megatron"], cost="roofline", software="ideal",
    )  # fmt: skip
    best = found.candidates[0]
    assert abs(best.estimate_error) < 0.1


def test_the_timeline_shows_waits_for_hosts(graph, tmp_path):
    result = rostam.simulate(plan_of(graph, host="eager", host_launch="50 us"), timeline=True)
    result.save_timeline(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    waits = [e for e in events if e["name"] == "waits for the host" and e["tid"] == 0]
    assert sum(e["dur"] for e in waits) * US == pytest.approx(result.breakdown["host"], rel=0.02)


def test_a_saved_graph_keeps_its_hosts(graph, tmp_path):
    plan = plan_of(graph, host="compiled", host_sync="none")
    path = tmp_path / "graph.json"
    rostam.TaskGraph.of(plan).save(path)
    again = rostam.simulate(rostam.TaskGraph.load(path))
    assert again.iteration_times_s == rostam.simulate(plan).iteration_times_s
    assert rostam.TaskGraph.load(path).machine.host_sync == "none"


def kernels_of(plan, part):
    return [k for tasks in plan.stages[0].templates.values() for t in tasks for k in t.kernels if part in k.op_type]


# Of a layer of Mixtral, and once: q, k, v, the projection and the router; three grouped products; a norm that the
# router and the rows' copies read (the others' norms are in their products); the last product.
CALLS = {
    "product": (5, 1), "product_backward": (5, 1), "experts": (3, 0), "experts_backward": (3, 0), "attention": (1, 0),
    "attention_backward": (1, 0), "routing": (1, 0), "norm": (1, 0), "norm_backward": (1, 0),
}  # fmt: skip


@pytest.mark.parametrize(("ep", "num_experts", "overlap"), [(1, 8, False), (2, 4, False), (2, 4, True)])
def test_transformer_engine_launches_every_expert_and_runs_the_code_of_modules(routed, ep, num_experts, overlap):
    # Counted by hand: a launch for each expert of a grouped product, one for other kernels and for communication, and
    # the code of modules in front of them, each expert's share of it included. Where micro-batches take turns, what the
    # schedule takes of each layer both ways.
    assert HOSTS["transformer_engine"].launch == "8 us"
    strategy = {"dp": 2, "ep": ep, "micro_batch": 1, "ep_overlap": overlap}
    plan = plan_of(routed, 2, strategy=strategy, host="transformer_engine", host_sync="none")
    assert {k.launches for k in kernels_of(plan, "grouped")} == {num_experts}
    stage, micro_batches = plan.stages[0], 4
    seconds = 0.0
    for name, count in stage.program.counts().items():
        for task in stage.templates[name]:
            grouped = sum("grouped_mm" in k.op_type for k in task.kernels)
            kernels = 1 if task.kind != "compute" else len(task.kernels) + grouped * (num_experts - 1)
            seconds += count * 8e-6 * kernels
    for name, (of_layer, once) in CALLS.items():
        found = sum(
            count * sum(k.calls == name for t in stage.templates[template] for k in t.kernels)
            for template, count in stage.program.counts().items()
        )
        assert found == micro_batches * (of_layer * LAYERS + once), name
        call = HOSTS["transformer_engine"].calls[name]
        seconds += found * 2.0 * (call.base_s + num_experts * call.part_s)  # of x86
    if overlap:
        seconds += micro_batches * LAYERS * 2.0 * sum(call.base_s for call in MEGATRON_CORE_NODES.values())
    assert rostam.simulate(plan).iteration_time_s == pytest.approx(seconds, rel=1e-6)
    eager = rostam.simulate(plan_of(routed, 2, strategy=strategy, host="eager", host_sync="none"))
    assert eager.iteration_time_s < 0.7 * seconds


def test_parts_that_replay_graphs_cost_one_replay_each_way(routed):
    # Of each layer and micro-batch: attention's kernels and modules (four products, its norm is in them), then those
    # of the router, its norm among them.
    def host_s(graphs):
        options = {"host": "transformer_engine", "host_sync": "none", "host_graphs": graphs}
        plan = plan_of(routed, 2, strategy={"dp": 2, "ep": 2, "micro_batch": 1}, **options)
        return plan, rostam.simulate(plan).iteration_time_s

    (plan, without), (_, attention), (_, both) = (host_s(g) for g in (None, ["attention"], ["attention", "router"]))
    calls, layers = HOSTS["transformer_engine"].calls, 4 * LAYERS
    x86 = 2.0  # times the CPU of the measurement
    stage = plan.stages[0]

    def launched(parts):
        return sum(
            count
            * 8e-6
            * sum(not parts.isdisjoint(k.module.split(".")) for t in stage.templates[name] for k in t.kernels)
            for name, count in stage.program.counts().items()
        )

    names = ("product", "product_backward", "attention", "attention_backward")
    saved = sum(calls[name].base_s * (4 if "product" in name else 1) for name in names) - 2 * calls["replay"].base_s
    assert without - attention == pytest.approx(layers * saved * x86 + launched({"attention", "norm1"}), rel=1e-6)
    names = ("product", "product_backward", "routing", "norm", "norm_backward")
    saved = sum(calls[name].base_s for name in names) - 2 * calls["replay"].base_s
    assert attention - both == pytest.approx(layers * saved * x86 + launched({"router", "norm2"}), rel=1e-6)


def test_passes_of_a_cast_are_launched_by_recipe_and_expert(routed):
    # Counted in Transformer Engine's multi_tensor_quantize_impl: for each of four experts the largest value, the scale
    # and the cast; of delayed scaling one kernel for all.
    for precision, of_rows, others in (("fp8_mixed", 12, 3), ("fp8_delayed_mixed", 1, 1), ("fp8_block_mixed", 4, 1)):
        plan = plan_of(routed, 2, strategy={"dp": 2, "ep": 2, "micro_batch": 1, "precision": precision})
        assert {k.launches for k in kernels_of(plan, "rostam.cast")} <= {of_rows, others, 1}
        assert max(k.launches for k in kernels_of(plan, "rostam.cast")) == of_rows


def test_a_grace_takes_longer_for_what_was_measured_on_x86(graph):
    def launch(host, accelerator, **options):
        fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="400 Gb/s")
        return rostam.Machine(fabric=fabric, accelerator=accelerator, host=host, **options).host_costs

    assert launch("eager", "gb200_186gb").launch_s == pytest.approx(10e-6 * 37.08 / 13.48, rel=1e-3)
    assert launch("transformer_engine", "gb300_288gb").launch_s == pytest.approx(8e-6 * 37.08 / 13.48, rel=1e-3)
    # Modules' code as te.Linear's forward: 36 us of Python and a launch of 8 on the CPU of the measurement.
    assert launch("transformer_engine", "gb300_288gb").slowdown == pytest.approx((90.53 + 99.66) / 2 / 44, rel=0.01)
    assert launch("transformer_engine", "h100_80gb", host_slowdown=1.5).slowdown == 3.0
    assert launch("compiled", "gb200_186gb", host_slowdown=1.5).launch_s == pytest.approx(12 * US)
    # "compiled" was measured on a Grace.
    assert launch("compiled", "gb200_186gb").launch_s == launch("compiled", "b200_180gb").launch_s
    assert launch("eager", "b200_180gb").launch_s == 10 * US
    assert launch("eager", "gb200_186gb", host_launch="4 us").launch_s == 4 * US


def test_a_saved_plan_keeps_launches_and_calls(routed, tmp_path):
    plan = plan_of(routed, 2, strategy={"dp": 2, "ep": 2, "micro_batch": 1}, host="transformer_engine")
    plan.save(str(tmp_path / "plan.json"))
    again = rostam.Plan.load(str(tmp_path / "plan.json"))
    assert rostam.simulate(again).iteration_times_s == rostam.simulate(plan).iteration_times_s


def test_plans_of_one_simulation_must_launch_alike(graph):
    plan = plan_of(graph)
    eager = plan.on(rostam.Machine(fabric=plan.machine.fabric, accelerator="h100_80gb", host="eager"))
    with pytest.raises(ConfigError, match="host_launch differs"):
        rostam.TaskGraph.of([plan, eager])


@pytest.mark.parametrize(("given", "message"), [
    ({"host": "lazy"}, "software.rules.host is 'lazy'; it must be one of: graphs, compiled, eager, graphed_model"),
    ({"host_sync": "step"}, "host_sync is 'step'; it must be one of: none, optimizer, experts, messages"),
    ({"host_launch": "-1 us"}, "machine.host_launch"),
    ({"host": "transformer_engine", "host_graphs": ["mlp"]}, "has 'mlp'; it may have: attention, router"),
    ({"host": "transformer_engine", "host_graphs": True}, "is True; it must be a list of: attention, router"),
    ({"host": "eager", "host_graphs": ["router"]}, "software.rules.host=transformer_engine; that is eager"),
    ({"host_launch": "fast"}, "machine.host_launch"),
    ({"host_slowdown": 0}, "machine.host_slowdown is 0; it must be a finite number > 0"),
])  # fmt: skip
def test_bad_hosts_are_refused(given, message):
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="400 Gb/s")
    with pytest.raises(ConfigError, match=message):
        rostam.Machine(fabric=fabric, **given)


def test_every_kind_of_host_says_where_its_figure_is_from():
    assert all(one.what and one.source and one.launch for one in HOSTS.values())
