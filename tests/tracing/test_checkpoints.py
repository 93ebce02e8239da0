"""torch.utils.checkpoint: FLOPs and kept bytes of the checkpointed program, against torch's counts of a real run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.tracing import trace

B, D, H = 4, 8, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    """A first layer and three blocks, each run by ``run(block, x)``."""

    def __init__(self, run: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(D, D)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = self.run(block, x)
        return x


def _keep_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_product = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


RUNS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "plain": lambda block, x: block(x),
    "non-reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "no early stop": lambda block, x: checkpoint(block, x, use_reentrant=False, early_stop=False),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "nested": lambda block, x: checkpoint(
        lambda y: checkpoint(block, y, use_reentrant=False), x, use_reentrant=False, early_stop=False
    ),
}


def _products(graph: OperatorGraph, phase: str) -> float:
    return sum(op.flops.at(B) for op in graph.ops if op.phase == phase and "mm" in op.op_type)


@pytest.mark.parametrize("route", ["joint", "dispatch"])
@pytest.mark.parametrize("kind", [k for k in RUNS if k != "nested"])
def test_backward_flops_are_those_of_a_real_run(kind: str, route: str) -> None:
    net = Net(RUNS[kind])
    graph = trace(net, torch.zeros(B, D), route=route)
    with FlopCounterMode(display=False) as forward:
        loss = net(torch.randn(B, D)).mean()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    assert graph.route == route
    assert _products(graph, "forward") == forward.get_total_flops()
    assert _products(graph, "backward") == backward.get_total_flops()
    # Kept: x; plain blocks keep their input and tanh, checkpointed ones their input alone.
    floats = D + 3 * (D + (H if kind == "plain" else 0))
    assert graph.saved_bytes(B) == 4 * B * floats
    assert any("3 checkpointed regions" in note for note in graph.notes) == (kind != "plain")


def test_recomputed_ops_name_what_they_repeat_and_make_tensors_of_their_own() -> None:
    graph = trace(Net(RUNS["non-reentrant"]), torch.zeros(B, D))
    again = [op for op in graph.ops if op.phase == "backward" and op.op_type == "aten.addmm.default"]
    assert [op.module for op in again] == ["blocks.2.up", "blocks.1.up", "blocks.0.up"]
    assert all(graph.ops[op.forward_op].module == op.module for op in again if op.forward_op is not None)
    originals = {graph.tensors[t].storage for op in graph.ops if op.phase == "forward" for t in op.outputs}
    assert not any(graph.tensors[t].storage in originals for op in again for t in op.outputs)


def test_a_region_inside_a_region_belongs_to_the_outer_one() -> None:
    nested, outer = (trace(Net(RUNS[kind]), torch.zeros(B, D)) for kind in ("nested", "no early stop"))
    assert nested.backward_flops(B) == outer.backward_flops(B)
    assert nested.saved_bytes(B) == outer.saved_bytes(B)


def test_selective_checkpointing_keeps_what_its_policy_names() -> None:
    contexts = partial(create_selective_checkpoint_contexts, _keep_products)
    graph = trace(
        Net(lambda block, x: checkpoint(block, x, use_reentrant=False, context_fn=contexts)), torch.zeros(B, D)
    )
    plain = trace(Net(RUNS["plain"]), torch.zeros(B, D))
    assert _products(graph, "backward") == _products(plain, "backward")
    again = [op for op in graph.ops if op.phase == "backward" and op.op_type == "aten.tanh.default"]
    assert len(again) == 3


def test_torchs_checkpoint_is_as_before_after_a_trace() -> None:
    trace(Net(RUNS["reentrant"]), torch.zeros(B, D))
    x = torch.randn(B, D, requires_grad=True)
    net = Net(RUNS["reentrant"])
    net(x).mean().backward()
    assert net.blocks[0].up.weight.grad is not None


@pytest.mark.parametrize("placer", ["megatron", "sip_ml"])
def test_what_runs_again_counts_as_the_hardwares_flops_not_the_models(placer: str, tmp_path: Path) -> None:
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="400 Gb/s"))
    strategy = rostam.Strategy(dp=2, placer=placer)
    graphs = {kind: trace(Net(RUNS[kind]), torch.zeros(B, D)) for kind in ("plain", "non-reentrant")}
    graphs["non-reentrant"].save(tmp_path / "graph.json.gz")
    graphs["loaded"] = OperatorGraph.load(tmp_path / "graph.json.gz")
    plain, checkpointed, loaded = (
        rostam.place(g, machine, global_batch=8, strategy=strategy, software="ideal") for g in graphs.values()
    )
    assert checkpointed.stages[0].flops == loaded.stages[0].flops == plain.stages[0].flops
    # Early stop leaves out each block's last product: only ``up`` and tanh run again, on 4 samples a device.
    more = checkpointed.stages[0].hardware_flops - plain.stages[0].hardware_flops
    assert more == 3 * (2 * B * D * H + B * H)


def test_recomputation_of_a_model_that_checkpoints_itself_is_refused() -> None:
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="400 Gb/s"))
    graph = trace(Net(RUNS["reentrant"]), torch.zeros(B, D))
    with pytest.raises(ConfigError, match=r"strategy.recompute is 'full'; it must be 'none' for .* checkpoints"):
        rostam.place(graph, machine, global_batch=8, strategy=rostam.Strategy(dp=2, recompute="full"), software="ideal")
