"""Sequence parallelism sends what Korthikanti et al. 2022 (arXiv 2205.05198, sections 4.2 and 5) count by hand.

b micro-batch, s sequence, h width, t = tp, L layers; A = s b h elements of 2 bytes; gradients of weights have 4. Of a
layer, forward gathers the inputs of attention and of the feed-forward and reduce-scatters their outputs; backward
gathers the gradients of those outputs, reduce-scatters the gradients of those inputs, and gathers the inputs again for
the weight gradients: ten half all-reduces. Besides them: forward a reduce-scatter behind the embedding and a gather
before the head; backward the head's reduce-scatter and its input's gather, and a gather of the gradient of what the
embedding made.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.models import llama, mixtral, t5
from rostam_py.plan import Machine, Strategy
from rostam_py.tracing import trace

WIDTH, TOKENS, WORDS, HIDDEN = 1024, 256, 32000, 2816


def listed(tasks, group="tp"):
    """Return {(kind, bytes): count} of a template's collectives in a group."""
    return dict(Counter((t.collective, t.num_bytes) for t in tasks if t.kind == "collective" and t.group == group))


def forward_messages(layers, activation, tokens, is_first=True, is_last=True):
    found = Counter({
        ("reduce_scatter", activation): 2 * layers + is_first, ("all_gather", activation): 2 * layers + is_last,
    })  # fmt: skip
    return dict(found + Counter({("all_reduce", 8 * tokens): is_last, ("all_reduce", 4): is_last}))


def backward_messages(layers, activation, tokens, is_first=True, is_last=True, replays=0):
    found = Counter({
        ("reduce_scatter", activation): (2 + 2 * replays) * layers + is_last,
        ("all_gather", activation): (4 + 2 * replays) * layers + is_last + is_first,
    })  # fmt: skip
    return dict(found + Counter({("all_reduce", 4 * tokens): is_last}))


def llama_graph(key_heads, layers=2):
    config = llama.Config(
        num_layers=layers, width=WIDTH, num_heads=16, num_key_heads=key_heads, hidden=HIDDEN, vocabulary=WORDS,
        sequence_length=TOKENS,
    )  # fmt: skip
    return trace(llama.build("llama", config))


@pytest.fixture(scope="module")
def grouped():
    """A Llama of two layers, 16 query heads on 8 key heads."""
    return llama_graph(8)


@pytest.fixture(scope="module")
def gpt_16():
    """Two layers of gpt_350m: h 1,024, 16 heads, s 2,048."""
    return trace("gpt_350m", num_layers=2)


def split_plan(placed, graph, tp, batch=1, **options):
    strategy = {"precision": "bf16_mixed", "micro_batch": batch} | options
    return placed(graph, Strategy.of(tp=tp, sequence_parallel=True, **strategy), 2 * batch)


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("batch", [1, 2])
def test_gpt_sends_ten_half_all_reduces_a_layer(gpt_16, placed, tp, batch):
    width, tokens = 1024, 2048
    templates = placed(
        gpt_16, Strategy(tp=tp, sequence_parallel=True, precision="bf16_mixed", micro_batch=batch), batch
    ).stages[0].templates  # fmt: skip
    activation = batch * tokens * width * 2
    assert listed(templates["forward"]) == forward_messages(2, activation, batch * tokens)
    assert listed(templates["backward"]) == backward_messages(2, activation, batch * tokens)
    # once an iteration: norms (two of 2 h a layer and the last), row biases (two of h a layer), positions (s h)
    summed = (2 * 2 * width + 2 * width) * 2 + 2 * width + tokens * width
    last = Counter(listed(templates["backward_last"])) - Counter(listed(templates["backward"]))
    assert last == {("all_reduce", summed * 4): 1}


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_llama_with_grouped_queries_sends_ten_half_all_reduces_a_layer(grouped, placed, tp):
    plan = placed(grouped, Strategy(tp=tp, sequence_parallel=True, precision="bf16_mixed"), 1)
    templates, activation = plan.stages[0].templates, TOKENS * WIDTH * 2
    assert listed(templates["forward"]) == forward_messages(2, activation, TOKENS)
    assert listed(templates["backward"]) == backward_messages(2, activation, TOKENS)
    last = Counter(listed(templates["backward_last"])) - Counter(listed(templates["backward"]))
    assert last == {("all_reduce", (2 * 2 + 1) * WIDTH * 4): 1}  # norms


@pytest.mark.parametrize(("tp", "key_heads"), [(4, 2), (8, 2), (8, 4), (4, 1)])
def test_key_heads_fewer_than_tp_change_no_message_but_the_sums_of_their_weights(placed, tp, key_heads):
    plan = placed(llama_graph(key_heads), Strategy(tp=tp, sequence_parallel=True, precision="bf16_mixed"), 1)
    templates, activation = plan.stages[0].templates, TOKENS * WIDTH * 2
    assert listed(templates["forward"]) == forward_messages(2, activation, TOKENS)
    assert listed(templates["backward"]) == backward_messages(2, activation, TOKENS)
    norms = (2 * 2 + 1) * WIDTH * 4
    weights = 2 * 2 * WIDTH * (WIDTH // 16) * 4  # of one key head: keys and values of two layers
    own = Counter(listed(templates["backward_last"])) - Counter(listed(templates["backward"]))
    if key_heads == 1:
        assert own == {("all_reduce", norms + weights): 1}
    else:
        assert own == {("all_reduce", norms): 1}
        assert listed(templates["backward_last"], "tp1") == {("all_reduce", weights): 1}


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_full_recomputation_sends_a_layers_forward_again_and_gathers_as_before(gpt_16, placed, recompute):
    tokens, activation = 2048, 2048 * 1024 * 2
    templates = split_plan(placed, gpt_16, 4, recompute=recompute).stages[0].templates
    assert listed(templates["forward"]) == forward_messages(2, activation, tokens)
    replays = 1 if recompute == "full" else 0
    assert listed(templates["backward"]) == backward_messages(2, activation, tokens, replays=replays)


def test_stages_send_parts_and_gather_what_they_read(gpt, placed):
    # a boundary between blocks: an activation and a gradient of s/t rows
    plan = placed(
        gpt, Strategy(tp=4, pp=2, dp=2, sequence_parallel=True, precision="bf16_mixed", micro_batch=1), 4
    )  # fmt: skip
    tokens, activation = 2048, 2048 * 768 * 2
    for stage in plan.stages:
        layers = sum(name.endswith("norm1") for name in stage.modules)
        ends = {"is_first": stage.index == 0, "is_last": stage.index == 1}
        assert listed(stage.templates["forward"]) == forward_messages(layers, activation, tokens, **ends)
        assert listed(stage.templates["backward"]) == backward_messages(layers, activation, tokens, **ends)
        sizes = {t.num_bytes for name in ("forward", "backward") for t in stage.templates[name] if t.group == "pp"}
        assert sizes == {activation // 4}


def test_bytes_and_times_equal_those_of_all_reduces_and_norms_are_divided(gpt_16, placed):
    plans = {
        is_split: placed(
            gpt_16, Strategy.of(tp=4, sequence_parallel=is_split, precision="bf16_mixed", fusion="producer"), 1
        )
        for is_split in (False, True)
    }
    plain, split = (plans[is_split].stages[0] for is_split in (False, True))
    assert split.flops == plain.flops
    masked = 3 * 2 * 2048**2 * 1024 * 2 / 4  # a causal mask leaves half of attention, once forward and twice backward
    assert split.causal_flops == split.flops - masked
    assert split.causal_flops <= split.hardware_flops < plain.hardware_flops

    def kernels(stage, what):
        found = (k for n in ("forward", "backward") for t in stage.templates[n] for k in t.kernels)
        return [k for k in found if what in k.op_type]

    assert sum(k.flops for k in kernels(split, "layer_norm")) * 4 == pytest.approx(
        sum(k.flops for k in kernels(plain, "layer_norm"))
    )
    products = [[(k.name, k.duration_s) for k in kernels(stage, "mm")] for stage in (plain, split)]
    assert sorted(products[0]) == sorted(products[1])
    half = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
    activation = 2048 * 1024 * 2

    def halves(stage, name):
        return sum(half[kind] * n for (kind, size), n in listed(stage.templates[name]).items() if size == activation)

    assert halves(split, "forward") == halves(plain, "forward") == 2 * 5
    assert halves(split, "backward") == halves(plain, "backward") + 5 == 2 * 5 + 5  # two a layer, and the head's


@pytest.mark.parametrize("model", ["gpt_16", "grouped"])
def test_inputs_of_weight_gradients_are_gathered_while_input_gradients_are_computed(model, request, placed):
    # PyTorch takes the weight gradient of a product without bias first: it runs behind the input gradient all the same
    tasks = split_plan(placed, request.getfixturevalue(model), 4).stages[0].templates["backward"]
    overlapped = 0
    for index, task in enumerate(tasks):
        if task.collective != "all_gather":
            continue
        place = next(i for i in range(index + 1, len(tasks)) if tasks[i].kind == "compute")
        if index in tasks[place].deps:
            continue
        overlapped += 1
        products = [k for k in tasks[place].kernels if "mm" in k.op_type]
        assert products  # input gradients
        scatter = place + 1
        assert tasks[scatter].collective == "reduce_scatter"
        assert place in tasks[scatter].deps
        behind = next(t for t in tasks[scatter:] if t.kind == "compute")  # weight gradients
        assert index in behind.deps
        assert scatter not in behind.deps
    assert overlapped == 2 * 2 + 1  # both regions of a layer, and the head


def test_without_asynchronous_tp_kernels_wait_for_every_gather(gpt_16, placed):
    for tasks in split_plan(placed, gpt_16, 4, asynchronous_tp=False).stages[0].templates.values():
        for index, task in enumerate(tasks):
            later = [one for one in tasks[index + 1 :] if one.kind == "compute"]
            if task.group == "tp" and later:
                assert index in later[0].deps


def test_bytes_sent_are_received_on_every_device_and_estimates_know_the_collectives(gpt_16):
    fabric = rostam.fabric("electrical_cluster", num_accelerators=8)
    machine = Machine(fabric=fabric, accelerator="a100_80gb")
    times = {}
    for is_split in (False, True):
        strategy = Strategy(dp=2, tp=4, sequence_parallel=is_split, micro_batch=1)
        plan = rostam.place(gpt_16, machine, global_batch=4, strategy=strategy, software="ideal")
        result = rostam.simulate(plan)
        assert result.bytes_sent == result.bytes_received
        times[is_split] = result.iteration_time_s
    assert times[True] == pytest.approx(times[False], rel=0.1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"dp": 2}, r"strategy.sequence_parallel is true, but strategy.tp is 1"),
        ({"mp": 2, "placer": "sip_ml"}, r"strategy.placer=sip_ml has no tensor-parallel groups"),
    ],
)
def test_strategies_without_a_tensor_parallel_group_are_refused(given, reason):
    with pytest.raises(ConfigError, match=reason):
        Strategy.of(sequence_parallel=True, **given)


def test_a_sequence_that_tp_does_not_divide_is_refused(placed):
    config = llama.Config(
        num_layers=1, width=96, num_heads=6, num_key_heads=6, hidden=192, vocabulary=960, sequence_length=100,
    )  # fmt: skip
    graph = trace(llama.build("llama", config))
    with pytest.raises(DegreeError, match=r"splits a sequence of 100 over strategy.tp = 3, which must divide it"):
        placed(graph, Strategy(tp=3, sequence_parallel=True), 1)


def test_a_model_without_a_sequence_is_refused(perceptron, placed):
    with pytest.raises(ConfigError, match="perceptron has no sequence to split"):
        placed(perceptron, Strategy(tp=2, sequence_parallel=True), 4)


@pytest.mark.parametrize("tp", [2, 4])
def test_channels_of_images_are_no_sequence(placed, tp):
    # What a convolution's backward adds up has channels in front of its space.
    with pytest.raises(ConfigError, match="resnet50 has no sequence to split"):
        placed(trace("resnet50"), Strategy(tp=tp, sequence_parallel=True), 8)


@pytest.mark.parametrize("batch", [1, 2])
def test_what_lies_between_regions_is_kept_in_parts(gpt_16, placed, batch):
    # a layer's norms keep their input and output, the last norm too: (2 x 2 + 2) x 2 bytes of s b h; and mean and
    # deviation of each row
    tp, width, tokens = 4, 1024, 2048
    kept = {
        is_split: placed(
            gpt_16, Strategy(tp=tp, sequence_parallel=is_split, precision="bf16_mixed", micro_batch=batch), batch
        ).stages[0].memory.activations
        for is_split in (False, True)
    }  # fmt: skip
    norms = 2 * 2 + 1
    between = norms * 2 * (2 * width + 2) * tokens * batch
    assert kept[False] - kept[True] == between * (tp - 1) // tp


@pytest.mark.parametrize("tp", [2, 4])
def test_t5_gathers_the_encoders_output_once_for_all_cross_attentions(placed, tp):
    # encoder layer: two regions; decoder layer: three, of which cross-attention reads the encoder's output as well
    layers = 2
    config = t5.Config(
        num_layers=layers, width=WIDTH, num_heads=16, head_size=64, hidden=HIDDEN, vocabulary=WORDS,
        sequence_length=TOKENS,
    )  # fmt: skip
    templates = split_plan(placed, trace(t5.build("t5", config)), tp).stages[0].templates
    activation, regions = TOKENS * WIDTH * 2, (2 + 3) * layers
    forward = {("reduce_scatter", activation): regions + 2, ("all_gather", activation): regions + 1 + 1}
    assert listed(templates["forward"]) == forward | {("all_reduce", 8 * TOKENS): 1, ("all_reduce", 4): 1}
    # gradients of what regions made, and of two embeddings; inputs of regions, the encoder's output, the head's input;
    # gradients of regions' inputs, the encoder's output's in each decoder layer, the head's input's
    assert listed(templates["backward"]) == {
        ("all_gather", activation): (regions + 2) + (regions + 1 + 1),
        ("reduce_scatter", activation): regions + layers + 1,
        ("all_reduce", 4 * TOKENS): 1,
    }


def test_experts_read_what_is_gathered_once_and_reduce_scatter_their_combination(placed):
    # experts keep their sorted rows; the router, split by experts, reads what is gathered again for its weights
    layers, experts = 2, 8
    config = mixtral.Config(
        num_layers=layers, width=WIDTH, num_heads=16, num_key_heads=8, head_size=64, hidden=HIDDEN,
        num_experts=experts, per_token=2, vocabulary=WORDS, sequence_length=TOKENS,
    )  # fmt: skip
    templates = split_plan(placed, trace(mixtral.build("mixtral", config)), 4).stages[0].templates
    activation = TOKENS * WIDTH * 2
    forward, backward = (
        {key[0]: n for key, n in listed(templates[name]).items() if key[1] == activation}
        for name in ("forward", "backward")
    )
    assert forward == {"reduce_scatter": 2 * layers + 1, "all_gather": 2 * layers + 1}
    assert backward == {"all_gather": 2 * layers + 1 + 2 * layers + 1, "reduce_scatter": 2 * layers + 1}
    largest = max(size for _, size in listed(templates["backward"]))
    assert largest == activation  # not k rows for each token


@pytest.mark.slow
def test_hugging_faces_llama_sends_what_the_registered_one_does(placed):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install rostam[test-models]")
    sys.path.insert(0, str(Path(__file__).parent.parent / "tracing"))
    from public_models import hugging_face

    config = {
        "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": 3,
        "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": TOKENS, "use_cache": False,
    }  # fmt: skip
    ids = torch.zeros(2, TOKENS, dtype=torch.int64)
    graph = trace(hugging_face("Llama", "ForCausalLM", **config), {"input_ids": ids, "labels": ids})
    templates = split_plan(placed, graph, 4).stages[0].templates
    activation = TOKENS * WIDTH * 2
    assert listed(templates["forward"]) == forward_messages(3, activation, TOKENS)
    assert listed(templates["backward"]) == backward_messages(3, activation, TOKENS)
