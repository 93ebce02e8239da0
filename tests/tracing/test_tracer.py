"""Traced quantities: FLOPs, bytes, parameters, saved tensors and how they scale with the batch."""

import subprocess
import sys
from collections.abc import Mapping

import pytest
import torch
from torch import nn

from rostam_py.graph import OperatorGraph
from rostam_py.models.spec import ModelSpec
from rostam_py.tracing import trace
from rostam_py.tracing.running import ATTEMPTS, run_once
from rostam_py.tracing.subject import Subject

FAMILIES = ("gpt", "llama", "t5", "transformer", "resnet", "cosmoflow", "dlrm")


@pytest.fixture(scope="module")
def resnet50() -> OperatorGraph:
    return trace("resnet50")


def test_resnet50_matches_published_parameters_and_flops(resnet50: OperatorGraph) -> None:
    assert resnet50.num_parameters == 25_557_032
    assert resnet50.forward_flops(1) == pytest.approx(8.18e9, rel=0.01)
    assert 1.9 <= resnet50.backward_flops(1) / resnet50.forward_flops(1) <= 2.1


def test_resnet50_agrees_on_both_routes(resnet50: OperatorGraph) -> None:
    other = trace("resnet50", route="dispatch")
    assert other.route == "dispatch"
    assert other.forward_flops(3) == resnet50.forward_flops(3)
    assert other.backward_flops(3) == resnet50.backward_flops(3)
    assert other.num_parameters == resnet50.num_parameters


GPT3 = """
from rostam_py.tracing import trace
graph = trace("gpt3_175b", cache=False)
print(graph.num_parameters, graph.forward_flops(1), len(graph.block_names), graph.saved_bytes(1))
# Not ru_maxrss: it remembers the process that started this one.
print(1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]))
"""


def test_gpt3_traces_exactly_within_1_5_gb() -> None:
    output = subprocess.run([sys.executable, "-c", GPT3], check=True, capture_output=True, text=True).stdout.split()
    num_parameters, flops, num_blocks, saved, rss_bytes = (float(x) for x in output)
    assert num_parameters == 174_604_259_328
    assert flops == pytest.approx(735e12, rel=0.01)
    assert num_blocks == 96
    assert saved == pytest.approx(155e9, rel=0.02)  # one count a storage, views of parameters left out
    assert rss_bytes <= 1.5e9


@pytest.mark.parametrize("family", FAMILIES)
def test_a_third_batch_is_predicted_exactly(
    family: str, small_graphs: Mapping[str, OperatorGraph], small_specs: dict[str, ModelSpec]
) -> None:
    graph = small_graphs[family]
    spec = small_specs[family]
    raw = run_once(Subject.of_spec(spec, dict(spec.stacks)), ATTEMPTS[0], 7)
    shapes = sorted((value.shape, value.dtype) for value in raw.values if value.producer is not None)
    predicted = [(tuple(int(dim.at(7)) for dim in t.shape), t.dtype) for t in graph.tensors if t.producer is not None]
    added = [op for op in graph.ops if op.is_accumulation and op.flops.per_sample == 0]
    tied = 0.0
    for op in added[
        len(added) - (len(predicted) - len(shapes)) :
    ]:  # sums of tied gradients: ours, not in the raw trace
        predicted.remove((tuple(int(d.at(7)) for d in graph.tensors[op.outputs[0]].shape), "float32"))
        tied += op.flops.at(7)
    assert sorted(predicted) == shapes
    for phase in ("forward", "backward"):
        seen = sum(op.flops for op in raw.ops if op.phase == phase)
        assert graph.flops(phase, 7) - (tied if phase == "backward" else 0) == pytest.approx(seen, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_routes_agree_on_flops_parameters_and_gradients(
    family: str, small_graphs: Mapping[str, OperatorGraph], small_specs: dict[str, ModelSpec]
) -> None:
    joint, dispatch = small_graphs[family], trace(small_specs[family], route="dispatch")
    assert (joint.route, dispatch.route) == ("joint", "dispatch")
    for batch in (1, 5):
        assert joint.forward_flops(batch) == dispatch.forward_flops(batch)
        assert joint.backward_flops(batch) == dispatch.backward_flops(batch)
    names = [{t.name for t in g.tensors if t.kind == "gradient"} for g in (joint, dispatch)]
    assert names[0] == names[1] == {t.name for t in joint.parameters}
    sums = [sum(op.is_accumulation for op in g.ops) for g in (joint, dispatch)]
    assert sums[0] == sums[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_graph_is_complete(family: str, small_graphs: Mapping[str, OperatorGraph]) -> None:
    graph = small_graphs[family]
    assert sum(t.kind == "loss" for t in graph.tensors) == 1
    made: set[int] = {t.id for t in graph.tensors if t.producer is None}
    for op in graph.ops:  # a valid execution order, every tensor made once, views free of charge
        assert set(op.inputs) <= made
        assert not made & set(op.outputs)
        made.update(op.outputs)
        assert all(graph.tensors[v].producer == op.id for v in op.outputs)
        assert not op.is_metadata or (op.flops.at(8), op.bytes_read.at(8), op.bytes_written.at(8)) == (0, 0, 0)
        assert op.forward_op is None or graph.ops[op.forward_op].phase == "forward"
    phases = [op.phase for op in graph.ops]
    assert phases == sorted(phases, key=("forward", "backward").index)


def test_gpt_blocks_are_found_and_equal(small_graphs: Mapping[str, OperatorGraph]) -> None:
    graph = small_graphs["gpt"]
    assert graph.block_names == ("blocks.0", "blocks.1")
    types = [[op.op_type for op in graph.ops if op.block == block] for block in (0, 1)]
    assert types[0] == types[1]


def test_gpt_flops_match_the_closed_form() -> None:
    # Matrix products: 2 tokens (12 L D^2 + V D) and attention 4 B S^2 D L; the rest is below 2%.
    graph = trace("gpt_125m", num_layers=2)
    tokens, width = 2048, 768
    products = 2 * tokens * (12 * 2 * width**2 + 50257 * width) + 4 * 2048**2 * width * 2
    assert products <= graph.forward_flops(1) <= 1.02 * products


def test_saved_bytes_of_a_linear_relu_stack_are_derived_by_hand() -> None:
    # x -> Linear(8, 16) -> relu -> Linear(16, 4) -> mean: backward needs x (8 floats a sample) and
    # relu's output (16 floats a sample), which both relu and the second layer keep in one storage.
    graph = trace(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.zeros(2, 8))
    assert graph.saved_bytes(10) == 10 * (8 + 16) * 4
