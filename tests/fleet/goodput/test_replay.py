"""Replayed weeks: against a job stepped second by second, and against Daly's closed form."""

import math
import random

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import POLICIES, FaultTrace, LongJob, Pace, ServerFault, replay
from rostam_py.fleet.goodput.result import CAUSES
from tests.fleet.goodput.seconds import Seconds

CASES = 60


def drawn_case(seed):
    """Return a job, a trace and spares, all times whole seconds, so short that everything coincides often."""
    rng = random.Random(seed)
    replicas = rng.choice([1, 2, 3, 4])
    size = rng.choice([1, 2, 3])
    parts = {left: rng.choice([0.25, 0.5, left / size]) for left in range(rng.randint(1, size), size)}
    iteration = rng.randint(2, 9)
    paces = {
        count: Pace(float(-(-iteration * replicas // count)), 1.0)
        if rng.random() < 0.5
        else Pace(float(iteration), count / replicas)
        for count in range(1, replicas)
    }
    servers = rng.sample(range(replicas * size), replicas * size)
    units = tuple(tuple(servers[k : k + size]) for k in range(0, len(servers), size))
    job = LongJob(
        num_servers=replicas * size, replicas=replicas, iteration=float(iteration), paces=paces, units=units,
        checkpoint_iterations=(every := rng.randint(1, 6)), write_iterations=rng.choice([0, rng.randint(0, every)]),
        write_stretch=rng.choice([1.0, 2.0, 3.0]), checkpoint=float(rng.choice([0, 1, 3, 5])),
        detection=float(rng.choice([0, 1, 4])), restart=float(rng.choice([0, 2, 11])),
        rejoin=float(rng.choice([0, 1, 6])), reshard=float(rng.choice([0, 3, 8])), parts=parts,
    )  # fmt: skip
    spares = rng.randint(0, 3)
    window = rng.randint(200, 900)
    faults = []
    for _ in range(rng.randint(0, 25)):
        start = rng.randint(0, window - 1)
        end = start + rng.randint(1, 60)
        faults.append(
            ServerFault(float(start), float(end), rng.randrange(job.num_servers + spares), rng.random() < 0.8)
        )
    return job, FaultTrace(tuple(faults), job.num_servers + spares, float(window)), spares


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("seed", range(CASES))
def test_weeks_are_what_a_job_stepped_second_by_second_takes(policy, seed):
    job, trace, spares = drawn_case(seed)
    found, stepped = replay(job, trace, policy), Seconds(job, trace, policy, spares).run()
    for cause in CAUSES:
        assert found.seconds[cause] == pytest.approx(stepped.causes[cause], abs=1e-6), cause
    assert found.samples == pytest.approx(stepped.samples)
    assert found.num_cuts == stepped.num_cuts


@pytest.mark.parametrize(
    ("mtbf", "interval", "checkpoint", "restart"), [(3600, 600, 30, 120), (1800, 300, 20, 400), (7200, 2400, 60, 60)]
)
def test_memoryless_faults_cost_what_daly_says(mtbf, interval, checkpoint, restart):
    """J. T. Daly, "A higher order estimate of the optimum checkpoint interval", FGCS 22 (2006), equation 13."""
    trace = FaultTrace.drawn(num_servers=1, window=mtbf * 10_000.0, mtbf=mtbf, repair=1e-3, seed=3)
    job = LongJob(num_servers=1, iteration=1.0, checkpoint_iterations=interval, checkpoint=checkpoint, restart=restart)
    daly = mtbf * math.exp(restart / mtbf) * math.expm1((interval + checkpoint) / mtbf) / interval
    assert len(trace.faults) > 10_000
    assert 1 / replay(job, trace, "wait").goodput == pytest.approx(daly, rel=0.01)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_servers": 0}, "fleet.num_servers is 0; it must be an integer >= 1"),
        ({"num_servers": 4, "replicas": 3}, "fleet.replicas is 3; it must divide fleet.num_servers = 4"),
        ({"iteration": 0.0}, "fleet.iteration is 0.0; it must be a time > 0"),
        ({"restart": -1.0}, "fleet.restart"),
        ({"parts": {2: 0.5}}, r"fleet\.parts\[2\] is 0.5; it must be of 1 to 1 servers, and a share in \(0, 1\]"),
        ({"write_iterations": 101}, "fleet.write_iterations is 101; it must be an integer from 0 to .* = 100"),
        ({"write_stretch": 0.9}, "fleet.write_stretch is 0.9; it must be a number >= 1"),
        ({"parts": {1: 0.0}}, r"fleet\.parts\[1\] is 0.0"),
    ],
)
def test_jobs_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        LongJob(**{"num_servers": 2, "iteration": 1.0, **given})


def test_a_cluster_that_is_too_small_and_a_pace_that_nobody_knows_are_refused():
    trace = FaultTrace((ServerFault(5.0, 9.0, 0),), 2, 100.0)
    with pytest.raises(ConfigError, match=r"fleet\.num_servers is 4; the faults are of 2 servers"):
        replay(LongJob(num_servers=4, iteration=1.0), trace)
    with pytest.raises(ConfigError, match=r"fleet\.spares is 1; it must be an integer from 0 to 0"):
        replay(LongJob(num_servers=2, iteration=1.0), trace, spares=1)
    with pytest.raises(ConfigError, match=r"fleet\.paces has no 1 replicas; known are: none"):
        replay(LongJob(num_servers=2, replicas=2, iteration=1.0), trace, "shrink")


def test_without_faults_all_is_useful_but_checkpoints():
    job = LongJob(num_servers=2, iteration=2.0, checkpoint_iterations=4, checkpoint=2.0)
    found = replay(job, FaultTrace((), 2, 1000.0))
    assert found.seconds == {**dict.fromkeys(CAUSES, 0.0), "useful": 800.0, "checkpoint": 200.0}
    assert found.samples == 400


def test_days_add_up_to_the_seconds_of_each_cause():
    trace = FaultTrace.drawn(num_servers=12, window="40 d", mtbf="9 d", repair="20 h", seed=5)
    job = LongJob(num_servers=10, iteration=7.0, checkpoint=20, restart="12 min", detection="2 min")
    found = replay(job, trace)
    assert len(found.days["useful"]) == 40
    for cause in CAUSES:
        assert sum(found.days[cause]) == pytest.approx(found.seconds[cause])
    for day in range(40):
        assert sum(found.days[cause][day] for cause in CAUSES) == pytest.approx(86_400)


@pytest.mark.parametrize("seed", range(20))
def test_a_number_of_iterations_is_reached_on_the_day_that_steps_reach_it(seed):
    """Days of 86,400 s are far longer than a drawn case: a job of long iterations, stepped by its days' seconds."""
    trace = FaultTrace.drawn(num_servers=3, window="9.3 d", mtbf="4 d", repair="1 d", seed=seed)
    job = LongJob(num_servers=2, iteration=700.0, checkpoint_iterations=9, checkpoint=50.0, restart=400.0)
    found = replay(job, trace, "spares")
    wanted = 0.6 * found.samples
    reached_s, done = found.reached_s(wanted), 0.0
    day = int(reached_s // 86_400)
    done = sum(found.days["useful"][:day]) / 700.0
    assert done <= wanted <= done + found.days["useful"][day] / 700.0
    assert found.time_to_s(wanted) == pytest.approx(0.6 * 9.3 * 86_400)
    assert found.reached_s(2 * found.samples) is None
    assert found.reached_s(0.0) == 0.0 or found.days["useful"][0] == 0
