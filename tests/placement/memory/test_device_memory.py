"""Memory of one device against numbers derived by hand (MODEL D15)."""

import json

import pytest
import torch
from torch import nn

from rostam_py.errors import ConfigError, MemoryCapacityError
from rostam_py.graph import OperatorGraph
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

S, H, HEADS, V, L = 2048, 768, 12, 50257, 4


def layer_activations(batch, tp):
    """Return the fp32 elements one member keeps of a GPT layer with fused attention and no dropout.

    Whole: both norms' inputs and outputs (4 s b h), their mean and 1 / deviation (4 s b). Split: q, k, v
    (3), the attention's output (1), the GELU's input and output (4 + 4), all s b h / t; one statistic
    of the softmax a token and head.
    """
    tokens = batch * S
    return tokens * (4 * H + 4 + 12 * H // tp + HEADS // tp)


def test_activations_of_a_gpt_equal_the_hand_count(gpt, placed):
    for batch, tp in ((1, 1), (2, 1), (2, 2)):
        words = V if tp == 1 else (V + 1) // 2
        # behind the layers: the last norm's input, output and statistics, and the log-probabilities; when backward
        # begins the gradient of the logits, and of the log-probabilities where that is a kernel of its own
        tokens = batch * S
        elements = L * layer_activations(batch, tp) + tokens * (2 * H + 2) + 2 * tokens * words
        plan = placed(gpt, Strategy(tp=tp, precision="fp32", micro_batch=batch), batch)
        # token ids and labels, positions (int64) and a scalar of the loss are the only other things kept
        extra = plan.stages[0].memory.activations - 4 * elements - 2 * 8 * tokens
        assert 0 <= extra <= 8 * S + 8, (batch, tp, extra)


def llama_layer_activations(width, hidden, heads, key_heads, tp):
    """Return the 16-bit elements for each token that a member keeps of a Llama layer under sequence parallelism.

    As Megatron-Core and torchtitan's compiled blocks keep it. Both norms' inputs and outputs, split along the sequence
    (4 h / t) as are their 1 / deviations (2 / t); q, k, v as attention reads them, behind the rotation, its output and
    a log-sum-exp for each head; gate, up and their product (3 f). Not kept: x / deviation, silu(gate), q and k in front
    of the rotation, residual sums' summands.
    """
    keys = width * key_heads / heads
    return (4 * width + 2 + 2 * width + 2 * keys + heads + 3 * hidden) / tp


@pytest.mark.parametrize("tp", [1, 8])
def test_activations_of_a_llama_layer_equal_the_hand_count(placed, tp):
    tokens, shape = 8192, {"width": 4096, "hidden": 14336, "heads": 32, "key_heads": 8}
    kept = [
        placed(
            trace("llama3_8b", num_layers=count),
            Strategy(tp=tp, sequence_parallel=tp > 1, precision="bf16_mixed", check_memory=False), 1,
        ).stages[0].memory.activations
        for count in (1, 2)
    ]  # fmt: skip
    assert kept[1] - kept[0] == 2 * tokens * llama_layer_activations(**shape, tp=tp)


def test_parameters_gradients_and_state_follow_precision_and_optimizer(gpt, placed):
    count = V * H + S * H + L * (12 * H * H + 13 * H) + 2 * H
    for precision, optimizer, sizes in (
        ("fp32", "sgd", (4, 4, 0)),
        ("fp32", "adam", (4, 4, 8)),
        ("bf16_mixed", "adam", (2, 4, 12)),
        ("fp16_mixed", "momentum", (2, 2, 8)),
    ):
        memory = placed(gpt, Strategy(precision=precision, optimizer=optimizer), 1).stages[0].memory
        found = (memory.parameters, memory.gradients, memory.optimizer_state)
        assert found == tuple(count * size for size in sizes), (precision, optimizer)
        assert memory.total == sum(found) + memory.activations


def test_microbatches_in_flight_multiply_the_activations(gpt, placed):
    one = placed(gpt, Strategy(pp=2), 1).stages
    many = placed(gpt, Strategy(pp=2), 8).stages
    gpipe = placed(gpt, Strategy(pp=2, schedule="gpipe"), 8).stages
    turns = [stage.activation_changes["backward_last"][0] for stage in one]  # of one micro-batch at a time
    kept = [[s.memory.activations - turn for s, turn in zip(run, turns, strict=True)] for run in (one, many, gpipe)]
    assert [b / a for a, b in zip(kept[0], kept[1], strict=True)] == [2, 1]
    assert [b / a for a, b in zip(kept[0], kept[2], strict=True)] == [8, 8]


def test_full_recomputation_keeps_block_inputs_and_one_block(gpt, placed):
    plan = placed(gpt, Strategy(pp=2, precision="fp32", recompute="full"), 8)
    stage = plan.stages[0]
    layers = sum(name.endswith("norm1") for name in stage.modules)
    # the input of every block, twice (two micro-batches in flight); what leaves the stage belongs to the next
    kept = 2 * layers * S * H
    inner = layer_activations(1, 1) - S * H  # one block's own activations, its input aside
    extra = stage.memory.activations - 4 * (kept + inner) - 2 * 8 * S  # token ids of both
    assert 0 <= extra <= 2 * 8 * S + 8


def test_selective_recomputation_drops_the_softmax_statistics_of_fused_attention(gpt, placed):
    none = placed(gpt, Strategy(precision="fp32"), 1).stages[0].memory.activations
    selective = placed(gpt, Strategy(precision="fp32", recompute="selective"), 1).stages[0].memory.activations
    assert none - selective == 4 * L * S * HEADS  # of all layers; one layer's replay makes less than the loss hands on


@pytest.mark.parametrize("tp", [1, 4])
def test_the_loss_is_in_fp32_and_its_gradients_are_there_when_backward_begins(placed, tp):
    # Llama 3's 128,256 words: log-probabilities are kept in 4 bytes. Eager code has the gradients of the
    # log-probabilities and of the logits at once, before the head's product reads the second; one kernel has only that,
    # and writes it in the 2 bytes that products read.
    tokens, words = 8192, 128256 // tp
    options = {"tp": tp, "sequence_parallel": tp > 1, "precision": "bf16_mixed", "check_memory": False}
    graph = trace("llama3_8b", num_layers=2)
    fused = placed(graph, Strategy.of(**options), 1).stages[0].activation_changes
    assert fused["backward_last"][0] == 2 * tokens * words
    options["fusion"] = "producer"
    changes = placed(graph, Strategy.of(**options), 1).stages[0].activation_changes
    handed_on = 2 * 4 * tokens * words - 4  # a scalar of the loss is read no more by then
    assert changes["backward_last"][0] == handed_on
    full = placed(graph, Strategy.of(**options, recompute="full"), 1).stages[0].activation_changes
    assert full["backward_last"][0] == handed_on  # more than one block's activations
    # Kept for full recomputation: two blocks' inputs; the last norm's input, output, 1 / deviation; log-probabilities;
    # and cosines, sines, ids and targets.
    kept = 2 * tokens * (2 * 4096 + 2 * 4096 + 1) / tp + 4 * tokens * words
    assert 0 <= full["forward"][0] - kept <= 2 * 2 * tokens * 128 + 2 * 8 * tokens + 4
    stages = placed(graph, Strategy.of(**options, pp=2), 2).stages
    assert [stage.activation_changes["backward"][0] for stage in stages] == [0, handed_on]


def test_plan_over_capacity_says_by_how_much_where_and_what_holds_it(gpt, placed):
    with pytest.raises(MemoryCapacityError) as error:
        placed(gpt, Strategy(pp=2, dp=1, micro_batch=128, precision="fp32"), 1024)
    message = str(error.value)
    for part in ("of 2 needs", "a100_80gb has 85.9 GB", "too much", "of parameters", "of activations", "recompute"):
        assert part in message, message


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"dp": 2}, "Raise strategy.tp or pp, lower micro_batch, set strategy.recompute=full or set strategy.shard=3"),
        ({"dp": 2, "shard": 3}, "Raise strategy.tp or pp, lower micro_batch or set strategy.recompute=full"),
        ({"dp": 2, "recompute": "full"}, "Raise strategy.tp or pp, lower micro_batch or set strategy.shard=3"),
        ({"dp": 1, "recompute": "full"}, "Raise strategy.tp or pp or lower micro_batch"),
    ],
)
def test_a_plan_over_capacity_is_advised_of_what_it_does_not_do_yet(gpt, placed, options, advice):
    with pytest.raises(MemoryCapacityError) as error:
        placed(gpt, Strategy.of(micro_batch=1024, precision="fp32", **options), 2048)
    assert str(error.value).endswith(f"). {advice}")


def test_memory_check_can_be_switched_off(gpt, placed):
    plan = placed(gpt, Strategy(pp=2, micro_batch=128, precision="fp32", check_memory=False), 1024)
    assert plan.memory_bytes > 85.9e9


class Adapted(nn.Module):
    """Frozen square layers, each with a trained adapter of rank ``rank`` beside it."""

    def __init__(self, width, depth, rank):
        super().__init__()
        with torch.device("meta"):
            self.base = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
            self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(depth))
            self.up = nn.ModuleList(nn.Linear(rank, width, bias=False) for _ in range(depth))
        self.base.requires_grad_(False)

    def forward(self, x):
        """Add each layer's product and its adapter's."""
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = torch.relu(base(x) + up(down(x)))
        return x


def adapted(depth=4, **options):
    return trace(Adapted(1024, depth, 8), torch.empty(2, 1024), name="adapted", **options)


FROZEN, TRAINED = 1024 * 1024, 2 * 8 * 1024  # scalars of one layer


@pytest.mark.parametrize("route", ["joint", "dispatch"])
def test_frozen_weights_take_memory_but_no_gradient_and_no_state(placed, route):
    graph = adapted(route=route)
    assert (graph.num_parameters, graph.num_frozen_parameters) == (4 * TRAINED, 4 * FROZEN)
    for precision, size, gradient, state in (("fp32", 4, 4, 8), ("bf16_mixed", 2, 4, 12)):
        stage = placed(graph, Strategy(precision=precision, optimizer="adam"), 8).stages[0]
        memory = stage.memory
        assert memory.parameters == 4 * (FROZEN + TRAINED) * size
        assert (memory.gradients, memory.optimizer_state) == (4 * TRAINED * gradient, 4 * TRAINED * state)
        assert stage.num_parameters == 4 * TRAINED


def test_frozen_weights_split_over_tp_and_stages_as_trained_ones(placed):
    graph = adapted()
    half = placed(graph, Strategy(tp=2, precision="fp32"), 8).stages[0].memory
    # column, row, column, row: of an adapter the matrix on the frozen one's whole side (8 x 1,024) stays whole
    assert half.parameters == 4 * (FROZEN // 2 + TRAINED // 4 + TRAINED // 2) * 4
    stages = placed(graph, Strategy(pp=2, precision="fp32"), 8).stages
    assert sum(s.memory.parameters for s in stages) == 4 * (FROZEN + TRAINED) * 4
    for stage in stages:
        layers = sum(name.startswith("base") for name in stage.modules)
        assert stage.memory.parameters == (layers * FROZEN + stage.num_parameters) * 4


def test_frozen_weights_send_no_gradients(placed):
    plan = placed(adapted(), Strategy(dp=2, precision="fp32"), 8)
    sent = sum(m.num_bytes * m.count for m in plan.messages() if m.group == "dp")
    assert sent == 4 * TRAINED * 4


def test_frozen_weights_alone_can_exceed_the_capacity(placed):
    with pytest.raises(MemoryCapacityError, match=r"of parameters"):
        placed(trace(Adapted(65_536, 6, 8), torch.empty(2, 65_536), name="large"), Strategy(), 8)


class Projected(nn.Module):
    """A trained layer, a product with a fixed matrix, and a fixed vector added."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512, bias=False)
        self.register_buffer("matrix", torch.empty(512, 512, device="meta"))
        self.register_buffer("shift", torch.empty(512, device="meta"))
        self.head = nn.Linear(512, 64, bias=False)

    def forward(self, x):
        """Return 64 numbers a sample."""
        return self.head(torch.relu(self.layer(x)) @ self.matrix + self.shift)


@pytest.mark.parametrize("route", ["joint", "dispatch"])
def test_buffers_take_memory_where_they_are_read(placed, route):
    graph = trace(Projected(), torch.empty(2, 512), name="projected", route=route)
    trained, matrix, shift = 512 * 512 + 512 * 64, 512 * 512, 512
    one = placed(graph, Strategy(precision="fp32"), 8).stages[0].memory
    assert (one.parameters, one.gradients) == (4 * (trained + matrix + shift), 4 * trained)
    two = placed(graph, Strategy(tp=2, precision="fp32"), 8).stages[0].memory
    assert 4 * (trained + matrix + shift) // 2 <= two.parameters <= 4 * ((trained + matrix) // 2 + shift)
    stages = placed(graph, Strategy(pp=2, precision="fp32"), 8).stages
    assert sum(s.memory.parameters for s in stages) == one.parameters


# The model's own input


class Strided(nn.Module):
    """(B, 4, 32, 32, 32) -> (B, 16, 2, 2, 2): much input, little else."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 16, 3, stride=16, bias=False)

    def forward(self, x):
        """Convolve."""
        return self.conv(x)


def test_an_input_that_backward_reads_is_kept(placed):
    size = 4 * 4 * 32**3
    graph = trace(Strided(), torch.empty(2, 4, 32, 32, 32), name="strided", loss_fn=lambda y: y.mean())
    assert [t.name for t in graph.kept_inputs] == ["input_0"]
    assert graph.saved_bytes(3) == 3 * size
    for dp in (1, 2):
        changes = placed(graph, Strategy(dp=dp, precision="fp32"), 8).stages[0].activation_changes
        assert changes["forward"][0] == 8 // dp * size, dp
    half = placed(graph, Strategy(precision="bf16_mixed"), 8).stages[0].activation_changes
    assert half["forward"][0] == 8 * size // 2


def test_an_input_that_backward_does_not_read_is_not_kept(placed):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.empty(64))

        def forward(self, x):
            return x + self.shift

    graph = trace(Shifted(), torch.empty(2, 64), name="shifted", loss_fn=lambda y: y.mean())
    assert graph.kept_inputs == ()
    assert graph.saved_bytes(1) == 0
    changes = placed(graph, Strategy.of(precision="fp32", fusion="none"), 8).stages[0].activation_changes
    assert changes["forward"][0] == 0
    assert changes["backward_last"] == (8 * 64 * 4, -8 * 64 * 4)  # the gradient of what the mean is of


def test_the_first_stage_keeps_an_input_for_every_microbatch_in_flight_once(placed):
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)))
    graph = trace(blocks, torch.empty(2, 256), name="blocks", loss_fn=lambda y: y.mean())
    row = 4 * 256
    none, full = (
        placed(graph, Strategy(pp=2, micro_batch=1, precision="fp32", recompute=mode), 8).stages
        for mode in ("none", "full")
    )
    # the input and the outputs of two ReLUs, twice; the second stage keeps what it receives and two outputs
    # of the blocks before, and the gradient that its backward begins with
    assert [s.memory.activations for s in none] == [2 * 3 * row, 3 * row + row]
    # replayed: the inputs of two blocks, twice and once, and one block's output
    assert [s.memory.activations for s in full] == [2 * 2 * row + row, 2 * row + row]


def test_a_graph_of_version_1_counts_its_frozen_weights_and_inputs_too(placed, tmp_path):
    graph = adapted()
    path = tmp_path / "graph.json"
    graph.save(str(path))
    document = json.loads(path.read_text())
    document["version"] = 1
    document["ops"] = [record[:5] for record in document["ops"]]
    for record in document["tensors"]:
        record[2] = "buffer" if record[2] == "frozen" else record[2]
    path.write_text(json.dumps(document))
    for strategy in (Strategy(), Strategy(tp=2)):
        new, old = (placed(g, strategy, 8).stages[0].memory for g in (graph, OperatorGraph.load(str(path))))
        assert new == old


def test_where_blocks_alone_are_fused_each_op_outside_them_is_a_kernel(gpt, placed):
    """Compiled block by block: no kernel spans blocks, and what is outside them is eager code's."""

    def kernels(plan):
        tasks = (task for name in ("forward", "backward") for task in plan.stages[0].templates[name])
        return [kernel.call.ops for task in tasks for kernel in task.kernels if kernel.call is not None]

    def plan(**settings):
        return placed(gpt, Strategy.of(dp=8, precision="bf16_mixed", **settings), 8)

    apart, whole, eager = plan(fused_part="blocks"), plan(), plan(fusion="none")
    outside = [ops for ops in kernels(apart) if any(op.block < 0 for op in ops)]
    assert all(len(ops) == 1 for ops in outside)
    assert {ops[0].id for ops in outside} == {ops[0].id for ops in kernels(eager) if ops[0].block < 0}
    assert all(len({op.block for op in ops}) == 1 for ops in kernels(apart))
    assert any(len(ops) > 1 for ops in kernels(apart))
    assert len(kernels(whole)) < len(kernels(apart)) < len(kernels(eager))
    assert whole.memory_bytes < apart.memory_bytes <= eager.memory_bytes
    for settings in ({"fused_part": "blocks", "fusion": "none"}, {"fused_part": "layers"}):
        with pytest.raises(ConfigError, match="fused_part"):
            Strategy.of(**settings)
