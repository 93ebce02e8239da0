"""Optimizer state in fewer bits: bytes by hand, the step's traffic by an enumeration of what it touches."""

import pytest

import rostam_py as rostam
from rostam_py.costs.optimizers import StateWidths, optimizer_traffic_bytes
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy

P, RANKS = 6_738_415_616, 8  # Llama 2 7B


@pytest.mark.parametrize(
    ("rules", "gigabytes"),
    [
        ({}, 10.11), ({"moment_precision": "bf16"}, 6.74), ({"moment_precision": "fp8"}, 5.05),
        ({"moment_precision": "bf16", "master_precision": "bf16"}, 5.05),
    ],
)  # fmt: skip
def test_llama_2_7b_over_eight_ranks(placed, rules, gigabytes):
    strategy = Strategy.of(dp=RANKS, shard=1, precision="bf16_mixed", optimizer="adam", check_memory=False, **rules)
    memory = placed(rostam.trace("llama2_7b"), strategy, RANKS).stages[0].memory
    width = {"fp32": 4, "bf16": 2, "fp8": 1}
    by_hand = width[rules.get("master_precision", "fp32")] + 2 * width[rules.get("moment_precision", "fp32")]
    assert memory.optimizer_state == by_hand * P // RANKS
    assert round(memory.optimizer_state / 1e9, 2) == gigabytes
    assert (memory.parameters, memory.gradients) == (2 * P, 4 * P)


def test_a_step_touches_each_value_once_each_way():
    gradient, master, moments, copy = 4, 2, 2, 2
    touched = [(gradient, "r"), (master, "rw"), (moments, "rw"), (moments, "rw"), (copy, "w")]
    read, written = (sum(size for size, how in touched if way in how) for way in "rw")
    assert optimizer_traffic_bytes("adam", "bf16_mixed", widths=StateWidths(master, moments)) == (read, written)


def test_the_step_takes_less_time(placed, twelve_layers):
    seconds = []
    for rules in ({}, {"moment_precision": "bf16"}):
        plan = placed(twelve_layers, Strategy.of(precision="bf16_mixed", optimizer="adam", **rules), 1)
        (step,) = (task for task in plan.stages[0].templates["backward_last"] if task.is_optimizer)
        seconds.append(step.duration_s)
    # Read and written with fp32 moments: 4 + 12 + 12 + 2 bytes a parameter; with bf16 ones 8 fewer.
    assert seconds[1] / seconds[0] == pytest.approx(22 / 30, rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"moment_precision": "int8"}, r"moment_precision is 'int8'; it must be one of: fp32, bf16, fp16, fp8"),
        ({"master_precision": "fp8"}, r"master_precision is 'fp8'; it must be one of: fp32, bf16, fp16"),
        (
            {"moment_precision": "bf16", "optimizer_kernels": "foreach"},
            r"needs software\.rules\.optimizer_kernels=fused",
        ),
        ({"master_precision": "bf16", "precision": "fp32"}, r"weights in fp32 have no master copy"),
    ],
)
def test_what_cannot_be_is_refused(keys, said):
    with pytest.raises(ConfigError, match=said):
        Strategy.of(**keys)
