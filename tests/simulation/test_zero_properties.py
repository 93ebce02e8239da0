"""Random strategies that share state: placed and simulated, bytes conserved, gradients reduced exactly once."""

import random
from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import mixtral

NUM_CASES = 30


@pytest.fixture(scope="module")
def mixed():
    """Two layers of 8 experts, 2 for a token."""
    config = mixtral.Config(
        num_layers=2, width=256, num_heads=8, num_key_heads=4, head_size=32, hidden=512, num_experts=8, per_token=2,
        vocabulary=1000, sequence_length=128,
    )  # fmt: skip
    return rostam.trace(mixtral.build("mixed", config))


def drawn(rng, has_experts):
    """Return a random strategy of 16 ranks that shares state, or None if the degrees do not fit."""
    tp, pp, cp = rng.choice((1, 2, 4)), rng.choice((1, 1, 2)), 1 if has_experts else rng.choice((1, 1, 2))
    shard = rng.choice((1, 2, 3))
    settings = {"dp": 16 // (tp * pp * cp), "tp": tp, "pp": pp, "cp": cp, "shard": shard, "micro_batch": 1}
    settings["sequence_parallel"] = tp > 1 and rng.random() < 0.5
    if has_experts:
        settings["ep"] = rng.choice((1, 2, 4))
    elif rng.random() < 0.4:
        settings["shard_group"] = rng.choice((2, 4))
    if shard == 3:
        settings |= {"prefetch": rng.choice((0, 1, 2)), "reshard_after_forward": rng.random() < 0.7}
    else:
        settings["overlap_param_gather"] = rng.random() < 0.5
    settings |= {"schedule": rng.choice(("1f1b", "gpipe")), "recompute": rng.choice(("none", "selective", "full"))}
    try:
        return rostam.Strategy.of(precision="bf16_mixed", optimizer="adam", **settings)
    except ConfigError:
        return None


def test_random_strategies_reduce_every_gradient_once_and_conserve_bytes(gpt, mixed):
    fabric = rostam.fabric("electrical_cluster", num_accelerators=16, server_size=8, server_bandwidth="400 Gb/s",
                           accelerator_bandwidth="1600 Gb/s")  # fmt: skip
    machine, rng, simulated = rostam.Machine(fabric=fabric, accelerator="a100_80gb"), random.Random(5), 0
    for _ in range(NUM_CASES):
        has_experts = rng.random() < 0.5
        strategy = drawn(rng, has_experts)
        if strategy is None:
            continue
        plan = rostam.place(
            mixed if has_experts else gpt, machine, global_batch=16, strategy=strategy, software="ideal"
        )
        alone = strategy.ep > 1 and strategy.num_expert_replicas == 1  # experts that no other rank holds
        for stage in plan.stages:
            for template in ("backward", "backward_last") if strategy.shard > 1 else ("backward_last",):
                reduced = Counter()
                for task in stage.templates[template]:
                    if task.collective == "reduce_scatter" and task.group.startswith("dp"):
                        reduced[task.group] += task.num_bytes
                whole = 4 * stage.num_parameters
                assert (sum(reduced.values()) < whole) if alone else (sum(reduced.values()) == whole), strategy
        result = rostam.simulate(plan, max_iterations=2)
        assert result.bytes_sent == result.bytes_received
        if simulated % 5 == 0:
            unfolded = rostam.simulate(plan, max_iterations=2, fold=False)
            assert unfolded.iteration_time_s == pytest.approx(result.iteration_time_s, abs=1e-9)
            assert unfolded.bytes_sent == result.bytes_sent
        simulated += 1
    assert simulated > NUM_CASES // 2
