"""Program: a stack that was asked for, put on strategies, machines and cost models.

Example:
    program = Program.of({"name": "torchtitan", "compile": True}, graph, cost="calibrated")
    strategy, software = program.on(Strategy(dp=8), machine)     # all keys that torchtitan's habits come to
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError
from rostam_py.field_words import in_brackets
from rostam_py.graph import OperatorGraph
from rostam_py.plan.machine import Machine
from rostam_py.plan.open_strategy import with_wanted
from rostam_py.plan.plan import Plan
from rostam_py.plan.software import IDEAL, Software
from rostam_py.plan.strategy import Strategy, default_settings
from rostam_py.plan.strategy_names import PLACERS
from rostam_py.plan.unread import unread_keys
from rostam_py.software.names import AUTO, STACKS
from rostam_py.software.stack import HOST_RULES, KERNEL_RULES, PROGRAM_RULES, Facts, Job, Rulings, Stack
from rostam_py.software.stacks.auto import Auto
from rostam_py.software.stacks.ideal import Ideal

Given = str | Mapping[str, Any]  # a stack's name, or that and its flags
# Rules that mean something only beside a stack's own choice of another.
_BESIDE = {
    "fusion": ("fused_part", "eager_loss", "eager_norm", "convolution_norms", "autocast", "inputs"),
    "fused_part": ("eager_loss", "eager_norm"),
    "optimizer_kernels": ("weight_decay",),
    "bucket_size": ("first_bucket",),
    "host": ("host_sync", "host_graphs"),
}
_UNTIMED = ("constant",)  # cost models whose times no program makes longer


def stack_of(given: Given) -> Stack:
    """Return a stack with its flags.

    Raises: UnknownNameError for an unknown stack; ConfigError naming flag, value and what is allowed.
    """
    if not isinstance(given, str | Mapping):
        raise ConfigError(
            f"software is {given!r}; it must be a name, one of {', '.join(STACKS)}, or a mapping of name and flags"
        )
    flags = {} if isinstance(given, str) else dict(given)
    name = given if isinstance(given, str) else flags.pop("name", AUTO)
    schema = STACKS.get(name)
    known = [entry.name for entry in dataclasses.fields(schema)]
    for key in flags:
        if key not in known:
            hint = in_brackets(f"software.{key}", flags[key])
            owners = [one for one in STACKS if key in {entry.name for entry in dataclasses.fields(STACKS.get(one))}]
            where = f"; it is a flag of {', '.join(owners)}" if owners else ""
            raise ConfigError(f"software {name!r} has no flag {key!r}{hint}{where}; it has: {', '.join(known)}")
    found: Stack = schema(**flags)
    return found


def ideal_where_open(given: Given) -> Given:
    """Return the ideal program in place of auto; others as they are."""
    stack = stack_of(given)
    return {"name": IDEAL, "rules": stack.rules} if isinstance(stack, Auto) else given


def sharded_by(given: Given, strategy: Strategy, machine: Machine) -> Strategy:
    """Return a strategy with the ZeRO level that a program's flags set, before anything of the model is known."""
    stack = stack_of(given)
    if strategy.shard or not PLACERS.get(strategy.placer).runs_programs:
        return strategy
    try:
        return replace(strategy, shard=stack.strategy(Job(strategy, machine, Facts())).get("shard", 0))
    except ConfigError:  # what does not go together is said where the model is placed
        return strategy


class Program:
    """A stack for one model. Args: is_searched: its strategies are candidates of a search, compared by one program."""

    def __init__(self, stack: Stack, graph: OperatorGraph, *, cost: str, is_searched: bool = False) -> None:
        self._stack, self._graph, self._cost, self._is_searched = stack, graph, cost, is_searched
        self._made: dict[type[Stack], tuple[Stack, Software]] = {}  # by program: a search asks thousands of times

    @classmethod
    def of(cls, given: Given, graph: OperatorGraph, *, cost: str, is_searched: bool = False) -> "Program":
        """Return the program that was asked for, of a graph's model. Raises: as ``stack_of``."""
        stack = stack_of(given)
        return cls(stack, graph, cost=cost, is_searched=is_searched)

    @functools.cached_property
    def _facts(self) -> Facts:
        return Facts.of(self._graph)

    @property
    def has_experts(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self._facts.has_experts

    def chosen(self, strategy: Strategy, machine: Machine) -> Stack:
        """Return the stack that trains by a strategy.

        Raises: ConfigError for a placer whose plans no program runs.
        """
        stack = self._stack
        if isinstance(stack, Auto):
            return stack.chosen(
                strategy, strategy.precision or self._graph.default_precision,
                is_of_language=self._facts.sequence_length > 0, is_searched=self._is_searched,
                is_known=self._cost not in _UNTIMED and machine.device.multiprocessors > 0
                and PLACERS.get(strategy.placer).runs_programs,
            )  # fmt: skip
        if isinstance(stack, Ideal) or PLACERS.get(strategy.placer).runs_programs:
            return stack
        able = [name for name in PLACERS if PLACERS.get(name).runs_programs]
        raise ConfigError(
            f"software is {_name_of(stack)!r}, which runs plans of strategy.placer={' or '.join(able)}; it is"
            f" {strategy.placer!r}: set software=ideal"
        )

    def on(self, strategy: Strategy, machine: Machine) -> tuple[Strategy, Software]:
        """Return a strategy with all that the program does by itself, and the program's own name and hosts.

        Model: what a strategy says that is not its default stays, except what the program's flags insist on; rules
            given by hand hold against both.
        Args: strategy: its dp is known.
        Raises: ConfigError for what does not go together.
        """
        stack, software = self._known(self.chosen(strategy, machine))
        rules = {rule: value for rule, value in stack.rules.items() if rule in PROGRAM_RULES}
        if isinstance(stack, Ideal) and not rules:
            return strategy, software
        job = Job(strategy, machine, self._facts)
        own = stack.strategy(job)
        known = default_settings()
        by_hand = {key for key in own if strategy.value(key) != known[key]} - stack.insists(job)
        taken = {key: value for key, value in own.items() if key not in by_hand}
        said = {key: value for key, value in strategy.changed().items() if key in _BESIDE}
        taken = _without_beside(taken, said | rules, {**known, **own})
        if not self._is_searched:  # candidates take those that they allow
            taken |= rules
        sets = {key: value for key, value in taken.items() if key not in PROGRAM_RULES}
        new = sorted((key, value) for key, value in sets.items() if value != strategy.value(key))
        try:
            made = strategy.with_keys(**taken)
            made = with_wanted(made, rules) if self._is_searched else made
            return made, replace(software, sets=tuple(new)) if new else software
        except ConfigError as error:
            if any(f"software.rules.{rule} is" in str(error) for rule in rules):
                raise
            if mine := [rule for rule in rules if rule in str(error)]:
                raise type(error)(f"software.rules.{mine[0]} is {rules[mine[0]]!r}: {error}") from error
            words = ", ".join(f"{key}={taken[key]}" for key in taken if key in str(error))
            raise type(error)(
                f"software={software.name} sets {words or 'what does not go with the strategy'}: {error}. Set it by"
                " hand (software.rules), or take another software"
            ) from error

    def sign(self, plan: Plan, given: Strategy, software: Software) -> Plan:
        """Return a plan with its program's name, and without notes of keys that the program set and nothing reads.

        Args: given: the strategy before the program's habits.
        """
        idle = set(unread_keys(plan.strategy)) - set(unread_keys(given))
        notes = tuple(note for note in plan.notes if note not in idle)
        return replace(plan, software=software, has_experts=self.has_experts, notes=notes)

    def costs(self, config: Mapping[str, Any] | None, strategy: Strategy, machine: Machine) -> dict[str, Any]:
        """Return the settings of the cost model with whose kernels the program calls; settings given stay."""
        stack, given = self.chosen(strategy, machine), dict(config or {})
        if isinstance(stack, Ideal) and not stack.rules:
            return given
        known = {entry.name: entry.default for entry in dataclasses.fields(COST_MODELS.get(self._cost).Config)}
        pinned = {rule: value for rule, value in stack.rules.items() if rule in KERNEL_RULES}
        for rule, value in (stack.kernels() | pinned).items():
            if rule in known and (rule in pinned or given.get(rule, known[rule]) == known[rule]):
                given[rule] = value
        return given

    def _known(self, stack: Stack) -> tuple[Stack, Software]:
        """Return a stack and its name, as they are kept."""
        if type(stack) not in self._made:
            self._made[type(stack)] = (stack, self._software(stack))
        return self._made[type(stack)]

    def _software(self, stack: Stack) -> Software:
        by_hand = {rule: value for rule, value in stack.rules.items() if rule in HOST_RULES}
        own = {} if isinstance(stack, Ideal) else stack.hosts(self._facts)
        hosts = _without_beside(own, by_hand, own) | by_hand
        return Software(
            name=_name_of(stack), release=stack.line, flags=tuple(sorted(stack.flags.items())),
            was_chosen=isinstance(self._stack, Auto), hosts=tuple(sorted(hosts.items())),
            ratios=self._stack.ratios or "",
        )  # fmt: skip


def _without_beside(taken: Rulings, by_hand: Rulings, own: Rulings) -> Rulings:
    """Return rulings without those that mean something only beside another one, which is set otherwise by hand."""
    gone = {one for rule, value in by_hand.items() if value != own.get(rule) for one in _BESIDE.get(rule, ())}
    return {key: value for key, value in taken.items() if key not in gone}


def _name_of(stack: Stack) -> str:
    return STACKS.name_of(lambda found: found is type(stack), type(stack).__module__)
