"""The part of a model that one of c ranks runs, against the same model traced with a c-th of the tokens."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.models import gpt, llama, transformer
from rostam_py.placement.context import split_sequences

TOKENS, WIDTH, WORDS = 256, 64, 512


def gpt_graph(tokens):
    config = gpt.Config(num_layers=2, width=WIDTH, num_heads=4, sequence_length=tokens, vocabulary=WORDS)
    return rostam.trace(gpt.build("gpt", config))


def llama_graph(tokens):
    config = llama.Config(
        num_layers=2, width=WIDTH, num_heads=8, num_key_heads=2, hidden=96, vocabulary=WORDS, sequence_length=tokens
    )
    return rostam.trace(llama.build("llama", config))


def transformer_graph(tokens):
    config = transformer.Config(
        encoder_layers=1, decoder_layers=1, width=WIDTH, num_heads=4, feed_forward=128, vocabulary=WORDS,
        sequence_length=tokens,
    )  # fmt: skip
    return rostam.trace(transformer.build("transformer", config))


def about(tensor, batch=3):
    return tensor.dtype, tuple(round(dim.at(batch), 6) for dim in tensor.shape)


def splits_of(op, batch=3):
    """Return the splits at a batch, those of one entry left out."""
    return {
        (s.kind, s.input_dims, s.output_dims, round(s.size.at(batch)),
         tuple(None if p is None else tuple(round(x.at(batch)) for x in (p.outer, p.start, p.length))
               for p in (*s.input_parts, *s.output_parts)))
        for s in op.splits if s.size.at(batch) > 1
    }  # fmt: skip


@pytest.mark.parametrize("make", [gpt_graph, llama_graph, pytest.param(transformer_graph, marks=pytest.mark.slow)])
def test_a_part_is_the_model_with_fewer_tokens_whose_attention_reads_all_keys(make):
    degree = 4
    part, small = split_sequences(make(TOKENS), degree).graph, make(TOKENS // degree)
    assert [op.op_type for op in part.ops] == [op.op_type for op in small.ops]
    assert {t.id for t in part.tensors} == {t.id for t in small.tensors}
    table = {t.id for t in part.tensors if "positions" in t.name}  # with a row for each token: whole on every rank
    differ = {t.id for t, other in zip(part.tensors, small.tensors, strict=True) if about(t) != about(other)}
    assert differ == table
    for op, other in zip(part.ops, small.ops, strict=True):
        times = degree if op.role == "attention" else 1
        assert op.flops.at(3) == pytest.approx(times * other.flops.at(3), rel=1e-9)
        assert op.repeated_flops.at(3) == pytest.approx(times * other.repeated_flops.at(3), rel=1e-9)
        if not table.intersection((*op.inputs, *op.outputs)):
            assert splits_of(op) == splits_of(other), op
            assert op.bytes_read.at(3) == pytest.approx(other.bytes_read.at(3), rel=1e-6), op
            assert op.bytes_written.at(3) == pytest.approx(other.bytes_written.at(3), rel=1e-6), op


def test_work_is_divided_evenly():
    graph = llama_graph(TOKENS)
    part = split_sequences(graph, 8).graph
    for batch in (1, 5):
        assert part.forward_flops(batch) == pytest.approx(graph.forward_flops(batch) / 8, rel=1e-5)  # of the rotations
        assert part.backward_flops(batch) == pytest.approx(graph.backward_flops(batch) / 8, rel=1e-9)
        assert part.saved_bytes(batch) == pytest.approx(graph.saved_bytes(batch) / 8, rel=0.01)  # rotations stay whole


def test_positions_that_masks_compare_stay_whole():
    # T5's shifts are a table's rows by the distance of two positions: (query rows, key rows), of which rows are split.
    graph = rostam.trace("t5_11b", num_layers=1)
    found = split_sequences(graph, 4)
    assert not found.unsplit
    assert found.graph.forward_flops(2) == pytest.approx(graph.forward_flops(2) / 4, rel=1e-3)
    masks = [a.mask for a in found.attentions.values() if a.mask is not None and not a.is_backward]
    assert masks
    for t in masks:
        rows, keys = (dim.at(1) for dim in found.graph.tensors[t].shape[-2:])
        assert 4 * rows == keys


def test_what_no_sequence_reaches_runs_whole_and_is_reported():
    # A diffusion transformer's time embedding (products of one row a sample) is no part of the sequence of patches.
    found = split_sequences(rostam.trace("dit_xl_2", num_layers=2), 4)
    assert found.unsplit["aten.mm.default"] > 0
    names = {found.whole.ops[op].module for op in range(len(found.whole.ops)) if op in found.shared}
    assert any("attention" in name for name in names)


class Pooled(nn.Module):
    """Attention whose output's largest entry over the sequence is taken."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (4, 16)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).flatten(2).amax(dim=1)


class Explicit(nn.Module):
    """Attention of single operators."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=2)
        return torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v


@pytest.mark.parametrize(
    ("make", "degree", "error", "words"),
    [
        pytest.param(
            lambda: rostam.trace("resnet50"), 2, ConfigError, ["strategy.cp is 2", "no fused attention", "resnet50"],
            marks=pytest.mark.slow,
        ),
        (lambda: rostam.trace(Explicit(), (torch.zeros(2, 32, 64),)), 2, ConfigError, ["no fused attention"]),
        (lambda: rostam.trace(Pooled(), (torch.zeros(2, 32, 64),)), 2, ConfigError, ["aten.amax", "all of it"]),
        (lambda: rostam.trace("bert_large", num_layers=1), 4, ConfigError, ["aten.gather", "must be 1 for bert_large"]),
        (lambda: llama_graph(96), 64, DegreeError, ["strategy.cp is 64", "96 rows", "64 must divide 96"]),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_refused_with_its_reason(make, degree, error, words):
    with pytest.raises(error) as raised:
        split_sequences(make(), degree)
    assert all(word in str(raised.value) for word in words), raised.value
