"""Jobs with a model: paces of their place and neighbours, put together by hand from mixes of the engine."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fleet import Job, place_mix, simulate_mix
from rostam_py.fleet.queueing.job import QueuedJob, kind_of
from rostam_py.fleet.queueing.network import EngineNetwork, How
from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.places.count import Count
from rostam_py.fleet.queueing.simulate import Setting, simulate_queue

ITERATIONS = 1_000


@pytest.fixture(scope="module")
def machine():
    """Four accelerators on each of two switches, which one thin cable joins."""
    ports = [(f"a{a}", f"s{a // 4}", "100 Gb/s") for a in range(8)]
    return rostam.Machine(fabric=rostam.fabric("custom", links=[*ports, ("s0", "s1", "50 Gb/s")]))


@pytest.fixture(scope="module")
def template(gpt):
    return Job("gpt", gpt, rostam.Strategy(dp=3), 3)


def queued(name, submit_s, iteration_s):
    work_s = ITERATIONS * iteration_s
    return QueuedJob(
        name=name, submit_s=submit_s, accelerators=3, work_s=work_s, stated_s=work_s, model="gpt", iterations=ITERATIONS
    )


def seconds(machine, template, *places):
    """Return the mean iteration of jobs on accelerators beside one another, by the mixes' own means [s]."""
    jobs = [replace(template, name=f"job {k}", accelerators=place) for k, place in enumerate(places)]
    mix = simulate_mix(
        jobs, machine, plans=place_mix(jobs, machine, host_size=1, software="ideal"), routing="spray",
        baselines=False,
    )  # fmt: skip
    return [fmean(one.iteration_times_s) for one in mix.jobs]


def network_of(machine, template):
    kind = kind_of(queued("any", 0.0, 1.0))
    return kind, EngineNetwork(machine, {kind: template}, How(cost={"software": "ideal"}))


def test_a_job_whose_ranks_lie_apart_takes_longer_than_in_the_empty_cluster(machine, template):
    """0 to 3 and 4 to 7 are on a switch each; 2 and 3 are held, so that a gets 4 to 6, and b is left 0, 1 and 7."""
    kind, network = network_of(machine, template)
    places = Count(np.ones(8, bool), 4)
    reference = network.reference(kind, places)
    assert reference == seconds(machine, template, (0, 1, 2))[0]
    given_back, _ = [places.take(2) for _ in range(2)]
    places.give_back(given_back)
    alone, apart = seconds(machine, template, (4, 5, 6))[0], seconds(machine, template, (0, 1, 7))[0]
    assert alone == pytest.approx(reference)
    assert apart > 1.2 * alone
    jobs = [queued("a", 0.0, reference), queued("b", 1.0, reference)]
    found = simulate_queue(jobs, places, FirstCome(), Setting(network=network)).runs
    assert found[0].left_s == pytest.approx(ITERATIONS * alone)
    assert found[1].left_s == pytest.approx(1 + ITERATIONS * apart)
    assert found[1].spent["slower"] == pytest.approx(ITERATIONS * (apart - reference))
    assert network.num_groups == 0  # the cable carries b alone


def test_programs_with_different_hosts_do_not_make_a_group_faster_than_its_jobs_alone(machine, template):
    """software=auto gives a small and a large job different programs: beside one another they would be ideal."""
    other = Job("resnet", rostam.trace("resnet50"), rostam.Strategy(dp=3), 24)
    jobs = [
        QueuedJob(
            name=model, submit_s=0.0, accelerators=3, work_s=1.0, stated_s=1.0, model=model, iterations=ITERATIONS
        )
        for model in ("gpt", "resnet")
    ]
    kinds = [kind_of(one) for one in jobs]
    network = EngineNetwork(machine, dict(zip(kinds, (template, other), strict=True)), How(cost={"software": "auto"}))
    places = Count(np.ones(8, bool), 2)
    for kind in kinds:
        network.reference(kind, places)
    members = ((kinds[0], (0, 1, 4)), (kinds[1], (2, 5, 6)))
    assert all(slow > 0.99 for slow in network._slowdowns(members))


def test_a_shared_cable_slows_both_jobs_while_both_run():
    """Two jobs across one cable: each runs at the mix's pace beside the other, and at its own alone."""
    ports = [(f"a{a}", f"s{a // 2}", "100 Gb/s") for a in range(4)]
    machine = rostam.Machine(fabric=rostam.fabric("custom", links=[*ports, ("s0", "s1", "20 Gb/s")]))
    template = Job("gpt", rostam.trace("gpt_125m", num_layers=2), rostam.Strategy(dp=2), 2)

    class Across(Count):
        """Hands out one accelerator of each switch."""

        def _parts(self, size):
            free = [server for server in range(2) if len(self._free[server])]
            return tuple((server, 1) for server in free) if len(free) == 2 else None

    jobs = [
        QueuedJob(
            name=name, submit_s=submit, accelerators=2, work_s=1.0, stated_s=1.0, model="gpt", iterations=ITERATIONS
        )
        for name, submit in (("a", 0.0), ("b", 30.0))
    ]
    kind = kind_of(jobs[0])
    network = EngineNetwork(machine, {kind: template}, How(cost={"software": "ideal"}))
    places = Across(np.ones(4, bool), 2)
    alone = network.reference(kind, places)
    work_s = ITERATIONS * alone
    beside = seconds(machine, template, (0, 2), (1, 3))
    assert beside[0] > 1.3 * alone
    jobs = [replace(one, work_s=work_s, stated_s=work_s) for one in jobs]
    first, second = simulate_queue(jobs, places, FirstCome(), Setting(network=network)).runs
    assert network.num_groups == 1
    # a runs alone for 30 s, then beside b until it has left; b goes on alone.
    left_of_a = 30 + (work_s - 30) * beside[0] / alone
    done_of_b = (left_of_a - 30) * alone / beside[1]
    assert first.left_s == pytest.approx(left_of_a)
    assert second.left_s == pytest.approx(left_of_a + work_s - done_of_b)
    assert first.spent["useful"] == pytest.approx(work_s)
    assert first.spent["slower"] == pytest.approx((left_of_a - 30) * (1 - alone / beside[0]))
    off = simulate_queue(jobs, Across(np.ones(4, bool), 2), FirstCome()).runs
    assert [one.left_s for one in off] == pytest.approx([work_s, 30 + work_s])
