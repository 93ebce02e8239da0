"""Copies around attention that Megatron-Core makes of one product of queries, keys and values, by hand.

Legend: T tokens of a micro-batch on a device, heads of 64 values: 2 T x 64 bytes for each head in bf16.
"""

from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.models import llama

TOKENS, SIZE, HEADS, KEY_HEADS = 256, 64, 8, 2
ONE = 2 * TOKENS * SIZE


def traced(num_key_heads=KEY_HEADS):
    config = llama.Config(
        num_layers=2, width=HEADS * SIZE, num_heads=HEADS, num_key_heads=num_key_heads, hidden=1024, vocabulary=1000,
        sequence_length=TOKENS,
    )  # fmt: skip
    return rostam.trace(llama.build("small", config))


@pytest.fixture(scope="module")
def graph():
    return traced()


def copies(graph, **options):
    """Return {(template, what is copied or joined): heads that a block moves each way} of one device."""
    machine = rostam.machine("dgx_h100", servers=1)
    strategy = rostam.Strategy.of(**({"dp": 8, "fusion": "modules", "precision": "bf16_mixed"} | options))
    stage = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal").stages[0]
    found = Counter()
    for template in ("forward", "backward_last"):
        for kernel in (k for task in stage.templates[template] for k in task.kernels):
            what = kernel.name.partition("(")[2].rstrip(")")
            if kernel.module.startswith("blocks.0.") and what.endswith(("copied", "joined")):
                assert kernel.call.bytes_read == kernel.call.bytes_written
                found[template, what] += kernel.call.bytes_read / ONE
    return found


def test_queries_and_values_are_copied_and_gradients_joined(graph):
    assert copies(graph) == {
        ("forward", "queries copied"): HEADS, ("forward", "values copied"): KEY_HEADS,
        ("backward_last", "gradients joined"): HEADS + 2 * KEY_HEADS,
    }  # fmt: skip


def test_queries_of_one_key_head_lie_together(graph):
    # Two members of tp have a key head each, and four samples instead of one: rows of queries, a key and a value.
    found = copies(graph, dp=4, tp=2, micro_batch=2)
    assert found == {
        ("forward", "values copied"): 2 * KEY_HEADS / 2,
        ("backward_last", "gradients joined"): 2 * (HEADS + 2 * KEY_HEADS) / 2,
    }  # fmt: skip


def test_queries_with_a_key_head_each_are_views():
    found = copies(traced(HEADS))
    assert found == {("forward", "values copied"): HEADS, ("backward_last", "gradients joined"): 3 * HEADS}


def test_parts_of_sequences_are_copied_too(graph):
    found = copies(graph, dp=4, cp=2, micro_batch=2)
    assert found["forward", "values copied"] == KEY_HEADS
    assert found["backward_last", "gradients joined"] == HEADS + 2 * KEY_HEADS


@pytest.mark.parametrize("fusion", ["pointwise", "epilogue"])
def test_other_programs_copy_nothing(graph, fusion):
    assert copies(graph, fusion=fusion) == {}


def test_attention_without_rotations_reads_in_place():
    assert copies(rostam.trace("gpt_125m")) == {}


def test_rotations_take_as_long_as_their_elements(graph):
    # A GB200 of 152 multiprocessors takes 95 and 92 us, forward and backward, for 4,096 x 128 x 128 elements; an H100
    # has 132 of them, and its memory, at the data sheet's rate, is faster.
    machine = rostam.Machine(
        fabric=rostam.fabric("electrical_flat", num_accelerators=1, accelerator_bandwidth="400 Gb/s"),
        accelerator="h100_80gb", min_kernel_time=0.0,
    )  # fmt: skip
    strategy = rostam.Strategy.of(fusion="modules", precision="bf16_mixed", micro_batch=1024, check_memory=False)
    stage = rostam.place(
        graph, machine, global_batch=1024, strategy=strategy, cost="roofline", software="ideal"
    ).stages[0]
    order = {"forward": (HEADS, KEY_HEADS), "backward_last": (KEY_HEADS, HEADS)}
    for template, micros in (("forward", 95), ("backward_last", 92)):
        kernels = [k for task in stage.templates[template] for k in task.kernels if k.module == "blocks.0.attention"]
        rotations = [k.duration_s for k in kernels if k.family == "elementwise" and "(" not in k.name]
        times = [1024 * n * TOKENS * SIZE / (4096 * 128 * 128) * 152 / 132 for n in order[template]]
        assert rotations == pytest.approx([micros * 1e-6 * one for one in times])
