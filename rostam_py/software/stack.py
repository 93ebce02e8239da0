"""Stack: a training program as a component: its flags under its own names, and what follows from them.

Example:
    STACKS.get("torchtitan")(compile=True).strategy(job)["fused_part"]     # "blocks_and_loss"

A stack is one file in ``stacks/``, a line of STACKS and its test. Its fields are the program's own flags with their
defaults; three methods say what they come to, in the names of RULES: kernels that it calls, hosts that launch them, and
everything else. Any of these can be set by hand in place of the stack's (``software.rules.allocator=exact``).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError
from rostam_py.field_words import in_brackets
from rostam_py.graph import OperatorGraph
from rostam_py.plan import program_rules
from rostam_py.plan.machine import HOST_RULES, Machine  # what launches kernels, and where it waits
from rostam_py.plan.program_rules import RULE_NAMES, check_rule, nearest_rule, unit_of_rule
from rostam_py.plan.strategy import Strategy

KERNEL_RULES = ("attention", "norms", "batch_norms")  # fields of a cost model: whose kernels are called
# What a program does by itself, not how work is spread; the order of ranks is the strategy's, of which programs have
# their own.
PROGRAM_RULES = (*RULE_NAMES, "rank_order")
RULES = (*KERNEL_RULES, *HOST_RULES, *PROGRAM_RULES)
Rulings = dict[str, Any]  # rule, or key of Strategy -> value


class Facts(NamedTuple):
    """What stacks ask about a model.

    precision: its own. sequence_length: 0 of models without sequences. num_blocks: repeated ones.
    """

    precision: str = "fp32"
    sequence_length: int = 0
    has_experts: bool = False
    num_blocks: int = 0

    @classmethod
    def of(cls, graph: OperatorGraph) -> "Facts":
        """Return a graph's."""
        has_experts = any(split.kind == "expert" for op in graph.ops for split in op.splits)
        return cls(graph.default_precision, graph.sequence_length, has_experts, len(graph.block_names))


class Job(NamedTuple):
    """What a program is asked to train: on a machine, spread by a strategy whose dp is known."""

    strategy: Strategy
    machine: Machine
    facts: Facts

    @property
    def precision(self) -> str:
        """Of training: the strategy's, else the model's own."""
        return self.strategy.precision or self.facts.precision

    @property
    def is_of_language(self) -> bool:
        """Whether the model reads sequences of tokens."""
        return self.facts.sequence_length > 0

    def even_stages(self, *ways: str) -> dict[str, str]:
        """Return the first of ways to deal equally many blocks to every stage, or chunk, that the blocks allow.

        Args: ways: "even", or "even_with_ends", where the model's two ends count as a block each.
        """
        if self.strategy.placing.layers is not None:
            return {}
        chunks = self.strategy.pp * self.strategy.virtual_stages
        counts = {"even": self.facts.num_blocks, "even_with_ends": self.facts.num_blocks + 2}
        fitting = [way for way in ways if counts[way] >= chunks and counts[way] % chunks == 0]
        return {"stage_blocks": fitting[0]} if fitting and self.strategy.pp > 1 else {}

    @property
    def num_data_ranks(self) -> int:
        """Ranks that hold the same weights."""
        return int(self.strategy.num_data_ranks)


@dataclass(kw_only=True)
class Stack:
    """A training program.

    rules: mapping of rules (rostam list software) to values that replace what the program does by itself, for example
        {allocator: exact}.
    ratios: file with your own measured jobs (rostam validate file=mine.csv save_ratios=FILE), from which the expected
        time is derived; null takes the published jobs that rostam ships.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ()  # further stacks whose measured jobs stand for its own
    SOURCES: ClassVar[str] = ""

    rules: dict[str, Any] = field(
        default_factory=dict,
        metadata={"keys": lambda: list(RULES), "choices": lambda rule: choices_of_rule(rule), "units": unit_of_rule},
    )

    ratios: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rules, Mapping):
            raise ConfigError(
                f"software.rules is {self.rules!r}; it must be a mapping of rules to values, for example"
                " software.rules.allocator=exact"
            )
        for rule, value in self.rules.items():
            if rule not in RULES:
                hint = nearest_rule(rule, RULES) or in_brackets(f"software.rules.{rule}", value)
                raise ConfigError(f"software.rules.{rule} is not a rule{hint}; rules: {', '.join(RULES)}")
            if rule in RULE_NAMES:
                check_rule(rule, value)
        for rule in KERNEL_RULES:
            if rule in self.rules and not isinstance(self.rules[rule], str):
                raise ConfigError(f"software.rules.{rule} is {self.rules[rule]!r}; it must be a name (cost.{rule})")
        if self.ratios is not None and not isinstance(self.ratios, str):
            raise ConfigError(f"software.ratios is {self.ratios!r}; it must be the path of a file")
        for entry in dataclasses.fields(self):
            _check_flag(entry, getattr(self, entry.name))

    @property
    def flags(self) -> dict[str, Any]:
        """Its flags that differ from their defaults, its release and ratios aside."""
        default = type(self)()
        names = [entry.name for entry in dataclasses.fields(self) if entry.name not in ("release", "ratios")]
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}

    @property
    def line(self) -> str:
        """The release, "" where its releases are alike."""
        return str(getattr(self, "release", ""))

    def kernels(self) -> Rulings:
        """Return whose kernels it calls, of KERNEL_RULES."""
        return {}

    def hosts(self, facts: Facts) -> Rulings:
        """Return how hosts launch its kernels, of HOST_RULES."""
        return {}

    def insists(self, job: Job) -> frozenset[str]:
        """Return what of ``strategy`` holds even where the strategy says otherwise.

        Raises: ConfigError for flags and a strategy that disagree.
        """
        return frozenset()

    def strategy(self, job: Job) -> Rulings:
        """Return what else it does: of PROGRAM_RULES, and fields of Strategy that its flags set."""
        return {}


def choices_of_rule(rule: str) -> tuple[str, ...]:
    """Return the names that a rule takes; nothing for rules of numbers, flags and sizes."""
    if rule in RULE_NAMES:
        return program_rules.choices_of_rule(rule)
    schemas = (Machine, COST_MODELS.get("calibrated").Config)
    entries = (one for schema in schemas for one in dataclasses.fields(schema))
    return next((tuple(one.metadata.get("choices", ())) for one in entries if one.name == rule), ())


def _check_flag(entry: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise ConfigError for a flag that is not what it may be: by the type of its default, or its choices."""
    allowed = entry.metadata.get("choices") if entry.name != "rules" else None
    where = f"software.{entry.name}"
    if value is None and entry.default is None:
        return
    if allowed is not None and value not in tuple(allowed):
        raise ConfigError(f"{where} is {value!r}; it must be one of: {', '.join(map(str, allowed))}")
    is_flag = isinstance(entry.default, bool)
    if is_flag and not isinstance(value, bool):
        raise ConfigError(f"{where} is {value!r}; it must be true or false")
    if isinstance(entry.default, int) and not is_flag and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{where} is {value!r}; it must be an integer")
    items = entry.metadata.get("items", ())
    if items and not isinstance(value, list | tuple):
        raise ConfigError(f"{where} is {value!r}; it must be a list of: {', '.join(items)}")
    for one in value if items else ():
        if one not in items:
            raise ConfigError(f"{where} holds {one!r}; it may hold: {', '.join(items)}")
