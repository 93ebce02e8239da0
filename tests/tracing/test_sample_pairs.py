"""Several inputs: losses over all pairs of samples, rows of a sample, and inputs of which nobody said the batch."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from rostam_py.errors import TracingError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.packed import pack, unpack
from rostam_py.tracing import trace

D, WORDS = 16, 8
BIASES = 8 * 6 * 6  # of a sample: what a convolution's gradient of its bias adds up, which torch does not count


class Towers(nn.Module):
    """Scores of all texts and images, as CLIP's."""

    def __init__(self) -> None:
        super().__init__()
        self.text = nn.Sequential(nn.Embedding(100, D), nn.Flatten(), nn.Linear(WORDS * D, D))
        self.image = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, D))

    def forward(self, texts: Tensor, images: Tensor) -> Tensor:
        return self.text(texts) @ self.image(images).t()


def inputs(num_texts: int, num_images: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(num_texts, WORDS, dtype=torch.int64), torch.zeros(num_images, 3, 8, 8)


def contrastive(scores: Tensor) -> Tensor:
    return functional.cross_entropy(scores, torch.arange(scores.shape[0]))


def counted(graph: OperatorGraph, batch: int) -> float:
    return sum(op.flops.at(batch) for op in graph.ops if "mm" in op.op_type or "conv" in op.op_type)


def measured(num_texts: int, num_images: int, loss) -> float:
    with FlopCounterMode(display=False) as counter:
        loss(Towers()(*inputs(num_texts, num_images))).backward()
    return counter.get_total_flops() + BIASES * num_images


@pytest.mark.parametrize("example", [2, 3])
def test_scores_of_all_pairs_are_those_of_any_batch(example: int, tmp_path: Path) -> None:
    graph = trace(Towers(), inputs(example, example), loss_fn=contrastive)
    for batch in (1, 7, 64, 256):
        assert counted(graph, batch) == measured(batch, batch, contrastive)
    assert any("pairs of a micro-batch's samples" in note for note in graph.notes)
    graph.save(tmp_path / "graph.json")
    assert OperatorGraph.load(tmp_path / "graph.json") == graph == unpack(pack(graph))


def test_bytes_of_all_pairs_are_those_of_another_trace() -> None:
    small, large = (trace(Towers(), inputs(n, n), loss_fn=contrastive) for n in (2, 5))
    assert [op.bytes_read for op in small.ops] == [op.bytes_read for op in large.ops]
    assert [op.bytes_written for op in small.ops] == [op.bytes_written for op in large.ops]


def test_work_over_triples_and_dims_of_all_pairs_are_refused() -> None:
    def triples(scores: Tensor) -> Tensor:
        return (scores[:, :, None] - scores[:, None, :]).relu().mean()

    def flat(scores: Tensor) -> Tensor:
        return scores.flatten().square().mean()

    for loss, words in ((triples, "faster than the square"), (flat, "a dim of all pairs")):
        with pytest.raises(TracingError, match=words):
            trace(Towers(), inputs(2, 2), loss_fn=loss)


def test_inputs_of_other_first_dims_are_refused_until_the_user_says_what_they_are() -> None:
    for num_images, hint in ((4, "2 for each sample"), (1, "a multiple of 2"), (3, "a multiple of 2")):
        with pytest.raises(TracingError, match=rf"batch is 2, and input 1 has shape \({num_images}, .*{hint}"):
            trace(Towers(), inputs(2, num_images))
    pairs = trace(Towers(), inputs(2, 4), batch_dims=(0, 0))
    shared = trace(Towers(), inputs(2, 4), batch_dims=(0, None))
    for batch in (1, 7, 64):
        assert counted(pairs, batch) == measured(batch, 2 * batch, torch.mean)
        assert counted(shared, batch) == measured(batch, 4, torch.mean)


def test_a_file_says_by_its_function_what_grows(tmp_path: Path) -> None:
    path = tmp_path / "towers.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "class Towers(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.text, self.image = nn.Linear(8, 16), nn.Linear(32, 16)\n"
        "    def forward(self, t, i):\n        return self.text(t) @ self.image(i).t()\n"
        "def example_inputs(batch):\n    return torch.zeros(batch, 8), torch.zeros(3 * batch, 32)\n"
    )
    graph = trace(f"{path}:Towers", cache=False)
    for batch in (1, 9):
        forward = sum(op.flops.at(batch) for op in graph.ops if op.phase == "forward" and "mm" in op.op_type)
        assert forward == 2 * 16 * (batch * 8 + 3 * batch * 32 + batch * 3 * batch)
