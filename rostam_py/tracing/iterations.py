"""Which ops and tensors of a draft belong to which iteration of a repeat (tracing/repeats.py), and as what.

A home is (iteration, role); values of two iterations with the same role stand for each other:
    (phase, place of the op among the iteration's, output)    what an op makes
    ("leaf", which)                                           a weight that only this iteration reads
    ("constant", which)                                       a tensor that only this iteration makes out of numbers
"""

from typing import Any

from rostam_py.graph import WEIGHT_KINDS, Tensor
from rostam_py.tracing.pairing import Draft
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.repeats import Repeat
from rostam_py.tracing.stream import STAND_IN

Role = tuple[Any, ...]
Home = tuple[int, Role]  # (iteration, role)
CONSTANT = "_tensor_constant"  # torch's names of them: this and a number, counted as they are made


class UnevenError(Exception):
    """The iterations are not equal up to a shift."""


def op_homes(draft: Draft, raw: RawTrace) -> dict[int, Any]:
    """Map op ids to (repeat, iteration) or STAND_IN; what no module ran belongs to its latest computed operand."""
    producer: dict[int, int] = {}
    homes: dict[int, Any] = {}
    for op in draft.ops:
        seen = raw.ops[op.id]
        if op.id not in homes:
            made = [producer[v] for v in op.inputs if v in producer] if seen.module is None else []
            home = homes.get(max(made)) if made else seen.repeat
            if home is not None:
                homes[op.id] = home
        for value in op.outputs:
            producer[value] = op.id
    return homes


def is_constant(tensor: Tensor) -> bool:
    """Say whether a tensor is one that the program made out of numbers."""
    number = tensor.name.removeprefix(CONSTANT)
    return tensor.kind == "constant" and number != tensor.name and number.isdecimal()


class Iterations:
    """The traced iterations of one repeat of a draft.

    template: the last one before the gap, which is copied into it; behind: the first one behind it.
    home: for each op, its iteration. dropped: places of stand-ins. ops: by iteration and phase, places in the draft.
    values: by home. homes: by value. owners: storage -> first value in it.
    """

    def __init__(self, draft: Draft, homes: dict[int, Any], number: int, repeat: Repeat) -> None:
        self.draft, self.repeat = draft, repeat
        self.place = {k: place for place, k in enumerate(repeat.traced)}
        self.template, self.behind = repeat.first_skipped - 1, repeat.end_skipped
        self.skipped = range(repeat.first_skipped, repeat.end_skipped)
        self.home = [_iteration(homes.get(op.id), number) for op in draft.ops]
        self.stand_ins = {op.outputs[0]: op.inputs[0] for op in draft.ops if homes.get(op.id) == STAND_IN}
        self.dropped = {place for place, op in enumerate(draft.ops) if homes.get(op.id) == STAND_IN}
        self._beside = self._find_beside()
        self._find_stand_ins(homes)
        self.ops: dict[tuple[int, str], list[int]] = {}
        self.op_roles: dict[int, Home] = {}  # op id -> its home
        self.values: dict[Home, int] = {}
        self.homes: dict[int, Home] = {}
        self.owners: dict[int, int] = {}
        self._leaf_of: dict[str, Home] = {}
        self._lead: dict[int, Any] = {}  # what the first iteration reads in place of what the one before it makes
        self._find_leaves()
        self._find_ops()
        self._find_constants()
        self._find_lead()

    def source(self, value: int, k: int) -> Any:
        """Return where a value comes from as iteration ``k`` sees it: (distance, role) or ("outside", value)."""
        home = self.homes.get(value)
        if home is not None:
            return (self._distance(home, k), home[1])
        if k == 0 and value in self._lead:
            return self._lead[value]
        return ("outside", value)

    def moved(self, value: int, k: int, new: int) -> int:
        """Return what iteration ``new`` reads where iteration ``k`` reads ``value``."""
        home = self.homes.get(value)
        if home is None:
            return value
        found = self.values.get((new + self._distance(home, k), home[1]))
        if found is None:
            raise UnevenError(f"an iteration reads {home[1]} of one that has none")
        return found

    def _distance(self, home: Home, k: int) -> int:
        """Return how many iterations lie from ``k`` to a value's; traced ones are neighbours."""
        if home[0] not in self.place:
            raise UnevenError("a weight is read by an iteration that is not its own")
        distance = self.place[home[0]] - self.place[k]
        if abs(distance) > 1:
            raise UnevenError("an iteration reads what one far from it makes")
        return distance

    def module(self, path: str, k: int, new: int) -> str:
        """Return the module of iteration ``new`` that is where ``path`` is in iteration ``k``."""
        paths = self.repeat.paths
        places = [place for place, here in enumerate(paths[k]) if here == path] if paths[k] != paths[new] else []
        found = {paths[new][place] for place in places} or {path}
        if len(found) > 1:
            raise UnevenError(f"module {path!r} is several modules in another iteration")
        return found.pop()

    def name(self, name: str, k: int, new: int) -> str:
        """Return the name of what iteration ``new`` has for the weight or gradient ``name`` of iteration ``k``."""
        home = self._leaf_of.get(name)
        if not name or home is None:
            return name
        if home[0] != k:
            raise UnevenError(f"{name} has a gradient in an iteration that is not its own")
        return self.repeat.leaves[new][home[1][1]]

    def _find_beside(self) -> dict[int, str]:
        """Give ops of no iteration that serve one iteration only to it; return their places and phases.

        Where the results of all iterations make one list, such are what prepares an entry, and slices of the gradient.
        """
        maker = {v: k for op, k in zip(self.draft.ops, self.home, strict=True) if k is not None for v in op.outputs}
        readers: dict[int, set[int | None]] = {}
        for op, k in zip(self.draft.ops, self.home, strict=True):
            for value in op.inputs:
                readers.setdefault(value, set()).add(k)
        found: dict[int, tuple[int, str, str]] = {}
        for place, op in enumerate(self.draft.ops):
            if self.home[place] is not None or place in self.dropped:
                continue
            served: set[int | None] = {maker[v] for v in op.inputs if v in maker}
            if op.phase == "backward" and not served:
                served = set().union(*(readers.get(v, set()) for v in op.outputs))
            elif op.phase == "backward":
                continue
            k = served.pop() if len(served) == 1 else None
            if k is not None:
                found[place] = (k, f"{op.phase} beside", op.op_type)
        usual = {(phase, kind) for k, phase, kind in found.values() if k == self.template}
        beside = {place: (k, phase) for place, (k, phase, kind) in found.items() if (phase, kind) in usual}
        for place, (k, _) in beside.items():
            self.home[place] = k
        return {place: phase for place, (_, phase) in beside.items()}

    def _find_stand_ins(self, homes: dict[int, Any]) -> None:
        """Find ops made of stand-ins alone: each stands for what the template's op of that kind makes."""
        made = {
            (op.op_type, op.inputs, str(op.arguments)): op.outputs
            for place, op in enumerate(self.draft.ops)
            if place in self._beside and self.home[place] == self.template
        }
        for place, op in enumerate(self.draft.ops):
            if self.home[place] is None and any(v in self.stand_ins for v in op.inputs) and place not in self.dropped:
                inputs = tuple(self.stand_ins.get(v, v) for v in op.inputs)
                twin = made.get((op.op_type, inputs, str(op.arguments)))
                if twin is not None:
                    self.stand_ins.update(zip(op.outputs, twin, strict=True))
                    self.dropped.add(place)
                    homes[op.id] = STAND_IN

    def _settle(self, value: int, home: Home) -> None:
        self.values[home] = value
        self.homes[value] = home

    def _find_leaves(self) -> None:
        by_name: dict[str, int] = {}
        for value, tensor in self.draft.tensors.items():
            self.owners.setdefault(tensor.storage, value)
            if tensor.kind in WEIGHT_KINDS:
                by_name.setdefault(tensor.name, value)
        for reader, names in enumerate(self.repeat.leaves):
            for which, name in enumerate(names):
                if name not in by_name:
                    raise UnevenError(f"{name} is not in the trace")
                self._leaf_of[name] = (reader, ("leaf", which))
                self._settle(by_name[name], self._leaf_of[name])

    def _find_ops(self) -> None:
        for place, (op, k) in enumerate(zip(self.draft.ops, self.home, strict=True)):
            if k is None:
                continue
            phase = self._beside.get(place, op.phase)
            members = self.ops.setdefault((k, phase), [])
            role = (phase, len(members))
            members.append(place)
            self.op_roles.setdefault(op.id, (k, role))
            for output, value in enumerate(op.outputs):
                self._settle(value, (k, (*role, output)))

    def _find_constants(self) -> None:
        readers: dict[int, set[int | None]] = {}
        for op, k in zip(self.draft.ops, self.home, strict=True):
            for value in op.inputs:
                if is_constant(self.draft.tensors[value]):
                    readers.setdefault(value, set()).add(k)
        counts: dict[int, int] = {}
        for value, served in readers.items():
            k = served.pop() if len(served) == 1 else None
            if k is not None:
                self._settle(value, (k, ("constant", counts.setdefault(k, 0))))
                counts[k] += 1

    def _find_lead(self) -> None:
        mine, first = self.ops.get((self.template, "forward"), []), self.ops.get((0, "forward"), [])
        for a, b in zip(mine, first, strict=False):
            for value, other in zip(self.draft.ops[a].inputs, self.draft.ops[b].inputs, strict=False):
                source = self.source(value, self.template)
                if source[0] == -1 and other not in self.homes and self._lead.setdefault(other, source) != source:
                    raise UnevenError("the first iteration reads one tensor where later ones read several")


def _iteration(home: Any, number: int) -> int | None:
    return home[1] if isinstance(home, tuple) and home[0] == number else None
