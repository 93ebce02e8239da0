"""Ledger: what each word of a launch configuration became; none is dropped.

Example:
    ledger = Ledger("megatron_core", {"tensor-model-parallel-size": "2", "lr": "1e-4"})
    ledger.integer("tensor-model-parallel-size", "strategy.tp")
    launch = ledger.closed()        # the rest is left out for a reason, or not supported
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError

SET, LEFT, UNSUPPORTED = "set", "left out", "not supported"
UNKNOWN = "its effect is not known here"


@dataclass(frozen=True, slots=True)
class Row:
    """A word and its value as written; verdict: SET, LEFT or UNSUPPORTED; what: the keys that it set, or why not."""

    word: str
    value: str
    verdict: str
    what: str


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch configuration as keys. keys: dotted, with their values; software: the stack that runs it."""

    software: str
    keys: Mapping[str, Any]
    rows: tuple[Row, ...]

    def of(self, verdict: str) -> list[Row]:
        """Return the rows of a verdict."""
        return [row for row in self.rows if row.verdict == verdict]


# Words of all programs that change neither the time of a step nor memory: pattern of the whole word -> why.
_LEFT: tuple[tuple[str, str], ...] = (
    (r"(.*_)?(lr|learning_rate|warmup|warmup_\w+|lr_\w+|min_lr|max_lr|decay_\w+|\w*decay|betas?|adam_\w+|adam_beta\d"
     r"|beta\d|eps|epsilon|adam_epsilon|momentum|t_warmup|alpha_f|schedule_type|cosine\w*|z_loss\w*|\w*_coeff?"
     r"|\w*_coefficient|label_smoothing\w*|start_weight_decay|end_weight_decay|weight_decay_incr_style|wsd_\w+)",
     "a number of the optimizer, its schedule or the loss, on which no kernel depends"),
    (r"(.*\.)?(scheduler|lr_scheduler|schedulers)(\..*)?|lr_scheduler\w*", "the schedule of learning rates"),
    (r"(optimizer|optimizer\.params|adam)\.(lr|betas|eps|weight_decay|beta1|beta2|torch_adam|adam_w_mode)",
     "a number of the optimizer, on which no kernel depends"),
    (r"init_method(_\w+)?|init_std|\w*init_device\w*|initializer_range|perform_initialization|init_\w+_std",
     "how weights begin"),
    (r"(.*[._])?(seed|data_seed|global_seed|random_seed|shuffle_seed)",
     "random numbers change no time"),
    (r"(vocab|merge)_file|ENV_VARS\..*|(.*\.)?(data|dataset|datasets|tokenizer|train_loader|eval_loader|dataloader|icl_tasks\w*|eval_loaders"
     r"|eval_gauntlet|task)\..*|(data|dataset|tokenizer|vocab_file|merge_file|train_file|validation_file|valid|test"
     r"|train)(_\w+)?_?(path|file|dir|name|type|impl|prefix|cache\w*|model)s?|hf_(path|data\w*|train_files|eval_files"
     r"|access_token)|split|mock_data|data_\w+|dataset_\w+|\w*dataset\w*|tokenizer_\w+|\w*num_workers|num_dataset\w*"
     r"|dataloader_\w+|reset_position_ids|reset_attention_mask|eod_mask_loss|no_create_attention_mask\w*|create_attention"
     r"_mask\w*|no_mmap_bin_files|tiktoken_\w+|preprocessing_num_workers|overwrite_cache|template|cutoff_side|packing"
     r"|group_by_length|remove_unused_columns|vocab_extra_ids|grain_\w+|enable_data_shuffling|add_bos|add_eos"
     r"|max_samples|streaming|num_epoch|shuffle\w*|drop_last|merges_file",
     "where data comes from: reading it is not simulated"),
    (r"(.*[._])?(log|logs|logging|logger|loggers|metrics|tensorboard|wandb|comm|profile|profiler|profiling|timing|report"
     r"|callbacks|monitor\w*|console|mlflow|comet\w*|experiment\w*|progress_bar|run)([._].*)?|log_\w+|logging_\w+|report_to"
     r"|run_name|tensorboard\w*|wandb_\w+|timers?_\w+|\w*log_interval|steps_per_print|wall_clock_breakdown|one_logger\w*"
     r"|enable_one_logger|no_one_logger|dump_state|disable_tqdm|description|print_config\w*|verbose|console_log_interval"
     r"|python_logging_level|autoresume|metadata|flops_profiler\..*|enable_profiler|profile_\w+|use_pytorch_profiler"
     r"|skip_first_n_steps_for_profiler|profiler_steps|reuse_example_batch|gcs_metrics|metrics_file|straggler\w*|mup\w*"
     r"|check_weight_hash\w*|record_memory_history|memory_snapshot\w*|plot_loss|upload_all_profiler_results|hardware",
     "what is printed and kept of a run"),
    (r"(.*\.)?(checkpoint|checkpoints|ckpt|checkpointing)\.(?!mode|selective).*|save(_\w+)?|load(_\w+)?|\w*ckpt\w*|no_(load"
     r"|save)_\w+|save_\w+|load_\w+|finetune|checkpoint(_path|_dir|_interval|_period)?|output_dir|resume\w*"
     r"|overwrite_output_dir|enable_checkpointing|async_checkpointing|async_save|use_checkpoint_args|exit_on_missing\w*"
     r"|use_dist_ckpt|dist_ckpt\w*|auto_detect_ckpt\w*|base_output_directory|dump_folder|push_to_hub\w*|hub_\w+"
     r"|hf_assets_path|pretrained_checkpoint|stage3_gather_16bit\w*|.*gather_16bit_weights_on_model_save|.*use_universal\w*"
     r"|retro\w*|convert_checkpoint\w*|weights_path|load_parameters_path|out_dir",
     "checkpoints are not part of a step: outages.checkpoint_iterations plays them"),
    (r"(.*[._])?(eval|evaluation|eval_\w+|validation|test)([._]\w+)*|\w*eval_(iters|interval|steps|batch_size|strategy"
     r"|first|subset\w*)|per_device_eval_batch_size|do_(train|eval|predict)|bf16_full_eval|predict_with\w*|test_mode",
     "evaluation is not part of a training step"),
    (r"(.*\.)?(train_iters|train_samples|steps|max_steps|num_train_epochs|num_epochs|epochs|max_duration|exit_\w+"
     r"|iterations|training_steps|duration|stop_\w+|lr_decay_samples|max_train_steps)|exit_duration_in_mins",
     "how long training lasts: target='1 T tokens' adds its time"),
    (r"master_(addr|port)|node_rank|rdzv_\w+|rank|local_rank|distributed_(backend|timeout_\w+)|ddp_timeout|hostfile"
     r"|include|exclude|dist_\w+|nccl_\w+|log_dir|redirects|tee|local_addr|role|max_restarts|monitor_interval|standalone"
     r"|start_method|ddp_backend|lazy_mpu_init|(.*\.)?init_timeout_seconds|(.*\.)?train_timeout_seconds|comm\..*"
     r"|high_priority_stream_groups|use_gloo_process_groups|disable_gloo_process_groups|enable_gloo\w*|no_python|module"
     r"|use_ring_exchange_p2p|nsys\w*|force|save_on_each_node|distributed_executor\w*|launcher\w*|fsdp_timeout"
     r"|jax_\w+|compile_topology\w*|dist_timeout",
     "how processes find each other"),
    (r"[a-mo-zA-MO-Z]", "how the shell or Python starts the program"),
    (r"use_mcore_models|use_legacy_models|no_async_tensor_model_parallel_allreduce|manual_gc\w*"
     r"|empty_unused_memory_level|(.*\.)?gc_freq|(.*\.)?gc_debug|ddp_bucket_size|adlr_autoresume\w*|deepspeed|"
     r"zero_allow_untested_optimizer|(.*\.)?zero_force_ds_cpu_optimizer|attention_softmax_in_fp32"
     r"|apply_layernorm_1p|apply_query_key_layer_scaling|norm_epsilon|layernorm_epsilon|rms_norm_eps"
     r"|loss_scale\w*|initial_loss_scale|min_loss_scale|hysteresis|(fp16|ds:fp16|bf16)"
     r"\.(loss_scale|initial_scale_power|loss_scale_window|hysteresis|min_loss_scale|auto_cast)|moe_\w*loss\w*"
     r"|moe_router_(load_balancing_type|dtype|bias_update_rate|enable_expert_bias|pre_softmax|fusion"
     r"|force_load_balancing|score_fn)|fp8_amax_\w+|fp8_margin|fp8_interval|calculate_per_token_loss|rotary_base"
     r"|rotary_seq_len_interpolation_factor|rotary_scaling_factor|mscale\w*|use_rope_scaling|rope_scaling_factor"
     r"|max_position_embeddings|decoupled_\w+|openai_gelu|swiglu_bias|spec|export_\w+|legacy_tokenizer"
     r"|trust_remote_code|use_fast_tokenizer|padding_side|hf_token|"
     r"token|do_sample|deepspeed_\w*port|(.*\.)?debug\w*|enable_experimental|no_weight_decay_cond\w*|"
     r"tp_comm_bootstrap_backend|moe_per_layer_logging|remote|local|variables\..*|accelerator",
     "no time or memory of a step depends on it here"),
)  # fmt: skip
# Words that make a step slower or larger than it is here unless they have one of these values.
_OFF = ("false", "none", "0")
_NOT_MODELLED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (r"deterministic\w*|use_deterministic\w*", _OFF, "deterministic kernels, which are slower, are not modelled"),
    (r"no_\w*softmax_fusion|no_bias_\w+_fusion|no_rope_fusion|no_persist_layer_norm", _OFF,
     "these kernels are fused here; by themselves they take longer"),
    (r"bias_dropout_fusion|bias_\w*fusion|masked_softmax_fusion|apply_rope_fusion|persist_layer_norm|use_flash_attn\w*",
     ("true", "1", "2", "3"), "these kernels are fused here; by themselves they take longer"),
    (r"(.*[._])?attention_backend",
     ("auto", "flash", "fused", "attnbackend.auto", "attnbackend.flash", "attnbackend.fused"),
     "attention is one fused kernel here"),
    (r"transformer_impl", ("transformer_engine", "inference_optimized"), "kernels are those of Transformer Engine"),
    (r"moe_router_padding\w*", _OFF, "rows that pad experts are not modelled"),
)  # fmt: skip
_OWN_MEANING = ("fsdp_config.", "zero_optimization.", "ds:zero_optimization.", "parallelism.", "activation_")
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), why) for pattern, why in _LEFT)
_COSTLY = tuple((re.compile(pattern, re.IGNORECASE), usual, why) for pattern, usual, why in _NOT_MODELLED)


def _without_effect(word: str) -> str:
    """Return why a word, or the last part of one in a section, has no effect; "" if it may have one."""
    own = word.rpartition(".")[2]
    names = (word,) if word.startswith(_OWN_MEANING) else (word, own)
    return next((why for pattern, why in _PATTERNS for name in names if pattern.fullmatch(name)), "")


def plain(word: str) -> str:
    """Return a word as tables have it."""
    return word.strip().lstrip("-").replace("-", "_")


@dataclass
class Ledger:
    """Words that are still to be judged, and the rows of those that are.

    Args: words: as ``plain``, with their values as text, a flag's being "true".
    """

    software: str
    words: Mapping[str, Any]
    keys: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    def has(self, word: str) -> bool:
        """Say whether a word is given, and not null."""
        return self.words.get(word) not in (None, "", "null", "None")

    def text(self, word: str, default: str = "") -> str:
        """Return a word's value without judging it."""
        return shown(self.words[word]) if self.has(word) else default

    def is_on(self, word: str, default: bool = False) -> bool:
        """Return a flag's value. Raises: ConfigError for what is none."""
        if not self.has(word):
            return default
        value = self.text(word).lower()
        if value in ("true", "1", "yes", "on", "auto"):
            return True
        if value in ("false", "0", "no", "off", "none"):
            return False
        raise self.wrong(word, "true or false")

    def number(self, word: str, default: int | None = None, least: int = 0) -> int | None:
        """Return an integer. Raises: ConfigError for what is none."""
        if not self.has(word):
            return default
        text = self.text(word).replace("_", "").replace(",", "")
        try:
            value = float(text)
            found = int(value)
        except (ValueError, OverflowError):
            raise self.wrong(word, f"an integer >= {least}") from None
        if found != value or found < least or found > 2**53:
            raise self.wrong(word, f"an integer >= {least}")
        return found

    def wrong(self, word: str, wanted: str) -> ConfigError:
        """Return the error of a value that is not what a word takes."""
        value = self.text(word)
        unset = re.search(r"\$\{?(\w+)", value)
        hint = f"; the file does not set {unset[1]}: give from.{unset[1]}=VALUE" if unset else ""
        return ConfigError(f"{word} is {value[:60]!r}; it must be {wanted}{hint}")

    def set(self, word: str, keys: Mapping[str, Any]) -> None:
        """Say what a word became; the words "a b" are one row each, and none that are not given."""
        self.keys.update(keys)
        said = " ".join(f"{key}={shown(value)}" for key, value in keys.items())
        self._rows(word, SET, said or "the default here")

    def integer(self, word: str, key: str, least: int = 1) -> int | None:
        """Set a key to a word's integer, if it is given; return it."""
        value = self.number(word, least=least)
        if value is not None:
            self.set(word, {key: value})
        return value

    def flag(self, word: str, key: str, *, default: bool, is_negated: bool = False) -> bool:
        """Set a flag of the program by a word whether it is given or not, for programs differ in what is usual."""
        value = self.is_on(word, default) != is_negated if self.has(word) else default
        self.keys[key] = value
        self._rows(word, SET, f"{key}={shown(value)}")
        return value

    def leave(self, words: str, why: str) -> None:
        """Say why words that are given, and judged nowhere yet, set nothing."""
        self._rows(" ".join(one for one in words.split() if one not in self.rows), LEFT, why)

    def refuse(self, words: str, why: str) -> None:
        """Say that what words ask for is not supported."""
        self._rows(words, UNSUPPORTED, why)

    def refuse_unless(self, words: str, usual: Iterable[str], why: str) -> None:
        """Refuse words whose value is none of the usual ones, which change nothing."""
        for word in words.split():
            if self.has(word):
                is_usual = self.text(word).lower() in usual
                self._rows(word, LEFT if is_usual else UNSUPPORTED, "as is usual" if is_usual else why)

    def closed(self) -> Launch:
        """Return the whole, the words that nobody judged by the tables of words without effect."""
        for word in self.words:
            for pattern, usual, why in _COSTLY:
                if word not in self.rows and pattern.fullmatch(word.rpartition(".")[2]):
                    self.refuse_unless(word, usual, why)
            if word not in self.rows:
                why = "" if self.has(word) else "it has no value"
                why = why or _without_effect(word)
                self._row(word, LEFT if why else UNSUPPORTED, why or UNKNOWN)
        return Launch(self.software, self.keys, tuple(self.rows[word] for word in self.words))

    def _rows(self, words: str, verdict: str, what: str) -> None:
        for word in words.split():
            if word in self.words:
                self._row(word, verdict, what)

    def _row(self, word: str, verdict: str, what: str) -> None:
        self.rows[word] = Row(word, shown(self.words[word]), verdict, what)


def shown(value: Any) -> str:
    """Return a value as a key's text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(shown, value)) + "]"
    return "null" if value is None else str(value)
