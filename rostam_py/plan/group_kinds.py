"""Kinds of process groups: under which name results, tables and figures report what a group communicates.

A new kind is one line below (from a plug-in: ``GROUP_KINDS.add(name, "package.module:ATTRIBUTE")``) and a GroupKind.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rostam_py.registry import Registry


@dataclass(frozen=True, slots=True)
class GroupKind:
    """How the communication of a kind of groups is reported.

    words: its name for readers. colour: in figures, "#rrggbb". place: among the other kinds, ascending.
    counted_as: another kind, in whose rows of breakdowns and byte counts it is included.
    is_always_listed: every result has a row for it; otherwise those of plans that have such groups.
    """

    words: str
    colour: str
    place: int
    counted_as: str = ""
    is_always_listed: bool = False


TENSOR = GroupKind("tensor-parallel", "#D55E00", 0, is_always_listed=True)
DATA = GroupKind("data-parallel", "#E69F00", 1, is_always_listed=True)
PIPELINE = GroupKind("pipeline", "#CC79A7", 2, is_always_listed=True)
TIED = GroupKind("tied weights", "#8B4A6B", 3, is_always_listed=True)
MODEL = GroupKind("model-parallel", "#F0E442", 4, is_always_listed=True)
MODEL_GRADIENT = GroupKind("model-parallel gradients", "#A89B14", 5, counted_as="mp")
CONTEXT = GroupKind("context-parallel", "#B2182B", 6)
EXPERT = GroupKind("expert-parallel", "#F46D43", 7)
SHARDING = GroupKind("sharded state", "#8C510A", 8)
EMBEDDING = GroupKind("embedding tables", "#1B7837", 9)

GROUP_KINDS = Registry("group kind")
GROUP_KINDS.add("tp", f"{__name__}:TENSOR")
GROUP_KINDS.add("dp", f"{__name__}:DATA")
GROUP_KINDS.add("pp", f"{__name__}:PIPELINE")
GROUP_KINDS.add("tied", f"{__name__}:TIED")
GROUP_KINDS.add("mp", f"{__name__}:MODEL")
GROUP_KINDS.add("mp_gradient", f"{__name__}:MODEL_GRADIENT")
GROUP_KINDS.add("cp", f"{__name__}:CONTEXT")
GROUP_KINDS.add("ep", f"{__name__}:EXPERT")
GROUP_KINDS.add("zero", f"{__name__}:SHARDING")
GROUP_KINDS.add("tables", f"{__name__}:EMBEDDING")


def group_kind(name: str) -> GroupKind:
    """Return a registered kind. Raises: UnknownNameError."""
    kind: GroupKind = GROUP_KINDS.get(name)
    return kind


def counted_kind(name: str) -> str:
    """Return the kind in whose rows a kind is counted: its own, or another's."""
    return group_kind(name).counted_as or name


def kinds_in_order() -> list[str]:
    """Return the names of all registered kinds in the order of tables and legends."""
    return sorted(GROUP_KINDS.names(), key=lambda name: (group_kind(name).place, name))


def counted_kinds() -> list[str]:
    """Return the kinds that have rows of their own, in the order of tables and legends."""
    return [name for name in kinds_in_order() if not group_kind(name).counted_as]


def listed_kinds(present: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds that a result has rows for: those always listed and those of ``present`` groups, in order."""
    counted = {counted_kind(name) for name in present}
    return tuple(name for name in counted_kinds() if group_kind(name).is_always_listed or name in counted)
