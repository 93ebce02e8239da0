"""The registry of models: importable without torch, every entry complete, parameter counts exact."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from rostam_py.models import MODELS, get_spec
from rostam_py.models.spec import ModelSpec

# Published or hand-derived counts; GPT: 12 L D^2 + 13 L D + V D + S D + 2 D with a tied head.
EXACT = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "cosmoflow": 8_907_556,
    "gpt3_175b": 12 * 96 * 12288**2 + 13 * 96 * 12288 + 50257 * 12288 + 2048 * 12288 + 2 * 12288,
    "gpt_1_3b": 12 * 24 * 2048**2 + 13 * 24 * 2048 + 50257 * 2048 + 2048 * 2048 + 2 * 2048,
    "bloom_176b": 12 * 70 * 14336**2 + 13 * 70 * 14336 + 250880 * 14336 + 2048 * 14336 + 2 * 14336,
    "megatron_22b": 12 * 48 * 6144**2 + 13 * 48 * 6144 + 51200 * 6144 + 2048 * 6144 + 2 * 6144,
    "megatron_1t": 12 * 128 * 25600**2 + 13 * 128 * 25600 + 51200 * 25600 + 2048 * 25600 + 2 * 25600,
    "megatron_core_177b": 12 * 96 * 12288**2 + 13 * 96 * 12288 + 2 * 131072 * 12288 + 4096 * 12288 + 2 * 12288,
    "megatron_18b": 12 * 40 * 6144**2 + 13 * 40 * 6144 + 51200 * 6144 + 1024 * 6144 + 2 * 6144,
}
ROUNDED = {"gpt_125m": 125e6, "gpt_350m": 355e6, "gpt_760m": 760e6, "gpt_2_7b": 2.65e9, "gpt_6_7b": 6.66e9}
# Narayanan et al. 2021, table 1, whose 1.7, 3.6 and 7.5 G are 1.652, 3.562 and 7.468 G.
ROUNDED |= {"megatron_1_7b": 1.652e9, "megatron_3_6b": 3.562e9, "megatron_7_5b": 7.468e9, "megatron_18_4b": 18.4e9}
ROUNDED |= {"megatron_76b": 76.1e9, "megatron_310b": 310.1e9}
ROUNDED |= {"megatron_22b": 22.1e9, "megatron_175b": 174.6e9, "megatron_530b": 529.6e9, "megatron_1t": 1008e9}
# The sizes that the scaling table of Megatron-Core names its rows by, to its digits.
ROUNDED |= {"megatron_core_70b": 70e9, "megatron_core_177b": 177e9, "megatron_core_462b": 461.5e9}
ROUNDED |= {"gpt_13b": 12.85e9, "transformer_350m": 357e6, "dlrm": 26.15e9, "gpt3_175b": 174.6e9}
# 176.247 G as published, of which 2 x 14,336 are the embedding norm's, which is left out; + 2,048 positions.
ROUNDED |= {"bloom_176b": 176.247e9}


def _num_parameters(name: str) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in get_spec(name).build().parameters())


@pytest.mark.parametrize("name", sorted(EXACT))
def test_parameter_count_is_exact(name: str) -> None:
    assert _num_parameters(name) == EXACT[name]


@pytest.mark.parametrize("name", sorted(ROUNDED))
def test_parameter_count_is_the_named_size(name: str) -> None:
    assert _num_parameters(name) == pytest.approx(ROUNDED[name], rel=3e-3)


def test_rows_of_the_scaling_table_are_named_by_their_sizes() -> None:
    sizes = {"1_7b": "1.8", "16b": "16.1", "70b": "69.8", "177b": "177.2", "462b": "461.5"}
    for row, size in sizes.items():
        assert f"{_num_parameters(f'megatron_core_{row}') / 1e9:.1f}" == size


def test_every_model_declares_inputs_loss_and_defaults(told: Any) -> None:
    for name in MODELS:
        spec = get_spec(name)
        with told(name):
            assert isinstance(spec, ModelSpec)
            assert spec.name == name
            assert MODELS[name].what
            assert all(shape[0] == 3 for shape, _ in spec.example_inputs(3) + spec.example_targets(3))
            assert spec.default_optimizer in ("sgd", "momentum", "adam")
            assert spec.default_precision in ("fp32", "tf32", "bf16_mixed", "fp16_mixed")


def test_listing_models_loads_no_torch() -> None:
    code = "import sys, rostam_py.models as m; assert all(one.what for one in m.MODELS.values())"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
