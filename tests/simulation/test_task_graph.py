"""Task graphs: equal results to those of their plans, also saved and loaded; clear errors for anything else."""

import copy
import gzip
import json

import numpy as np
import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError, DegreeError, RostamError


@pytest.fixture(scope="module")
def mlp():
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
    return rostam.trace(model, torch.empty(8, 256), loss_fn=lambda y: y.sum(), name="mlp")


SHUFFLED = [5, 3, 0, 15, 9, 1, 12, 4, 7, 10, 2, 14, 6, 8, 13, 11]  # schedules number ranks row by row, not so
MACHINES = {
    "pipeline on a torus": (("torus", {"dims": (2, 4)}), {"dp": 2, "tp": 2, "pp": 2}, {}),
    "rows and columns": (
        ("torus", {"dims": (4, 4)}), {"dp": 16, "algorithms": {"all_reduce": "torus_2d"}, "mapping": SHUFFLED}, {},
    ),
    "several NICs": (
        ("fat_tree", {"num_accelerators": 16, "levels": 2, "radix": 8, "server_size": 4}),
        {"dp": 16, "mapping": SHUFFLED}, {},
    ),
    "sub-ops on circuits": (("sip_ocs", {"num_accelerators": 8}), {"dp": 2, "mp": 4, "placer": "sip_ml"}, {}),
    "slow, launched late": (
        ("hammingmesh", {"board": (2, 2), "boards": (2, 1)}), {"dp": 4, "tp": 2, "bucket_size": "0.2 MB"},
        {"slow": {2: 0.5}, "launch_latency": "7 us", "comm_compute_fraction": 0.25},
    ),
}  # fmt: skip


def placed(mlp, name):
    (fabric, parameters), strategy, physics = MACHINES[name]
    machine = rostam.Machine(fabric=rostam.fabric(fabric, **parameters), accelerator="v100_32gb", **physics)
    return rostam.place(mlp, machine, global_batch=64, strategy=rostam.Strategy.of(**strategy), software="ideal")


def assert_equal(job, run):
    """Assert that a job's result says what the plan's says, where both say something."""
    summary, own = run.to_dict(), job.to_dict()
    assert own.pop("fabric").startswith(summary["fabric"])  # the graph's has its circuits
    assert own == {key: summary[key] for key in own}
    assert np.array_equal(job.link_bytes, run.link_bytes)
    assert np.array_equal(job.link_busy_s, run.link_busy_s)
    assert np.array_equal(job.breakdown_by_device, run.breakdown_by_device)
    assert job.critical_path() == run.critical_path()


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_task_graph_saved_and_loaded_gives_the_plans_result(mlp, name, suffix, tmp_path):
    plan, path = placed(mlp, name), tmp_path / f"tasks.{suffix}"
    rostam.TaskGraph.of(plan, seed=3).save(path)
    loaded = rostam.TaskGraph.load(path)
    assert set(loaded.jobs[0].orders) == ({"dp"} if list(plan.strategy.mapping) == SHUFFLED else set())
    loaded.save(tmp_path / f"again.{suffix}")
    assert (tmp_path / f"again.{suffix}").read_bytes() == path.read_bytes()
    for options in ({}, {"routing": "hash"}, {"fold": False}, {"fuse": False}):
        if plan.machine.fabric.is_circuit_switched and "routing" in options:
            continue
        run = rostam.simulate(plan, seed=3, **options)
        assert_equal(rostam.simulate(loaded, seed=3, **options), run)
        assert loaded.jobs[0].schedules == plan.schedules
        assert run.algorithms == plan.collectives


def test_several_jobs_keep_their_starts_and_neighbours(mlp, tmp_path):
    fabric = rostam.fabric("torus", dims=(2, 4))
    machine = rostam.Machine(fabric=fabric, accelerator="v100_32gb", slow={5: 0.5})
    plans = [
        rostam.place(
            mlp,
            machine,
            global_batch=64,
            strategy=rostam.Strategy(dp=4, mapping=list(ids), allow_idle=True),
            software="ideal",
        )
        for ids in ((0, 2, 4, 6), (1, 3, 5, 7))
    ]
    runs = rostam.simulate(plans, start_times=[0.0, "20 us"], max_iterations=4)
    rostam.TaskGraph.of(plans, start_times=[0.0, "20 us"]).save(tmp_path / "tasks.json.gz")
    jobs = rostam.simulate(rostam.TaskGraph.load(tmp_path / "tasks.json.gz"), max_iterations=4)
    for job, run in zip(jobs, runs, strict=True):
        assert_equal(job, run)
    with pytest.raises(ConfigError, match="start_times is given, but a task graph has its own"):
        rostam.simulate(rostam.TaskGraph.of(plans), start_times=[0, 0])
    with pytest.raises(DegreeError, match="plans 0 and 1 both use accelerator 0"):
        rostam.TaskGraph.of([plans[0], plans[0]])


def test_a_graph_written_by_hand_takes_the_time_of_its_parts(tmp_path, mlp):
    # Two devices compute 3 us, add up 1 kB over one link of 1 GB/s each way (a ring of two: 2 steps of 500 B, 0.5 us
    # each, no latency), then compute 2 us: 3 + 1 + 2 us, without launches.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, accelerator_bandwidth="8 Gb/s", latency=0.0)
    machine = rostam.Machine(fabric=fabric, launch_latency=0.0, min_kernel_time=0.0)
    strategy = rostam.Strategy(dp=2, algorithms={"all_reduce": "ring"})
    rostam.TaskGraph.of(rostam.place(mlp, machine, global_batch=2, strategy=strategy, software="ideal")).save(
        tmp_path / "tasks.json"
    )
    document = json.loads((tmp_path / "tasks.json").read_text())
    (job,) = document["jobs"]
    document["kernels"] = {
        "name": ["a", "b"], "module": ["", ""], "op_type": ["", ""], "duration_s": [3e-6, 2e-6], "flops": [0.0, 0.0],
    }  # fmt: skip
    tasks = {
        "kind": ["compute", "collective", "compute"], "name": ["a", "sum", "b"], "group": ["", "dp", ""],
        "collective": ["", "all_reduce", ""], "channel": [""] * 3, "stream": [""] * 3, "num_bytes": [0, 1000, 0],
        "peer": [0] * 3, "is_optimizer": [False] * 3, "deps": [[], [0], [1]], "kernels": [[0], [], [1]],
    }  # fmt: skip
    job["stages"] = [{"program": [{"count": 1, "entries": [["step", 0]]}], "templates": {"step": tasks}}]
    job["schedules"] = [{**job["schedules"][0], "num_bytes": 1000}]
    (tmp_path / "tasks.json").write_text(json.dumps(document))
    result = rostam.simulate(rostam.TaskGraph.load(tmp_path / "tasks.json"))
    assert result.iteration_time_s == 6e-6
    assert result.breakdown["dp"] == 1e-6
    assert result.bytes_sent["dp"] == 2 * 2 * 500
    assert [one["algorithm"] for one in result.algorithms] == ["ring"]


@pytest.fixture(scope="module")
def document(mlp, tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "tasks.json"
    rostam.TaskGraph.of(placed(mlp, "pipeline on a torus")).save(path)
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (["version"], 99, r"version 99 of rostam-task-graph; this rostam reads 1"),
        (["format"], "rostam-plan", r"is not a task graph saved by rostam: its format is 'rostam-plan'"),
        (["jobs", 0, "stages", 0, "templates", "forward", "deps", 1, 0], 7, r"forward\.deps\[1\]\[0\] is 7"),
        (["jobs", 0, "stages", 0, "templates", "forward", "group", 1], "xp", r"forward\.group\[1\] is 'xp'; groups"),
        (["jobs", 0, "schedules", 0, "algorithm"], "rong", r"jobs\[0\]\.schedules\[0\] is refused: .*rong"),
        (["jobs", 0, "schedules", 0, "num_ranks"], 3, r"schedules\[0\]\.num_ranks is 3; groups '\w+' have 2 ranks"),
        (["jobs", 0, "schedules", 0, "num_pieces"], 2**31 - 1, r"num_pieces is 2147483647; .* integer from 1 to 1024"),
        (["jobs", 0, "schedules", 0, "group"], "up", r"schedules\[0\]\.group is 'up'; groups are: dp, pp, tp"),
        (["jobs", 0, "schedules", 0, "num_bytes"], 1, r"collective\[\d+\] is a collective without a schedule: all_"),
        (["jobs", 0, "orders"], {"xp": {}}, r"jobs\[0\]\.orders\.xp names no group"),
        (["jobs", 0, "start_ps"], -1, r"jobs\[0\]\.start_ps is -1; it must be an integer from 0"),
        (["jobs"], [], r"the task graph is refused: "),
        (["kernels", "duration_s", 2], -1.0, r"kernels\.duration_s\[2\] is -1\.0; it must be a finite number >= 0"),
        (["machine", "fabric", "name"], "tree", r"machine\.fabric\.name is 'tree'; it must be one of:"),
    ],
)
def test_a_changed_file_is_refused_with_file_and_place(document, place, value, words, tmp_path):
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "tasks.json").write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match=rf"tasks\.json.*{words}"):
        rostam.TaskGraph.load(tmp_path / "tasks.json")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\x1f\x8bnone", gzip.compress(b"{}", mtime=0)[:-6], b"\xff\xfe", b"5"]
)
def test_what_is_no_task_graph_is_refused(data, tmp_path):
    (tmp_path / "tasks.json.gz").write_bytes(data)
    with pytest.raises(ConfigError, match=r"tasks\.json\.gz.* is not a task graph saved by rostam"):
        rostam.TaskGraph.load(tmp_path / "tasks.json.gz")


def test_any_mutation_is_loaded_and_simulated_or_refused_never_a_crash(document, tmp_path, mutations):
    refused = run = 0
    unnamed = []
    for place, changed in mutations(document, 600):
        (tmp_path / "tasks.json").write_text(json.dumps(changed))
        try:
            graph = rostam.TaskGraph.load(tmp_path / "tasks.json")
        except ConfigError as error:
            unnamed += [] if "tasks.json" in str(error) else [(place, str(error))]
            refused += 1
            continue
        try:  # what is legal by itself may not fit together: a receive without its send
            rostam.simulate(graph, max_iterations=2)
        except RostamError:
            refused += 1
            continue
        run += 1
    assert unnamed == []
    assert refused > 300
    assert run > 20


def test_a_saved_task_graph_runs_from_the_command_line(tmp_path, capsys, cached_traces):
    first, again = tmp_path / "first", tmp_path / "again"
    options = ["model=gpt_125m", "fabric=torus_8x8", "strategy.tp=4", "global_batch=64"]
    assert main(["run", *options, "save_task_graph=true", f"out={first}", "--json"]) == 0
    file = f"task_graph={first}/task_graph.json.gz"
    assert main(["run", file, f"out={again}", "--json"]) == 0
    whole, own = (json.loads((folder / "result.json").read_text()) for folder in (first, again))
    assert "read from a file" in own.pop("error_bar")["absent"]  # it holds times, not what they rest on
    assert own == {key: whole[key] for key in own}
    assert {"iteration_time_s", "breakdown_s", "critical_tasks", "busiest_links", "algorithms"} <= own.keys()
    capsys.readouterr()
    assert main(["run", file, f"out={again}"]) == 0
    assert "dp all_reduce" in capsys.readouterr().out
    for key, said in (("strategy.tp=8", "cannot change a saved task graph"), ("report=true", "needs a plan")):
        assert main(["run", file, key]) == 2
        assert f"'{key}' {said}" in capsys.readouterr().err
