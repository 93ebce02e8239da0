"""A controller of the second core fails parts of a running network and restarts the jobs that are cut by it.

Times by hand: electrical_flat at 1 GB/s, so that a byte takes 1 ns; 1 ms = 10^9 ps.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, DeadlockError, NoRouteError

MS = 10**9
ACCELERATOR, LINK, SWITCH = 0, 1, 2
LOST = "bytes sent = bytes received + bytes lost"
KEPT = "links of every accelerator carry what it sends, receives and forwards"


def flat(count, latency=0.0):
    return rostam.fabric("electrical_flat", num_accelerators=count, link_bandwidth=1e9, latency=latency)


def failing(kind, part, fail_ps, **more):
    given = {key: value if isinstance(value, list) else [value] for key, value in more.items()}
    return [("wanderer", {"fail_kind": [kind], "fail_id": [part], "fail_ps": [fail_ps], **given})]


def send(fabric, controllers, **more):
    return rostam.run_collective(
        fabric, "send_recv", num_bytes=3_000_000, ranks=[0, 1], controllers=controllers, **more
    )


@pytest.mark.parametrize("fidelity", _core.engine_names())
def test_a_job_goes_on_on_a_spare_and_what_was_under_way_is_lost(fidelity):
    # 1 MB has left by 1 ms; the job starts again at 3 ms, on accelerator 2, and takes 3 ms.
    answer = {"restart_after_ps": 2 * MS, "accelerators": [0, 2]}
    result = send(flat(3), failing(ACCELERATOR, 1, MS, **answer), fidelity=fidelity)
    hop_s = 256e-9 if fidelity == "packet" else 0.0  # the head flit of 256 bytes, on the second of two links
    assert result.time_s == pytest.approx(6e-3 + hop_s, abs=2e-12)
    assert result.bytes_sent == result.bytes_received == 3_000_000
    (restart,) = result.restarts
    assert (restart.cut_s, restart.start_s, restart.from_iteration) == (1e-3, 3e-3, 0)
    sent = 123 * 8_192 if fidelity == "packet" else 1_000_000  # packets that have begun
    assert (restart.bytes_sent, restart.bytes_received, restart.bytes_lost) == (sent, 0, sent)
    assert restart.accelerators == (0, 2)
    assert {LOST, KEPT} <= set(result.checks)
    # Every link of the three accelerators: 0 sent 4 MB, 1 received one of them, 2 the others.
    assert sorted(result.link_bytes.tolist())[-4:] == pytest.approx([0, sent, 3e6, 3e6 + sent])


def test_one_run_moves_paths_adds_and_removes_links_fails_an_accelerator_and_restarts_its_job():
    # 0.5 MB by 0.5 ms at 1 GB/s, 0.5 MB by 0.75 ms over a link of 2 GB/s, 1 MB by 1 ms over one of 4 GB/s, the former
    # being removed; then accelerator 1 fails, and from 3 ms on 3 MB go from 0 to 2.
    moves = {"src": 0, "dst": 1, "time_ps": [MS // 2, 3 * MS // 4], "bytes_per_s": [2e9, 4e9]}
    answer = {"restart_after_ps": 2 * MS, "accelerators": [0, 2]}
    result = send(flat(3), failing(ACCELERATOR, 1, MS, **moves, **answer))
    assert result.time_s == pytest.approx(6e-3, abs=2e-12)
    (restart,) = result.restarts
    assert (restart.bytes_sent, restart.bytes_received, restart.bytes_lost) == (2_000_000, 0, 2_000_000)
    assert result.bytes_sent == result.bytes_received == 3_000_000
    assert {LOST, KEPT} <= set(result.checks)
    # The fabric's own links carried half a megabyte of the first start.
    assert sorted(result.link_bytes.tolist())[-3:] == pytest.approx([0.5e6, 3e6, 3.5e6])


def test_bytes_that_have_left_but_not_arrived_are_lost_and_heard_of_by_nobody():
    # Sent whole at 3 ms, there at 3.5 ms; accelerator 0 fails between. Again on 2 from 3.25 ms: 3 ms + 0.5 ms.
    answer = {"restart_after_ps": 0, "accelerators": [2, 1]}
    result = send(flat(3, latency=0.5e-3), failing(ACCELERATOR, 0, 13 * MS // 4, **answer))
    assert result.time_s == pytest.approx(6.75e-3, abs=2e-12)
    (restart,) = result.restarts
    assert (restart.bytes_sent, restart.bytes_received, restart.bytes_lost) == (3_000_000, 0, 3_000_000)


def test_a_repaired_accelerator_takes_its_job_again():
    answer = {"repair_ps": [2 * MS], "restart_after_ps": 2 * MS}
    # Down from 1 ms; the wanderer restarts at once, where it fails: its accelerator is not repaired yet.
    with pytest.raises(ConfigError, match="job 0 is restarted on accelerator 1, which has failed"):
        send(flat(2), failing(ACCELERATOR, 1, MS, **answer))


def test_a_failed_accelerator_whose_job_nobody_restarts_is_an_error():
    with pytest.raises(
        ConfigError, match=r"accelerator 1 failed, or lost .*, at 0\.001 s, and nothing restarted job 0"
    ):
        send(flat(3), failing(ACCELERATOR, 1, MS))


def test_an_accelerator_whose_links_have_all_failed_counts_as_failed():
    # A star of one switch: it has every link of all accelerators.
    fabric = rostam.fabric("electrical_cluster", num_accelerators=4, server_size=4, link_bandwidth=1e9)
    with pytest.raises(ConfigError, match=r"accelerator [01] failed, or lost all of its links, at 0\.001 s"):
        send(fabric, failing(SWITCH, 0, MS))


def test_a_link_that_fails_stands_still_until_it_is_repaired():
    # A ring of four: 0 to 1 goes over one link. 1 MB by 1 ms, nothing until 5 ms, then 2 MB. Latency 30 ns.
    fabric = rostam.fabric("torus", dims=[4], link_bandwidth=1e9, link_latency=10e-9)
    ends = [(int(link["src"]), int(link["dst"])) for link in fabric.links]
    link = ends.index((0, 1))
    still = send(fabric, [])
    result = send(fabric, failing(LINK, link, MS, repair_ps=[5 * MS]))
    assert result.time_s - still.time_s == pytest.approx(4e-3, abs=2e-12)
    assert result.restarts == ()
    with pytest.raises(DeadlockError, match="1 messages are stalled on links of capacity 0"):
        send(fabric, failing(LINK, link, MS))
    flows = {"src": [0], "dst": [1], "num_bytes": [3_000_000], "routing": "spray"}
    stalled = rostam.run_flows(fabric, controllers=failing(LINK, link, MS, repair_ps=[5 * MS]), **flows)
    assert stalled.finish_s[0] == pytest.approx(result.time_s, abs=2e-12)
    with pytest.raises(ConfigError, match="there are"):
        send(fabric, failing(LINK, 99, MS))


# Two devices: 1 ms of compute, an all-reduce of 4 MB over two ranks (2 steps of 2 MB: 4 ms), 1 ms of compute.
ITERATION = 6 * MS


def two_jobs(num_jobs=1):
    core = _core.TaskGraph(["x"], num_jobs)
    schedule = core.add_schedule("all_reduce", "ring", 2)
    template = core.add_template(
        [0, 1, 0], [-1, 0, -1], [0, 0, 0], [-1, schedule, -1], [-1] * 3, [0, 4_000_000, 0], [MS, 0, MS],
        [0, 0, 1, 2], [0, 1],
    )  # fmt: skip
    program = core.add_program([template], [0])
    slots = np.full((2 * num_jobs, 1, 3), -1, np.int32)
    for job in range(num_jobs):
        group = core.add_group([2 * job, 2 * job + 1])
        slots[2 * job : 2 * job + 2, 0, :2] = [[group, 0], [group, 1]]
    n = 2 * num_jobs
    jobs = np.repeat(np.arange(num_jobs), 2)
    core.add_devices(np.arange(n), [program] * n, jobs, np.ones(n), np.zeros(n), slots)
    core.freeze()
    return core


def run(core, controllers, count=6, **options):
    routes = _core.make_routes("spray", [(flat(count).core, 1)], 0.0, False)
    return _core.run_session(core, routes, min_iterations=4, max_iterations=4, controllers=controllers, **options)


def test_iterations_are_done_again_from_where_the_controller_says():
    # Fails 3.5 ms into the second iteration, in the ring's second step; starts again 10 ms later.
    fail = ITERATION + 7 * MS // 2
    start = fail + 10 * MS
    spare = {"restart_after_ps": 10 * MS, "accelerators": [0, 4]}
    raw = run(two_jobs(), failing(ACCELERATOR, 1, fail, **spare))
    job = raw["jobs"][0]
    assert job["iteration_ends_ps"].tolist() == [0, ITERATION, *(start + k * ITERATION for k in (1, 2, 3))]
    # Each rank: 2 MB arrived, 0.5 MB of the second step.
    (restart,) = job["restarts"]
    assert (restart["sent_bytes"], restart["received_bytes"], restart["lost_bytes"]) == (
        5_000_000,
        4_000_000,
        1_000_000,
    )
    assert raw["sent_bytes"].tolist() == raw["received_bytes"].tolist() == [8_000_000]
    assert raw["breakdown_ps"].sum(axis=1).tolist() == [ITERATION] * 2
    # From the very beginning: four iterations after the start.
    raw = run(two_jobs(), failing(ACCELERATOR, 1, fail, from_iteration=0, **spare))
    job = raw["jobs"][0]
    assert job["iteration_ends_ps"].tolist() == [0, *(start + k * ITERATION for k in (1, 2, 3, 4))]
    (restart,) = job["restarts"]
    assert (restart["sent_bytes"], restart["lost_bytes"]) == (13_000_000, 1_000_000)


def test_the_time_until_a_lost_iteration_is_done_is_bubble_in_it():
    fail = 3 * ITERATION + MS // 2
    raw = run(two_jobs(), failing(ACCELERATOR, 1, fail, restart_after_ps=10 * MS, accelerators=[0, 4]))
    assert np.diff(raw["jobs"][0]["iteration_ends_ps"]).tolist()[-1] == MS // 2 + 10 * MS + ITERATION
    num = raw["jobs"][0]["num_averaged"]
    assert num == 3  # all but the first: the last one does not repeat
    compute, launch, bubble, host, exposed = raw["breakdown_ps"][0].tolist()
    assert (compute, launch, bubble, host, exposed) == (num * 2 * MS, 0, MS // 2 + 10 * MS, 0, num * 4 * MS)


def test_a_job_beside_the_failed_one_goes_on_undisturbed():
    fail = ITERATION + MS
    raw = run(two_jobs(2), failing(ACCELERATOR, 3, fail, restart_after_ps=MS, accelerators=[4, 5]))
    first, second = raw["jobs"]
    assert first["iteration_ends_ps"].tolist() == [k * ITERATION for k in range(5)]
    assert first["restarts"] == []
    assert second["iteration_ends_ps"].tolist()[1:3] == [ITERATION, fail + MS + ITERATION]
    with pytest.raises(ConfigError, match="accelerator 0, which is named twice or taken by another job"):
        run(two_jobs(2), failing(ACCELERATOR, 3, fail, restart_after_ps=MS, accelerators=[0, 5]))


def test_a_second_failure_before_the_start_cuts_the_job_again():
    twice = {"fail_kind": [0, 0], "fail_id": [1, 4], "fail_ps": [MS, 2 * MS], "restart_after_ps": [5 * MS]}
    with pytest.raises(ConfigError, match="accelerator 4, which has failed"):  # the wanderer knows one place only
        run(two_jobs(), [("wanderer", {**twice, "accelerators": [0, 4]})])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"from_iteration": 3}, "with iteration 3; it has ended 1 so far"),
        ({"accelerators": [0]}, "on 1 accelerators; it has 2 devices"),
        ({"accelerators": [0, 77]}, "accelerator 77, which does not exist"),
        ({"accelerators": [4, 4]}, "accelerator 4, which is named twice"),
        ({}, "accelerator 1, which has failed"),
    ],
)
def test_restarts_that_cannot_be_are_refused(more, said):
    with pytest.raises(ConfigError, match=said):
        run(two_jobs(), failing(ACCELERATOR, 1, ITERATION + MS, restart_after_ps=MS, **more))


def test_messages_without_a_route_wait_for_one_where_the_session_lets_them():
    # The cable of 0 - 1 in a line of two is cut: no path. The wanderer adds a link when it hears of the message.
    fabric = rostam.fabric("torus", dims=[4], link_bandwidth=1e9).with_failures(links=[0, 1, 2, 3])
    routes = _core.make_routes("spray", [(fabric.core, 1)], 0.0, False)
    core = two_jobs()
    wanderer = failing(ACCELERATOR, 3, 30 * MS)
    raw = _core.run_session(core, routes, controllers=wanderer, park=True)
    assert raw["jobs"][0]["iteration_ends_ps"].tolist() == [0, ITERATION]
    with pytest.raises(NoRouteError, match=r"waits for a route at 0\.001 s"):
        _core.run_session(core, routes, park=True)
    with pytest.raises(NoRouteError):
        _core.run_session(core, routes)
    parked = {"ranks": [0, 1], "num_bytes": 3_000_000, "algorithm": "direct", "controllers": wanderer}
    result = rostam.run_collective(fabric, "send_recv", park=True, **parked)
    assert result.time_s == pytest.approx(3e-3, abs=2e-12)
    with pytest.raises(NoRouteError):
        rostam.run_collective(fabric, "send_recv", **parked)
