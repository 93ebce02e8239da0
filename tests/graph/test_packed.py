"""Packed graphs: to the last digit what was packed, and what a graph's file says; other bytes are refused."""

import dataclasses

import pytest

from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, OperatorGraph
from rostam_py.graph.packed import pack, unpack
from rostam_py.tracing import trace


@pytest.fixture(scope="module", params=["gpt_125m", "cosmoflow", "qwen3_30b_a3b"])
def graph(request: pytest.FixtureRequest) -> OperatorGraph:
    """A graph; of convolutions with halos, of experts with parts of dimensions."""
    return trace(request.param, num_layers=None if request.param == "cosmoflow" else 2)


def test_an_unpacked_graph_is_that_of_its_file(graph: OperatorGraph, tmp_path) -> None:
    graph.save(tmp_path / "graph.json")
    unpacked = unpack(pack(graph))
    assert unpacked == graph
    assert repr(unpacked) == repr(OperatorGraph.load(tmp_path / "graph.json"))  # 1 is not 1.0 there


def test_what_it_may_compute_later_is_computed(graph: OperatorGraph) -> None:
    unpacked = unpack(pack(graph))
    assert unpacked.num_parameters == graph.num_parameters
    assert unpacked.weights == graph.weights
    assert pack(unpacked) == pack(unpack(pack(unpacked)))


def test_infinite_arguments_and_whole_numbers_stay(graph: OperatorGraph) -> None:
    first = dataclasses.replace(graph.ops[0], arguments={"args": [float("-inf"), 1, 1.0, None, [True]]})
    one = dataclasses.replace(graph, ops=(dataclasses.replace(first, flops=Affine(1, 2.0)), *graph.ops[1:]))
    assert repr(unpack(pack(one)).ops[0]) == repr(one.ops[0])


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:40] + b"x" + data[41:]]
)
def test_damaged_bytes_are_refused(graph: OperatorGraph, damage) -> None:
    with pytest.raises(ConfigError, match="its graph is damaged"):
        unpack(damage(pack(graph)))
