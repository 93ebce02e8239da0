"""Pipelines and replicas written out by hand: bubbles, exposed communication, jobs side by side."""

from dataclasses import replace

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan import KernelTime

F, B = 1e-3, 2e-3  # forward and backward of a stage [s]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("pp", "m"), [(1, 1), (2, 1), (2, 4), (4, 4), (4, 2), (4, 12), (8, 32), (7, 9)])
def test_with_free_communication_the_bubble_is_pp_minus_1_over_m_of_the_work(schedule, pp, m, hand_plan, free_fabric):
    result = rostam.simulate(hand_plan(free_fabric(max(2, pp)), pp=pp, num_microbatches=m, schedule=schedule))
    work = m * (F + B)
    assert result.iteration_time_s == pytest.approx(work * (1 + (pp - 1) / m), rel=1e-12)
    assert result.first_iteration_s == result.iteration_time_s
    assert result.breakdown["bubble"] == pytest.approx(work * (pp - 1) / m, rel=1e-12)
    assert result.breakdown["compute"] == pytest.approx(work, rel=1e-12)
    assert [result.breakdown[k] for k in ("launch", "tp", "dp", "pp", "tied")] == [0] * 5


def test_what_a_stage_spends_on_a_micro_batch_leaves_the_bubble_and_the_optimizer_out(hand_plan, free_fabric):
    plan = hand_plan(free_fabric(2), pp=2, num_microbatches=4, act_bytes=500_000, grad_bytes=1000)
    slow_step = KernelTime(name="step", module="", op_type="", duration_s=5e-3)
    stages = tuple(
        replace(s, templates={name: tuple(replace(t, kernels=(slow_step,)) if t.is_optimizer else t for t in tasks)
                              for name, tasks in s.templates.items()})
        for s in plan.stages
    )  # fmt: skip
    result = rostam.simulate(replace(plan, stages=stages))
    assert result.breakdown["compute"] == pytest.approx(4 * (F + B) + 5e-3)
    assert result.stage_microbatch_s == pytest.approx({"compute": F + B, "launch": 0, "tp": 0})
    assert rostam.simulate(hand_plan(free_fabric(2))).stage_microbatch_s is None


def test_two_stages_with_messages_take_the_hand_drawn_time(hand_plan, free_fabric):
    # f 1, b 2, a message c = 0.5 ms (500,000 bytes at 1 GB/s), two micro-batches, GPipe:
    #   stage 0:  f0 0-1  f1 1-2                                                 b0 6-8  b1 8-10
    #   wires:            x0 1-1.5  x1 2-2.5                      dx0 5.5-6  dx1 7.5-8
    #   stage 1:                f0 1.5-2.5  f1 2.5-3.5  b0 3.5-5.5  b1 5.5-7.5
    plan = hand_plan(free_fabric(2), pp=2, num_microbatches=2, schedule="gpipe", act_bytes=500_000)
    result = rostam.simulate(plan)
    assert result.iteration_time_s == pytest.approx(10e-3, rel=1e-12)
    # Stage 0 idles 2-6: nothing for it was sent before 5.5, the message took 0.5.
    first = dict(zip(result.breakdown, result.breakdown_by_device[0], strict=True))
    assert first["bubble"] == pytest.approx(3.5e-3, rel=1e-9)
    assert first["pp"] == pytest.approx(0.5e-3, rel=1e-9)
    assert first["compute"] == pytest.approx(6e-3, rel=1e-9)


@pytest.mark.parametrize("num_microbatches", [1, 2, 4])
@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"tp": 2, "sequence_parallel": True}, "tp"),
        ({"tp": 2, "sequence_parallel": True, "schedule": "gpipe"}, "tp"),
        ({"tp": 2, "sequence_parallel": True, "virtual_stages": 2}, "tp"),
        ({"cp": 2, "cp_algorithm": "ulysses"}, "cp"),
    ],
)
def test_a_stage_is_no_longer_exposed_to_collectives_than_it_is_in_them(gpt, keys, kind, num_microbatches):
    # Stage 1 waits for a stage of 1 ms before a gather of 10 us: that is its bubble.
    fabric = rostam.fabric("electrical_flat", num_accelerators=4, accelerator_bandwidth="4 Tb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0)
    batch = num_microbatches + num_microbatches % keys.get("virtual_stages", 1)
    plan = rostam.place(gpt, machine, global_batch=batch, strategy=rostam.Strategy.of(pp=2, **keys), software="ideal")
    whole, folded = (rostam.simulate(plan, fold=fold, shortcuts=fold) for fold in (False, True))
    assert whole.breakdown == pytest.approx(folded.breakdown, rel=1e-9)
    inside = whole.collective_times[kind][-1]
    assert 0 < whole.breakdown[kind] <= inside.count * inside.mean_s / 4
    # What the other stage computes before the first micro-batch comes and after the last one went, is waited for.
    share = whole.breakdown["compute"] / batch / keys.get("virtual_stages", 1)
    assert whole.breakdown["bubble"] > 0.4 * share


def test_gradients_are_all_reduced_once_an_iteration_and_exposed(hand_plan, free_fabric):
    # dp 4, one micro-batch: 3 ms of work, then a ring of 4 x 1 MB: 6 steps of 0.25 ms at 1 GB/s.
    result = rostam.simulate(hand_plan(free_fabric(4), dp=4, grad_bytes=1_000_000))
    assert result.iteration_time_s == pytest.approx(4.5e-3, rel=1e-12)
    assert result.breakdown["dp"] == pytest.approx(1.5e-3, rel=1e-12)
    assert result.bytes_sent == result.bytes_received == {"tp": 0, "dp": 4 * 6 * 250_000, "pp": 0, "tied": 0, "mp": 0}
    assert result.num_messages["dp"] == 24
    assert result.critical_path_by_kind() == pytest.approx({"compute": 3e-3, "dp": 1.5e-3})


def test_times_in_collectives_are_the_same_folded_and_not(hand_plan, free_fabric):
    # A ring of 4 x 1 MB at 1 GB/s: 6 steps of 0.25 ms, in which a rank sends 1.5 MB; two stages of 4 replicas.
    plan = hand_plan(free_fabric(8), dp=4, pp=2, grad_bytes=1_000_000)
    folded, whole = (rostam.simulate(plan, fold=fold).collective_times for fold in (True, False))
    assert folded == whole
    assert list(folded) == ["dp"]
    for one in folded["dp"]:
        assert (one.count, one.mean_s, one.longest_s) == pytest.approx((8, 1.5e-3, 1.5e-3), rel=1e-12)
        assert one.rate_bytes_per_s == pytest.approx(1e9, rel=1e-12)


def test_a_slow_device_slows_its_job_by_its_own_extra_work(hand_plan, free_fabric):
    # One of four replicas at half speed: 6 ms of work, then the all-reduce.
    plan = hand_plan(free_fabric(4), dp=4, grad_bytes=1_000_000)
    slow = plan.on(plan.machine.with_slow_accelerators({2: 0.5}))
    for fold in (True, False):
        result = rostam.simulate(slow, fold=fold)
        assert result.iteration_time_s == pytest.approx(7.5e-3, rel=1e-12)
        compute = result.breakdown_by_device[:, list(result.breakdown).index("compute")]
        assert compute == pytest.approx([3e-3, 3e-3, 6e-3, 3e-3])


def test_a_link_that_slows_down_stretches_the_all_reduce(hand_plan, free_fabric):
    plan = hand_plan(free_fabric(2), dp=2, grad_bytes=1_000_000)
    event = rostam.LinkBandwidth(time=0, link=0, scale=0.5)
    # Two steps of 0.5 MB: 0.5 ms each, 1 ms each over the slow link.
    assert rostam.simulate(plan).iteration_time_s == pytest.approx(4e-3, rel=1e-12)
    assert rostam.simulate(plan, events=[event]).iteration_time_s == pytest.approx(5e-3, rel=1e-12)


def trunk():
    """a0, a1 - s0 == 1 GB/s == s1 - a2, a3; ports of 10 GB/s."""
    rows = [("a0", "s0", 1e10), ("a1", "s0", 1e10), ("a2", "s1", 1e10), ("a3", "s1", 1e10), ("s0", "s1", 1e9)]
    return rostam.fabric("custom", links=[(*row, 0.0) for row in rows])


def test_two_jobs_over_one_trunk_halve_each_others_bandwidth(hand_plan):
    # Each job has a replica on either side; 2 steps of 0.5 MB: 1 ms alone, 2 ms together.
    fabric = trunk()
    jobs = [hand_plan(fabric, dp=2, grad_bytes=1_000_000, accelerators=ids) for ids in ([0, 2], [1, 3])]
    jobs = [job.on(jobs[0].machine) for job in jobs]
    alone = [rostam.simulate(job).iteration_time_s for job in jobs]
    assert alone == pytest.approx([4e-3, 4e-3], rel=1e-12)
    together = rostam.simulate(jobs)
    assert [r.iteration_time_s for r in together] == pytest.approx([5e-3, 5e-3], rel=1e-12)


def test_a_job_that_starts_late_meets_the_other_only_then(hand_plan):
    # Started 1 ms later, the second job computes while the first communicates: 3-4 ms and 4-5 ms, no overlap.
    fabric = trunk()
    jobs = [hand_plan(fabric, dp=2, grad_bytes=1_000_000, accelerators=ids) for ids in ([0, 2], [1, 3])]
    results = rostam.simulate(jobs, start_times=["0 s", "1 ms"])
    for result in results:
        assert result.iteration_times_s == pytest.approx([4e-3] * 3, rel=1e-9)


def test_jobs_on_disjoint_leaves_of_a_non_blocking_tree_run_as_if_alone(hand_plan):
    # Four leaves of four accelerators, four uplinks each; a job a pair of leaves.
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8, link_bandwidth="10 GB/s")
    jobs = [
        hand_plan(
            fabric, pp=2, dp=4, num_microbatches=3, act_bytes=200_000 * (k + 1), grad_bytes=3_000_000,
            accelerators=range(8 * k, 8 * k + 8),
        )
        for k in range(2)
    ]  # fmt: skip
    for job, result in zip(jobs, rostam.simulate(jobs, max_iterations=2), strict=True):
        alone = rostam.simulate(job, max_iterations=2)
        assert result.iteration_times_s == alone.iteration_times_s
        assert result.breakdown == alone.breakdown


def test_jobs_that_cannot_share_say_why(hand_plan, free_fabric):
    fabric = free_fabric(4)
    one, other = hand_plan(fabric, dp=2), hand_plan(fabric, dp=2, accelerators=[1, 2])
    with pytest.raises(DegreeError, match="plans 0 and 1 both use accelerator 1"):
        rostam.simulate([one, other])
    with pytest.raises(ConfigError, match="share one fabric"):
        rostam.simulate([one, hand_plan(free_fabric(4), dp=2, accelerators=[2, 3])])
    with pytest.raises(ConfigError, match="no plan"):
        rostam.simulate([])
    with pytest.raises(ConfigError, match="start_times has 1 entries for 2 plans"):
        rostam.simulate([one, hand_plan(fabric, dp=2, accelerators=[2, 3])], start_times=[0.0])
    with pytest.raises(ConfigError, match="max_iterations is 0"):
        rostam.simulate(one, max_iterations=0)
    with pytest.raises(ConfigError, match="accelerator 3, which the job does not use"):
        rostam.simulate(one, timeline=[3])
    with pytest.raises(ConfigError, match="fidelity"):
        rostam.simulate(one, fidelity="fluid")
