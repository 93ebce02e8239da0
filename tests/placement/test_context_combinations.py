"""Random small strategies that split sequences, with all other axes, on four fabrics: the invariants of every plan."""

import random

import pytest

import rostam_py as rostam
from rostam_py.errors import DegreeError
from rostam_py.models import llama

NUM_CASES = 12
FABRICS = {
    "tree": {"name": "fat_tree", "num_accelerators": 16, "radix": 8},
    "servers": {"name": "fat_tree", "num_accelerators": 16, "radix": 16, "server_size": 4},
    "torus": {"name": "torus", "dims": [4, 4]},
    "flat": {"name": "electrical_flat", "num_accelerators": 16},
}


@pytest.fixture(scope="module")
def graph():
    """Four layers of a small Llama: 8 query and 4 key heads, 256 tokens."""
    config = llama.Config(
        num_layers=4, width=64, num_heads=8, num_key_heads=4, hidden=96, vocabulary=512, sequence_length=256
    )
    return rostam.trace(llama.build("llama", config))


def drawn(seed):
    """Return a fabric's name and the settings of a strategy on 16 accelerators."""
    rng = random.Random(seed)
    degrees = [(c, t, p) for c in (2, 4, 8) for t in (1, 2, 4) for p in (1, 2, 4) if 16 % (c * t * p) == 0]
    cp, tp, pp = rng.choice(degrees)
    order = rng.sample(["tp", "cp", "pp", "dp"], 4)
    return rng.choice(list(FABRICS)), {
        "cp": cp, "tp": tp, "pp": pp, "dp": 16 // (cp * tp * pp), "rank_order": ",".join(order),
        "cp_algorithm": rng.choice(["ring", "all_gather", "ulysses", "torch"]), "micro_batch": rng.choice([1, 2]),
        "sequence_parallel": tp > 1 and rng.random() < 0.5, "asynchronous_tp": rng.random() < 0.7,
        "shard": rng.choice([0, 0, 1, 2, 3]), "recompute": rng.choice(["none", "selective", "full"]),
        "schedule": rng.choice(["1f1b", "gpipe"]), "precision": "bf16_mixed",
    }  # fmt: skip


def held_by(plan, device):
    """Return which part of which stage a device holds: its tp rank and stage."""
    return int(device) % plan.strategy.tp, int(plan.stage_of[device])


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_a_plan_conserves_bytes_reduces_gradients_once_and_folds(graph, seed):
    name, settings = drawn(seed)
    fabric = dict(FABRICS[name])
    machine = rostam.Machine(
        fabric=rostam.fabric(fabric.pop("name"), **fabric, link_bandwidth="100 Gb/s"), accelerator="a100_80gb"
    )
    strategy = rostam.Strategy.of(**settings)
    if settings["cp_algorithm"] == "ulysses" and 8 % (settings["cp"] * settings["tp"]):
        with pytest.raises(DegreeError, match="must divide the 8 query heads"):
            rostam.place(graph, machine, global_batch=16, strategy=strategy, software="ideal")
        return
    plan = rostam.place(graph, machine, global_batch=16, strategy=strategy, software="ideal")
    folded, whole = (rostam.simulate(plan, fold=fold) for fold in (True, False))
    assert folded.iteration_time_s == pytest.approx(whole.iteration_time_s, rel=1e-6)
    assert folded.bytes_sent == folded.bytes_received == whole.bytes_sent
    assert sum(folded.breakdown.values()) == pytest.approx(folded.iteration_time_s, rel=1e-6)
    # The groups that reduce gradients are all devices that hold the same part of the same stage, each once.
    reducing = plan.group_set("dp").members
    assert sorted(reducing.ravel().tolist()) == list(range(16))
    for row in reducing:
        assert len({held_by(plan, device) for device in row}) == 1
        assert len(row) == strategy.dp * strategy.cp
    # Ranks of a sequence hold the same part as well, and are next to each other among those.
    for row in plan.group_set("cp").members:
        assert len({held_by(plan, device) for device in row}) == 1
        assert any(set(row.tolist()) <= set(of.tolist()) for of in reducing)
