"""Saved graphs load without torch, exactly, or fail with one clear message."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, OperatorGraph, Tensor
from rostam_py.tracing import trace


@pytest.fixture(scope="module")
def graph() -> OperatorGraph:
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2)]
    return trace(nn.Sequential(*blocks, nn.LayerNorm(8)), torch.zeros(2, 8), name="mlp", optimizer="adam")


@pytest.mark.parametrize("version", [1, 2])
def test_graphs_of_older_versions_still_load(graph: OperatorGraph, tmp_path: Path, version: int) -> None:
    path = tmp_path / "graph.json"
    graph.save(str(path))
    document = json.loads(path.read_text())
    assert {len(record) for record in document["ops"]} == {7}  # the last two are the op's properties
    older = {**document, "version": version, "ops": [record[:5] for record in document["ops"]]}
    path.write_text(json.dumps(older))
    assert OperatorGraph.load(str(path)) == graph
    path.write_text(json.dumps({**older, "version": 3}))
    with pytest.raises(ConfigError, match=r"damaged operator graph: ops\[0\]\[5\]: field required"):
        OperatorGraph.load(str(path))


def test_halos_survive_and_older_graphs_leave_their_splits_out(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.Flatten())
    graph = trace(layers, torch.zeros(2, 3, 8, 8), name="convolution")
    path = tmp_path / "graph.json"
    graph.save(str(path))
    assert OperatorGraph.load(str(path)) == graph
    document = json.loads(path.read_text())
    table = document["splits"]
    assert {table[place][0] for place, _ in document["split_halos"]} == {"spatial"}
    for place, _ in document.pop("split_halos"):
        table[place][4:] = ["halo", [0, 768]]
    path.write_text(json.dumps({**document, "version": 5}))
    loaded = OperatorGraph.load(str(path))
    for op, new in zip(loaded.ops, graph.ops, strict=True):
        assert op.splits == tuple(split for split in new.splits if not split.halos)
    path.write_text(json.dumps({**document, "split_halos": []}))
    with pytest.raises(ConfigError, match=r"comm_kind of split spatial 'halo'"):
        OperatorGraph.load(str(path))


def test_an_older_graph_gets_its_properties_without_torch(graph: OperatorGraph, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    graph.save(str(path))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": 2, "ops": [record[:5] for record in document["ops"]]}))
    code = (
        "import sys\nfrom rostam_py.graph import OperatorGraph\n"
        f"graph = OperatorGraph.load({str(path)!r})\n"
        "print(*(op.role for op in graph.ops if op.role))\nassert 'torch' not in sys.modules"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert output == [op.role for op in graph.ops if op.role]
    assert "product" in output


@pytest.mark.parametrize("batch", [0, -1, float("nan"), float("inf")])
def test_a_batch_that_is_not_positive_is_refused(graph: OperatorGraph, batch: float) -> None:
    for quantity in (graph.forward_flops, graph.backward_flops, graph.saved_bytes):
        with pytest.raises(ConfigError, match=r"batch is .*; it must be a number of samples > 0"):
            quantity(batch)


@pytest.mark.parametrize("name", ["graph.json", "graph.json.gz"])
def test_graph_survives_the_round_trip(graph: OperatorGraph, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    graph.save(path)
    assert OperatorGraph.load(path) == graph
    assert [p.name for p in tmp_path.iterdir()] == [name]


class Masked(nn.Module):
    """A layer whose positive outputs a softmax does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return shares."""
        y = self.layer(x)
        return torch.softmax(torch.masked_fill(y, y > 0, float("-inf")), -1)


def test_infinite_arguments_survive_the_round_trip(tmp_path: Path) -> None:
    graph = trace(Masked(), torch.zeros(2, 8), name="masked")
    assert any(float("-inf") in op.arguments["args"] for op in graph.ops)
    graph.save(str(tmp_path / "graph.json"))
    assert OperatorGraph.load(str(tmp_path / "graph.json")) == graph


def test_equal_graphs_give_equal_files(graph: OperatorGraph, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        graph.save(str(tmp_path / name))
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_loading_imports_no_torch(graph: OperatorGraph, tmp_path: Path) -> None:
    path = str(tmp_path / "graph.json")
    graph.save(path)
    code = (
        "import sys\nfrom rostam_py.graph import OperatorGraph, fuse\n"
        f"graph = OperatorGraph.load({path!r})\nfuse(graph)\n"
        "print(graph.num_parameters, graph.forward_flops(3))\nassert not {'torch', 'pydantic'} & set(sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [float(x) for x in output] == [graph.num_parameters, graph.forward_flops(3)]


def test_equal_quantities_of_a_file_are_one_object_and_keep_their_digits(tmp_path: Path) -> None:
    tensors = tuple(
        Tensor(k, (Affine(0, 1), Affine(width)), "float32", "input", f"x{k}") for k, width in enumerate((8, 8.0, 8))
    )
    OperatorGraph("digits", (), tensors).save(tmp_path / "graph.json")
    loaded = OperatorGraph.load(tmp_path / "graph.json").tensors
    assert [repr(t.shape[1].constant) for t in loaded] == ["8", "8.0", "8"]
    assert loaded[0].shape[1] is loaded[2].shape[1]
    assert loaded[0].shape[1] is not loaded[1].shape[1]


def test_wrong_files_are_explained(graph: OperatorGraph, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    with pytest.raises(ConfigError, match=r"cannot read .*graph\.json: No such file"):
        OperatorGraph.load(str(path))
    path.write_text("not json")
    with pytest.raises(ConfigError, match="not an operator graph"):
        OperatorGraph.load(str(path))
    path.write_text("[1]")
    with pytest.raises(ConfigError, match="not an operator graph"):
        OperatorGraph.load(str(path))
    graph.save(str(path))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": 99}))
    with pytest.raises(ConfigError, match="version 99"):
        OperatorGraph.load(str(path))
    del document["ops"]
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="damaged"):
        OperatorGraph.load(str(path))


def test_parts_of_splits_are_saved_and_files_without_them_load(tmp_path: Path) -> None:
    class Thirds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b, c = self.product(x).chunk(3, -1)
            return a * b * c

    graph = trace(Thirds(), torch.zeros(2, 8), name="thirds")
    assert any(split.has_parts for op in graph.ops for split in op.splits)
    path = tmp_path / "graph.json"
    graph.save(str(path))
    assert OperatorGraph.load(str(path)) == graph
    document = json.loads(path.read_text())
    del document["split_parts"]
    path.write_text(json.dumps({**document, "version": 3}))
    assert not any(split.has_parts for op in OperatorGraph.load(str(path)).ops for split in op.splits)
    path.write_text(json.dumps({**document, "version": 4, "split_parts": [[10**6, [], []]]}))
    with pytest.raises(ConfigError, match="split_parts names split 1000000; there are"):
        OperatorGraph.load(str(path))


def test_repeated_flops_are_saved_and_read_off_the_ops_of_files_without_them(tmp_path: Path) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = nn.Linear(32, 2 * 12 + 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = self.product(x).unsqueeze(1).split([12, 12, 8], -1)
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    graph = trace(Attention(), torch.zeros(2, 10, 32), name="attention")
    (op,) = [op for op in graph.ops if op.repeated_flops != Affine()]
    assert op.phase == "backward"
    assert op.repeated_flops.at(3) == pytest.approx(3 * 2 * 10 * 10 * 12)  # queries times keys
    assert op.model_flops.at(3) == pytest.approx(3 * 2 * 10 * 10 * 2 * (12 + 8))  # two gradients for each forward one
    path = tmp_path / "graph.json"
    graph.save(str(path))
    assert OperatorGraph.load(str(path)) == graph
    document = json.loads(path.read_text())
    assert [place for place, _ in document.pop("repeated_flops")] == [op.id]
    path.write_text(json.dumps({**document, "version": 6}))
    assert OperatorGraph.load(str(path)) == graph
