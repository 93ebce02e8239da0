"""Saved plans: equal results when loaded, clear errors for anything else."""

import gzip
import json

import numpy as np
import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError, RostamError


@pytest.fixture(scope="module")
def mlp():
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
    return rostam.trace(model, torch.empty(8, 256), loss_fn=lambda y: y.sum(), name="mlp")


MACHINES = {
    "pipeline on a torus": (("torus", {"dims": (2, 4)}), {"dp": 2, "tp": 2, "pp": 2}, {}),
    "sub-ops on circuits": (("sip_ocs", {"num_accelerators": 8}), {"dp": 2, "mp": 4, "placer": "sip_ml"}, {}),
    "drawn network": (("custom", {"links": [(f"a{k}", "s0", 1e9) for k in range(8)]}), {"dp": 8}, {}),
    "slow, failed, launched late": (
        ("hammingmesh", {"board": (2, 2), "boards": (3, 1)}), {"dp": 8, "allow_idle": True, "bucket_size": "0.2 MB"},
        {"slow": {2: 0.5}, "launch_latency": "7 us", "comm_compute_fraction": 0.25},
    ),
}  # fmt: skip


def placed(mlp, name):
    (fabric, parameters), strategy, physics = MACHINES[name]
    machine = rostam.Machine(fabric=rostam.fabric(fabric, **parameters), accelerator="v100_32gb", **physics)
    if "failed" in name:
        machine = machine.with_failures(accelerators=[5])
    return rostam.place(mlp, machine, global_batch=64, strategy=rostam.Strategy.of(**strategy), software="ideal")


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_plan_saved_and_loaded_gives_an_equal_result(mlp, name, suffix, tmp_path):
    plan, path = placed(mlp, name), tmp_path / f"plan.{suffix}"
    plan.save(path)
    loaded = rostam.Plan.load(path)
    for routing in ("spray", "hash"):
        if loaded.machine.fabric.is_circuit_switched and routing == "hash":
            continue
        before, after = (rostam.simulate(one, routing=routing, seed=3) for one in (plan, loaded))
        assert after.to_json() == before.to_json()
        assert np.array_equal(after.link_bytes, before.link_bytes)
        assert np.array_equal(after.breakdown_by_device, before.breakdown_by_device)
        assert after.critical_path() == before.critical_path()
    loaded.save(tmp_path / f"again.{suffix}")
    assert (tmp_path / f"again.{suffix}").read_bytes() == path.read_bytes()
    assert loaded.groups == plan.groups
    assert loaded.messages() == plan.messages()


def test_circuits_set_before_are_kept(mlp, tmp_path):
    plan = placed(mlp, "sub-ops on circuits")
    fixed = plan.on(rostam.Machine(fabric=plan.fabric_with_circuits(5), accelerator="v100_32gb"))
    fixed.save(tmp_path / "plan.json")
    loaded = rostam.Plan.load(tmp_path / "plan.json")
    assert np.array_equal(loaded.circuits.count, fixed.circuits.count)
    assert rostam.simulate(loaded).to_json() == rostam.simulate(fixed).to_json()


def document_of(plan, path):
    plan.save(path)
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (["version"], 99, r"version 99 of rostam-plan; this rostam reads 1"),
        (["format"], "graph", r"is not a plan saved by rostam"),
        (
            ["stages", 0, "templates", "forward", "deps", 1, 0],
            7,
            r"stages\[0\]\.templates\.forward\.deps\[1\]\[0\] is 7",
        ),
        (
            ["stages", 0, "templates", "forward", "group", 1],
            "xp",
            r"stages\[0\]\.templates\.forward\.group\[1\] is 'xp'",
        ),
        (["stages", 1, "program", 0, "entries", 0, 0], "f", r"stages\[1\]\.program\[0\]\.entries\[0\]\[0\] is 'f'"),
        (["stages", 0, "program", 0, "count"], 0, r"program\[0\]\.count is 0; it must be an integer from 1"),
        (["kernels", "duration_s", 2], -1.0, r"kernels\.duration_s\[2\] is -1\.0; it must be a finite number >= 0"),
        (["kernels", "duration_s", 2], "1 s", r"kernels\.duration_s\[2\] is '1 s'"),
        (["machine", "fabric", "name"], "tree", r"machine\.fabric\.name is 'tree'; it must be one of:"),
        (["machine", "fabric", "parameters", "dims"], [0, 4], r"machine\.fabric.*dims"),
        (["machine", "fabric", "parameters", "size"], 1, r"fabric\.parameters has an unknown key 'size'; keys are"),
        (["machine", "launch_latency"], "1 parsec", r"machine is refused: machine\.launch_latency"),
        (["strategy", "dp"], 0, r"strategy is refused: strategy\.dp is 0"),
        (["groups", 0, "kind"], "tpp", r"groups\[0\] is refused: unknown group kind 'tpp'"),
        (["devices", "base64"], "AAAA", r"devices holds 3 bytes; its shape \[8\] needs 64"),
        (["devices", "type"], "object", r"devices\.type is 'object'; it must be one of: int64, float64"),
        (["batches", "micro_batch"], 1.5, r"batches\.micro_batch is 1\.5; it must be an integer"),
    ],
)
def test_a_changed_file_is_refused_with_file_and_place(mlp, place, value, words, tmp_path):
    document = document_of(placed(mlp, "pipeline on a torus"), tmp_path / "plan.json")
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=rf"plan\.json.*{words}"):
        rostam.Plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\x1f\x8bnone", gzip.compress(b"{}", mtime=0)[:-6], b"\xff\xfe", b"null", b"5"]
)
def test_what_is_no_plan_is_refused(data, tmp_path):
    (tmp_path / "plan.json.gz").write_bytes(data)
    with pytest.raises(ConfigError, match=r"plan\.json\.gz.* is not a plan saved by rostam"):
        rostam.Plan.load(tmp_path / "plan.json.gz")
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.json"):
        rostam.Plan.load(tmp_path / "absent.json")


def test_any_mutation_is_loaded_and_simulated_or_refused_never_a_crash(mlp, tmp_path, mutations):
    document = document_of(placed(mlp, "pipeline on a torus"), tmp_path / "plan.json")
    refused = run = unnamed = 0
    for _, changed in mutations(document, 600):
        (tmp_path / "plan.json").write_text(json.dumps(changed))
        try:
            plan = rostam.Plan.load(tmp_path / "plan.json")
        except ConfigError as error:
            unnamed += "plan.json" not in str(error)
            refused += 1
            continue
        try:  # what is legal by itself may not fit together: a receive without its send, a group of other devices
            rostam.simulate(plan, max_iterations=2)
        except RostamError:
            refused += 1
            continue
        run += 1
    assert refused > 400
    assert not unnamed
    assert run > 20


def test_a_saved_plan_runs_from_the_command_line(tmp_path, capsys, cached_traces):
    first, again = tmp_path / "first", tmp_path / "again"
    options = ["model=gpt_125m", "fabric=torus_8x8", "strategy.tp=4", "global_batch=64"]
    assert main(["run", *options, "save_plan=true", f"out={first}", "--json"]) == 0
    assert main(["run", f"plan={first}/plan.json.gz", f"out={again}", "--json"]) == 0
    results = [json.loads((folder / "result.json").read_text()) for folder in (first, again)]
    bars = [result.pop("error_bar") for result in results]
    assert results[0].pop("compute_by_basis_s")
    assert results[0] == results[1]
    assert bars[0]["low_s"] < results[0]["first_iteration_s"]
    assert "read from a file" in bars[1]["absent"]  # it holds times, and not what they rest on
    capsys.readouterr()
    assert main(["run", f"plan={first}/plan.json.gz", "strategy.tp=8"]) == 2
    assert "'strategy.tp=8' cannot change a saved plan" in capsys.readouterr().err
