"""Replayed weeks against the same job simulated event by event (rostam.outages), and paces of the engine."""

import random

import pytest

import rostam_py as rostam
from rostam_py.fleet.goodput import FaultTrace, LongJob, ServerFault, replay
from rostam_py.fleet.goodput.paces import EnginePaces, PacesOfUnits

ITERATIONS = 40
SPARES = (8, 9)


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m", num_layers=2)


@pytest.fixture(scope="module")
def machine():
    fabric = rostam.fabric("electrical_flat", num_accelerators=10, accelerator_bandwidth="400 Gb/s", latency="1 us")
    return rostam.Machine(fabric=fabric, accelerator="a100_80gb")


@pytest.fixture(scope="module")
def plan(graph, machine):
    strategy = rostam.Strategy(dp=8, micro_batch=1, accelerators=list(range(8)))
    return rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")


def event_by_event(plan, faults, job, spares):
    events = [
        {"time": one.start_s, "kind": "accelerators", "number": one.server, "repair": one.end_s} for one in faults
    ]
    return rostam.outages(
        plan, events=events, spares=list(spares), detection=job.detection, restart=job.restart,
        checkpoint_iterations=job.checkpoint_iterations, iterations=ITERATIONS,
    ).total_s  # fmt: skip


def iterations_replayed(plan, seed):
    """Return the iterations that a replay counts in the time in which the engine is done with ITERATIONS."""
    rng = random.Random(seed)
    iteration_s = rostam.simulate(plan).iteration_time_s
    # The engine's messages take a repaired part once its repair is detected: no restart outruns that here.
    job = LongJob(
        num_servers=8, iteration=iteration_s, checkpoint_iterations=rng.randint(1, 6),
        detection=rng.uniform(0, 2) * iteration_s, restart=rng.uniform(2, 7) * iteration_s,
    )  # fmt: skip
    policy = rng.choice(["wait", "spares"])
    spares = SPARES if policy == "spares" else ()
    whole_s = ITERATIONS * iteration_s
    faults, at = [], 0.0
    while at < whole_s and len(faults) < 6:
        at += rng.uniform(0.05, 0.4) * whole_s
        faults.append(ServerFault(at, at + rng.uniform(1, 12) * iteration_s, rng.randrange(8 + len(spares))))
    # Faults of one accelerator that overlap are one failure to the engine.
    faults = [
        one for k, one in enumerate(faults) if all(b.server != one.server or b.end_s < one.start_s for b in faults[:k])
    ]
    total_s = event_by_event(plan, faults, job, spares)
    faults = [one for one in faults if one.start_s < total_s]
    found = replay(job, FaultTrace(tuple(faults), 8 + len(spares), total_s), policy, spares=len(spares))
    return found.samples


@pytest.mark.parametrize("seed", range(4))
def test_a_short_run_takes_what_the_engine_says(plan, seed):
    assert iterations_replayed(plan, seed) == pytest.approx(ITERATIONS, rel=0.01)


@pytest.mark.slow
def test_a_hundred_short_runs_take_what_the_engine_says(plan):
    for seed in range(4, 100):
        assert iterations_replayed(plan, seed) == pytest.approx(ITERATIONS, rel=0.01), seed


def test_paces_are_those_of_plans_on_fewer_replicas(graph, machine, plan):
    paces = EnginePaces(graph, plan, batch="shrink")
    strategy = rostam.Strategy(dp=5, micro_batch=1, accelerators=list(range(5)))
    fewer = rostam.place(graph, machine, global_batch=5, strategy=strategy, software="ideal")
    assert paces[5].iteration_s == pytest.approx(rostam.simulate(fewer).iteration_time_s)
    assert paces[5].share == 5 / 8
    assert list(paces) == list(range(1, 8))
    assert 8 not in paces
    keep = EnginePaces(graph, plan, batch="keep")
    assert keep[4].share == 1
    assert keep[4].iteration_s > paces[4].iteration_s
    of_units = PacesOfUnits(paces, 2)
    assert of_units[2] == paces[4]
    assert list(of_units) == [1, 2, 3]
