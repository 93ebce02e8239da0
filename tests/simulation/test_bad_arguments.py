"""Arguments of simulations that are wrong say so before anything runs; nothing is rounded, filled in or ignored."""

import tracemalloc

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

SIZE = {"num_bytes": 1000}
FLOW = {"src": [0], "dst": [1], "num_bytes": [1000]}


def torus():
    return rostam.fabric("torus", dims=(4, 4))


@pytest.mark.parametrize("seed", [-1, 2**64, 2**70, 0.5, True, "1"])
def test_seeds_the_core_does_not_take_are_refused(gpt, seed):
    fabric = torus()
    machine = rostam.Machine(fabric=fabric)
    plan = rostam.place(gpt, machine, global_batch=16, strategy=rostam.Strategy(dp=16), software="ideal")
    calls = [
        lambda: rostam.run_collective(fabric, "all_reduce", seed=seed, **SIZE),
        lambda: rostam.run_flows(fabric, seed=seed, **FLOW),
        lambda: rostam.simulate(plan, seed=seed),
        lambda: rostam.simulate_mix([plan], machine, seed=seed),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"^seed is .*; it must be an integer from 0 to 2\^64 - 1$"):
            call()


def test_the_largest_seed_runs():
    fabric = torus()
    assert rostam.run_flows(fabric, seed=np.uint64(2**64 - 1), **FLOW).finish_s[0] > 0
    assert rostam.run_collective(fabric, "all_reduce", seed=2**64 - 1, routing="hash", **SIZE).time_ps > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0.5], r"start_s has 1 entries for 16 ranks; give one for each, or \{rank: time\} for some"),
        (0.5, "start_s is 0.5; it must be a list of 16 entries"),
        ("1 us", "start_s is '1 us'; it must be a list"),
        ({16: 0.5}, "start_s names rank 16; ranks are 0 to 15"),
        ({0.5: 0.5}, "start_s names rank 0.5"),
        ({True: 0.5}, "start_s names rank True"),
    ],
)
def test_starts_are_one_a_rank_or_by_rank(given, said):
    with pytest.raises(ConfigError, match=said):
        rostam.run_collective(torus(), "all_reduce", start_s=given, **SIZE)


def test_starts_by_rank_may_be_partial():
    fabric = torus()
    some = rostam.run_collective(fabric, "all_reduce", start_s={3: 0.5}, **SIZE)
    all_ = rostam.run_collective(fabric, "all_reduce", start_s=np.eye(16)[3] * 0.5, **SIZE)
    assert some.finish_s.tolist() == all_.finish_s.tolist()
    assert some.time_s > 0.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"ranks": [0.7, 1.9]}, r"ranks\[0\] is 0.7; it must be an integer"),
        ({"ranks": [True, False]}, r"ranks\[0\] is True"),
        ({"ranks": [0, 2**40]}, "accelerator 1099511627776, which has failed or does not exist"),
        ({"grid": (3, 5)}, r"grid is \(3, 5\) for 16 ranks"),
        ({"grid": 4}, "grid is 4 for 16 ranks"),
        ({"grid": (4.0, 4)}, r"grid is \(4.0, 4\)"),
        ({"group": -7}, "group is -7 for 16 ranks; it must be an integer >= 1 that divides them"),
        ({"group": 3}, "group is 3 for 16 ranks"),
        ({"group": 2.5}, "group is 2.5 for 16 ranks"),
        ({"events": rostam.LinkBandwidth(0.0, 1, 0.5)}, "events is LinkBandwidth.*; it must be a list"),
        ({"events": None}, "events is None; it must be a list"),
    ],
)
@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_bad_shapes_are_refused_by_algorithms_that_use_none(arguments, said, algorithm):
    with pytest.raises(ConfigError, match=said):
        rostam.run_collective(torus(), "all_reduce", algorithm=algorithm, **arguments, **SIZE)


def test_valid_shapes_change_nothing_where_they_are_not_used():
    fabric = torus()
    plain = rostam.run_collective(fabric, "all_reduce", algorithm="ring", **SIZE)
    given = rostam.run_collective(fabric, "all_reduce", algorithm="ring", grid=(2, 8), group=4, **SIZE)
    assert given.time_ps == plain.time_ps


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"src": [0.9]}, r"src\[0\] is 0.9; it must be an integer"),
        ({"dst": [True]}, r"dst\[0\] is True"),
        ({"dst": [2**40]}, "dst names accelerator 1099511627776; the fabric has 0 to 15"),
        ({"src": 0}, "src is 0; it must be a list of integers"),
        ({"num_bytes": 10}, "num_bytes is 10; it must be a list of 1 entries"),
        ({"start_s": [0, 1]}, "start_s has 2 entries for 1 flows"),
        ({"events": [rostam.Reroute(0.0, 0, 1)], "routing": "spray"}, "Reroute, but routing is 'spray'; only 'hash'"),
        ({"events": [rostam.Reroute(0.0, 2**70, 1)]}, "Reroute of flow 1180591620717411303424; flows are 0 to 0"),
    ],
)
def test_bad_flows_are_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        rostam.run_flows(torus(), **(FLOW | arguments))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rostam.Reroute(0.0, 0, -3), "events.path_hash is -3; it must be an integer from 0 to"),
        (lambda: rostam.Reroute(0.0, 0.5, 1), "events.flow is 0.5; it must be an integer"),
        (lambda: rostam.LinkBandwidth(0.0, 1.5, 1.0), "events.link is 1.5; it must be an integer"),
        (lambda: rostam.LinkBandwidth(0.0, True, 1.0), "events.link is True"),
        (lambda: rostam.LinkBandwidth(0.0, 1, "half"), "events.scale of link 1 is 'half'; it must be >= 0 and finite"),
        (lambda: rostam.LinkBandwidth(0.0, 1, float("nan")), "events.scale of link 1 is nan"),
    ],
)
def test_bad_events_cannot_be_made(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"timeline": [0.5]}, r"timeline\[0\] is 0.5; it must be an integer"),
        ({"timeline": [True]}, r"timeline\[0\] is True"),
        ({"timeline": 3}, "timeline is 3; it must be a list of integers"),
        ({"max_iterations": 2.5}, "max_iterations is 2.5; it must be an integer >= 1"),
        ({"start_times": 1.0}, "start_times is 1.0; it must be a list of 1 entries"),
    ],
)
def test_bad_options_of_a_plan_are_refused(gpt, arguments, said):
    plan = rostam.place(
        gpt, rostam.Machine(fabric=torus()), global_batch=16, strategy=rostam.Strategy(dp=16), software="ideal"
    )
    with pytest.raises(ConfigError, match=said):
        rostam.simulate(plan, **arguments)


@pytest.mark.parametrize("name", ["sip_ring", "sip_ocs"])
def test_links_of_an_optical_fabric_are_those_of_its_circuits(gpt, name):
    machine = rostam.Machine(fabric=rostam.fabric(name, num_accelerators=16))
    plan = rostam.place(gpt, machine, global_batch=16, strategy=rostam.Strategy(dp=16), software="ideal")
    result = rostam.simulate(plan)
    last = len(result.fabric.links) - 1
    slowed = rostam.simulate(plan, events=[rostam.LinkBandwidth(0.0, last, 0.01)])
    assert slowed.iteration_time_s > result.iteration_time_s
    with pytest.raises(ConfigError, match=rf"circuits set, an index into result.fabric.links .* \(0 to {last}\)"):
        rostam.simulate(plan, events=[rostam.LinkBandwidth(0.0, last + 1, 0.5)])


def test_iterations_too_long_to_be_simulated_are_refused_at_once_and_take_no_memory(gpt, hand_plan, free_fabric):
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth="400 Gb/s"))
    tracemalloc.start()
    plan = rostam.place(
        gpt, machine, global_batch=2**30, strategy=rostam.Strategy(pp=4, micro_batch=1), software="ideal"
    )
    said = r"global_batch 1,073,741,824 is 1,073,741,824 micro-batches of 1; 8,589,934,592 forwards and backwards"
    with pytest.raises(ConfigError, match=said):
        rostam.simulate(plan)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    with pytest.raises(ConfigError, match=r"an iteration computes for at least 3\.22e\+07 s; simulated time ends"):
        rostam.simulate(hand_plan(free_fabric(2), pp=2, num_microbatches=2**30, forward_s=0.01, backward_s=0.02))
    with pytest.raises(
        ConfigError, match="4,000,004 forwards and backwards on all stages in an iteration; at most 4,000,000 can"
    ):
        rostam.simulate(hand_plan(free_fabric(2), pp=2, num_microbatches=1_000_001))


def test_memory_does_not_grow_with_the_micro_batches_of_a_plan(gpt):
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth="400 Gb/s"))
    plans = [
        rostam.place(gpt, machine, global_batch=batch, strategy=rostam.Strategy(pp=4, micro_batch=1), software="ideal")
        for batch in (2**10, 2**40)
    ]
    sizes = [sum(len(stage.program.segments) for stage in plan.stages) for plan in plans]
    assert sizes[0] == sizes[1] <= 16
    assert plans[1].memory_bytes == plans[0].memory_bytes
