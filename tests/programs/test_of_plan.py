"""Plans as programs: the same times to the picosecond, and the same bytes, saved and read again."""

import json

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.programs import Program


@pytest.fixture(scope="module")
def mlp():
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
    return rostam.trace(model, torch.empty(8, 256), loss_fn=lambda y: y.sum(), name="mlp")


PLANS = {
    "pipeline on a torus": (("torus", {"dims": (2, 4)}), {"dp": 2, "tp": 2, "pp": 2}, {}),
    "interleaved": (("torus", {"dims": (2, 4)}), {"dp": 4, "pp": 2, "virtual_stages": 2, "micro_batch": 1}, {}),
    "several NICs, other places": (
        ("fat_tree", {"num_accelerators": 16, "levels": 2, "radix": 8, "server_size": 4}),
        {"dp": 16, "mapping": [5, 3, 0, 15, 9, 1, 12, 4, 7, 10, 2, 14, 6, 8, 13, 11]}, {},
    ),
    "on circuits": (("sip_ocs", {"num_accelerators": 8}), {"dp": 2, "mp": 4, "placer": "sip_ml"}, {}),
    "a ring by name": (("hammingmesh", {"board": (2, 2), "boards": (2, 1)}),
                       {"dp": 8, "algorithms": {"all_reduce": "ring"}, "bucket_size": "0.2 MB"}, {}),
    "late launches": (("torus", {"dims": (2, 4)}), {"dp": 8}, {"launch_latency": "7 us", "slow": {2: 0.5}}),
}  # fmt: skip


def placed(mlp, name):
    (fabric, parameters), strategy, physics = PLANS[name]
    machine = rostam.Machine(fabric=rostam.fabric(fabric, **parameters), accelerator="v100_32gb", **physics)
    return rostam.place(mlp, machine, global_batch=64, strategy=rostam.Strategy.of(**strategy), software="ideal")


def loaded(plan, path):
    """Return a plan's program, written and read again, on the plan's accelerators."""
    Program.of(plan).save(path)
    return Program.load(path).on(plan.machine, accelerators=plan.devices.tolist())


SAID = (
    "iteration_times_s", "first_iteration_s", "breakdown_s", "critical_path_s", "critical_tasks", "bytes_sent",
    "num_messages", "algorithms", "compute_by_family_s", "busiest_links", "memory_bytes", "circuits",
)  # fmt: skip


def assert_alike(program, plan):
    """Assert that a program's result says what the plan's says, where both say something."""
    own, its = program.to_dict(), plan.to_dict()
    for key in SAID:
        assert own.get(key) == its.get(key), key
    assert program._ends_ps.tolist() == plan._ends_ps.tolist()


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_written_as_a_program_takes_the_same_time_to_the_picosecond(mlp, name, tmp_path):
    plan = placed(mlp, name)
    program = loaded(plan, tmp_path / "program.json")
    for options in ({}, {"fold": False}, {"fuse": False}):
        assert_alike(rostam.simulate(program, seed=3, **options), rostam.simulate(plan, seed=3, **options))


@pytest.mark.parametrize("software", ["torchtitan", "megatron_core"])
def test_a_stack_on_its_hosts_takes_the_same_time(software, tmp_path):
    machine = rostam.Machine(fabric=rostam.fabric("torus", dims=(2, 4)), accelerator="h100_80gb")
    strategy = rostam.Strategy(dp=2, tp=2, pp=2)
    plan = rostam.place(rostam.trace("gpt_125m"), machine, global_batch=16, strategy=strategy, software=software)
    program = loaded(plan, tmp_path / "program.json.gz")
    assert_alike(rostam.simulate(program), rostam.simulate(plan))


def test_a_program_keeps_a_plans_groups_as_rules_and_its_repeats(mlp, tmp_path):
    plan = placed(mlp, "pipeline on a torus")
    Program.of(plan).save(tmp_path / "program.json")
    document = json.loads((tmp_path / "program.json").read_text())
    assert document["groups"] == {
        "tp": {"kind": "tp", "size": 2}, "dp": {"size": 2, "stride": 4}, "pp": {"kind": "pp", "size": 2, "stride": 2},
    }  # fmt: skip
    assert document["roles"]["stage 1"]["ranks"] == ["2-3", "6-7"]
    written = sum(len(role["iteration"]) for role in document["roles"].values())
    assert written <= sum(len(stage.program) for stage in plan.stages)


@pytest.mark.parametrize("name", PLANS)
def test_a_program_sends_what_its_plan_does(mlp, name):
    plan = placed(mlp, name)
    assert Program.of(plan).messages() == plan.messages()


def test_a_program_moves_to_another_fabric_and_chooses_its_algorithms_there(mlp):
    plan = placed(mlp, "pipeline on a torus")
    program = Program.of(plan)
    tree = rostam.Machine(
        fabric=rostam.fabric("fat_tree", num_accelerators=8, levels=2, radix=8), accelerator="v100_32gb"
    )
    moved = rostam.simulate(program.on(tree))
    assert moved.iteration_time_s == rostam.simulate(plan.on(tree)).iteration_time_s


def test_what_a_program_cannot_say_yet_is_refused_by_name(mlp):
    machine = rostam.Machine(fabric=rostam.fabric("torus", dims=(2, 4)), accelerator="v100_32gb")
    strategy = rostam.Strategy(dp=8, max_circuit_degree=7)
    plan = rostam.place(mlp, machine, global_batch=64, strategy=strategy, software="ideal")
    with pytest.raises(ConfigError, match="max_circuit_degree"):
        Program.of(plan)
