"""Recomputation by Megatron-Core's module names: bytes that are not kept and FLOPs that run again, by hand."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import deepseek
from rostam_py.placement.megatron.block_parts import dense_parts, expert_parts, shared_parts
from rostam_py.plan import Strategy

LAYERS, WIDTH, DENSE, HIDDEN, EXPERTS, PER_TOKEN, TOKENS = 2, 512, 1024, 256, 16, 4, 256


@pytest.fixture(scope="module")
def graph():
    """Return two dense layers and two with 4 of 16 experts and a shared one."""
    config = deepseek.Config(
        dense_layers=LAYERS, num_layers=LAYERS, width=WIDTH, num_heads=4, query_latent=128, key_latent=64,
        head_size=64, rotary_size=32, value_size=64, dense_hidden=DENSE, hidden=HIDDEN, num_experts=EXPERTS,
        per_token=PER_TOKEN, num_groups=4, groups_per_token=2, vocabulary=1000, sequence_length=TOKENS,
    )  # fmt: skip
    return rostam.trace(deepseek.build("small", config))


@pytest.fixture(scope="module")
def stage(graph):
    """Return a function: a placement's first stage, by what is recomputed."""

    def run(*modules, batch=1, **keys):
        count = keys.get("pp", 1) * keys.get("dp", 1)
        fabric = rostam.fabric("electrical_flat", num_accelerators=count)
        machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
        chosen = {"recompute": "selective", "recompute_modules": list(modules)} if modules else {}
        strategy = Strategy(precision="bf16_mixed", micro_batch=1, **{"dp": 1} | keys | chosen)
        return rostam.place(graph, machine, global_batch=batch, strategy=strategy, software="ideal").stages[0]

    return run


# Of one layer and token: elements of 2 bytes that are kept without, and multiply-adds of products.
GATED = 3  # gate, up, and what the last product reads
DENSE_KEPT, DENSE_WORK = GATED * DENSE, 3 * WIDTH * DENSE
SHARED_KEPT, SHARED_WORK = GATED * HIDDEN, 3 * WIDTH * HIDDEN
ROUTED_KEPT = PER_TOKEN * (WIDTH + GATED * HIDDEN)  # rows, too
ROUTED_WORK, ROUTER_WORK = PER_TOKEN * SHARED_WORK, WIDTH * EXPERTS


@pytest.mark.parametrize(
    ("module", "kept", "work"),
    [
        ("mlp", DENSE_KEPT, DENSE_WORK),
        ("shared_experts", SHARED_KEPT, SHARED_WORK),
        ("moe", ROUTED_KEPT + SHARED_KEPT, ROUTED_WORK + ROUTER_WORK + SHARED_WORK),
        ("moe_act", PER_TOKEN * HIDDEN, 0),
    ],
)
def test_a_part_is_not_kept_and_runs_again_whole(stage, module, kept, work):
    plain, chosen = stage(), stage(module)
    freed = plain.activation_changes["forward"][0] - chosen.activation_changes["forward"][0]
    router = 0.03 if module == "moe" else 0  # scores, masks and numbers of rows
    assert freed == pytest.approx(2 * TOKENS * LAYERS * kept, rel=router)
    assert freed >= 2 * TOKENS * LAYERS * kept
    again = chosen.hardware_flops - plain.hardware_flops
    assert again == pytest.approx(2 * TOKENS * LAYERS * work, rel=0.002, abs=8 * TOKENS * LAYERS * PER_TOKEN * HIDDEN)
    assert chosen.flops == plain.flops
    assert again >= 2 * TOKENS * LAYERS * work


def test_a_mixture_that_runs_again_sends_its_rows_again(stage):
    def exchanges(*modules):
        tasks = stage(*modules, dp=4, ep=4, batch=4).templates["backward"]
        return sum(task.collective == "all_to_all" for task in tasks)

    plain = exchanges()
    assert plain > 0
    assert exchanges("moe") == plain * 2  # dispatch and combine forward again, both backward
    assert exchanges("mlp", "shared_experts", "moe_act") == plain


def test_parts_are_found_by_what_runs_in_them(graph):
    def modules(parts):
        return [sorted({graph.ops[op].module for op in part})[0] for part in parts]

    assert modules(dense_parts(graph)) == ["dense_blocks.0.mlp", "dense_blocks.1.mlp"]
    assert modules(expert_parts(graph)) == ["blocks.0.mlp", "blocks.1.mlp"]
    assert modules(shared_parts(graph)) == ["blocks.0.mlp.shared", "blocks.1.mlp.shared"]


def test_all_at_once_frees_each_once_and_a_split_backward_keeps_what_weights_alone_read(stage):
    both = stage("moe", "shared_experts", "mlp", "moe_act")
    assert both.hardware_flops == pytest.approx(stage("moe", "mlp").hardware_flops)
    keys = {"pp": 2, "batch": 4}
    whole, halves = (stage("mlp", schedule=name, **keys) for name in ("1f1b", "zb_h1"))
    assert halves.hardware_flops == pytest.approx(whole.hardware_flops)
    # Of a layer what the last product reads is read by its weights' gradient alone.
    kept = [one.activation_changes["forward"][0] for one in (whole, halves)]
    assert kept[1] - kept[0] == pytest.approx(2 * TOKENS * LAYERS * DENSE)


def test_a_model_without_experts_has_none_to_recompute(gpt, placed):
    with pytest.raises(ConfigError, match="names 'moe', of which gpt_125m has none"):
        placed(gpt, Strategy(recompute="selective", recompute_modules=["moe"]), 1)
    # Of four layers with a hidden width of 4 x 768: what each product makes, and the activation between them.
    plain, chosen = (
        placed(gpt, Strategy(precision="bf16_mixed", **keys), 1).stages[0]
        for keys in ({}, {"recompute": "selective", "recompute_modules": ["mlp"]})
    )
    again = chosen.hardware_flops - plain.hardware_flops
    assert again == pytest.approx(4 * 2 * 2 * 2048 * 768 * 3072, rel=0.002)
