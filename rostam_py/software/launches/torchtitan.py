"""torchtitan: a registry's name with overrides, as releases since 0.3 have them, or the older TOML."""

import re
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import Document
from rostam_py.software.launches.layers import LAYERS, dealt_layers, named_layers, split_layers
from rostam_py.software.launches.ledger import Launch, Ledger, shown
from rostam_py.software.launches.reader import set_batches

# Its registry's name, or model and flavor -> ours.
_MODELS = {
    "llama3_8b": "titan_llama3_8b", "llama3_70b": "titan_llama3_70b", "llama3_405b": "titan_llama3_405b",
    "llama2_13b": "titan_llama2_13b", "llama2_70b": "titan_llama2_70b", "deepseek_v3_671b": "deepseek_v3",
    "qwen3_30b_a3b": "qwen3_30b_a3b", "qwen3_235b_a22b": "qwen3_235b_a22b",
    "gpt_oss_20b": "gpt_oss_20b", "gpt_oss_120b": "gpt_oss_120b",
}  # fmt: skip
# Blocks of each, where stages are cut by their numbers (torchtitan/models/*/__init__.py).
_NUM_LAYERS = {
    "titan_llama3_8b": 32, "titan_llama3_70b": 80, "titan_llama3_405b": 126, "titan_llama2_13b": 40,
    "titan_llama2_70b": 80, "deepseek_v3": 61, "qwen3_30b_a3b": 48, "qwen3_235b_a22b": 94, "gpt_oss_20b": 24,
    "gpt_oss_120b": 36,
}  # fmt: skip
_DEALT = ("layers_per_stage", "first_stage_less_layers", "last_stage_less_layers")
# The usual sequences of registered configurations, which name none.
_SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("1f1b", 2),
    "zbvzerobubble": ("zb_v", 2),
    "dualpipev": ("dual_pipe_v", 2),
}
_AXES = ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree")
_SECTIONS = ("training", "parallelism", "experimental")
_MARKS = ("training.seq_len", "training.local_batch_size", "training.batch_size", "activation_checkpoint.mode",
          "parallelism.tensor_parallel_degree", "parallelism.data_parallel_shard_degree", "model.flavor")  # fmt: skip


class TorchtitanReader:
    """Words of its sections: training.*, parallelism.*, activation_checkpoint.*."""

    WHAT = "torchtitan's TOML, or its registry's name with overrides"

    def recognises(self, document: Document) -> bool:
        """Say whether sections bear its names, or its own script or module is run."""
        is_run = document.program.startswith("torchtitan.") or document.program.endswith("run_train.sh")
        return is_run or any(word in document.words for word in _MARKS)

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys."""
        words = dict(document.words)
        for name in ("CONFIG", "MODULE", "NGPU", "CONFIG_FILE"):
            if name in document.variables and name.lower() not in words:
                words[name.lower()] = document.variables[name]
        return _Reading(Ledger("torchtitan", words), num_accelerators).launch()


class _Reading:
    def __init__(self, ledger: Ledger, num_accelerators: int | None) -> None:
        self._ledger, self._size = ledger, num_accelerators
        ledger.keys["software"] = ledger.software

    def launch(self) -> Launch:
        """Return the whole."""
        ledger = self._ledger
        self._model()
        inner = self._degrees()
        self._sharding(inner)
        self._batches(inner)
        self._recomputation()
        self._program()
        ledger.refuse_unless(
            "training.enable_cpu_offload optimizer.early_step_in_backward parallelism.enable_compiled_autograd"
            " experimental.enable_compiled_autograd parallelism.context_parallel_rotate_method"
            " parallelism.fsdp_reshard_after_forward parallelism.pipeline_parallel_schedule_csv"
            " activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
            ("false", "", "[]", "allgather", "default", "1"), "it has no switch of its own here",
        )  # fmt: skip
        return ledger.closed()

    def _word(self, name: str) -> str:
        """Return a word in the section where this release has it."""
        found = (f"{section}.{name}" for section in _SECTIONS)
        return next((word for word in found if self._ledger.has(word)), f"parallelism.{name}")

    def _model(self) -> None:
        ledger = self._ledger
        if ledger.has("config"):
            words, name = "config module", ledger.text("config")
        elif ledger.has("model.flavor"):
            words, name = (
                "model.name model.flavor",
                f"{ledger.text('model.name', 'llama3')}_{ledger.text('model.flavor')}",
            )
        elif ledger.has("config_file"):
            found = re.search(r"([\w-]+)\.toml$", ledger.text("config_file"))
            words, name = "config_file", found[1] if found else ledger.text("config_file")
        else:
            words, name = "job.config_file", re.sub(r".*/|\.toml$", "", ledger.text("job.config_file"))
        plain = name.lower().replace("-", "_").replace(".", "_")
        if plain in _MODELS:
            ledger.set(words, {"model": _MODELS[plain]})
        else:
            ledger.refuse(words, f"{name or 'a model'} is none that is registered here: give model=NAME")
        ledger.integer("training.seq_len", "model.sequence_length")

    def _degrees(self) -> int:
        """Set the degrees; return the accelerators of one replica."""
        ledger, inner = self._ledger, 1
        for name, key in zip(_AXES, ("tp", "pp", "cp"), strict=True):
            inner *= ledger.integer(self._word(name), f"strategy.{key}") or 1
        expert = self._word("expert_parallel_degree")
        if (ledger.number(expert, 1, least=1) or 1) > 1:
            ledger.integer(expert, "strategy.ep")
        else:
            ledger.leave(expert, "1 is the default")
        expert_tp = self._word("expert_tensor_parallel_degree")
        if ledger.number(expert_tp, 1) == 1 and ledger.keys.get("strategy.tp", 1) > 1 and ledger.has(expert):
            ledger.set(expert_tp, {"strategy.expert_tp": 1})
        else:
            ledger.leave(expert_tp, "as tensor_parallel_degree, or without experts")
        self._schedule()
        return inner

    def _schedule(self) -> None:
        ledger, word = self._ledger, self._word("pipeline_parallel_schedule")
        if ledger.keys.get("strategy.pp", 1) == 1:
            layers = (self._word(one) for one in ("module_fqns_per_model_part", "pipeline_parallel_split_points",
                                                  *(f"pipeline_parallel_{one}" for one in _DEALT)))  # fmt: skip
            ledger.leave(f"{word} {self._word('pipeline_parallel_microbatch_size')}"
                         f" {self._word('pipeline_parallel_degree')} {' '.join(layers)}",
                         "there is no pipeline")  # fmt: skip
            return
        found = _SCHEDULES.get(ledger.text(word, "1F1B").lower())
        if found is None:
            ledger.refuse(word, f"{ledger.text(word)} is not simulated: 1F1B stands for it")
            return
        ledger.set(word, {"strategy.schedule": found[0], "strategy.virtual_stages": found[1]})
        self._layers()

    def _layers(self) -> None:
        """Set the layers of stages where the file says them."""
        ledger, stages = self._ledger, self._ledger.keys["strategy.pp"]
        named, points = self._word("module_fqns_per_model_part"), self._word("pipeline_parallel_split_points")
        dealt = [self._word(f"pipeline_parallel_{one}") for one in _DEALT]
        num_layers = _NUM_LAYERS.get(ledger.keys.get("model", ""))
        if ledger.has(named) and ledger.words[named] not in ([], "[]"):
            named_layers(ledger, named, stages)
            ledger.leave(" ".join((points, *dealt)), f"{named} says the layers of stages")
        elif num_layers is None:
            ledger.refuse(" ".join((points, *dealt)), f"the model's number of layers is not known: give {LAYERS}")
        elif ledger.has(points) and ledger.words[points] not in ([], "[]"):
            split_layers(ledger, points, stages, num_layers)
            ledger.leave(" ".join(dealt), f"{points} says the layers of stages")
        elif any(ledger.has(one) for one in dealt):
            dealt_layers(ledger, dealt, stages, num_layers)
        ledger.leave(" ".join((named, points)), "the program cuts the layers")

    def _sharding(self, inner: int) -> None:
        ledger = self._ledger
        copies_word, shard_word = self._word("data_parallel_replicate_degree"), self._word("data_parallel_shard_degree")
        if not ledger.has(shard_word):  # as it was called before it could be divided
            shard_word = self._word("data_parallel_degree")
        copies = ledger.number(copies_word, 1, least=1) or 1
        text = ledger.text(shard_word, "-1")
        shard = -1 if text == "-1" else ledger.number(shard_word, least=1) or 1
        cp = ledger.keys.get("strategy.cp", 1)
        if shard != -1:
            self._size = copies * shard * inner
            ledger.set(f"{copies_word} {shard_word} ngpu", {"num_accelerators": self._size})
        elif ledger.has("ngpu"):
            self._size = ledger.integer("ngpu", "num_accelerators")
        if shard == 1 and cp == 1:
            ledger.set(f"{copies_word} {shard_word}", self._sized({"software.data_parallel_shard_degree": 1}))
        elif copies == 1:
            ledger.set(f"{copies_word} {shard_word}", self._sized({"software.data_parallel_shard_degree": -1}))
        elif self._size is None:
            raise ConfigError(f"{copies_word} is {copies}, which divides the accelerators, of which the file does not"
                              " say how many there are: add num_accelerators=N")  # fmt: skip
        elif self._size % (copies * inner):
            raise ConfigError(f"{self._size} accelerators are not a multiple of {copies} copies x {inner} of a replica")
        else:
            group = self._size // (copies * inner) * cp
            ledger.set(f"{copies_word} {shard_word}",
                       self._sized({"strategy.shard": 3, "strategy.shard_group": group}))  # fmt: skip

    def _sized(self, keys: dict[str, Any]) -> dict[str, Any]:
        size = self._ledger.keys.get("num_accelerators")
        return {**({} if size is None else {"num_accelerators": size}), **keys}

    def _batches(self, inner: int) -> None:
        ledger = self._ledger
        word = "training.local_batch_size" if ledger.has("training.local_batch_size") else "training.batch_size"
        local = ledger.number(word, 1, least=1) or 1
        whole = ledger.text("training.global_batch_size", "-1")
        total = None if whole == "-1" else ledger.number("training.global_batch_size", least=1)
        if ledger.keys.get("strategy.pp", 1) == 1:
            set_batches(ledger, (word, local), ("training.global_batch_size", total), (word, 1), self._size, inner)
            return
        own = self._word("pipeline_parallel_microbatch_size")
        micro = ledger.number(own, 1, least=1) or 1
        if local % micro:
            raise ConfigError(f"{word} is {local}; it must be a multiple of {micro} ({own})")
        set_batches(ledger, (own, micro), ("training.global_batch_size", total), (word, local // micro), self._size,
                    inner)  # fmt: skip

    def _recomputation(self) -> None:
        ledger, word = self._ledger, "activation_checkpoint.mode"
        option = "activation_checkpoint.selective_ac_option"
        mode, every = ledger.text(word, "selective"), ledger.text(option, "op")
        if mode not in ("none", "selective", "full", "memory_budget"):
            raise ledger.wrong(word, "none, selective or full")
        if mode == "memory_budget":
            ledger.refuse(word, "a budget of memory decides nothing here: strategy.recompute does")
        elif mode == "selective" and every == "op":
            keys = {"strategy.recompute": "selective", "strategy.recompute_modules": ["every_other_product"]}
            ledger.set(f"{word} {option}", keys)
        elif mode == "selective" and every != "1":
            ledger.keys["strategy.recompute"] = "none"
            ledger.refuse(f"{word} {option}", f"recomputation of one block in {every} is not supported")
        else:
            ledger.set(word, {"strategy.recompute": "full" if mode == "selective" else mode})
            ledger.leave(option, "recomputation is not selective")

    def _program(self) -> None:
        ledger = self._ledger
        word = "compile.enable" if ledger.has("compile.enable") else "training.compile"
        ledger.flag(word, "software.compile", default=False)
        ledger.leave("compile.components compile.backend", "what of a step is compiled is the release's")
        self._float8()
        implementation = ledger.text("optimizer.implementation", "fused")
        ledger.set("optimizer.implementation optimizer.fused", {"software.fused": implementation == "fused"})
        if ledger.text("optimizer.name", "AdamW").lower() not in ("adamw", "adam"):
            ledger.refuse("optimizer.name", f"{ledger.text('optimizer.name')} is taken to be AdamW")
        ledger.leave("optimizer.name", "AdamW, the default")
        clip = ledger.text("training.max_norm", "1.0")
        try:
            ledger.set("training.max_norm", {"software.clip_grad_norm": float(clip) > 0})
        except ValueError:
            raise ledger.wrong("training.max_norm", "a number") from None
        ledger.flag(self._word("disable_loss_parallel"), "software.loss_parallel", default=True, is_negated=True)
        is_async = ledger.is_on(self._word("enable_async_tensor_parallel"))
        ledger.set(self._word("enable_async_tensor_parallel"), {"software.async_tp": is_async})
        reduce = ledger.text("training.mixed_precision_reduce", "float32")
        if reduce not in ("float32", "bfloat16"):
            raise ledger.wrong("training.mixed_precision_reduce", "float32 or bfloat16")
        if reduce == "bfloat16":
            ledger.set("training.mixed_precision_reduce", {"software.rules.gradient_precision": "bf16"})
        ledger.leave("training.mixed_precision_reduce", "float32, the default")
        ledger.refuse_unless("training.mixed_precision_param", ("bfloat16",), "weights are gathered in bf16")
        ledger.refuse_unless("training.dtype", ("float32",), "weights and Adam's state are kept in fp32")

    def _float8(self) -> None:
        ledger = self._ledger
        sections = ("float8", "quantize.linear.float8", "quantize.dense.float8")
        section = next((one for one in sections if any(word.startswith(f"{one}.") for word in ledger.words)), "float8")
        converters = shown(ledger.words.get("model.converters", ""))
        word = next((one for one in ("float8.enable_float8_linear", "model.converters") if ledger.has(one)), "")
        if "float8" not in converters and not ledger.is_on("float8.enable_float8_linear"):
            ledger.leave(" ".join(one for one in ledger.words if one.startswith(f"{section}.")), "products are in bf16")
            if converters not in ("", "[]"):
                ledger.refuse("model.converters", f"{converters} is not modelled")
            ledger.leave("model.converters", "there is none")
            return
        recipe = "rowwise" if ledger.text(f"{section}.recipe_name").startswith("rowwise") else "tensorwise"
        ledger.set(f"{word} {section}.recipe_name float8.enable_float8_linear", {"software.float8": recipe})
        if recipe == "tensorwise":
            own = f"{section}.enable_fsdp_float8_all_gather"
            ledger.flag(own, "software.enable_fsdp_float8_all_gather", default=False)
        ledger.leave(f"{section}.precompute_float8_dynamic_scale_for_fsdp {section}.force_recompute_fp8_weight_in_bwd"
                     f" {section}.filter_fqns {section}.enable_fsdp_float8_all_gather {section}.emulate",
                     "it has no kernel of its own here")  # fmt: skip
