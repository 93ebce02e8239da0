"""Names that a strategy takes: axes, placers, schedules, levels of recomputation, mappings."""

import re

from rostam_py.field_words import written
from rostam_py.plan.machine import PHYSICS
from rostam_py.plan.placing import PLACING_NAMES
from rostam_py.plan.program_rules import RULE_NAMES
from rostam_py.registry import Registry

AXES = ("tp", "cp", "pp", "dp")
UNNAMED_AT_1 = ("cp",)  # axes that words leave out where they are not used
INNER_AXES = ("ep",)  # degrees that add no devices
RECOMPUTE = ("none", "selective", "full")  # from least memory saved to most: a search tries them in turn
# Modules that selective recomputation names, in addition to paths (placement/megatron/recompute_modules.py).
EVERY_OTHER_PRODUCT = "every_other_product"
RECOMPUTE_MODULES = (
    "core_attn", "layernorm", "activation", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts",
    EVERY_OTHER_PRODUCT,
)  # fmt: skip
AUTO_MAPPING, BLOCKS_MAPPING, LINEAR_MAPPING = "auto", "blocks", "linear"
MAPPED = (AUTO_MAPPING, BLOCKS_MAPPING)  # on blocks of the fabric, where it has any (plan/mapping.py)
MAPPINGS = (*MAPPED, LINEAR_MAPPING, "random")
AUTOCAST_TO, FP32 = ("fp16_mixed", "bf16_mixed"), "fp32"
# What used to be a key of strategy -> its key now.
MOVED = {
    **{key: f"machine.{key}" for key in PHYSICS},
    **{key: f"software.rules.{key}" for key in RULE_NAMES},
    **{key: f"strategy.placing.{key}" for key in PLACING_NAMES},
}
PLACERS = Registry("placer")
PLACERS.add("megatron", "rostam_py.placement.megatron.placer:MegatronPlacer")
PLACERS.add("sip_ml", "rostam_py.placement.sip_ml.placer:SipMlPlacer")
SCHEDULES = Registry("schedule")
SCHEDULES.add("1f1b", "rostam_py.placement.schedules.one_f_one_b:OneForwardOneBackward")
SCHEDULES.add("gpipe", "rostam_py.placement.schedules.gpipe:GPipe")
SCHEDULES.add("zb_h1", "rostam_py.placement.schedules.zb_h1:ZeroBubbleH1")
SCHEDULES.add("zb_v", "rostam_py.placement.schedules.zb_v:ZeroBubbleV")
SCHEDULES.add("dual_pipe_v", "rostam_py.placement.schedules.dual_pipe_v:DualPipeV")


def collectives() -> list[str]:
    """Return the names of collectives."""
    from rostam_py.collectives.rank_groups import collectives  # loads the core

    return list(collectives())


def algorithms(collective: str) -> tuple[str, ...]:
    """Return the names of a collective's algorithms, and auto."""
    from rostam_py.collectives.rank_groups import algorithm_names  # loads the core

    return ("auto", *algorithm_names(collective))


def moved(key: str, value: object) -> str:
    """Return how Python writes a key that has moved."""
    where, _, name = MOVED[key].rpartition(".")
    if where == "machine":
        return f"Machine(..., {name}={value!r})"
    part = where.rpartition(".")[2]
    return f"Strategy(..., {part}={{{name!r}: {value!r}}})" + (
        f", or software={{'name': ..., 'rules': {{{name!r}: {value!r}}}}}" if part == "rules" else ""
    )


def moved_to(key: str, where: str = "strategy") -> str:
    """Return what a moved key is now. Args: where: what stands before it; a mix's job has rules of its own."""
    if where == "strategy":
        return MOVED[key]
    return MOVED[key].replace("software.rules", f"{where}.rules").replace("strategy.placing", f"{where}.placing")


def instead(key: str, value: object) -> str:
    """Return a setting as a shell takes it."""
    text = f"{key}={written(value)}"
    return f"'{text}'" if re.search(r"[\s,{}\[\]*?&|;<>()$\"]", text) else text


def key_of(name: str) -> str:
    """Return the whole key of one of a strategy's names, its rules' among them."""
    return {**dict.fromkeys(RULE_NAMES, "software.rules"), **dict.fromkeys(PLACING_NAMES, "strategy.placing")}.get(
        name, "strategy"
    ) + f".{name}"


def random_seed(mapping: str) -> int | None:
    """Return the seed of "random(SEED)", None for any other text."""
    match = re.fullmatch(r"random\(\s*(\d+)\s*\)", mapping)
    return int(match.group(1)) if match else None
