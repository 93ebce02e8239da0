"""Sends and receives between pipeline stages: matching, early arrival, bubbles against exposed communication."""

MS = 10**9


def pipeline(graph, forward_ms, num_bytes, num_microbatches, second_ms=None, alpha_ps=0):
    """Device 0 computes and sends num_microbatches times; device 1 receives and computes.

    1 GB/s: 1,000,000 bytes take 1 ms.
    """
    g = graph(2, alpha_ps=alpha_ps)
    first = g.template(g.compute(forward_ms * MS), g.send(0, num_bytes, deps=[0]))
    second = g.template(g.recv(0), g.compute((second_ms or forward_ms) * MS, deps=[0]))
    g.peer(0, 1)
    g.peer(1, 0)
    g.devices([
        g.program(*[(first, m) for m in range(num_microbatches)]),
        g.program(*[(second, m) for m in range(num_microbatches)]),
    ])  # fmt: skip
    return g


def test_a_message_carries_the_work_of_its_micro_batch(graph, spans):
    # Compute 2 ms, send 1 ms:   0: k0 0-2, k1 2-4, k2 4-6;  messages 2-3, 4-5, 6-7;  1: 3-5, 5-7, 7-9
    raw = pipeline(graph, 2, 1_000_000, 3).run()
    second = spans(raw, 1)
    assert [second[1, m, 1] for m in range(3)] == [(3 * MS, 5 * MS), (5 * MS, 7 * MS), (7 * MS, 9 * MS)]
    first = spans(raw, 0)
    assert [first[0, m, 1] for m in range(3)] == [(2 * MS, 3 * MS), (4 * MS, 5 * MS), (6 * MS, 7 * MS)]
    assert raw["num_messages"].tolist() == [3, 0]


def test_waiting_before_the_send_is_bubble_and_waiting_for_the_bytes_is_exposed(graph):
    # Device 1: 0-2 nothing was sent (bubble), 2-3 the message was under way (exposed), then 3 x 2 ms of compute.
    # Device 0: 6 ms of compute, then 3 ms until the iteration ends: bubble.
    raw = pipeline(graph, 2, 1_000_000, 3).run()
    assert raw["ends"] == [0, 9 * MS]
    assert raw["breakdown"][1] == {"compute": 6 * MS, "launch": 0, "bubble": 2 * MS, "x": MS, "y": 0}
    assert raw["breakdown"][0] == {"compute": 6 * MS, "launch": 0, "bubble": 3 * MS, "x": 0, "y": 0}


def test_latency_counts_as_exposed_too(graph):
    raw = pipeline(graph, 2, 1_000_000, 1, alpha_ps=MS // 2).run()
    assert raw["ends"] == [0, (2 + 1 + 2) * MS + MS // 2]
    assert raw["breakdown"][1]["x"] == MS + MS // 2


def test_sends_on_one_stream_queue_behind_each_other(graph, spans):
    # Compute 1 ms, send 3 ms: messages 1-4, 4-7, 7-10 though the work was ready at 1, 2, 3.
    raw = pipeline(graph, 1, 3_000_000, 3).run()
    assert [spans(raw, 0)[0, m, 1] for m in range(3)] == [(MS, 4 * MS), (4 * MS, 7 * MS), (7 * MS, 10 * MS)]
    assert raw["ends"] == [0, 11 * MS]
    # Device 1 waits for bytes 1-4, 5-7, 8-10; before 1 ms nothing was sent.
    assert raw["breakdown"][1] == {"compute": 3 * MS, "launch": 0, "bubble": MS, "x": 7 * MS, "y": 0}


def test_messages_that_come_before_their_receive_exists_are_kept_by_micro_batch(graph, spans):
    # Device 1 takes 10 ms a micro-batch: messages 1 and 2 arrive at 5 and 7 ms, long before their instances.
    raw = pipeline(graph, 2, 1_000_000, 3, second_ms=10).run()
    assert [spans(raw, 1)[1, m, 1] for m in range(3)] == [
        (3 * MS, 13 * MS), (13 * MS, 23 * MS), (23 * MS, 33 * MS),
    ]  # fmt: skip
    assert raw["breakdown"][1]["x"] == MS


def test_a_receiver_may_take_micro_batches_in_another_order(graph, spans):
    # Sent 0, 1, 2 at 1, 2, 3 ms (no bytes); taken 2, 0, 1: all start with micro-batch 2 at 3 ms.
    g = graph(2)
    first = g.template(g.compute(MS), g.send(0, 0, deps=[0]))
    second = g.template(g.recv(0), g.compute(MS, deps=[0]))
    g.peer(0, 1)
    g.peer(1, 0)
    g.devices([g.program(*[(first, m) for m in range(3)]), g.program((second, 2), (second, 0), (second, 1))])
    raw = g.run()
    assert [spans(raw, 1)[1, m, 1] for m in (2, 0, 1)] == [(3 * MS, 4 * MS), (4 * MS, 5 * MS), (5 * MS, 6 * MS)]


def test_channels_keep_two_values_of_one_micro_batch_apart(graph, spans):
    # Channel 7 is sent first, channel 8 1 ms later; the receiver's kernels wait for 8 and for 7.
    g = graph(2)
    first = g.template(g.compute(MS), g.send(7, 0, deps=[0]), g.compute(MS), g.send(8, 0, deps=[2]))
    second = g.template(g.recv(8), g.recv(7), g.compute(10, deps=[1]), g.compute(20, deps=[0]))
    g.peer(0, 1)
    g.peer(1, 0)
    g.devices([g.program(first), g.program(second)])
    times = spans(g.run(), 1)
    assert times[1, 0, 2] == (MS, MS + 10)
    assert times[1, 0, 3] == (2 * MS, 2 * MS + 20)


def test_two_iterations_do_not_take_each_others_messages(graph, spans):
    # Device 0 runs ahead: its second iteration's message is there at 4 ms, while device 1 computes until 10 ms.
    raw = pipeline(graph, 2, 0, 1, second_ms=8).run(min_iterations=3, max_iterations=3)
    assert raw["ends"] == [0, 10 * MS, 18 * MS, 26 * MS]
    assert [spans(raw, 1, iteration=i)[1, 0, 1][0] for i in range(3)] == [2 * MS, 10 * MS, 18 * MS]


def test_critical_path_goes_through_the_slowest_stage(graph):
    # Stage 0 2 ms, message 1 ms, stage 1 10 ms a micro-batch: k0, send, then three kernels of stage 1.
    raw = pipeline(graph, 2, 1_000_000, 3, second_ms=10).run()
    path = raw["path"]
    assert list(zip(path["device"], path["start_ps"] // MS, path["end_ps"] // MS, strict=True)) == [
        (0, 0, 2), (1, 2, 3), (1, 3, 13), (1, 13, 23), (1, 23, 33),
    ]  # fmt: skip


def test_the_timeline_ends_a_receive_when_the_message_came_and_not_when_it_was_looked_at(graph, spans):
    # Messages under way 2-3, 4-5, 6-7; the receiver gets to the last one at 13 ms.
    raw = pipeline(graph, 2, 1_000_000, 3, second_ms=10).run()
    assert [spans(raw, 1)[1, m, 0] for m in range(3)] == [(2 * MS, 3 * MS), (4 * MS, 5 * MS), (6 * MS, 7 * MS)]
