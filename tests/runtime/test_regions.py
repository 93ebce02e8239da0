"""Transfers through switches that add up and copy, beside each other and beside messages."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core

PS = 1000  # a byte at 1 GB/s


@pytest.fixture
def trunk(graph):
    """Two switches of four accelerators each, joined by one cable; all links 1 GB/s.

    a0 a1 a2 a3 - s0 - s1 - a4 a5 a6 a7
    """
    g = graph(8)
    cables = [(f"a{k}", f"s{k // 4}") for k in range(8)] + [("s0", "s1")]
    g.fabric = rostam.fabric("custom", links=cables, link_bandwidth=1e9, in_network_reduction=True)
    return g


def link_between(fabric, src, dst):
    return int(np.flatnonzero((fabric.links["src"] == src) & (fabric.links["dst"] == dst))[0])


def test_a_message_and_a_region_halve_a_link(graph):
    g = graph(4)
    whole = g.template(g.all_reduce(4000, algorithm="push"), g.send(0, 2000))
    other = g.template(g.all_reduce(4000, algorithm="push"), g.recv(0))
    rest = g.template(g.all_reduce(4000, algorithm="push"))
    g.group(0, 1, 2, 3)
    g.peer(0, 1)
    g.peer(1, 0)
    g.devices([g.program(one) for one in (whole, other, rest, rest)])
    raw = g.run(fidelity="flow")
    # Half of the link each until the message is through, 2000 bytes at half the rate; then the rest alone.
    assert raw["device_end_ps"].tolist() == [(4000 + 2000) * PS] * 4


def test_groups_share_a_trunk_which_carries_each_buffer_once(trunk):
    g = trunk
    task = g.template(g.all_reduce(4000, algorithm="push", ranks=4))
    g.group(0, 1, 4, 5)
    g.group(2, 3, 6, 7)
    g.devices([g.program(task)] * 8)
    raw = g.run(fidelity="flow")
    assert raw["device_end_ps"].tolist() == [2 * 4000 * PS] * 8
    for ends in ((8, 9), (9, 8)):
        assert raw["link_bytes"][link_between(g.fabric, *ends)] == pytest.approx(2 * 4000)


def test_a_group_inside_a_switch_leaves_the_trunk_to_the_other(trunk):
    g = trunk
    task = g.template(g.all_reduce(3000, algorithm="pull", ranks=4))
    g.group(0, 1, 4, 5)
    g.group(2, 3, 6, 7)
    g.devices([g.program(task)] * 8)
    both = g.run(fidelity="flow")
    assert both["link_bytes"][link_between(g.fabric, 8, 9)] == pytest.approx(2 * 3000)


COLLECTIVES = (
    ("all_reduce", "pull"), ("all_reduce", "push"), ("reduce_scatter", "pull"), ("all_gather", "multicast"),
    ("broadcast", "multicast"), ("all_reduce", "ring"),
)  # fmt: skip


def drawn_run(seed, only=None):
    """Run groups of a drawn tree at once, each with a collective of its own; ``only`` one of them: alone."""
    rng = np.random.default_rng(seed)
    size = 12
    cables = [(f"s{k}", f"s{rng.integers(k)}") for k in range(1, 5)]
    cables += [(f"a{k}", f"s{rng.integers(5)}") for k in range(size)]
    fabric = rostam.fabric("custom", links=cables, link_bandwidth=1e9, in_network_reduction=True)
    order, cuts = rng.permutation(size), sorted(rng.choice(range(2, size - 1), 2, replace=False).tolist())
    groups = [part for part in np.split(order, cuts) if len(part) > 1]
    core = _core.TaskGraph(["x"])
    slots, programs = np.full((size, 1, 3), -1, np.int32), np.zeros(size, np.int32)
    idle = core.add_template([0], [-1], [0], [-1], [-1], [0], [1], [0, 0], [])
    programs[:] = core.add_program([idle], [0])
    sizes = []
    for number, group in enumerate(groups):
        name = COLLECTIVES[rng.integers(len(COLLECTIVES))]
        num_bytes = int(rng.integers(1, 50)) * 27_720  # divisible by 2 to 12
        sizes.append(num_bytes)
        if only is not None and number != only:
            continue
        schedule = core.add_schedule(*name, len(group))
        task = core.add_template([1], [0], [0], [schedule], [-1], [num_bytes], [0], [0, 0], [])
        programs[group] = core.add_program([task], [0])
        slots[group, 0, 0] = core.add_group(group.tolist())
        slots[group, 0, 1] = np.arange(len(group))
    core.add_devices(np.arange(size), programs, np.zeros(size), np.ones(size), np.zeros(size), slots)
    core.freeze()
    return _core.run_session(core, fabric.router("spray", enable_bundling=False), fold=False), len(groups)


@pytest.mark.parametrize("seed", range(12))
def test_links_carry_of_drawn_groups_at_once_what_they_carry_of_each_alone(seed):
    together, num_groups = drawn_run(seed)
    alone = [drawn_run(seed, only=k)[0] for k in range(num_groups)]
    total = sum(np.asarray(one["link_bytes"]) for one in alone)
    assert np.asarray(together["link_bytes"]) == pytest.approx(total, rel=1e-9, abs=1e-6)
    assert sum(one["sent_bytes"][0] for one in alone) == together["sent_bytes"][0]
    assert sum(one["received_bytes"][0] for one in alone) == together["received_bytes"][0]
    ends = [int(np.max(one["device_end_ps"])) for one in alone]
    end = int(np.max(together["device_end_ps"]))
    # No link carries more than its rate, and no group is faster for company.
    assert end >= total.max() * PS * (1 - 1e-9)
    assert max(ends) <= end <= sum(ends) + 100
