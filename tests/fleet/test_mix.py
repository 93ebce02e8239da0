"""Jobs that share a machine: max-min shares to the picosecond, isolation where links are disjoint, baselines."""

import json

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fleet import Baselines, Job, JobOutcome, simulate_mix
from rostam_py.fleet import mix as mix_module

MS = 10**9  # ps


def ps(outcome):
    """Iteration times of a job in whole picoseconds."""
    return [round(t * 1e12) for t in outcome.iteration_times_s]


def alone_ps(outcome):
    return [round(t * 1e12) for t in outcome.alone_times_s]


# Ring all-reduce of S bytes between two ranks: two steps in which each sends S / 2 to the other. Latency 0.
#   job x: a0 - s0 = s1 - a2;  job y: a1 - s0 = s1 - a3;  all cables 1 GB/s, S = 2 MB: 1 ms a step alone.


@pytest.mark.parametrize("routing", ["spray", "hash"])
def test_two_jobs_on_one_cable_get_half_of_it_each(step_plan, two_switches, routing):
    # Alone 2 x 1 MB / 1 GB/s = 2 ms; both at once 0.5 GB/s each, so 4 ms, in step for ever.
    machine = two_switches(1e9, [1e9] * 4)
    plans = [step_plan(machine, [[0], [2]], 2_000_000), step_plan(machine, [[1], [3]], 2_000_000)]
    mix = simulate_mix(plans, machine, routing=routing, num_iterations=3)
    for job in mix.jobs:
        assert ps(job) == [4 * MS] * 3
        assert alone_ps(job) == [2 * MS] * 3
        assert job.slowdown == job.slowdown_ideal == 2.0
        # Every rank is in its all-reduce for 4 ms and sends 2 x 1 MB.
        assert (job.all_reduce_s, job.flow_completion_s) == pytest.approx((4e-3, 4e-3), rel=1e-12)
        assert job.flow_rate_bytes_per_s == pytest.approx(0.5e9, rel=1e-12)
    assert (mix.slowdown_mean, mix.slowdown_max) == (2.0, 2.0)


def test_controllers_act_on_the_mix_and_not_on_a_job_alone(step_plan, two_switches):
    # All links at half their rate from the start: 2 x 1 MB / 0.5 GB/s = 4 ms, and 2 ms alone, without controllers.
    machine = two_switches(1e9, [1e9] * 4)
    links = list(range(len(machine.fabric.links)))
    half = {"time_ps": [0] * len(links), "link": links, "bytes_per_s": [0.5e9] * len(links)}
    mix = simulate_mix([step_plan(machine, [[0], [2]], 2_000_000)], machine, controllers=[("link_bandwidth", half)])
    (job,) = mix.jobs
    assert ps(job) == [4 * MS] * 3
    assert alone_ps(job) == [2 * MS] * 3
    assert job.slowdown == job.slowdown_ideal == 2.0
    assert mix.to_dict()["controllers"] == [{"name": "link_bandwidth", **half}]
    assert job.to_dict()["algorithms"] == job.algorithms == "dp all_reduce ring"


def test_compute_is_not_shared_and_thins_the_contention_out(step_plan, two_switches):
    # 3 ms of compute in both: 3 + 4 ms in the mix, 3 + 2 ms alone.
    machine = two_switches(1e9, [1e9] * 4)
    plans = [step_plan(machine, [[a], [a + 2]], 2_000_000, compute_s=3e-3) for a in (0, 1)]
    for job in simulate_mix(plans, machine, num_iterations=2).jobs:
        assert ps(job) == [7 * MS] * 2
        assert alone_ps(job) == [5 * MS] * 2
        assert job.slowdown == pytest.approx(1.4, rel=1e-12)


def test_all_reduce_time_is_the_longest_ranks_and_flow_completion_time_the_mean(step_plan, two_switches):
    # a0 computes 3 ms, a2 at half speed 6 ms; each sends 1 MB a step at 1 GB/s, its first when it joins:
    #   a0 joins 3, sends 3-4, waits for a2's first (6-7), sends 7-8, through at 8: 5 ms;  a2: 6 to 8, 2 ms.
    machine = two_switches(1e9, [1e9] * 4).with_slow_accelerators({2: 0.5})
    (job,) = simulate_mix([step_plan(machine, [[0], [2]], 2_000_000, compute_s=3e-3)], machine, num_iterations=2).jobs
    assert [(one.count, one.longest_s, one.mean_s) for one in job.gradient_times] == [
        (2, pytest.approx(5e-3, rel=1e-12), pytest.approx(3.5e-3, rel=1e-12))
    ] * 2
    assert job.flow_rate_bytes_per_s == pytest.approx(4e6 / 7e-3, rel=1e-12)
    row = job.to_dict()
    assert (row["all_reduce_s"], row["flow_completion_s"]) == (job.all_reduce_s, job.flow_completion_s)


def test_a_job_of_two_flows_gets_two_shares_of_three(step_plan, two_switches):
    # Cable and ports 6 GB/s; x has two rings over it, y one: 2 GB/s a flow. S = 12 MB: 6 MB a step and flow, so
    # 3 ms in the mix; alone x has 3 GB/s a flow, 2 ms, and y all 6 GB/s, 1 ms. Two steps an iteration.
    machine = two_switches(6e9, [6e9] * 6)
    x = step_plan(machine, [[0, 1], [3, 4]], 12_000_000)
    y = step_plan(machine, [[2], [5]], 12_000_000)
    of_x, of_y = simulate_mix([x, y], machine, num_iterations=2).jobs
    assert ps(of_x) == ps(of_y) == [6 * MS] * 2
    assert alone_ps(of_x) == [4 * MS] * 2
    assert alone_ps(of_y) == [2 * MS] * 2
    assert (of_x.slowdown, of_y.slowdown) == pytest.approx((1.5, 3.0), rel=1e-12)


def test_what_a_slow_port_cannot_use_goes_to_the_other_job(step_plan, two_switches):
    # Cable 4 GB/s, ports of x 4, of y 1 GB/s: y runs at 1 either way, x at 3 beside it. x: 12 MB a step, 4 ms
    # (alone 3 ms); y: 4 MB a step, 4 ms always.
    machine = two_switches(4e9, [4e9, 1e9, 4e9, 1e9])
    x, y = step_plan(machine, [[0], [2]], 24_000_000), step_plan(machine, [[1], [3]], 8_000_000)
    of_x, of_y = simulate_mix([x, y], machine, num_iterations=2).jobs
    assert (ps(of_x), alone_ps(of_x)) == ([8 * MS] * 2, [6 * MS] * 2)
    assert (ps(of_y), alone_ps(of_y)) == ([8 * MS] * 2, [8 * MS] * 2)
    assert of_y.slowdown == 1.0


@pytest.mark.parametrize(
    ("start_ms", "x_ms", "y_ms"),
    [
        # y comes when x has left.
        (2, 2, 2),
        # y comes after x's first step: x's second and y's first take 2 ms side by side, y's second is alone again.
        (1, 3, 3),
        # y comes 1.5 ms in: x has 0.5 MB left, 1 ms at half rate. y has sent as much by then and needs 0.5 ms more,
        # then 1 ms.
        (1.5, 2.5, 2.5),
    ],
)
def test_start_times_shift_a_job_against_the_other(step_plan, two_switches, start_ms, x_ms, y_ms):
    machine = two_switches(1e9, [1e9] * 4)
    plans = [step_plan(machine, [[0], [2]], 2_000_000), step_plan(machine, [[1], [3]], 2_000_000)]
    mix = simulate_mix(plans, machine, start_times=["0 ms", f"{start_ms} ms"], num_iterations=1)
    assert [ps(job) for job in mix.jobs] == [[round(x_ms * MS)], [round(y_ms * MS)]]
    assert [alone_ps(job) for job in mix.jobs] == [[2 * MS], [2 * MS]]
    assert mix.jobs[1].start_s == start_ms * 1e-3
    assert mix.makespan_s == pytest.approx((start_ms + y_ms) * 1e-3, rel=1e-12)


def test_a_job_runs_as_alone_once_the_other_has_left(step_plan, two_switches):
    # y does one quarter of x's bytes an iteration: 0.25 MB a step. Side by side y's two steps end at 1 ms; x has sent
    # 0.5 MB by then and has the cable to itself: 0.5 ms for the rest of its first step, 1 ms for its second.
    machine = two_switches(1e9, [1e9] * 4)
    plans = [step_plan(machine, [[0], [2]], 2_000_000), step_plan(machine, [[1], [3]], 500_000)]
    of_x, of_y = simulate_mix(plans, machine, num_iterations=1).jobs
    assert (ps(of_x), ps(of_y)) == ([round(2.5 * MS)], [1 * MS])
    # Two iterations: y holds its half until 2 ms, when x's first step is done; then 1 ms, and its second iteration.
    of_x, of_y = simulate_mix(plans, machine, num_iterations=2).jobs
    assert (ps(of_x), ps(of_y)) == ([3 * MS, 2 * MS], [1 * MS] * 2)


def nonblocking(num_accelerators=32):
    """Leaves of 4 with 4 uplinks."""
    fabric = rostam.fabric("fat_tree", num_accelerators=num_accelerators, radix=8, link_bandwidth="10 Gb/s")
    return rostam.Machine(fabric=fabric)


def jobs_on(gpt, *accelerators, **options):
    strategy = {"dp": 4, "tp": 2, "precision": "bf16_mixed"} | options
    return [
        Job(f"job{k}", gpt, rostam.Strategy.of(**strategy), 16, accelerators=tuple(ids), start_s=k * 1e-3)
        for k, ids in enumerate(accelerators)
    ]


@pytest.mark.parametrize("routing", ["spray", "hash"])
def test_jobs_on_disjoint_leaves_finish_exactly_as_if_alone(gpt, routing):
    # Every cable of a two-level tree ends at a leaf, and a path uses cables of its two ends' leaves only: jobs on
    # different leaves share none, whatever the routing.
    machine = nonblocking()
    jobs = jobs_on(gpt, range(8), range(16, 24))
    mix = simulate_mix(jobs, machine, routing=routing, seed=5)
    for job in mix.jobs:
        assert ps(job) == alone_ps(job)
        assert job.slowdown == 1.0


def test_sprayed_jobs_on_the_same_leaves_of_a_nonblocking_tree_finish_exactly_as_if_alone(gpt):
    # The uplinks of a leaf carry at most what its four ports send, in equal parts: no link but a job's own binds.
    machine = nonblocking()
    evens, odds = range(0, 16, 2), range(1, 16, 2)
    mix = simulate_mix(jobs_on(gpt, evens, odds), machine, routing="spray")
    for job in mix.jobs:
        assert ps(job) == alone_ps(job)
        assert job.slowdown == 1.0


def test_hashed_jobs_on_the_same_leaves_collide(gpt):
    # Rings that cross leaves at every hop: two flows of each job leave a leaf over four uplinks drawn by the hash.
    machine = nonblocking()
    x, y = [0, 4, 8, 12, 1, 5, 9, 13], [2, 6, 10, 14, 3, 7, 11, 15]
    found = [simulate_mix(jobs_on(gpt, x, y, tp=1, dp=8), machine, routing="hash", seed=seed) for seed in range(4)]
    assert max(mix.slowdown_max for mix in found) > 1.1
    assert max(job.slowdown_ideal for mix in found for job in mix.jobs) > 1.5
    assert len({mix.jobs[0].iteration_times_s for mix in found}) > 1


def test_equal_seeds_give_equal_bytes(gpt):
    machine = nonblocking()
    jobs = jobs_on(gpt, range(0, 16, 2), range(1, 16, 2))
    texts = {json.dumps(simulate_mix(jobs, machine, seed=3).to_dict()) for _ in range(2)}
    assert len(texts) == 1
    assert json.loads(texts.pop())["jobs"][1]["start_s"] == 1e-3


@pytest.mark.parametrize("routing", ["spray", "hash"])
def test_a_mix_of_one_job_equals_simulate(gpt, routing):
    machine = nonblocking()
    (job,) = jobs_on(gpt, range(8))
    (plan,) = rostam.place_mix([job], machine)
    alone = rostam.simulate(plan, routing=routing, seed=2, min_iterations=3, max_iterations=3)
    mix = simulate_mix([job], machine, routing=routing, seed=2)
    assert mix.results[0].to_dict() == alone.to_dict()
    assert mix.jobs[0].iteration_times_s == mix.jobs[0].alone_times_s == alone.iteration_times_s
    # Starting later changes nothing.
    late = simulate_mix([plan], machine, routing=routing, seed=2, start_times=["7 ms"])
    assert late.jobs[0].iteration_times_s == alone.iteration_times_s


def test_baselines_run_each_distinct_job_once(gpt, monkeypatch):
    runs = []

    def counted(plans, **options):
        runs.append(options["routing"])
        return rostam.simulate(plans, **options)

    monkeypatch.setattr(mix_module, "simulate", counted)
    machine = nonblocking()
    jobs = jobs_on(gpt, range(0, 16, 2), range(1, 16, 2))
    plans = rostam.place_mix(jobs, machine, software="ideal")
    kept = Baselines()
    first = simulate_mix(jobs, machine, plans=plans, seed=1, baselines=kept)
    # The mix, and each job alone under hash and sprayed.
    assert runs == ["hash", "hash", "spray", "hash", "spray"]
    again = simulate_mix(jobs, machine, plans=plans, seed=1, baselines=kept)
    assert runs[5:] == ["hash"]
    assert again.to_dict() == first.to_dict()
    # Another seed hashes again, but sprays the same; a sprayed mix has the ideal as its alone.
    simulate_mix(jobs, machine, plans=plans, seed=2, baselines=kept)
    assert runs[6:] == ["hash", "hash", "hash"]
    sprayed = simulate_mix(jobs, machine, plans=plans, routing="spray", baselines=kept)
    assert runs[9:] == ["spray"]
    assert sprayed.jobs[0].alone_s == sprayed.jobs[0].ideal_s == first.jobs[0].ideal_s


def test_without_baselines_nothing_is_compared(step_plan, two_switches):
    machine = two_switches(1e9, [1e9] * 4)
    mix = simulate_mix([step_plan(machine, [[0], [2]], 2_000_000)], machine, baselines=False)
    assert mix.jobs[0].alone_s is mix.jobs[0].ideal_s is mix.jobs[0].slowdown is mix.slowdown_mean is None
    assert mix.to_dict()["jobs"][0]["slowdown"] is None


def test_a_slow_down_is_the_ratio_of_means_and_may_be_below_one():
    job = JobOutcome("a", "m", 8, 0.0, (3.0, 1.0), (2.0, 3.0), (1.0, 1.0))
    assert (job.iteration_time_s, job.alone_s, job.slowdown, job.slowdown_ideal) == (2.0, 2.5, 0.8, 2.0)


def test_bad_mixes_name_what_is_wrong(gpt, step_plan, two_switches):
    machine = nonblocking()
    one, other = jobs_on(gpt, range(8), range(8, 16))
    plans = rostam.place_mix([one, other], machine, software="ideal")
    for arguments, error, message in [
        (([], machine, {}), ConfigError, "jobs is empty"),
        (([one, plans[1]], machine, {}), ConfigError, "jobs holds Job, Plan; it must hold Jobs only, or Plans only"),
        (([one], machine, {"num_iterations": 0}), ConfigError, "mix.num_iterations is 0; it must be an integer >= 1"),
        (([one], machine, {"plans": plans}), ConfigError, "plans has 2 entries for 1 jobs"),
        (([one], machine, {"start_times": [0.0]}), ConfigError, "start_times is given, but jobs have"),
        ((plans, machine, {"start_times": [0.0]}), ConfigError, "start_times has 1 entries for 2 plans"),
        ((plans, machine, {"plans": plans}), ConfigError, "plans is given twice"),
        (([one, one], machine, {}), ConfigError, "jobs names 'job0' more than once"),
        ((plans, nonblocking(), {}), ConfigError, "the plan of job 'plan_0' is on .* another fabric"),
        ((plans[:1] * 2, machine, {}), DegreeError, "jobs 'plan_0' and 'plan_1' both use accelerator 0"),
        ((plans, machine, {"routing": "shortest"}), ConfigError, "unknown routing 'shortest'"),
    ]:
        with pytest.raises(error, match=message):
            simulate_mix(arguments[0], arguments[1], **arguments[2])
