"""Sharding: the outcome for one degree, as the rest of placement reads it."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.sharding.layouts import Shard, Stretches, local_extent
from rostam_py.placement.sharding.space import Level


class TensorComm(NamedTuple):
    """A collective: its kind ("all_reduce", "all_gather", "halo") and the label of the groups it runs in."""

    kind: str
    group: str


@dataclass(frozen=True)
class Sharding:
    """How ops and tensors are spread over the tp group: one level, or two one inside the other.

    levels: outermost first; the group's degree is the product of theirs.
    """

    graph: OperatorGraph
    batch: float
    levels: tuple[Level, ...] = ()
    replicated: Counter[str] = field(default_factory=Counter)
    padded: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.graph.ops:
            chosen = [level.axes[op.id] for level in self.levels]
            if self.levels and None in chosen and op.flops.at(self.batch) > 0 and not op.is_elementwise:
                self.replicated[op.op_type] += 1
            for level, one in zip(self.levels, chosen, strict=True):
                if one is not None and one[1].is_plain and one[1].sizes[0] % level.degree:
                    self.padded[one[1].sizes[0]] = local_extent(one[1].sizes[0], level.degree)

    @property
    def degree(self) -> int:
        """Members of the group."""
        degree = 1
        for level in self.levels:
            degree *= level.degree
        return degree

    def group(self, levels: tuple[int, ...]) -> str:
        """Return the label of the groups of those levels: "tp" for all of them."""
        return "tp" if len(levels) == len(self.levels) else f"tp{levels[0]}"

    @property
    def groups(self) -> frozenset[str]:
        """Labels of all groups that a level's collectives run in."""
        return frozenset({"tp"} | {f"tp{place}" for place in range(len(self.inner_degrees))})

    @property
    def inner_degrees(self) -> tuple[int, ...]:
        """Degrees of the levels if there are several, outermost first, for the groups of each."""
        return tuple(level.degree for level in self.levels) if len(self.levels) > 1 else ()

    @cached_property
    def comms(self) -> dict[int, tuple[TensorComm, ...]]:
        """Tensor -> the collectives after its producer, in order."""
        found: dict[int, tuple[TensorComm, ...]] = {}
        for tensor in dict.fromkeys(t for level in self.levels for t in level.comms):
            kinds: dict[str, list[int]] = {}
            for place, level in enumerate(self.levels):
                if tensor in level.comms:
                    kinds.setdefault(level.comms[tensor], []).append(place)
            found[tensor] = tuple(TensorComm(kind, self.group(tuple(where))) for kind, where in kinds.items())
        return found

    @cached_property
    def summed(self) -> dict[str, str]:
        """Whole parameter whose gradient's summands are added up once an iteration -> the groups that do."""
        names = dict.fromkeys(name for level in self.levels for name in sorted(level.summed))
        return {
            name: self.group(tuple(i for i, level in enumerate(self.levels) if name in level.summed)) for name in names
        }

    def op_fraction(self, op: Op) -> float:
        """Return the share of the op's work that one member does."""
        share = 1.0
        for level in self.levels:
            chosen = level.axes[op.id]
            share *= 1.0 if chosen is None else _fraction(chosen[1], level.degree)
        return share

    def op_split(self, op: int) -> tuple[str, int]:
        """Return (kind of an op's split, members that share it), ("", 1) where all run it whole."""
        chosen = [(one[0].split.kind, level.degree) for level in self.levels if (one := level.axes[op]) is not None]
        degree = 1
        for _, count in chosen:
            degree *= count
        return (chosen[0][0] if chosen else ""), degree

    def inner_comms(self, op: int) -> list[tuple[TensorComm, float]]:
        """Return the collectives that an op runs inside itself and their bytes, e.g. of softmax statistics."""
        found: dict[str, tuple[list[int], float]] = {}
        for place, level in enumerate(self.levels):
            chosen = level.axes[op]
            if chosen is None or not chosen[0].split.comm_kind:
                continue
            size = max(0.0, chosen[0].split.comm_bytes.at(self.batch)) * self._split_elsewhere(op, place)
            found.setdefault(chosen[0].split.comm_kind, ([], size))[0].append(place)
        return [(TensorComm(kind, self.group(tuple(where))), size) for kind, (where, size) in found.items() if size]

    def _split_elsewhere(self, op: int, place: int) -> float:
        """Return what other levels, along other dimensions, leave of an op's exchange."""
        share = 1.0
        mine = self.levels[place].axes[op]
        for other, level in enumerate(self.levels):
            chosen = level.axes[op]
            if other != place and chosen is not None and mine is not None and chosen[0].split != mine[0].split:
                share /= level.degree
        return share

    def tensor_fraction(self, tensor: int, whole: bool = False) -> float:
        """Return the share of a tensor that one member holds; of the collectives' result if ``whole``."""
        share = 1.0
        for level in self.levels:
            state = level.states[tensor]
            if isinstance(state, Shard) and not (whole and tensor in level.comms):
                share *= _fraction(state.stretches, level.degree)
        return share

    def read_fraction(self, op: Op, place: int) -> float:
        """Return the share of an input that one member's share of an op reads."""
        share = 1.0
        for level in self.levels:
            want, have = level.input_state(op, place), level.states[op.inputs[place]]
            if isinstance(have, Shard) and not level.uses_whole[op.id][place]:
                share *= _fraction(have.stretches, level.degree)
            elif isinstance(want, Shard) and not isinstance(have, Shard):
                share /= level.degree
        return share


def _fraction(stretches: Stretches, degree: int) -> float:
    if not stretches.is_plain:
        return 1 / degree
    return local_extent(stretches.sizes[0], degree) / stretches.sizes[0]
