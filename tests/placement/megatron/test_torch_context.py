"""PyTorch's context_parallel: messages, merging kernels and what waits for what, by hand.

Legend: s tokens, c ranks, n query and k key heads of size d; K = 2 x 2 (s/c) k d bytes of a rank's keys and values in
16 bits, Q = 2 (s/c) n d of its queries. A model of 2 layers, s 256, n 8, k 4, d 8.
"""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import llama
from rostam_py.plan import Strategy

TOKENS, LAYERS, HEADS, KEY_HEADS, SIZE, C = 256, 2, 8, 4, 8, 4
K, Q = 2 * 2 * (TOKENS // C) * KEY_HEADS * SIZE, 2 * (TOKENS // C) * HEADS * SIZE
SETTINGS = {"cp": C, "dp": 1, "cp_algorithm": "torch", "precision": "bf16_mixed"}
EAGER = {"fusion": "none"}
WORDS = ("contiguous)", "joined)", "merged)", "added)", "(outputs)", "(gradients of queries)", "keys and values)")


@pytest.fixture(scope="module")
def graph():
    config = llama.Config(
        num_layers=LAYERS, width=HEADS * SIZE, num_heads=HEADS, num_key_heads=KEY_HEADS, hidden=96, vocabulary=512,
        sequence_length=TOKENS,
    )  # fmt: skip
    return rostam.trace(llama.build("llama", config))


def kernels_of(plan, template):
    return [kernel for task in plan.stages[0].templates[template] for kernel in task.kernels]


def moved(plan, template):
    """Return bytes read and written by one layer's kernels beside attention."""
    found = [k.call for k in kernels_of(plan, template) if k.name.endswith(WORDS)]
    return sum(c.bytes_read for c in found) / LAYERS, sum(c.bytes_written for c in found) / LAYERS


@pytest.mark.parametrize("options", [{}, EAGER])
def test_keys_are_gathered_in_both_phases_and_gradients_shifted_in_32_bits(placed, graph, options):
    stage = placed(graph, Strategy.of(**SETTINGS, **options), 1).stages[0]
    messages = {
        name: [(t.collective, t.num_bytes) for t in stage.templates[name] if t.group == "cp"]
        for name in ("forward", "backward")
    }
    assert messages["forward"] == [("all_gather", C * K)] * LAYERS
    assert messages["backward"] == [("all_gather", C * K), *[("shift", 2 * K)] * C] * LAYERS


def test_compiled_code_merges_in_one_kernel_a_block(placed, graph):
    plan = placed(graph, Strategy.of(**SETTINGS), 1)
    # Keys and values joined; block 2 reads both outputs in 16 bits, 3 and 4 one and the sum, the last writes 16 bits.
    assert moved(plan, "forward") == (K + 2 * Q + 2 * 3 * Q, K + 2 * 2 * Q + Q)
    # Joined; gradients: of one block, then of half the rows and what has come; the last arrival to 16 bits. Queries:
    # 16 bits, then those and the sum.
    read = K + (K + (C - 1) * (2 * K + K / 2) + 2 * K) + (Q + (C - 1) * 3 * Q)
    written = K + (C * 2 * K + K) + ((C - 1) * 2 * Q + Q)
    assert moved(plan, "backward") == (read, written)


def test_eager_code_merges_op_by_op(placed, graph):
    plan = placed(graph, Strategy.of(**SETTINGS, **EAGER), 1)
    # To contiguous, joined; to 32 bits; out - new, times the share, out - that: 5 operands, 3 results; to 16 bits.
    read = 2 * K + C * Q + (C - 1) * 5 * 2 * Q + 2 * Q
    written = 2 * K + C * 2 * Q + (C - 1) * 3 * 2 * Q + Q
    assert moved(plan, "forward") == (read, written)
    # Zeros of 32 bits for keys and values, a sum in place, joined; later a half's sum in place, both halves joined
    # (torch.cat of a sum and what came), joined for the message; the last arrival to 16 bits.
    read = 2 * K + (K + 4 * K) + (C - 1) * (K / 2 + K + 4 * K) + 2 * K
    written = 2 * K + 6 * K + (C - 1) * (K + 4 * K) + K
    # Queries: zeros, sums in place, to 16 bits.
    read += C * (Q + 2 * Q) + 2 * Q
    written += 2 * Q + C * 2 * Q + Q
    assert moved(plan, "backward") == (read, written)


@pytest.mark.parametrize("bandwidth", [1e12, 2e8, 1e8, 3e7, 1e6])
@pytest.mark.parametrize("is_eager", [False, True])
def test_eager_code_has_blocks_beside_messages_and_compiled_code_none(graph, bandwidth, is_eager):
    machine = rostam.Machine(
        fabric=rostam.fabric("electrical_flat", num_accelerators=C, link_bandwidth=bandwidth, latency=0.0),
        accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0,
    )  # fmt: skip
    strategy = Strategy.of(**SETTINGS, **(EAGER if is_eager else {}), algorithms={"all_reduce": "ring"})
    plan = rostam.place(  # published times are spread over FLOPs: kernels that move take none
        graph, machine, global_batch=1, strategy=strategy, cost="constant",
        cost_config={"forward_s": 0.010, "backward_s": 0.020}, software="ideal",
    )  # fmt: skip
    (stage,) = plan.stages
    counts = stage.program.counts().items()
    compute = sum(task.duration_s * n for name, n in counts for task in stage.templates[name])
    f, b = (
        next(k.duration_s for k in kernels_of(plan, name) if k.name.endswith(f"block 1 of {C})"))
        for name in ("forward", "backward")
    )
    gather, shift = (C - 1) * K / bandwidth, 2 * K / bandwidth
    if is_eager:
        exposed = max(f, gather) - f + max(b, gather) - b + (C - 1) * (max(b, shift) - b) + shift
    else:
        exposed = 2 * gather + C * shift
    reduced = sum(t.num_bytes * n for name, n in counts for t in stage.templates[name] if t.group == "dp")
    expected = compute + LAYERS * exposed + 2 * (C - 1) / C * reduced / bandwidth
    assert rostam.simulate(plan).iteration_time_s == pytest.approx(expected, rel=0.02)


def test_memory_is_that_of_a_ring(placed, graph):
    ring, torch = (
        placed(graph, Strategy.of(**SETTINGS | {"cp_algorithm": name}), 1).stages[0].memory
        for name in ("ring", "torch")
    )
    assert torch == ring


def test_masks_are_refused(placed):
    strategy = Strategy.of(**SETTINGS | {"cp": 2}, check_memory=False)
    with pytest.raises(ConfigError, match=r"cp_algorithm is 'torch'.*reads a mask.*must be 'ring' or 'all_gather'"):
        placed(rostam.trace("t5_11b", num_layers=1), strategy, 1)
