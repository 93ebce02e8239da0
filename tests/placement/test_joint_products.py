"""Products that are one in Megatron-Core: which, and what the tables are asked about them."""

import pytest

import rostam_py as rostam
from rostam_py.costs.kernel_kinds import GROUPED_STAGES, KERNEL_KINDS
from rostam_py.costs.kernel_shapes import question_of
from rostam_py.models import llama, mixtral
from rostam_py.software.joint_products import joint_forward

WIDTH, TOKENS, HEADS, KEY_HEADS, HIDDEN = 1024, 512, 8, 2, 3072
QKV = (HEADS + 2 * KEY_HEADS) * WIDTH // HEADS


def of_llama():
    config = llama.Config(
        num_layers=2, width=WIDTH, num_heads=HEADS, num_key_heads=KEY_HEADS, hidden=HIDDEN, vocabulary=32000,
        sequence_length=TOKENS,
    )  # fmt: skip
    return rostam.trace(llama.build("llama", config))


@pytest.fixture(scope="module")
def graph():
    return of_llama()


def modules(graph):
    names = (tuple(graph.ops[op].module for op in group) for group in joint_forward(graph))
    return {tuple(name.removeprefix("blocks.0.") for name in group) for group in names if "blocks.0." in group[0]}


def test_queries_keys_and_values_and_a_gated_units_halves_are_one(graph):
    assert modules(graph) == {
        ("attention.query", "attention.key", "attention.value"), ("mlp.gate", "mlp.up"),
    }  # fmt: skip


@pytest.mark.slow
def test_routers_and_latents_are_products_of_their_own():
    # DeepSeek-V3's queries and keys come from latents by products behind them; its router reads what shared experts do.
    graph = rostam.trace("deepseek_v3", num_layers=5)
    joint = [[graph.ops[op].module for op in group] for group in joint_forward(graph)]
    assert all("attention" not in name and "router" not in name for group in joint for name in group)
    assert {tuple(name.split(".", 2)[2] for name in group) for group in joint} == {
        ("mlp.gate", "mlp.up"), ("mlp", "mlp"), ("mlp.shared.gate", "mlp.shared.up"),
    }  # fmt: skip


def calls(graph, **strategy):
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, accelerator_bandwidth="3600 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb", min_kernel_time=0.0)
    chosen = rostam.Strategy.of(precision="bf16_mixed", fusion="modules", check_memory=False, **strategy)
    plan = rostam.place(graph, machine, global_batch=4, strategy=chosen, cost="calibrated", software="ideal")
    templates = plan.stages[0].templates
    kernels = [k for name in ("forward", "backward_last") for t in templates[name] for k in t.kernels]
    return [k for k in kernels if k.role == "product" and "blocks.0." in k.module]


@pytest.mark.parametrize("tp", [1, 2])
def test_tables_are_asked_for_one_product_of_all_columns(graph, tp):
    # Rows, columns, contraction: forward, of the input's gradient, of the weights' (columns of them by rows here).
    rows = TOKENS * (4 if tp == 2 else 2)
    ops = {op.name: op for op in graph.ops}
    found = set()
    for kernel in calls(graph, dp=2 // tp, tp=tp):
        of_graph = [ops[op.name] for op in kernel.call.ops]
        asked = question_of(kernel.call, of_graph[0], graph, of_graph[1:])
        assert 2 * asked.sizes[0] * asked.sizes[1] * asked.sizes[2] * asked.sizes[3] == pytest.approx(asked.flops)
        found.add(tuple(round(size, 6) for size in asked.sizes[1:4]))
    qkv, unit, own = QKV / tp, 2 * HIDDEN / tp, WIDTH / tp
    assert found == {
        (rows, qkv, WIDTH), (rows, WIDTH, qkv), (qkv, WIDTH, rows), (rows, unit, WIDTH), (rows, WIDTH, unit),
        (unit, WIDTH, rows), (rows, WIDTH, own), (rows, own, WIDTH), (WIDTH, own, rows), (rows, WIDTH, unit / 2),
        (rows, unit / 2, WIDTH), (WIDTH, unit / 2, rows),
    }  # fmt: skip


def test_a_layer_of_experts_has_one_grouped_product_of_gate_and_up():
    config = mixtral.Config(
        num_layers=1, width=WIDTH, num_heads=HEADS, num_key_heads=KEY_HEADS, hidden=HIDDEN, num_experts=4, per_token=2,
        vocabulary=32000, sequence_length=TOKENS,
    )  # fmt: skip
    graph = rostam.trace(mixtral.build("mixtral", config))
    ops = {op.name: op for op in graph.ops}
    found = []
    for kernel in calls(graph, dp=2):
        if "grouped" in kernel.op_type:
            of_graph = [ops[op.name] for op in kernel.call.ops]
            asked = question_of(kernel.call, of_graph[0], graph, of_graph[1:])
            named = dict(zip(KERNEL_KINDS["grouped_product"].fields, asked.sizes, strict=True))
            found.append((GROUPED_STAGES[int(named["stage"])], *(named[name] for name in ("groups", "m", "n", "k"))))
    rows = 2 * TOKENS * 2 / 4  # two experts for each token, four experts
    assert sorted(found) == sorted(
        (stage, 4, rows, n, k) for stage in GROUPED_STAGES for n, k in ((2 * HIDDEN, WIDTH), (WIDTH, HIDDEN))
    )
