"""A second copy of the weights within groups of ranks (hpZ): memory by hand, gathers that stay inside, conservation."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan import Strategy

P = 68_976_648_192  # Llama 2 70B


def collectives(plan, template, kind):
    tasks = plan.stages[0].templates[template]
    return [task for task in tasks if task.kind == "collective" and task.collective == kind]


def held(plan):
    memory = plan.stages[0].memory
    return memory.parameters + memory.gradients + memory.optimizer_state + memory.staying


def test_llama_2_70b_on_32_with_groups_of_8(placed):
    keys = {"dp": 32, "shard": 3, "precision": "bf16_mixed", "optimizer": "adam", "check_memory": False}
    plan = placed(rostam.trace("llama2_70b"), Strategy.of(reshard_group=8, **keys), 32)
    assert held(plan) == 18 * P // 32 + 2 * P // 8
    assert round(held(plan) / 1e9, 2) == 56.04


def test_backward_gathers_inside_the_group_as_much_as_forward_from_all(placed, twelve_layers):
    keys = {"dp": 8, "shard": 3, "precision": "bf16_mixed"}
    plain, plan = (placed(twelve_layers, Strategy.of(**keys, **more), 8) for more in ({}, {"reshard_group": 4}))
    forward, backward = (collectives(plan, name, "all_gather") for name in ("forward", "backward_last"))
    assert {task.group for task in forward} == {"zero"}
    assert {task.group for task in backward} == {"zero_again"}
    assert [t.num_bytes for t in backward] == [t.num_bytes for t in collectives(plain, "backward_last", "all_gather")]
    assert collectives(plan, "backward_last", "reduce_scatter") == collectives(plain, "backward_last", "reduce_scatter")
    (again,) = (one for one in plan.groups if one.label == "zero_again")
    assert np.array_equal(again.members, [[0, 1, 2, 3], [4, 5, 6, 7]])
    words = twelve_layers.num_parameters
    assert plan.stages[0].memory.staying == pytest.approx(2 * words / 4, rel=1e-6)
    assert plan.stages[0].memory.gathered == plain.stages[0].memory.gathered


def test_what_crosses_servers_is_what_forward_gathers_and_gradients():
    graph = rostam.trace("gpt_125m")
    fabric = rostam.fabric("electrical_cluster", num_accelerators=8, server_size=4, server_bandwidth="100 Gb/s",
                           link_bandwidth="900 Gb/s")  # fmt: skip
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    times = []
    for more in ({}, {"reshard_group": 4}):
        strategy = Strategy.of(dp=8, shard=3, precision="bf16_mixed", algorithms={"all_gather": "ring"}, **more)
        plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
        result = rostam.simulate(plan)
        # Ring: n - 1 of n parts of every gather and reduction leave each rank.
        sizes = [(t, 4 if t.group == "zero_again" else 8) for name in ("forward", "backward_last")
                 for kind in ("all_gather", "reduce_scatter") for t in collectives(plan, name, kind)]  # fmt: skip
        by_hand = sum((n - 1) / n * task.num_bytes for task, n in sizes)
        assert sum(result.bytes_sent.values()) == pytest.approx(8 * by_hand, rel=1e-6)
        times.append(result.iteration_time_s)
    assert times[1] < times[0]


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({"shard": 2}, ConfigError, r"reshard_group is 4, which needs strategy\.shard = 3; it is 2"),
        ({"shard": 3, "reshard_group": 3}, DegreeError, r"reshard_group is 3; .* divides the 8 ranks"),
        ({"shard": 3, "reshard_group": 0}, DegreeError, r"reshard_group is 0"),
        ({"shard": 3, "reshard_after_forward": False}, ConfigError, r"set reshard_after_forward=true, or leave"),
        ({"shard": 3, "ep": 2}, ConfigError, r"second copies of experts are not modelled"),
    ],
)
def test_what_cannot_be_is_refused(keys, error, said):
    with pytest.raises(error, match=said):
        Strategy.of(**{"dp": 8, "reshard_group": 4, **keys})
