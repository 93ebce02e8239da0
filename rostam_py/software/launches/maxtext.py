"""MaxText: YAML over its base.yml, or key=value words behind train.py."""

import math

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import Document
from rostam_py.software.launches.ledger import Launch, Ledger
from rostam_py.software.launches.reader import set_batches

_MODELS = {
    "llama2-7b": "llama2_7b", "llama2-13b": "llama2_13b", "llama2-70b": "llama2_70b", "llama3-8b": "llama3_8b",
    "llama3-70b": "llama3_70b", "llama3-405b": "llama3_405b", "llama3.1-8b": "llama3_8b", "llama3.1-70b": "llama3_70b",
    "llama3.1-405b": "llama3_405b", "llama3.3-70b": "llama3_70b", "mixtral-8x7b": "mixtral_8x7b",
    "mixtral-8x22b": "mixtral_8x22b", "gpt3-175b": "gpt3_175b", "deepseek3-671b": "deepseek_v3",
    "qwen3-30b-a3b": "qwen3_30b_a3b", "qwen3-235b-a22b": "qwen3_235b_a22b",
    "gpt-oss-20b": "gpt_oss_20b", "gpt-oss-120b": "gpt_oss_120b",
}  # fmt: skip
# Its axes, of which slices (dcn) and the accelerators of one (ici) have a degree each -> ours.
_AXES = {"tensor": "tp", "tensor_sequence": "tp", "pipeline": "pp", "sequence": "cp", "context": "cp"}
_SIZES = {"base_emb_dim": "width", "base_num_query_heads": "num_heads", "base_num_kv_heads": "num_key_heads",
          "base_mlp_dim": "hidden", "base_num_decoder_layers": "num_layers", "head_dim": "head_size",
          "vocab_size": "vocabulary", "num_experts": "num_experts", "num_experts_per_tok": "experts_per_token",
          "base_moe_mlp_dim": "expert_hidden"}  # fmt: skip
# base.yml's own sizes.
_USUAL = {"base_emb_dim": 2048, "base_num_query_heads": 16, "base_num_kv_heads": 16, "base_mlp_dim": 7168,
          "base_num_decoder_layers": 16, "head_dim": 128, "vocab_size": 32000}  # fmt: skip
_REMAT = {"minimal": "none", "full": "full"}


class MaxTextReader:
    """Words of MaxText/configs/base.yml."""

    WHAT = "MaxText's YAML or key=value words"

    def recognises(self, document: Document) -> bool:
        """Say whether its words for batches, axes or checkpointing are there."""
        marks = ("per_device_batch_size", "ici_fsdp_parallelism", "remat_policy", "max_target_length", "base_emb_dim",
                 "dcn_data_parallelism", "ici_tensor_parallelism")  # fmt: skip
        return any(word in document.words for word in marks)

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys."""
        ledger = Ledger("maxtext", document.words)
        ledger.keys["software"] = ledger.software
        _model(ledger)
        inner = _degrees(ledger)
        size = _size(ledger, inner) or num_accelerators
        _sharding(ledger, inner, size)
        _batches(ledger, inner, size)
        _others(ledger)
        return ledger.closed()


def _model(ledger: Ledger) -> None:
    name = ledger.text("model_name", "default")
    if name in _MODELS:
        ledger.set("model_name", {"model": _MODELS[name]})
        for word in _SIZES:
            ledger.leave(word, "model_name has a size of its own")
    elif name == "default":
        scale = ledger.number("global_parameter_scale", 1, least=1)
        ledger.refuse_unless("global_parameter_scale", ("1",), f"sizes are not multiplied by {scale}")
        ledger.keys["model"] = "decoder"
        for word, usual in _USUAL.items():
            ledger.set(word, {f"model.args.{_SIZES[word]}": ledger.number(word, usual, least=1)})
        if (ledger.number("num_experts", 1, least=1) or 1) > 1:
            for word in ("num_experts", "num_experts_per_tok", "base_moe_mlp_dim"):
                ledger.integer(word, f"model.args.{_SIZES[word]}")
        ledger.leave("num_experts num_experts_per_tok base_moe_mlp_dim", "there are no experts")
    else:
        ledger.refuse("model_name", f"{name[:60]} is none that is registered here: give model=NAME")
    ledger.integer("max_target_length", "model.sequence_length")
    ledger.refuse_unless("decoder_block", ("llama2", "llama3", "default", "mixtral", "mistral"),
                         "sizes are those of a Llama-like decoder")  # fmt: skip


def _degree(ledger: Ledger, axis: str) -> int:
    """Return an axis' degree over slices and inside one, -1 where the rest is meant."""
    found = 1
    for level in ("ici", "dcn"):
        word = f"{level}_{axis}_parallelism"
        text = ledger.text(word, "1")
        found = -1 if text == "-1" or found == -1 else found * (ledger.number(word, 1, least=1) or 1)
    return found


def _words(axis: str) -> str:
    return f"ici_{axis}_parallelism dcn_{axis}_parallelism"


def _degrees(ledger: Ledger) -> int:
    """Set the degrees; return the accelerators of one replica."""
    degrees = {"tp": 1, "pp": 1, "cp": 1}
    for axis, key in _AXES.items():
        degree = _degree(ledger, axis)
        if degree == -1:
            raise ConfigError(f"{_words(axis)}: -1 is for the data or fsdp axis here; give a degree")
        degrees[key] *= degree
        if degree > 1:
            ledger.set(_words(axis), {f"strategy.{key}": degrees[key]})
        else:
            ledger.leave(_words(axis), "1 is the default")
    expert = _degree(ledger, "expert")
    if expert > 1:
        ledger.set(_words("expert"), {"strategy.ep": expert})
    ledger.leave(_words("expert"), "1 is the default")
    for axis in ("autoregressive", "fsdp_transpose", "tensor_transpose", "context_autoregressive"):
        if _degree(ledger, axis) != 1:
            ledger.refuse(_words(axis), "this axis is not modelled")
        ledger.leave(_words(axis), "1 is the default")
    return degrees["tp"] * degrees["pp"] * degrees["cp"]


def _size(ledger: Ledger, inner: int) -> int | None:
    """Return the accelerators that the axes come to, and set their number; None where an axis takes what is left."""
    degrees = [_degree(ledger, axis) for axis in ("fsdp", "data", "expert")]
    if not ledger.has("ici_fsdp_parallelism") or -1 in degrees:
        return None
    size = inner * math.prod(degrees)
    ledger.keys["num_accelerators"] = size
    return size


def _sharding(ledger: Ledger, inner: int, size: int | None) -> None:
    fsdp, data, expert = _degree(ledger, "fsdp"), _degree(ledger, "data"), max(_degree(ledger, "expert"), 1)
    has_fsdp = any(ledger.has(word) for word in _words("fsdp").split())
    fsdp = fsdp if has_fsdp else -1  # base.yml's default
    words = f"{_words('fsdp')} {_words('data')}"
    if fsdp == 1:
        ledger.set(words, {"software.ici_fsdp_parallelism": 1})
    elif data in (1, -1) and (fsdp == -1 or data == 1):
        ledger.set(words, {"software.ici_fsdp_parallelism": -1})
    elif fsdp != -1:
        ledger.set(words, {"strategy.shard": 3, "strategy.shard_group": fsdp * expert})
    elif size is None or size % (inner * data):
        raise ConfigError(f"{words.split()[2]} is {data}, and fsdp takes the rest of the accelerators, whose number the"
                          " file does not say: add num_accelerators=N")  # fmt: skip
    else:
        ledger.set(words, {"strategy.shard": 3, "strategy.shard_group": size // (inner * data)})


def _batches(ledger: Ledger, inner: int, size: int | None) -> None:
    """Set batches: per_device_batch_size counts samples of an accelerator, whatever shares a sequence with it."""
    word, steps = "per_device_batch_size", ledger.number("gradient_accumulation_steps", 1, least=1) or 1
    if not ledger.has(word):
        return
    try:
        each = float(ledger.text(word))
    except ValueError:
        raise ledger.wrong(word, "a number of samples") from None
    samples = each * inner
    if not 1 <= samples <= 2**40 or samples != int(samples):
        raise ConfigError(f"{word} is {ledger.text(word)}; times the {inner} accelerators of a replica it must be an"
                          " integer >= 1")  # fmt: skip
    micro = int(samples)
    if ledger.keys.get("strategy.pp", 1) > 1:
        count = ledger.number("num_pipeline_microbatches", least=1) or ledger.keys["strategy.pp"]
        if micro % count:
            raise ConfigError(f"a replica's {micro} samples are not a multiple of {count} micro-batches")
        micro, steps = micro // count, steps * count
        ledger.set("num_pipeline_microbatches", {"strategy.micro_batch": micro})
    set_batches(ledger, (word, micro), ("", None), ("gradient_accumulation_steps", steps), size, inner)


def _others(ledger: Ledger) -> None:
    policy = ledger.text("remat_policy", "full")
    if policy in _REMAT:
        ledger.set("remat_policy", {"strategy.recompute": _REMAT[policy]})
    else:
        ledger.keys["strategy.recompute"] = "full"
        ledger.refuse("remat_policy", f"{policy} is not modelled: full recomputation stands for it")
    quantization = ledger.text("quantization")
    if quantization in ("", "fp8", "nanoo_fp8"):
        ledger.set("quantization", {"software.quantization": quantization and "fp8"})
    else:
        ledger.refuse("quantization", f"{quantization} is not modelled")
    kind = ledger.text("dtype", "bfloat16")
    precisions = {"bfloat16": "bf16_mixed", "float32": "fp32", "float16": "fp16_mixed"}
    if kind not in precisions:
        raise ledger.wrong("dtype", f"one of: {', '.join(precisions)}")
    if quantization not in ("fp8", "nanoo_fp8"):
        ledger.set("dtype", {"strategy.precision": precisions[kind]})
    ledger.leave("dtype", "products are of 8 bits")
    try:
        clip = float(ledger.text("gradient_clipping_threshold", "1.0")) > 0
    except ValueError:
        raise ledger.wrong("gradient_clipping_threshold", "a number") from None
    ledger.set("gradient_clipping_threshold", {"software.gradient_clipping_threshold": clip})
    if ledger.text("opt_type", "adamw") not in ("adamw", "adam_pax"):
        ledger.refuse("opt_type", f"{ledger.text('opt_type')} is taken to be AdamW")
    ledger.keys["strategy.optimizer"] = "adam"
    ledger.leave(
        "opt_type base_config attention scan_layers attn_logits_soft_cap enable_goodput_recording logits_dot_in"
        "_fp32 monitor_goodput enable_checkpoint_cloud_logger use_iota_embed rampup_batch_size",
        "it is as here",
    )
    files = [word for word in ledger.words if word.endswith((".yml", ".yaml"))]
    ledger.leave(" ".join(word for word in files if word.endswith("base.yml")), "its defaults are those here")
    if ledger.text("model_name") in _MODELS:
        ledger.leave(" ".join(files), "the model is named already")
    ledger.refuse(" ".join(word for word in files if word not in ledger.rows), "only base.yml's defaults are known")
    ledger.refuse_unless("weight_dtype", ("float32",), "weights are kept in fp32")
    ledger.refuse_unless("mu_dtype grad_dtype", ("float32",), "moments are fp32")
    ledger.refuse_unless("optimizer_memory_host_offload parameter_memory_host_offload capacity_factor megablox"
                         " sparse_matmul fused_qkv fused_mlp num_layers_per_pipeline_stage num_pipeline_repeats"
                         " allow_split_physical_axes shard_optimizer_over_data", ("false", "-1", "-1.0", "1", "true"),
                         "it has no switch here")  # fmt: skip
