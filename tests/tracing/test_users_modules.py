"""What users bring: tied weights, files, keyword inputs; and one clear message when it cannot work."""

import gc
import logging
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.errors import ConfigError, TracingError, UnknownNameError
from rostam_py.graph import Affine
from rostam_py.tracing import trace


class TiedMlp(nn.Module):
    """decoder.weight is encoder.weight: x (B, 8) -> (B, 16) -> (B, 8) with W and W again."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 16, bias=False)
        self.middle = nn.Linear(16, 8, bias=False)
        self.decoder = nn.Linear(8, 16, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.middle(torch.relu(self.encoder(x))))


@pytest.mark.parametrize("route", ["joint", "dispatch"])
def test_tied_weights_are_one_parameter_with_one_summed_gradient(route: str) -> None:
    inputs = (torch.zeros(4, 8), torch.zeros(4, 16))
    graph = trace(TiedMlp(), inputs, loss_fn=functional.mse_loss, name="tied", route=route)
    assert graph.name == "tied"
    assert [t.name for t in graph.parameters] == ["encoder.weight", "middle.weight"]
    assert graph.num_parameters == 8 * 16 + 16 * 8
    weight = next(t for t in graph.parameters if t.name == "encoder.weight")
    readers = {graph.ops[i].module for i in graph.consumers[weight.id] if graph.ops[i].phase == "forward"}
    assert readers == {"encoder", "decoder"}
    gradients = [t for t in graph.tensors if t.kind == "gradient" and t.name == "encoder.weight"]
    assert len(gradients) == 1
    producer = graph.ops[gradients[0].producer]
    chain = producer if not producer.is_metadata else graph.ops[graph.tensors[producer.inputs[0]].producer]
    assert chain.is_accumulation
    assert len(chain.inputs) == 2


def test_module_in_hand_keeps_its_own_weights() -> None:
    module = TiedMlp()
    before = module.encoder.weight
    trace(module, (torch.zeros(4, 8), torch.zeros(4, 16)), loss_fn=functional.mse_loss)
    assert module.encoder.weight is before
    assert module.decoder.weight is before
    assert not module._forward_hooks


def test_matrix_products_scale_as_derived_by_hand() -> None:
    graph = trace(nn.Linear(8, 16, bias=False), torch.zeros(4, 8))
    forward = next(op for op in graph.ops if op.op_type == "aten.mm.default" and op.phase == "forward")
    assert forward.flops == Affine(0, 2 * 8 * 16)
    assert forward.bytes_read == Affine(4 * 8 * 16, 4 * 8)
    assert forward.bytes_written == Affine(0, 4 * 16)


def test_sequential_of_equal_blocks_is_found() -> None:
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
    graph = trace(nn.Sequential(nn.Linear(4, 8), *blocks), torch.zeros(2, 4))
    assert graph.block_names == ("1", "2", "3")
    assert {op.block for op in graph.ops} == {-1, 0, 1, 2}


def test_keyword_inputs_reach_the_module() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, *, left: Tensor, right: Tensor) -> Tensor:
            return self.linear(left) + right

    graph = trace(Pair(), {"right": torch.zeros(2, 4), "left": torch.zeros(2, 4)})
    assert graph.forward_flops(2) > 0


def test_second_route_takes_over_where_the_joint_route_fails() -> None:
    class Logger(nn.Module):
        """Takes a gradient inside forward with retain_grad hooks, which AOTAutograd cannot express."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if type(x).__name__ == "FunctionalTensor":
                raise RuntimeError("this module refuses functional tensors")
            return self.linear(x).square()

    graph = trace(Logger(), torch.zeros(2, 4))
    assert graph.route == "dispatch"
    assert any("joint route failed" in note and "functional tensors" in note for note in graph.notes)


def test_recurrent_layers_and_tensor_attributes_are_traced() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, batch_first=True)
            self.head = nn.Linear(16, 4)
            self.mask = torch.ones(5)  # neither a buffer nor a parameter

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0] * self.mask[None, :, None])

    module = Tagger()
    graph = trace(module, torch.zeros(2, 5, 8))
    assert graph.route == "joint"
    # Per step and sample: 4 gates of 16 from 8 inputs and 16 states, then 16 to 4.
    products = 5 * 2 * (4 * 16 * (8 + 16) + 16 * 4)
    assert products <= graph.forward_flops(1) <= 1.3 * products
    assert type(module.mask) is torch.Tensor
    assert "mask" not in dict(module.named_buffers())


class Unsteady(nn.Module):
    """Reads a value out of a tensor, which no trace can know."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.gate = Gate()

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(self.inner(x))


class Gate(nn.Module):
    """The part of Unsteady that cannot be traced."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x


def test_untraceable_module_is_named_with_the_op() -> None:
    with pytest.raises(TracingError, match=r"(?s)Unsteady cannot be traced.*module 'gate'.*_local_scalar_dense"):
        trace(Unsteady(), torch.zeros(2, 4))


def test_structure_that_depends_on_the_batch_is_an_error() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(x.shape[0]):
                x = self.linear(x)
            return x

    with pytest.raises(TracingError, match="depends on the batch"):
        trace(Loop(), torch.zeros(2, 4))


def test_inputs_without_gradient_path_are_an_error() -> None:
    class Detached(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    with pytest.raises(TracingError, match="gradient"):
        trace(Detached(4, 4), torch.zeros(2, 4))
    with pytest.raises(TracingError, match="no trainable parameters"):
        trace(nn.ReLU(), torch.zeros(2, 4))
    with pytest.raises(TracingError, match="example_inputs"):
        trace(nn.Linear(4, 4))


def test_loss_that_lacks_targets_is_explained() -> None:
    with pytest.raises(TracingError, match="pass targets"):
        trace(nn.Linear(4, 4), torch.zeros(2, 4), loss_fn=functional.cross_entropy)


def test_unknown_model_lists_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"gpt3_175b.*resnet50"):
        trace("gpt3_175")
    with pytest.raises(ConfigError, match="route"):
        trace("resnet50", route="magic")


FILE = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
    def forward(self, x):
        return self.linear(x)

def example_inputs(batch):
    return torch.zeros(batch, 6), torch.zeros(batch, dtype=torch.int64)

loss_fn = nn.functional.cross_entropy
"""


def test_model_in_a_file_is_traced(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    graph = trace(f"{path}:Mine")
    assert graph.name == "Mine"
    assert graph.num_parameters == 21
    with pytest.raises(ConfigError, match="has no 'Yours'; module classes there: Mine"):
        trace(f"{path}:Yours")
    with pytest.raises(ConfigError, match="does not exist"):
        trace(f"{tmp_path}/none.py:Mine")


class Mismatched(nn.Module):
    """Its second layer takes other widths than the first one returns."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


def test_a_shape_error_is_said_once_and_torch_logs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    unraisable: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    log = logging.getLogger("torch._subclasses.fake_tensor")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        for module, width in ((Mismatched(), 8), (Unsteady(), 4)):
            with pytest.raises(TracingError) as error:
                trace(module, torch.zeros(2, width))
            assert str(error.value).count("Error") + str(error.value).count("Exception") == 1, error.value
            assert "in module" in str(error.value)
        gc.collect()
    finally:
        log.removeHandler(handler)
        sys.unraisablehook = hook
    assert (unraisable, records, capfd.readouterr().err) == ([], [], "")
    assert not log.disabled


@pytest.mark.parametrize(
    ("signature", "body"),
    [("", "return torch.zeros(2, 8)"), ("self, batch", "return torch.zeros(batch, 8)"), ("batch", "return batch.x")],
)
def test_example_inputs_that_cannot_be_called_with_a_batch_are_explained(
    tmp_path: Path, signature: str, body: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Mine(nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(8, 4)\n\n    @staticmethod\n"
        f"    def example_inputs({signature}):\n        {body}\n"
    )
    with pytest.raises(ConfigError, match=r"example_inputs.* of Mine in .*mine\.py' (must be .*batch|fails)"):
        trace(f"{path}:Mine")
