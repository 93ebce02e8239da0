"""Hosts that launch kernels: times against a replay of every kernel in Python, limits, breakdown and path.

The replay knows nothing of leads, spans or events: it walks kernels in program order with one clock for the host and
one for each stream.
"""

import random

import pytest

from rostam_py.errors import ConfigError

US = 10**6
LATENCY = 700_000


def replay(programs, num_iterations, h, latency, collective_ps):
    """Return the ends of iterations on one device, and the kernels' starts.

    programs: templates of one iteration, lists of (kind, kernels [ps], deps, awaited, issues [ps]). A collective lasts
    collective_ps; all ranks are alike, so it starts when this one does. issues: of each kernel, h without them.
    """
    host = compute_free = comm_free = 0
    ends, starts = [], []
    for _ in range(num_iterations):
        for tasks in programs:
            done = []
            for kind, kernels, deps, awaited, issues in tasks:
                other = "collective" if kind == "compute" else "compute"
                ready = max((done[d] + latency for d in deps if tasks[d][0] == other), default=0)
                if kind == "collective":
                    if awaited:
                        host = max(host, comm_free, *(done[d] for d in deps if tasks[d][0] == other), 0)
                    host += h
                    comm_free = max(ready, comm_free, host) + collective_ps
                    done.append(comm_free)
                    continue
                if awaited:
                    host = max(host, compute_free, *(done[d] for d in deps if tasks[d][0] == other), 0)
                now = max(ready, compute_free)
                for kernel, issue in zip(kernels, issues or [h] * len(kernels), strict=True):
                    host += issue
                    now = max(now, host)
                    starts.append(now)
                    now += kernel
                compute_free = now
                done.append(now)
        ends.append(max(compute_free, comm_free))
    return ends, starts


def random_template(rng, has_issues=False):
    tasks = []
    for index in range(rng.randint(1, 6)):
        kind = "compute" if index == 0 or rng.random() < 0.6 else "collective"
        kernels = [rng.randint(0, 6 * US) for _ in range(rng.randint(1, 5))] if kind == "compute" else []
        deps = sorted(rng.sample(range(index), rng.randint(0, min(2, index))))
        is_awaited = rng.random() < 0.25
        issues = [rng.randint(0, 4 * US) for _ in kernels] if has_issues else []
        tasks.append((kind, kernels, deps, is_awaited, issues))
    return tasks


def build(graph, programs):
    g = graph(2)
    entries = []
    for tasks in programs:
        made = [
            g.compute(sum(kernels), deps) if kind == "compute" else g.all_reduce(2_000, deps)
            for kind, kernels, deps, _, _ in tasks
        ]
        awaited = [k for k, task in enumerate(tasks) if task[3]]
        issues = [task[4] for task in tasks] if any(task[4] for task in tasks) else None
        entries.append(g.template(*made, kernels=[task[1] for task in tasks], awaited=awaited, issues=issues))
    g.group(0, 1)
    g.devices([g.program(*entries)] * 2)
    return g


@pytest.mark.parametrize("seed", range(60))
def test_times_equal_a_replay_of_every_kernel(graph, seed):
    # 2 x 1,000 bytes at 1 GB/s: a ring of two ranks lasts 2 us.
    rng = random.Random(seed)
    programs = [random_template(rng, has_issues=seed % 2 == 1) for _ in range(rng.randint(1, 3))]
    h = rng.choice([1, 100_000, 900_000, 2 * US, 5 * US])
    g = build(graph, programs)
    fold = rng.random() < 0.5
    raw = g.run(host_launch_ps=h, launch_latency_ps=LATENCY, min_iterations=4, max_iterations=4, fold=fold)
    # An iteration ends with its last instance on the device, earlier ones' collectives included.
    expected, _ = replay(programs, 4, h, LATENCY, 2 * US)
    assert raw["ends"][1:] == expected
    assert all(sum(row.values()) == expected[3] - expected[2] for row in raw["breakdown"])


def test_a_host_at_its_limit_takes_kernels_times_launch(graph):
    kernels = [[US] * 5, [2 * US] * 3]
    h = 50 * US
    for awaited in ((), (1,)):
        g = graph(1)
        body = g.template(g.compute(5 * US), g.compute(6 * US), kernels=kernels, awaited=awaited)
        g.devices([g.program(body, body)])
        raw = g.run(host_launch_ps=h, min_iterations=4, max_iterations=4)
        period = raw["ends"][-1] - raw["ends"][-2]
        # A stop waits for the kernel that the last launch before it started.
        assert period == 16 * h + (2 * US if awaited else 0)
        assert raw["breakdown"][0]["compute"] == 22 * US
        assert raw["breakdown"][0]["host"] == period - 22 * US


def test_without_a_launch_cost_nothing_changes(graph):
    rng = random.Random(3)
    programs = [random_template(rng) for _ in range(3)]
    plain, zero = (build(graph, programs).run(launch_latency_ps=LATENCY, max_iterations=3, **o) for o in
                   ({}, {"host_launch_ps": 0}))  # fmt: skip
    assert plain["ends"] == zero["ends"]
    assert plain["breakdown"] == zero["breakdown"]
    assert not plain["breakdown_ps"][:, 3].any()


def test_what_a_task_waits_for_its_host_is_told_apart_from_its_work(graph):
    # Launches end at 3, 6, 9 us. Kernels of 1, 1 and 10 us: [3, 4], [6, 7], [9, 19].
    g = graph(1)
    body = g.template(g.compute(12 * US), kernels=[[US, US, 10 * US]])
    g.devices([g.program(body)])
    raw = g.run(host_launch_ps=3 * US)
    assert raw["ends"] == [0, 19 * US]
    assert raw["breakdown"][0] == {"compute": 12 * US, "launch": 0, "bubble": 0, "host": 7 * US, "x": 0, "y": 0}
    timeline = raw["timeline"]
    assert (timeline["start_ps"].tolist(), timeline["host_wait_ps"].tolist()) == ([7 * US], [7 * US])


def test_the_path_goes_through_the_host_back_to_where_it_last_waited(graph):
    # The host waits in front of task 1, whose kernel ends at 2 + 30 us; then it launches for 2 us each.
    g = graph(1)
    body = g.template(
        g.compute(30 * US), g.compute(US), g.compute(US), kernels=[[30 * US], [US], [US]], awaited=(1,)
    )  # fmt: skip
    g.devices([g.program(body)])
    path = g.run(host_launch_ps=2 * US)["path"]
    rows = list(zip(path["is_host"].tolist(), path["task"].tolist(), path["start_ps"].tolist(),
                    path["end_ps"].tolist(), strict=True))  # fmt: skip
    assert rows == [
        (1, 0, 0, 2 * US), (0, 0, 2 * US, 32 * US), (1, 2, 32 * US, 36 * US), (0, 2, 36 * US, 37 * US),
    ]  # fmt: skip


def test_an_exposed_collective_that_its_host_launched_late_is_a_wait_for_the_host(graph):
    # Kernel [5, 6]; the all-reduce could start at 6, is launched at 10, lasts to 12; then a kernel launched at 15.
    g = graph(2)
    body = g.template(g.compute(US), g.all_reduce(2_000, [0]), g.compute(US, [1]))
    g.group(0, 1)
    g.devices([g.program(body)] * 2)
    raw = g.run(host_launch_ps=5 * US)
    assert raw["ends"] == [0, 16 * US]
    # Waits: 0 to 5 the host, 6 to 10 the host, 10 to 12 the collective, 12 to 15 the host.
    assert raw["breakdown"][0] == {"compute": 2 * US, "launch": 0, "bubble": 0, "host": 12 * US, "x": 2 * US, "y": 0}


def test_slow_devices_wait_less_for_their_hosts(graph):
    g = graph(2)
    body = g.template(g.compute(4 * US), kernels=[[US] * 4])
    g.devices([g.program(body)] * 2, slowdown=[1, 5])
    raw = g.run(host_launch_ps=3 * US)
    assert [row["compute"] for row in raw["breakdown"]] == [4 * US, 20 * US]
    assert [row["host"] for row in raw["breakdown"]] == [12 * US + US - 4 * US, 3 * US]


@pytest.mark.parametrize(("make", "message"), [
    (lambda g: g.template(g.compute(1), kernels=[[-1]]), "a kernel of -1 ps"),
    (lambda g: g.template(g.send(0, 1), awaited=(0,)), "only compute tasks and collectives"),
])  # fmt: skip
def test_freezing_refuses_launches_that_cannot_be(graph, make, message):
    g = graph(1)
    make(g)
    with pytest.raises(ConfigError, match=message):
        g.core.freeze()


def test_a_negative_launch_is_refused(graph):
    g = build(graph, [random_template(random.Random(1))])
    with pytest.raises(ConfigError, match="host_launch is -1 ps"):
        g.run(host_launch_ps=-1)
