"""What recomputation replays, drops and keeps, against hand counts."""

import pytest
import torch
from torch import nn

from rostam_py.errors import ConfigError, RostamWarning
from rostam_py.graph import derived_tensors
from rostam_py.placement.megatron import recompute_modules
from rostam_py.placement.megatron.recompute import recompute_selected
from rostam_py.placement.megatron.recompute_modules import attention_core, select
from rostam_py.plan import Strategy
from rostam_py.tracing import trace


class PlainAttention(nn.Module):
    """Scores, softmax and values as separate products; (B, S, 32) -> (B, S, 32)."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x):
        """Attend with one head."""
        scores = self.q(x) @ self.k(x).transpose(1, 2) * 0.25
        return self.out(torch.softmax(scores, dim=-1) @ self.v(x))


def test_core_of_plain_attention_reaches_from_the_scores_to_the_values():
    graph = trace(PlainAttention(), torch.randn(2, 8, 32), loss_fn=lambda y: (y * y).mean(), name="plain")
    (core,) = attention_core(graph)
    types = [graph.ops[i].op_type for i in sorted(core) if not graph.ops[i].is_metadata]
    assert types == ["aten.bmm.default", "aten.mul.Tensor", "aten._softmax.default", "aten.bmm.default"]
    derived = derived_tensors(graph)
    found = recompute_selected(
        graph, select(graph, ["core_attn"], derived, ()), [0] * len(graph.ops), [False] * len(graph.tensors), derived
    )
    dropped = {graph.ops[graph.tensors[t].producer].op_type for t in found.dropped}
    assert "aten._softmax.default" in dropped
    computing = [{i for i in ops if not graph.ops[i].is_metadata} for ops in (found.replayed, core)]
    assert computing[0] == computing[1]


def test_selective_recomputation_replays_fused_attention_once_a_layer(gpt, placed):
    tasks = placed(gpt, Strategy(recompute="selective"), 1).stages[0].templates["backward"]
    names = [k.op_type for t in tasks for k in t.kernels if "scaled_dot_product" in k.op_type]
    forward, backward = names[0], names[1]
    assert "backward" in backward
    assert names == [forward, backward] * 4


def test_recomputing_fused_attention_alone_is_warned_of(gpt, placed):
    with pytest.warns(RostamWarning, match=r"one fused kernel.*strategy.recompute_modules"):
        placed(gpt, Strategy(recompute="selective"), 1)


# Llama 3 8B, two layers, tp 8 with sequence parallelism, 16 bits: bytes of one device

TOKENS, WIDTH, HIDDEN, KEYS, TP, LAYERS = 8192, 4096, 14336, 1024, 8, 2
UNIT = 2 * TOKENS // TP  # bytes of one column of a layer's activations


@pytest.fixture(scope="module")
def llama():
    return trace("llama3_8b", num_layers=LAYERS)


@pytest.fixture
def stage(llama, placed):
    """Return the one stage of a placement, by what is recomputed."""

    def run(**options):
        return placed(
            llama,
            Strategy.of(tp=TP, sequence_parallel=True, precision="bf16_mixed", check_memory=False, **options), 1,
        ).stages[0]  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("modules", "dropped", "at_once"),
    [
        # the norms' results and 1 / deviations, the last norm's too; one of them is made again at a time
        (["layernorm"], (2 * LAYERS + 1) * (WIDTH + 1), WIDTH + 1),
        # silu(gate) * up of both layers
        (["activation"], LAYERS * HIDDEN, HIDDEN),
        # gate, up and silu(gate) * up of both layers: the norm's result, which they are made from, is kept anyway
        (["blocks.*.mlp"], LAYERS * 3 * HIDDEN, 3 * HIDDEN),
    ],
)
def test_selected_modules_drop_their_results(stage, llama, placed, modules, dropped, at_once):
    selective = {"recompute": "selective", "recompute_modules": modules}
    freed = stage().memory.activations - stage(**selective).memory.activations
    assert freed == UNIT * dropped  # a replay makes less than the loss hands on when backward begins
    shape = {"tp": TP, "pp": 2, "sequence_parallel": True, "precision": "bf16_mixed", "check_memory": False}
    first = placed(llama, Strategy.of(**shape, **selective), 2).stages[0]  # it has no loss
    assert first.activation_changes["backward"][0] == UNIT * at_once


def test_replays_are_hardware_flops_and_not_the_models(stage):
    none = stage()
    cheap = stage(recompute="selective", recompute_modules=["layernorm", "activation"])
    assert cheap.flops == none.flops
    assert cheap.hardware_flops == pytest.approx(none.hardware_flops, rel=1e-3)  # no product runs again
    whole = stage(recompute="selective", recompute_modules=["blocks.*.mlp"])
    # gate and up run again; down does not, as nothing reads its result
    replayed = LAYERS * 2 * 2 * TOKENS * WIDTH * HIDDEN / TP
    assert whole.hardware_flops - none.hardware_flops == pytest.approx(replayed, rel=1e-3)
    assert whole.flops == none.flops


def test_every_other_product_and_attention_are_kept_by_op_wise_checkpointing(stage):
    tasks = stage(recompute="selective", recompute_modules=["every_other_product"]).templates["backward"]
    kernels = [k for t in tasks for k in t.kernels]
    replayed = {k.module for k in kernels if k.op_type == "aten.mm.default"} & {"blocks.0.mlp.up", "blocks.0.mlp.gate"}
    flops = {module: sum(k.flops for k in kernels if k.module == module) for module in replayed}
    # of a product backward runs two, and the forward one again where it is not kept: up, the sixth, not gate, the fifth
    assert flops["blocks.0.mlp.up"] == pytest.approx(1.5 * flops["blocks.0.mlp.gate"], rel=1e-3)
    assert not any("attention.default" in k.op_type and "backward" not in k.op_type for k in kernels)


def test_eager_op_wise_checkpointing_keeps_results_of_products_that_nothing_reads(stage, llama, monkeypatch):
    chosen = {"recompute": "selective", "recompute_modules": ["every_other_product"]}
    cached = select(llama, ["every_other_product"], derived_tensors(llama), ()).cached
    makers = [llama.ops[llama.tensors[t].producer].module for t in sorted(cached)]
    # the first, third, fifth and seventh product of a layer
    assert [m.split(".")[-1] for m in makers] == ["query", "value", "gate", "down"] * LAYERS
    eager, compiled = stage(fusion="none", **chosen), stage(**chosen)
    monkeypatch.setattr(recompute_modules._Finder, "results_of_products", lambda *_: set())
    # down's lies in parts of the sequence behind its reduce-scatter; backward reads the others
    assert eager.memory.activations - stage(fusion="none", **chosen).memory.activations == LAYERS * UNIT * WIDTH
    assert compiled.memory == stage(**chosen).memory  # a partitioner keeps what is read


def test_first_blocks_of_a_stage_are_recomputed_in_full(stage):
    none, one, two = stage(), stage(recompute="full", recompute_blocks=1), stage(recompute="full", recompute_blocks=2)
    assert none.hardware_flops < one.hardware_flops < two.hardware_flops
    assert two.hardware_flops - one.hardware_flops == pytest.approx(one.hardware_flops - none.hardware_flops)
    assert two.hardware_flops == stage(recompute="full").hardware_flops
    assert two.memory.activations < none.memory.activations


def test_latent_attention_expands_its_latents_again(placed):
    graph = trace("deepseek_v3", num_layers={"dense_blocks": 1, "blocks": 2})
    derived = derived_tensors(graph)
    ops = [graph.ops[i] for i in select(graph, ["mla_up_proj"], derived, ()).ops]
    products = sorted(op.module for op in ops if op.role == "product")
    layers = ("blocks.0", "blocks.1", "dense_blocks.0")
    assert products == [f"{layer}.attention.{name}_up" for layer in layers for name in ("key", "query")]
    plans = [
        placed(graph, Strategy.of(precision="bf16_mixed", check_memory=False, **options), 1).stages[0]
        for options in ({}, {"recompute": "selective", "recompute_modules": ["mla_up_proj"]})
    ]
    # queries and keys (128 + 64), and values with the keys that they are one product with (128 + 128), of 128 heads, of
    # all layers; the latents' norms, which they are made from, are kept for weight gradients. The one at work makes
    # less again than the loss hands on when backward begins: two gradients of 129,280 words in fp32
    freed = plans[0].memory.activations - plans[1].memory.activations
    assert 2 * 4096 * 128 * (192 + 192 + 256) < 2 * 4 * 4096 * 129280
    assert freed == 2 * 4096 * 128 * (192 + 192 + 256) * len(layers)
    assert plans[1].hardware_flops > plans[0].hardware_flops


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recompute_modules": ["layernorm"]}, ["recompute_modules", "recompute=selective"]),
        ({"recompute": "full", "recompute_modules": ["layernorm"]}, ["strategy.recompute is 'full'"]),
        ({"recompute": "selective", "recompute_blocks": 2}, ["recompute_blocks is 2", "recompute=full"]),
        ({"recompute": "full", "recompute_blocks": 0}, ["recompute_blocks is 0", ">= 1"]),
        ({"recompute": "selective", "recompute_modules": []}, ["recompute_modules is []", "mla_up_proj"]),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ConfigError) as error:
        Strategy.of(**options)
    assert all(word in str(error.value) for word in words), error.value


def test_modules_that_a_model_does_not_have_are_refused(stage):
    for name in ("mla_up_proj", "blocks.*.attn"):
        with pytest.raises(ConfigError, match=r"of which llama3_8b has none; it must list kinds \(core_attn"):
            stage(recompute="selective", recompute_modules=["layernorm", name])
