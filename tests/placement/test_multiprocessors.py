"""What collectives hold of a device where their code is not NCCL's: user buffers of tp, exchanges of experts' rows."""

import pytest

import rostam_py as rostam
from rostam_py.models import mixtral


@pytest.fixture(scope="module")
def machine():
    return rostam.machine("dgx_h100", servers=2)


def held(plan, kind):
    tasks = [t for s in plan.stages for ts in s.templates.values() for t in ts if t.kind == "collective"]
    return {(t.group, t.multiprocessors) for t in tasks if t.collective == kind}


def test_overlapped_tp_holds_what_user_buffers_do_and_other_groups_channels(machine, tmp_path):
    graph = rostam.trace("gpt_125m")
    strategy = {"tp": 4, "dp": 4, "sequence_parallel": True, "precision": "bf16_mixed", "shard": 1}
    plain = rostam.place(graph, machine, global_batch=8, strategy=rostam.Strategy.of(**strategy), software="ideal")
    assert {count for _, count in held(plain, "all_gather") | held(plain, "reduce_scatter")} == {0}
    plan = rostam.place(
        graph, machine, global_batch=8, strategy=rostam.Strategy.of(**strategy, tp_overlap=True), software="ideal"
    )
    gathers, scatters = held(plan, "all_gather"), held(plan, "reduce_scatter")
    assert ("tp", 3) in gathers
    assert ("tp", 14) in scatters
    assert {count for group, count in gathers | scatters if group != "tp"} == {0}
    plan.save(str(tmp_path / "plan.json"))
    again = rostam.Plan.load(str(tmp_path / "plan.json"))
    assert held(again, "all_gather") == gathers
    assert rostam.simulate(again).iteration_times_s == rostam.simulate(plan).iteration_times_s


def test_rows_that_cross_once_hold_what_their_library_does(machine):
    config = mixtral.Config(
        num_layers=2, width=512, num_heads=8, num_key_heads=4, head_size=64, hidden=1024, num_experts=16,
        per_token=2, vocabulary=1000, sequence_length=256,
    )  # fmt: skip
    graph = rostam.trace(mixtral.build("routed", config))
    cases = (
        (16, 2, "hybridep", {8}), (8, 1, "hybridep", {16}), (16, 2, "deepep", {10}), (8, 1, "deepep", {20}),
        (16, None, "hybridep", {0}),
    )  # fmt: skip
    for ep, servers, dispatcher, expected in cases:
        strategy = rostam.Strategy.of(dp=16, ep=ep, servers_per_token=servers, dispatcher=dispatcher, micro_batch=1)
        plan = rostam.place(graph, machine, global_batch=16, strategy=strategy, software="ideal")
        assert {count for _, count in held(plan, "all_to_all")} == expected
