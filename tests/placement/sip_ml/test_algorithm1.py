"""Algorithm 1 on its own: small drawn cases, relocation, its bound, and random graphs."""

import random
from dataclasses import replace

import pytest

from rostam_py.errors import ConfigError, MemoryCapacityError
from rostam_py.placement.sip_ml.algorithm1 import LOCALITY_SLACK_S, Node, Read, parts_read, place_sub_ops

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
    """Return the reads whose two ends may not exchange data.

    Sub-ops that each read all parts of a source bind no device if they are more than a window holds (MODEL D14): with
    reach r to either side r + 1 devices are in range of one another, by the printed one-sided rule a device alone.
    """
    bad = []
    most = (degree - 1) // 2 + 1 if window == "symmetric" else 1
    for n, node in enumerate(nodes):
        for part, device in enumerate(placed.devices[n]):
            for r in node.reads:
                count = nodes[r.node].num_parts
                if r.relation in ("all", "exchange") and max(count, node.num_parts) > most:
                    continue
                for i in parts_read(r.relation, part, node.num_parts, count):
                    if not in_range(placed.devices[r.node][i], device, num_devices, degree, window):
                        bad.append((r.node, i, n, part))
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


@pytest.mark.parametrize(("window", "devices"), [("symmetric", {0, 1, 7}), ("paper", {0, 1, 2})])
def test_readers_stay_in_the_window_of_their_source(window, devices):
    # D = 3 of k = 8: 0 reaches 7, 0 and 1, by the printed rule 0, 1 and 2. Six readers of one sub-op fill that.
    nodes = [Node(LONG, 1)] + [Node(LONG, 1, (read(0),)) for _ in range(6)]
    placed = place_sub_ops(nodes, 8, degree=3, window=window)
    assert {d for ds in placed.devices for d in ds} == devices
    assert violations(nodes, placed, 8, 3, window) == []
    assert placed.num_relocations == 0


def test_parts_of_one_op_need_not_be_in_range_of_each_other():
    # k = 8, D = 3: a device reaches one to either side. Eight parts lie on eight devices, and so do those aligned with
    # them; what all of them read of all of them binds nobody.
    nodes = [Node(LONG, 8), Node(LONG, 8, (read(0),)), Node(LONG, 8, (read(1, "exchange"), read(1, "all")))]
    for window in ("symmetric", "paper"):
        placed = place_sub_ops(nodes, 8, degree=3, window=window)
        assert placed.devices == [tuple(range(8))] * 3
        assert (placed.num_relocations, placed.num_out_of_range) == (0, 0)


def test_without_a_data_parallel_ring_all_circuits_are_the_groups():
    # Six readers of one sub-op, D = 3 of k = 8: without a ring's circuit the printed rule reaches one device more.
    nodes = [Node(LONG, 1)] + [Node(LONG, 1, (read(0),)) for _ in range(6)]
    used = [{d for ds in place_sub_ops(nodes, 8, degree=3, has_ring=has_ring, window="paper").devices for d in ds}
            for has_ring in (True, False)]  # fmt: skip
    assert used == [{0, 1, 2}, {0, 1, 2, 3}]


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
    assert (placed.num_relocations, placed.num_out_of_range) == (3, 0)
    assert [d for (d,) in placed.devices] == [3, 2, 2, 1, 2, 2, 3, 4]
    assert violations(long, placed, 8, 3) == []


def test_what_a_relocated_sub_op_reads_from_follows_it():
    # The same chain behind a sub-op on device 0. Link 0 is relocated from there to 3, in range of 2, 3 and 4; its
    # source follows to the nearest of them, 2, before link 1 and its sibling do.
    chain = [replace(node, reads=tuple(read(r.node + 1) for r in node.reads)) for node in walking_chain(3)]
    placed = place_sub_ops([Node(LONG, 1), replace(chain[0], reads=(read(0),)), *chain[1:]], 8, degree=3)
    assert [d for (d,) in placed.devices] == [2, 3, 2, 2, 1, 2, 2, 3, 4]
    assert (placed.num_relocations, placed.num_out_of_range) == (4, 0)


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


def test_past_the_bound_single_sub_ops_are_moved_until_every_window_holds():
    # One link more, and the chain is as long as the way round the other side: link 0 is pulled to the reader, the links
    # follow it, and the last one pulls the other way, for ever. 10 sub-ops may move 4 times each; the 41st ends it.
    # Then single sub-ops are moved where they are least out of range, and the work does not pile up.
    nodes = walking_chain(4)
    placed = place_sub_ops(nodes, 8, degree=3)
    assert placed.num_relocations > 41
    assert (violations(nodes, placed, 8, 3), placed.num_out_of_range) == ([], 0)
    assert placed.makespan_s <= 2 * place_sub_ops(nodes, 8).makespan_s


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
    # Three bytes each: ten sub-ops on eight devices.
    tight = [replace(node, memory_bytes=3.0) for node in walking_chain(4)]
    assert max(place_sub_ops(tight, 8, degree=3, capacity_bytes=6).memory_bytes) == 6
    # With three bytes a device there is no room for 30 on all eight: refused by their mean, rounded, unplaced.
    with pytest.raises(MemoryCapacityError, match=r"of a model-parallel group of 8 would need 4 B or more"):
        place_sub_ops(tight, 8, degree=3, capacity_bytes=3)


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


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("window", ["symmetric", "paper"])
def test_random_graphs_keep_every_window_and_every_shard_together(window, count):
    rng = random.Random(7)
    num_relocated = num_passed_on = 0
    for case in range(count):
        degree = rng.randint(3, 9)
        num_devices = degree + rng.randint(1, 12)
        reach = (degree - 1) // 2 if window == "symmetric" else degree - 1
        nodes = random_nodes(rng, reach)
        placed = place_sub_ops(nodes, num_devices, degree=degree, window=window)
        assert placed == place_sub_ops(nodes, num_devices, degree=degree, window=window), case
        assert len(violations(nodes, placed, num_devices, degree, window)) == placed.num_out_of_range, case
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
        num_passed_on += placed.num_out_of_range > 0
    assert num_relocated > 0.5 * count  # the windows bind
    assert num_passed_on <= (0.01 if window == "symmetric" else 0.1) * count


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_random_graphs_with_little_memory_keep_windows_and_memory_or_say_so(count):
    rng = random.Random(9)
    outcomes = {"fits": 0, "passed on": 0, "refused": 0}
    for _ in range(count):
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
        assert len(violations(nodes, placed, num_devices, 5)) == placed.num_out_of_range
        outcomes["passed on" if placed.num_out_of_range else "fits"] += 1
    assert min(outcomes.values()) > count / 60, outcomes


def planted(rng, num_devices, degree, window):
    """Return nodes and the memory with which an assignment within the windows holds them, nearly full everywhere."""
    nodes, where, load = [], [], [0.0] * num_devices
    for n in range(rng.randint(8, 40)):
        parts = rng.randint(1, 4)
        devices = sorted(range(num_devices), key=lambda d: (load[d], rng.random()))[:parts]
        memory = float(rng.choice([1, 2, 3, 5, 8, 13]))
        reads = []
        for source in rng.sample(range(n), min(n, rng.randint(0, 3))):
            relation = rng.choice(["aligned", "all", "exchange"])
            pairs = [(i, p) for p in range(parts) for i in parts_read(relation, p, parts, len(where[source]))]
            if all(in_range(where[source][i], devices[p], num_devices, degree, window) for i, p in pairs):
                reads.append(read(source, relation, rng.random()))
        nodes.append(Node(rng.choice([1e-6, 5e-6, 1e-5]), parts, tuple(reads), memory_bytes=memory))
        where.append(devices)
        for device in devices:
            load[device] += memory
    return nodes, max(load)


@pytest.mark.parametrize(("degree", "window"), [(99, "symmetric"), (5, "symmetric"), (5, "paper")])
def test_with_a_seventh_more_memory_than_needed_hardly_anything_is_refused(degree, window):
    rng = random.Random(5)
    num_refused = num_passed_on = 0
    for _ in range(300):
        num_devices = rng.randint(6, 12)
        nodes, least = planted(rng, num_devices, degree, window)
        try:
            placed = place_sub_ops(nodes, num_devices, degree=degree, window=window, capacity_bytes=1.15 * least)
        except MemoryCapacityError:
            num_refused += 1
            continue
        assert max(placed.memory_bytes) <= 1.15 * least
        num_passed_on += placed.num_out_of_range > 0
    assert num_refused <= 5
    assert num_passed_on <= 5


def optimum(nodes, num_devices, degree, window, known_s):
    """Return the least makespan of any assignment within the windows: depth first, cut where no better than known."""
    ops = [(n, p) for n, node in enumerate(nodes) for p in range(node.num_parts)]
    left = [sum(nodes[n].duration_s for n, _ in ops[i:]) for i in range(len(ops) + 1)]
    best, free, where, end = known_s, [0.0] * num_devices, {}, {}

    def go(i, makespan):
        nonlocal best
        if max(makespan, (sum(free) + left[i]) / num_devices) >= best - 1e-12:
            return
        if i == len(ops):
            best = makespan
            return
        n, part = ops[i]
        reads = [(r.node, s) for r in nodes[n].reads
                 for s in parts_read(r.relation, part, nodes[n].num_parts, nodes[r.node].num_parts)]  # fmt: skip
        ready = max((end[source] for source in reads), default=0.0)
        for device in range(num_devices if i else 1):  # the first may lie anywhere: windows are alike all round
            if all(in_range(where[source], device, num_devices, degree, window) for source in reads):
                before = free[device]
                where[n, part] = device
                end[n, part] = free[device] = max(ready, before) + nodes[n].duration_s
                go(i + 1, max(makespan, end[n, part]))
                free[device] = before

    go(0, 0.0)
    return best


@pytest.mark.parametrize("window", ["symmetric", "paper"])
@pytest.mark.parametrize(("are_alike", "most"), [(True, 1.05), (False, 1.10)])
def test_makespans_of_aligned_parts_are_near_the_exhaustive_optimum(window, are_alike, most):
    # k = 4, D = 3: every device is in range of two others, by the printed rule of the two after it. All ops of a graph
    # in as many parts, or each in 1 to 4.
    rng = random.Random(1)
    ratios = []
    while len(ratios) < 200:
        parts = rng.randint(2, 4)
        nodes = []
        for n in range(rng.randint(2, 5)):
            reads = tuple(read(s, num_bytes=rng.random()) for s in rng.sample(range(n), min(n, rng.randint(0, 2))))
            nodes.append(Node(rng.choice([1, 2, 3]) * LONG, parts if are_alike else rng.randint(1, 4), reads))
        if sum(node.num_parts for node in nodes) <= 11:
            placed = place_sub_ops(nodes, 4, degree=3, window=window)
            assert violations(nodes, placed, 4, 3, window) == []
            ratios.append(placed.makespan_s / optimum(nodes, 4, 3, window, placed.makespan_s))
    assert max(ratios) > 1
    assert sum(ratios) / len(ratios) <= most


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
