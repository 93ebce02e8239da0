"""Sharding: the outcome for one degree, as the rest of placement reads it."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from rostam_py.graph import Halo, Op, OperatorGraph
from rostam_py.placement.sharding.layouts import Shard, Stretches, local_extent
from rostam_py.placement.sharding.space import Level


class TensorComm(NamedTuple):
    """A collective: its kind, one of ``Level.comms``, and the label of the groups it runs in."""

    kind: str
    group: str


class Gather(NamedTuple):
    """An all-gather, over some levels, of a tensor that is split along the sequence."""

    tensor: int
    levels: tuple[int, ...]


class HaloExchange(NamedTuple):
    """What members of the groups with this label send to the next and to the previous one of a tensor.

    before, after: what a member receives of the one before (after) it, as shares of the whole tensor.
    """

    tensor: int
    group: str
    before: float
    after: float


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
                    self.padded[one[1].sizes[0]] = local_extent(one[1].sizes[0], level.degree) * level.degree

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
    def gathers(self) -> dict[int, tuple[Gather, ...]]:
        """Op -> what must be gathered before it; once for all ops of a template that read it."""
        found: dict[int, dict[int, list[int]]] = {}
        for place, level in enumerate(self.levels):
            for op, tensors in level.gathers.items():
                for t in tensors:
                    found.setdefault(op, {}).setdefault(t, []).append(place)
        return {op: tuple(Gather(t, tuple(where)) for t, where in roots.items()) for op, roots in found.items()}

    @cached_property
    def gathers_again(self) -> dict[int, tuple[Gather, ...]]:
        """Backward op -> gathers of forward tensors that may start with it: what differentiates a reader of them.

        As in Megatron, what the weight gradient of a product reads is gathered while its input gradient is computed.
        """
        ops, tensors = self.graph.ops, self.graph.tensors
        again = {gather for op, found in self.gathers.items() if ops[op].phase == "backward" for gather in found}
        again = {
            one for one in again if (maker := tensors[one.tensor].producer) is None or ops[maker].phase == "forward"
        }
        read = {op: [gather for gather in found if gather in again] for op, found in self.gathers.items()}
        first: dict[int, tuple[Gather, ...]] = {}
        for op in ops if again else ():
            if op.phase == "backward" and not op.is_metadata:
                differentiated = [] if op.forward_op is None else read.get(op.forward_op, [])
                asked = dict.fromkeys((*read.get(op.id, ()), *differentiated))
                if asked:
                    first[op.id] = tuple(asked)
        return first

    @cached_property
    def collected(self) -> frozenset[int]:
        """Tensors behind which a collective runs."""
        return frozenset(self.comms) | {gather.tensor for found in self.gathers.values() for gather in found}

    @cached_property
    def summed(self) -> dict[str, str]:
        """Whole parameter whose gradient's summands are added up once an iteration -> the groups that do."""
        names = dict.fromkeys(name for level in self.levels for name in sorted(level.summed))
        return {
            name: self.group(tuple(i for i, level in enumerate(self.levels) if name in level.summed)) for name in names
        }

    @cached_property
    def expert_ways(self) -> dict[int, int]:
        """Op -> ranks of the group that it is spread over by experts, where there are several."""
        found: dict[int, int] = {}
        for level in self.levels:
            for index, chosen in enumerate(level.axes):
                if chosen is not None and chosen[0].split.kind == "expert":
                    found[index] = found.get(index, 1) * level.degree
        return found

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
        if op not in self._exchanging:
            return []
        found: dict[str, tuple[list[int], float]] = {}
        for place, level in enumerate(self.levels):
            chosen = level.axes[op]
            if chosen is None or not chosen[0].split.comm_kind:
                continue
            size = max(0.0, chosen[0].split.comm_bytes.at(self.batch)) * self._split_elsewhere(op, place)
            found.setdefault(chosen[0].split.comm_kind, ([], size))[0].append(place)
        return [(TensorComm(kind, self.group(tuple(where))), size) for kind, (where, size) in found.items() if size]

    @cached_property
    def _exchanging(self) -> frozenset[int]:
        """Ops that run a collective inside themselves: few, and asked for of every op of every stage."""
        axes = (pair for level in self.levels for pair in enumerate(level.axes))
        return frozenset(op for op, chosen in axes if chosen is not None and chosen[0].split.comm_kind)

    @cached_property
    def _halos(self) -> dict[int, dict[tuple[int, tuple[int, ...]], tuple[int, int]]]:
        """Op -> {(tensor, levels): slices before and after} of what it reads beyond its own part, kept or not."""
        found: dict[int, dict[tuple[int, tuple[int, ...]], tuple[int, int]]] = {}
        kept: list[tuple[int, int, tuple[int, ...], tuple[int, int]]] = []
        for op in self.graph.ops:
            for halo, levels in self._read_halos(op):
                tensor, slices = op.inputs[halo.place], (halo.before, halo.after)
                if halo.is_kept:
                    kept.append((op.id, tensor, levels, slices))
                else:
                    found.setdefault(op.id, {})[tensor, levels] = slices
        exchanged = {key for keys in found.values() for key in keys}
        for index, tensor, levels, slices in kept:
            if (tensor, levels) not in exchanged:
                found.setdefault(index, {})[tensor, levels] = slices
        return found

    def _read_halos(self, op: Op) -> list[tuple[Halo, tuple[int, ...]]]:
        """Return the halos of inputs that a member holds in part, each with the levels that split it."""
        found: dict[Halo, list[int]] = {}
        for place, level in enumerate(self.levels):
            chosen = level.axes[op.id]
            for halo in () if chosen is None else chosen[0].split.halos:
                is_part = isinstance(level.states[op.inputs[halo.place]], Shard)
                if is_part and not level.uses_whole[op.id][halo.place]:
                    found.setdefault(halo, []).append(place)
        return [(halo, tuple(levels)) for halo, levels in found.items()]

    def halo_exchanges(self, op: int) -> list[HaloExchange]:
        """Return what neighbours exchange before an op can run; of a tensor as much as any reader of it needs."""
        return [
            self._exchange(tensor, levels, *self._largest_halos[tensor, levels])
            for tensor, levels in self._halos.get(op, ())
        ]

    def waiting_share(self, op: Op) -> float:
        """Return the share of an op's work that reads what neighbours exchange for it; 1 if that is nothing."""
        read = [halo.share for halo, _ in self._read_halos(op) if not halo.is_kept]
        return max(read, default=1.0) if len(read) == len(self._halos.get(op.id, ())) else 1.0

    @cached_property
    def _largest_halos(self) -> dict[tuple[int, tuple[int, ...]], tuple[int, int]]:
        largest: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        for halos in self._halos.values():
            for key, (before, after) in halos.items():
                most = largest.get(key, (0, 0))
                largest[key] = (max(most[0], before), max(most[1], after))
        return largest

    def _exchange(self, tensor: int, levels: tuple[int, ...], before: int, after: int) -> HaloExchange:
        share = self._slice_share(tensor, levels[0])
        return HaloExchange(tensor, self.group(levels), before * share, after * share)

    def _slice_share(self, tensor: int, place: int) -> float:
        """Return a member's slice along the dimension that a level splits, as a share of the whole tensor."""
        dim = self.levels[place].states[tensor].dim  # type: ignore[union-attr]
        share = 1 / self.graph.tensors[tensor].shape[dim].at(self.batch)
        for level in self.levels:
            state = level.states[tensor]
            if isinstance(state, Shard) and state.dim != dim:
                share *= _fraction(state.stretches, level.degree)
        return share

    @cached_property
    def kept_shares(self) -> dict[int, float]:
        """Tensor -> what a member keeps of its neighbours' parts until backward, as a share of the whole tensor."""
        found: dict[int, float] = {}
        for op in self.graph.ops:
            for halo, levels in self._read_halos(op) if any(split.halos for split in op.splits) else ():
                if halo.is_kept:
                    tensor = op.inputs[halo.place]
                    share = self._slice_share(tensor, levels[0]) * (halo.before + halo.after)
                    found[tensor] = max(found.get(tensor, 0.0), share)
        return found

    @cached_property
    def spatial(self) -> Counter[str]:
        """Types of forward ops that are split along space, and how many ops of each."""
        return Counter(
            op.op_type
            for op in self.graph.ops
            if op.phase == "forward" and any((one := level.axes[op.id]) and one[0].split.kind == "spatial"
                                             for level in self.levels)
        )  # fmt: skip

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
            kind = level.comms.get(tensor) if whole else None
            if kind == "reduce_scatter":
                share /= level.degree
            elif isinstance(state, Shard) and kind is None:
                share *= _fraction(state.stretches, level.degree)
        return share

    def collective_fraction(self, tensor: int) -> float:
        """Return the share of a tensor that its collectives take or make at each member, the larger of the two."""
        return max(self.tensor_fraction(tensor), self.tensor_fraction(tensor, whole=True))

    def gathered_fraction(self, gather: Gather) -> float:
        """Return the share of a tensor that one member holds behind a gather of it."""
        share = 1.0
        for place, level in enumerate(self.levels):
            state = level.states[gather.tensor]
            if place in gather.levels:
                continue
            if level.comms.get(gather.tensor) == "reduce_scatter":
                share /= level.degree
            elif isinstance(state, Shard):
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
            share *= 1 + self._halo_share(op, place, level)
        return share

    def _halo_share(self, op: Op, place: int, level: Level) -> float:
        """Return what a member reads of its neighbours' parts of an input, as a share of its own."""
        chosen = level.axes[op.id]
        slices = 0 if chosen is None else sum(h.before + h.after for h in chosen[0].split.halos if h.place == place)
        if not slices or chosen is None:
            return 0.0
        where = chosen[0].inputs[place]
        return 0.0 if where is None else slices * level.degree / (where.outer * where.length * where.inner)


def _fraction(stretches: Stretches, degree: int) -> float:
    if not stretches.is_plain:
        return 1 / degree
    return local_extent(stretches.sizes[0], degree) / stretches.sizes[0]
