"""Drawn programs of streams, orders, batches, unequal parts and host waits: parts sum up however it runs."""

import itertools
import random

import pytest

import rostam_py as rostam
from rostam_py.programs import Batch, BatchMessage, Collective, Compute, Program, RankGroups, Role, Wait

STREAMS = ("", "", "compute", "copy-in", "gather", "reduce")
NUM = 8


def ring_batch(draw, k):
    """Return what the ranks of even and odd places exchange with their neighbours."""
    size = draw.randint(1, 4) * 10**5
    sends = (BatchMessage(kind="send", channel=f"x{k}", num_bytes=size, peer=1),
             BatchMessage(kind="recv", channel=f"y{k}", num_bytes=size, peer=1))  # fmt: skip
    receives = (BatchMessage(kind="recv", channel=f"x{k}", num_bytes=size, peer=-1),
                BatchMessage(kind="send", channel=f"y{k}", num_bytes=size, peer=-1))  # fmt: skip
    stream = draw.choice(STREAMS)
    return tuple(Batch(group="pair", messages=ends, stream=stream) for ends in (sends, receives))


def drawn_program(seed, count=40):
    """Return a program of two roles, whose steps are the same but for the ends of batches."""
    draw = random.Random(seed)
    roles = ([], [])
    for k in range(count):
        after = None if draw.random() < 0.6 else tuple(sorted(draw.sample(range(k), min(k, 2))))
        said = {"after": after, "stream": draw.choice(STREAMS)}
        kind = draw.choice(["compute"] * 5 + ["collective"] * 3 + ["unequal", "batch", "wait", "host"])
        if kind == "batch":
            steps = ring_batch(draw, k)
        elif kind == "compute":
            steps = (Compute(time=draw.randint(1, 50) * 1e-6, **said),) * 2
        elif kind == "collective":
            name = draw.choice(["all_gather", "reduce_scatter", "all_reduce"])
            group = draw.choice(["dp", "tp"])
            size = draw.randint(1, 8) * 10**5
            steps = (Collective(collective=name, num_bytes=size, group=group, algorithm="ring", **said),) * 2
        elif kind == "unequal":
            parts = tuple(draw.randint(0, 5) * 10**4 for _ in range(NUM // 2))
            steps = (Collective(collective="all_to_all", send_bytes=(*parts[:-1], 10**4), group="tp", **said),) * 2
        else:
            steps = (Wait(host=kind == "host", **said),) * 2
        for role, step in zip(roles, steps, strict=True):
            role.append(step)
    evens, odds = (tuple(range(first, NUM, 2)) for first in (0, 1))
    return Program(
        name="drawn", num_ranks=NUM,
        groups={
            "dp": RankGroups(kind="dp"), "tp": RankGroups(kind="tp", size=NUM // 2),
            "pair": RankGroups(kind="pp", size=2),
        },
        roles={
            name: Role(phases={"iteration": (*steps, Wait(after=tuple(range(count))))}, ranks=ranks, after="stream")
            for name, steps, ranks in (("even", roles[0], evens), ("odd", roles[1], odds))
        },
    )  # fmt: skip


def placed(program, **fields):
    fabric = rostam.fabric("electrical_flat", num_accelerators=NUM, link_bandwidth="50 GB/s", latency="1 us")
    return program.on(rostam.Machine(fabric=fabric, **fields))


@pytest.mark.parametrize("host", [0.0, 3e-6])
@pytest.mark.parametrize("seed", range(6))
def test_parts_sum_to_the_iteration_however_it_runs(seed, host):
    job = placed(drawn_program(seed), host_launch=host, host_sync="none")
    found = set()
    for fold, shortcuts in itertools.product((True, False), (True, False)):
        result = rostam.simulate(job, fold=fold, shortcuts=shortcuts, min_iterations=3, max_iterations=3)
        found.add(result.iteration_times_s)
        assert sum(result.breakdown.values()) == pytest.approx(result.iteration_time_s, rel=1e-9)
        path = sum(one.duration_s for one in result.critical_path())
        assert path == pytest.approx(result.iteration_times_s[-1], rel=1e-9)
    assert len(found) == 1
    again = rostam.simulate(job, min_iterations=3, max_iterations=3)
    assert again.iteration_times_s in found


def test_packets_move_as_many_bytes():
    job = placed(drawn_program(7))
    flow, packet = (rostam.simulate(job, fidelity=name, max_iterations=2) for name in ("flow", "packet"))
    assert flow.bytes_sent == packet.bytes_sent
    assert packet.iteration_time_s == pytest.approx(flow.iteration_time_s, rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_kernels_take_their_work_and_never_less(seed):
    job = placed(drawn_program(seed))
    result = rostam.simulate(job, min_iterations=1, max_iterations=1)
    kernels = sum(task.duration_s for task in job.stages[0].templates["iteration"])
    assert result.breakdown["compute"] == pytest.approx(kernels, rel=1e-6)


def test_a_program_on_streams_goes_on_after_a_restart():
    job = placed(drawn_program(3))
    base = rostam.simulate(job, min_iterations=4, max_iterations=4)
    lost = rostam.Failure(1.5 * base.iteration_times_s[0], "accelerators", NUM - 1, repair="1 ms")
    result = rostam.simulate(
        job, min_iterations=4, max_iterations=4, events=[lost], recovery=rostam.Recovery(restart="1 ms")
    )  # fmt: skip
    assert len(result.restarts) == 1
    # The iteration that was cut is run again from its beginning; the last one is as long as before, except for what
    # streams have run ahead.
    assert result.iteration_times_s[0] == base.iteration_times_s[0]
    assert result.iteration_times_s[-1] == pytest.approx(base.iteration_times_s[-1], rel=1e-4)
    assert sum(result.iteration_times_s) > sum(base.iteration_times_s) + 1e-3
