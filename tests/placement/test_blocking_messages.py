"""Messages of pipelines that stages wait for or send in shares, and reductions behind the last backward."""

import math

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

LINK = 4e9  # bytes a second


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m", num_layers=4)


def plan_of(graph, accelerators, batch, **strategy):
    fabric = rostam.fabric(
        "electrical_flat", num_accelerators=accelerators, link_bandwidth=f"{8 * LINK:.0f} b/s", latency="0 s"
    )
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency="0 s")
    given = rostam.Strategy.of(**{"precision": "fp32", "micro_batch": 1} | strategy)
    return rostam.place(graph, machine, global_batch=batch, strategy=given, cost="roofline", software="ideal")


def seconds(plan, stage, template, *, optimizer=False):
    tasks = plan.stages[stage].templates[template]
    return sum(k.duration_s for t in tasks if t.is_optimizer == optimizer for k in t.kernels)


def sent(plan, stage, template):
    return [t.num_bytes for t in plan.stages[stage].templates[template] if t.kind == "send"]


def one_forward_one_backward(forward, backward, last, message, count, *, blocks):
    """Play two stages by hand, each an in-order list of turns; return when both have ended.

    forward, backward, last: by stage; last is of the last micro-batch's backward.
    """
    orders = [
        [("F", 0), *[one for k in range(1, count) for one in (("F", k), ("B", k - 1))], ("B", count - 1)],
        [one for k in range(count) for one in (("F", k), ("B", k))],
    ]
    clock, link_free, there = [0.0, 0.0], [0.0, 0.0], {(0, ("F", k)): 0.0 for k in range(count)}
    left = [list(order) for order in orders]
    while any(left):
        for stage in (0, 1):
            while left[stage]:
                kind, k = left[stage][0]
                needs = None if (stage, kind) == (0, "F") else (stage, (kind, k))
                if (stage, kind) == (1, "B"):
                    needs = None
                if needs is not None and needs not in there:
                    break
                left[stage].pop(0)
                work = forward if kind == "F" else (last if k == count - 1 else backward)
                end = max(clock[stage], there.get(needs, 0.0)) + work[stage]
                clock[stage] = end
                if (stage, kind) in ((0, "F"), (1, "B")):
                    arrival = max(end, link_free[stage]) + message
                    link_free[stage] = there[1 - stage, (kind, k)] = arrival
                    if blocks:
                        clock[stage] = arrival
    return max(clock)


@pytest.mark.parametrize("blocks", [False, True])
def test_two_stages_take_what_a_hand_drawn_schedule_does(graph, blocks):
    count = 4
    plan = plan_of(graph, 2, count, pp=2, overlap_p2p=not blocks)
    (size,) = sent(plan, 0, "forward")
    times = {name: [seconds(plan, s, name) for s in (0, 1)] for name in ("forward", "backward", "backward_last")}
    by_hand = one_forward_one_backward(
        times["forward"], times["backward"], times["backward_last"], size / LINK, count, blocks=blocks
    )
    # The first stage, which ends last, all-reduces the tied embedding with the other one, then updates its weights. The
    # other one's share of that is under way beside its last message, which takes twice as long.
    (tied,) = [t.num_bytes for t in plan.stages[0].templates["backward_last"] if t.kind == "collective"]
    end = by_hand + (size + tied) / LINK + seconds(plan, 0, "backward_last", optimizer=True)
    assert rostam.simulate(plan).iteration_time_s == pytest.approx(end, rel=1e-6)


def test_waiting_for_sends_never_saves_time(graph):
    times = [
        rostam.simulate(plan_of(graph, 4, 8, pp=4, overlap_p2p=overlap)).iteration_time_s for overlap in (True, False)
    ]
    assert times[1] > times[0]


@pytest.mark.parametrize("tp", [2, 4])
def test_members_send_shares_and_gather_them(graph, tp):
    whole, split = (plan_of(graph, 2 * tp, 4, pp=2, tp=tp, split_p2p=one) for one in (False, True))
    for stage, template, other in ((0, "forward", "forward"), (1, "backward", "backward")):
        sizes = sent(whole, stage, template)
        assert sent(split, stage, template) == [math.ceil(size / tp) for size in sizes]
        gathered = [t for t in split.stages[1 - stage].templates[other] if t.name.endswith("(received)")]
        assert [(t.group, t.collective, t.num_bytes) for t in gathered] == [("tp", "all_gather", s) for s in sizes]
        assert not [t for t in whole.stages[1 - stage].templates[other] if t.name.endswith("(received)")]
    results = [rostam.simulate(plan) for plan in (whole, split)]
    moved = [one.num_bytes for result in results for one in result.messages_by_axis if one.axis == "pp"]
    assert moved[1] * tp == pytest.approx(moved[0], rel=1e-6)


def test_what_sequences_have_split_is_sent_as_it_is(graph):
    plans = [plan_of(graph, 4, 4, pp=2, tp=2, sequence_parallel=True, split_p2p=one) for one in (False, True)]
    assert sent(plans[0], 0, "forward") == sent(plans[1], 0, "forward")
    assert rostam.simulate(plans[0]).iteration_time_s == rostam.simulate(plans[1]).iteration_time_s


@pytest.mark.parametrize("strategy", [{}, {"shard": 1}, {"pp": 2, "virtual_stages": 2}, {"pp": 2, "tp": 2}])
def test_gradients_are_reduced_behind_the_last_backward(graph, strategy):
    pp, tp = strategy.get("pp", 1), strategy.get("tp", 1)
    early, late = (
        plan_of(graph, 2 * pp * tp, 8, dp=2, bucket_size="1 MB", overlap_grad_reduce=one, **strategy)
        for one in (True, False)
    )
    for stage in range(pp):
        reduced, templates = 0, late.stages[stage].templates
        for tasks in templates.values():
            reductions = [t for t in tasks if t.kind == "collective" and t.group == "dp"]
            if not reductions:
                continue
            kernels = [i for i, t in enumerate(tasks) if t.kind == "compute" and t.kernels and not t.is_optimizer]
            assert all(max(t.deps) >= kernels[-1] for t in reductions if t.collective != "all_gather")
            reduced += sum(t.num_bytes for t in reductions if t.collective != "all_gather")
        before = sum(
            t.num_bytes
            for tasks in early.stages[stage].templates.values()
            for t in tasks
            if t.kind == "collective" and t.group == "dp" and t.collective != "all_gather"
        )
        assert reduced == before > 0
    slow, fast = (rostam.simulate(plan).iteration_time_s for plan in (late, early))
    assert slow > fast


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_rings_that_messages_disturb_end_as_without_shortcuts(graph, schedule):
    # Shares cross the links on which rings of tp run undisturbed: some go on step by step, over routes found meanwhile.
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=8, radix=16, levels=2, server_size=4, accelerator_bandwidth="100 Gb/s"
    )
    strategy = rostam.Strategy.of(
        tp=2, pp=4, precision="bf16_mixed", micro_batch=1, schedule=schedule, overlap_p2p=False, split_p2p=True
    )
    plan = rostam.place(
        graph,
        rostam.Machine(fabric=fabric, accelerator="h100_80gb"),
        global_batch=16,
        strategy=strategy,
        software="ideal",
    )
    short, whole = rostam.simulate(plan), rostam.simulate(plan, fold=False, shortcuts=False)
    assert short.iteration_time_s == whole.iteration_time_s
    assert short.breakdown == pytest.approx(whole.breakdown, abs=1e-11)


@pytest.mark.parametrize("shard", [2, 3])
def test_shared_gradients_are_not_held_back(shard):
    with pytest.raises(ConfigError, match=r"overlap_grad_reduce is False, which needs strategy\.shard = 0 or 1; it is"):
        rostam.Strategy.of(shard=shard, overlap_grad_reduce=False)
