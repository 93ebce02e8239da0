"""Every schedule moves real integers: what its name says is what ends up on the ranks."""

import random

import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError

COUNTS = [*range(1, 18), 64]
NAMES = [tuple(name) for name in _core.schedule_names() if tuple(name) != ("send_recv", "direct")]


def divisors(count):
    return [g for g in range(1, count + 1) if count % g == 0]


def cases():
    """All (collective, algorithm, ranks, group size); the group size matters to hierarchical alone."""
    for collective, algorithm in NAMES:
        for p in COUNTS:
            for g in divisors(p) if algorithm == "hierarchical" else [1]:
                yield pytest.param(collective, algorithm, p, g, id=f"{collective}-{algorithm}-{p}-{g}")


def inputs_of(schedule, rng):
    """buffer[rank][chunk]: distinct enough that a wrong chunk, a lost or a doubled one shows."""
    return [[rng.randrange(1, 10**9) for _ in range(schedule.num_chunks)] for _ in range(schedule.num_ranks)]


def execute(schedule, buffers, rng):
    """Run the schedule with ranks in random order; return the output buffers.

    A rank sends a step's data as it stands when it begins the step; what comes in a step is applied when the
    rank has all of that step's messages. Ranks run ahead of each other as far as the messages allow.
    """
    p, chunks = schedule.num_ranks, schedule.num_chunks
    outputs = buffers if schedule.is_in_place else [list(row) for row in buffers]
    inbox = [[[] for _ in range(schedule.num_steps)] for _ in range(p)]
    step, has_sent = [0] * p, [False] * p
    unfinished = list(range(p)) if schedule.num_steps else []
    while unfinished:
        can_go = []
        for rank in unfinished:
            if not has_sent[rank] or len(inbox[rank][step[rank]]) == schedule.num_receives(rank, step[rank]):
                can_go.append(rank)
        assert can_go, "the schedule deadlocks"
        rank = rng.choice(can_go)
        if not has_sent[rank]:
            for t in schedule.sends(rank, step[rank]):
                data = [buffers[rank][(t.source_chunk + k) % chunks] for k in range(t.num_chunks)]
                inbox[t.peer][step[rank]].append((t, data))
            has_sent[rank] = True
            continue
        for t, data in inbox[rank][step[rank]]:
            for k, value in enumerate(data):
                place = (t.target_chunk + k) % chunks
                outputs[rank][place] = value + (outputs[rank][place] if t.reduces else 0)
        step[rank], has_sent[rank] = step[rank] + 1, False
        if step[rank] == schedule.num_steps:
            unfinished.remove(rank)
    return outputs


def expected_chunks(collective, inputs, rank):
    """{chunk: value} that `rank` must hold at the end; chunks left out may hold anything."""
    p, chunks = len(inputs), len(inputs[0])
    if collective == "all_reduce":
        return {c: sum(row[c] for row in inputs) for c in range(chunks)}
    if collective == "reduce_scatter":
        return {rank: sum(row[rank] for row in inputs)}
    if collective == "all_gather":
        return {c: inputs[c][c] for c in range(p)}
    if collective == "all_to_all":
        return {c: inputs[c][rank] for c in range(p)}
    assert collective == "broadcast"
    return dict(enumerate(inputs[0]))


@pytest.mark.parametrize(("collective", "algorithm", "p", "group"), list(cases()))
def test_every_rank_ends_with_what_the_collective_promises(collective, algorithm, p, group):
    rng = random.Random(f"{collective} {algorithm} {p} {group}")
    schedule = _core.Schedule(collective, algorithm, p, group)
    for _ in range(1 if p == 64 else 3):
        inputs = inputs_of(schedule, rng)
        outputs = execute(schedule, [list(row) for row in inputs], rng)
        for rank in range(p):
            wanted = expected_chunks(collective, inputs, rank)
            assert {c: outputs[rank][c] for c in wanted} == wanted


@pytest.mark.parametrize(("collective", "algorithm", "p", "group"), list(cases()))
def test_receives_and_chunk_totals_are_what_the_sends_add_up_to(collective, algorithm, p, group):
    schedule = _core.Schedule(collective, algorithm, p, group)
    total = 0
    for step in range(schedule.num_steps):
        arrivals = [0] * p
        for rank in range(p):
            for t in schedule.sends(rank, step):
                assert t.peer != rank
                assert 0 <= t.peer < p
                assert 1 <= t.num_chunks <= schedule.num_chunks
                arrivals[t.peer] += 1
                total += t.num_chunks
        assert arrivals == [schedule.num_receives(rank, step) for rank in range(p)]
    assert schedule.total_chunks_sent == total


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
    assert buffers("all_reduce", "binomial_tree") == 2 * (p - 1)
    assert buffers("broadcast", "binomial_tree") == p - 1
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
    with pytest.raises(ConfigError, match="0 ranks"):
        _core.Schedule("all_reduce", "ring", 0)
