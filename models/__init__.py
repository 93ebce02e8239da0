"""Plain single-device PyTorch models that rostam can trace; listing them needs no torch.

A new model is one file with a ``build_*`` function that returns a ``ModelSpec``, and one line here.
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostam_py.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Model:
    """A registered model: what builds its ``ModelSpec``, as "module:function", and what it is, in one line."""

    target: str
    what: str


MODELS: dict[str, Model] = {
    "resnet50": Model("rostam_py.models.resnet:build_resnet50", "ResNet-50 on 3 x 224 x 224 images, 25.6 M parameters"),
    "resnet101": Model(
        "rostam_py.models.resnet:build_resnet101",
        "ResNet-101 on 3 x 224 x 224 images, 44.5 M parameters",
    ),
    "resnet152": Model(
        "rostam_py.models.resnet:build_resnet152",
        "ResNet-152 on 3 x 224 x 224 images, 60.2 M parameters",
    ),
    "transformer_350m": Model(
        "rostam_py.models.transformer:build_transformer_350m",
        "encoder-decoder Transformer, 11 + 11 layers, width 1,024, 357 M parameters (assumed shape)",
    ),
    "gpt_125m": Model("rostam_py.models.gpt:build_gpt_125m", "GPT, 12 layers, width 768, 12 heads, sequence 2,048"),
    "gpt_350m": Model("rostam_py.models.gpt:build_gpt_350m", "GPT, 24 layers, width 1,024, 16 heads, sequence 2,048"),
    "gpt_760m": Model("rostam_py.models.gpt:build_gpt_760m", "GPT, 24 layers, width 1,536, 16 heads, sequence 2,048"),
    "gpt_1_3b": Model("rostam_py.models.gpt:build_gpt_1_3b", "GPT, 24 layers, width 2,048, 16 heads, sequence 2,048"),
    "gpt_2_7b": Model("rostam_py.models.gpt:build_gpt_2_7b", "GPT, 32 layers, width 2,560, 32 heads, sequence 2,048"),
    "gpt_6_7b": Model("rostam_py.models.gpt:build_gpt_6_7b", "GPT, 32 layers, width 4,096, 32 heads, sequence 2,048"),
    "gpt_13b": Model("rostam_py.models.gpt:build_gpt_13b", "GPT, 40 layers, width 5,120, 40 heads, sequence 2,048"),
    "gpt3_175b": Model(
        "rostam_py.models.gpt:build_gpt3_175b",
        "GPT-3, 96 layers, width 12,288, 96 heads, sequence 2,048, 174.6 G parameters",
    ),
    "megatron_18b": Model(
        "rostam_py.models.gpt:build_megatron_18b",
        "GPT, 40 layers, width 6,144, 48 heads, sequence 1,024, vocabulary 51,200 (assumed shape)",
    ),
    "bloom_176b": Model(
        "rostam_py.models.gpt:build_bloom_176b",
        "BLOOM's shape as a GPT, 70 layers, width 14,336, 112 heads, sequence 2,048, 176.3 G parameters",
    ),
    "dlrm": Model(
        "rostam_py.models.dlrm:build_dlrm",
        "DLRM with a DCNv2 interaction, 26 tables of up to 40 M rows, dimension 128 (assumed shape)",
    ),
    "cosmoflow": Model(
        "rostam_py.models.cosmoflow:build_cosmoflow",
        "CosmoFlow, five 3-D convolutions on 4 x 128^3 voxels, 8.9 M parameters",
    ),
}


def get_spec(name: str) -> "ModelSpec":
    """Return the specification of a registered model (imports torch, allocates no weights).

    Raises: KeyError for a name that is not in ``MODELS``.
    """
    module, _, attribute = MODELS[name].target.partition(":")
    spec: ModelSpec = getattr(importlib.import_module(module), attribute)()
    return spec
