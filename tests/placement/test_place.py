"""place: what it passes on, and the errors a user can cause."""

import pytest

from rostam_py.errors import ConfigError, DegreeError, UnknownNameError
from rostam_py.placement import place
from rostam_py.plan import Machine, Strategy


def test_graphs_precision_and_optimizer_are_the_defaults(gpt, placed):
    default, named = placed(gpt, Strategy(), 1), placed(gpt, Strategy(precision="fp16_mixed", optimizer="adam"), 1)
    assert (gpt.default_precision, gpt.default_optimizer) == ("fp16_mixed", "adam")
    assert default.stages == named.stages


def test_constant_costs_reach_the_kernels_of_their_modules(gpt, placed):
    times = {"blocks.0": [0.5, 0.25], "blocks.1": [0.125, 0.0625]}
    plan = placed(gpt, Strategy(), 1, cost="constant", cost_config={"modules": times, "forward_s": 4.0})
    kernels = [k for t in plan.stages[0].templates["forward"] for k in t.kernels]
    for block, (forward_s, _) in times.items():
        found = sum(k.duration_s for k in kernels if k.module.startswith(block))
        assert found == pytest.approx(forward_s), block


def test_min_kernel_time_of_the_machine_floors_every_kernel(gpt, placed):
    plan = placed(gpt, Strategy(), 1, physics={"min_kernel_time": "1 ms"})
    kernels = [k for t in plan.stages[0].templates["forward"] for k in t.kernels]
    assert min(k.duration_s for k in kernels) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("strategy", "options", "error", "words"),
    [
        (Strategy(dp=16), {}, DegreeError, ["16", "8 healthy accelerators"]),
        (Strategy(dp=8), {"global_batch": 12}, DegreeError, ["global_batch is 12", "strategy.dp = 8"]),
        (Strategy(dp=8), {"cost": "rooflin"}, UnknownNameError, ["rooflin", "did you mean 'roofline'"]),
        (Strategy(dp=8), {"cost_config": {"peak": 1}}, ConfigError, ["'peak'", "min_kernel_time"]),
        (Strategy(pp=8, precision="bf16_mixed"), {"accelerator": "v100_32gb"}, ConfigError, ["v100_32gb", "bf16"]),
    ],
)
def test_user_errors_name_what_is_wrong(gpt, flat_fabric, strategy, options, error, words):
    options = {"global_batch": 8, "accelerator": "a100_80gb"} | options
    machine = Machine(fabric=flat_fabric(8), accelerator=options.pop("accelerator"))
    with pytest.raises(error) as raised:
        place(gpt, machine, strategy=strategy, **options, software="ideal")
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_plan_records_what_it_was_made_with(gpt, placed):
    plan = placed(gpt, Strategy(dp=2, micro_batch=2, algorithms={"all_reduce": "halving_doubling"}), 8)
    assert (plan.micro_batch, plan.num_microbatches, plan.global_batch) == (2, 2, 8)
    assert plan.algorithms["all_reduce"] == "halving_doubling"
    assert plan.memory_bytes == plan.stages[0].memory.total
    assert any("metadata ops vanished" in note for note in plan.notes)
