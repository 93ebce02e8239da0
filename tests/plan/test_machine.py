"""Machine: what decides how work starts is the machine's, and checked by its key."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, UnitError


def machine(**physics):
    return rostam.Machine(fabric=rostam.fabric("torus", dims=(2, 4)), **physics)


def test_physics_are_seconds_by_key():
    found = machine(launch_latency="3 us", min_kernel_time=0.0, comm_compute_fraction=0.25).physics
    assert found == {"launch_latency": 3e-6, "min_kernel_time": 0.0, "comm_compute_fraction": 0.25}
    assert machine().physics == {
        "launch_latency": 1e-6,
        "min_kernel_time": 1e-6,
        "comm_compute_fraction": "by channels",
    }


@pytest.mark.parametrize(
    ("physics", "error", "words"),
    [
        ({"launch_latency": "1 parsec"}, UnitError, r"machine\.launch_latency.*parsec"),
        ({"min_kernel_time": -1.0}, UnitError, r"machine\.min_kernel_time"),
        ({"comm_compute_fraction": 1.0}, ConfigError, r"machine\.comm_compute_fraction is 1\.0; .*\[0, 1\)"),
        ({"comm_compute_fraction": "much"}, ConfigError, r"machine\.comm_compute_fraction is 'much'"),
    ],
)
def test_physics_that_are_none_are_refused_by_key(physics, error, words):
    with pytest.raises(error, match=words):
        machine(**physics)


def test_failed_parts_are_the_fabrics(mlp_plan):
    broken = machine().with_failures(accelerators=[3])
    assert broken.healthy_accelerators == [0, 1, 2, 4, 5, 6, 7]


def test_a_plan_runs_on_a_machine_of_another_launch_latency_but_not_of_other_kernel_times(mlp_plan):
    late = mlp_plan.on(machine(launch_latency="50 us"))
    assert rostam.simulate(late).iteration_time_s > rostam.simulate(mlp_plan).iteration_time_s
    with pytest.raises(ConfigError, match=r"machine\.min_kernel_time is '5 us', but the plan's times are for '1 us'"):
        mlp_plan.on(machine(min_kernel_time="5 us"))


@pytest.fixture(scope="module")
def mlp_plan():
    import torch
    from torch import nn

    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
    graph = rostam.trace(model, torch.empty(8, 256), loss_fn=lambda y: y.sum(), name="mlp")
    return rostam.place(graph, machine(), global_batch=64, strategy=rostam.Strategy(dp=4, tp=2), software="ideal")
