"""Search estimates of plans that share state, against their simulations."""

import random
import statistics

import rostam_py as rostam
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.placement.megatron.played_pipeline import NEVER, Lag, Pipeline, TemplateTiming
from rostam_py.placement.schedule import stage_program
from rostam_py.plan.strategy_names import PLACERS

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
    return rostam.Strategy.of(precision="bf16_mixed", optimizer="adam", recompute=recompute, **settings)


def test_what_a_micro_batch_still_reduces_is_in_the_way_of_the_next_one():
    # A forward takes 1 s; a backward 2 s, and from 1 s on it reduces for 4 s; an optimizer of 0.5 s follows the last.
    # 1F1B of three micro-batches: stage 0 begins backward at 2, 5 and 7 s and reduces until 7, 11 and 15 s; stage 1
    # begins it at 1, 4 and 7 s and reduces until 6, 10 and 14 s.
    assert played(beside_s=0.0, busy_s=0.0) == 15.5
    # Forwards gather weights over the same links: beside reductions half a second longer, and those a second.
    # Stage 0 begins backward at 2, 5.5 and 7.5 s and reduces until 7 + 1, 12 and 16 s; stage 1 at 1, 4.5 and 8 s,
    # until 6 + 1, 11 + 1 and 16 s.
    assert played(beside_s=0.5, busy_s=1.0) == 16.5


def played(beside_s, busy_s):
    def timing(compute_s, reduced_s, lag_s, behind_s):
        lag = Lag(behind_s, [behind_s, lag_s], [], *((0.0, 0.0) if lag_s else (beside_s, busy_s)))
        return TemplateTiming(compute_s, max(compute_s, reduced_s), [], [], [compute_s, reduced_s], {1: lag})

    stage = {
        "forward": timing(1.0, 0.0, 0.0, NEVER),
        "backward": timing(2.0, 5.0, 4.0, NEVER),
        "backward_last": timing(5.5, 5.0, 4.0, 4.5),
    }

    def program(stage, num_microbatches):
        return stage_program("1f1b", stage, 2, num_microbatches, 1)

    return Pipeline(program, [stage, stage], None).iteration_s(3)


def test_estimates_are_within_two_percent_of_simulations_at_the_median_and_none_is_far(gpt):
    rng, errors = random.Random(1), {True: [], False: []}
    for _ in range(36):
        name = rng.choice(sorted(FABRICS))
        fabric = rostam.fabric(name, num_accelerators=16, **FABRICS[name])
        strategy = drawn(rng)
        plan = rostam.place(gpt, rostam.Machine(fabric=fabric, accelerator="a100_80gb"), global_batch=32,
                            strategy=strategy, software="ideal")  # fmt: skip
        estimator = PLACERS.get("megatron")(strategy, "roofline", None).estimator(plan)
        estimate = estimator.estimate(plan, fabric, AxisCosts(plan, fabric, "spray", {})).iteration_time_s
        errors[strategy.pp == 1].append(abs(estimate / rostam.simulate(plan).iteration_time_s - 1))
    assert statistics.median(errors[True]) < 0.02
    assert max(errors[True]) < 0.15
    assert statistics.median(errors[False]) < 0.05
    assert max(errors[False]) < 0.20
