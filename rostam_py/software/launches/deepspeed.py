"""DeepSpeed's JSON, and Hugging Face's TrainingArguments with it: a script, JSON or YAML that names it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import Document, flattened, read_document
from rostam_py.software.launches.ledger import Launch, Ledger
from rostam_py.software.launches.reader import set_batches, set_size

_LENGTHS = (
    "model_max_length",
    "max_seq_length",
    "max_seq_len",
    "max_length",
    "cutoff_len",
    "block_size",
    "sequence_len",
)
_NAMES = ("model_name_or_path", "model_name", "base_model", "pretrained_model_name_or_path", "tokenizer_name_or_path")
_MARKS = (
    "zero_optimization.stage", "train_micro_batch_size_per_gpu", "train_batch_size", "per_device_train_batch_size",
    "deepspeed", "zero_optimization",
)  # fmt: skip
_SWITCHES = ("", "true", "false", "null", "none")
OURS = "ds:"  # before a word of a configuration that another file names


class DeepSpeedReader:
    """DeepSpeed's JSON by itself, or what a Trainer's arguments and it come to."""

    WHAT = "DeepSpeed's JSON and Hugging Face's TrainingArguments"

    def recognises(self, document: Document) -> bool:
        """Say whether ZeRO's or a Trainer's words are there, without the sizes of a model that is Megatron's."""
        if document.has("num_layers", "hidden_size"):
            return False
        return any(word in document.words for word in _MARKS) or document.below("zero_optimization")

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys."""
        words = {**document.words, **named_config(document)}
        return Reading(words, num_accelerators).launch()


def named_config(document: Document) -> dict[str, Any]:
    """Return the words of the configuration that a Trainer's arguments name, by their names with OURS before them."""
    given = [document.words.get(one) for one in ("deepspeed_config", "deepspeed")]
    names = [one for one in given if isinstance(one, str) and one.lower() not in _SWITCHES]
    if not names:
        return {}
    named = names[0]
    text = document.files.get(named, named if named.lstrip().startswith("{") else None)
    if text is not None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"deepspeed is {named[:60]!r}, which is no JSON: {error}") from error
        return {f"{OURS}{word}": one for word, one in flattened(value).items()} if isinstance(value, Mapping) else {}
    path = next((one for one in (document.path.parent / named, Path(named)) if one.is_file()), None)
    if path is None or path.suffix != ".json":
        raise ConfigError(f"deepspeed names {named[:200]!r}, which is no JSON file here")
    return {f"{OURS}{word}": value for word, value in read_document(path, document.variables).words.items()}


class Reading:
    """Words of DeepSpeed and of a program around it that become keys."""

    def __init__(self, words: Mapping[str, Any], num_accelerators: int | None) -> None:
        is_used = "deepspeed" in words or any(one.startswith((OURS, "zero_optimization", "train_")) for one in words)
        self.ledger = Ledger("deepspeed" if is_used else "pytorch", words)
        self.is_deepspeed, self.size = is_used, num_accelerators
        self.ledger.keys["software"] = self.ledger.software

    def launch(self) -> Launch:
        """Return the whole."""
        ledger = self.ledger
        self.size = set_size(ledger, "world_size num_processes", "num_nodes nnodes num_machines", "num_gpus nproc_per_"
                              "node gpus_per_node", self.size)  # fmt: skip
        self.model()
        self._zero()
        self._precision()
        self.batches()
        self.recomputation()
        self._others()
        return ledger.closed()

    def word(self, name: str) -> str:
        """Return DeepSpeed's word where it stands: in a configuration of its own, or here."""
        places = (f"{OURS}{name}", f"deepspeed.{name}")
        return next((one for one in places if one in self.ledger.words), name)

    def _text(self, name: str) -> str:
        """Return a value of DeepSpeed's; "" for "auto", which a Trainer's arguments decide."""
        text = self.ledger.text(self.word(name))
        return "" if text == "auto" else text

    def _auto(self, name: str, why: str = "auto: the Trainer's arguments say it") -> None:
        if self.ledger.text(self.word(name)) == "auto":
            self.ledger.leave(self.word(name), why)

    def model(self) -> None:
        ledger = self.ledger
        name = next((one for one in _NAMES if ledger.has(one)), "")
        if name:
            text = ledger.text(name)
            is_path = Path(text).is_dir() or text.startswith((".", "/", "$"))
            ledger.set(name, {"model": text if is_path else f"hf:{text}"})
            ledger.leave(" ".join(_NAMES), "the model is named already")
        length = next((one for one in _LENGTHS if ledger.has(one)), "")
        if length and name:
            ledger.integer(length, "model.sequence_length")
        tuned = ledger.text("finetuning_type", "full")
        if tuned not in ("full",) or ledger.is_on("use_lora") or ledger.is_on("use_peft"):
            ledger.refuse("finetuning_type use_lora use_peft lora_r lora_rank lora_alpha lora_dropout lora_target"
                          " lora_target_modules", "adapters are not made: all weights are trained")  # fmt: skip
        ledger.leave("finetuning_type use_lora use_peft", "all weights are trained")

    def _zero(self) -> None:
        ledger, word = self.ledger, self.word("zero_optimization.stage")
        if not self.is_deepspeed:
            return
        stage = ledger.number(word, ledger.keys.get("software.stage", 0))
        if stage not in (0, 1, 2, 3):
            raise ledger.wrong(word, "0, 1, 2 or 3")
        ledger.set(word, {"software.stage": stage})
        overlap = self.word("zero_optimization.overlap_comm")
        if ledger.has(overlap) and ledger.text(overlap) != "auto":
            ledger.set(overlap, {"software.overlap_comm": ledger.is_on(overlap)})
        bucket = self.word("zero_optimization.reduce_bucket_size")
        if ledger.has(bucket) and ledger.text(bucket) != "auto":
            ledger.integer(bucket, "software.reduce_bucket_size")
        for name in ("overlap_comm", "reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_"
                     "threshold", "allgather_bucket_size"):  # fmt: skip
            self._auto(f"zero_optimization.{name}", "auto: the default here")
        for name in ("offload_optimizer", "offload_param"):
            inner = [one for one in ledger.words if f"zero_optimization.{name}" in one]
            device = ledger.text(self.word(f"zero_optimization.{name}.device"), "none" if not inner else "cpu")
            if device != "none":
                ledger.refuse(" ".join(inner), f"nothing is offloaded: {name} stays on the accelerator")
            ledger.leave(" ".join(inner), "nothing is offloaded")
        hpz = self.word("zero_optimization.zero_hpz_partition_size")
        if stage == 3 and (ledger.number(hpz, 1, least=1) or 1) > 1:
            ledger.integer(hpz, "software.rules.reshard_group")
        for one in ledger.words:
            self._zero_other(one)

    def _zero_other(self, word: str) -> None:
        name = word.rpartition("zero_optimization.")[2]
        if name == word or word in self.ledger.rows:
            return
        usual = {
            "contiguous_gradients", "allgather_partitions", "allgather_bucket_size", "reduce_scatter", "sub_group_size",
            "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_prefetch_bucket_size",
            "stage3_param_persistence_threshold", "round_robin_gradients", "ignore_unused_parameters",
            "elastic_checkpoint", "memory_efficient_linear", "cpu_offload",
        }  # fmt: skip
        if name in usual and not (name == "cpu_offload" and self.ledger.is_on(word)):
            self.ledger.leave(word, "buffers and prefetching are as here")
        elif not name.endswith(("gather_16bit_weights_on_model_save", "gather_fp16_weights_on_model_save")):
            is_off = self.ledger.text(word).lower() in ("false", "1", "none", "")
            self.ledger.leave(word, "as is usual") if is_off else self.ledger.refuse(word, "it is not modelled")
        else:
            self.ledger.leave(word, "checkpoints are not part of a step")

    def _precision(self) -> None:
        ledger = self.ledger
        found = "fp32"
        for kind in ("bf16", "fp16"):
            for word in (kind, self.word(f"{kind}.enabled")):
                is_on = ledger.has(word) and ledger.text(word) != "auto" and ledger.is_on(word)
                if is_on:
                    found = f"{kind}_mixed"
                    ledger.set(word, {"strategy.precision": found})
                else:
                    ledger.leave(word, "off, or said by the Trainer's arguments")
        mixed = ledger.text("mixed_precision", "no")
        if mixed in ("bf16", "fp16"):
            found = f"{mixed}_mixed"
        ledger.set("mixed_precision", {"strategy.precision": found})
        ledger.keys["strategy.precision"] = found
        ledger.leave("tf32 pure_bf16 torch_dtype", "matrix products are as strategy.precision says")

    def batches(self) -> None:
        ledger = self.ledger
        words = {
            "micro": ("per_device_train_batch_size", self.word("train_micro_batch_size_per_gpu"), "micro_batch_size",
                      "train_micro_batch_size_per_gpu"),
            "steps": ("gradient_accumulation_steps", self.word("gradient_accumulation_steps")),
            "whole": (self.word("train_batch_size"), "train_batch_size"),
        }  # fmt: skip
        found: dict[str, tuple[str, int | None]] = {}
        for key, names in words.items():
            given = [one for one in names if ledger.has(one) and ledger.text(one) != "auto"]
            found[key] = (given[0], ledger.number(given[0], least=1)) if given else ("", None)
            for one in names:
                if ledger.text(one) == "auto":
                    ledger.leave(one, "auto: the Trainer's arguments say it")
                elif one in given[1:]:
                    ledger.leave(one, f"as {given[0]}")
        (micro_word, micro), (step_word, steps), whole = found["micro"], found["steps"], found["whole"]
        if micro is None and not self.is_deepspeed:
            micro = 8  # TrainingArguments'
        ledger.leave(step_word, "the global batch says it")
        set_batches(ledger, (micro_word, micro), whole, (step_word, steps or 1), self.size, 1)

    def recomputation(self) -> None:
        ledger = self.ledger
        is_on = ledger.is_on("gradient_checkpointing")
        ledger.set("gradient_checkpointing", {"strategy.recompute": "full" if is_on else "none"})
        ledger.leave(
            "gradient_checkpointing_kwargs gradient_checkpointing_kwargs.use_reentrant", "both recompute alike"
        )
        self.activation_checkpointing()

    def activation_checkpointing(self) -> None:
        """Judge DeepSpeed's own words for what is kept of a recomputed layer."""
        ledger = self.ledger
        for word in ledger.words:
            name = word.rpartition("activation_checkpointing.")[2]
            if name == word:
                continue
            if name in ("cpu_checkpointing", "partition_activations") and ledger.is_on(word):
                ledger.refuse(word, "kept activations stay whole on the accelerator")
            else:
                ledger.leave(word, "checkpointing is switched by the model, gradient_checkpointing")

    def _others(self) -> None:
        ledger = self.ledger
        clip = "max_grad_norm" if ledger.has("max_grad_norm") else self.word("gradient_clipping")
        if ledger.text(clip) not in ("", "auto"):
            try:
                is_on = float(ledger.text(clip)) > 0
            except ValueError:
                raise ledger.wrong(clip, "a number") from None
            key = "gradient_clipping" if self.is_deepspeed else "clip_grad_norm"
            ledger.set(clip, {f"software.{key}": is_on})
        ledger.leave(self.word("gradient_clipping"), "the Trainer's arguments say it")
        kinds = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "bfp16": "bf16"}
        grad = self.word("data_types.grad_accum_dtype")
        if self._text("data_types.grad_accum_dtype") in kinds:
            ledger.set(grad, {"software.grad_accum_dtype": kinds[ledger.text(grad)]})
        ledger.refuse_unless(self.word("communication_data_type"), ("auto",), "gradients travel as they are summed")
        kind = self._text("optimizer.type") or ledger.text("optim", "adamw")
        if "adam" in kind.lower() and not any(one in kind.lower() for one in ("8bit", "onebit", "zeroone", "paged")):
            ledger.set(f"{self.word('optimizer.type')} optim", {"strategy.optimizer": "adam"})
        else:
            ledger.keys["strategy.optimizer"] = "adam"
            ledger.refuse(f"{self.word('optimizer.type')} optim", f"{kind} is taken to be Adam")
        self._auto("optimizer.type")
        for word in ledger.words:
            inner = word.removeprefix(OURS).removeprefix("deepspeed.")
            if inner == "pipeline.partition" and ledger.text(word) == "uniform":
                ledger.set(word, {"software.rules.stage_blocks": "even"})
            elif inner.startswith("pipeline."):
                ledger.leave(word, "the stages of a pipeline are the program's own, as strategy.pp says")
            if inner.startswith(("scheduler.", "optimizer.params.", "fp16.", "bf16.", "amp.", "flops_profiler.",
                                 "wandb.", "tensorboard.", "csv_monitor.", "comms_logger.", "aio.", "checkpoint.",
                                 "zero_allow", "steps_per_print", "wall_clock", "dump_state", "prescale_gradients",
                                 "gradient_predivide")) and word not in ledger.rows:  # fmt: skip
                ledger.leave(word, "no kernel depends on it")
        ledger.refuse_unless(
            "torch_compile fsdp neftune_noise_alpha use_liger_kernel enable_liger_kernel sequence_parallel_size"
            " ulysses_degree", ("false", "none", "1", ""), "it has no switch here",
        )  # fmt: skip
        ledger.leave(
            "flash_attn attn_implementation use_flash_attention_2 low_cpu_mem_usage stage use_cache bf16_full"
            "_eval model_revision ignore_pad_token_for_loss max_source_length fp16_opt_level",
            "it is as here",
        )
