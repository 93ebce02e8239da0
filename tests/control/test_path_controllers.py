"""Controllers of paths in runs: bytes, times against hashed paths and by hand, failures, shortcuts inside servers."""

import re

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.simulation.path_choice import Pairs

GB = 10**9
RATE = 12.5e9


def tree(leaves=4, down=4, spines=4, **keys):
    return rostam.fabric(
        "fat_tree", num_accelerators=leaves * down, levels=2, radix=down + spines, leaf_down=down, leaf_up=spines,
        num_spines=spines, link_bandwidth="100 Gb/s", **keys,
    )  # fmt: skip


def clashing(fabric, count=8):
    """Return pairs of one leaf to another, and a seed under which hashed paths meet."""
    src = np.arange(count) % 4 + 4 * (np.arange(count) // 4)
    dst = (src + 4) % fabric.num_accelerators
    return src.tolist(), dst.tolist()


def flows(fabric, controllers=(), size=GB, **keys):
    src, dst = clashing(fabric)
    return rostam.run_flows(fabric, src=src, dst=dst, num_bytes=[size] * len(src), controllers=controllers, **keys)


def assigned(**parameters):
    return [("path_assignment", {"assigner": "greedy", "latency_ps": 0} | parameters)]


def test_assigned_flows_have_their_links_for_themselves_and_hashed_ones_do_not():
    fabric = tree()
    hashed, alone = flows(fabric), flows(fabric, assigned())
    assert hashed.sent_s.max() > 1.5 * GB / RATE
    assert alone.sent_s.tolist() == [GB / RATE] * 8
    assert alone.checks


def test_without_large_messages_times_are_those_of_hashed_paths_to_the_picosecond():
    fabric = tree()
    hashed = flows(fabric)
    for controllers in (assigned(least_bytes=2 * GB), [("path_rehash", {"least_bytes": 2 * GB})]):
        mice = flows(fabric, controllers)
        assert np.array_equal(mice.finish_s, hashed.finish_s)
        assert np.array_equal(mice.link_bytes, hashed.link_bytes)


def test_hashed_paths_hold_until_the_controller_has_decided():
    """By hand: max-min rates on hashed paths for the latency, then the whole link for what is left."""
    fabric = tree()
    src, dst = clashing(fabric)
    router = fabric.router("hash", enable_bundling=False)
    latency_s = 0.01
    late = flows(fabric, assigned(latency_ps=int(latency_s * 1e12)))
    hashed = flows(fabric, stop_s=[latency_s] * 8)
    left = hashed.bytes_left
    assert left.max() > GB - 0.6 * latency_s * RATE
    assert late.sent_s == pytest.approx(latency_s + left / RATE, rel=1e-9)
    assert len(router.capacities) == len(fabric.links)
    assert src != dst


def test_a_failed_spine_moves_flows_at_once_where_that_was_planned_ahead():
    fabric = tree(spines=4)
    paths = Pairs.of(fabric, *clashing(fabric))
    spine = 16 + 4 + paths.core.assign("greedy")[0]
    event = rostam.Failure("20 ms", "switches", spine - 16)
    recovery = rostam.Recovery(reroute="1 s")
    done = {}
    for ahead in (0, 1):
        done[ahead] = flows(
            fabric, [("path_assignment", {"assigner": "greedy", "latency_ps": 10**10, "ahead": ahead})],
            events=[event], recovery=recovery,
        )  # fmt: skip
        assert done[ahead].checks
    assert done[1].sent_s.max() < done[0].sent_s.max() < 1


def test_hashing_again_and_again_evens_out_over_time():
    fabric = tree()
    hashed = flows(fabric, size=100 * GB)
    again = flows(fabric, [("path_rehash", {"period_ps": 10**10, "seed": 1})], size=100 * GB)
    alike = flows(fabric, [("path_rehash", {"period_ps": 10**10, "seed": 1})], size=100 * GB)
    assert np.array_equal(again.finish_s, alike.finish_s)
    assert 100 * GB / RATE < again.sent_s.max() < hashed.sent_s.max()
    assert np.ptp(again.sent_s) < np.ptp(hashed.sent_s)


@pytest.fixture(scope="module")
def job():
    fabric = tree(leaves=4, down=8, spines=8, server_size=4, server_bandwidth="600 GB/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy.of(dp=8, tp=4, algorithms={"all_reduce": "ring"})
    return rostam.place(rostam.trace("gpt_125m"), machine, global_batch=16, strategy=strategy, cost="roofline")


@pytest.mark.parametrize("name", ["path_assignment", "path_rehash"])
def test_a_job_without_large_messages_takes_what_it_does_on_hashed_paths(job, name):
    run = {"routing": "hash", "max_iterations": 2, "min_iterations": 2, "seed": 3}
    hashed = rostam.simulate(job, **run)
    mice = rostam.simulate(job, controllers=[(name, {"least_bytes": 10**12})], **run)
    assert [round(1e12 * time) for time in mice.iteration_times_s] == [
        round(1e12 * time) for time in hashed.iteration_times_s
    ]
    assert np.array_equal(mice.link_bytes, hashed.link_bytes)


@pytest.mark.parametrize("controllers", [assigned(least_bytes=1000), [("path_rehash", {"least_bytes": 1000})]])
def test_rings_inside_servers_stay_quiet_and_nothing_changes_by_it(job, controllers):
    run = {"routing": "hash", "controllers": controllers, "max_iterations": 2, "min_iterations": 2}
    quiet = rostam.simulate(job, **run)
    each = rostam.simulate(job, shortcuts=False, **run)
    assert quiet.iteration_times_s == pytest.approx(each.iteration_times_s, rel=1e-12)
    assert quiet.bytes_sent == each.bytes_sent
    assert quiet.link_bytes == pytest.approx(each.link_bytes, rel=1e-9)


def test_a_job_with_assigned_paths_is_as_fast_as_sprayed_and_hashed_it_is_not(job):
    run = {"max_iterations": 3}
    times = {
        name: rostam.simulate(job, routing=routing, controllers=controllers, **run).iteration_time_s
        for name, routing, controllers in (
            ("spray", "spray", ()), ("hash", "hash", ()), ("assigned", "hash", assigned(least_bytes=1000)),
        )
    }  # fmt: skip
    assert times["spray"] <= times["assigned"] * (1 + 1e-9)
    assert times["assigned"] < times["hash"]


def test_a_result_says_what_was_decided(job):
    run = {"routing": "hash", "max_iterations": 2, "min_iterations": 2}
    notes = rostam.simulate(job, controllers=assigned(least_bytes=1000), **run).notes
    assert any(
        re.match(r"path_assignment decided \d+ times, for up to 32 pairs; at most \d of their", one) for one in notes
    )
    notes = rostam.simulate(job, controllers=assigned(least_bytes=10**12), **run).notes
    assert any(one.startswith("path_assignment decided nothing") for one in notes)


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("path_assignment", {"assigner": "best"}, "assigner is 'best'; it must be one of: greedy"),
        ("path_assignment", {"assigner": "planned"}, "assigner is 'planned', and planned is missing"),
        ("path_assignment", {"planned": [1, 0, 4, 0]}, "assigner is 'greedy_by_sets', and planned is given"),
        (
            "path_assignment",
            {"assigner": "planned", "planned": [1, 0, 4, 9]},
            "planned holds path 9 of accelerator 0",
        ),
        ("path_assignment", {"assigner": "planned", "planned": [0, 0, 4, 1]}, "planned holds 0 at 0; its fours"),
        ("path_assignment", {"ahead": 2}, "ahead is 2; it must be 0 or 1"),
        ("path_assignment", {"latency_ps": 0.5}, "latency_ps must be one whole number"),
        ("path_assignment", {"latency_ps": -1}, "path_assignment: latency_ps is -1 < 0"),
        (
            "path_assignment",
            {"assigner": "planned", "planned": [1, 2, 3]},
            "planned has 3 numbers; it takes four",
        ),
        ("path_assignment", {"latency": 1}, "has no latency; it takes assigner, least_bytes, latency_ps"),
        ("path_rehash", {"period_ps": 0}, "path_rehash: period_ps is 0 < 1"),
    ],
)
def test_bad_parameters_are_refused(name, parameters, said):
    with pytest.raises(ConfigError, match=said):
        flows(tree(), [(name, parameters)])


def test_two_controllers_of_paths_are_refused():
    with pytest.raises(ConfigError, match="controllers holds 2 that choose paths of the same messages"):
        flows(tree(), ["path_assignment", "path_rehash"])


def test_a_small_flow_that_ends_leaves_a_large_one_its_path():
    fabric = tree()
    src, dst = clashing(fabric)
    sizes = [GB] * 8 + [1000] * 8
    run = rostam.run_flows(
        fabric, src=src * 2, dst=dst * 2, num_bytes=sizes, start_s=[0] * 8 + ["1 ms"] * 8, controllers=assigned()
    )
    assert run.sent_s[:8].max() == pytest.approx(GB / RATE, rel=1e-4)


@pytest.mark.parametrize("reroute", ["1 ms", "30 ms", "300 ms"])
@pytest.mark.parametrize("number", range(4))
def test_a_faster_reroute_is_no_slower_and_flows_go_on_over_what_works(number, reroute):
    """Four flows of one leaf, four spines, one fails for good: two share a path 10 ms later, and all are through."""
    fabric = tree(leaves=2, down=4, spines=4)
    run = rostam.run_flows(
        fabric, src=[0, 1, 2, 3], dst=[4, 5, 6, 7], num_bytes=[GB] * 4, controllers=assigned(latency_ps=10**10),
        events=[rostam.Failure("20 ms", "switches", 2 + number)], recovery=rostam.Recovery(reroute=reroute),
    )  # fmt: skip
    assert run.sent_s.max() < 0.2
    assert np.sort(run.sent_s)[1] < 0.1


def test_a_pair_that_failures_leave_one_path_counts_on_it():
    fabric = tree(leaves=3, down=2, spines=2)
    up = np.flatnonzero((fabric.links["src"] == 6) & (fabric.links["dst"] == 10))
    broken = fabric.with_failures(links=fabric.links["cable"][up].tolist())
    found = rostam.assign_paths(broken, src=[0, 3], dst=[4, 5], assigner="greedy")
    best = rostam.optimal_paths(broken, src=[0, 3], dst=[4, 5])
    run = rostam.run_flows(broken, src=[0, 3], dst=[4, 5], num_bytes=[GB] * 2, controllers=assigned())
    assert found.rates.tolist() == best.rates.tolist() == [RATE] * 2
    assert run.sent_s.tolist() == [GB / RATE] * 2


@pytest.mark.parametrize("name", ["path_assignment", "path_rehash"])
@pytest.mark.parametrize("fabric", ["torus", "hammingmesh"])
def test_shortcuts_change_nothing_where_accelerators_forward(name, fabric):
    keys = {"dims": [4, 4, 2]} if fabric == "torus" else {"board": [2, 2], "boards": [4, 2]}
    machine = rostam.Machine(fabric=rostam.fabric(fabric, **keys, link_bandwidth="100 Gb/s"), accelerator="a100_80gb")
    strategy = rostam.Strategy.of(dp=8, tp=4, algorithms={"all_reduce": "ring"})
    plan = rostam.place(rostam.trace("gpt_125m"), machine, global_batch=16, strategy=strategy, cost="roofline")
    parameters = {"least_bytes": 1000} | ({"latency_ps": 0} if name == "path_assignment" else {})
    run = {"routing": "hash", "controllers": [(name, parameters)], "max_iterations": 2, "min_iterations": 2}
    quiet, each = rostam.simulate(plan, **run), rostam.simulate(plan, shortcuts=False, **run)
    assert quiet.iteration_times_s == pytest.approx(each.iteration_times_s, rel=1e-12)


def test_planes_that_differ_are_refused():
    fabric = tree(planes=2).with_failures(switches=[5])
    with pytest.raises(ConfigError, match="2 planes that differ"):
        flows(fabric, assigned())
