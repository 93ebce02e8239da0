"""Random strategies over all axes: placed and simulated, or refused with a reason that names a key.

Every run: bytes sent = bytes received, the same folded and unfolded; the breakdown sums to the iteration; gradients
are reduced exactly once over the ranks that hold a parameter.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import deepseek, gpt, llama, mixtral
from rostam_py.plan import Strategy
from rostam_py.plan.strategy import CP_ALGORITHMS, RECOMPUTE, SCHEDULES

TOKENS, WIDTH, WORDS, EXPERTS = 64, 256, 64, 8
MOST_RANKS = 32
BYTES = {"fp32": 4, "bf16_mixed": 2}  # of a gradient
REDUCTIONS = ("all_reduce", "reduce_scatter")
SIZE = {"width": WIDTH, "vocabulary": WORDS, "sequence_length": TOKENS}


@pytest.fixture(scope="module")
def graphs():
    """Four small models: one with biases, grouped queries, experts, shared experts behind a dense layer."""
    routed = {"num_experts": EXPERTS, "per_token": 2}
    models = [
        gpt.build("dense", gpt.Config(num_layers=4, num_heads=4, **SIZE)),
        llama.build("grouped", llama.Config(num_layers=4, num_heads=8, num_key_heads=2, hidden=512, **SIZE)),
        mixtral.build(
            "routed",
            mixtral.Config(num_layers=4, num_heads=4, num_key_heads=2, head_size=64, hidden=512, **routed, **SIZE),
        ),
        deepseek.build(
            "shared",
            deepseek.Config(
                dense_layers=1, num_layers=3, num_heads=4, query_latent=32, key_latent=16, head_size=16, rotary_size=8,
                value_size=16, dense_hidden=512, hidden=256, num_groups=4, groups_per_token=2, **routed, **SIZE,
            ),
        ),
    ]  # fmt: skip
    return [rostam.trace(model) for model in models]


def random_strategy(rng):
    """Return keyword arguments of a strategy; some exclude each other."""

    def one_of(*values):
        return values[rng.integers(len(values))]

    keys = {
        "dp": one_of(1, 2, 4, 8), "tp": one_of(1, 1, 2, 4), "cp": one_of(1, 1, 1, 2, 4), "pp": one_of(1, 1, 2, 4),
        "ep": one_of(1, 1, 2, 4), "micro_batch": one_of(1, 2), "sequence_parallel": bool(rng.integers(2)),
        "cp_algorithm": one_of(*CP_ALGORITHMS), "shard": one_of(0, 0, 1, 2, 3), "shard_group": one_of(None, None, 2),
        "prefetch": one_of(0, 1, 2), "reshard_after_forward": bool(rng.integers(2)),
        "overlap_param_gather": bool(rng.integers(4) == 0), "recompute": one_of(*RECOMPUTE),
        "schedule": one_of(*SCHEDULES), "asynchronous_tp": bool(rng.integers(2)), "precision": one_of(*BYTES),
        "bucket_size": one_of("1 kB", "100 kB", "1 GB"), "virtual_stages": one_of(1, 1, 2),
        "tp_overlap": bool(rng.integers(4) == 0),
    }  # fmt: skip
    # Most of what excludes each other is drawn again, so that most strategies run.
    keys["sequence_parallel"] &= keys["tp"] > 1 and keys["schedule"] != "zb_h1"
    keys["tp_overlap"] &= keys["sequence_parallel"] and keys["asynchronous_tp"]
    if keys["pp"] == 1 or keys["schedule"] != "1f1b":
        del keys["virtual_stages"]
    for key in ("shard_group", "prefetch", "reshard_after_forward", "overlap_param_gather"):
        if keys["shard"] < (3 if key in ("prefetch", "reshard_after_forward") else 1):
            del keys[key]
    return keys


def random_machine(rng, num_accelerators):
    """Return A100s on one of three small fabrics."""
    name = ("electrical_flat", "electrical_cluster", "fat_tree")[rng.integers(3)]
    own = {"electrical_flat": {}, "electrical_cluster": {"server_size": 4}, "fat_tree": {"levels": 2, "radix": 16}}
    fabric = rostam.fabric(name, num_accelerators=num_accelerators, accelerator_bandwidth="400 Gb/s", **own[name])
    return rostam.Machine(fabric=fabric, accelerator="a100_80gb")


def place(graph, machine, keys, num_microbatches):
    """Return the plan, or None and why it is refused."""
    batch = keys["dp"] * keys["micro_batch"] * num_microbatches
    try:
        return rostam.place(graph, machine, global_batch=batch, strategy=Strategy(**keys)), ""
    except ConfigError as error:
        return None, str(error)


def reduced_bytes(plan, stage):
    """Return the bytes of gradients that a rank of a stage hands to reductions over replicas."""
    return sum(
        message.num_bytes * message.count
        for message in plan.messages()
        if stage in message.stages
        and message.group.startswith("dp")
        and message.kind in ("all_reduce", "reduce_scatter")
    )


def check(seed, graphs):
    """Return whether the strategy of a seed ran (otherwise it was refused)."""
    rng = np.random.default_rng(seed)
    graph, keys = graphs[rng.integers(len(graphs))], random_strategy(rng)
    num_ranks = keys["dp"] * keys["tp"] * keys["cp"] * keys["pp"]
    num_microbatches = int(2 ** rng.integers(4))
    if num_ranks > MOST_RANKS:
        return False
    machine = random_machine(rng, num_ranks)
    plan, refusal = place(graph, machine, keys, num_microbatches)
    if plan is None:
        assert any(f"strategy.{key}" in refusal for key in keys), (keys, refusal)
        return False
    folded = rostam.simulate(plan)
    unfolded = rostam.simulate(plan, fold=False, shortcuts=False)
    assert folded.iteration_time_s == pytest.approx(unfolded.iteration_time_s, rel=1e-6), keys
    for result in (folded, unfolded):
        assert result.bytes_sent == result.bytes_received, keys
        assert sum(result.breakdown.values()) == pytest.approx(result.iteration_time_s, abs=1e-9), keys
    assert folded.bytes_sent == unfolded.bytes_sent, keys
    if keys["dp"] * keys["cp"] > 1 and keys.get("shard_group") is None:
        check_gradients(plan, keys, num_microbatches)
    return True


def check_gradients(plan, keys, num_microbatches):
    """Every parameter's gradient is reduced once, or once a micro-batch where its ranks share gradients.

    An expert that one rank alone holds has none to reduce; padding of uneven shares adds less than 2%.
    """
    times = num_microbatches if keys["shard"] >= 2 else 1
    for index, stage in enumerate(plan.stages):
        whole = stage.num_parameters * BYTES[keys["precision"]] * times
        found = reduced_bytes(plan, index)
        assert found <= 1.02 * whole, (keys, index)
        if keys["ep"] == 1:
            assert found >= 0.98 * whole, (keys, index)


def test_strategies_over_all_axes_run_or_are_refused_with_a_reason(graphs):
    assert sum(check(seed, graphs) for seed in range(40)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_strategies_over_all_axes_run_or_are_refused_with_a_reason(graphs, part):
    assert sum(check(1000 * (part + 1) + seed, graphs) for seed in range(250)) >= 60
