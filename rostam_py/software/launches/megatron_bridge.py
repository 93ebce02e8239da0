"""Megatron-Bridge's configuration: YAML of its ConfigContainer, or overrides on the command line of a recipe."""

from typing import Any

from rostam_py.software.launches.document import Document
from rostam_py.software.launches.ledger import Launch, Ledger, Row, shown
from rostam_py.software.launches.megatron import read_megatron

_SECTIONS = ("model", "train", "ddp", "optimizer", "dataset", "mixed_precision", "comm_overlap", "tokenizer",
             "dist")  # fmt: skip
# Megatron-Bridge's name -> Megatron-LM's, where they differ.
_NAMES = {
    "seq_length": "seq_length", "sequence_length": "seq_length", "num_moe_experts": "num_experts",
    "gated_linear_unit": "swiglu", "position_embedding": "position_embedding_type",
    "average_in_collective": "ddp_average_in_collective", "fp8": "fp8_format", "recompute_num_layers":
    "recompute_num_layers", "data_parallel_sharding_strategy": "data_parallel_sharding_strategy",
    "gradient_accumulation_fusion": "gradient_accumulation_fusion", "enable_cuda_graph": "enable_cuda_graph",
}  # fmt: skip
# The switches that Megatron-LM has as their opposite.
_OPPOSITES = {
    "gradient_accumulation_fusion": "no_gradient_accumulation_fusion",
    "grad_reduce_in_fp32": "grad_reduce_in_bf16", "check_for_nan_in_grad": "no_check_for_nan_in_loss_and_grad",
    "overlap_p2p_comm": "no_overlap_p2p_communication",
}  # fmt: skip
# What its recipes set, where a configuration does not: docs of the stack in software/stacks/megatron_bridge.py.
_USUAL = {
    "use_distributed_optimizer": "true", "overlap_grad_reduce": "true", "overlap_param_gather": "true", "bf16": "true",
    "grad_reduce_in_bf16": "true", "ddp_average_in_collective": "true", "cross_entropy_loss_fusion": "true",
    "no_check_for_nan_in_loss_and_grad": "true", "hidden_dropout": "0.0", "attention_dropout": "0.0",
}  # fmt: skip


class MegatronBridgeReader:
    """The sections of a ConfigContainer."""

    WHAT = "Megatron-Bridge's YAML or overrides (model.*, train.*, ddp.*)"

    def recognises(self, document: Document) -> bool:
        """Say whether sections bear its names."""
        marks = ("model.tensor_model_parallel_size", "train.micro_batch_size", "train.global_batch_size",
                 "model.hidden_size", "ddp.use_distributed_optimizer")  # fmt: skip
        return any(word in document.words for word in marks)

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys, by Megatron-LM's names for the same."""
        named = {word: _name(word) for word in document.words}
        given: dict[str, Any] = {}
        for word, name in named.items():
            value = document.words[word]
            if name in _OPPOSITES:
                named[word] = name = _OPPOSITES[name]
                value = {"true": "false", "false": "true"}.get(str(value).lower(), value)
            if word == "mixed_precision.dtype" and value in ("bf16", "fp16"):
                named[word], name, value = value, value, "true"
            if name == "swiglu" and "model.activation_func" in document.words:
                value = str(value).lower()
            given[name] = value
        if str(given.get("mixed_precision", "")).lower().startswith("bf16"):
            given.setdefault("bf16", "true")
        whole = read_megatron(Ledger("megatron_bridge", {**_USUAL, **given}), num_accelerators)
        rows = {row.word: row for row in whole.rows}
        own = [Row(word, shown(document.words[word]), rows[name].verdict, rows[name].what)
               for word, name in named.items()]  # fmt: skip
        return Launch(whole.software, whole.keys, tuple(own))


def _name(word: str) -> str:
    """Return Megatron-LM's name of a word; sections that hold no sizes keep theirs."""
    section, _, inner = word.partition(".")
    if section in _SECTIONS and inner:
        return _NAMES.get(
            inner, inner if section in ("model", "train", "ddp", "optimizer", "mixed_precision", "dist") else word
        )
    return word
