"""Rows of experts that cross to each server once."""

import itertools

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.models import mixtral
from rostam_py.placement.experts.hops import expert_hops, num_parts_hit
from rostam_py.placement.place import place
from rostam_py.plan import Machine, Strategy
from rostam_py.plan.expert_groups import BETWEEN, INSIDE
from rostam_py.software.stacks.megatron_core import MegatronCore
from rostam_py.tracing import trace


def test_parts_hit_are_those_of_all_draws():
    # 6 experts on 3 servers, 2 of them for each token: of 15 pairs 3 lie on one server
    pairs = list(itertools.combinations(range(6), 2))
    mean = np.mean([len({expert // 2 for expert in pair}) for pair in pairs])
    assert num_parts_hit(3, 2, 2) == pytest.approx(mean) == pytest.approx((3 * 1 + 12 * 2) / 15)


@pytest.mark.parametrize("most", [2, 4, 8])
def test_shares_are_what_drawn_tokens_take(most):
    # DeepSeek-V3: 256 experts on 64 ranks of 8 servers, 8 for each token
    groups, servers = np.arange(64).reshape(1, 64), np.arange(64) // 8
    found = {hop.group: hop.share for hop in expert_hops(groups, servers, 256, 8, most).hops}
    draw = np.random.default_rng(0)
    reached, ranks = [], []
    for _ in range(20_000):
        chosen = draw.choice(8, most, replace=False)
        candidates = (chosen[:, None] * 32 + np.arange(32)).ravel()
        experts = draw.choice(candidates, 8, replace=False)
        reached.append(len(set(experts // 32)))
        ranks.append(len(set(experts // 4)))
    assert found[BETWEEN] == pytest.approx(np.mean(reached) / 8, rel=0.01)
    assert found[INSIDE] == pytest.approx(np.mean(ranks) / 8, rel=0.01)


def test_groups_are_ranks_of_equal_number_and_ranks_of_a_server():
    groups = np.array([[0, 1, 2, 3], [4, 5, 6, 7]])
    hops = expert_hops(groups, np.arange(8) // 2, 8, 2, 2)
    members = {one.label: one.members.tolist() for one in hops.groups}
    assert members == {
        BETWEEN: [[0, 2], [1, 3], [4, 6], [5, 7]],
        INSIDE: [[0, 1], [2, 3], [4, 5], [6, 7]],
    }


def test_one_server_and_one_rank_on_each_have_one_hop():
    groups = np.arange(4).reshape(1, 4)
    (inside,) = expert_hops(groups, np.zeros(4, int), 8, 2, 1).hops
    (between,) = expert_hops(groups, np.arange(4), 8, 2, 4).hops
    assert inside.group == between.group == "ep"
    assert inside.share == between.share == pytest.approx(num_parts_hit(4, 2, 2) / 2)


def test_what_cannot_be_is_refused():
    groups = np.arange(4).reshape(1, 4)
    with pytest.raises(ConfigError, match=r"servers_per_token is 2, but groups of strategy.ep = 4 ranks do not have"):
        expert_hops(groups, np.array([0, 1, 0, 1]), 8, 2, 2)
    with pytest.raises(ConfigError, match=r"1 of 2 servers hold 4 experts, but a token needs 6; it must be at least 2"):
        expert_hops(groups, np.arange(4) // 2, 8, 6, 1)
    with pytest.raises(ConfigError, match=r"servers_per_token is 0; it must be an integer >= 1"):
        Strategy.of(ep=4, servers_per_token=0)
    with pytest.raises(ConfigError, match=r"servers_per_token is 2, which needs strategy.ep > 1"):
        Strategy.of(servers_per_token=2)
    with pytest.raises(ConfigError, match=r"dispatcher is 'nvshmem'.*hybridep, deepep"):
        Strategy.of(ep=4, servers_per_token=2, dispatcher="nvshmem")
    with pytest.raises(ConfigError, match=r"dispatcher is 'deepep', which is used only with software.rules.servers"):
        Strategy.of(ep=4, dispatcher="deepep")


@pytest.fixture(scope="module")
def tiny():
    config = mixtral.Config(
        num_layers=2, width=512, num_heads=8, num_key_heads=4, head_size=64, hidden=256, num_experts=8, per_token=2,
        vocabulary=512, sequence_length=128,
    )  # fmt: skip
    return trace(mixtral.build("tiny", config))


def test_a_plan_sends_both_hops_and_a_step_gets_shorter(tiny):
    import rostam_py as rostam

    fabric = rostam.fabric(
        "electrical_cluster", num_accelerators=8, server_size=4, server_bandwidth="50 GB/s",
        link_bandwidth="400 GB/s",
    )  # fmt: skip
    machine = Machine(fabric=fabric, accelerator="h100_80gb")
    times = {}
    for most in (None, 1, 2):
        strategy = Strategy.of(dp=8, ep=8, micro_batch=1, precision="bf16_mixed", servers_per_token=most)
        plan = place(tiny, machine, global_batch=8, strategy=strategy, software="ideal")
        times[most] = rostam.simulate(plan).iteration_time_s
        sent = {m.group: m.num_bytes for m in plan.messages() if m.group.startswith("ep") and m.num_bytes > 10_000}
        rows = 128 * 2 * 512 * 2  # of bf16
        if most is None:
            assert sent == {"ep": rows}
        else:
            # 8 experts on 2 servers of 4 ranks; 2 for each token, of 4 or all 8 of them
            hit = num_parts_hit(most, 4, 2, 4 * most)
            ranks = num_parts_hit(4 * most, 1, 2, 4 * most)
            expected = {BETWEEN: hit / 2 * rows, INSIDE: ranks / 2 * rows}
            assert sent == {label: pytest.approx(size, abs=1) for label, size in expected.items()}
    assert times[1] < times[2] < times[None]


def test_a_dispatcher_holds_as_many_multiprocessors_as_it_is_told_while_rows_travel(tiny):
    import rostam_py as rostam

    # A rate that hides nothing of the compute: kernels that run while rows travel have what is left of the device.
    fabric = rostam.fabric("electrical_cluster", num_accelerators=8, server_size=4, server_bandwidth="50 GB/s",
                           link_bandwidth="400 GB/s")  # fmt: skip
    machine = Machine(fabric=fabric, accelerator="h100_80gb")
    held = {}
    for chosen in (None, 2, 24, 48):
        strategy = Strategy.of(dp=8, ep=8, micro_batch=1, precision="bf16_mixed", servers_per_token=2,
                               dispatcher="deepep", dispatcher_multiprocessors=chosen)  # fmt: skip
        plan = place(tiny, machine, global_batch=8, strategy=strategy, software="ideal")
        tasks = [task for tasks in plan.stages[0].templates.values() for task in tasks]
        found = {task.multiprocessors for task in tasks if task.group in (BETWEEN, INSIDE)}
        held[chosen] = found - {0}
    assert held[2] == {1}  # half for each hop
    assert held[24] == {12}
    assert held[48] == {24}
    assert len(held[None]) == 1
    with pytest.raises(ConfigError, match=r"dispatcher_multiprocessors is 0; it must be an integer >= 1"):
        Strategy.of(ep=4, servers_per_token=2, dispatcher_multiprocessors=0)
    with pytest.raises(ConfigError, match=r"dispatcher_multiprocessors is 20.*servers_per_token is not set"):
        Strategy.of(ep=4, dispatcher_multiprocessors=20)


@pytest.mark.parametrize(
    ("groups", "most", "servers", "expected"),
    [
        (8, 4, 8, 4),  # DeepSeek-V3 on 8 servers of 8: a group on each
        (8, 4, 2, 2),  # four groups on a server: never more than the servers
        (8, 1, 2, 1),
        (2, 1, 8, 4),  # a group on four servers
        (3, 1, 4, 3),  # not aligned: two, and one more
        (None, None, 8, 8),
    ],
)
def test_groups_of_experts_bound_the_servers_of_a_token(groups, most, servers, expected):
    chosen = MegatronCore(moe_router_num_groups=groups, moe_router_group_topk=most)
    assert min(servers, chosen.most_servers(servers)) == expected
    if groups is None:
        return
    # Against every choice of groups: experts dealt to servers in order, 12 for each group and server.
    experts = np.arange(12 * groups * servers)
    of_group, of_server = experts // (12 * servers), experts // (12 * groups)
    reached = max(len(set(of_server[np.isin(of_group, some)])) for some in itertools.combinations(range(groups), most))
    assert reached <= expected


def test_megatron_cores_flags_bound_the_rows_that_cross(tiny):
    import rostam_py as rostam

    fabric = rostam.fabric("electrical_cluster", num_accelerators=8, server_size=2, server_bandwidth="50 GB/s",
                           link_bandwidth="400 GB/s")  # fmt: skip
    machine = Machine(fabric=fabric, accelerator="h100_80gb")
    between = {}
    for groups in ({}, {"moe_router_num_groups": 4, "moe_router_group_topk": 1}):
        software = {"name": "megatron_core", "moe_token_dispatcher_type": "flex", "moe_deepep_num_sms": 8, **groups}
        strategy = Strategy(dp=8, ep=8, micro_batch=1, precision="bf16_mixed")
        plan = place(tiny, machine, global_batch=8, strategy=strategy, software=software)
        assert plan.strategy.rules.dispatcher_multiprocessors == 8
        between[len(groups)] = max(m.num_bytes for m in plan.messages() if m.group == BETWEEN)
    # 2 of 8 experts on 4 servers: of 28 pairs 4 lie on one server, and all of them with one group for each token.
    rows = 128 * 2 * 512 * 2
    assert between[0] == pytest.approx((4 + 24 * 2) / 28 / 2 * rows, abs=1)
    assert between[2] == pytest.approx(rows / 2, abs=1)
    with pytest.raises(ConfigError, match=r"moe_router_num_groups is 4 and software.moe_router_group_topk is 5"):
        MegatronCore(moe_router_num_groups=4, moe_router_group_topk=5)
