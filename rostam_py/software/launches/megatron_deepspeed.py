"""Megatron-DeepSpeed: Megatron-LM's arguments for the model and its axes, DeepSpeed's JSON for the rest."""

from rostam_py.software.launches.deepspeed import Reading, named_config
from rostam_py.software.launches.document import Document
from rostam_py.software.launches.ledger import Launch
from rostam_py.software.launches.megatron import ONE_REPLICA, degrees, model
from rostam_py.software.launches.reader import set_batches

_MARKS = ("deepspeed", "deepspeed_config", "zero_stage", "deepspeed_activation_checkpointing")
_RECOMPUTES = (
    "checkpoint_activations recompute_activations deepspeed_activation_checkpointing recompute_granularity"
    " recompute_method checkpoint_num_layers recompute_num_layers"
)


class MegatronDeepSpeedReader:
    """pretrain_gpt.py of microsoft/Megatron-DeepSpeed and of what is made from it, under DeepSpeed's engine."""

    WHAT = "Megatron-DeepSpeed's arguments, with DeepSpeed's JSON"

    def recognises(self, document: Document) -> bool:
        """Say whether Megatron's sizes stand beside a switch of DeepSpeed's."""
        return document.has("num_layers", "hidden_size") and any(one in document.words for one in _MARKS)

    def read(self, document: Document, num_accelerators: int | None) -> Launch:
        """Return a document's keys."""
        return _Both({**document.words, **named_config(document)}, num_accelerators).launch()


class _Both(Reading):
    """DeepSpeed's words where it decides; Megatron's for the model, its axes and its batches."""

    def model(self) -> None:
        """Set the decoder's sizes and the degrees; ZeRO's stage is the JSON's, or the argument's."""
        ledger = self.ledger
        degrees(ledger)
        model(ledger)
        stage = ledger.number("zero_stage")
        configured = ledger.number(self.word("zero_optimization.stage"), stage)
        if stage is not None and stage != configured:
            raise ledger.wrong("zero_stage", f"{configured}, as in DeepSpeed's configuration")
        if stage is not None:
            ledger.set("zero_stage", {"software.stage": stage})
        clip = ledger.text("clip_grad", "1.0")
        ledger.leave("clip_grad", f"gradients are clipped by DeepSpeed's gradient_clipping, not at {clip}")
        if ledger.text("optimizer", "adam") == "adam":
            ledger.set("optimizer", {"strategy.optimizer": "adam"})
        else:
            ledger.refuse("optimizer", f"{ledger.text('optimizer')} is taken to be Adam")
        ledger.leave("deepspeed_config", "its words are in this table")
        ledger.leave("force_multi", "how processes find each other")
        ledger.leave("no_pipeline_parallel", "a pipeline of one stage takes as long as none")
        ledger.refuse_unless("curriculum_learning random_ltd data_efficiency_curriculum_learning", ("false",),
                             "the step at the whole length of sequences is simulated")  # fmt: skip
        ledger.refuse_unless("num_experts mlp_type moe_expert_parallel_size create_moe_param_group",
                             ("1", "[1]", "standard", "false"), "its experts are not modelled")  # fmt: skip

    def batches(self) -> None:
        """Set batches by Megatron's arguments, with which DeepSpeed's have to agree."""
        ledger = self.ledger
        micro, whole = (ledger.number(word, least=1) for word in ("micro_batch_size", "global_batch_size"))
        inner = 1
        for word in ONE_REPLICA:
            inner *= ledger.number(word, 1, least=1) or 1
        set_batches(ledger, ("micro_batch_size", micro or 1), ("global_batch_size", whole), ("", 1), self.size, inner)
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
            ledger.leave(self.word(name), "as the arguments say")

    def recomputation(self) -> None:
        """Set full recomputation where an argument asks for it: DeepSpeed's words only say where the inputs stay."""
        ledger = self.ledger
        is_full = ledger.is_on("checkpoint_activations") or ledger.text("recompute_granularity") == "full"
        is_selective = ledger.is_on("recompute_activations") or ledger.text("recompute_granularity") == "selective"
        level = "full" if is_full else "selective" if is_selective else "none"
        ledger.set(_RECOMPUTES, {"strategy.recompute": level})
        super().activation_checkpointing()
