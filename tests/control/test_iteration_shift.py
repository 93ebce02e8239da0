"""Jobs that are held so that they send at different times: closed forms, bytes, and when nothing may change."""

import re

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.errors import ConfigError
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.program import Program
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.simulation.graph_job import GraphJob, StageTasks

RATE = 12.5e9
SHIFT = ("iteration_shift",)
PS = 1e-12


def fabric(per_leaf=2, leaves=2, spines=1):
    return rostam.fabric(
        "fat_tree", num_accelerators=leaves * per_leaf, levels=2, radix=max(leaves, per_leaf + spines),
        leaf_down=per_leaf, leaf_up=spines, num_spines=spines, link_bandwidth="100 Gb/s",
    )  # fmt: skip


def job(hosts, compute_s, send_s, start_s=0.0):
    """Return a job of two hosts that computes, then all-reduces over a ring for send_s at the links' rate."""
    size = round(send_s * RATE)
    tasks = (
        Task(kind="compute", name="compute", kernels=(kernel(compute_s),)),
        Task(kind="collective", name="sum", deps=(0,), group="dp", collective="all_reduce", num_bytes=size),
        Task(kind="compute", name="update", deps=(1,), kernels=(kernel(1e-9),), is_optimizer=True),
    )
    stage = StageTasks(0, {"iteration": tasks}, Program.of((("iteration", 0),)))
    return GraphJob(
        "job", np.array(hosts), np.zeros(2, int), (stage,), (GroupSet("dp", "dp", np.array([[0, 1]])),),
        {("dp", "all_reduce", size): ScheduleKey("all_reduce", "ring", 2)}, start_ps=round(start_s * 1e12),
    )  # fmt: skip


def kernel(seconds):
    return KernelTime(name="kernel", module="", op_type="matmul", duration_s=seconds)


def run(jobs, controllers=SHIFT, count=8, where=None, **keys):
    machine = rostam.Machine(
        fabric=where or fabric(), accelerator="a100_80gb", launch_latency="0 s", min_kernel_time="0 s"
    )
    found = rostam.simulate(
        rostam.TaskGraph(machine, tuple(jobs)), controllers=controllers, max_iterations=count, min_iterations=count,
        routing=keys.pop("routing", "hash"), **keys,
    )  # fmt: skip
    return found if isinstance(found, list) else [found]


def times_ps(result):
    return [round(time / PS) for time in result.iteration_times_s]


def alone_ps(one):
    return times_ps(run([one], ())[0])[-1]


def pair(compute_s, send_s, start_s=0.0):
    """Return two jobs that send over the one link of each leaf."""
    return [job([0, 2], compute_s, send_s), job([1, 3], compute_s, send_s, start_s)]


@pytest.mark.parametrize(("compute_s", "send_s"), [(0.1, 0.05), (0.06, 0.05), (0.1, 0.1), (0.3, 0.01)])
def test_equal_jobs_that_send_for_up_to_half_of_the_time_run_as_if_alone(compute_s, send_s):
    """Both lose their first iteration's messages, and one waits once for as long; then no time is lost."""
    jobs = pair(compute_s, send_s)
    alone = alone_ps(jobs[0])
    assert alone == pytest.approx((compute_s + send_s) / PS, abs=1e6)
    hashed, shifted = run(jobs, ()), run(jobs)
    for result in hashed:
        assert times_ps(result)[-1] == pytest.approx((compute_s + 2 * send_s) / PS, abs=1e6)
    for result in shifted:
        assert set(times_ps(result)[3:]) == {alone}
        assert result.checks
    lost = [time - alone for time in times_ps(shifted[0])]
    assert lost[0] == pytest.approx(send_s / PS, abs=1e6)
    total = sum(sum(times_ps(result)) for result in shifted)
    assert total == pytest.approx(2 * 8 * alone + 3 * send_s / PS, abs=1e7)


@pytest.mark.parametrize("start_s", [0.001, 0.02, 0.049])
def test_jobs_that_meet_in_part_are_apart_to_a_ten_thousandth_of_an_iteration(start_s):
    jobs = pair(0.1, 0.05, start_s)
    alone = alone_ps(jobs[0])
    for result in run(jobs):
        assert all(time == pytest.approx(alone, rel=1e-4) for time in times_ps(result)[3:])


@pytest.mark.parametrize(("compute_s", "send_s"), [(0.05, 0.1), (0.01, 0.1), (0.04, 0.05)])
def test_a_full_link_is_never_idle_and_no_job_slower_than_unheld(compute_s, send_s):
    """Sending takes over half of the time: at best the link always sends, 2 x send_s for both."""
    jobs = pair(compute_s, send_s)
    hashed, shifted = run(jobs, ()), run(jobs)
    for before, after in zip(hashed, shifted, strict=True):
        assert times_ps(after)[4] == pytest.approx(2 * send_s / PS, abs=1e7)
        assert times_ps(after)[4] < times_ps(before)[4]
        assert sum(times_ps(after)) <= sum(times_ps(before))


def test_jobs_that_share_no_link_are_never_held_and_keep_their_times_to_the_picosecond():
    where = fabric(leaves=4)
    jobs = [job([0, 2], 0.1, 0.05), job([4, 6], 0.1, 0.05)]
    for unheld, shifted in zip(run(jobs, (), where=where), run(jobs, where=where), strict=True):
        assert times_ps(unheld) == times_ps(shifted)
        assert np.array_equal(unheld.link_bytes, shifted.link_bytes)
        assert "iteration_shift never held this job" in shifted.notes


def test_one_job_alone_is_never_held():
    one = [job([0, 2], 0.1, 0.05)]
    assert times_ps(run(one)[0]) == times_ps(run(one, ())[0])


def test_jobs_whose_link_has_room_for_both_are_never_held():
    """A link of four times the rate between the leaves."""
    where = fabric(spines=4)
    jobs = pair(0.1, 0.05)
    for unheld, shifted in zip(
        run(jobs, (), where=where, routing="spray"), run(jobs, where=where, routing="spray"), strict=True
    ):
        assert times_ps(unheld) == times_ps(shifted)


def test_unequal_jobs_lose_less_where_they_hardly_drift():
    """Periods 150 and 152 ms: unheld they meet for 25 iterations on end."""
    jobs = [job([0, 2], 0.1, 0.05), job([1, 3], 0.102, 0.05)]
    unheld, shifted = run(jobs, (), 20), run(jobs, count=20)
    for before, after in zip(unheld, shifted, strict=True):
        assert sum(times_ps(after)) < sum(times_ps(before))
    assert times_ps(shifted[1])[-1] == pytest.approx(152e-3 / PS, rel=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_jobs_lose_little_and_bytes_are_conserved(seed):
    """No plan is the best for all: of 2 to 4 jobs of any lengths the mean slow-down grows by 5% at most."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    lengths = [(float(rng.uniform(0.02, 0.2)), float(rng.uniform(0.01, 0.1))) for _ in range(count)]
    jobs = [job([k, count + k], *one, start_s=0.01 * k) for k, one in enumerate(lengths)]
    unheld, shifted = (run(jobs, which, 20, fabric(count)) for which in ((), SHIFT))
    slow = [
        np.mean([sum(one.iteration_times_s) / sum(length) for one, length in zip(found, lengths, strict=True)])
        for found in (unheld, shifted)
    ]
    assert slow[1] <= 1.05 * slow[0]
    assert all(one.checks for one in shifted)
    assert [one.bytes_sent for one in unheld] == [one.bytes_sent for one in shifted]


def test_equal_runs_are_equal():
    jobs = [job([0, 2], 0.08, 0.05), job([1, 3], 0.11, 0.04, 0.013)]
    first, second = run(jobs), run(jobs)
    for one, other in zip(first, second, strict=True):
        assert one.iteration_times_s == other.iteration_times_s
        assert one.notes == other.notes


def test_a_failed_link_is_no_reason_to_hold_for_ever():
    """One of two spines fails for a while: bytes are conserved, and both end up as if alone."""
    where = fabric(spines=2)
    jobs = pair(0.1, 0.05)
    up = np.flatnonzero((where.links["src"] == 4) & (where.links["dst"] >= 6))
    events = [rostam.Failure("220 ms", "links", int(where.links["cable"][up[0]]), repair="400 ms")]
    for result in run(jobs, count=12, where=where, events=events, recovery=rostam.Recovery(reroute="10 ms")):
        assert result.checks
        assert times_ps(result)[-1] <= 1.01 * 0.15 / PS


def test_a_job_that_is_cut_and_goes_on_is_shifted_anew():
    """An accelerator fails in the middle of a message; its job does the iteration again."""
    events = [rostam.Failure("330 ms", "accelerators", 0, repair="480 ms")]
    found = run(pair(0.1, 0.05), count=12, events=events, recovery=rostam.Recovery(restart="20 ms"))
    assert len(found[0].restarts) == 1
    for result in found:
        assert result.checks
        assert times_ps(result)[-2] == pytest.approx(0.15 / PS, rel=1e-3)


def test_a_hold_is_bubble_in_the_breakdown_and_on_the_critical_path():
    shifted = run(pair(0.1, 0.05), count=2)
    held = shifted[0] if times_ps(shifted[0])[1] > times_ps(shifted[1])[1] else shifted[1]
    bubble = held.breakdown["bubble"]
    assert bubble == pytest.approx(0.05, rel=1e-3)
    assert sum(held.breakdown.values()) == pytest.approx(held.iteration_time_s)
    path = held.critical_path()
    assert [one.name for one in path if one.kind == "bubble"] == ["held by a controller"]
    assert sum(one.duration_s for one in path) == pytest.approx(held.iteration_times_s[-1])
    assert sum(span for _, span in held.kernels_on_path()) == pytest.approx(0.1, rel=1e-3)
    said = [note for note in held.notes if note.startswith("iteration_shift")]
    assert re.match(r"iteration_shift held this job at the start of 1 iteration, for 50 ms in all", said[0])


def test_paths_may_be_assigned_and_jobs_shifted_in_one_run():
    jobs = pair(0.1, 0.05)
    both = run(jobs, ("iteration_shift", ("path_assignment", {"assigner": "greedy", "latency_ps": 0})))
    assert all(times_ps(result)[-1] == pytest.approx(0.15 / PS, rel=1e-4) for result in both)


def test_flows_without_jobs_are_left_alone():
    ends = {"src": [0, 1], "dst": [2, 3], "num_bytes": [10**9] * 2}
    unheld, shifted = (rostam.run_flows(fabric(), controllers=which, **ends) for which in ((), SHIFT))
    assert np.array_equal(unheld.finish_s, shifted.finish_s)


@pytest.mark.parametrize("routing", ["adaptive", "hash"])
def test_runs_that_do_not_tell_where_messages_go_are_refused(routing):
    keys = {"routing": routing} | ({"fidelity": "packet"} if routing == "hash" else {})
    with pytest.raises(ConfigError, match="reads which links messages take, such as iteration_shift; it takes"):
        run(pair(0.1, 0.05), **keys)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"horizon": 0}, "iteration_shift: horizon is 0; it must be 1 to 1000 iterations"),
        ({"horizon": 1001}, "horizon is 1001"),
        ({"period": 1}, "has no period; it takes horizon"),
    ],
)
def test_bad_parameters_are_refused(parameters, said):
    with pytest.raises(ConfigError, match=said):
        run(pair(0.1, 0.05), [("iteration_shift", parameters)])


def test_a_job_of_very_short_iterations_beside_a_long_one_is_decided_in_time():
    """Iterations of 30 us beside one of 2 s: a horizon of ten long ones would be 700,000 short ones."""
    jobs = [job([0, 2], 2.0, 0.5), job([1, 3], 10e-6, 20e-6)]
    found = run(jobs, count=4)
    assert [len(one.iteration_times_s) for one in found] == [4, 4]
