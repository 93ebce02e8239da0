"""Job mixes under ECMP on 2,048 accelerators: what the kept points say, and that one of them comes out again."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def module(load_experiment):
    return load_experiment("ml_routing_mix")


@pytest.fixture(scope="module")
def kept(module):
    """The kept points; nothing is simulated."""
    return module.SearchedPoints(module.POINTS, module.COMMAND, enable_search=False)


@pytest.fixture(scope="module")
def mixes(module):
    return module.Mixes()


def test_claims_of_the_paper_are_met_but_for_one_percent_of_a_flow(module, kept, mixes):
    assert [row["claim"] for row in module.compare(kept, mixes) if not row["is_met"]] == ["size of a flow [Gbit]"]


def test_sprayed_all_reduces_take_what_the_collective_takes_alone(kept):
    # BLOOM in 8 hosts: the longest ring is that of the stage with the embedding; no NIC sends more than 100 Gb/s.
    rows = [row for key, point in kept.points.items() if "jobs, seed" in key for row in point["jobs"]]
    sprayed = [row for row in rows if "sprayed_all_reduce_s" in row]
    alone = kept.points["all-reduce"]["time_s"][1]
    bloom = [row["sprayed_all_reduce_s"] for row in sprayed if row["name"].startswith("bloom_dp8")]
    assert bloom == pytest.approx([alone] * len(bloom), rel=1e-3)
    assert len(bloom) > 5
    assert all(0.99 < row["sprayed_flow_rate_bytes_per_s"] / 12.5e9 <= 1 for row in sprayed)


def test_under_ecmp_the_longest_flow_suffers_more_than_the_mean(module, kept, mixes):
    for points in module.by_num_jobs(kept, mixes).values():
        longest, mean, rate = (module.against_sprayed(points, points, key).mean() for key in module.METRICS)
        assert longest > mean > 1 > rate


def test_sprayed_mixes_on_the_nonblocking_tree_run_as_if_alone(module, kept, mixes):
    # No link but a NIC's can bind (32 ports below a leaf, 32 above, in equal parts), and jobs share no NIC.
    for points in module.by_num_jobs(kept, mixes).values():
        assert module.slowdowns(points, "ideal_s", "sprayed_s") == pytest.approx(1, abs=1e-9)


def test_a_job_that_is_the_only_one_is_slowed_down_by_its_own_collisions_only(module, kept, mixes):
    first = module.by_num_jobs(kept, mixes)[1]
    assert set(module.slowdowns(first, "alone_s")) == {1.0}
    assert module.slowdowns(first, "ideal_s").min() > 1


def test_slow_downs_by_other_jobs_spread_over_seeds_and_grow_with_their_number(module, kept, mixes):
    by_jobs = {n: module.slowdowns(points, "alone_s") for n, points in module.by_num_jobs(kept, mixes).items()}
    assert by_jobs[5].mean() > by_jobs[2].mean() > by_jobs[1].mean()
    assert np.ptp(by_jobs[5]) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("num_jobs", [1, 3])
def test_points_come_out_again(module, kept, num_jobs):
    old = kept.points[f"{num_jobs} jobs, seed 0"]["jobs"]
    again = module.Mixes().measure(num_jobs, 0)["jobs"]
    assert [row.pop("name") for row in again] == [row["name"] for row in old]
    for new, was in zip(again, old, strict=True):
        assert new == pytest.approx({key: was[key] for key in was if key != "name"}, rel=1e-9)
