"""Plans on fabrics with failed parts: spares step in, traffic takes other paths, cut jobs are refused."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m", num_layers=2)


# 32 accelerators: 4 leaves of 8 below 2 spines (16-port switches), 4 cables from each leaf to each spine; switches
# 0-3 are leaves (vertices 32-35), 4-5 spines (vertices 36-37).
def tree(**changes):
    return rostam.fabric("fat_tree", num_accelerators=32, radix=16, accelerator_bandwidth="100 Gb/s", **changes)


def simulate_on(fabric, graph, **strategy):
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    settings = {"dp": 8, "tp": 4, "micro_batch": 1, "rank_order": "dp,tp,pp", "precision": "bf16_mixed"} | strategy
    plan = rostam.place(
        graph, machine, global_batch=settings["dp"], strategy=rostam.Strategy.of(**settings), software="ideal"
    )
    return rostam.simulate(plan)


def test_a_lost_spine_moves_its_traffic_and_slows_a_job_that_needs_all_uplinks(graph):
    # tp groups stride over the leaves (dp fastest), so that every tp message goes through the spines.
    intact = simulate_on(tree(), graph)
    spine = tree().num_switches - 1
    broken = simulate_on(tree().with_failures(switches=[spine]), graph)
    assert broken.bytes_sent == intact.bytes_sent
    assert broken.iteration_time_s > intact.iteration_time_s
    links = broken.plan.machine.fabric.links
    assert broken.link_bytes[links["is_failed"]].sum() == 0
    # What left leaf 0 goes over 4 uplinks in place of 8.
    ups = (links["src"] == 32) & (links["dst"] >= 36)
    assert np.count_nonzero(intact.link_bytes[ups]) == 8
    assert np.count_nonzero(broken.link_bytes[ups]) == 4
    assert broken.link_bytes[ups].sum() == pytest.approx(intact.link_bytes[ups].sum())
    assert broken.link_bytes[ups].max() == pytest.approx(2 * intact.link_bytes[ups].max())


def test_a_failed_accelerator_is_replaced_by_a_spare(graph):
    fabric = tree().with_failures(accelerators=[5])
    result = simulate_on(fabric, graph, dp=4, rank_order="tp,pp,dp", allow_idle=True)
    used = result.devices.tolist()
    assert 5 not in used
    assert sorted(used) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]


def test_a_job_larger_than_the_healthy_machine_is_refused(graph):
    with pytest.raises(DegreeError, match="31 healthy accelerators of 32"):
        simulate_on(tree().with_failures(accelerators=[5]), graph)


def test_an_accelerator_without_its_cable_counts_as_failed_and_needs_a_spare(graph):
    leaf_of_first = tree().links["cable"][(tree().links["src"] == 0)][0]
    with pytest.raises(DegreeError, match="31 healthy accelerators of 32"):
        simulate_on(tree().with_failures(links=[int(leaf_of_first)]), graph)


def test_folding_sees_a_lost_link(graph):
    fabric = tree()
    cable = int(fabric.links["cable"][(fabric.links["src"] == 32) & (fabric.links["dst"] == 36)][0])
    broken = fabric.with_failures(links=[cable])
    machine = rostam.Machine(fabric=broken, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=8, tp=4, micro_batch=1, rank_order="dp,tp,pp", precision="bf16_mixed")
    plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
    folded, whole = rostam.simulate(plan), rostam.simulate(plan, fold=False)
    assert folded.iteration_time_s == pytest.approx(whole.iteration_time_s, rel=1e-9)
    assert folded.link_bytes == pytest.approx(whole.link_bytes)
    assert folded.num_simulated_devices < whole.num_simulated_devices == 32


def test_plans_of_one_simulation_must_agree_on_launch_latency(graph):
    fabric = tree()
    plans = [
        rostam.place(
            graph,
            rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=latency),
            global_batch=4,
            strategy=rostam.Strategy(dp=4, tp=4, accelerators=list(range(first, first + 16))),
            software="ideal",
        )
        for first, latency in ((0, "1 us"), (16, "5 us"))
    ]
    with pytest.raises(ConfigError, match=r"machine\.launch_latency differs"):
        rostam.simulate(plans)
