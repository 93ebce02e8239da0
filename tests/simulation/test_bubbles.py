"""Bubbles of pipelines with equal stages and free communication, placed and simulated: the published formulas, exactly.

Legend: p stages, v chunks on each, m micro-batches; F, B, W = forward, input gradients, weight gradients of a stage.
"""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.placement.schedule import most_in_flight
from rostam_py.simulation.phase_spans import phase_spans

PS = 1e12
NUM_LAYERS = 48  # divides into 8 stages of 3 chunks
PIPELINES = [(2, 8), (2, 16), (4, 8), (4, 16), (8, 8), (8, 16)]
SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("1f1b", 2), ("1f1b", 3)]
# Of a matrix product with a weight, of one of two activations [ps].
EVEN, UNEVEN = (10**9, 0), (10**9, 250_000_000)


class Layer(nn.Module):
    """One product with a weight (in F, B and W each) and two of activations (two in F, four in B)."""

    def __init__(self, width):
        super().__init__()
        self.product = nn.Linear(width, width, bias=False)

    def forward(self, x):
        """Return a tensor of the same shape."""
        y = torch.relu(self.product(x))
        return torch.bmm(torch.bmm(y, y.transpose(1, 2)), y)


class Uniform(nn.Module):
    """Equal layers between an embedding, whose output needs a gradient, and a loss; both take no time here."""

    def __init__(self, width=16):
        super().__init__()
        self.words = nn.Embedding(32, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(NUM_LAYERS))

    def forward(self, tokens):
        """Return what the last layer makes of the tokens."""
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(scope="module")
def simulated():
    """Return a function: plan and result of the uniform model in a schedule, its products' times given."""
    tokens = torch.zeros(2, 8, dtype=torch.long)
    graph = rostam.trace(Uniform(), tokens, loss_fn=lambda y: (y * y).mean(), name="uniform")

    def run(p, m, times, **keys):
        # The largest message takes less than 1 ps, and the clock counts 1.
        fabric = rostam.fabric("electrical_flat", num_accelerators=p, accelerator_bandwidth=1e17, latency=0.0)
        machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
        strategy = rostam.Strategy.of(pp=p, precision="fp32", **keys)
        seconds = {"aten.mm.default": times[0] / PS, "aten.bmm.default": times[1] / PS}
        plan = rostam.place(
            graph,
            machine,
            global_batch=m,
            strategy=strategy,
            cost="constant",
            cost_config={"op_types": seconds},
            software="ideal",
        )
        return plan, rostam.simulate(plan, timeline=True)

    return run


def check_bubble(result, p, m, times, bubble_ps):
    """The iteration is its work and the bubble, and 1 ps for each message on its critical path."""
    weight, product = times
    work_ps = m * NUM_LAYERS // p * (3 * weight + 6 * product)
    messages = [segment for segment in result.critical_path() if segment.kind == "pp"]
    assert round(result.iteration_time_s * PS) == work_ps + bubble_ps + len(messages)
    assert result.first_iteration_s == result.iteration_time_s
    # Devices that wait are in a bubble: messages in transit are the rest.
    parts = {kind: seconds * PS for kind, seconds in result.breakdown.items() if seconds}
    assert parts["compute"] == pytest.approx(work_ps, abs=1)
    assert parts["bubble"] == pytest.approx(bubble_ps, abs=len(messages))
    assert set(parts) <= {"compute", "bubble", "pp"}


@pytest.mark.parametrize("times", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("schedule", "v"), SCHEDULES)
@pytest.mark.parametrize(("p", "m"), PIPELINES)
def test_the_bubble_is_p_less_one_over_m_v_of_the_work(simulated, p, m, schedule, v, times):
    _, result = simulated(p, m, times, schedule=schedule, virtual_stages=v)
    weight, product = times
    of_microbatch = NUM_LAYERS // p * (3 * weight + 6 * product)  # F + B + W
    check_bubble(result, p, m, times, (p - 1) * of_microbatch // v)


@pytest.mark.parametrize("times", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in PIPELINES if m >= 2 * p])
def test_the_bubble_of_zero_bubble_h1_is_that_of_f_and_b_less_w(simulated, p, m, times):
    _, result = simulated(p, m, times, schedule="zb_h1")
    weight, product = times
    layers = NUM_LAYERS // p
    forward, inputs, weights = (layers * t for t in (weight + 2 * product, weight + 4 * product, weight))
    check_bubble(result, p, m, times, (p - 1) * (forward + inputs - weights))


@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in PIPELINES if m >= 2 * p])
def test_the_bubble_of_dual_pipe_v_is_its_published_tables(simulated, p, m):
    # deepseek-ai/DualPipe, README: (PP / 2 - 1) (F&B + B - 3 W), PP = 2 p stages; a pair is F and B, which has W in it.
    _, result = simulated(p, m, EVEN, schedule="dual_pipe_v", virtual_stages=2)
    chunk = NUM_LAYERS // (2 * p) * EVEN[0]
    forward, full, weights = chunk, 2 * chunk, chunk
    check_bubble(result, p, m, EVEN, (p - 1) * (forward + full + full - 3 * weights))


@pytest.mark.parametrize(("p", "m"), PIPELINES)
def test_zero_bubble_v_leaves_no_bubble_between_iterations(simulated, p, m):
    _, result = simulated(p, m, EVEN, schedule="zb_v", virtual_stages=2)
    work_ps = m * NUM_LAYERS // p * 3 * EVEN[0]
    extra_ps = round(result.iteration_time_s * PS) - work_ps
    if m >= 2 * p - 1:  # nothing but messages of 1 ps each
        assert 0 <= extra_ps <= 4 * p * m
    else:
        assert extra_ps >= NUM_LAYERS // (2 * p) * EVEN[0]


def most_held(result, stage, *last_phases):
    """Return the most (chunk, micro-batch) pairs of a stage from the begin of a forward to the end of one of phases."""
    began, ended = {}, {}
    for span in phase_spans(result._names, result._timeline, iteration=0):
        if span.device != stage:
            continue
        if span.phase == "forward":
            began.setdefault((span.chunk, span.microbatch), span.start_ps)
        elif span.phase in last_phases:
            ended[span.chunk, span.microbatch] = span.end_ps
    assert set(began) == set(ended)
    steps = sorted([(time, -1) for time in ended.values()] + [(time, 1) for time in began.values()])
    held = [sum(change for _, change in steps[: k + 1]) for k in range(len(steps))]
    assert held[-1] == 0
    return max(held)


@pytest.mark.parametrize(("schedule", "v"), [*SCHEDULES, ("zb_h1", 1)])
@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 8), (8, 16), (8, 8)])
def test_stages_hold_the_activations_that_the_schedule_says(simulated, p, m, schedule, v):
    plan, result = simulated(p, m, UNEVEN, schedule=schedule, virtual_stages=v)
    for r, stage in enumerate(plan.stages):
        if schedule == "gpipe":
            expected = m
        elif v > 1:  # forwards ahead, and the one whose backward comes next
            expected = min(2 * (p - r - 1) + (v - 1) * p + 1, m * v)
        else:
            expected = min(p - r, m)
        assert most_held(result, r, "backward") == most_in_flight(stage.program) == expected
        if schedule == "zb_h1":
            assert most_held(result, r, "weight") == min(p, m)


@pytest.mark.parametrize(("schedule", "more"), [("dual_pipe_v", 1), ("zb_v", 0)])
@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 8), (8, 16)])
def test_stages_of_a_v_hold_as_many_chunks_as_there_are_stages(simulated, p, m, schedule, more):
    # The table of deepseek-ai/DualPipe: PP + 1 activations, PP = 2 p; ZB-V has 1F1B's memory, p whole stages.
    plan, result = simulated(p, m, EVEN, schedule=schedule, virtual_stages=2)
    for r, stage in enumerate(plan.stages):
        assert most_held(result, r, "backward", "full_backward") == most_in_flight(stage.program) == 2 * p + more
