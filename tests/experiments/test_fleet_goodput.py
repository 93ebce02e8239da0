"""Goodput over weeks: the trace as counted elsewhere, and goodputs in the order that bursts of faults give them."""

import pytest


@pytest.fixture(scope="module")
def study(load_experiment):
    return load_experiment("fleet_goodput")


def test_every_statistic_of_the_trace_is_the_one_counted_elsewhere(study):
    for name, (printed, ours) in study.statistics(study.trace()).items():
        assert ours == printed, name


def test_spares_suffer_from_bursts_that_memoryless_faults_do_not_have(study):
    recorded, drawn = study.policies(study.trace()), study.policies(study.trace().memoryless(1))
    assert recorded["wait"] < recorded["spares"] < recorded["shrink"] < recorded["rejoin"]
    assert drawn["spares"] - recorded["spares"] > 0.03


@pytest.mark.slow
def test_a_region_falls_with_restart_and_contains_what_is_printed(study):
    per_1000, servers, days, _, least = study.RUNS["Llama 3 405B, 16,384 H100s"]
    found = study.region(per_1000, servers, days)
    for interval in study.INTERVALS_MIN:
        shares = [found[restart, interval] for restart in study.RESTARTS_MIN]
        assert shares == sorted(shares, reverse=True)
    assert min(found.values()) < least < max(found.values())
