"""When ZeRO's gathers and reductions run, against timelines computed by hand, to the picosecond per step.

Six equal blocks, each a product with a ReLU at its end, on four devices; backward of a block is the ReLU's and then the
products (of block 0 that of the weight alone). A ring's all-gather and
reduce-scatter of a block's weights W last g = 3 ceil(W / 4) / B each; two at once on the same links 2 g each.
"""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.plan import Strategy

N, WIDTH, BATCH, D = 6, 1024, 4096, 4
W = 4 * WIDTH * WIDTH
RING = {"all_gather": "ring", "reduce_scatter": "ring", "all_reduce": "ring"}


class Block(nn.Module):
    """A product and a ReLU."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        """Apply them."""
        return torch.relu(self.linear(x))


@pytest.fixture(scope="module")
def stack():
    """Six blocks in a row."""
    module = nn.Sequential(*(Block() for _ in range(N)))
    return rostam.trace(module, torch.randn(4, WIDTH), loss_fn=lambda y: (y * y).mean(), name="stack")


def planned(graph, bandwidth, **settings):
    """Return the plan on four devices of one ideal switch without latencies."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=D, link_bandwidth=bandwidth, latency=0.0)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    kernels = {"fusion": "producer"}  # a block is one kernel, as the drawings have it
    strategy = Strategy.of(
        dp=D, precision="fp32", optimizer="adam", algorithms=RING, bucket_size="4 MB", **kernels, **settings
    )
    return rostam.place(graph, machine, global_batch=D * BATCH, strategy=strategy, cost="roofline", software="ideal")


def seconds_of(plan):
    """Return (forward, backward, optimizer, one backward ReLU, what precedes backward's products)."""
    templates = plan.stages[0].templates
    kernels = {name: [k for t in tasks if not t.is_optimizer for k in t.kernels] for name, tasks in templates.items()}
    relu_back = next(k.duration_s for k in kernels["backward"][::-1] if "threshold" in k.op_type)
    products = [i for i, k in enumerate(kernels["backward"]) if ".mm." in k.op_type]
    lead = sum(k.duration_s for k in kernels["backward"][: products[0]])
    step = sum(t.duration_s for t in templates["backward_last"] if t.is_optimizer)
    both = (sum(k.duration_s for k in kernels[name]) for name in ("forward", "backward"))
    return (*both, step, relu_back, lead)


def product_s(plan):
    """Return the seconds of one forward product."""
    return next(k.duration_s for t in plan.stages[0].templates["forward"] for k in t.kernels)


def gather_s(bandwidth):
    """Return g."""
    return (D - 1) * (W // D) / bandwidth


def test_with_free_communication_every_level_takes_the_compute_of_level_0_and_a_shorter_optimizer(stack):
    forward, backward, step, *_ = seconds_of(planned(stack, 1e11))
    for settings in (
        {"shard": 1}, {"shard": 1, "overlap_param_gather": True}, {"shard": 2}, {"shard": 3},
        {"shard": 3, "prefetch": 0}, {"shard": 3, "shard_group": 2}, {"shard": 3, "reshard_after_forward": False},
    ):  # fmt: skip
        plan = planned(stack, 1e18, **settings)
        share = seconds_of(plan)[2]
        assert share == pytest.approx(step / plan.strategy.state_sharding.degree, rel=1e-3)
        took = rostam.simulate(plan).iteration_time_s
        assert took == pytest.approx(forward + backward + share, abs=1e-9), settings


def test_a_unit_ahead_exposes_the_first_gather_of_forward_and_backward_and_the_last_reduction(stack):
    bandwidth = 1e11
    plan = planned(stack, bandwidth, shard=3)
    forward, backward, step, relu_back, lead = seconds_of(plan)
    g = gather_s(bandwidth)
    assert 2 * g < forward / N
    assert 2 * g < (backward - lead) / N - relu_back, "a gather and a reduction at once are hidden by a block"
    expected = g + forward + max(g, lead) + (backward - lead) + g + step
    assert rostam.simulate(plan).iteration_time_s == pytest.approx(expected, abs=1e-9)


def test_without_prefetch_every_gather_waits_for_the_unit_before_and_runs_beside_its_reduction(stack):
    bandwidth = 2e9
    plan = planned(stack, bandwidth, shard=3, prefetch=0)
    forward, backward, step, relu_back, lead = seconds_of(plan)
    g = gather_s(bandwidth)
    assert lead < g
    ahead = N * g + forward
    # in backward a unit is gathered while the one before is reduced: 2 g each, of which the ReLU hides a part
    behind = (g - lead) + backward + (N - 1) * (2 * g - relu_back)
    assert rostam.simulate(plan).iteration_time_s == pytest.approx(ahead + behind + g + step, abs=1e-9)


def test_weights_that_are_kept_for_backward_are_not_waited_for_again(stack):
    bandwidth = 2e9
    plan = planned(stack, bandwidth, shard=3, reshard_after_forward=False, prefetch=100)
    forward, backward, step, *_ = seconds_of(plan)
    g, loss = gather_s(bandwidth), forward - N * product_s(plan)
    assert g > product_s(plan), "gathers follow one another, and each block waits for its own"
    result = rostam.simulate(plan)
    # the last block's product and the loss are behind the gathers; reductions follow one another behind the first
    first = next(k for k, t in enumerate(plan.stages[0].templates["backward_last"]) if t.group == "dp")
    before = sum(t.duration_s for t in plan.stages[0].templates["backward_last"][:first])
    expected = N * g + product_s(plan) + loss + max(before + N * g, backward + g) + step
    assert result.iteration_time_s == pytest.approx(expected, abs=1e-9)
    assert result.breakdown["zero"] == pytest.approx(N * g - (N - 1) * product_s(plan), rel=1e-6)


def test_updated_weights_are_gathered_behind_the_optimizer_or_during_the_next_forward(stack):
    bandwidth = 1e11
    g = gather_s(bandwidth)
    for overlap, exposed in ((False, N * g), (True, g)):
        plan = planned(stack, bandwidth, shard=1, overlap_param_gather=overlap)
        forward, backward, step, *_ = seconds_of(plan)
        assert 2 * g < forward / N
        result = rostam.simulate(plan)
        assert result.iteration_time_s == pytest.approx(forward + backward + g + step + exposed, abs=1e-9), overlap
        assert result.breakdown["zero"] == pytest.approx(exposed, rel=1e-6)


def test_bytes_sent_are_zeros_formulas(stack):
    weights = N * W
    for settings, gathered, reduced in (
        ({"shard": 1}, 1, 1), ({"shard": 2, "micro_batch": BATCH // 2}, 1, 2), ({"shard": 3}, 2, 1),
        ({"shard": 3, "reshard_after_forward": False}, 1, 1), ({"shard": 3, "micro_batch": BATCH // 2}, 4, 2),
    ):  # fmt: skip
        result = rostam.simulate(planned(stack, 1e11, **settings))
        assert result.bytes_sent["zero"] == D * gathered * (D - 1) * weights // D, settings
        assert result.bytes_sent["dp"] == D * reduced * (D - 1) * weights // D, settings
        assert result.bytes_sent == result.bytes_received
