"""What kernels of a block's backward hand to one another (software.rules.allocator=torch), against counts by hand.

h = bytes of a micro-batch's hidden state in 16 bits; t ranks of tp. Two stages, so that the first one has no loss.
"""

import pytest

import rostam_py as rostam
from rostam_py.plan import Strategy

S, H = 2048, 768
HIDDEN = 2 * S * H


def reserved(graph, placed, **settings):
    """Return what the first stage holds besides what lives at once, over the hidden state's bytes."""
    strategy = Strategy.of(pp=2, micro_batch=1, precision="bf16_mixed", **{"allocator": "torch"} | settings)
    return placed(graph, strategy, 2).stages[0].memory.reserved / HIDDEN


def test_a_block_hands_on_the_gradient_of_its_widest_product(gpt, placed):
    assert reserved(gpt, placed, allocator="exact") == 0
    # The second product's input gradient, 4 h, while its input is there for its weight. The backward of GELU writes
    # into it; eager code does not, but has dropped the input by then.
    assert reserved(gpt, placed) == pytest.approx(4, rel=1e-6)
    assert reserved(gpt, placed, fusion="none") == pytest.approx(4, rel=1e-6)
    # Of blocks that are made again all of it is there, and what came from the block behind: 1 + 4.
    assert reserved(gpt, placed, recompute="full") == pytest.approx(5, rel=1e-6)


@pytest.mark.parametrize("t", [2, 4])
def test_what_is_gathered_over_tp_counts_whole(t, gpt, placed):
    tp = {"tp": t, "sequence_parallel": True, "recompute": "full"}
    # What came from the block behind, 1/t; it gathered, 1; the second product's gradient, 4/t.
    expected = 1 / t + 1 + 4 / t
    assert reserved(gpt, placed, **tp) == pytest.approx(expected, rel=1e-6)
    # DTensor joins what it gathers by a copy: both are there at once, behind what came.
    assert reserved(gpt, placed, **tp, tp_style="dtensor") == pytest.approx(max(expected, 1 / t + 2), rel=1e-6)


@pytest.mark.parametrize("c", [2, 4])
def test_torch_context_parallelism_holds_all_keys_and_gradients_in_fp32(c, gpt, placed):
    cp = {"cp": c, "cp_algorithm": "torch", "recompute": "full"}
    # In h/c, what a rank has of h. Inside attention: keys and values of c ranks, 2 c; a block's gradients, 1 + 2; of
    # queries in fp32, 2; of keys and values in fp32 what has come and what it is joined into, 2 x 4. With what came
    # from the block behind, 1, and the results, 3, less what the second product, 4, GELU, 4, and the norm, 1, had read.
    inside = 2 * c + 1 + 2 + 2 + 2 * 4
    held = 1 + inside + 3 - (4 + 4 + 1)
    assert reserved(gpt, placed, **cp) == pytest.approx(max(5, held) / c, rel=0.02)


def test_memory_over_time_has_it_all_the_time(gpt):
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = Strategy.of(pp=2, micro_batch=1, precision="bf16_mixed", allocator="torch", recompute="full")
    plan = rostam.place(gpt, machine, global_batch=4, strategy=strategy, software="ideal")
    found = rostam.simulate(plan, timeline=True).memory_over_time()
    assert [max(one.num_bytes) for one in found] == [stage.memory.total for stage in plan.stages]
