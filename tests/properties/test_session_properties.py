"""MODEL F20 on random task graphs: 600 cases of up to six devices, two collective streams and random dependencies."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core

NUM_SEEDS = 10
CASES_A_SEED = 60
RATE = 10**9  # 1 GB/s: 1,000 ps a byte
COMPUTE, COLLECTIVE = 0, 1


def random_case(rng):
    """Return tasks (kind, slot, bytes, deps) that all devices share, durations (device, task) and options."""
    num_devices, num_tasks = int(rng.integers(1, 7)), int(rng.integers(1, 13))
    tasks = []
    for t in range(num_tasks):
        deps = tuple(int(d) for d in np.flatnonzero(rng.random(t) < 0.3))
        if rng.random() < 0.6:
            tasks.append((COMPUTE, -1, 0, deps))
        else:
            tasks.append((COLLECTIVE, int(rng.integers(2)), int(rng.integers(0, 5000)), deps))
    durations = rng.integers(0, 10**6, (num_devices, num_tasks))
    if rng.random() < 0.5:
        durations[:] = durations[0]
    return tasks, durations, {"alpha": int(rng.integers(0, 10**5)), "launch": int(rng.choice([0, 1000]))}


def run(tasks, durations, alpha, launch, scale_bytes=1, rate=RATE, fold=False):
    """Run one iteration; every device has a template of its own durations."""
    num_devices = len(durations)
    graph = _core.TaskGraph(["x", "y"])
    schedule = graph.add_schedule("all_reduce", "ring", num_devices)
    offsets = np.concatenate([[0], np.cumsum([len(deps) for *_, deps in tasks])])
    deps = [dep for *_, deps in tasks for dep in deps]
    kinds, slots = [kind for kind, *_ in tasks], [slot for _, slot, *_ in tasks]
    schedules = [schedule if kind == COLLECTIVE else -1 for kind in kinds]
    sizes = [num_bytes * scale_bytes for _, _, num_bytes, _ in tasks]
    programs = {}
    for row in map(tuple, durations.tolist()):
        if row not in programs:
            none = [-1] * len(tasks)
            body = graph.add_template(kinds, slots, np.maximum(slots, 0), schedules, none, sizes, row, offsets, deps)
            programs[row] = graph.add_program([body], [0])
    bindings = np.full((num_devices, 2, 3), -1, np.int32)
    for slot in (0, 1):
        bindings[:, slot, 0] = graph.add_group(list(range(num_devices)))
        bindings[:, slot, 1] = np.arange(num_devices)
    zeros = np.zeros(num_devices)
    of_device = [programs[row] for row in map(tuple, durations.tolist())]
    graph.add_devices(np.arange(num_devices), of_device, zeros, zeros + 1, zeros, bindings)
    graph.freeze()
    fabric = rostam.fabric(
        "electrical_flat", num_accelerators=max(2, num_devices), link_bandwidth=float(rate), latency=alpha * 1e-12
    )
    return _core.run_session(graph, fabric.router("spray"), launch_latency_ps=launch, fold=fold)


def ring_ends(joins, alpha):
    """Ends of an all-reduce ring without bytes: 2 (p-1) steps, in each of which rank r waits for rank r - 1."""
    ends = np.array(joins)
    for _ in range(2 * (len(joins) - 1)):
        ends = np.maximum(ends, np.roll(ends, 1) + alpha)
    return ends.tolist()


def critical_path_without_bytes(tasks, durations, alpha, launch):
    """Longest path through streams, dependencies and rings if data takes no time: a fixed point in program order."""
    num_devices = len(durations)
    ends = [[0] * num_devices for _ in tasks]
    free = [{} for _ in range(num_devices)]  # stream -> when it is free
    # Tasks are listed in an order that respects dependencies and streams alike, on all devices the same.
    for t, (kind, slot, _, deps) in enumerate(tasks):
        starts = []
        for d in range(num_devices):
            ready = max((ends[dep][d] for dep in deps if tasks[dep][1] != slot), default=0)
            starts.append(max(ready + launch, free[d].get(slot, 0)))
        ends[t] = [start + int(durations[d][t]) for d, start in enumerate(starts)]
        if kind == COLLECTIVE:
            ends[t] = ring_ends(ends[t], alpha)  # its duration is a start-up before the first message
        for d in range(num_devices):
            free[d][slot] = ends[t][d]
    return max(max(row) for row in ends)


def in_window(raw, end):
    """Return whether every breakdown row and the critical path account for the whole iteration."""
    path = raw["jobs"][0]["critical_path"]
    start, stop = path["start_ps"], path["end_ps"]
    gaps = start[1:] - stop[:-1]
    covered = (stop - start).sum() + gaps.sum() + start[0]
    return (raw["breakdown_ps"].sum(axis=1) == end).all() and covered == end == stop[-1] and (gaps >= 0).all()


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_random_graphs_keep_bounds_sums_and_folding(seed):
    rng = np.random.default_rng(300 + seed)
    for case in range(CASES_A_SEED):
        tasks, durations, options = random_case(rng)
        where = (seed, case, tasks, durations.tolist(), options)
        raw = run(tasks, durations, **options)
        end = int(raw["jobs"][0]["iteration_ends_ps"][-1])
        # Without bytes the session is exactly the max-plus critical path; with them it is never shorter.
        bare = run(tasks, durations, **options, scale_bytes=0)
        bound = critical_path_without_bytes(tasks, durations, **options)
        assert int(bare["jobs"][0]["iteration_ends_ps"][-1]) == bound, where
        assert end >= bound, where
        # nor shorter than the busiest port, or the busiest compute stream, needs
        assert end >= raw["link_bytes"].max() / RATE * 1e12 * (1 - 1e-9), where
        assert end >= durations[:, [t[0] == COMPUTE for t in tasks]].sum(axis=1).max(), where
        assert in_window(raw, end), where
        # conservation and closed form of the rings
        p = len(durations)
        for slot in (0, 1):
            sizes = [b for kind, s, b, _ in tasks if kind == COLLECTIVE and s == slot]
            expected = sum(2 * (p - 1) * p * -(-b // p) for b in sizes) if p > 1 else 0
            assert raw["sent_bytes"][slot] == raw["received_bytes"][slot] == expected, where
        folded = run(tasks, durations, **options, fold=True)
        assert folded["jobs"][0]["iteration_ends_ps"].tolist() == [0, end], where
        assert (folded["breakdown_ps"] == raw["breakdown_ps"]).all(), where


@pytest.mark.parametrize("seed", range(4))
def test_a_communication_only_graph_without_latency_scales_exactly_with_bandwidth(seed):
    # Powers of two of a rate of 1,000 ps a byte: every duration stays a whole number of picoseconds.
    rng = np.random.default_rng(400 + seed)
    for _ in range(15):
        tasks, durations, _ = random_case(rng)
        durations[:] = 0
        ends = {}
        for c in (1, 2, 4, 8):
            raw = run(tasks, durations, alpha=0, launch=0, rate=RATE * c)
            ends[c] = int(raw["jobs"][0]["iteration_ends_ps"][-1])
        slack = 2 * len(durations) * len(tasks)  # two rings that share a port may split a picosecond
        assert all(abs(ends[1] - c * ends[c]) <= c * slack for c in ends), (tasks, ends)
