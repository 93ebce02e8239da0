"""SimulationOptions: one object, the same answer as the keywords of every function that simulates."""

import inspect

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

HASHED = rostam.SimulationOptions(routing="hash", seed=7)


@pytest.fixture(scope="module")
def tree():
    return rostam.fabric("fat_tree", num_accelerators=16, radix=8, leaf_down=5, leaf_up=3)


@pytest.fixture(scope="module")
def plan(gpt, tree):
    return rostam.place(
        gpt, rostam.Machine(fabric=tree), global_batch=16, strategy=rostam.Strategy(dp=4, tp=2, pp=2), software="ideal"
    )


def test_options_are_the_keywords_of_the_same_names(plan, tree):
    by_options = rostam.simulate(plan, options=HASHED.but(fold=False, max_iterations=3))
    by_keywords = rostam.simulate(plan, routing="hash", seed=7, fold=False, max_iterations=3)
    assert by_options.to_json() == by_keywords.to_json()
    assert (by_options.routing, by_options.seed) == ("hash", 7)
    by_options, by_keywords, sprayed = (
        rostam.run_collective(tree, "all_to_all", num_bytes=10**6, **how)
        for how in ({"options": HASHED}, {"routing": "hash", "seed": 7}, {})
    )
    assert by_options.time_ps == by_keywords.time_ps
    assert np.array_equal(by_options.link_bytes, by_keywords.link_bytes)
    assert not np.array_equal(by_options.link_bytes, sprayed.link_bytes)


def test_keywords_go_before_options(plan):
    assert rostam.simulate(plan, options=HASHED, routing="spray").to_json() == rostam.simulate(plan, seed=7).to_json()


def test_run_flows_hashes_unless_told_otherwise(tree):
    flows = {"src": [0, 1, 2], "dst": [9, 10, 11], "num_bytes": [10**6] * 3}
    hashed = rostam.run_flows(tree, **flows, routing="hash", seed=3)
    assert np.array_equal(
        rostam.run_flows(tree, **flows, options=rostam.SimulationOptions(seed=3)).finish_s, hashed.finish_s
    )


def test_rings_with_and_without_shortcuts_agree_to_the_picosecond(plan, tree):
    quick, stepwise = (rostam.simulate(plan, fold=False, shortcuts=shortcuts) for shortcuts in (True, False))
    assert quick.iteration_times_s == stepwise.iteration_times_s
    assert quick.to_dict()["breakdown_s"] == stepwise.to_dict()["breakdown_s"]


def test_options_without_a_meaning_are_refused(plan, tree):
    with pytest.raises(ConfigError, match=r"options\.fold is set, but run_flows takes only: fidelity, routing, seed, "):
        rostam.run_flows(tree, src=[0], dst=[1], num_bytes=[8], options=rostam.SimulationOptions(fold=False))
    with pytest.raises(ConfigError, match=r"must be a rostam\.SimulationOptions"):
        rostam.simulate(plan, options={"fold": False})
    with pytest.raises(ConfigError, match=r"options\.timeline is set, but a sweep of mode run takes only"):
        rostam.run_sweep({"model": "resnet50"}, options=rostam.SimulationOptions(timeline=True))
    with pytest.raises(ConfigError, match=r"fidelity is 'guess'"):
        rostam.simulate(plan, options=rostam.SimulationOptions(fidelity="guess"))


@pytest.mark.parametrize("name", ["simulate", "run_collective", "run_flows", "search", "simulate_mix", "run_sweep"])
def test_every_function_that_simulates_takes_options(name):
    assert "options" in inspect.signature(getattr(rostam, name)).parameters


def test_mixes_and_searches_take_options(gpt, tree):
    machine = rostam.Machine(fabric=tree)
    jobs = [rostam.Job("a", gpt, rostam.Strategy(dp=4, tp=2), 8), rostam.Job("b", gpt, rostam.Strategy(dp=8), 8)]
    options = rostam.SimulationOptions(routing="spray", seed=2)
    by_options = rostam.simulate_mix(jobs, machine, num_iterations=1, baselines=False, options=options)
    by_keywords = rostam.simulate_mix(jobs, machine, num_iterations=1, baselines=False, routing="spray", seed=2)
    assert by_options.to_dict() == by_keywords.to_dict()
    found = rostam.search(
        gpt, machine, batches=[16], num_simulated=1, placers=["megatron"], options=HASHED, software="ideal"
    )
    assert found.best.result.routing == "hash"
