"""The routing study: its traffic is the authors', and what holds whatever the draw."""

import json

import numpy as np
import pytest

from rostam_py.reproduction import experiments_in

STUDY = experiments_in()["ml_routing_controllers"]


@pytest.fixture(scope="module")
def compare():
    return STUDY.load()


@pytest.fixture(scope="module")
def points():
    return json.loads((STUDY.folder / "points.json").read_text())["points"]


def test_traffic_is_the_papers(compare):
    """A chunk is weights x 4 B / (tp pp D); copies are of 48, 64 and 128 hosts."""
    sets = compare.authors_sets()
    assert len(sets) == 11
    for jobs, ring in sets:
        traffic = compare.authors_jobs(jobs, ring)
        hosts = np.concatenate([job.rings.ravel() for job in traffic])
        assert len(set(hosts.tolist())) == len(hosts)
        for job in traffic:
            stages = {"BLOOM": 48, "GPT-3": 64, "LLaMA2-70B": 128}[job.model]
            copies = job.rings.shape[1]
            assert len(job.rings) == stages
            assert 2 <= copies <= ring
            weights = {"BLOOM": 176e9, "GPT-3": 175e9, "LLaMA2-70B": 70e9}[job.model]
            assert job.chunk == pytest.approx(weights * 4 / stages / copies, rel=1e-6)
        assert traffic[0].rings.shape == (48, ring)


def test_random_placing_keeps_jobs_apart_and_copies_in_whole_servers(compare):
    traffic = compare.on_random_hosts(compare.authors_jobs(5, 4), seed=1)
    hosts = np.concatenate([job.rings.ravel() for job in traffic])
    assert len(set(hosts.tolist())) == len(hosts)
    for job in traffic:
        assert all(count == 8 for count in np.unique(job.rings // 8, return_counts=True)[1])


def test_no_choice_of_paths_is_faster_than_spraying(points):
    for key, jobs in points.items():
        if key.startswith("staggered") and "failed" not in key:
            assert all(job["all_reduce"] >= 1 - 1e-6 for job in jobs), key
            assert all(job["completion"] <= job["all_reduce"] + 1e-6 for job in jobs), key


def test_components_are_greedy_and_colours_an_optimum(points):
    for key, jobs in points.items():
        if "greedy_components" in key:
            assert jobs == points[key.replace("greedy_components", "greedy")], key
    kept = [one for key, one in points.items() if key.endswith("assigned")]
    assert len(kept) == 11
    assert all(one["edge_colouring"]["load"] == one["optimum"]["load"] == one["optimum"]["bound"] for one in kept)
