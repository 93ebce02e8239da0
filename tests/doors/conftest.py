"""Whole files of every kind that rostam reads, made once a test run: what the mutants are made of."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.costs.table import CostTable, Entry, op_key, optimizer_key
from rostam_py.sweep import run_sweep
from tests.programs.sample import PIPELINE, RING

MEASURED = """# from our own cluster
name,model,machine,machine.servers,strategy.tp,global_batch,accelerator,time_s
one,gpt_125m,dgx_a100,1,2,64,,1.5
two,gpt_125m,dgx_a100,2,1,64,,2.5
"""
TABLE = """title: a table
source: a paper
common: {machine: {name: dgx_a100, servers: 1}}
bounds: {time: {mean: 10, worst: 20}}
rows:
- {name: one, model: gpt_125m, strategy: {tp: 2}, global_batch: 64, measured: {time_s: 1.5}}
- {name: two, model: gpt_125m, global_batch: 64, measured: {samples_per_s: 50}, shape: {sequence: 2048}}
"""
CURVE = """# target: 75.9% top-1
# samples_per_epoch: 1281167
# form: fit
batch,epochs
4096,40
8192,42
16384,50
"""
LINKS = """src,dst,bandwidth,latency,count,cable_usd,port_usd
gpu0,s0,400 Gb/s,5 us,1,100,50
gpu1,s0,400 Gb/s,5 us,2,100,50
gpu2,s0,50 GB/s,1 us,1,100,50
"""
FABRIC = "# A tree of mine\ndefaults: [fat_tree, _self_]\nnum_accelerators: 16\nlink_bandwidth: 100 Gb/s\nradix: 8\n"
STRATEGY = "# A strategy of mine\ntp: 2\nprecision: bf16_mixed\nalgorithms: {all_reduce: ring}\n"
EXPERIMENT = "# @package _global_\n# An experiment of mine\nmodel: gpt_125m\nglobal_batch: 64\nstrategy: {tp: 2}\n"
ROWS = (
    "model=gpt_125m",
    "sweep.rows=[{label: a, strategy.tp: 2},{label: b, fabric: torus_8x8}]",
    "sweep.grid={global_batch: [64, 128]}",
)


def traced():
    """Return a graph of four layers."""
    model = nn.Sequential(*(layer for _ in range(2) for layer in (nn.Linear(64, 64), nn.ReLU())))
    return rostam.trace(model, torch.empty(8, 64), loss_fn=lambda y: y.sum(), name="mlp")


def _run_folder(plan: Path, out: Path) -> None:
    status = main(["run", f"plan={plan}", "timeline=true", "sensitivity=false", f"out={out}"])
    assert status == 0


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a whole file of every kind."""
    folder = tmp_path_factory.mktemp("whole")
    graph = traced()
    graph.save(str(folder / "graph.json"))
    graph.save(str(folder / "graph.json.gz"))
    links = [(f"a{k}", "s0", 1e9) for k in range(4)]
    machine = rostam.Machine(
        fabric=rostam.fabric("custom", links=links), accelerator="v100_32gb", slow={1: 0.5}, launch_latency="2 us"
    )
    plan = rostam.place(graph, machine, global_batch=32, strategy=rostam.Strategy(dp=2, tp=1, pp=2), software="ideal")
    plan.save(str(folder / "plan.json"))
    rostam.TaskGraph.of(plan).save(str(folder / "tasks.json"))
    (folder / "program.json").write_text(RING)
    PIPELINE.save(folder / "stages.json")
    table = CostTable({
        "model": "mlp", "device": "test", "accelerator": "cpu_local", "torch": "2", "threads": 1, "precision": "fp32",
        "optimizer": "sgd", "batches": [2, 8], "clock": "none",
    })  # fmt: skip
    for op in graph.ops:
        if not op.is_metadata:
            table.entries[op_key(op, graph)] = Entry(op.op_type, {2: 1e-3, 8: 4e-3}, [1.0, 2.0], [3.0, 4.0])
    table.entries[optimizer_key("sgd", graph)] = Entry("optimizer.sgd", {1: 1e-4}, num_parameters=2048)
    table.save(folder / "costs.json")
    for name, text in (
        ("measured.csv", MEASURED), ("table.yaml", TABLE), ("curve.csv", CURVE), ("links.csv", LINKS),
        ("fabric.yaml", FABRIC), ("strategy.yaml", STRATEGY), ("experiment.yaml", EXPERIMENT),
    ):  # fmt: skip
        (folder / name).write_text(text)
    _run_folder(folder / "plan.json", folder / "run")
    base = {"model": "graph:mlp", "fabric": {"name": "electrical_flat", "num_accelerators": 4}, "global_batch": 32}
    run_sweep(
        base, grid={"seed": [0, 1], "strategy.tp": [1, 2]}, graphs={"mlp": graph}, backend="inline",
        out=folder / "sweep", details=1,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def kernels() -> bytes:
    """Return a kernel table of a series with few rows, as JSON."""
    from rostam_py.costs.kernel_table import TABLES

    document = json.loads((TABLES / "a100_80gb.kernels.json").read_text())
    document["series"] = document["series"][:2]
    for one in document["series"]:
        one["rows"] = one["rows"][:4]
    return json.dumps(document).encode()
