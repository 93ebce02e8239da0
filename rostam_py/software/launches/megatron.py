"""Megatron-LM's arguments: a shell script, a list of arguments, or YAML with them (ARGS, MODEL_ARGS)."""

import ast
import re
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import Document
from rostam_py.software.launches.layers import megatron_layers
from rostam_py.software.launches.ledger import UNKNOWN, Launch, Ledger
from rostam_py.software.launches.reader import set_batches, set_size

_STACK = "megatron_core"
# Tokens of a tokenizer whose name says them; of others the file must.
_VOCABULARIES = {"gpt2bpetokenizer": 50257, "llama2tokenizer": 32000, "bertwordpiecelowercase": 30522}
_RECIPES = {"delayed": "fp8_delayed_mixed", "tensorwise": "fp8_mixed", "blockwise": "fp8_block_mixed",
            "mxfp8": "mxfp8_mixed"}  # fmt: skip
_MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
ONE_REPLICA = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
# Words that change a model's kernels or sizes, beyond its depth and the length of sequences.
_OF_MODEL = (
    "num_attention_heads ffn_hidden_size swiglu squared_relu group_query_attention num_query_groups normalization"
    " disable_bias_linear add_bias_linear add_qkv_bias qk_layernorm position_embedding_type kv_channels"
    " use_rotary_position_embeddings no_position_embedding untie_embeddings_and_output_weights attention_dropout"
    " share_embeddings_and_output_weights hidden_dropout padded_vocab_size vocab_size make_vocab_size_divisible_by"
    " multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim num_experts"
    " moe_router_topk moe_ffn_hidden_size moe_shared_expert_intermediate_size moe_router_score_function"
    " moe_router_num_groups moe_router_group_topk moe_layer_freq"
)
_UNSUPPORTED = {
    "optimizer_cpu_offload optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d use_torch_optimizer_for_cpu_offload"
    " cpu_offloading cpu_offloading_num_layers fine_grained_activation_offloading":
        "nothing is offloaded to the host by this key",
    "pipeline_model_parallel_split_rank num_layers_at_start_in_bf16 num_layers_at_end_in_bf16"
    " first_last_layers_bf16": "it is not modelled",
    "mtp_num_layers": "heads that predict further tokens are not modelled",
    "moe_expert_capacity_factor moe_pad_expert_input_to_capacity": "experts take all rows that are routed to them",
    "moe_layer_recompute moe_apply_probs_on_input moe_latent_size moe_input_jitter_eps": "it is not modelled",
    "use_torch_fsdp2": "Megatron's switch for torch's FSDP2 is not modelled: software=torchtitan shards by it",
    "rampup_batch_size": "the step at the whole batch is simulated, not its beginning",
    "hierarchical_context_parallel_sizes window_size window_attn_skip_freq experimental_attention_variant"
    " hybrid_override_pattern hybrid_attention_ratio hybrid_mlp_ratio is_hybrid_model heterogeneous_layers_config_path"
    " rotary_percent rotary_interleaved softmax_type qk_clip parallel_output_cross_entropy"
    " num_distributed_optimizer_instances outer_dp_sharding_strategy replication replication_jump":
        "it is not modelled",
    "delay_wgrad_compute defer_embedding_wgrad_compute"
    " overlap_p2p_comm_warmup_flush align_grad_reduce align_param_gather overlap_param_gather_with_optimizer_step"
    " moe_shared_expert_overlap moe_permute_fusion moe_upcycling_granularity tp_comm_overlap_ag tp_comm_overlap_rs"
    " disable_tp_comm_overlap_ag disable_tp_comm_overlap_rs tp_comm_overlap_cfg tp_comm_overlap_rs_dgrad":
        "this overlap or fusion has no switch of its own here",
}  # fmt: skip


class MegatronReader:
    """Arguments of pretrain_gpt.py and the like."""

    WHAT = "Megatron-LM's arguments in a shell script, an argument list or YAML"

    def recognises(self, document: Document) -> bool:
        """Say whether sizes of a model, or its parallelism, bear Megatron's names."""
        words = self._words(document)
        marks = ("num_layers", "hidden_size", "tensor_model_parallel_size", "micro_batch_size", "seq_length")
        return sum(word in words for word in marks) >= 2

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys."""
        return read_megatron(Ledger(_STACK, self._words(document)), num_accelerators)

    def _words(self, document: Document) -> dict[str, Any]:
        """Return a document's words without the sections that hold arguments."""
        prefix = re.compile(r"^(ARGS|MODEL_ARGS|megatron_args)\.")
        return {prefix.sub("", word): value for word, value in document.words.items()}


def read_megatron(ledger: Ledger, num_accelerators: int | None) -> Launch:
    """Return the keys of Megatron's arguments, whose defaults are those of arguments.py."""
    ledger.keys["software"] = ledger.software
    size = set_size(ledger, "world_size", "nnodes num_nodes nodes", "nproc_per_node num_gpus gpus_per_node"
                    " ntasks_per_node", num_accelerators)  # fmt: skip
    degrees(ledger)
    _numerics(ledger)
    _software(ledger)
    _recomputation(ledger)
    _pipeline(ledger)
    model(ledger)
    micro = ledger.number("micro_batch_size", least=1)
    whole = ledger.number("global_batch_size", least=1)
    inner = 1
    for word in ONE_REPLICA:
        inner *= ledger.number(word, 1, least=1) or 1
    if micro is None and whole is not None:
        micro = 1
    set_batches(ledger, ("micro_batch_size", micro), ("global_batch_size", whole), ("", 1), size, inner)
    for words, why in _UNSUPPORTED.items():
        ledger.refuse_unless(words, ("false", "none", "0", "1.0", "fp32", "0.0", "vanilla", "no_shard"), why)
    return ledger.closed()


def degrees(ledger: Ledger) -> None:
    """Set the degrees of parallelism."""
    tp = ledger.integer("tensor_model_parallel_size", "strategy.tp") or 1
    ledger.integer("pipeline_model_parallel_size", "strategy.pp")
    ledger.integer("context_parallel_size", "strategy.cp")
    if (ledger.number("expert_model_parallel_size", 1, least=1) or 1) > 1:
        ledger.integer("expert_model_parallel_size", "strategy.ep")
    else:
        ledger.leave("expert_model_parallel_size", "1 is the default")
    expert_tp = ledger.number("expert_tensor_parallel_size", least=1)
    if expert_tp == tp:
        ledger.leave("expert_tensor_parallel_size", "as tensor_model_parallel_size, the default")
    elif expert_tp == 1:
        ledger.set("expert_tensor_parallel_size", {"strategy.expert_tp": 1})
    else:
        ledger.refuse("expert_tensor_parallel_size", "experts are split over all of tp, or not at all")
    if ledger.is_on("sequence_parallel") and tp > 1:
        ledger.set("sequence_parallel", {"strategy.sequence_parallel": True})
    else:
        ledger.leave("sequence_parallel", "there is no tensor parallelism")
    if (ledger.number("context_parallel_size", 1) or 1) > 1 and ledger.has("cp_comm_type"):
        kinds = ledger.words["cp_comm_type"]
        kind = str(kinds[0] if isinstance(kinds, list) and kinds else kinds)
        if kind in ("p2p", "all_gather", "a2a"):
            ledger.set("cp_comm_type", {"software.cp_comm_type": kind})
    else:
        ledger.leave("cp_comm_type", "there is no context parallelism")


def _numerics(ledger: Ledger) -> None:
    is_bf16, is_fp16 = ledger.is_on("bf16"), ledger.is_on("fp16")
    precision = "bf16_mixed" if is_bf16 else "fp16_mixed" if is_fp16 else "fp32"
    word = "bf16" if is_bf16 else "fp16"
    narrow = "fp8_format" if ledger.has("fp8_format") else "fp8"
    if ledger.has(narrow) and ledger.text(narrow).lower() not in ("false", "none"):
        recipe = ledger.text("fp8_recipe", "delayed")
        if recipe not in _RECIPES:
            raise ledger.wrong("fp8_recipe", f"one of: {', '.join(_RECIPES)}")
        precision = _RECIPES[recipe]
        ledger.set(f"{narrow} fp8_recipe {word}", {"strategy.precision": precision})
    else:
        ledger.leave("fp8_recipe", "products are not of 8 bits")
    if ledger.has("fp4_format"):
        precision = "nvfp4_mixed"
        ledger.set("fp4_format fp4_recipe", {"strategy.precision": precision})
    ledger.set(word, {"strategy.precision": precision})
    optimizer = ledger.text("optimizer", "adam")
    if optimizer in ("adam", "sgd"):
        ledger.set("optimizer", {"strategy.optimizer": {"adam": "adam", "sgd": "momentum"}[optimizer]})
    else:
        ledger.keys["strategy.optimizer"] = "adam"
        ledger.refuse("optimizer", f"{optimizer} is taken to be adam")
    _state(ledger)
    if is_bf16:
        is_fp32 = not ledger.is_on("grad_reduce_in_bf16")
        ledger.set("grad_reduce_in_bf16 accumulate_allreduce_grads_in_fp32", {"software.grad_reduce_in_fp32": is_fp32})
    else:
        ledger.leave("grad_reduce_in_bf16 accumulate_allreduce_grads_in_fp32", "gradients are fp32 or fp16 in any case")
    clip = ledger.text("clip_grad", "1.0")
    try:
        ledger.set("clip_grad", {"software.clip_grad": float(clip) > 0})
    except ValueError:
        raise ledger.wrong("clip_grad", "a number >= 0") from None


def _state(ledger: Ledger) -> None:
    """Set the precisions of optimizer state, which its precision-aware optimizer alone has other than fp32."""
    words = "main_params_dtype exp_avg_dtype exp_avg_sq_dtype main_grads_dtype"
    if not ledger.is_on("use_precision_aware_optimizer"):
        ledger.refuse_unless(words, ("fp32", "float32"), "it goes with use_precision_aware_optimizer alone")
        ledger.leave("use_precision_aware_optimizer", "optimizer state is fp32")
        return
    found = {}
    for word in words.split():
        kind = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(
            ledger.text(word), ledger.text(word, "fp32")
        )
        kinds = ("fp32", "bf16", "fp16") if word.startswith("main") else ("fp32", "bf16", "fp16", "fp8")
        if kind not in kinds:
            raise ledger.wrong(word, f"one of: {', '.join(kinds)}")
        found[word] = kind
    ledger.set("use_precision_aware_optimizer main_params_dtype",
               {"software.rules.master_precision": found["main_params_dtype"]})  # fmt: skip
    first, second = found["exp_avg_dtype"], found["exp_avg_sq_dtype"]
    moments = first if first == second else "fp32"
    ledger.set("exp_avg_dtype exp_avg_sq_dtype", {"software.rules.moment_precision": moments})
    if first != second:
        ledger.refuse("exp_avg_dtype exp_avg_sq_dtype", "the two moments have one precision: both are fp32 here")
    if found["main_grads_dtype"] == "bf16":
        ledger.set("main_grads_dtype", {"software.rules.gradient_precision": "bf16"})
    else:
        ledger.leave("main_grads_dtype", "gradients are summed in fp32, the default")


def _software(ledger: Ledger) -> None:
    """Set what the program does by itself; its switches are off unless they are given."""
    ledger.flag("use_distributed_optimizer", "software.use_distributed_optimizer", default=False)
    is_sharded = ledger.is_on("use_megatron_fsdp") or ledger.is_on("use_custom_fsdp")
    sharding = ledger.text("data_parallel_sharding_strategy", "no_shard")
    if is_sharded and sharding == "optim_grads_params":
        ledger.set("use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy use_distributed_optimizer",
                   {"software.use_megatron_fsdp": True, "software.use_distributed_optimizer": False})  # fmt: skip
    elif is_sharded and sharding != "no_shard":
        level = {"optim": 1, "optim_grads": 2}.get(sharding)
        if level is None:
            raise ledger.wrong("data_parallel_sharding_strategy", "optim, optim_grads or optim_grads_params")
        ledger.set("use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy", {"strategy.shard": level})
    else:
        ledger.leave("use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy", "nothing is sharded by it")
    ledger.flag("overlap_grad_reduce", "software.overlap_grad_reduce", default=False)
    ledger.flag("overlap_param_gather", "software.overlap_param_gather", default=False)
    ledger.flag("tp_comm_overlap", "software.tp_comm_overlap", default=False)
    ledger.flag("no_gradient_accumulation_fusion", "software.gradient_accumulation_fusion", default=True,
                is_negated=True)  # fmt: skip
    ledger.flag("no_check_for_nan_in_loss_and_grad", "software.check_for_nan_in_loss_and_grad", default=True,
                is_negated=True)  # fmt: skip
    ledger.flag("ddp_average_in_collective", "software.ddp_average_in_collective", default=False)
    ledger.flag("cross_entropy_loss_fusion", "software.cross_entropy_loss_fusion", default=False)
    ledger.leave("cross_entropy_fusion_impl", "the fused loss is one kernel, whose ever it is")
    ledger.flag("fp8_param_gather", "software.fp8_param_gather", default=False)
    if ledger.text("cuda_graph_impl", "none") in ("local", "full_iteration") or ledger.is_on("enable_cuda_graph"):
        ledger.set("cuda_graph_impl enable_cuda_graph cuda_graph_scope", {"software.cuda_graphs": True})
    else:
        ledger.refuse_unless("cuda_graph_impl cuda_graph_scope external_cuda_graph", ("none", "false"), UNKNOWN)
    _experts_software(ledger)


def _experts_software(ledger: Ledger) -> None:
    if not ledger.has("num_experts"):
        ledger.leave("moe_token_dispatcher_type moe_grouped_gemm moe_enable_deepep overlap_moe_expert_parallel_comm"
                     " moe_flex_dispatcher_backend moe_deepep_num_sms moe_hybridep_num_sms moe_router_num_groups"
                     " moe_router_group_topk", "there are no experts")  # fmt: skip
        return
    kind = ledger.text("moe_token_dispatcher_type", "allgather")
    if kind in ("alltoall", "flex"):
        ledger.set("moe_token_dispatcher_type", {"software.moe_token_dispatcher_type": kind})
    else:
        ledger.refuse("moe_token_dispatcher_type", f"{kind} is not modelled: rows go by all-to-all")
    backend = ledger.text("moe_flex_dispatcher_backend", "deepep")
    if kind == "flex" and backend in ("deepep", "hybridep"):
        ledger.set("moe_flex_dispatcher_backend moe_enable_deepep", {"software.moe_flex_dispatcher_backend": backend})
    for name in ("deepep", "hybridep"):
        if kind == "flex" and backend == name:
            ledger.integer(f"moe_{name}_num_sms", f"software.moe_{name}_num_sms")
        else:
            ledger.leave(f"moe_{name}_num_sms", f"the dispatcher is not {name}")
    ledger.leave("moe_enable_deepep moe_flex_dispatcher_backend", "the dispatcher is not flex")
    ledger.flag("overlap_moe_expert_parallel_comm", "software.overlap_moe_expert_parallel_comm", default=False)
    if ledger.is_on("moe_grouped_gemm"):
        ledger.leave("moe_grouped_gemm", "experts' products are always grouped here")
    else:
        ledger.refuse("moe_grouped_gemm", "experts' products are always grouped here")


def _recomputation(ledger: Ledger) -> None:
    level = ledger.text("recompute_granularity", "selective" if ledger.is_on("recompute_activations") else "none")
    if level not in ("none", "selective", "full"):
        raise ledger.wrong("recompute_granularity", "selective or full")
    ledger.set("recompute_granularity recompute_activations", {"strategy.recompute": level})
    count = ledger.number("recompute_num_layers", least=1)
    method = ledger.text("recompute_method", "uniform")
    if level == "full" and method == "block" and count is not None:
        ledger.set("recompute_num_layers recompute_method", {"strategy.recompute_blocks": count})
    elif level == "full" and count in (None, 1):
        ledger.leave("recompute_num_layers recompute_method", "each layer is recomputed by itself, as here")
    elif level == "full":
        ledger.refuse("recompute_num_layers recompute_method", "each layer is recomputed by itself")
    else:
        ledger.leave("recompute_num_layers recompute_method", "no whole layer is recomputed")
    if level == "selective" and ledger.has("recompute_modules"):
        given = ledger.words["recompute_modules"]
        names = [str(one) for one in given] if isinstance(given, list) else str(given).replace(",", " ").split()
        names = [one.strip("[]'\" ") for one in names]
        others = ", ".join(one for one in names if one not in _MODULES)
        kept = [one for one in names if one in _MODULES and _has_module(ledger, one)]
        keys = {"strategy.recompute_modules": kept} if kept else {"strategy.recompute": "none"}
        if others:
            ledger.keys |= keys
            ledger.refuse("recompute_modules", f"recomputation of {others} has no key of that name; the rest is set")
        else:
            ledger.set("recompute_modules", keys)
    else:
        ledger.leave("recompute_modules", "recomputation is not selective")
    ledger.refuse_unless("distribute_saved_activations", ("false",), "kept activations are not distributed")


def _has_module(ledger: Ledger, name: str) -> bool:
    """Say whether layers have a module: without, Megatron recomputes nothing of that name."""
    has_experts = (ledger.number("num_experts", 0) or 0) > 0
    if name == "mlp":
        return not has_experts or ledger.has("moe_layer_freq")
    if name == "shared_experts":
        return has_experts and ledger.has("moe_shared_expert_intermediate_size")
    return has_experts or name not in ("moe", "moe_act")


def _pipeline(ledger: Ledger) -> None:
    stages = ledger.number("pipeline_model_parallel_size", 1, least=1) or 1
    word = "num_virtual_stages_per_pipeline_rank"
    if not ledger.has(word):
        word = "virtual_pipeline_model_parallel_size"
    per_chunk = ledger.number("num_layers_per_virtual_pipeline_stage", least=1)
    layers = ledger.number("num_layers", least=1)
    if stages == 1:
        megatron_layers(ledger, 1, 1)
        ledger.leave(f"{word} num_layers_per_virtual_pipeline_stage overlap_p2p_comm no_overlap_p2p_communication"
                     " microbatch_group_size_per_virtual_pipeline_stage microbatch_group_size_per_vp_stage",
                     "there is no pipeline")  # fmt: skip
        return
    if ledger.has(word):
        ledger.integer(word, "strategy.virtual_stages")
    if per_chunk is not None and layers is not None:
        if layers % (stages * per_chunk):
            raise ConfigError(f"num_layers is {layers}; it must be a multiple of {stages} stages x {per_chunk}"
                              " (num_layers_per_virtual_pipeline_stage)")  # fmt: skip
        ledger.set("num_layers_per_virtual_pipeline_stage", {"strategy.virtual_stages": layers // stages // per_chunk})
    group = "microbatch_group_size_per_virtual_pipeline_stage"
    if not ledger.has(group):  # as configurations of Megatron-Core call it
        group = "microbatch_group_size_per_vp_stage"
    if ledger.keys.get("strategy.virtual_stages", 1) > 1:
        ledger.integer(group, "software.microbatch_group_size_per_vp_stage")
    else:
        ledger.leave(group, "there is one chunk of layers on each stage")
    ledger.flag("no_overlap_p2p_communication", "software.overlap_p2p_comm", default=True, is_negated=True)
    both = [f"account_for_{one}_in_pipeline_split" for one in ("embedding", "loss")]
    for one in both:
        if ledger.is_on(one):
            ledger.set(one, {f"software.{one}": True})
    megatron_layers(ledger, stages, ledger.keys.get("strategy.virtual_stages") or 1)


def _changes(ledger: Ledger) -> None:
    """Set what changes a model whose sizes the file does not hold: overrides of a recipe, or of a checkpoint."""
    for word, key in (("num_layers", "num_layers"), ("encoder_seq_length", "sequence_length"),
                      ("seq_length", "sequence_length")):  # fmt: skip
        ledger.integer(word, f"model.{key}")
    for word in _OF_MODEL.split():
        if word not in ledger.rows:
            ledger.refuse(word, "sizes are those of the model that model=NAME names: no word of the file changes them")


def model(ledger: Ledger) -> None:
    """Set the sizes of model=decoder, by the defaults of arguments.py."""
    if not ledger.has("hidden_size"):
        _changes(ledger)
        return
    ledger.keys["model"] = "decoder"
    for word, key in (("num_layers", "num_layers"), ("hidden_size", "width"), ("num_attention_heads", "num_heads")):
        ledger.integer(word, f"model.args.{key}")
    ledger.integer("seq_length", "model.sequence_length")
    ledger.integer("encoder_seq_length", "model.sequence_length")
    width = ledger.number("hidden_size", 0) or 0
    is_gated = ledger.is_on("swiglu")
    hidden = ledger.number("ffn_hidden_size", least=1)
    usual = int(4 * width * 2 / 3 / 64) * 64 if is_gated else 4 * width
    ledger.set("ffn_hidden_size", {"model.args.hidden": hidden or usual} if hidden or usual else {})
    ledger.set("swiglu", {"model.args.is_gated": is_gated})
    is_squared = ledger.is_on("squared_relu")
    activation = "silu" if is_gated else "squared_relu" if is_squared else "gelu"
    ledger.set("squared_relu", {"model.args.activation": activation})
    if ledger.is_on("group_query_attention") or ledger.has("num_query_groups"):
        ledger.set("group_query_attention num_query_groups",
                   {"model.args.num_key_heads": ledger.number("num_query_groups", 1, least=1)})  # fmt: skip
    norm = ledger.text("normalization", "LayerNorm")
    if norm not in ("LayerNorm", "RMSNorm"):
        raise ledger.wrong("normalization", "LayerNorm or RMSNorm")
    ledger.set("normalization", {"model.args.norm": "rms" if norm == "RMSNorm" else "layer"})
    has_biases = not (ledger.is_on("disable_bias_linear") or ledger.is_on("add_bias_linear", True) is False)
    ledger.set("disable_bias_linear add_bias_linear", {"model.args.has_biases": has_biases})
    if ledger.is_on("add_qkv_bias"):
        ledger.set("add_qkv_bias", {"model.args.has_query_biases": True})
    if ledger.is_on("qk_layernorm"):
        ledger.set("qk_layernorm", {"model.args.has_head_norms": not ledger.is_on("multi_latent_attention")})
    _positions(ledger)
    is_tied = not (ledger.is_on("untie_embeddings_and_output_weights")
                   or ledger.is_on("share_embeddings_and_output_weights", True) is False)  # fmt: skip
    ledger.set("untie_embeddings_and_output_weights share_embeddings_and_output_weights",
               {"model.args.is_tied": is_tied})  # fmt: skip
    for word, key in (("attention_dropout", "attention_dropout"), ("hidden_dropout", "dropout")):
        try:
            ledger.set(word, {f"model.args.{key}": float(ledger.text(word, "0.1"))})
        except ValueError:
            raise ledger.wrong(word, "a share from 0 to below 1") from None
    _vocabulary(ledger)
    if ledger.is_on("multi_latent_attention"):
        _latents(ledger)
    else:
        ledger.integer("kv_channels", "model.args.head_size")
    if ledger.has("num_experts"):
        _experts(ledger)


def _positions(ledger: Ledger) -> None:
    positions = "rope" if ledger.is_on("use_rotary_position_embeddings") else "learned_absolute"
    positions = ledger.text("position_embedding_type", positions)
    kinds = {"rope": "rotary", "yarn": "rotary", "mrope": "rotary", "learned_absolute": "learned", "none": "none",
             "alibi": "none"}  # fmt: skip
    if positions not in kinds:
        raise ledger.wrong("position_embedding_type", f"one of: {', '.join(kinds)}")
    ledger.set("position_embedding_type use_rotary_position_embeddings no_position_embedding",
               {"model.args.positions": kinds[positions]})  # fmt: skip
    if positions == "alibi":
        ledger.refuse("position_embedding_type", "attention has no biases by distance here (ALiBi); set to none")


def _vocabulary(ledger: Ledger) -> None:
    """Set the vocabulary as it is padded: to a multiple of 128 x tp, unless the arguments say another."""
    tokenizer = ledger.text("tokenizer_type").lower()
    word = next((one for one in ("padded_vocab_size", "vocab_size") if ledger.has(one)), "tokenizer_type")
    count = ledger.number(word, least=1) if word != "tokenizer_type" else _VOCABULARIES.get(tokenizer)
    if count is None:
        ledger.refuse("tokenizer_type tokenizer_model tokenizer_name_or_path vocab_file", "the size of its vocabulary"
                      " is not in the file: give model.args.vocabulary=N")  # fmt: skip
        return
    if word != "padded_vocab_size":
        count += tokenizer == "nulltokenizer"
        divisor = ledger.number("make_vocab_size_divisible_by", 128, least=1) or 128
        multiple = divisor * (ledger.number("tensor_model_parallel_size", 1, least=1) or 1)
        count = -(-count // multiple) * multiple
    ledger.set(f"{word} make_vocab_size_divisible_by", {"model.args.vocabulary": count})


def _latents(ledger: Ledger) -> None:
    sizes = {"q_lora_rank": ("query_latent", 0), "kv_lora_rank": ("key_latent", 32), "qk_head_dim": ("head_size", 128),
             "qk_pos_emb_head_dim": ("rotary_size", 64), "v_head_dim": ("value_size", 128)}  # fmt: skip
    for word, (key, usual) in sizes.items():
        ledger.set(word, {f"model.args.{key}": ledger.number(word, usual, least=0)})
    ledger.set("multi_latent_attention", {"model.args.key_latent": ledger.number("kv_lora_rank", 32)})
    ledger.leave("kv_channels", "latent attention has sizes of its own")


def _experts(ledger: Ledger) -> None:
    ledger.integer("num_experts", "model.args.num_experts")
    ledger.set("moe_router_topk", {"model.args.experts_per_token": ledger.number("moe_router_topk", 2, least=1)})
    hidden = ledger.number("moe_ffn_hidden_size", least=1)
    if hidden is not None:
        ledger.set("moe_ffn_hidden_size", {"model.args.expert_hidden": hidden})
    else:
        ledger.keys["model.args.expert_hidden"] = ledger.keys["model.args.hidden"]
    ledger.integer("moe_shared_expert_intermediate_size", "model.args.shared_hidden", least=0)
    score = ledger.text("moe_router_score_function", "softmax")
    if score not in ("softmax", "sigmoid"):
        raise ledger.wrong("moe_router_score_function", "softmax or sigmoid")
    ledger.set("moe_router_score_function", {"model.args.router": score})
    for word, key in (("moe_router_num_groups", "router_groups"), ("moe_router_group_topk", "groups_per_token")):
        count = ledger.number(word, least=1)
        if count is not None:  # a router of softmax scores here chooses among all, in kernels of the same size
            args = {f"model.args.{key}": count} if score == "sigmoid" else {}
            ledger.set(word, {f"software.{word}": count, **args})
    ledger.leave("moe_router_topk_scaling_factor", "a factor of the weights, on which no kernel depends")
    pattern = ledger.text("moe_layer_freq", "1")
    kinds = _layer_kinds(pattern, ledger.number("num_layers", 1) or 1)
    dense = kinds.index(1) if kinds and 1 in kinds else 0
    if kinds is None or any(kind != 1 for kind in kinds[dense:]):
        ledger.refuse("moe_layer_freq", f"{pattern[:60]}: dense layers are the first ones here; all have experts")
    else:
        ledger.set("moe_layer_freq", {"model.args.dense_layers": dense})


def _layer_kinds(pattern: str, count: int) -> list[int] | None:
    """Return 1 for each layer with experts, 0 for others, of "([0]*3+[1]*58)" or of a frequency; None for others."""
    if pattern.isascii() and pattern.isdecimal() and 0 < len(pattern) < 6 and int(pattern):
        return [int(place % int(pattern) == 0) for place in range(count)] if count <= 10_000 else None
    try:
        return _listed(ast.parse(pattern.strip("'\" "), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _listed(node: ast.expr) -> list[int]:
    if isinstance(node, ast.List) and all(isinstance(one, ast.Constant) and one.value in (0, 1) for one in node.elts):
        return [int(one.value) for one in node.elts]  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _listed(node.left) + _listed(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        count = node.right.value
        if isinstance(count, int) and 0 <= count <= 10_000:
            found = _listed(node.left)
            if len(found) * count <= 10_000:
                return found * count
    raise ValueError("no list of 0 and 1")
