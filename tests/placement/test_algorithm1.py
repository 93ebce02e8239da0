"""Algorithm 1 on its own: small drawn cases, relocation, its bound, and random graphs."""

import random
from dataclasses import replace

import pytest

from rostam_py.errors import ConfigError, MemoryCapacityError
from rostam_py.placement.sip_ml.algorithm1 import LOCALITY_SLACK_S, Node, Read, parts_read, place_sub_ops, window_reach

LONG = 10e-6  # five times LOCALITY_SLACK_S: nobody waits that long to stay beside data


def read(node, relation="aligned", num_bytes=1.0):
    """Return a read of an earlier node."""
    return Read(node, relation, num_bytes)


def in_range(source, target, num_devices, degree, window):
    """Tell whether one device may send to another, written from MODEL D14 and SiP-ML 3.2, not from the code."""
    if num_devices <= degree:
        return True
    step = (target - source) % num_devices
    if window == "paper":
        return step <= degree - 1
    return min(step, num_devices - step) <= (degree - 1) // 2


def violations(nodes, placed, num_devices, degree, window="symmetric"):
    """Return the reads whose two ends may not exchange data, and the pairs of parts of one op that may not."""
    bad = []
    for n, node in enumerate(nodes):
        for part, device in enumerate(placed.devices[n]):
            for r in node.reads:
                for i in parts_read(r.relation, part, node.num_parts, nodes[r.node].num_parts):
                    if not in_range(placed.devices[r.node][i], device, num_devices, degree, window):
                        bad.append((r.node, i, n, part))
            for other in placed.devices[n][:part]:
                if not all(in_range(a, b, num_devices, degree, window) for a, b in ((device, other), (other, device))):
                    bad.append((n, part))
    return bad


# Walking forwards


def test_parts_without_inputs_spread_over_the_devices():
    placed = place_sub_ops([Node(LONG, 4)], num_devices=8)
    assert placed.devices == [(0, 1, 2, 3)]
    assert placed.makespan_s == LONG


def test_the_device_that_can_start_first_is_taken_and_ties_go_to_the_smallest_number():
    # Node 0 keeps devices 0 and 1 busy until 10 us. Node 1 finds 2 and 3 free: 2. Node 2 finds 3, node 3 all four busy
    # until 10 us: ties go to 0.
    nodes = [Node(LONG, 2), Node(LONG, 1), Node(LONG, 1), Node(LONG, 1)]
    placed = place_sub_ops(nodes, num_devices=4)
    assert placed.devices == [(0, 1), (2,), (3,), (0,)]
    assert [s[0] for s in placed.starts_s] == [0.0, 0.0, 0.0, LONG]
    assert placed.makespan_s == 2 * LONG


@pytest.mark.parametrize(("busy_s", "device"), [(0.9 * LOCALITY_SLACK_S, 0), (1.1 * LOCALITY_SLACK_S, 1)])
def test_a_sub_op_waits_beside_its_largest_input_for_no_longer_than_a_message_takes(busy_s, device):
    # Node 0 on device 0 until 10 us, node 1 beside it for busy_s more. Node 2's data lie on device 0, device 1 is idle.
    nodes = [Node(LONG, 1), Node(busy_s, 1, (read(0),)), Node(LONG, 1, (read(0),))]
    placed = place_sub_ops(nodes, num_devices=2)
    assert placed.devices == [(0,), (0,), (device,)]


def test_of_several_inputs_the_largest_decides_where_a_sub_op_stays():
    nodes = [Node(LONG, 1), Node(LONG, 1), Node(LONG, 1, (read(0, num_bytes=1.0), read(1, num_bytes=2.0)))]
    assert place_sub_ops(nodes, num_devices=3).devices == [(0,), (1,), (1,)]


def test_starts_wait_for_inputs_and_for_the_device():
    # 0 (10 us, two parts) -> 1 reads all -> 2 reads its own part of 1. One device: 0a 0b 1 2 in a row.
    nodes = [Node(LONG, 2), Node(LONG, 1, (read(0, "all"),)), Node(LONG, 1, (read(1, "same_part"),))]
    alone = place_sub_ops(nodes, num_devices=1)
    assert [list(s) for s in alone.starts_s] == [pytest.approx(s) for s in ([0, LONG], [2 * LONG], [3 * LONG])]
    pair = place_sub_ops(nodes, num_devices=2)
    assert [list(s) for s in pair.starts_s] == [pytest.approx(s) for s in ([0, 0], [LONG], [2 * LONG])]
    assert pair.devices[2] == pair.devices[1]


def test_nodes_that_pass_data_on_take_no_time_and_no_device():
    nodes = [Node(LONG, 2), Node(0.0, 2, (read(0, "exchange"),), beside=0), Node(LONG, 2, (read(1, "same_part"),))]
    placed = place_sub_ops(nodes, num_devices=2)
    assert placed.devices[1] == placed.devices[0]
    assert placed.makespan_s == 2 * LONG


def test_sub_ops_of_one_shard_share_a_device_whatever_is_free():
    # Forward and backward of shard 7 with a long op between them, while device 3 idles.
    nodes = [Node(LONG, 2, shard=7), Node(LONG, 1, (read(0, "all"),)), Node(LONG, 2, (read(1, "all"),), shard=7)]
    placed = place_sub_ops(nodes, num_devices=4)
    assert placed.devices[2] == placed.devices[0] == (0, 1)


# Memory


def test_memory_pushes_sub_ops_to_other_devices():
    # A chain of three sub-ops of 4 bytes would stay on device 0; 8 bytes hold two, so the third moves on.
    nodes = [Node(LONG, 1, memory_bytes=4)] + [Node(LONG, 1, (read(n),), memory_bytes=4) for n in range(2)]
    assert place_sub_ops(nodes, 2).devices == [(0,)] * 3
    placed = place_sub_ops(nodes, 2, capacity_bytes=8)
    assert placed.devices == [(0,), (0,), (1,)]
    assert placed.memory_bytes == [8, 4]


def test_a_shard_goes_where_all_of_it_has_room():
    # Nodes 1 and 2 are one shard of 10 bytes: node 1's 4 alone would fit beside node 0's 4, but then not node 2's 6.
    nodes = [
        Node(LONG, 1, memory_bytes=4),
        Node(LONG, 1, (read(0),), shard=0, memory_bytes=4),
        Node(LONG, 1, (read(1),), shard=0, memory_bytes=6),
    ]
    placed = place_sub_ops(nodes, 2, capacity_bytes=10)
    assert placed.devices == [(0,), (1,), (1,)]
    assert placed.memory_bytes == [4, 10]


def test_too_little_memory_says_by_how_much():
    nodes = [Node(LONG, 1, memory_bytes=3_000_000), Node(LONG, 1, (read(0),), memory_bytes=2_500_000)]
    with pytest.raises(MemoryCapacityError, match=r"would need 5\.5 MB.* has 4 MB: 1\.5 MB too much.*strategy\.mp"):
        place_sub_ops(nodes, 1, capacity_bytes=4_000_000)
    assert place_sub_ops(nodes, 2, capacity_bytes=4_000_000).devices == [(0,), (1,)]


# Windows


@pytest.mark.parametrize(
    ("degree", "num_devices", "window", "reach"),
    [
        (None, 64, "symmetric", None),
        (8, 8, "symmetric", None),  # all 7 others and the ring are 8 circuits
        (8, 9, "symmetric", 3),  # 3 on either side and the ring are 7; 4 would be 9
        (7, 9, "symmetric", 3),
        (8, 9, "paper", 7),  # 7 onwards and the ring
        (1, 2, "paper", 0),
    ],
)
def test_window_reach_keeps_a_circuit_for_the_ring(degree, num_devices, window, reach):
    assert window_reach(degree, num_devices, window) == reach


@pytest.mark.parametrize(("window", "devices"), [("symmetric", {0, 1, 7}), ("paper", {0, 1, 2})])
def test_readers_stay_in_the_window_of_their_source(window, devices):
    # D = 3 of k = 8: 0 reaches 7, 0 and 1, by the printed rule 0, 1 and 2. Six readers of one sub-op fill that.
    nodes = [Node(LONG, 1)] + [Node(LONG, 1, (read(0),)) for _ in range(6)]
    placed = place_sub_ops(nodes, 8, degree=3, window=window)
    assert {d for ds in placed.devices for d in ds} == devices
    assert violations(nodes, placed, 8, 3, window) == []
    assert placed.num_relocations == 0


def test_unknown_window_is_refused():
    with pytest.raises(ConfigError, match=r"strategy\.window is 'ring'.*symmetric, paper"):
        window_reach(4, 8, "ring")


# Relocation


def walking_chain(num_links):
    """Return a chain that walks along the ring, and a sub-op that reads its first and its last link.

    Link l reads link l - 1, and so does a sub-op of 20 times its length, which takes the chain's device: with
    reach 1 the next link goes one device on, l on device l. On k = 8 devices with D = 3:

        device  0   1   2   3
        link    0 - 1 - 2 - 3      the reader of links 0 and 3 is in range of one of them only
    """
    nodes = [Node(LONG, 1, shard=0)]
    for link in range(num_links):
        nodes += [Node(20 * LONG, 1, (read(2 * link),)), Node(LONG, 1, (read(2 * link),))]
    return [*nodes, Node(LONG, 1, (read(0), read(2 * num_links)))]


def test_a_chain_that_walked_out_of_range_is_relocated():
    # Links 0 and 2 have device 1 in both windows, links 0 and 3 have none. The reader takes the free device 4, beside
    # link 3; link 0 is relocated to the nearest device in range of it, 3, then link 1 and its sibling after it, to 2.
    short, long = walking_chain(2), walking_chain(3)
    assert place_sub_ops(short, 8, degree=3).num_relocations == 0
    placed = place_sub_ops(long, 8, degree=3)
    assert (placed.num_relocations, placed.has_given_up) == (3, False)
    assert [d for (d,) in placed.devices] == [3, 2, 2, 1, 2, 2, 3, 4]
    assert violations(long, placed, 8, 3) == []


def test_times_after_relocations_are_those_of_the_final_devices():
    nodes = walking_chain(3)
    placed = place_sub_ops(nodes, 8, degree=3)
    free_s, ends = [0.0] * 8, []
    for node, (device,), starts in zip(nodes, placed.devices, placed.starts_s, strict=True):
        ready = max((ends[r.node] for r in node.reads), default=0.0)
        assert starts[0] == pytest.approx(max(ready, free_s[device]))
        ends.append(starts[0] + node.duration_s)
        free_s[device] = ends[-1]
    assert placed.makespan_s == pytest.approx(max(ends))


def test_reaching_the_bound_ends_on_devices_in_range_of_one_another():
    # One link more, and the chain is as long as the way round the other side: link 0 is pulled to the reader, the links
    # follow it, and the last one pulls the other way, for ever. 10 sub-ops may move 4 times each; the 41st ends it.
    nodes = walking_chain(4)
    placed = place_sub_ops(nodes, 8, degree=3)
    assert (placed.num_relocations, placed.has_given_up) == (41, True)
    assert {d for (d,) in placed.devices} == {0, 1}  # reach 1: two neighbours
    assert violations(nodes, placed, 8, 3) == []
    assert len(placed.memory_bytes) == 8
    assert placed.makespan_s > place_sub_ops(nodes, 8).makespan_s


def test_memory_moves_with_relocated_sub_ops():
    nodes = [replace(node, memory_bytes=2.0**n) for n, node in enumerate(walking_chain(3))]
    placed = place_sub_ops(nodes, 8, degree=3)
    # Devices 3, 2, 2, 1, 2, 2, 3, 4: device 2 has nodes 1, 2, 4 and 5, device 3 has 0 and 6.
    assert placed.memory_bytes == [0, 8, 2 + 4 + 16 + 32, 1 + 64, 128, 0, 0, 0]


def test_relocated_sub_ops_go_where_there_is_room():
    # Relocated as above, device 2 has four sub-ops of 3 bytes; where 9 are the limit, one of them goes on.
    nodes = [replace(node, memory_bytes=3.0) for node in walking_chain(3)]
    assert max(place_sub_ops(nodes, 8, degree=3, capacity_bytes=12).memory_bytes) == 12
    placed = place_sub_ops(nodes, 8, degree=3, capacity_bytes=9)
    assert max(placed.memory_bytes) == 9
    assert violations(nodes, placed, 8, 3) == []
    # Ten sub-ops that end on two neighbours do not fit 12 bytes each.
    tight = [replace(node, memory_bytes=3.0) for node in walking_chain(4)]
    with pytest.raises(MemoryCapacityError, match="only 2 of 8 used: relocation did not end"):
        place_sub_ops(tight, 8, degree=3, capacity_bytes=12)


# Random graphs


def random_nodes(rng, reach):
    """Return up to 40 nodes: chains, skips, shards met again later, sums beside their sources, any relation."""
    nodes, shards = [], []
    for n in range(rng.randint(2, 40)):
        parts = rng.randint(1, reach + 1)
        reads, shard, beside = [], -1, -1
        for source in rng.sample(range(n), min(n, rng.randint(0, 3))):
            relation = rng.choice(["aligned", "all", "exchange", "same_part", "halo"])
            if relation == "same_part" and nodes[source].num_parts < parts:
                relation = "aligned"
            if relation == "halo" and nodes[source].num_parts != parts:
                relation = "aligned"
            reads.append(read(source, relation, rng.random()))
        kind = rng.random()
        if shards and kind < 0.3:
            shard, parts = rng.choice(shards)
            reads = [r for r in reads if r.relation in ("aligned", "all", "exchange")]
        elif kind < 0.5:
            shard = len(shards)
            shards.append((shard, parts))
        elif n and kind < 0.6:
            beside = rng.randrange(n)
            parts = nodes[beside].num_parts
            reads = [r for r in reads if r.relation in ("aligned", "all", "exchange")]
        duration = 0.0 if beside >= 0 else rng.choice([1e-6, 5e-6, 1e-5])
        nodes.append(Node(duration, parts, tuple(reads), shard, beside, float(rng.randint(0, 9))))
    return nodes


@pytest.mark.parametrize("window", ["symmetric", "paper"])
def test_random_graphs_keep_every_window_and_every_shard_together(window):
    rng = random.Random(7)
    num_relocated = num_given_up = 0
    for case in range(400):
        degree = rng.randint(3, 9)
        num_devices = degree + rng.randint(1, 12)
        reach = window_reach(degree, num_devices, window)
        nodes = random_nodes(rng, reach)
        placed = place_sub_ops(nodes, num_devices, degree=degree, window=window)
        assert placed == place_sub_ops(nodes, num_devices, degree=degree, window=window), case
        assert violations(nodes, placed, num_devices, degree, window) == [], case
        assert [len(d) for d in placed.devices] == [node.num_parts for node in nodes], case
        assert all(0 <= d < num_devices for devices in placed.devices for d in devices), case
        homes, memory = {}, [0.0] * num_devices
        for node, devices in zip(nodes, placed.devices, strict=True):
            for part, device in enumerate(devices):
                memory[device] += node.memory_bytes
                if node.shard >= 0:
                    assert homes.setdefault((node.shard, part), device) == device, case
            if node.beside >= 0:
                assert devices == placed.devices[node.beside], case
        assert placed.memory_bytes == pytest.approx(memory), case
        num_relocated += placed.num_relocations > 0
        num_given_up += placed.has_given_up
    assert num_relocated > 40  # the windows bind
    if window == "symmetric":
        assert 0 < num_given_up < 200


def test_random_graphs_with_little_memory_keep_windows_and_memory_or_say_so():
    rng = random.Random(9)
    outcomes = {"fits": 0, "given up": 0, "refused": 0}
    for _ in range(300):
        num_devices = rng.randint(6, 12)
        nodes = random_nodes(rng, 2)
        total = sum(node.memory_bytes * node.num_parts for node in nodes)
        capacity = rng.uniform(1, 4) * total / num_devices
        try:
            placed = place_sub_ops(nodes, num_devices, degree=5, capacity_bytes=capacity)
        except MemoryCapacityError:
            outcomes["refused"] += 1
            continue
        assert max(placed.memory_bytes) <= capacity
        assert sum(placed.memory_bytes) == pytest.approx(total)
        assert violations(nodes, placed, num_devices, 5) == []
        outcomes["given up" if placed.has_given_up else "fits"] += 1
    assert min(outcomes.values()) > 5, outcomes


def test_random_graphs_start_nothing_before_its_inputs_and_nothing_twice_at_once():
    rng = random.Random(8)
    for _ in range(200):
        num_devices = rng.randint(2, 12)
        nodes = random_nodes(rng, 3)
        placed = place_sub_ops(nodes, num_devices, degree=5)
        busy = {}
        for n, node in enumerate(nodes):
            for part, (device, start) in enumerate(zip(placed.devices[n], placed.starts_s[n], strict=True)):
                for r in node.reads:
                    for i in parts_read(r.relation, part, node.num_parts, nodes[r.node].num_parts):
                        assert start >= placed.starts_s[r.node][i] + nodes[r.node].duration_s - 1e-15
                if node.duration_s > 0:
                    busy.setdefault(device, []).append((start, start + node.duration_s))
        for spans in busy.values():
            spans.sort()
            assert all(a[1] <= b[0] + 1e-15 for a, b in zip(spans, spans[1:], strict=False))


# Refusals


@pytest.mark.parametrize(
    ("nodes", "options", "words"),
    [
        ([Node(1.0, 1, (Read(0),))], {}, "node 0 reads node 0"),
        ([Node(1.0, 1), Node(1.0, 2, (Read(0, "same_part"),))], {}, "fewer parts"),
        ([Node(1.0, 1), Node(1.0, 1, (Read(0, "some"),))], {}, "'some'; it must be one of: aligned, all"),
        ([Node(1.0, 0)], {}, "num_parts 0"),
        ([Node(-1.0, 1)], {}, "duration_s -1.0"),
        ([Node(1.0, 1, beside=0)], {}, "sits beside node 0"),
        ([Node(1.0, 1)], {"degree": 0}, "degree is 0"),
        ([Node(1.0, 1)], {"num_devices": 0}, "num_devices is 0"),
    ],
)
def test_nodes_that_make_no_sense_are_refused(nodes, options, words):
    with pytest.raises(ConfigError, match=words):
        place_sub_ops(nodes, **({"num_devices": 4} | options))


@pytest.mark.parametrize(
    ("relation", "part", "num_parts", "num_sources", "expected"),
    [
        ("aligned", 1, 2, 4, [2, 3]),
        ("aligned", 1, 4, 2, [0]),
        ("aligned", 1, 3, 4, [1, 2]),  # [1/3, 2/3) overlaps [1/4, 1/2) and [1/2, 3/4)
        ("all", 1, 2, 3, [0, 1, 2]),
        ("exchange", 1, 2, 3, [0, 1, 2]),
        ("same_part", 1, 2, 2, [1]),
        ("halo", 0, 3, 3, [0, 1]),
        ("halo", 2, 3, 3, [1, 2]),
    ],
)
def test_parts_read_are_those_that_overlap(relation, part, num_parts, num_sources, expected):
    assert list(parts_read(relation, part, num_parts, num_sources)) == expected
