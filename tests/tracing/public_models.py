"""Small instances of public libraries' models, random weights, built on the meta device.

torchvision's wheel is built for CUDA: beside a CPU torch its operators are declared before the import, and unused.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
BATCH, S = 2, 32
_DECLARED: list[torch.library.Library] = []
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float scale, int height, int width, int ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad, Tensor rois, float scale, int height, int width, int batch, int channels,"
    " int rows, int columns, int ratio, bool aligned) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int a, int b, int c, int d,"
    " int e, int f, int g, int h, bool use_mask) -> Tensor",
)

_LM = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2}
_MIXTRAL = {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}
_DEEPSEEK = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 64,
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "first_k_dense_replace": 1, "n_shared_experts": 1, "num_key_value_heads": 4,
}  # fmt: skip


def declare_torchvision() -> None:
    """Declare torchvision's operators where they cannot be loaded; once a process."""
    if not _DECLARED:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _DECLARED.append(library)
        for schema in _SCHEMAS:
            if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
                library.define(schema)


def hugging_face(family: str, model: str, **settings: Any) -> nn.Module:
    """Return a model of random weights, e.g. of LlamaConfig and LlamaForCausalLM."""
    declare_torchvision()
    import transformers

    config = getattr(transformers, f"{family}Config")(**settings)
    with torch.device("meta"):
        module: nn.Module = getattr(transformers, f"{family}{model}")(config)
    return module


def _ids() -> torch.Tensor:
    return torch.zeros(BATCH, S, dtype=torch.int64)


def _causal(family: str, **settings: Any) -> tuple[nn.Module, Any]:
    return hugging_face(family, "ForCausalLM", **{**_LM, "use_cache": False, **settings}), {
        "input_ids": _ids(),
        "labels": _ids(),
    }


def _checkpointed(is_reentrant: bool) -> tuple[nn.Module, Any]:
    module, inputs = _causal("Llama", **_GROUPED)
    module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": is_reentrant})
    return module.train(), inputs


def _dbrx() -> tuple[nn.Module, Any]:
    """A loop over experts whose mask has a class more than there are experts."""
    declare_torchvision()
    import transformers

    config = transformers.DbrxConfig(
        d_model=64, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=128, use_cache=False,
        attn_config={"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    )  # fmt: skip
    with torch.device("meta"):
        module = transformers.DbrxForCausalLM(config)
    return module, {"input_ids": _ids(), "labels": _ids()}


def _gpt2() -> tuple[nn.Module, Any]:
    sizes = {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False}
    return hugging_face("GPT2", "LMHeadModel", **sizes), {"input_ids": _ids(), "labels": _ids()}


def _bert() -> tuple[nn.Module, Any]:
    return hugging_face("Bert", "ForMaskedLM", **_LM), {"input_ids": _ids(), "labels": _ids()}


def _speech(family: str) -> tuple[nn.Module, Any]:
    """wav2vec 2.0 and HuBERT, whose convolution of positions has a normalised weight; no layer is dropped at random."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    convolutions = {"conv_dim": (32, 32), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 1}
    module = hugging_face(family, "Model", **sizes, **convolutions, **positions, layerdrop=0.0, mask_time_prob=0.0)
    return module, {"input_values": torch.zeros(BATCH, 1605)}


def _t5() -> tuple[nn.Module, Any]:
    sizes = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    module = hugging_face("T5", "ForConditionalGeneration", **sizes, use_cache=False, decoder_start_token_id=0)
    return module, {"input_ids": _ids(), "labels": _ids()}


def _vit() -> tuple[nn.Module, Any]:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    module = hugging_face("ViT", "ForImageClassification", **sizes, image_size=32, patch_size=8, num_labels=10)
    return module, {"pixel_values": torch.zeros(BATCH, 3, 32, 32), "labels": torch.zeros(BATCH, dtype=torch.int64)}


def _llava() -> tuple[nn.Module, Any]:
    """An image for each text, whose features replace its tokens: as many, which is checked."""
    declare_torchvision()
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = transformers.CLIPVisionConfig(**sizes, image_size=28, patch_size=14)
    text = transformers.LlamaConfig(**_LM, **_GROUPED, use_cache=False)
    config = transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=5)
    with torch.device("meta"):
        module = transformers.LlavaForConditionalGeneration(config)
    ids = _ids()
    ids[:, 3:7] = 5  # the tokens of an image of 2 x 2 patches
    return module, {"input_ids": ids, "pixel_values": torch.zeros(BATCH, 3, 28, 28), "labels": _ids()}


def _timm(name: str, **settings: Any) -> tuple[nn.Module, Any]:
    declare_torchvision()
    import timm

    with torch.device("meta"):
        module = timm.create_model(name, **settings)
    return module, torch.zeros(BATCH, 3, 64, 64)


def _torchvision(is_backbone: bool) -> tuple[nn.Module, Any]:
    declare_torchvision()
    from torchvision.models import resnet50
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    with torch.device("meta"):
        module = (
            resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)
            if is_backbone
            else resnet50()
        )
    return module, torch.zeros(BATCH, 3, 64, 64)


def _transformer() -> tuple[nn.Module, Any]:
    module = nn.Transformer(64, 4, 2, 2, 128, device="meta")
    return module, (torch.zeros(S, BATCH, 64), torch.zeros(S // 2, BATCH, 64))


def _attention() -> tuple[nn.Module, Any]:
    x = torch.zeros(S, BATCH, 64)
    return nn.MultiheadAttention(64, 4, device="meta"), (x, x, x)


# name -> (library it needs, how it is built: (module, example inputs))
MODELS: dict[str, tuple[str, Callable[[], tuple[nn.Module, Any]]]] = {
    "gpt2": ("transformers", _gpt2),
    "llama": ("transformers", lambda: _causal("Llama", **_GROUPED)),
    "mistral": ("transformers", lambda: _causal("Mistral", **_GROUPED)),
    "mixtral": ("transformers", lambda: _causal("Mixtral", **_MIXTRAL)),
    "mixtral eager": ("transformers", lambda: _causal("Mixtral", **_MIXTRAL, experts_implementation="eager")),
    "mixtral batched": ("transformers", lambda: _causal("Mixtral", **_MIXTRAL, experts_implementation="batched_mm")),
    "qwen2": ("transformers", lambda: _causal("Qwen2", **_GROUPED)),
    "qwen3 moe": (
        "transformers",
        lambda: _causal(
            "Qwen3Moe", **_GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, head_dim=16
        ),
    ),
    "deepseek v2": ("transformers", lambda: _causal("DeepseekV2", **_DEEPSEEK)),
    "deepseek v3": ("transformers", lambda: _causal("DeepseekV3", **_DEEPSEEK)),
    "dbrx": ("transformers", _dbrx),
    "bert": ("transformers", _bert),
    "t5": ("transformers", _t5),
    "wav2vec2": ("transformers", lambda: _speech("Wav2Vec2")),
    "hubert": ("transformers", lambda: _speech("Hubert")),
    "vit": ("transformers", _vit),
    "llava": ("transformers", _llava),
    "llama checkpointed": ("transformers", lambda: _checkpointed(is_reentrant=False)),
    "llama checkpointed, reentrant": ("transformers", lambda: _checkpointed(is_reentrant=True)),
    "timm resnet50": ("timm", lambda: _timm("resnet50")),
    "timm vit": ("timm", lambda: _timm("vit_tiny_patch16_224", img_size=64, depth=2)),
    "torchvision resnet50": ("torchvision", lambda: _torchvision(is_backbone=False)),
    "torchvision detector's backbone": ("torchvision", lambda: _torchvision(is_backbone=True)),
    "nn.Transformer": ("torch", _transformer),
    "nn.LSTM": ("torch", lambda: (nn.LSTM(16, 32, 2, device="meta"), torch.zeros(8, BATCH, 16))),
    "nn.MultiheadAttention": ("torch", _attention),
}
