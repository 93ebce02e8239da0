"""What fused backward kernels compute again: by hand, and as torch's own min-cut partitioner decides it."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import aot_module
from torch._functorch.partitioners import min_cut_rematerialization_partition

from rostam_py.graph import derived_tensors, fuse, kernel_bytes, kernel_traffic
from rostam_py.models.decoder import GatedFeedForward
from rostam_py.tracing import trace

BATCH, ROWS, WIDTH, HIDDEN = 2, 16, 64, 224


class Gated(nn.Module):
    """Half a Llama block behind a layer: RMS norm, gated unit, residual sum."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.norm, self.mlp = nn.RMSNorm(WIDTH), GatedFeedForward(WIDTH, HIDDEN)

    def forward(self, x):
        """Add the unit's result."""
        x = self.first(x)
        return x + self.mlp(self.norm(x))


class Perceptron(nn.Module):
    """Two layers around an activation; layer norm in front."""

    def __init__(self, activation):
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(WIDTH), activation
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        """Add the layers' result."""
        return x + self.down(self.activation(self.up(self.norm(x))))


def tanh_gelu(x):
    """GELU in six ops, as older models write it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def traced(module):
    return trace(module, torch.randn(BATCH, ROWS, WIDTH), loss_fn=lambda y: y.sum(), name="part")


def kept_bytes(graph):
    """Return the bytes of a traced part that are kept for backward, inputs left out."""
    derived = derived_tensors(graph)
    sizes = {}
    for t in graph.tensors:
        if t.is_saved and graph.view_roots[t.id] not in derived:
            sizes[t.storage] = max(sizes.get(t.storage, 0), t.num_bytes(BATCH))
    return sum(sizes.values())


def viewed(node):
    """Return the node that a view is of."""
    while node.target in (torch.ops.aten.t.default, torch.ops.aten.view.default):
        node = node.args[0]
    return node


def partitioned_bytes(module):
    """Return the bytes that torch.compile's partitioner keeps of the same part, weights and inputs left out."""
    found = []

    def forward(graph, _):
        output = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        found.extend(n.meta["val"] for n in output[1:] if viewed(n).op != "placeholder")
        return graph

    x = torch.randn(BATCH, ROWS, WIDTH, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = aot_module(
            module, fw_compiler=forward, bw_compiler=lambda g, _: g, partition_fn=min_cut_rematerialization_partition
        )
        compiled(x)
    return sum(v.numel() * v.element_size() for v in found)


@pytest.mark.parametrize("module", [Gated, lambda: Perceptron(nn.GELU()), lambda: Perceptron(nn.SiLU())])
def test_as_much_is_kept_as_by_the_min_cut_of_torch(module):
    assert kept_bytes(traced(module())) == partitioned_bytes(module())


def test_an_activation_written_in_many_ops_keeps_its_input_and_its_result():
    norm, activation = WIDTH + 2, 2 * HIDDEN
    assert kept_bytes(traced(Perceptron(tanh_gelu))) == 4 * BATCH * ROWS * (norm + activation)


def test_gated_unit_keeps_its_products_and_its_result():
    graph = traced(Gated())
    derived = derived_tensors(graph)
    made = sorted(graph.ops[graph.tensors[t].producer].op_type for t in derived)
    assert made == ["aten.mul.Tensor", "aten.silu.default"]  # x * rstd of the norm; silu(gate)
    rows = BATCH * ROWS
    # the norm's input, 1 / deviation and result; gate, up and their product
    assert kept_bytes(graph) == 4 * rows * (1 + 2 * WIDTH + 3 * HIDDEN)
    sources = {graph.ops[graph.tensors[t].producer].op_type: derived[t] for t in derived}
    (gate,) = sources["aten.silu.default"]
    assert graph.ops[graph.tensors[graph.view_roots[gate]].producer].op_type == "aten.mm.default"


def test_kernels_neither_write_nor_read_what_is_computed_again():
    graph = traced(Gated())
    fusion, derived = fuse(graph), derived_tensors(graph)
    changed = {}
    plain, less = kernel_traffic(graph, fusion), kernel_traffic(graph, fusion, derived=derived)
    for kernel, before, after in zip(fusion.kernels, plain, less, strict=True):
        if before != after:
            moved = [kernel_bytes(graph, t, BATCH) for t in (before, after)]
            phase = graph.ops[kernel[0]].phase
            read, written = changed.get(phase, (0, 0))
            changed[phase] = read + moved[0][0] - moved[1][0], written + moved[0][1] - moved[1][1]
    rows = BATCH * ROWS
    # forward: x * rstd stays in its kernel (silu(gate) goes to the kernel that multiplies); backward: silu(gate) is not
    # read but computed from gate, x * rstd from x
    assert changed["forward"] == (0, 4 * rows * WIDTH)
    assert changed["backward"] == (4 * rows * (HIDDEN + WIDTH), 0)


class Dropping(nn.Module):
    """An element-wise chain with dropout inside."""

    def __init__(self):
        super().__init__()
        self.up, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)

    def forward(self, x):
        """Gate by a sigmoid whose result is dropped at random."""
        y = self.up(x)
        return torch.sigmoid(self.dropout(y)) * y


def test_random_ops_are_not_run_again():
    graph = traced(Dropping())
    made = [graph.ops[graph.tensors[t].producer] for t in derived_tensors(graph)]
    assert not [op.op_type for op in made if "dropout" in op.op_type]
    masks = [t for t in graph.tensors if t.is_saved and t.dtype == "bool"]
    assert len(masks) == 1


def test_what_must_be_in_memory_is_kept_and_what_is_gathered_first_not_run_again():
    graph = traced(Gated())
    silu = next(t for t in derived_tensors(graph) if "silu" in graph.ops[graph.tensors[t].producer].op_type)
    assert silu not in derived_tensors(graph, whole={silu})
    assert silu not in derived_tensors(graph, apart={graph.tensors[silu].producer})
