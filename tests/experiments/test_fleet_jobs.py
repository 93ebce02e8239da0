"""Many jobs over weeks: Philly's waits as counted elsewhere, and what orders and placements change."""

import csv
import heapq
import json
from pathlib import Path

import pytest

from rostam_py.cli.main import main


@pytest.fixture(scope="module")
def study(load_experiment):
    return load_experiment("fleet_jobs")


def waits_by_count(path, gpus):
    """Return each job's wait by strict first come, first served, over a number of free GPUs."""
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    read = [tuple(int(row[key]) for key in ("submit_s", "duration_s", "gpus")) for row in rows]
    jobs = sorted(read, key=lambda one: one[0])
    free, now, running, found = gpus, 0, [], []
    for submit, duration, size in jobs:
        now = max(now, submit)
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        while free < size:
            now, given_back = heapq.heappop(running)
            free += given_back
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        free -= size
        heapq.heappush(running, (now + duration, size))
        found.append(now - submit)
    return found


@pytest.mark.parametrize("gpus", [192, 256, 368])
def test_every_job_of_the_trace_waits_as_long_as_in_a_second_simulator(study, gpus):
    found = study.philly(gpus, "count")
    assert found.waits_s().tolist() == waits_by_count(study.TRACE, gpus)
    assert f"{found.mean_wait_s / 3600:.1f}" == study.COUNTED_ELSEWHERE[gpus]
    assert len(found.runs) == 1_511


def test_servers_cost_waiting_and_better_orders_save_it(study):
    by_count, by_server = (study.philly(192, places).mean_wait_s for places in ("count", "servers"))
    backfill, shortest = (study.philly(192, "servers", order).mean_wait_s for order in ("backfill", "shortest_first"))
    assert shortest < backfill < by_count < by_server
    assert study.philly(192, "servers", setting=study.with_faults()).mean_wait_s > by_server


@pytest.mark.parametrize(("name", "order"), [("jobs_philly", "first_come"), ("jobs_hammingmesh", "backfill")])
def test_presets_are_the_studies(name, order, study, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])  # the trace is named from there
    found = study.philly(192, "servers", order) if name == "jobs_philly" else study.on_boards(order)
    assert main(["fleet", f"experiment={name}", "report=false", f"out={tmp_path / 'out'}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["wait_s"]["mean"], result["goodput"]["whole"]) == (found.mean_wait_s, found.goodput)
