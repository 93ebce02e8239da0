"""Every schedule moves real integers: what its name says is what ends up on the ranks."""

import math
import random
import sys
from pathlib import Path

import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parent))
from schedule_runs import (
    check_distinct_steps,
    check_receives_and_totals,
    execute,
    expected_chunks,
    inputs_of,
    messages,
)

COUNTS = [*range(1, 18), 64]
# Rows and columns; 1 x 1 to tall, flat, odd and with dimensions of 2.
GRIDS = [(1, 1), (1, 2), (2, 1), (1, 5), (2, 2), (2, 3), (3, 2), (4, 2), (2, 8), (3, 3), (3, 9), (9, 3), (4, 4), (8, 4),
         (5, 7), (8, 8)]  # fmt: skip
# Of any number of sides.
BOXES = [
    (1,),
    (5,),
    (2,),
    (8,),
    (2, 2, 2),
    (2, 3, 4),
    (4, 1, 3),
    (1, 1, 1),
    (4, 4, 4),
    (4, 2, 6),
    (2, 2, 2, 2),
    (3, 1, 2, 5),
]
# What switches add up cannot be followed here: test_transport.py has those.
NAMES = [
    tuple(name)
    for name in _core.schedule_names()
    if tuple(name) != ("send_recv", "direct") and not _core.models_bandwidth(*name)
]


def divisors(count):
    return [g for g in range(1, count + 1) if count % g == 0]


def has_hamiltonian_cycles(rows, columns):
    """The condition of Bae, AlBdaiwi and Bose, either way round."""
    return any(r % c == 0 and math.gcd(r, c - 1) == 1 for r, c in ((rows, columns), (columns, rows)))


def is_power_of_two(count):
    return count & (count - 1) == 0


# Ranks of each server: equal ones of several sizes, and ragged ones.
SERVERS = [
    (2, 2),
    (2,) * 4,
    (4, 4),
    (8, 8),
    (3, 3, 3),
    (4,) * 4,
    (3, 2),
    (4, 2),
    (5, 3, 4),
    (8, 8, 1),
    (7, 2, 2),
    (1, 3),
]


def cases_of(collective, algorithm):
    """All (ranks, group size, grid, pieces) that one algorithm is tried in.

    Group sizes and pieces for what works in those, servers for rings, grids for those on one.
    """
    if _core.needs_grid(collective, algorithm):
        for sides in GRIDS if _core.needs_2d_grid(collective, algorithm) else GRIDS + BOXES:
            if algorithm == "swing_2d" and not all(map(is_power_of_two, sides)):
                continue
            if algorithm != "dual_hamiltonian_rings" or has_hamiltonian_cycles(*sides):
                yield math.prod(sides), 1, sides, 1
        return
    has_groups = _core.works_in_pieces(collective, algorithm)
    has_pieces = has_groups or _core.is_pipelined(collective, algorithm)
    for p in COUNTS:
        for g in divisors(p) if has_groups else [1]:
            for pieces in (1, 2, 5) if has_pieces and p <= 16 else [1]:
                yield p, g, (), pieces
    if _core.uses_servers(collective, algorithm):
        for sizes in SERVERS:
            yield sum(sizes), sizes, (), 3 if has_pieces else 1


@pytest.mark.parametrize(("collective", "algorithm"), NAMES)
def test_every_rank_ends_with_what_the_collective_promises(collective, algorithm, told):
    for p, group, grid, pieces in cases_of(collective, algorithm):
        rng = random.Random(f"{collective} {algorithm} {p} {group} {grid} {pieces}")
        schedule = _core.Schedule(collective, algorithm, p, group, grid, pieces)
        with told(p, group, grid, pieces):
            for _ in range(1 if p == 64 else 3):
                inputs = inputs_of(schedule, rng)
                outputs = execute(schedule, [list(row) for row in inputs], rng)
                for rank in range(p):
                    wanted = expected_chunks(collective, algorithm, inputs, rank)
                    assert {c: outputs[rank][c] for c in wanted} == wanted


@pytest.mark.parametrize(("collective", "algorithm"), NAMES)
def test_sends_add_up_to_receives_chunk_totals_and_distinct_steps(collective, algorithm, told):
    for case in cases_of(collective, algorithm):
        schedule = _core.Schedule(collective, algorithm, *case)
        sent = [[messages(schedule, rank, step) for rank in range(case[0])] for step in range(schedule.num_steps)]
        with told(*case):
            check_receives_and_totals(schedule, sent)
            check_distinct_steps(schedule, sent)


@pytest.mark.parametrize("sizes", SERVERS)
@pytest.mark.parametrize("algorithm", ["ring", "bidirectional_ring"])
def test_channels_of_a_ring_spread_over_the_nics_of_every_server(algorithm, sizes):
    """Of the smallest server's ranks each sends and receives one chunk of a step and way, of others as many do."""
    schedule = _core.Schedule("all_reduce", algorithm, sum(sizes), sizes)
    server = [number for number, size in enumerate(sizes) for _ in range(size)]
    ways = 2 if algorithm == "bidirectional_ring" else 1
    for step in range(schedule.num_steps):
        out, into = [0] * len(server), [0] * len(server)
        for rank in range(len(server)):
            for message in messages(schedule, rank, step):
                if server[rank] != server[message[0].peer]:
                    assert sum(t.num_chunks for t in message) == 1
                    out[rank] += 1
                    into[message[0].peer] += 1
        for found in (out, into):
            assert max(found) <= ways
            of_server = [sum(found[r] for r in range(len(server)) if server[r] == s) for s in range(len(sizes))]
            assert of_server == [ways * min(sizes)] * len(sizes)


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("algorithm", ["ring", "bidirectional_ring"])
@pytest.mark.parametrize("num_servers", [1, 2, 3])
@pytest.mark.parametrize("rings", [((0, 1, 2),), ((0, 1, 2), (0, 2, 1)), ((2, 0, 1), (0, 2, 1), (1, 0, 2), (0, 1, 2))])
def test_rings_in_given_orders_do_what_they_promise_along_those_orders(collective, algorithm, num_servers, rings):
    if (collective, algorithm) not in NAMES:
        pytest.skip("not registered")
    p = 3 * num_servers
    schedule = _core.Schedule(collective, algorithm, p, rings=rings)
    rng = random.Random(f"{collective} {rings}")
    inputs = inputs_of(schedule, rng)
    outputs = execute(schedule, [list(row) for row in inputs], rng)
    for rank in range(p):
        wanted = expected_chunks(collective, algorithm, inputs, rank)
        assert {c: outputs[rank][c] for c in wanted} == wanted
    pairs = {(r, one.peer) for r in range(p) for one in schedule.sends(r, 0)}
    orders = [[3 * server + place for server in range(num_servers) for place in ring] for ring in rings]
    assert pairs == {(order[k - 1], order[k]) for order in orders for k in range(p)}
    assert schedule.total_chunks_sent == (2 if collective == "all_reduce" else 1) * (p - 1) * p * len(rings)


@pytest.mark.parametrize("rings", [((0, 1, 1),), ((0, 1, 2, 3),), ((),), ((1, 2, 3),)])
def test_orders_that_are_not_of_a_servers_ranks_are_refused(rings):
    with pytest.raises(ConfigError, match="must hold each rank of a server once"):
        _core.Schedule("all_reduce", "ring", 6, rings=rings)


def test_servers_that_do_not_make_up_the_ranks_are_refused():
    for sizes in (3, [4, 3], [8, 0], [-1, 9], []):
        with pytest.raises(ConfigError, match="servers that do not make up the 8 ranks of a ring"):
            _core.Schedule("all_reduce", "ring", 8, sizes)
    with pytest.raises(ConfigError, match="hierarchical in 0 pieces"):
        _core.Schedule("all_reduce", "hierarchical", 8, 4, (), 0)


@pytest.mark.parametrize("algorithm", ["dual_hamiltonian_rings", "torus_2d", "torus_2d_unidirectional"])
@pytest.mark.parametrize("grid", [(4, 4), (9, 3), (2, 8)])
def test_torus_algorithms_talk_to_neighbours_on_the_torus_alone(algorithm, grid):
    rows, columns = grid
    p = rows * columns
    schedule = _core.Schedule("all_reduce", algorithm, p, 1, grid)
    for _, src, dst, _ in schedule.distinct_steps():
        down, right = (dst // columns - src // columns) % rows, (dst - src) % columns
        hops = [min(d, rows - d) + min(r, columns - r) for d, r in zip(down.tolist(), right.tolist(), strict=True)]
        assert hops == [1] * len(hops)


@pytest.mark.parametrize("algorithm", ["torus_nd", "torus_nd_aligned"])
@pytest.mark.parametrize("sides", [(4, 4, 4), (2, 3, 4), (2, 2, 2), (5,), (4, 1, 3), (3, 3), (4, 4, 8)])
def test_copies_of_the_torus_algorithms_talk_to_neighbours_and_load_all_links_of_equal_sides_alike(algorithm, sides):
    p, above = math.prod(sides), [side for side in sides if side > 1]
    strides = [math.prod(sides[d + 1 :]) for d in range(len(sides))]
    schedule = _core.Schedule("reduce_scatter", algorithm, p, 1, sides)
    loads = {}
    for step in range(schedule.num_steps):
        for rank in range(p):
            for one in messages(schedule, rank, step):
                peer = one[0].peer
                moved = [
                    d for d, stride in enumerate(strides) if rank // stride % sides[d] != peer // stride % sides[d]
                ]
                (along,) = moved
                ahead = (peer // strides[along] - rank // strides[along]) % sides[along]
                assert ahead in (1, sides[along] - 1)
                way = (along, step if sides[along] == 2 else ahead)  # two ways to one peer are told apart by no number
                loads[rank, way] = loads.get((rank, way), 0) + sum(t.num_chunks for t in one)
    if len(set(above)) == 1 and above[0] > 2:
        assert set(loads.values()) == {schedule.num_chunks * (p - 1) // p // (2 * len(above))}
    assert sum(loads.values()) == schedule.num_chunks * (p - 1)


def test_aligned_copies_have_a_side_to_themselves_in_every_step():
    # 4 x 4 x 8: two pieces a block along sides of 4, so that 6, 6 and 7 steps of S/6 / 8 run side by side.
    schedule = _core.Schedule("reduce_scatter", "torus_nd_aligned", 128, 1, (4, 4, 8))
    assert (schedule.num_steps, schedule.num_chunks) == (21, 128 * 6 * 2)
    for step in range(21):
        peers = [one[0].peer for one in messages(schedule, 0, step)]
        assert len(set(peers)) == len(peers) == (6 if step % 7 < 6 else 2)
    first = [sum(t.num_chunks for t in one) for one in messages(schedule, 0, 0)]
    assert first == [128 * 2 // 8] * 6


@pytest.mark.parametrize("p", [2, 3, 8, 17, 64])
def test_bytes_sent_by_a_rank_are_the_textbook_amounts(p):
    # In shares of S, over all ranks: ring 2 (p-1), reduce_scatter, all_gather, all_to_all p-1, tree 2 (p-1) whole
    # buffers (broadcast p-1), hierarchical as much as a ring.
    def buffers(collective, algorithm, group=1):
        schedule = _core.Schedule(collective, algorithm, p, group)
        assert schedule.total_chunks_sent % schedule.num_chunks == 0
        return schedule.total_chunks_sent // schedule.num_chunks

    assert buffers("all_reduce", "ring") == buffers("all_reduce", "bidirectional_ring") == 2 * (p - 1)
    assert buffers("reduce_scatter", "ring") == buffers("all_gather", "ring") == p - 1
    assert buffers("all_to_all", "direct") == buffers("all_to_all", "balanced_shift") == p - 1
    # Inside groups of g a rank sends (g-1) m of p chunks, between them (m-1) g.
    for g in divisors(p):
        assert buffers("all_to_all", "rail_aligned", g) * p == p * ((g - 1) * (p // g) + (p // g - 1) * g)
    assert buffers("all_reduce", "binomial_tree") == 2 * (p - 1)
    for collective in ("broadcast", "reduce"):
        assert buffers(collective, "binomial_tree") == buffers(collective, "ring") == p - 1
    # A halo goes over each of p - 1 borders, half of it in either direction, or all of it in one.
    assert (
        buffers("halo", "neighbours") == buffers("halo_up", "neighbours") == buffers("halo_down", "neighbours") == p - 1
    )
    assert buffers("shift", "ring") == buffers("copy", "ring") == p  # every rank its own
    assert all(buffers("all_reduce", "hierarchical", g) == 2 * (p - 1) for g in divisors(p))
    # halving_doubling: 2 (q-1) over the q = 2^k <= p core ranks, and 2 whole buffers for each rank beyond.
    q = 1 << (p.bit_length() - 1)
    assert buffers("all_reduce", "halving_doubling") == 2 * (q - 1) + 2 * (p - q)


def test_send_recv_moves_the_buffer_of_rank_0_to_rank_1_and_takes_two_ranks_alone():
    schedule = _core.Schedule("send_recv", "direct", 2)
    assert execute(schedule, [[5], [7]], random.Random(0)) == [[5], [5]]
    with pytest.raises(ConfigError, match="send_recv over 3 ranks; it takes exactly 2"):
        _core.Schedule("send_recv", "direct", 3)


def test_unknown_names_list_the_known_ones_and_group_sizes_must_divide():
    with pytest.raises(ConfigError, match="unknown algorithm 'magic' for all_gather; known: ring"):
        _core.Schedule("all_gather", "magic", 4)
    with pytest.raises(ConfigError, match=r"unknown collective 'gather'; known .*all_reduce/ring"):
        _core.Schedule("gather", "ring", 4)
    with pytest.raises(ConfigError, match="8 ranks with group_size 3"):
        _core.Schedule("all_reduce", "hierarchical", 8, 3)
    with pytest.raises(ConfigError, match="rail_aligned all_to_all over 8 ranks with group_size 3"):
        _core.Schedule("all_to_all", "rail_aligned", 8, 3)
    with pytest.raises(ConfigError, match="all_reduce by torus_2d over 8 ranks needs a 2D grid"):
        _core.Schedule("all_reduce", "torus_2d", 8)
    with pytest.raises(ConfigError, match="reduce_scatter by torus_nd over 8 ranks needs a grid; give its sides"):
        _core.Schedule("reduce_scatter", "torus_nd", 8)
    with pytest.raises(ConfigError, match="torus_2d needs a 2D grid, and that of 2 x 2 x 2 has 3 sides above 1"):
        _core.Schedule("all_reduce", "torus_2d", 8, 1, (2, 2, 2))
    with pytest.raises(ConfigError, match="a grid of 2 x 2 x 3 for 8 ranks; sides must be >= 1"):
        _core.Schedule("all_reduce", "torus_nd", 8, 1, (2, 2, 3))
    with pytest.raises(ConfigError, match="a grid of 0 x 8 for 8 ranks"):
        _core.Schedule("all_reduce", "torus_nd", 8, 1, (0, 8))
    with pytest.raises(ConfigError, match="a grid of 3 x 3 for 8 ranks"):
        _core.Schedule("all_reduce", "torus_2d", 8, 1, (3, 3))
    with pytest.raises(ConfigError, match="0 ranks"):
        _core.Schedule("all_reduce", "ring", 0)
