"""MPT: parameters are those that LLM Foundry prints (NumParams), and of its 7b on sequences of other lengths."""

import pytest
import torch

from rostam_py.models import MODELS, get_spec
from rostam_py.models.mpt import SHAPES

# scripts/train/benchmarking/README.md of mosaicml/llm-foundry, column NumParams.
PRINTED = {
    "mpt_125m": 125_311_488, "mpt_350m": 355_985_408, "mpt_760m": 760_470_528, "mpt_1b": 1_315_950_592,
    "mpt_3b": 2_651_837_440, "mpt_7b": 6_658_859_008, "mpt_7b_512": 6_652_567_552, "mpt_7b_1k": 6_654_664_704,
    "mpt_7b_4k": 6_667_247_616, "mpt_7b_8k": 6_684_024_832, "mpt_7b_16k": 6_717_579_264, "mpt_7b_32k": 6_784_688_128,
    "mpt_7b_64k": 6_918_905_856, "mpt_13b": 12_853_954_560, "mpt_30b": 29_975_214_080, "mpt_70b": 64_862_437_376,
}  # fmt: skip


def test_every_mpt_is_printed():
    assert set(PRINTED) == {name for name in MODELS if name.startswith("mpt_")}


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_are_those_printed(name):
    spec = get_spec(name)
    with torch.device("meta"):
        model = spec.make(spec.stacks)
    layers, width, heads = SHAPES[name.split("_")[1]]
    # A layer of 12 D^2 weights and 13 D biases and norms; the embedding of 50,368 words, positions, the last norm.
    by_hand = layers * (12 * width**2 + 13 * width) + (50368 + MODELS[name].tokens + 2) * width
    assert by_hand == PRINTED[name]
    assert sum(p.numel() for p in model.parameters()) == PRINTED[name]
    assert width % heads == 0
    assert model.blocks[0].attention.num_heads == heads
