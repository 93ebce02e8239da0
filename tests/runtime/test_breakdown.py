"""Where a device's time went when it waits for a collective that itself waits for another stage; drawn by hand.

A second stage of tensor-parallel ranks under sequence parallelism receives, gathers what came (1,000,000 bytes round
two ranks: two steps of 0.5 ms), and computes. Category x is its tp group, y the messages between stages.
"""

import pytest

MS = 10**9
GATHERED = 1_000_000  # all-reduced by two ranks: 1 ms


def tensor_parallel_pipeline(
    graph, forward_ms, num_microbatches, num_bytes=1_000_000, second_ms=3, num_gathers=1
):  # fmt: skip
    """Devices 0, 1: stage 0, compute and send. Devices 2, 3: stage 1, receive, `num_gathers` collectives, compute."""
    g = graph(4)
    count = range(num_microbatches)
    programs = []
    for duration_ms in forward_ms:
        first = g.template(g.compute(duration_ms * MS), g.send(0, num_bytes, deps=[0], category=1))
        programs.append(g.program(*[(first, m) for m in count]))
    gathers = [g.all_reduce(GATHERED, deps=[0], ranks=2) for _ in range(num_gathers)]
    second = g.template(
        g.recv(0, category=1), *gathers, g.compute(second_ms * MS, deps=list(range(num_gathers + 1)))
    )  # fmt: skip
    g.group(2, 3)
    for device in range(4):
        g.peer(device, (device + 2) % 4)
    g.devices([*programs, *[g.program(*[(second, m) for m in count])] * 2])
    return g


def parts(compute, bubble=0, x=0, y=0, launch=0):
    return {"compute": compute, "launch": launch, "bubble": bubble, "x": x, "y": y}


@pytest.mark.parametrize("fold", [False, True])
def test_a_gather_is_exposed_only_from_when_its_rank_joined(graph, fold):
    # stage 0:  k 0-2 | send 2-3                       nothing is left to do from 2 on: bubble
    # stage 1:  nothing sent 0-2 | in transit 2-3 | gather 3-4 | k 4-7
    raw = tensor_parallel_pipeline(graph, (2, 2), 1).run(fold=fold)
    assert raw["ends"] == [0, 7 * MS]
    assert raw["breakdown"] == [parts(2 * MS, 5 * MS)] * 2 + [parts(3 * MS, 2 * MS, MS, MS)] * 2


@pytest.mark.parametrize("fold", [False, True])
def test_two_micro_batches_wait_for_the_stage_before_twice(graph, fold):
    # stage 0:  k 0-5                  | k 5-10 | send 5-6, 10-11
    # stage 1:  nothing sent 0-5, 5-6 in transit, gather 6-7, k 7-10; in transit 10-11, gather 11-12, k 12-15
    raw = tensor_parallel_pipeline(graph, (5, 5), 2).run(fold=fold)
    assert raw["ends"] == [0, 15 * MS]
    assert raw["breakdown"][2:] == [parts(6 * MS, 5 * MS, 2 * MS, 2 * MS)] * 2


def test_a_message_that_comes_while_the_device_computes_exposes_only_what_is_left(graph):
    # stage 0:  k 0-4, 4-8; send 4-6, 8-10 (2,000,000 bytes)
    # stage 1:  nothing sent 0-4, in transit 4-6, gather 6-7, k 7-9; in transit 9-10 of 8-10, gather 10-11, k 11-13
    raw = tensor_parallel_pipeline(graph, (4, 4), 2, num_bytes=2_000_000, second_ms=2).run()
    assert raw["ends"] == [0, 13 * MS]
    assert raw["breakdown"][2:] == [parts(4 * MS, 4 * MS, 2 * MS, 3 * MS)] * 2


def test_a_rank_that_joined_waits_for_its_group(graph):
    # device 2:  nothing sent 0-2 | in transit 2-3 | joined, device 3 has not 3-5 | gather 5-6 | k 6-9
    # device 3:  nothing sent 0-4                  | in transit 4-5               | gather 5-6 | k 6-9
    raw = tensor_parallel_pipeline(graph, (2, 4), 1).run()
    assert raw["ends"] == [0, 9 * MS]
    assert raw["breakdown"][2] == parts(3 * MS, 2 * MS, 3 * MS, MS)
    assert raw["breakdown"][3] == parts(3 * MS, 4 * MS, MS, MS)


def test_a_collective_that_queued_behind_another_waited_for_what_that_one_did(graph):
    # nothing sent 0-2 | in transit 2-3 | two gathers on one stream 3-4, 4-5 | k 5-8
    raw = tensor_parallel_pipeline(graph, (2, 2), 1, num_gathers=2).run()
    assert raw["ends"] == [0, 8 * MS]
    assert raw["breakdown"][2:] == [parts(3 * MS, 2 * MS, 2 * MS, MS)] * 2


def test_the_launch_of_a_collective_counts_with_it(graph):
    # A launch takes 0.1 ms: k 0.1-2.1, sent 2.2-3.2; the gather is launched at 3.2 and runs 3.3-4.3, k 4.4-7.4.
    raw = tensor_parallel_pipeline(graph, (2, 2), 1).run(launch_latency_ps=MS // 10)
    assert raw["ends"] == [0, 74 * MS // 10]
    assert raw["breakdown"][2] == parts(3 * MS, 22 * MS // 10, 11 * MS // 10, MS, launch=MS // 10)


def test_before_the_message_is_sent_own_collectives_are_exposed(graph):
    # Stage 1's ranks first run a collective of category x for nobody on slot 2, 0-1 (1,000,000 bytes); stage 0 sends
    # at 2: x 0-1 | nothing sent 1-2 | in transit 2-3 | gather 3-4 | k 4-7.
    g = graph(4)
    first = g.template(g.compute(2 * MS), g.send(0, 1_000_000, deps=[0], category=1))
    second = g.template(
        g.recv(0, category=1), g.all_reduce(GATHERED, deps=[0], ranks=2), g.compute(3 * MS, deps=[1]),
        g.all_reduce(GATHERED, slot=2, ranks=2),
    )  # fmt: skip
    g.group(2, 3)
    g.group(2, 3, slot=2)
    for device in range(4):
        g.peer(device, (device + 2) % 4)
    g.devices([g.program(first)] * 2 + [g.program(second)] * 2)
    raw = g.run()
    assert raw["ends"] == [0, 7 * MS]
    assert raw["breakdown"][2] == parts(3 * MS, MS, 2 * MS, MS)


def test_a_message_that_nothing_waited_for_is_not_exposed(graph):
    # Device 1's kernel waits for channel 0 only, sent at 3 and there at 4. Channel 1 is in transit 1-2, and the kernel
    # that takes it comes later: bubble 0-3, exposed 3-4.
    g = graph(2)
    first = g.template(
        g.compute(MS), g.send(1, 1_000_000, deps=[0], category=1), g.compute(2 * MS),
        g.send(0, 1_000_000, deps=[2], category=1),
    )  # fmt: skip
    second = g.template(
        g.recv(0, category=1), g.recv(1, category=1), g.compute(MS, deps=[0]), g.compute(MS, deps=[1])
    )  # fmt: skip
    g.peer(0, 1)
    g.peer(1, 0)
    g.devices([g.program(first), g.program(second)])
    raw = g.run()
    assert raw["ends"] == [0, 6 * MS]
    assert raw["breakdown"][1] == parts(2 * MS, 3 * MS, y=MS)


@pytest.mark.parametrize("categories", [(0, 1), (1, 0)])
def test_of_two_collectives_that_ended_at_once_the_order_of_their_ends_decides_nothing(graph, categories):
    # Two groups' collectives run side by side, 0-4 (2,000,000 bytes each, sharing the port): the first category's time,
    # whichever was added first. Nothing else is waited for.
    g = graph(2)
    first, second = (g.all_reduce(2_000_000, slot=slot, category=c) for slot, c in zip((0, 2), categories, strict=True))
    body = g.template(first, second, g.compute(MS, deps=[0, 1]))
    g.group(0, 1)
    g.group(0, 1, slot=2)
    g.devices([g.program(body)] * 2)
    raw = g.run()
    assert raw["ends"] == [0, 5 * MS]
    assert raw["breakdown"] == [parts(MS, x=4 * MS)] * 2
