"""Servers that fail together: by hand, and by a search over sets in drawn layouts."""

import random

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fleet.goodput.layout import servers_of_replicas, units_of


def by_sets(servers):
    """Return the groups of servers by joining sets until nothing changes, or one of all where sizes differ."""
    groups = [(set(row), {k}) for k, row in enumerate(servers)]
    joined = True
    while joined:
        joined = False
        for a in range(len(groups)):
            for b in range(a + 1, len(groups)):
                if groups[a][0] & groups[b][0]:
                    groups[a] = (groups[a][0] | groups[b][0], groups[a][1] | groups[b][1])
                    del groups[b]
                    joined = True
                    break
            if joined:
                break
    if len({(len(units), len(replicas)) for units, replicas in groups}) > 1:
        return [set().union(*(units for units, _ in groups))]
    return [units for units, _ in groups]


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_those_that_sets_find(seed):
    rng = random.Random(seed)
    dp, ranks, size = rng.choice([1, 2, 3, 4, 6]), rng.choice([1, 2, 4, 6]), rng.choice([1, 2, 3, 4, 8])
    order = (
        np.arange(dp * ranks).reshape(dp, ranks) if rng.random() < 0.5 else np.arange(dp * ranks).reshape(ranks, dp).T
    )
    servers = np.unique(order // size, return_inverse=True)[1].reshape(dp, ranks)
    found = units_of(servers)
    assert sorted(sum(found, ())) == list(range(int(servers.max()) + 1))
    assert {frozenset(unit) for unit in found} == {frozenset(unit) for unit in by_sets(servers.tolist())}


@pytest.mark.parametrize(
    ("degrees", "order", "units"),
    [
        ({"dp": 4, "tp": 8}, "tp,dp,pp", ((0,), (1,), (2,), (3,))),
        ({"dp": 4, "tp": 8}, "dp,tp,pp", ((0, 1, 2, 3),)),
        ({"dp": 16, "tp": 2}, "tp,dp,pp", ((0,), (1,), (2,), (3,))),
        # Megatron's order: a stage's ranks of two replicas lie on one server, and so do those of the next stages.
        ({"dp": 4, "tp": 4, "pp": 2}, "tp,dp,pp", ((0, 2), (1, 3))),
        ({"dp": 2, "tp": 8, "pp": 2}, "tp,dp,pp", ((0, 2), (1, 3))),
        ({"dp": 2, "tp": 8, "pp": 2}, "tp,pp,dp", ((0, 1), (2, 3))),
    ],
)
def test_ranks_in_their_order_decide_what_a_server_breaks(degrees, order, units):
    graph = rostam.trace("gpt_125m", num_layers=2)
    fabric = rostam.fabric("electrical_cluster", num_accelerators=32)
    strategy = rostam.Strategy(**degrees, rank_order=order, micro_batch=1)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=32, strategy=strategy, software="ideal")
    assert units_of(servers_of_replicas(plan, 8)) == units
