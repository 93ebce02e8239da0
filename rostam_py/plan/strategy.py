"""Strategy: one explicit way to train a model on many accelerators.

Example:
    Strategy(dp=128, tp=8)                                # 1,024 accelerators, no pipeline
    Strategy(pp=96, tp=4, recompute="full", schedule="1f1b")
    Strategy(dp=8, cp=16, tp=8, pp=16)                    # sequences of 131,072 tokens, each on 16 x 8 accelerators
    Strategy(dp=8, tp=2, pp=2, ep=4)                      # 32 accelerators, experts spread over 4 of the 8 replicas
    Strategy(dp=64, mp=16, placer="sip_ml")               # Algorithm 1: sub-ops anywhere in groups of 16
    Strategy(dp=8, rules={"overlap_grad_reduce": False})  # a habit of the program, set by hand
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

from rostam_py.costs.numerics import Numerics
from rostam_py.costs.optimizers import NO_DECAY, STATE_BYTES, StateWidths
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.model_size import ModelSize
from rostam_py.html import html_pairs
from rostam_py.keywords import check_keywords
from rostam_py.plan.placing import PLACING_NAMES, Placing
from rostam_py.plan.program_rules import RULE_NAMES, ProgramRules
from rostam_py.plan.state_sharding import BUFFERS
from rostam_py.plan.strategy_checks import check_degree, check_precision, check_strategy
from rostam_py.plan.strategy_fields import StrategyFields
from rostam_py.plan.strategy_names import AXES, FP32, INNER_AXES, MOVED, PLACERS, SCHEDULES, UNNAMED_AT_1, moved

_PARTS = {"rules": RULE_NAMES, "placing": PLACING_NAMES}


@dataclass(kw_only=True, slots=True, repr=False)
class Strategy(StrategyFields):
    __doc__ = StrategyFields.__doc__

    def __new__(cls, *_: Any, **given: Any) -> "Strategy":
        """Refuse keys that have moved, by their new names, and unknown ones by what they are called here."""
        for key in given:
            if key in MOVED:
                raise ConfigError(f"strategy.{key} is {MOVED[key]} now: {moved(key, given[key])}")
        check_keywords(cls, given)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        self.rules, self.placing = ProgramRules.of(self.rules), Placing.of(self.placing)
        check_strategy(self)

    @classmethod
    def of(cls, **keys: Any) -> Self:
        """Return a strategy of keys, with those of its rules and of its placing by their own names."""
        inner = {part: {key: keys.pop(key) for key in names if key in keys} for part, names in _PARTS.items()}
        for part, given in inner.items():
            if given and part in keys:
                raise ConfigError(
                    f"Strategy.of got {part} and {', '.join(given)}, which is inside it; give one of them"
                )
        parts: dict[str, Any] = {part: given for part, given in inner.items() if given}
        return cls(**keys, **parts)

    def with_keys(self, **changed: Any) -> Self:
        """Return this strategy with other values of keys, as ``of`` takes them."""
        inner = {part: {key: changed.pop(key) for key in names if key in changed} for part, names in _PARTS.items()}
        parts: dict[str, Any] = {part: replace(getattr(self, part), **given) for part, given in inner.items() if given}
        return replace(self, **changed, **parts)

    def settings(self) -> dict[str, Any]:
        """Return every key and its value, as ``of`` takes them."""
        own = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in _PARTS}
        return own | {key: getattr(getattr(self, part), key) for part, names in _PARTS.items() for key in names}

    def changed(self) -> dict[str, Any]:
        """Return every key that is not the default, as ``of`` takes them."""
        default = default_settings()
        return {name: value for name, value in self.settings().items() if value != default[name]}

    def recomputing(self, level: str) -> "Strategy":
        """Return this strategy at another level of recomputation, all of it."""
        return self.with_keys(
            recompute=level, recompute_modules=None, recompute_blocks=None, recompute_stops_early=False
        )

    def degrees(self) -> dict[str, int]:
        """Return the degrees that the placer knows, by axis."""
        return {axis: getattr(self, axis) for axis in PLACERS.get(self.placer).AXES}

    def named_degrees(self) -> dict[str, int]:
        """Return the degrees that words name: all but those of axes that few strategies use, where they are 1."""
        return {axis: n for axis, n in self.degrees().items() if n != 1 or axis not in UNNAMED_AT_1}

    def describe(self) -> str:
        """Return the degrees in words, e.g. "dp 16 x mp 8"."""
        words = " x ".join(
            f"{axis} {'open' if degree is None else degree}" for axis, degree in self.named_degrees().items()
        )
        return words + "".join(f", {axis} {degree}" for axis, degree in self.inner_degrees().items())

    def inner_degrees(self) -> dict[str, int]:
        """Return the degrees that add no devices, by axis, where they are not 1."""
        return {axis: getattr(self, axis) for axis in INNER_AXES if getattr(self, axis) != 1}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.nested().items())})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the degrees, and every setting that is not the default."""
        changed = {k: value for k, value in self.changed().items() if k not in (*AXES, "mp", *INNER_AXES)}
        size = {"accelerators used": "all" if self.dp is None else f"{self.num_ranks:,} accelerators"}
        return html_pairs(f"strategy {self.describe()}", size | changed)

    def numerics(self, graph: OperatorGraph | ModelSize) -> Numerics:
        """Return precision, optimizer and precision of gradients: the strategy's, else the model's.

        Raises: ConfigError for gradients that the precision cannot have, and what else does not go with it.
        """
        precision = self.precision or graph.default_precision
        check_precision(self, precision)
        optimizer = self.optimizer or graph.default_optimizer
        if self.rules.weight_decay != NO_DECAY and optimizer == "adam":
            raise ConfigError(
                f"software.rules.weight_decay is {self.rules.weight_decay!r}, but adam's step already includes the"
                " decay; leave weight_decay out, or set another strategy.optimizer"
            )
        rules = self.rules
        return Numerics(
            precision, optimizer, FP32 if rules.autocast else rules.gradient_precision, rules.clip_gradients,
            rules.optimizer_kernels, holds_copy=self.shard < 3 or rules.shard_layout == BUFFERS,
            writes_copy=not rules.autocast,
            widths=StateWidths(STATE_BYTES[rules.master_precision], STATE_BYTES[rules.moment_precision]),
        )  # fmt: skip

    def batches(self, global_batch: int) -> tuple[int, int]:
        """Return (samples of a micro-batch, micro-batches of one replica) (MODEL D16).

        Raises: DegreeError if global_batch is not micro_batch x num_microbatches x dp.
        """
        check_degree("global_batch", global_batch)
        if global_batch % self.dp:
            raise DegreeError(f"global_batch is {global_batch}; it must be divisible by strategy.dp = {self.dp}")
        local = global_batch // self.dp
        micro = self.micro_batch if self.micro_batch is not None else (local if self.pp == 1 else 1)
        if local % micro:
            raise DegreeError(
                f"global_batch is {global_batch}, so a replica (strategy.dp = {self.dp}) gets {local} samples;"
                f" that must be divisible by strategy.micro_batch = {micro}"
            )
        if self.pp > 1:
            said = f"a replica has {local // micro} micro-batches ({local} samples, {micro} each)"
            count, group = local // micro, self.rules.microbatch_group_size
            SCHEDULES.get(self.schedule).check_microbatches(count, self.pp, self.virtual_stages, said, group)
        return micro, local // micro

    def nested(self) -> dict[str, Any]:
        """Return every field that is not the default, as ``Strategy`` takes them."""
        found = self.changed()
        inner = {part: {key: found.pop(key) for key in names if key in found} for part, names in _PARTS.items()}
        return found | {part: keys for part, keys in inner.items() if keys}


@cache
def default_settings() -> Mapping[str, Any]:
    """Return every key of a strategy and its default, as ``Strategy.of`` takes them."""
    return Strategy().settings()
