"""config.json of Hugging Face models: parameters and FLOPs are those of the class itself, by torch's own count."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from public_models import declare_torchvision
from real_runs import count, materialised

from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.naming import ModelName
from rostam_py.tracing import trace
from rostam_py.tracing.hugging_face_config import find_config, read_config
from rostam_py.tracing.sources import load_source

_LM = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2}
_VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
_HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
# Family -> a small configuration. Dropout changes no FLOPs, and torch counts none in it.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_LM, **_GROUPED, "architectures": ["LlamaForCausalLM"]},
    "qwen2": {**_LM, **_GROUPED},
    "gpt2": {"vocab_size": 128, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64},
    "mixtral": {**_LM, **_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**_LM, **_GROUPED, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 32},
    "bert": {**_LM, "architectures": ["BertForMaskedLM"]},
    "t5": {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 4, "num_heads": 4,
           "decoder_start_token_id": 0},
    "llava": {"vision_config": {"model_type": "clip_vision_model", **_VISION}, "image_token_index": 5,
              "text_config": {"model_type": "llama", **_LM, **_GROUPED}, "image_seq_length": 4},
    "paligemma": {"vision_config": {"model_type": "siglip_vision_model", **_VISION, "projection_dim": 64},
                  "text_config": {"model_type": "gemma", **_LM, **_GROUPED, "head_dim": 16}, "image_token_index": 5,
                  "projection_dim": 64},
    "vit": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128,
            "image_size": 32, "patch_size": 8, "architectures": ["ViTForImageClassification"]},
    "whisper": {"vocab_size": 128, "num_mel_bins": 16, "encoder_layers": 2, "decoder_layers": 2, "d_model": 64,
                **_HEADS, "max_source_positions": 50, "max_target_positions": 32, "pad_token_id": 0,
                "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    "wav2vec2": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
                 "conv_dim": [32, 32], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_feat_extract_layers": 2,
                 "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 1,
                 "architectures": ["Wav2Vec2ForCTC"]},
}  # fmt: skip
# What runs for nothing, which a trace leaves out, by hand, for a sample: LLaVA takes the features of the last layer but
# one, PaliGemma's tower pools what nothing reads: a query on 4 patches and a feed-forward.
UNUSED = {
    "llava": 2 * 5 * (4 * 32 * 32 + 2 * 32 * 64) + 4 * 5 * 5 * 32,
    "paligemma": 2 * (1 + 2 * 4 + 1) * 32 * 32 + 4 * 4 * 32 + 2 * 2 * 32 * 64,
}
CONVOLVED = ("llava", "paligemma", "vit", "whisper", "wav2vec2")
# What the publishers say of whole checkpoints: Llama 3 8B, Mixtral 8x7B, GPT-2, BERT base with its MLM head, ViT-B/16.
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "llama": ({"vocab_size": 128256, "intermediate_size": 14336, "num_key_value_heads": 8}, 8_030_261_248),
    "mixtral": ({}, 46_702_792_704),
    "gpt2": ({}, 124_439_808),
    "bert": ({"architectures": ["BertForMaskedLM"]}, 109_514_298),
    "vit": ({"architectures": ["ViTForImageClassification"], "id2label": {str(n): str(n) for n in range(1000)}},
            86_567_656),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("transformers", reason="pip install rostam[transformers]")
    declare_torchvision()


@pytest.fixture
def write(tmp_path: Any) -> Any:
    """Return a function that writes a configuration and returns the path of its folder."""

    def written(family: str, settings: dict[str, Any]) -> str:
        folder = tmp_path / family
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"model_type": family, **settings}), encoding="utf-8")
        return str(folder)

    return written


def flops(graph: OperatorGraph, phase: str) -> float:
    """FLOPs of products, convolutions and attention of two samples."""
    names = ("mm", "convolution", "scaled_dot_product", "addmm")
    return sum(op.flops.at(2) for op in graph.ops if op.phase == phase and any(one in op.op_type for one in names))


@pytest.mark.parametrize("family", CONFIGS)
def test_parameters_and_flops_are_those_of_the_class(family: str, write: Any) -> None:
    folder = write(family, CONFIGS[family])
    graph = trace(folder, cache=False)
    loaded = load_source(folder)
    weights = {id(one): one for one in loaded.module.parameters()}.values()
    assert graph.num_parameters == sum(one.numel() for one in weights if one.requires_grad)
    assert graph.num_frozen_parameters == sum(one.numel() for one in weights if not one.requires_grad)
    forward, backward, _ = count(materialised(loaded.module), _values(family, loaded.inputs.inputs), _loss)
    assert flops(graph, "forward") + 2 * UNUSED.get(family, 0) == pytest.approx(forward, rel=1e-9)
    # torch leaves out the sums of convolutions' biases.
    assert flops(graph, "backward") == pytest.approx(backward, rel=2e-3 if family in CONVOLVED else 1e-9)


def _values(family: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs of zeros, with an image's tokens among the text's where there is one."""
    made = {key: torch.zeros(one.shape, dtype=one.dtype) if isinstance(one, torch.Tensor) else one
            for key, one in inputs.items()}  # fmt: skip
    if "image_token_index" in CONFIGS[family]:
        made["input_ids"][:, 3:7] = CONFIGS[family]["image_token_index"]
    return made


def _loss(output: Any) -> torch.Tensor:
    own: Any = getattr(output, "loss", None)
    return output.logits.mean() if own is None else own


@pytest.mark.slow
@pytest.mark.parametrize("family", PUBLISHED)
def test_whole_checkpoints_have_as_many_parameters_as_published(family: str, write: Any) -> None:
    settings, published = PUBLISHED[family]
    assert trace(write(family, settings), cache=False).num_parameters == published


def test_length_and_depth_are_the_users(write: Any) -> None:
    folder = write("llama", {**_LM, **_GROUPED, "torch_dtype": "bfloat16"})
    own, other = trace(folder), trace(f"{folder}@16@num_layers=2")
    assert own.sequence_length == 64
    assert own.default_precision == "bf16_mixed"
    assert own.default_optimizer == "adam"
    assert other.sequence_length == 16
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert own.num_parameters - other.num_parameters == 2 * layer
    assert trace(folder, num_layers=2, sequence_length=16) == other
    assert trace(f"{folder}/config.json").num_parameters == own.num_parameters


def test_a_kind_for_each_layer_is_cut_with_them(write: Any) -> None:
    folder = write("gemma3_text", {**_LM, **_GROUPED, "head_dim": 16, "sliding_window": 16,
                                   "layer_types": ["sliding_attention", "full_attention"] * 2})  # fmt: skip
    assert len(load_source(f"{folder}@num_layers=3").module.model.layers) == 3
    with pytest.raises(ConfigError, match=r"num_layers is 5, but layer_types of .* names 4 layers"):
        load_source(f"{folder}@num_layers=5")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model_type": "my_own", "auto_map": {"AutoModel": "code.Own"}}, r"'my_own', which .* auto_map, is never run"),
        ({"model_type": "llama", "architectures": ["OwnLlama"]}, "architecture 'OwnLlama', which"),
        ({"model_type": "llama", **_LM, "num_key_value_heads": 0}, "makes no LlamaForCausalLM"),
        ({"model_type": "gpt2", "n_positions": 64, "n_layer": 1, "n_embd": 8, "n_head": 2}, None),
        ({"architectures": ["LlamaForCausalLM"]}, "its model_type is 'None'"),
    ],
)
def test_what_cannot_be_built_is_refused(settings: dict[str, Any], said: str | None, write: Any) -> None:
    folder = write("x", {})
    find_config(folder).write_text(json.dumps(settings), encoding="utf-8")
    if said is None:
        with pytest.raises(ConfigError, match="has 64 learned positions"):
            load_source(f"{folder}@65")
        return
    with pytest.raises(ConfigError, match=said):
        load_source(folder)


def test_a_repository_is_read_from_the_local_cache_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.file_download

    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"model_type": "llama", **_LM}), encoding="utf-8")
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text("abc", encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.file_download.constants, "HF_HUB_CACHE", str(tmp_path))
    assert read_config(find_config("hf:org/name"))["model_type"] == "llama"
    assert trace("hf:org/name@8", cache=False).name == "hf:org/name@8"
    with pytest.raises(ConfigError, match=r"no config.json of 'org/other', and nothing is downloaded"):
        find_config("hf:org/other")
    with pytest.raises(ConfigError, match="must be hf:ORGANISATION/NAME"):
        find_config("hf:a/b/c")


def test_names_and_their_parts_are_written_as_they_are_read() -> None:
    parts = {"sequence_length": 16, "num_layers": 2, "args.width": 8, "args.kind": "a@b", "args.sizes": [1, 2]}
    text = ModelName("mlp.py:Mlp", parts).text
    assert ModelName.parse(text) == ModelName("mlp.py:Mlp", parts)
    assert ModelName.parse("user@host/config.json").base == "user@host/config.json"
    with pytest.raises(ConfigError, match="num_layers twice"):
        ModelName.parse("x@num_layers=1@num_layers=2")
