"""What placers keep for one accelerator is not used for another of the same name."""

import dataclasses

import pytest
import torch

import rostam_py as rostam
from rostam_py.costs import get_accelerator
from rostam_py.plan.strategy_names import PLACERS


@pytest.mark.parametrize(("placer", "degrees"), [("megatron", {"tp": 2}), ("sip_ml", {"mp": 2})])
def test_an_accelerator_of_the_same_name_and_other_figures_is_placed_anew(placer, degrees):
    graph = rostam.trace(
        torch.nn.Linear(4096, 4096), (torch.zeros(1, 4096),), loss_fn=lambda out: out.sum(), name="one"
    )
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    known = get_accelerator("a100_80gb")
    slower = dataclasses.replace(
        known, peak_flops_per_s={kind: peak / 4 for kind, peak in known.peak_flops_per_s.items()},
        memory_bandwidth_bytes_per_s=known.memory_bandwidth_bytes_per_s / 4,
    )  # fmt: skip
    strategy, shared = rostam.Strategy.of(dp=1, placer=placer, **degrees), {}
    times = []
    for device in (known, slower):
        machine = rostam.Machine(fabric=fabric, accelerator=device)
        kept = PLACERS.get(placer)(strategy, "roofline", None, shared).place(graph, machine, 4096)
        fresh = rostam.place(graph, machine, global_batch=4096, strategy=strategy, cost="roofline", software="ideal")
        times.append(rostam.simulate(kept).iteration_time_s)
        assert times[-1] == rostam.simulate(fresh).iteration_time_s
    assert times[1] > 2 * times[0]
