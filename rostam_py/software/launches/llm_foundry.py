"""LLM Foundry's YAML, as Composer's trainer takes it."""

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import Document
from rostam_py.software.launches.ledger import Launch, Ledger
from rostam_py.software.launches.reader import set_batches

# Layers, width and heads of scripts/train/yamls/pretrain/mpt-*.yaml -> ours.
_SHAPES = {
    (12, 768, 12): "mpt_125m", (24, 1024, 16): "mpt_350m", (24, 1536, 12): "mpt_760m", (24, 2048, 16): "mpt_1b",
    (32, 2560, 20): "mpt_3b", (32, 4096, 32): "mpt_7b", (40, 5120, 40): "mpt_13b", (48, 7168, 56): "mpt_30b",
    (80, 8192, 64): "mpt_70b",
}  # fmt: skip
_PRECISIONS = {"amp_bf16": "bf16_mixed", "amp_fp16": "fp16_mixed", "fp32": "fp32", "amp_fp8": "fp8_delayed_mixed"}


class LlmFoundryReader:
    """Keys of scripts/train/train.py."""

    WHAT = "LLM Foundry's YAML"

    def recognises(self, document: Document) -> bool:
        """Say whether Composer's words for batches are there."""
        marks = ("global_train_batch_size", "device_train_microbatch_size", "fsdp_config.sharding_strategy",
                 "variables.global_train_batch_size")  # fmt: skip
        return any(word in document.words for word in marks)

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys."""
        ledger = Ledger("fsdp1", document.words)
        ledger.keys["software"] = ledger.software
        _model(ledger)
        _batches(ledger, num_accelerators)
        _sharding(ledger)
        _others(ledger)
        return ledger.closed()


def _model(ledger: Ledger) -> None:
    kind = ledger.text("model.name", "mpt_causal_lm")
    length = next((one for one in ("max_seq_len", "model.max_seq_len", "variables.max_seq_len") if ledger.has(one)), "")
    if kind in ("hf_causal_lm", "hf_t5"):
        if not ledger.has("model.pretrained_model_name_or_path"):
            raise ConfigError(f"model.name is {kind!r}, but model.pretrained_model_name_or_path is missing")
        name = ledger.text("model.pretrained_model_name_or_path")
        ledger.set("model.name model.pretrained_model_name_or_path", {"model": f"hf:{name}"})
        ledger.leave("model.pretrained model.use_auth_token model.use_flash_attention_2 model.load_in_8bit",
                     "weights are not read; attention is fused")  # fmt: skip
        if length:
            ledger.integer(length, "model.sequence_length")
        ledger.refuse_unless("model.peft_config.peft_type", (), "adapters are not made: all weights are trained")
        return
    if kind != "mpt_causal_lm":
        raise ConfigError(f"model.name is {kind[:60]!r}; known are mpt_causal_lm, hf_causal_lm and hf_t5")
    sizes = [ledger.number(f"model.{one}", least=1) for one in ("n_layers", "d_model", "n_heads")]
    if None in sizes:
        raise ConfigError("model.n_layers, model.d_model and model.n_heads must all be given")
    words = "model.name model.n_layers model.d_model model.n_heads model.expansion_ratio model.vocab_size"
    has_biases = not ledger.is_on("model.no_bias")
    positions = "none" if ledger.is_on("model.attn_config.alibi") or ledger.is_on("model.alibi") else "learned"
    positions = "rotary" if ledger.is_on("model.attn_config.rope") else positions
    vocabulary, ratio = (
        ledger.number("model.vocab_size", 50368, least=1),
        ledger.number("model.expansion_ratio", 4) or 4,
    )
    own = _SHAPES.get(tuple(sizes))  # type: ignore[arg-type]
    if own and has_biases and positions == "learned" and vocabulary == 50368 and ratio == 4:
        ledger.set(words, {"model": own})
    else:
        keys = dict(zip(("num_layers", "width", "num_heads"), sizes, strict=True)) | {
            "vocabulary": vocabulary, "hidden": ratio * (sizes[1] or 0), "norm": "layer", "activation": "gelu",
            "is_gated": False, "has_biases": has_biases, "positions": positions, "is_tied": True,
        }  # fmt: skip
        ledger.set(f"{words} model.no_bias model.alibi model.attn_config.alibi model.attn_config.rope",
                   {"model": "decoder", **{f"model.args.{key}": value for key, value in keys.items()}})  # fmt: skip
    ledger.leave("model.no_bias model.attn_config.alibi model.attn_config.rope", "as the model's own")
    if length:
        ledger.integer(length, "model.sequence_length")
    ledger.leave("model.max_seq_len max_seq_len variables.max_seq_len", "the sequences' length is set already")
    ledger.leave("model.attn_config.attn_impl model.attn_impl model.loss_fn model.attn_config.rope_theta"
                 " model.attn_config.rope_impl model.attn_config.softmax_scale", "attention is fused")  # fmt: skip
    ledger.leave("model.learned_pos_emb model.tie_word_embeddings", "as the model's own")
    ledger.refuse_unless(
        "model.attn_config.qk_ln model.attn_config.clip_qkv model.attn_config.attn_type model.norm_type"
        " model.attn_config.kv_n_heads model.ffn_config.ffn_type model.attn_config.sliding_window_size"
        " model.attn_config.attn_pdrop model.resid_pdrop model.emb_pdrop",
        ("false", "none", "multihead_attention", "low_precision_layernorm", "mptmlp", "-1", "0", "0.0"),
        "MPT has none of it here",
    )


def _batches(ledger: Ledger, size: int | None) -> None:
    whole = "global_train_batch_size" if ledger.has("global_train_batch_size") else "variables.global_train_batch_size"
    micro = "device_train_microbatch_size"
    count = None if ledger.text(micro) == "auto" else ledger.number(micro, least=1)
    if ledger.text(micro) == "auto":
        ledger.leave(micro, "the largest that fits is found here, too")
    set_batches(ledger, (micro, count), (whole, ledger.number(whole, least=1)), ("", 1), size, 1)
    ledger.leave("variables.global_train_batch_size", "it is global_train_batch_size")


def _sharding(ledger: Ledger) -> None:
    kind = ledger.text("fsdp_config.sharding_strategy", "FULL_SHARD")
    if kind in ("FULL_SHARD", "SHARD_GRAD_OP"):
        ledger.set("fsdp_config.sharding_strategy", {"software.sharding_strategy": kind})
    else:
        ledger.refuse("fsdp_config.sharding_strategy", f"{kind} is not supported: FULL_SHARD stands for it")
    mixed = ledger.text("fsdp_config.mixed_precision", "DEFAULT")
    if mixed not in ("PURE", "DEFAULT"):
        ledger.refuse("fsdp_config.mixed_precision", f"{mixed} is not supported: DEFAULT stands for it")
    else:
        ledger.set("fsdp_config.mixed_precision", {"software.mixed_precision": mixed})
    full = ledger.is_on("fsdp_config.activation_checkpointing")
    ledger.set("fsdp_config.activation_checkpointing", {"strategy.recompute": "full" if full else "none"})
    ledger.leave("fsdp_config.activation_checkpointing_reentrant fsdp_config.limit_all_gathers fsdp_config.verbose"
                 " fsdp_config.state_dict_type fsdp_config.use_orig_params fsdp_config.sync_module_states"
                 " fsdp_config.backward_prefetch fsdp_config.forward_prefetch", "as the program does here")  # fmt: skip
    ledger.refuse_unless(
        "fsdp_config.activation_cpu_offload fsdp_config.cpu_offload fsdp_config.tp_config"
        " fsdp_config.activation_checkpointing_target fsdp_config.device_mesh fsdp_config.te_checkpoint_wrapper"
        " fsdp_config.te_shard_fp8_weight fsdp_config.flatten_parameters fsdp_config.data_parallel_shard_degree",
        ("false",), "it has no switch here",
    )  # fmt: skip


def _others(ledger: Ledger) -> None:
    precision = ledger.text("precision", "amp_bf16")
    if precision not in _PRECISIONS:
        raise ledger.wrong("precision", f"one of: {', '.join(_PRECISIONS)}")
    if precision == "amp_bf16":
        ledger.leave("precision", "bf16, as the program does here")
    else:
        ledger.refuse("precision", f"{precision} is not modelled for this program: bf16 stands for it")
    optimizer = ledger.text("optimizer.name", "decoupled_adamw")
    if "adam" in optimizer:
        ledger.leave("optimizer.name", "Adam, as the program does here")
    else:
        ledger.refuse("optimizer.name", f"{optimizer} is taken to be AdamW")
    ledger.leave("algorithms.gradient_clipping.clipping_type algorithms.gradient_clipping.clipping_threshold",
                 "gradients are clipped to a norm, as the program does here")  # fmt: skip
    ledger.refuse_unless("compile_config.mode compile_config", (), "the program is eager here")
