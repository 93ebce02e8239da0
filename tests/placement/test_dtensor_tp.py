"""PyTorch's tensor parallelism: messages, copies and kept bytes by hand, beside Megatron's.

A = s b h elements of 2 bytes, t = tp, L layers. Forward gathers the inputs of both regions of a layer and of the head,
and reduce-scatters both regions' outputs and the embedding's; backward gathers the gradients of those outputs and
reduce-scatters those of those inputs. Nothing is gathered again, except by a replay.
"""

from collections import Counter

import pytest

from rostam_py.errors import ConfigError
from rostam_py.models import llama
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

LAYERS, WIDTH, TOKENS, WORDS, TP = 2, 1024, 512, 32000, 4
A = TOKENS * WIDTH * 2


@pytest.fixture(scope="module")
def graph():
    config = llama.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=16, num_key_heads=8, hidden=2816, vocabulary=WORDS,
        sequence_length=TOKENS,
    )  # fmt: skip
    return trace(llama.build("llama", config))


def templates(placed, graph, **options):
    settings = {"tp": TP, "sequence_parallel": True, "tp_style": "dtensor", "precision": "bf16_mixed", "micro_batch": 1}
    strategy = Strategy.of(**settings | options)
    plan = placed(graph, strategy, strategy.micro_batch, accelerator="h100_80gb", cost="roofline")
    return plan.stages[0].templates


def messages(tasks):
    return Counter((t.collective, t.num_bytes) for t in tasks if t.group == "tp" and t.num_bytes >= A // 8)


def moved(tasks):
    """{(what, bytes read, bytes written): count} of the kernels that only move what is gathered or scattered."""
    words = ("copied together", "copied apart", "parts added")
    kernels = [k for task in tasks for k in task.kernels]
    return Counter(
        (word, k.call.bytes_read, k.call.bytes_written) for k in kernels for word in words if f"({word})" in k.name
    )


def test_inputs_are_kept_whole_and_not_gathered_again(graph, placed):
    found = templates(placed, graph)
    assert messages(found["forward"]) == {("all_gather", A): 2 * LAYERS + 1, ("reduce_scatter", A): 2 * LAYERS + 1}
    assert messages(found["backward"]) == {("all_gather", A): 2 * LAYERS + 1, ("reduce_scatter", A): 2 * LAYERS + 1}


@pytest.mark.parametrize("stops_early", [False, True])
def test_a_replays_gathers_serve_weight_gradients(graph, placed, stops_early):
    found = templates(placed, graph, recompute="full", recompute_stops_early=stops_early)
    replayed = LAYERS if stops_early else 2 * LAYERS  # the last reduce-scatter of a layer makes what nothing reads
    assert messages(found["backward"]) == {
        ("all_gather", A): 4 * LAYERS + 1, ("reduce_scatter", A): 2 * LAYERS + 1 + replayed,
    }  # fmt: skip


def test_selective_replays_gather_and_keep_what_was_scattered(graph, placed):
    found = templates(placed, graph, recompute="selective", recompute_modules=["every_other_product"])
    assert messages(found["backward"]) == {("all_gather", A): 4 * LAYERS + 1, ("reduce_scatter", A): 2 * LAYERS + 1}


def test_what_is_gathered_is_copied_together_and_what_a_product_scatters_apart(graph, placed):
    compiled = templates(placed, graph)
    # The embedding's result is copied as well; sums of input gradients are written as they are scattered.
    assert moved(compiled["forward"]) == {
        ("copied together", A, A): 2 * LAYERS + 1,
        ("copied apart", A, A): 2 * LAYERS + 1,
    }
    assert moved(compiled["backward"]) == {("copied together", A, A): 2 * LAYERS + 1, ("copied apart", A, A): 1}
    eager = templates(placed, graph, fusion="none")
    assert moved(eager["backward"])["copied apart", A, A] == 2 * LAYERS + 1
    assert not moved(templates(placed, graph, tp_style="mcore")["forward"])


def test_narrow_products_inputs_are_gathered_and_copied_in_their_width(graph, placed):
    for style in ("dtensor", "mcore"):
        found = templates(placed, graph, precision="fp8_mixed", tp_style=style)
        assert messages(found["forward"])["all_gather", A // 2] == 2 * LAYERS
        assert messages(found["forward"])["all_gather", A] == 1  # of the head, in 16 bits
        assert messages(found["forward"])["reduce_scatter", A] == 2 * LAYERS + 1
    assert (
        moved(templates(placed, graph, precision="fp8_mixed")["forward"])["copied together", A / 2, A / 2] == 2 * LAYERS
    )


def test_kernels_wait_for_every_collective(graph, placed):
    tasks = templates(placed, graph)["backward"]
    waited = {dep for task in tasks for dep in task.deps}
    for place, task in enumerate(tasks):
        if task.group == "tp" and task.kind == "collective" and place < len(tasks) - 1:
            behind = next(k for k in range(place + 1, len(tasks)) if tasks[k].kind == "compute")
            assert place in tasks[behind].deps or place not in waited


def test_collectives_wait_for_what_was_launched_before_them(graph, placed):
    # PyTorch's collectives begin behind all that the program has launched: the gradient of a block's output is there
    # while that block runs again, and is gathered behind that in code that asks for it there.
    tasks = templates(placed, graph, recompute="selective", recompute_modules=["every_other_product"])["backward"]
    for place, task in enumerate(tasks):
        if task.group == "tp" and task.kind == "collective":
            before = [k for k in range(place) if tasks[k].kind == "compute"]
            assert not before or before[-1] in task.deps, task.name


def test_gradients_of_weights_copy_what_parts_have_brought(graph, placed):
    # Of asynchronous tp: gradients of both regions' outputs are gathered in parts, by tokens first, for the products of
    # input gradients; those of weights read a copy. That of the embedding's output comes whole.
    found = templates(placed, graph, tp_overlap=True, fused_part="blocks")["backward"]
    assert moved(found) == {("copied together", A, A): 2 * LAYERS + 1, ("copied apart", A, A): 1}
    kernels = [k for task in found for k in task.kernels]
    own = [k.call.bytes_read for k in kernels if "own part copied" in k.name]
    assert own == [A / TP] * 2 * LAYERS


def largest(tasks):
    return Counter(t.num_bytes for t in tasks if t.kind == "collective" and "largest of" in t.name)


def test_members_agree_on_largest_values_as_the_compiled_code_does(graph, placed):
    # A scale for each tensor: inputs of four gathers and products, seven weights; in backward those weights by columns
    # and seven gradients of results. For each row: where a product sums over what members hold parts of, its input and
    # its weight, two products of forward and five of backward, which makes the 14 of PyTorch's code for one block.
    settings = {"cast_kernels": "inductor", "precision": "fp8_mixed"}
    found = templates(placed, graph, **settings)
    assert largest(found["forward"]) == {8: 11 * LAYERS}
    assert largest(found["backward"]) == {8: 14 * LAYERS}
    rows = templates(placed, graph, cast_kernels="inductor", precision="fp8_row_mixed")
    counts = largest(rows["forward"]) + largest(rows["backward"])
    assert counts == {8 * TOKENS: 7 * LAYERS, 8 * WIDTH: 7 * LAYERS}
    assert not largest(templates(placed, graph, precision="fp8_mixed")["forward"])
    assert not largest(templates(placed, graph, **settings, tp_style="mcore")["forward"])


def test_overlapped_products_are_not_copied_and_their_sums_are_added_by_a_kernel(graph, placed):
    options = {"tp_overlap": True, "fused_part": "blocks"}
    found = templates(placed, graph, **options)
    part, steps = ("copy", A // TP), TP - 1
    # The head and the embedding are not compiled: a gather and a reduce-scatter as they are.
    assert messages(found["forward"]) == {part: 4 * LAYERS * steps, ("all_gather", A): 1, ("reduce_scatter", A): 1}
    assert moved(found["forward"]) == {
        ("parts added", A, A / TP): 2 * LAYERS, ("copied together", A, A): 1, ("copied apart", A, A): 1,
    }  # fmt: skip
    backward = messages(found["backward"])
    assert backward[part] == 2 * LAYERS * steps  # gradients of both regions' outputs
    assert backward["reduce_scatter", A] == 2 * LAYERS + 1


def test_whole_inputs_are_kept(graph, placed):
    def kept(**options):
        settings = {"tp": TP, "sequence_parallel": True, "precision": "bf16_mixed", "micro_batch": 1}
        return placed(graph, Strategy.of(**settings | options), 1).stages[0].memory.activations

    more = (2 * LAYERS + 1) * (A - A // TP)  # inputs of both regions of a layer, and of the head
    assert kept(tp_style="dtensor") - kept() == more
    # Where they are replayed alone the head's is.
    assert kept(tp_style="dtensor", recompute="full") - kept(recompute="full") == A - A // TP
    # A block that runs again has those of both its regions whole.
    block = {"recompute": "full", "pp": 2, "precision": "bf16_mixed", "micro_batch": 1, "tp": TP}
    at_work = [
        placed(graph, Strategy.of(sequence_parallel=True, tp_style=style, **block), 2).stages[0].activation_changes
        for style in ("dtensor", "mcore")
    ]
    dtensor, mcore = (changes["backward"][0] for changes in at_work)
    assert dtensor - mcore == 2 * (A - A // TP)
    assert at_work[0]["forward"] == at_work[1]["forward"]  # what enters it is kept in parts


def test_tables_are_split_by_vocabulary_however_many_tokens_a_step_has(graph, placed):
    # With 64 samples of 512 tokens a whole table would be faster: no lookup's sum would be scattered.
    for style in ("dtensor", "mcore"):
        found = templates(placed, graph, tp_style=style, micro_batch=64)
        sizes = messages(found["forward"])
        assert sizes["reduce_scatter", 64 * A] == 2 * LAYERS + 1, style


def test_unknown_styles_and_early_stops_of_nothing_are_refused():
    with pytest.raises(ConfigError, match=r"tp_style is 'deepspeed'.*mcore, dtensor"):
        Strategy.of(tp=2, tp_style="deepspeed")
    with pytest.raises(ConfigError, match=r"recompute_stops_early is True, but strategy.recompute is 'selective'"):
        Strategy.of(recompute="selective", recompute_stops_early=True)
