"""Jobs that go on with fewer replicas: against iterations of plans that are placed by hand on what is left."""

import gzip
import json
import random

import pytest
import torch

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.report.run.headline import run_headline


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(scope="module")
def graph():
    return rostam.trace(Layers(), (torch.zeros(1, 512),), loss_fn=lambda out: out.sum(), name="layers")


FABRIC = rostam.fabric("electrical_flat", num_accelerators=8)
MACHINE = rostam.Machine(fabric=FABRIC, accelerator="a100_80gb")
LIGHT = {
    name: rostam.Machine(fabric=rostam.fabric(name, num_accelerators=8), accelerator="a100_80gb")
    for name in ("sip_ocs", "sip_ring")
}


def placed(graph, dp, tp=2, global_batch=96, machine=MACHINE, **more):
    strategy = rostam.Strategy.of(dp=dp, tp=tp, micro_batch=8, **more)
    return rostam.place(graph, machine, global_batch=global_batch, strategy=strategy, software="ideal")


def iteration_s(plan, count=4):
    times = rostam.simulate(plan, min_iterations=count, max_iterations=count).iteration_times_s
    assert max(times[1:]) == pytest.approx(min(times[1:]), rel=1e-4)
    return times


@pytest.mark.parametrize("machine", [MACHINE, *LIGHT.values()])
@pytest.mark.parametrize(("shrink", "batch"), [("keep", 96), ("shrink", 72)])
def test_a_job_goes_on_with_the_whole_replicas_and_the_same_or_a_smaller_batch(graph, shrink, batch, machine):
    # dp x tp = 4 x 2. Accelerator 5 is of the third replica: 4 and 5 idle. Cut in the third iteration; two have ended.
    plan = placed(graph, 4, machine=machine)
    times = iteration_s(plan)
    cut_s = times[0] + 1.5 * times[1]
    lost = rostam.outages(
        plan, graph=graph, shrink=shrink, events=[rostam.Failure(cut_s, "accelerators", 5)],
        detection="1 ms", restart="4 ms", iterations=6,
    )  # fmt: skip
    fewer = placed(graph, 3, global_batch=batch, mapping=[0, 1, 2, 3, 6, 7],
                   machine=machine.with_failures(accelerators=[5]))  # fmt: skip
    rest = iteration_s(fewer)
    assert lost.lost.total_s("replicas") == lost.slower_s
    assert fewer.num_microbatches == batch // 3 // 8
    assert lost.down_s == pytest.approx(5e-3)
    assert lost.redone_s == pytest.approx(0.5 * times[1])
    assert lost.slower_s == pytest.approx(sum(rest) - 4 * times[1])
    assert lost.total_s == pytest.approx(cut_s + 5e-3 + sum(rest))
    (one,) = lost.shrunk
    assert (one.dp, one.global_batch, one.from_iteration) == (3, batch, 2)
    assert lost.restarts[0].accelerators == (0, 1, 2, 3, 6, 7)
    assert lost.to_dict()["shrunk"][0]["start_s"] == pytest.approx(cut_s + 5e-3)


@pytest.mark.parametrize("time_s", [0.05, 1 / 3, 0.1 + 0.2])
def test_a_job_that_is_down_for_no_time_has_lost_what_failed_at_that_time(graph, time_s):
    # Times that no double has, at which the job is cut and goes on at once.
    plan = placed(graph, 4)
    count = 3 + int(time_s / iteration_s(plan)[1])
    lost = rostam.outages(
        plan, graph=graph, shrink="shrink", events=[rostam.Failure(time_s, "accelerators", 3)], iterations=count
    )
    assert ([one.dp for one in lost.shrunk], lost.down_s) == ([3], 0)


def test_a_replica_that_fails_during_a_restart_begins_it_anew(graph):
    # Cut at 1.5 iterations, known half an iteration later; the second replica fails at 3 and would go on from 4.
    plan = placed(graph, 4)
    second = iteration_s(plan)[1]
    events = [
        rostam.Failure(1.5 * second, "accelerators", 0),
        rostam.Failure(2.0 * second, "accelerators", 1),  # of the replica that is given up: nothing changes
        rostam.Failure(3.0 * second, "accelerators", 2),
    ]
    lost = rostam.outages(
        plan, graph=graph, shrink="keep", events=events, iterations=6, detection=0.5 * second, restart=2 * second
    )
    (one,) = lost.shrunk
    assert one.dp == 2
    assert one.start_s == pytest.approx((3 + 0.5 + 2) * second)
    assert lost.to_dict()["lost_s"]["restarting"] == pytest.approx(2 * second)
    assert lost.to_dict()["lost_s"]["detection"] == pytest.approx(2 * second)


def test_it_shrinks_again_and_what_is_repaired_does_not_come_back(graph):
    plan = placed(graph, 4)
    second = iteration_s(plan)[1]
    events = [
        rostam.Failure(1.5 * second, "accelerators", 0, repair=2 * second),
        rostam.Failure(6.5 * second, "accelerators", 7),
        rostam.Failure(6.6 * second, "accelerators", 6),
    ]
    lost = rostam.outages(plan, graph=graph, shrink="keep", events=events, restart=second, iterations=8)
    assert [one.dp for one in lost.shrunk] == [3, 2]
    assert [one.accelerators for one in lost.restarts] == [(2, 3, 4, 5, 6, 7), (2, 3, 4, 5)]
    assert lost.down_s == pytest.approx(2 * second)
    assert lost.without_s + lost.down_s + lost.redone_s + lost.slower_s == pytest.approx(lost.total_s)


def test_random_failures_leave_no_failed_accelerator_at_work(graph):
    draw, plan = random.Random(1), placed(graph, 8, tp=1, global_batch=840 * 8)
    span = sum(iteration_s(plan))
    ended = 0
    for _ in range(12):
        events = [
            rostam.Failure(draw.uniform(0, span), "accelerators", draw.randrange(8)) for _ in range(draw.randint(1, 4))
        ]
        lost = rostam.outages(plan, graph=graph, shrink="keep", events=events, restart=0.05 * span, iterations=4)
        for one, left in zip(lost.restarts, lost.shrunk, strict=True):
            failed = {event.number for event in events if event.time <= one.start_s}
            assert not failed & set(one.accelerators)
            assert left.dp == 8 - len(failed) == len(one.accelerators)
        ended += len(lost.restarts) > 0
    assert ended > 6


FIFTH = rostam.Failure(1e-6, "accelerators", 5)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"shrink": "grow"}, ConfigError, "outages.shrink is 'grow'; it must be one of: keep, shrink, or null"),
        ({"graph": None}, ConfigError, "it needs a plan, and the placed graph as graph="),
        ({"spares": [7]}, ConfigError, "outages.shrink is 'keep'; give one or the other"),
        ({"events": [rostam.Failure(1e-6, "accelerators", k) for k in (0, 2, 4, 6)]}, ConfigError, "none is whole"),
        ({"events": [FIFTH, rostam.Failure(1e-6, "accelerators", 0)], "global_batch": 32}, None, ""),
        ({"global_batch": 32}, DegreeError, "the job cannot go on with 3 of 4 replicas.*must be divisible"),
    ],
)
def test_what_cannot_go_on_says_why(graph, given, error, said):
    plan = placed(graph, 4, global_batch=given.pop("global_batch", 96)) if "global_batch" in given else placed(graph, 4)
    keys = {"graph": graph, "shrink": "keep", "events": [FIFTH], "iterations": 3} | given
    if error is None:
        assert rostam.outages(plan, **keys).shrunk[0].dp == 2
        return
    with pytest.raises(error, match=said):
        rostam.outages(plan, **keys)


def test_a_plan_of_other_cost_settings_is_refused(graph):
    strategy = rostam.Strategy(dp=4, tp=2, micro_batch=8)
    plan = rostam.place(
        graph,
        MACHINE,
        global_batch=96,
        strategy=strategy,
        cost="roofline",
        cost_config={"min_kernel_time": "1 ms"},
        software="ideal",
    )
    lost = rostam.Failure("1 ms", "accelerators", 5)
    with pytest.raises(ConfigError, match="the plan's kernels take other times"):
        rostam.outages(plan, graph=graph, shrink="keep", events=[lost])


def test_a_plan_shrinks_with_the_cost_settings_that_it_was_placed_with(graph):
    # Kernels of 1 ms at least, all of them: a replica's share of the batch changes how many there are, not their times.
    settings = {"cost": "roofline", "cost_config": {"min_kernel_time": "1 ms"}}
    strategy = rostam.Strategy(dp=4, tp=2, micro_batch=8)
    plan = rostam.place(graph, MACHINE, global_batch=96, strategy=strategy, **settings, software="ideal")
    times = iteration_s(plan)
    cut_s = times[0] + 0.5 * times[1]
    lost = rostam.outages(
        plan, graph=graph, cost_config=settings["cost_config"], shrink="keep", iterations=4,
        events=[rostam.Failure(cut_s, "accelerators", 5)],
    )  # fmt: skip
    left = rostam.Strategy(dp=3, tp=2, micro_batch=8, mapping=[0, 1, 2, 3, 6, 7])
    fewer = rostam.place(graph, MACHINE, global_batch=96, strategy=left, **settings, software="ideal")
    assert lost.total_s == pytest.approx(cut_s + sum(iteration_s(fewer, 3)))


def test_the_command_line_shrinks_as_the_api_does(tmp_path):
    out = tmp_path / "run"
    given = {"detection": "1 ms", "restart": "4 ms", "iterations": 4}
    event = {"time": "20 ms", "kind": "accelerators", "number": 3}
    words = ["model=gpt_125m", "num_accelerators=4", "global_batch=96", "strategy.micro_batch=8"]
    words += ["save_plan=true", f"out={out}"]
    words += [f"outages.{key}={value}" for key, value in given.items()]
    words += ["outages.shrink=keep", "outages.events=[{time: 20 ms, kind: accelerators, number: 3}]"]
    assert main(["run", *words]) == 0
    said = json.loads((out / "result.json").read_text())["outages"]
    model = rostam.trace("gpt_125m")
    plan = rostam.Plan.load(str(out / "plan.json.gz"))
    assert said == rostam.outages(plan, graph=model, shrink="keep", events=[event], **given).to_dict()
    assert [one["dp"] for one in said["shrunk"]] == [3]
    assert said["without_s"] + said["down_s"] + said["redone_s"] + said["slower_s"] == pytest.approx(said["total_s"])
    detail = json.loads(gzip.decompress((out / "detail.json.gz").read_bytes()))
    assert "The job ends on 3 replicas, with a global batch of 96." in run_headline(detail)
