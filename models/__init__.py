"""Plain single-device PyTorch models that rostam can trace; listing them needs no torch.

A new model is one file with a function ``build_<name>`` that returns a ``ModelSpec``, and one line here. A model with
tokens is also known at other lengths of its sequence, "llama3_8b@32768": where positions are learned, the table has
that many rows.

Example:
    registered("llama3_8b@32768").tokens    # 32768
    get_spec("llama3_8b@32768")
"""

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostam_py.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Model:
    """A registered model.

    target: what builds its ``ModelSpec``, as "module:function". what: what it is, in one line.
    samples: what it trains on, in the plural. tokens: of one sample, 0 if it has none.
    """

    target: str
    what: str
    samples: str
    tokens: int = 0


def _model(name: str, file: str, what: str, samples: str, tokens: int = 0) -> tuple[str, Model]:
    return name, Model(f"rostam_py.models.{file}:build_{name}", what, samples, tokens)


_IMAGES, _TEXT = "images", "token sequences"
MODELS: dict[str, Model] = dict((
    _model("resnet50", "resnet", "ResNet-50 on 3 x 224 x 224 images, 25.6 M parameters", _IMAGES),
    _model("resnet101", "resnet", "ResNet-101 on 3 x 224 x 224 images, 44.5 M parameters", _IMAGES),
    _model("resnet152", "resnet", "ResNet-152 on 3 x 224 x 224 images, 60.2 M parameters", _IMAGES),
    _model("cosmoflow", "cosmoflow", "CosmoFlow, five 3-D convolutions on 4 x 128^3 voxels, 8.9 M parameters",
           "voxel volumes"),
    _model("dlrm", "dlrm", "DLRM with a DCNv2 interaction, 26 tables of up to 40 M rows, dimension 128 (assumed shape)",
           "click records"),
    _model("transformer_350m", "transformer",
           "encoder-decoder Transformer, 11 + 11 layers, width 1,024, 357 M parameters (assumed shape)",
           "sentence pairs", 64),
    _model("gpt_125m", "gpt", "GPT, 12 layers, width 768, 12 heads", _TEXT, 2048),
    _model("gpt_350m", "gpt", "GPT, 24 layers, width 1,024, 16 heads", _TEXT, 2048),
    _model("gpt_760m", "gpt", "GPT, 24 layers, width 1,536, 16 heads", _TEXT, 2048),
    _model("gpt_1_3b", "gpt", "GPT, 24 layers, width 2,048, 16 heads", _TEXT, 2048),
    _model("gpt_2_7b", "gpt", "GPT, 32 layers, width 2,560, 32 heads", _TEXT, 2048),
    _model("gpt_6_7b", "gpt", "GPT, 32 layers, width 4,096, 32 heads", _TEXT, 2048),
    _model("gpt_13b", "gpt", "GPT, 40 layers, width 5,120, 40 heads", _TEXT, 2048),
    _model("gpt3_175b", "gpt", "GPT-3, 96 layers, width 12,288, 96 heads, 174.6 G parameters", _TEXT, 2048),
    _model("megatron_18b", "gpt", "GPT, 40 layers, width 6,144, 48 heads, vocabulary 51,200 (assumed shape)", _TEXT,
           1024),
    _model("megatron_1_7b", "megatron", "GPT with explicit attention and dropout, 24 layers, width 2,304, 24 heads",
           _TEXT, 2048),
    _model("megatron_3_6b", "megatron", "GPT with explicit attention and dropout, 30 layers, width 3,072, 32 heads",
           _TEXT, 2048),
    _model("megatron_7_5b", "megatron", "GPT with explicit attention and dropout, 36 layers, width 4,096, 32 heads",
           _TEXT, 2048),
    _model("megatron_18_4b", "megatron", "GPT with explicit attention and dropout, 40 layers, width 6,144, 48 heads",
           _TEXT, 2048),
    _model("megatron_22b", "megatron", "GPT with explicit attention and dropout, 48 layers, width 6,144, 64 heads",
           _TEXT, 2048),
    _model("megatron_76b", "megatron", "GPT with explicit attention and dropout, 60 layers, width 10,240, 80 heads",
           _TEXT, 2048),
    _model("megatron_175b", "megatron", "GPT with explicit attention and dropout, 96 layers, width 12,288, 96 heads",
           _TEXT, 2048),
    _model("megatron_310b", "megatron", "GPT with explicit attention and dropout, 96 layers, width 16,384, 128 heads",
           _TEXT, 2048),
    _model("megatron_530b", "megatron", "GPT with explicit attention and dropout, 105 layers, width 20,480, 128 heads",
           _TEXT, 2048),
    _model("megatron_1t", "megatron", "GPT with explicit attention and dropout, 128 layers, width 25,600, 160 heads",
           _TEXT, 2048),
    _model("megatron_core_1_7b", "gpt", "GPT with its own head, 24 layers, width 2,048, vocabulary 131,072", _TEXT,
           4096),
    _model("megatron_core_16b", "gpt", "GPT with its own head, 32 layers, width 6,144, vocabulary 131,072", _TEXT,
           4096),
    _model("megatron_core_70b", "gpt", "GPT with its own head, 84 layers, width 8,192, vocabulary 131,072", _TEXT,
           4096),
    _model("megatron_core_177b", "gpt", "GPT with its own head, 96 layers, width 12,288, vocabulary 131,072", _TEXT,
           4096),
    _model("megatron_core_462b", "gpt", "GPT with its own head, 112 layers, width 18,432, vocabulary 131,072", _TEXT,
           4096),
    _model("mpt_125m", "mpt", "MPT as LLM Foundry trains it, 12 layers, width 768, 12 heads", _TEXT, 2048),
    _model("mpt_350m", "mpt", "MPT as LLM Foundry trains it, 24 layers, width 1,024, 16 heads", _TEXT, 2048),
    _model("mpt_760m", "mpt", "MPT as LLM Foundry trains it, 24 layers, width 1,536, 12 heads", _TEXT, 2048),
    _model("mpt_1b", "mpt", "MPT as LLM Foundry trains it, 24 layers, width 2,048, 16 heads", _TEXT, 2048),
    _model("mpt_3b", "mpt", "MPT as LLM Foundry trains it, 32 layers, width 2,560, 20 heads", _TEXT, 2048),
    _model("mpt_7b", "mpt", "MPT as LLM Foundry trains it, 32 layers, width 4,096, 32 heads", _TEXT, 2048),
    _model("mpt_7b_512", "mpt", "mpt_7b on sequences of 512", _TEXT, 512),
    _model("mpt_7b_1k", "mpt", "mpt_7b on sequences of 1,024", _TEXT, 1024),
    _model("mpt_7b_4k", "mpt", "mpt_7b on sequences of 4,096", _TEXT, 4096),
    _model("mpt_7b_8k", "mpt", "mpt_7b on sequences of 8,192", _TEXT, 8192),
    _model("mpt_7b_16k", "mpt", "mpt_7b on sequences of 16,384", _TEXT, 16384),
    _model("mpt_7b_32k", "mpt", "mpt_7b on sequences of 32,768", _TEXT, 32768),
    _model("mpt_7b_64k", "mpt", "mpt_7b on sequences of 65,536", _TEXT, 65536),
    _model("mpt_13b", "mpt", "MPT as LLM Foundry trains it, 40 layers, width 5,120, 40 heads", _TEXT, 2048),
    _model("mpt_30b", "mpt", "MPT as LLM Foundry trains it, 48 layers, width 7,168, 56 heads", _TEXT, 2048),
    _model("mpt_70b", "mpt", "MPT as LLM Foundry trains it, 80 layers, width 8,192, 64 heads", _TEXT, 2048),
    _model("bloom_176b", "gpt", "BLOOM's shape as a GPT, 70 layers, width 14,336, 112 heads, 176.3 G parameters", _TEXT,
           2048),
    _model("llama2_7b", "llama", "Llama 2, 32 layers, width 4,096, 32 heads, 6.74 G parameters", _TEXT, 4096),
    _model("llama2_13b", "llama", "Llama 2, 40 layers, width 5,120, 40 heads, 13.0 G parameters", _TEXT, 4096),
    _model("llama2_70b", "llama", "Llama 2, 80 layers, width 8,192, 64 heads on 8, 69.0 G parameters", _TEXT, 4096),
    _model("llama2_70b_lora", "lora", "Llama 2 70B, frozen, with trained adapters of rank 16, 44.6 M parameters", _TEXT,
           8192),
    _model("llama3_8b", "llama", "Llama 3, 32 layers, width 4,096, 32 heads on 8, 8.03 G parameters", _TEXT, 8192),
    _model("llama3_8b_32k", "llama", "Llama 3 8B on sequences of 32,768", _TEXT, 32768),
    _model("llama3_8b_64k", "llama", "Llama 3 8B on sequences of 65,536", _TEXT, 65536),
    _model("llama3_8b_256k", "llama", "Llama 3 8B on sequences of 262,144", _TEXT, 262144),
    _model("llama3_70b", "llama", "Llama 3, 80 layers, width 8,192, 64 heads on 8, 70.6 G parameters", _TEXT, 8192),
    _model("llama3_405b", "llama", "Llama 3, 126 layers, width 16,384, 128 heads on 8, 406 G parameters", _TEXT, 8192),
    _model("llama3_405b_32k", "llama", "Llama 3 405B on sequences of 32,768", _TEXT, 32768),
    _model("llama3_405b_256k", "llama", "Llama 3 405B on sequences of 262,144", _TEXT, 262144),
    _model("llama3_405b_128k", "llama", "Llama 3 405B on sequences of 131,072, as in its long-context pre-training",
           _TEXT, 131072),
    _model("titan_llama2_13b", "titan", "Llama 2 13B as torchtitan writes it", _TEXT, 4096),
    _model("titan_llama2_70b", "titan", "Llama 2 70B as torchtitan writes it", _TEXT, 4096),
    _model("titan_llama3_8b", "titan", "Llama 3 8B as torchtitan writes it: complex rotation, repeated key heads",
           _TEXT, 8192),
    _model("titan_llama3_8b_32k", "titan", "titan_llama3_8b on sequences of 32,768", _TEXT, 32768),
    _model("titan_llama3_8b_64k", "titan", "titan_llama3_8b on sequences of 65,536", _TEXT, 65536),
    _model("titan_llama3_8b_256k", "titan", "titan_llama3_8b on sequences of 262,144", _TEXT, 262144),
    _model("titan_llama3_70b", "titan", "Llama 3 70B as torchtitan writes it", _TEXT, 8192),
    _model("titan_llama3_405b", "titan", "Llama 3 405B as torchtitan writes it", _TEXT, 8192),
    _model("titan_llama3_405b_32k", "titan", "titan_llama3_405b on sequences of 32,768", _TEXT, 32768),
    _model("titan_llama3_405b_128k", "titan", "titan_llama3_405b on sequences of 131,072", _TEXT, 131072),
    _model("titan_llama3_405b_256k", "titan", "titan_llama3_405b on sequences of 262,144", _TEXT, 262144),
    _model("mixtral_8x7b", "mixtral", "Mixtral 8x7B, 32 layers, 2 of 8 experts, 46.7 G parameters, 12.9 G active",
           _TEXT, 4096),
    _model("mixtral_8x22b", "mixtral", "Mixtral 8x22B, 56 layers, 2 of 8 experts, 141 G parameters, 39.2 G active",
           _TEXT, 4096),
    _model("qwen3_30b_a3b", "mixtral", "Qwen3-30B-A3B, 48 layers, 8 of 128 experts, 30.5 G parameters, 3.3 G active",
           _TEXT, 4096),
    _model("qwen3_235b_a22b", "mixtral", "Qwen3-235B-A22B, 94 layers, 8 of 128 experts, 235 G parameters, 22 G active",
           _TEXT, 4096),
    _model("deepseek_v3", "deepseek",
           "DeepSeek-V3, 61 layers, 8 of 256 experts and a shared one, 671 G parameters, 37 G active", _TEXT, 4096),
    _model("gpt_oss_20b", "gpt_oss", "GPT-OSS 20B, 24 layers, 4 of 32 experts, 20.9 G parameters, 3.6 G active", _TEXT,
           4096),
    _model("gpt_oss_120b", "gpt_oss", "GPT-OSS 120B, 36 layers, 4 of 128 experts, 117 G parameters, 5.1 G active",
           _TEXT, 4096),
    _model("gpt_oss_120b_8k", "gpt_oss", "GPT-OSS 120B on sequences of 8,192", _TEXT, 8192),
    _model("bert_large", "bert", "BERT-large, 24 layers, width 1,024, 16 heads, 336 M parameters", _TEXT, 512),
    _model("t5_11b", "t5", "T5-11B, 24 + 24 layers, width 1,024, 128 heads, 11.3 G parameters", _TEXT, 512),
    _model("universal_transformer", "universal_transformer",
           "Universal Transformer, 6 + 6 steps of shared layers, width 3,072, 352 M parameters (assumed shape)",
           "sentence pairs", 64),
    _model("vit_large", "vit", "ViT-L/16 on 3 x 224 x 224 images, 304 M parameters", _IMAGES),
    _model("dit_xl_2", "dit", "DiT-XL/2 on 4 x 32 x 32 latents, 28 layers, width 1,152, 675 M parameters",
           "latent images"),
))  # fmt: skip


# Models whose sizes are arguments, model=NAME model.args.KEY=VALUE; ``build_NAME`` takes them as keywords.
FAMILIES: dict[str, Model] = dict((
    _model("decoder", "families", "a decoder-only language model of any sizes, dense or a mixture of experts", _TEXT),
))  # fmt: skip

AT_LENGTH = "@"  # between a model's name and the length of its sequences
MAX_LENGTH = 2**24  # tokens of a sequence: the scores of a batch of these still have a number of bytes below 2^63


def registered(name: object) -> Model | None:
    """Return the registered model of a name, "NAME" or "NAME@LENGTH" with its tokens; None for other names."""
    base, sign, text = str(name).partition(AT_LENGTH)
    model = MODELS.get(base)
    if model is None or not sign:
        return model
    return None if misnamed(name) else replace(model, tokens=int(text))


def misnamed(name: object) -> str:
    """Say what is wrong with the length in the name of a registered model; "" if nothing is, and for other names."""
    base, sign, text = str(name).partition(AT_LENGTH)
    if base not in MODELS or not sign:
        return ""
    if not MODELS[base].tokens:
        return f"the samples of model {base} ({MODELS[base].samples}) have no sequence length; it is {text!r}"
    if not text.isascii() or not text.isdecimal() or len(text) > 8 or not 1 <= int(text) <= MAX_LENGTH:
        shown = text if len(text) <= 20 else f"{text[:20]}..."
        return f"the sequence length of model {base} is {shown!r}; it must be an integer from 1 to {MAX_LENGTH:,}"
    return ""


def get_spec(name: str) -> "ModelSpec":
    """Return the specification of a registered model, "NAME" or "NAME@LENGTH" (imports torch, allocates no weights).

    Raises: KeyError for a name that is not ``registered``.
    """
    model = registered(name)
    if model is None:
        raise KeyError(name)
    module, _, attribute = model.target.partition(":")
    spec: ModelSpec = getattr(importlib.import_module(module), attribute)()
    if AT_LENGTH not in name:
        return spec
    if spec.at_length is None:
        raise KeyError(name)
    changed = f"{name}: sequences of {model.tokens:,} tokens instead of {spec.sequence_length:,}"
    return replace(spec.at_length(model.tokens), name=name, assumed=(*spec.assumed, changed))
