"""Copies of experts' rows around Megatron-Core's exchanges, by hand: sorted by expert, padded for narrow products,
spread over experts and added up where rows came once.

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
    strategy = rostam.Strategy.of(**({"dp": 8, "fusion": "modules", "precision": "bf16_mixed"} | options))
    stage = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal").stages[0]
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


def test_deep_ep_pads_rows_and_hybrid_ep_as_it_spreads_them(mixed):
    options = {"ep": 4, "servers_per_token": 1, "precision": "fp8_mixed"}
    assert copies(mixed, **options) == {}
    assert copies(mixed, **options, dispatcher="deepep") == both(2 * LAYERS, "padded")


@pytest.mark.parametrize("options", [{"ep": 4, "servers_per_token": 1}, {"ep": 4, "fusion": "pointwise"}, {"ep": 1}])
def test_other_dispatchers_and_programs_copy_nothing(mixed, options):
    assert copies(mixed, **options) == {}


def moved(graph, **options):
    """Return {name of a kernel or collective of the experts' layers: [(bytes read, written), ...]} of one device."""
    strategy = rostam.Strategy.of(**({"dp": 8, "fusion": "modules", "precision": "bf16_mixed"} | options))
    machine = rostam.machine("dgx_h100", servers=options["dp"] // 8 if "dp" in options else 1)
    plan = rostam.place(graph, machine, global_batch=strategy.dp, strategy=strategy, software="ideal")
    found = {}
    for template in ("forward", "backward_last"):
        for task in plan.stages[0].templates[template]:
            if task.kind == "collective" and task.group.startswith("ep"):
                found.setdefault((template, task.collective), []).append((task.num_bytes, task.multiprocessors))
            for one in task.kernels:
                if "mlp" in (one.module or ""):
                    name = one.name.partition("(")[2].rstrip(")") or one.name.rpartition("_")[0]
                    found.setdefault((template, name), []).append((one.call.bytes_read, one.call.bytes_written))
    return found


RANKS = 4 * (1 - 15 / 28)  # of 4 ranks with 2 experts each, that a token with 2 of the 8 has some on


@pytest.mark.parametrize("dispatcher", ["hybridep", "deepep"])
def test_rows_that_came_once_are_spread_over_experts_and_added_up(mixed, dispatcher):
    # Received rows: RANKS for each token; a layer spreads them twice and adds rows up twice, forward and backward.
    received, ids = RANKS / K * ROWS, 8 * TOKENS * K
    found = moved(mixed, ep=4, servers_per_token=1, dispatcher=dispatcher)
    spread = [one for one in found["forward", "index"] if one[1] == ROWS]
    assert spread == [pytest.approx((received + ids, ROWS))] * LAYERS
    assert found["forward", "index_add"] == [pytest.approx((ROWS + ids, received))] * LAYERS
    assert found["forward", "zeros_like"].count((0, 0)) == LAYERS
    assert found["backward_last", "index_select"] == [pytest.approx((received + ids, ROWS))] * LAYERS
    added = [one for one in found["backward_last", "index_put"] if one[0] > ROWS]
    assert added == [pytest.approx((ROWS + ids, received))] * LAYERS


def test_hybrid_ep_gathers_where_tokens_go_and_reads_it(mixed):
    # A byte for each token of 4 ranks and each of 8 experts; of 2 own experts all of them, and a place on each rank.
    maps = TOKENS * 4 * EXPERTS
    found = moved(mixed, ep=4, servers_per_token=1)
    assert found["forward", "all_gather"] == [(maps, 0)] * LAYERS
    assert found["forward", "routing read"] == [(maps, maps / 4 + 4 * TOKENS * 4)] * LAYERS
    numbers = TOKENS * RANKS * 2
    assert found["forward", "rows numbered"] == [pytest.approx((5 * numbers, 8 * numbers))] * LAYERS
    assert {held for _, held in found["forward", "all_to_all"]} == {16}
    kinds = {name for _, name in found}
    assert "copied to be sent" not in kinds  # no other server
    assert not [name for template, name in found if template == "backward_last" and name == "all_gather"]
    assert ("forward", "all_gather") not in moved(mixed, ep=4, servers_per_token=1, dispatcher="deepep")


def test_tokens_that_cross_to_servers_are_copied_first():
    config = mixtral.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=8, num_key_heads=4, head_size=64, hidden=1024, num_experts=16,
        per_token=K, vocabulary=1000, sequence_length=TOKENS,
    )  # fmt: skip
    graph = rostam.trace(mixtral.build("mixed", config))
    inside = moved(graph, dp=16, ep=8, servers_per_token=1)
    assert "copied to be sent" not in {name for _, name in inside}
    found = moved(graph, dp=16, ep=16, servers_per_token=2)
    for template in ("forward", "backward_last"):
        assert found[template, "copied to be sent"] == [(ROWS / K, ROWS / K)] * LAYERS
    assert {held for _, held in found["forward", "all_to_all"]} == {8}  # two hops at once
