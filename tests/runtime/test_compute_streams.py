"""Several streams of kernels on a device, streams that kernels and groups share, and orders of communicators."""

import itertools
import random
from fractions import Fraction

import pytest

from rostam_py.errors import ConfigError

MS = 10**9
LAUNCH = 1000


def run_alone(graph, tasks, streams, **options):
    """Run compute tasks on one device. tasks: (duration, deps). streams: of each."""
    g = graph(1)
    body = g.template(*(g.compute(*one) for one in tasks), queue=[(stream, -1, 0) for stream in streams])
    g.devices([g.program(body)])
    return g.run(**options)


def test_kernels_of_two_streams_share_the_device_evenly(graph, spans):
    # 4 ms and 2 ms of work from 0 on: half speed until the shorter one ends at 4, then the other alone until 6.
    raw = run_alone(graph, [(4 * MS, ()), (2 * MS, ())], [0, 4])
    assert spans(raw, 0) == {(0, 0, 0): (0, 6 * MS), (0, 0, 1): (0, 4 * MS)}
    assert raw["breakdown"] == [{"compute": 6 * MS, "launch": 0, "bubble": 0, "x": 0, "y": 0}]
    assert raw["timeline"]["stream"].tolist() == [4, 0]


def test_a_kernel_that_comes_later_takes_its_share_from_then_on(graph, spans):
    # a 3 ms alone | b (2 ms, behind a) and c (5 ms, another stream, behind a) from 3: b ends at 7, c has 3 left: 10.
    raw = run_alone(graph, [(3 * MS, ()), (2 * MS, ()), (5 * MS, (0,))], [0, 0, 5])
    assert spans(raw, 0) == {(0, 0, 0): (0, 3 * MS), (0, 0, 1): (3 * MS, 7 * MS), (0, 0, 2): (3 * MS, 10 * MS)}
    assert raw["ends"] == [0, 10 * MS]


def test_collectives_slow_kernels_of_all_streams(graph):
    # A collective takes half of the device: two kernels of 1 ms run at a quarter of its speed each. No kernel waits for
    # the collective's end.
    g = graph(2)
    body = g.template(
        g.compute(MS), g.compute(MS), g.all_reduce(20_000_000), queue=[(0, -1, 0), (4, -1, 0), (-1, -1, 0)],
    )  # fmt: skip
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run(comm_compute_fraction=0.5)
    assert raw["breakdown"][0] == {"compute": 4 * MS, "launch": 0, "bubble": 16 * MS, "x": 0, "y": 0}


def test_a_collective_in_the_compute_stream_is_waited_for(graph, spans):
    # k0 1 ms | all-reduce 2 steps of 2 ms in the same stream | k1 1 ms, which names nothing.
    g = graph(2)
    body = g.template(
        g.compute(MS), g.all_reduce(4_000_000), g.compute(MS), queue=[(0, -1, 0)] * 3,
    )  # fmt: skip
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run(launch_latency_ps=LAUNCH)
    assert spans(raw, 0) == {
        (0, 0, 0): (LAUNCH, MS + LAUNCH), (0, 0, 1): (MS + LAUNCH, 5 * MS + LAUNCH),
        (0, 0, 2): (5 * MS + LAUNCH, 6 * MS + LAUNCH),
    }  # fmt: skip
    assert raw["breakdown"][0] == {"compute": 2 * MS, "launch": LAUNCH, "bubble": 0, "x": 4 * MS, "y": 0}


def test_two_groups_and_a_kernel_use_one_stream(graph, spans):
    # Stream 4 has a reduction in group x (2 ms), a kernel (1 ms) and one in group y (2 ms): one behind the other.
    g = graph(2)
    body = g.template(
        g.all_reduce(2_000_000), g.compute(MS), g.all_reduce(2_000_000, slot=2, category=1), queue=[(4, -1, 0)] * 3,
    )  # fmt: skip
    g.group(0, 1)
    g.group(0, 1, slot=2)
    g.devices([g.program(body)] * 2)
    raw = g.run()
    assert spans(raw, 0) == {
        (0, 0, 0): (0, 2 * MS), (0, 0, 1): (2 * MS, 3 * MS), (0, 0, 2): (3 * MS, 5 * MS),
    }  # fmt: skip
    assert raw["breakdown"][0] == {"compute": MS, "launch": 0, "bubble": 2 * MS, "x": 2 * MS, "y": 0}


def test_a_communicator_on_two_streams_keeps_its_order(graph, spans):
    # The first collective waits for 1 ms of compute; the second, on another stream, could start at 0 and does not.
    g = graph(2)
    tasks = [g.compute(MS), g.all_reduce(2_000_000, deps=[0]), g.all_reduce(2_000_000)]
    body = g.template(*tasks, queue=[(0, -1, 0), (4, 6, 0), (5, 6, 0)])
    g.group(0, 1)
    g.devices([g.program((body, 0), (body, 1))] * 2)
    raw = g.run(max_iterations=2, min_iterations=2)
    first = spans(raw, 0)
    assert first[0, 0, 1] == (MS, 3 * MS)
    assert first[0, 0, 2] == (3 * MS, 5 * MS)
    ends = [(entry["start_ps"], entry["end_ps"]) for entry in rows(raw) if entry["task"] > 0 and entry["device"] == 0]
    assert len(ends) == 8
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(ends)))


def rows(raw):
    t = raw["timeline"]
    keys = ("device", "stream", "task", "microbatch", "iteration", "start_ps", "end_ps")
    return [dict(zip(keys, one, strict=True)) for one in zip(*(t[key].tolist() for key in keys), strict=True)]


def test_marks_take_no_time_and_no_launch(graph, spans):
    # A mark on a stream of its own waits for the kernel; what waits for it pays one launch, not two.
    g = graph(1)
    body = g.template(
        g.compute(MS), g.compute(0, deps=[0]), g.compute(MS, deps=[1]), kernels=[[MS], [], [MS]],
        queue=[(0, -1, 0), (4, -1, 1), (5, -1, 0)],
    )  # fmt: skip
    g.devices([g.program(body)])
    raw = g.run(launch_latency_ps=LAUNCH)
    first = MS + LAUNCH
    assert spans(raw, 0) == {
        (0, 0, 0): (LAUNCH, first), (0, 0, 1): (first, first), (0, 0, 2): (first + LAUNCH, first + LAUNCH + MS),
    }  # fmt: skip
    assert raw["breakdown"] == [{"compute": 2 * MS, "launch": 2 * LAUNCH, "bubble": 0, "x": 0, "y": 0}]


def test_what_waits_for_a_point_is_exposed_to_what_that_one_waited_for(graph):
    # An empty kernel of a side stream waits for a collective, and the compute stream for it: the wait is the group's.
    g = graph(2)
    tasks = [g.all_reduce(4_000_000), g.compute(0, deps=[0]), g.compute(MS, deps=[1])]
    body = g.template(*tasks, queue=[(-1, -1, 0), (4, -1, 0), (0, -1, 0)])
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    assert g.run()["breakdown"][0] == {"compute": MS, "launch": 0, "bubble": 0, "x": 4 * MS, "y": 0}


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ([(4, -1, 0), (5, -1, 0)], r"program 0 has tasks on slot 0 on several streams that are not in one order"),
        ([(4, 5, 0), (5, 5, 0)], r"program 0 has tasks on stream 5 and in an order of that number"),
        ([(4, -1, 1), (4, -1, 0)], r"task 0 of template 0 is a mark, but runs something"),
        ([(-2, -1, 0), (4, -1, 0)], r"task 0 of template 0 is on stream -2 and in order -1"),
    ],
)
def test_streams_and_orders_that_contradict_each_other_are_refused(graph, queue, said):
    g = graph(2)
    body = g.template(g.all_reduce(8), g.all_reduce(8), queue=queue)
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    with pytest.raises(ConfigError, match=said):
        g.core.freeze()


def shared_evenly(tasks, streams):
    """Return when kernels begin and end that share one device, in exact arithmetic; shares nothing with the core."""
    queues = {stream: [k for k, one in enumerate(streams) if one == stream] for stream in set(streams)}
    left = [Fraction(duration) for duration, _ in tasks]
    begun, ended, now = {}, {}, Fraction(0)
    while len(ended) < len(tasks):
        running = []
        for queue in queues.values():
            head = next((k for k in queue if k not in ended), None)
            if head is not None and all(dep in ended for dep in tasks[head][1]):
                running.append(head)
                begun.setdefault(head, now)
        step = min(left[k] for k in running) * len(running)
        now += step
        for k in running:
            left[k] -= step / len(running)
            if left[k] == 0:
                ended[k] = now
    return [(float(begun[k]), float(ended[k])) for k in range(len(tasks))]


@pytest.mark.parametrize("seed", range(12))
def test_any_kernels_on_any_streams_share_the_device_as_exact_arithmetic_says(graph, spans, seed):
    draw = random.Random(seed)
    tasks, streams = [], []
    for k in range(30):
        deps = tuple(sorted(draw.sample(range(k), min(k, draw.randint(0, 2)))))
        tasks.append((draw.randint(1, 10**6), deps))
        streams.append(draw.choice([0, 4, 5, 6]))
    raw = run_alone(graph, tasks, streams)
    found = spans(raw, 0)
    for k, (begin, end) in enumerate(shared_evenly(tasks, streams)):
        assert found[0, 0, k] == pytest.approx((begin, end), abs=60)  # each change of a share rounds up to 1 ps
    work = sum(duration for duration, _ in tasks)
    assert work <= raw["ends"][1] <= work + 60  # never free
    assert raw["breakdown"][0]["compute"] == raw["ends"][1]


@pytest.mark.parametrize("fold", [False, True])
def test_folded_devices_share_alike(graph, fold):
    g = graph(4)
    tasks = [g.compute(3 * MS), g.all_reduce(4_000_000), g.compute(2 * MS, deps=[1]), g.compute(MS, deps=[2])]
    body = g.template(*tasks, queue=[(0, -1, 0), (4, -1, 0), (4, -1, 0), (0, -1, 0)])
    g.group(0, 1, 2, 3)
    g.devices([g.program(body)] * 4)
    # The ring takes 6 steps of 1 ms, so the side kernel begins when the device is idle: 6-8, and the last one 8-9.
    assert g.run(fold=fold)["ends"] == [0, 9 * MS]
