"""Scales of blocks that Transformer Engine arranges in front of each product, by hand.

Legend: a block of one product, x of r rows and f features by a weight of n outputs.
"""

import pytest

import rostam_py as rostam
from rostam_py.models import llama

ROWS, WIDTH, HEADS, KEY_HEADS, HIDDEN = 256, 512, 8, 2, 1024
QKV = WIDTH + 2 * KEY_HEADS * WIDTH // HEADS


@pytest.fixture(scope="module")
def graph():
    config = llama.Config(
        num_layers=2, width=WIDTH, num_heads=HEADS, num_key_heads=KEY_HEADS, hidden=HIDDEN, vocabulary=1000,
        sequence_length=ROWS,
    )  # fmt: skip
    return rostam.trace(llama.build("small", config))


def arranged(graph, precision, **options):
    """Return the bytes each way of the kernels that arrange scales for a block's products, in both phases."""
    machine = rostam.machine("dgx_b200", servers=1)
    strategy = rostam.Strategy.of(**({"dp": 8, "fusion": "modules", "precision": precision} | options))
    stage = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal").stages[0]
    found = {}
    for template in ("forward", "backward_last"):
        kernels = [k for task in stage.templates[template] for k in task.kernels if k.module.startswith("blocks.0.")]
        moved = [k.call for k in kernels if k.name.endswith("(scales arranged)")]
        assert all(one.bytes_read == one.bytes_written for one in moved)
        found[template] = sorted(one.bytes_read for one in moved)
    return found


@pytest.mark.parametrize(("precision", "size"), [("mxfp8_mixed", 1 / 32), ("nvfp4_mixed", 1 / 16)])
def test_both_inputs_of_every_product_have_theirs_arranged(graph, precision, size):
    x, qkv, unit, gated = (ROWS * n for n in (WIDTH, QKV, 2 * HIDDEN, HIDDEN))
    weights = {"qkv": QKV * WIDTH, "proj": WIDTH * WIDTH, "unit": 2 * HIDDEN * WIDTH, "down": HIDDEN * WIDTH}
    forward = [x, weights["qkv"], x, weights["proj"], x, weights["unit"], gated, weights["down"]]
    inputs = [qkv, weights["qkv"], x, weights["proj"], unit, weights["unit"], x, weights["down"]]
    of_weights = [qkv, x, x, x, unit, x, x, gated]
    assert arranged(graph, precision) == {
        "forward": sorted(n * size for n in forward), "backward_last": sorted(n * size for n in inputs + of_weights),
    }  # fmt: skip


@pytest.mark.parametrize("options", [{"precision": "fp8_mixed"}, {"precision": "mxfp8_mixed", "fusion": "pointwise"}])
def test_one_scale_for_a_tensor_and_other_programs_arrange_nothing(graph, options):
    assert arranged(graph, **options) == {"forward": [], "backward_last": []}
