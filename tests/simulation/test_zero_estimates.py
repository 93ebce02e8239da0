"""Search estimates of plans that share state, against their simulations."""

import random
import statistics

import rostam_py as rostam
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.plan.strategy import PLACERS

DEGREES = ((16, 1, 1), (8, 2, 1), (4, 4, 1), (4, 2, 2), (8, 1, 2), (4, 1, 4))
FABRICS = {
    "electrical_cluster": {"server_size": 8, "server_bandwidth": "400 Gb/s", "accelerator_bandwidth": "1600 Gb/s"},
    "fat_tree": {"radix": 8, "link_bandwidth": "200 Gb/s"},
    "electrical_flat": {"link_bandwidth": "800 Gb/s"},
}


def drawn(rng):
    """Return a random strategy of 16 ranks that shares state."""
    dp, tp, pp = rng.choice(DEGREES)
    shard = rng.choice((1, 2, 3, 3))
    settings = {"dp": dp, "tp": tp, "pp": pp, "shard": shard, "micro_batch": rng.choice((1, 2))}
    if rng.random() < 0.4:
        settings["shard_group"] = rng.choice((2, 4))
    if shard == 3:
        settings |= {"prefetch": rng.choice((0, 1, 2)), "reshard_after_forward": rng.random() < 0.7}
    else:
        settings["overlap_param_gather"] = rng.random() < 0.5
    recompute = rng.choice(("none", "full"))
    return rostam.Strategy(precision="bf16_mixed", optimizer="adam", recompute=recompute, **settings)


def test_estimates_are_within_two_percent_of_simulations_at_the_median_and_none_is_far(gpt):
    rng, errors = random.Random(1), {True: [], False: []}
    for _ in range(36):
        name = rng.choice(sorted(FABRICS))
        fabric = rostam.fabric(name, num_accelerators=16, **FABRICS[name])
        strategy = drawn(rng)
        plan = rostam.place(gpt, rostam.Machine(fabric=fabric, accelerator="a100_80gb"), global_batch=32,
                            strategy=strategy)  # fmt: skip
        estimator = PLACERS.get("megatron")(strategy, "roofline", None).estimator(plan)
        estimate = estimator.estimate(plan, fabric, AxisCosts(plan, fabric, "spray", {})).iteration_time_s
        errors[strategy.pp == 1].append(abs(estimate / rostam.simulate(plan).iteration_time_s - 1))
    assert statistics.median(errors[True]) < 0.02
    assert max(errors[True]) < 0.15
    assert statistics.median(errors[False]) < 0.10
    assert max(errors[False]) < 0.50
