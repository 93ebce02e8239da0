"""Copies of experts' rows around Megatron-Core's all-to-alls: sorted by expert, padded for narrow products, by hand.

Legend: T tokens of a micro-batch on one rank, k experts for a token, h width: 2 T k h bytes of rows in bf16.
"""

from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.models import mixtral

WIDTH, TOKENS, LAYERS, EXPERTS, K = 512, 256, 2, 8, 2
ROWS = 2 * TOKENS * K * WIDTH


@pytest.fixture(scope="module")
def mixed():
    config = mixtral.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=8, num_key_heads=4, head_size=64, hidden=1024, num_experts=EXPERTS,
        per_token=K, vocabulary=1000, sequence_length=TOKENS,
    )  # fmt: skip
    return rostam.trace(mixtral.build("mixed", config))


def copies(graph, **options):
    """Return {(template, what it does): copies} of one device."""
    machine = rostam.machine("dgx_h100", servers=1)
    strategy = rostam.Strategy(**({"dp": 8, "fusion": "modules", "precision": "bf16_mixed"} | options))
    stage = rostam.place(graph, machine, global_batch=8, strategy=strategy).stages[0]
    found = Counter()
    for template in ("forward", "backward_last"):
        for kernel in (k for task in stage.templates[template] for k in task.kernels):
            what = kernel.name.partition("(")[2].rstrip(")")
            if what in ("sorted", "padded"):
                assert kernel.call.bytes_read == kernel.call.bytes_written == ROWS
                found[template, what] += 1
    return found


def both(count, *kinds):
    return {(template, kind): count for template in ("forward", "backward_last") for kind in kinds}


def test_devices_of_several_experts_sort_rows_and_sort_them_back(mixed):
    assert copies(mixed, ep=4) == both(2 * LAYERS, "sorted")
    assert copies(mixed, ep=8) == {}  # rows of one expert lie together


def test_rows_are_padded_for_narrow_products_and_cut_behind_them(mixed):
    assert copies(mixed, ep=4, precision="fp8_mixed") == both(2 * LAYERS, "sorted", "padded")
    assert copies(mixed, ep=8, precision="fp8_mixed") == both(2 * LAYERS, "padded")


@pytest.mark.parametrize("options", [{"ep": 4, "servers_per_token": 1}, {"ep": 4, "fusion": "pointwise"}, {"ep": 1}])
def test_other_dispatchers_and_programs_copy_nothing(mixed, options):
    assert copies(mixed, **options) == {}
