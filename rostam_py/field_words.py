"""Words of other programs, and what rostam calls the same: the one table of synonyms, for errors and help.

Example:
    hint("zero_stage", "3")                 # "did you mean strategy.shard=3?"
    hint("lr", "3e-4")                      # "lr has no effect on time"

A word is looked up in lower case with "_" for "-", by its last two parts and then by its last one
("parallelism.tensor_parallel_degree" is "tensor_parallel_degree"). Programs: Megatron-LM, DeepSpeed, Hugging Face's
Trainer and Accelerate, PyTorch Lightning, torchtitan, MaxText, LLM Foundry, nanoGPT, nccl-tests; vLLM's sizes, too.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_VALUE = re.compile(r"(?<!\w)\*")  # the value in a meaning's text


@dataclass(frozen=True, slots=True)
class Meaning:
    """What words mean here.

    words: with blanks between them. text: the setting in rostam's words, "*" standing for the value; a remark where it
    sets nothing. by_value: other texts, by the value in lower case, or "number".
    """

    words: str
    text: str
    by_value: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The first key that it sets; "" of a remark."""
        found = re.match(r"([a-z_]\w*(?:\.\w+)*)\s*=", self.text)
        return found.group(1) if found else ""

    def said(self, value: str | None) -> str:
        """Return the text for a value, for none the keys alone; "" where the word with this value means another."""
        plain = "" if value is None else value.strip().strip("'\"")
        kind = "number" if _NUMBER.fullmatch(plain) else plain.lower()
        text = self.by_value.get(plain.lower(), self.by_value.get(kind, self.text))
        if value is None:
            return re.sub(r"='?\*[^']*'?", "", text)
        if "[*]" in text and plain.startswith("[") and plain.endswith("]"):
            return text.replace("[*]", plain)
        is_bare = "'" in text or not re.search(r"[\s,{}\[\]]", plain)
        return _VALUE.sub(lambda found: plain if is_bare else f"'{plain}'", text)


_FLAG = {"true": "strategy.shard=3", "false": "strategy.shard=0", "1": "strategy.shard=3", "0": "strategy.shard=0"}
_PRECISIONS = {
    **dict.fromkeys(("bf16", "bfloat16", "bf16-mixed", "torch.bfloat16"), "strategy.precision=bf16_mixed"),
    **dict.fromkeys(("fp16", "float16", "half", "16", "16-mixed", "torch.float16"), "strategy.precision=fp16_mixed"),
    **dict.fromkeys(("fp32", "float32", "float", "32", "no", "torch.float32"), "strategy.precision=fp32"),
    **dict.fromkeys(("fp8", "float8"), "strategy.precision=fp8_mixed"),
    **dict.fromkeys(("fp4", "nvfp4"), "strategy.precision=nvfp4_mixed"),
}  # fmt: skip
_RECIPES = {
    **dict.fromkeys(("delayed", "hybrid", "e4m3", "te_fp8_ds"), "strategy.precision=fp8_delayed_mixed"),
    **dict.fromkeys(("tensorwise", "te_fp8_cs", "fp8", "true"), "strategy.precision=fp8_mixed"),
    **dict.fromkeys(("rowwise", "rowwise_with_gw_hp"), "strategy.precision=fp8_row_mixed"),
    **dict.fromkeys(("blockwise",), "strategy.precision=fp8_block_mixed"),
    **dict.fromkeys(("mxfp8", "te_mxfp8"), "strategy.precision=mxfp8_mixed"),
    **dict.fromkeys(("nvfp4", "te_nvfp4"), "strategy.precision=nvfp4_mixed"),
    "false": "strategy.precision=bf16_mixed",
}


def _switch(on: str, off: str) -> dict[str, str]:
    return dict.fromkeys(("true", "1"), on) | dict.fromkeys(("false", "0"), off)


_NO_EFFECT = "it has no effect on time"
_SHAPE = "the shape is the model's: rostam list models, or model=path/to/file.py:Class of your own"
_STEPS = "the time of an iteration does not depend on it; target='1 T tokens' adds the time of the whole training"
_SERVERS = "machine.servers=* with machine=NAME (rostam list machines), or num_accelerators=* x those of a server"
_MACHINE = "machine=NAME (rostam list machines), which brings its networks"
_FULL, _SELECTIVE, _NONE = (f"strategy.recompute={level}" for level in ("full", "selective", "none"))
_SCHEDULES = {
    **dict.fromkeys(("1f1b", "single"), "strategy.schedule=1f1b"), "gpipe": "strategy.schedule=gpipe",
    **dict.fromkeys(("interleaved1f1b", "interleaved"), "strategy.schedule=1f1b strategy.virtual_stages=N"),
    **dict.fromkeys(("zb", "zb_h1", "zbh1", "interleavedzerobubble"), "strategy.schedule=zb_h1"),
    **dict.fromkeys(("zbv", "zb_v", "zbvzerobubble"), "strategy.schedule=zb_v strategy.virtual_stages=2"),
    **dict.fromkeys(("dualpipev", "dual_pipe_v"), "strategy.schedule=dual_pipe_v strategy.virtual_stages=2"),
}  # fmt: skip

MEANINGS = (
    # Degrees
    Meaning("tensor_model_parallel_size tensor_parallel_size tensor_parallel_degree tensor_model_parallel"
            " tensor_parallel tp_size tp_degree autotp_size model_parallel_size ici_tensor_parallelism"
            " dcn_tensor_parallelism", "strategy.tp=*"),
    Meaning("mp model_parallel model_parallel_degree mp_degree mp_size",
            "strategy.tp=*, or strategy.mp=* with strategy.placer=sip_ml"),
    Meaning("pipeline_model_parallel_size pipeline_parallel_size pipeline_parallel_degree pipeline_parallel pp_size"
            " pp_degree num_stages pipeline_stages ici_pipeline_parallelism dcn_pipeline_parallelism", "strategy.pp=*"),
    Meaning("context_parallel_size context_parallel_degree context_parallel cp_size cp_degree ring_attn_size"
            " ici_context_parallelism dcn_context_parallelism", "strategy.cp=*"),
    Meaning("sequence_parallel_size ulysses_sequence_parallel_size ulysses_degree sp_size",
            "strategy.cp=* software.rules.cp_algorithm=ulysses"),
    Meaning("expert_model_parallel_size expert_parallel_size expert_parallel_degree expert_parallel ep_size"
            " moe_expert_parallel_size ici_expert_parallelism", "strategy.ep=*"),
    Meaning("expert_tensor_parallel_size expert_tensor_parallel_degree", "strategy.expert_tp=*"),
    Meaning("data_parallel_size data_parallel_degree data_parallel dp_size dp_degree num_replicas"
            " ici_data_parallelism dcn_data_parallelism", "strategy.dp=*",
            _switch("strategy.dp=null, which fills the machine", "strategy.dp=1")),
    Meaning("data_parallel_shard_degree hsdp_shard_size fsdp_size ici_fsdp_parallelism"
            " dcn_fsdp_parallelism fsdp_parallelism", "strategy.shard=3 strategy.shard_group=*",
            {"-1": "strategy.shard=3"}),
    Meaning("data_parallel_replicate_degree num_distributed_optimizer_instances dp_replicate_size",
            "strategy.shard_group = strategy.dp x strategy.cp / *"),
    Meaning("sequence_parallelism enable_sequence_parallel", "strategy.sequence_parallel=*"),
    # Pipelines
    Meaning("virtual_pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank vpp vpp_size"
            " num_pipeline_repeats num_model_chunks interleave_degree virtual_pipeline_size"
            " virtual_pipeline_parallel_size interleave", "strategy.virtual_stages=*"),
    Meaning("num_layers_per_virtual_pipeline_stage pipeline_parallel_layers_per_stage num_layers_per_pipeline_stage",
            "strategy.virtual_stages = layers / (strategy.pp x *)"),
    Meaning("pipeline_model_parallel_layout pipeline_layout", "strategy.placing.layers='*'"),
    Meaning("pipeline_schedule pipeline_parallel_schedule pipe_schedule", "strategy.schedule=*", _SCHEDULES),
    Meaning("overlap_p2p_comm overlap_p2p_communication", "software.rules.overlap_p2p=*"),
    Meaning("scatter_gather_tensors_in_pipeline", "software.rules.split_p2p=*"),
    Meaning("account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split",
            "software.rules.stage_blocks=even_with_ends", {"false": "software.rules.stage_blocks=even"}),
    # Batches
    Meaning("micro_batch_size microbatch_size micro_bs mbs train_micro_batch_size_per_gpu per_device_train_batch_size"
            " per_device_batch_size per_gpu_train_batch_size local_batch_size device_batch_size batch_size_per_gpu"
            " device_train_microbatch_size pipeline_parallel_microbatch_size", "strategy.micro_batch=*",
            {"auto": "strategy.micro_batch=null"}),
    Meaning("global_batch_size global_train_batch_size train_batch_size gbs effective_batch_size",
            "global_batch=*"),
    Meaning("batch batch_size bs", "global_batch=* for all replicas together, or strategy.micro_batch=* for one pass"),
    Meaning("global_batch_size global_train_batch_size train_batch_size gbs effective_batch_size global_batch batch"
            " batch_size bs", "search.batches=[*]"),
    Meaning("gradient_accumulation_steps gradient_accumulation grad_accum_steps grad_accum accumulate_grad_batches"
            " grad_acc_steps num_microbatches num_micro_batches micro_batches microbatches",
            "global_batch = * x strategy.dp x strategy.micro_batch: accumulation follows from these"),
    Meaning("total_batch_size tokens_per_batch global_batch_tokens batch_tokens",
            "global_batch = * / tokens of a sample, if it counts tokens"),
    # Sharding
    Meaning("zero_stage zero zero_optimization zero_optimization.stage stage zero_level ds_zero_stage",
            "strategy.shard=*", _switch("strategy.shard=1, 2 or 3", "strategy.shard=0") | {"1": "strategy.shard=1"}),
    Meaning("zero1", "strategy.shard=1", _switch("strategy.shard=1", "strategy.shard=0")),
    Meaning("zero2", "strategy.shard=2", _switch("strategy.shard=2", "strategy.shard=0")),
    Meaning("zero3", "strategy.shard=3", _FLAG),
    Meaning("fsdp use_fsdp enable_fsdp fsdp2 fully_shard use_torch_fsdp2 use_megatron_fsdp use_custom_fsdp",
            "strategy.shard=3", _FLAG | {
                "number": "strategy.shard=3 strategy.shard_group=*", "shard_grad_op": "strategy.shard=2",
                "shard_grad_op auto_wrap": "strategy.shard=2", "no_shard": "strategy.shard=0"}),
    Meaning("sharding_strategy data_parallel_sharding_strategy fsdp_sharding_strategy sharding", "strategy.shard=*", {
        **dict.fromkeys(("full_shard", "fully_shard", "optim_grads_params", "true", "full"), "strategy.shard=3"),
        **dict.fromkeys(("shard_grad_op", "optim_grads"), "strategy.shard=2"), "optim": "strategy.shard=1",
        **dict.fromkeys(("no_shard", "ddp", "false", "none"), "strategy.shard=0"),
        **dict.fromkeys(("hybrid_shard", "_hybrid_shard_zero2", "hsdp"), "strategy.shard=3 strategy.shard_group=N"),
    }),
    Meaning("hsdp hybrid_shard", "strategy.shard=3 strategy.shard_group=*",
            _switch("strategy.shard=3 strategy.shard_group=N", "strategy.shard=0")),
    Meaning("use_distributed_optimizer distributed_optimizer", "strategy.shard=1",
            _switch("strategy.shard=1", "strategy.shard=0")),
    Meaning("fsdp_reshard_after_forward", "software.rules.reshard_after_forward=*",
            dict.fromkeys(("always", "default"), "software.rules.reshard_after_forward=true")
            | {"never": "software.rules.reshard_after_forward=false"}),
    Meaning("zero_hpz_partition_size hpz_partition_size secondary_shard_size", "software.rules.reshard_group=*"),
    Meaning("forward_prefetch backward_prefetch", "software.rules.prefetch=1",
            _switch("software.rules.prefetch=1", "software.rules.prefetch=0")),
    Meaning("overlap_comm overlap_communication overlap_gradient_reduce", "software.rules.overlap_grad_reduce=*"),
    Meaning("bucket_cap_mb", "software.rules.bucket_size='*'",
            {"number": "software.rules.bucket_size='* MB'"}),
    Meaning("reduce_bucket_size ddp_bucket_size allgather_bucket_size",
            "software.rules.bucket_size='25 MB': bytes, where it counts elements"),
    Meaning("ddp distributed_data_parallel", "strategy.shard=0", _switch("strategy.shard=0", "strategy.shard=3")),
    # Memory
    Meaning("gradient_checkpointing activation_checkpointing activation_checkpoint checkpoint_activations"
            " fsdp_activation_checkpointing use_gradient_checkpointing remat gradient_checkpoint"
            " enable_gradient_checkpointing activation_checkpoint.mode ac_mode",
            _FULL, _switch(_FULL, _NONE) | {"selective": _SELECTIVE, "none": _NONE, "full": _FULL}),
    Meaning("recompute_granularity", "strategy.recompute=*"),
    Meaning("remat_policy remat_block", _SELECTIVE, {"full": _FULL, "none": _NONE, "minimal_offloaded":
            "strategy.offload_blocks=N"}),
    Meaning("recompute_activations", _SELECTIVE, _switch(_SELECTIVE, _NONE)),
    Meaning("recompute_num_layers recompute_layers", "strategy.recompute_blocks=*"),
    Meaning("cpu_offloading_num_layers", "strategy.offload_blocks=*"),
    Meaning("cpu_offload cpu_offloading activation_offload cpu_checkpointing", "strategy.offload_blocks=N, for"
            " activations of the first N blocks; optimizer state stays on the accelerator"),
    Meaning("offload_optimizer optimizer_cpu_offload offload_param offload_optimizer.device",
            "it is not modelled: optimizer state and weights stay on the accelerator (strategy.offload_blocks is for"
            " activations)"),
    # Numerics
    Meaning("dtype mixed_precision amp amp_dtype torch_dtype param_dtype mixed_precision_param weight_dtype"
            " compute_dtype params_dtype activation_dtype", "strategy.precision=*",
            _PRECISIONS | {"true": _PRECISIONS["bf16"], "false": _PRECISIONS["fp32"]}),
    Meaning("bf16 use_bf16 bf16.enabled bfloat16", _PRECISIONS["bf16"],
            _switch(_PRECISIONS["bf16"], _PRECISIONS["fp32"])),
    Meaning("fp16 use_fp16 fp16.enabled float16 half", _PRECISIONS["fp16"],
            _switch(_PRECISIONS["fp16"], _PRECISIONS["fp32"])),
    Meaning("fp8 use_fp8 enable_fp8 fp8_format float8 fp8_recipe recipe_name quantization fp8_hybrid",
            "strategy.precision=fp8_mixed", _RECIPES),
    Meaning("load_in_8bit load_in_4bit quantization_config int8 int4", "narrow products are of floating point alone:"
            " strategy.precision=fp8_mixed, mxfp8_mixed, nvfp4_mixed"),
    Meaning("nvfp4 fp4 fp4_format", "strategy.precision=nvfp4_mixed"),
    Meaning("mxfp8", "strategy.precision=mxfp8_mixed"),
    Meaning("fp32", "strategy.precision=fp32", _switch("strategy.precision=fp32", "strategy.precision=bf16_mixed")),
    Meaning("tf32 allow_tf32", "strategy.precision=tf32",
            _switch("strategy.precision=tf32", "strategy.precision=fp32")),
    Meaning("grad_reduce_in_bf16", "software.rules.gradient_precision=bf16",
            _switch("software.rules.gradient_precision=bf16", "software.rules.gradient_precision=fp32")),
    Meaning("accumulate_allreduce_grads_in_fp32 grad_reduce_in_fp32", "software.rules.gradient_precision=fp32",
            _switch("software.rules.gradient_precision=fp32", "software.rules.gradient_precision=auto")),
    Meaning("mixed_precision_reduce reduce_dtype communication_data_type grad_dtype main_grads_dtype",
            "software.rules.gradient_precision=*", {
                **dict.fromkeys(("float32", "fp32"), "software.rules.gradient_precision=fp32"),
                **dict.fromkeys(("bfloat16", "bf16"), "software.rules.gradient_precision=bf16"),
                **dict.fromkeys(("float16", "fp16"), "software.rules.gradient_precision=fp16")}),
    Meaning("optim optimizer_name optimizer.type optimizer.name opt opt_type optimizer_type", "strategy.optimizer=*",
            dict.fromkeys(("adamw", "adam", "adamw_torch", "adamw_torch_fused", "fusedadam", "adamw_hf"),
                          "strategy.optimizer=adam")),
    Meaning("clip_grad grad_clip max_grad_norm gradient_clipping gradient_clip_val max_norm"
            " gradient_clipping_threshold",
            "software.rules.clip_gradients=true", {**dict.fromkeys(("0", "0.0", "false", "none"),
                                                             "software.rules.clip_gradients=false")}),
    # Kernels and overlap
    Meaning("tp_comm_overlap async_tp enable_async_tensor_parallel async_tensor_parallel ub_tp_comm_overlap",
            "software.rules.tp_overlap=*"),
    Meaning("async_tensor_model_parallel_allreduce", "software.rules.asynchronous_tp=*"),
    Meaning("overlap_moe_expert_parallel_comm moe_overlap dualpipe", "software.rules.ep_overlap=*"),
    Meaning("gradient_accumulation_fusion", "software.rules.accumulation=fused",
            {"false": "software.rules.accumulation=separate"}),
    Meaning("compile torch_compile use_compile compile_model compile.enable",
            "software=pytorch software.compile=*"),
    Meaning("cuda_graph cuda_graphs enable_cuda_graph use_cuda_graphs cudagraphs external_cuda_graph",
            "software=megatron_core software.cuda_graphs=*"),
    Meaning("nccl_algo allreduce_algorithm all_reduce_algorithm collective_algorithm algorithm algo",
            "strategy.algorithms.all_reduce=*",
            {name: f"strategy.algorithms.all_reduce={name}" for name in ("ring", "tree", "nvls")}),
    # Models
    Meaning("seq_len seq_length sequence_length max_seq_len max_seq_length max_sequence_length block_size n_ctx ctx_len"
            " context_length context_len max_target_length max_position_embeddings n_positions encoder_seq_length"
            " model_max_length cutoff_len train_seq_len seqlen", "model.sequence_length=*"),
    Meaning("model_name model_type model_name_or_path model_size model_id flavor model_flavor arch architecture",
            "model=*"),
    Meaning("num_layers n_layer n_layers num_hidden_layers hidden_size n_embd d_model num_attention_heads n_head"
            " n_heads num_heads ffn_hidden_size intermediate_size vocab_size padded_vocab_size num_query_groups"
            " num_key_value_heads num_experts num_local_experts moe_router_topk head_dim", _SHAPE),
    Meaning("use_flash_attn use_flash_attention flash_attention attn_implementation attn_impl attention_backend"
            " attention", "it is the model's: most registered ones call fused attention, megatron_* write it out"),
    Meaning("capacity_factor moe_capacity_factor moe_expert_capacity_factor",
            "it is given where a model is traced: rostam.trace(..., capacity_factor=*) in Python"),
    Meaning("dropout attention_dropout hidden_dropout resid_pdrop", _SHAPE),
    # Machines
    Meaning("world_size num_gpus n_gpus n_gpu ngpus num_devices n_devices num_chips num_tpus chips tpus num_processes"
            " total_gpus num_accelerator", "num_accelerators=*"),
    Meaning("num_ranks nranks", "ranks=*"),
    Meaning("gpus devices cards num_cards npus num_npus num_ranks nranks", "num_accelerators=*"),
    Meaning("nodes nnodes num_nodes n_nodes num_servers num_machines num_hosts servers hosts dgx", _SERVERS),
    Meaning("gpus_per_node nproc_per_node devices_per_node ntasks_per_node local_world_size gpus_per_server"
            " num_gpus_per_node nproc", "fabric.server_size=*"),
    Meaning("gpu gpu_type gpu_name gpu_model device device_type device_name chip tpu tpu_type hardware accelerator_type"
            " accelerator_name gpu_arch", "accelerator=*", {"number": "num_accelerators=*"}),
    Meaning("topology network interconnect net topo network_topology cluster", "fabric=*", dict.fromkeys(
        ("nvlink", "nvswitch", "infiniband", "ib", "roce", "ethernet", "dgx", "hgx"), _MACHINE)),
    Meaning("nvlink infiniband", _MACHINE),
    Meaning("link_bandwidth", "fabric.link_bandwidth='*'", {"number": "fabric.link_bandwidth='* Gb/s'"}),
    Meaning("memory gpu_memory hbm memory_capacity memory_size memory_gb", "it is the data sheet's: accelerator=NAME"
            " (rostam list accelerators)"),
    Meaning("accelerators", "strategy.accelerators=*", {"number": "num_accelerators=*"}),
    Meaning("bandwidth accelerator_bandwidth network_bandwidth net_bandwidth bw interconnect_bandwidth link_bw"
            " network_bw",
            "fabric.accelerator_bandwidth='*'", {"number": "fabric.accelerator_bandwidth='* Gb/s'"}),
    Meaning("nvlink_bandwidth intra_node_bandwidth intranode_bandwidth scale_up_bandwidth nvlink_bw",
            "fabric.server_bandwidth='*'", {"number": "fabric.server_bandwidth='* GB/s'"}),
    Meaning("oversubscription oversubscription_ratio", "machine.taper=* with machine=NAME, or fabric.leaf_up"),
    Meaning("network_latency hop_latency latency link_latency", "fabric.link_latency='*'",
            {"number": "fabric.link_latency='* us'"}),
    Meaning("tdp power_limit gpu_power accelerator.watts gpu_watts", "machine.accelerator_watts=*"),
    Meaning("usd_per_hour price_per_hour cost_per_hour cost_per_gpu_hour price_per_gpu_hour gpu_price gpu_hour_price"
            " usd_per_gpu_hour hourly_cost", "accelerator_usd_per_hour=*"),
    Meaning("mtbf gpu_mtbf node_mtbf", "outages.mtbf_accelerators='*'",
            {"number": "outages.mtbf_accelerators='* h'"}),
    Meaning("save_interval save_steps checkpoint_interval checkpoint_every save_every ckpt_interval",
            "outages.checkpoint_iterations=*, for runs with failures; without them it has no effect on time"),
    # Engines
    Meaning("engine simulator network_backend", "fidelity=*"),
    Meaning("routing_algorithm routing_policy load_balancing", "routing=*",
            dict.fromkeys(("ecmp", "static"), "routing=hash") | {"packet_spray": "routing=spray"}),
    Meaning("ecmp", "routing=hash"),
    Meaning("adaptive_routing", "routing=adaptive"),
    Meaning("placement rank_mapping process_mapping task_mapping", "strategy.mapping=*"),
    Meaning("cost_model compute_model", "cost=*"),
    Meaning("random_seed", "seed=*"),
    # Targets
    Meaning("train_iters max_steps num_steps n_steps max_iters train_steps total_steps num_iterations iterations steps"
            " training_steps max_iterations total_train_steps", _STEPS),
    Meaning("epochs num_epochs num_train_epochs max_epochs", "target='* epochs of N samples'"),
    Meaning("train_samples num_samples num_train_samples", "target='* samples'"),
    Meaning("tokens train_tokens num_tokens total_tokens max_tokens training_tokens token_budget",
            "target='* tokens'"),
    # Output
    Meaning("output_dir output save_dir logdir log_dir out_dir dump_folder output_path", "out=*"),
    Meaning("profile trace enable_profiling profiler trace_file chrome_trace", "timeline=true"),
    Meaning("mfu hfu throughput tokens_per_second tokens_per_sec tflops step_time", "it is a result, no setting"),
    # No effect
    Meaning("lr learning_rate max_lr min_lr lr_warmup_iters warmup warmup_steps warmup_iters warmup_ratio lr_scheduler"
            " lr_scheduler_type lr_decay_style lr_decay_iters betas beta1 beta2 adam_beta1 adam_beta2 adam_eps"
            " adam_epsilon eps init_std initializer_range label_smoothing loss_scale initial_loss_scale scheduler"
            " data_path dataset dataset_path dataset_name data tokenizer tokenizer_type tokenizer_name log_interval"
            " logging_steps log_freq eval_interval eval_iters eval_steps num_workers dataloader_num_workers split"
            " verbose report_to z_loss aux_loss_coef moe_aux_loss_coeff", _NO_EFFECT),
    Meaning("wd decay weight_decay weight_decay_rate", "its value has no effect on time; software.rules.weight_decay"
            " says which weights' decay is a kernel of its own"),
    # nccl-tests, of rostam collective
    Meaning("minbytes min_bytes min_size message_size", "sizes.begin='*'", {"number": "sizes.begin='* B'"}),
    Meaning("maxbytes max_bytes max_size", "sizes.end='*'", {"number": "sizes.end='* B'"}),
    Meaning("stepfactor step_factor", "sizes.factor=*"),
    Meaning("datatype", "type=*"), Meaning("dtype", "type=*"), Meaning("op operation", "collective=*"),
    Meaning("algo", "algorithm=*", {name: f"algorithm={name}" for name in ("ring", "tree", "nvls")}),
    Meaning("proto", "protocol=*"),
)  # fmt: skip

# What stands for a value behind a key of ours: "bf16" where precision wants "bf16_mixed".
VALUES: dict[str, dict[str, str]] = {
    "precision": {
        value: text.partition("=")[2] for value, text in _PRECISIONS.items() if value != text.partition("=")[2]
    },
    "recompute": {"true": "full", "false": "none", "minimal": "selective"},
    "optimizer": {"adamw": "adam", "adamw_torch": "adam", "fusedadam": "adam"},
    "schedule": {value: text.partition("=")[2].partition(" ")[0] for value, text in _SCHEDULES.items()},
    "gradient_precision": {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"},
    "shard": {"full_shard": "3", "shard_grad_op": "2", "no_shard": "0", "true": "3", "false": "0"},
    "routing": {"ecmp": "hash", "packet_spray": "spray"},
}


def plain(word: str) -> str:
    """Return a word as the table has it."""
    return word.strip().lstrip("-+").lower().replace("-", "_")


@functools.cache
def _table() -> dict[str, list[Meaning]]:
    found: dict[str, list[Meaning]] = {}
    for one in MEANINGS:
        for word in one.words.split():
            found.setdefault(word, []).append(one)
    return found


def meanings_of(word: str) -> list[Meaning]:
    """Return what a word, or the last parts of a dotted one, may mean; nothing for one that is not in the table."""
    parts = plain(word).split(".")
    for name in (".".join(parts[-2:]), parts[-1]):
        if name in _table():
            return _table()[name]
    return []


def words_like(word: str) -> list[Meaning]:
    """Return what words that contain another may mean, each key once: of "checkpointing" what is activation_ and more.

    Nothing for words of fewer than six letters, which are a part of too many.
    """
    part = plain(word).replace(" ", "_")
    found = {one.text: one for one in MEANINGS if any(part in known for known in one.words.split())}
    return list(found.values()) if len(part) > 5 else []


def hint(word: str, value: str | None = None, has: Callable[[str], bool] = lambda key: True) -> str:
    """Return what a word means here: a question with the setting, or a remark; "" for a word that is not known.

    Args: value: given to the word, None for none. has: says whether a dotted key exists where the word was given.
    """
    for one in meanings_of(word):
        text = one.said(value)
        if not one.key:
            return text
        if text and has(one.key):
            return f"did you mean {text}?"
    return ""


def in_brackets(word: str, value: object = None, has: Callable[[str], bool] = lambda key: True) -> str:
    """Return a hint as it stands behind the word in an error, " (did you mean strategy.tp=8?)"; "" without one.

    Args: value: as Python or YAML reads it. word, has: as for ``hint``.
    """
    found = hint(word, None if value is None else written(value), has)
    return f" ({found})" if found else ""


def written(value: object) -> str:
    """Return a value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_hint(key: str, value: str) -> str:
    """Return the value that rostam has in place of one of another program's behind a key; "" for another.

    Args: key: dotted or not; its last part decides.
    """
    better = VALUES.get(key.rpartition(".")[2], {}).get(value.strip().lower(), "")
    return "" if better == value else better


def value_in_brackets(key: str, value: object) -> str:
    """Return ``value_hint`` as it stands behind the value in an error, " (did you mean 'bf16_mixed'?)"."""
    better = value_hint(key, written(value))
    return f" (did you mean {better!r}?)" if better else ""


def by_key(has: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield every setting or remark of the table, and the words for it; those of keys that exist alone."""
    found: dict[str, list[str]] = {}
    for one in MEANINGS:
        if not one.key or has(one.key):
            found.setdefault(one.said(None) if one.key else one.text, []).extend(one.words.split())
    yield from found.items()
