"""Streams of one and two devices: launch, order, overlap, exposed communication; all times in ps."""

import pytest

from rostam_py.errors import ConfigError

LAUNCH = 1000


def test_launch_is_paid_on_an_idle_stream_and_hidden_on_a_busy_one(graph, spans):
    # k0 is launched at 0 and runs 1000-6000; k1 is queued behind it: 6000-8000, no second launch.
    g = graph(1)
    body = g.template(g.compute(5000), g.compute(2000, deps=[0]))
    g.devices([g.program(body)])
    raw = g.run(launch_latency_ps=LAUNCH)
    assert spans(raw, 0) == {(0, 0, 0): (1000, 6000), (0, 0, 1): (6000, 8000)}
    assert raw["ends"] == [0, 8000]
    assert raw["breakdown"][0] == {"compute": 7000, "launch": 1000, "bubble": 0, "x": 0, "y": 0}


def test_a_kernel_after_a_collective_pays_its_launch(graph, spans):
    # k0 1000-6000; all-reduce of 2,000 bytes over 2 ranks: launch to 7000, two steps of 1,000 bytes = 2 us;
    # k1 is ready when it ends, and launched 1000 later.
    g = graph(2)
    body = g.template(g.compute(5000), g.all_reduce(2000, deps=[0]), g.compute(3000, deps=[1]))
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run(launch_latency_ps=LAUNCH)
    comm_end = 7000 + 2 * 1_000_000
    for d in (0, 1):
        assert spans(raw, d) == {
            (0, 0, 0): (1000, 6000), (0, 0, 1): (7000, comm_end), (0, 0, 2): (comm_end + 1000, comm_end + 4000),
        }  # fmt: skip
        # From 6000 to the collective's end the compute stream waited for it; then for its launch.
        assert raw["breakdown"][d] == {
            "compute": 8000, "launch": 2000, "bubble": 0, "x": comm_end - 6000, "y": 0,
        }  # fmt: skip


def test_a_launch_that_ends_while_the_stream_is_busy_is_hidden(graph, spans):
    # k2 waits for the collective (0 bytes, ends at 6000 + 1000) while k1 computes until 6000 + 9000: no gap.
    g = graph(2)
    body = g.template(g.compute(5000), g.all_reduce(0, deps=[0]), g.compute(9000), g.compute(1000, deps=[1, 2]))
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    assert spans(g.run(launch_latency_ps=LAUNCH), 0)[0, 0, 3] == (15000, 16000)


def test_communication_overlaps_compute_and_only_its_tail_is_exposed(graph):
    # k0 1 ms | k1 3 ms runs beside the all-reduce of 4,000,000 bytes (2 steps of 2 ms); k2 1 ms needs both.
    #   compute  k0 0-1 | k1 1-4 |  gap 4-5 | k2 5-6
    #   stream          | all-reduce 1-5    |
    ms = 10**9
    g = graph(2)
    body = g.template(g.compute(ms), g.all_reduce(4_000_000, deps=[0]), g.compute(3 * ms), g.compute(ms, deps=[1]))
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run()
    assert raw["ends"] == [0, 6 * ms]
    assert raw["breakdown"] == [{"compute": 5 * ms, "launch": 0, "bubble": 0, "x": ms, "y": 0}] * 2


def test_a_stream_is_first_in_first_out_in_program_order(graph, spans):
    # The second collective on the stream is ready at 0, the first at 1 ms: it waits for its turn all the same.
    ms = 10**9
    g = graph(2)
    body = g.template(g.compute(ms), g.all_reduce(2_000_000, deps=[0]), g.all_reduce(2_000_000))
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    times = spans(g.run(), 0)
    assert times[0, 0, 1] == (ms, 3 * ms)
    assert times[0, 0, 2] == (3 * ms, 5 * ms)


def test_two_streams_run_side_by_side_and_share_the_port(graph, spans):
    # Two all-reduces of 2,000,000 bytes on two groups' streams: 1 ms a step each alone, 2 ms a step together.
    ms = 10**9
    g = graph(2)
    body = g.template(g.all_reduce(2_000_000), g.all_reduce(2_000_000, slot=2, category=1))
    g.group(0, 1)
    g.group(0, 1, slot=2)
    g.devices([g.program(body)] * 2)
    raw = g.run()
    assert spans(raw, 0) == {(0, 0, 0): (0, 4 * ms), (0, 0, 1): (0, 4 * ms)}
    assert raw["sent_bytes"].tolist() == raw["received_bytes"].tolist() == [4_000_000, 4_000_000]
    assert raw["num_messages"].tolist() == [4, 4]
    assert raw["link_bytes"].tolist() == [4_000_000] * 4


def test_minimum_time_holds_for_a_collective_and_not_for_its_steps(graph, spans):
    # 2 steps of 1 us: a minimum of 5 us holds the collective until 5 us, one of 2 us changes nothing.
    for minimum, end in ((5_000_000, 5_000_000), (2_000_000, 2_000_000)):
        g = graph(2)
        body = g.template(g.all_reduce(2000))
        g.group(0, 1)
        g.devices([g.program(body)] * 2)
        assert spans(g.run(min_collective_ps=minimum), 0)[0, 0, 0] == (0, end)


def test_a_collective_waits_for_its_last_rank_and_early_ranks_are_exposed_to_it(graph):
    # Rank 1 computes 3 ms, rank 0 1 ms, then an all-reduce of 2 x 1 ms and 1 ms of compute.
    #   rank 0: k 0-1 | in the collective 1-5 | k 5-6
    #   rank 1: k 0-3 | 3-5                   | k 5-6
    ms = 10**9
    g = graph(2)
    reduce = g.all_reduce(2_000_000, deps=[0])
    slow, fast = (g.template(g.compute(t * ms), reduce, g.compute(ms, deps=[1])) for t in (3, 1))
    g.group(0, 1)
    g.devices([g.program(fast), g.program(slow)])
    raw = g.run()
    assert raw["ends"] == [0, 6 * ms]
    assert raw["breakdown"][0] == {"compute": 2 * ms, "launch": 0, "bubble": 0, "x": 4 * ms, "y": 0}
    assert raw["breakdown"][1] == {"compute": 4 * ms, "launch": 0, "bubble": 0, "x": 2 * ms, "y": 0}
    assert raw["device_end_ps"].tolist() == [6 * ms, 6 * ms]


def test_slow_devices_stretch_their_kernels(graph, spans):
    g = graph(2)
    body = g.template(g.compute(1001))
    g.devices([g.program(body)] * 2, slowdown=[1, 2.5])
    raw = g.run()
    assert spans(raw, 0)[0, 0, 0] == (0, 1001)
    assert spans(raw, 1)[0, 0, 0] == (0, 2503)  # 2502.5 ps, to the nearest picosecond
    assert raw["breakdown"][0]["bubble"] == raw["ends"][1] - 1001


def test_iterations_repeat_the_program_until_two_agree(graph):
    g = graph(1)
    body = g.template(g.compute(5000))
    g.devices([g.program(body, body)])
    raw = g.run(max_iterations=10)
    assert raw["ends"] == [0, 10_000, 20_000]
    assert raw["jobs"][0]["is_steady"]


def test_a_device_that_starts_late_counts_its_own_start(graph, spans):
    g = graph(2)
    body = g.template(g.compute(5000))
    g.devices([g.program(body)] * 2, start_ps=[0, 2000])
    raw = g.run()
    assert spans(raw, 1)[0, 0, 0] == (2000, 7000)
    assert raw["ends"] == [0, 7000]


@pytest.mark.parametrize("launch", [0, 1, 777])
def test_critical_path_of_a_mixed_graph_adds_up_without_gaps_beyond_the_launch(graph, launch):
    ms = 10**9
    g = graph(2, alpha_ps=5000)
    body = g.template(
        g.compute(ms), g.all_reduce(3_000_001, deps=[0]), g.compute(ms // 2), g.compute(ms, deps=[1]),
        g.all_reduce(1_000_001, deps=[2], slot=2, category=1), g.compute(3, deps=[3, 4]),
    )  # fmt: skip
    g.group(0, 1)
    g.group(0, 1, slot=2)
    g.devices([g.program(body)] * 2, slowdown=[1, 1.37])
    raw = g.run(launch_latency_ps=launch)
    start, end = raw["path"]["start_ps"], raw["path"]["end_ps"]
    assert end[-1] == raw["ends"][-1]
    assert start[0] == launch
    gaps = start[1:] - end[:-1]
    assert set(gaps.tolist()) <= {0, launch}
    assert (end - start).sum() + gaps.sum() + launch == raw["ends"][-1]
    assert raw["breakdown_ps"].sum(axis=1).tolist() == [raw["ends"][-1]] * 2


def test_long_critical_paths_are_kept_whole_and_what_no_task_follows_from_is_dropped(graph):
    # The faster device always waits, so what it computes decides nothing. 36,000 tasks take several sweeps.
    g = graph(2)
    body = g.template(g.compute(1_000_000), g.all_reduce(1_000, deps=[0]), g.compute(500, deps=[1]))
    g.group(0, 1)
    g.devices([g.program(*[body] * 6_000)] * 2, slowdown=[1, 3])
    path = g.run()["path"]
    start, end = path["start_ps"], path["end_ps"]
    # 3 us, an all-reduce of two steps of 500 bytes at 1 GB/s, and the slower device's second task.
    assert end[-1] == 6_000 * (3_000_000 + 2 * 500 * 1_000 + 1_500)
    assert (start[1:] == end[:-1]).all()
    assert len(start) == 3 * 6_000
    assert path["task"].tolist() == [0, 1, 2] * 6_000
    assert set(path["device"][path["task"] != 1].tolist()) == {1}


def test_equal_templates_keep_their_names_and_near_equal_ones_their_tasks(graph, spans):
    # Two ranks exchange halves in two steps; a byte takes 1,000 ps.
    g = graph(8)
    behind = [g.template(g.compute(1000), g.all_reduce(4, deps=[0], ranks=2)) for _ in range(2)]
    beside = g.template(g.compute(1000), g.all_reduce(4, ranks=2))
    longer = g.template(g.compute(1000), g.all_reduce(8, deps=[0], ranks=2))
    templates = [*behind, beside, longer]
    for pair in range(4):
        g.group(2 * pair, 2 * pair + 1)
    g.devices([g.program(template) for template in templates for _ in range(2)])
    raw = g.run()
    found = {template: [spans(raw, 2 * pair)[template, 0, task] for task in (0, 1)]
             for pair, template in enumerate(templates)}  # fmt: skip
    assert found == {
        behind[0]: [(0, 1000), (1000, 5000)], behind[1]: [(0, 1000), (1000, 5000)],
        beside: [(0, 1000), (0, 4000)], longer: [(0, 1000), (1000, 9000)],
    }  # fmt: skip


def test_a_collective_takes_its_share_of_compute_while_it_runs(graph):
    # All-reduce 0-2 ms beside a kernel of 3 ms, a quarter of compute taken: 1.5 ms done at 2 ms, 1.5 left: 3.5 ms.
    ms = 10**9
    g = graph(2)
    body = g.template(g.all_reduce(2_000_000), g.compute(3 * ms))
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run(comm_compute_fraction=0.25)
    assert raw["ends"] == [0, 3 * ms + ms // 2]
    assert raw["breakdown"][0]["compute"] == 3 * ms + ms // 2


@pytest.mark.parametrize(
    ("taken_ppm", "fraction", "speed"),
    [
        ((200_000, 500_000), 0, 0.3),
        ((200_000, 0), 0, 0.8),
        ((600_000, 600_000), 0, 0.1),  # never all of it
        ((200_000, 500_000), 0.75, 0.25),
        ((200_000, 500_000), 0.5, 0.3),
    ],
)
def test_collectives_take_the_sum_of_what_their_channels_hold(graph, taken_ppm, fraction, speed):
    # Two all-reduces of 2 MB share links of 1 GB/s: both last 4 ms, beside a kernel of 5 ms.
    ms = 10**9
    g = graph(2)
    body = g.template(
        g.all_reduce(2_000_000), g.all_reduce(2_000_000, slot=2, category=1), g.compute(5 * ms),
        taken_ppm=[*taken_ppm, 0],
    )  # fmt: skip
    g.group(0, 1)
    g.group(0, 1, slot=2)
    g.devices([g.program(body)] * 2)
    raw = g.run(comm_compute_fraction=fraction)
    expected = 4 * ms + (5 * ms - 4 * ms * speed)
    assert raw["breakdown"][0]["compute"] == pytest.approx(expected, abs=2)
    assert raw["ends"][-1] == pytest.approx(expected, abs=2)


def test_a_kernel_has_no_work_left_at_the_instant_it_ends(graph):
    # An all-reduce of 1,002 B takes 0.2223 of compute until its last message, on the way from 1,072,000 ps on, is there
    # at 1,142,000. A kernel from 1,100,000 on lasts 32,663 / 0.7777 = 41,999.5: it ends at that instant too, 0.4 ps of
    # work past its own. The next all-reduce begins there first and leaves a tenth of the speed: 4 ps back.
    g = graph(2, alpha_ps=70_000)
    body = g.template(
        g.all_reduce(1002), g.all_reduce(1000, deps=(0,)), g.compute(855_470), g.compute(32_663),
        taken_ppm=[222_300, 900_000, 0, 0],
    )  # fmt: skip
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run()
    assert raw["breakdown"][0]["compute"] == 1_142_000
    assert raw["ends"] == [0, 2_282_000]


@pytest.mark.parametrize(("taken_ppm", "words"), [([0, 1], "takes 1 millionths"), ([1_000_001, 0], "0 to 1,000,000")])
def test_shares_that_cannot_be_taken_are_refused(graph, taken_ppm, words):
    g = graph(2)
    g.program(g.template(g.all_reduce(1000), g.compute(1), taken_ppm=taken_ppm))
    with pytest.raises(ConfigError, match=words):
        g.core.freeze()
