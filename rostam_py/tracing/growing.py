"""Grow a trace that left out iterations of repeats (tracing/repeats.py) to the whole trace.

The ops of the last iteration before the gap, the template, are copied into it. First they must prove to be what each
iteration is: forward, the template equals the iteration behind the gap; backward, that one or the one before. Equal
means op by op: the same kind, quantities and arguments (integers may grow evenly), the same tensors of the same and of
the neighbouring iterations, and the same or evenly chosen tensors of the rest. Whatever else is seen raises
UnevenError, and the caller traces the whole program. tests/tracing/test_repeats.py compares both.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rostam_py.graph import WEIGHT_KINDS, Affine, Op, Tensor
from rostam_py.tracing.custom import find_op
from rostam_py.tracing.pairing import Draft
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.repeats import Repeat
from rostam_py.tracing.replicate import is_ordered

Role = tuple[Any, ...]  # ("forward" or "backward", op of the iteration, output) or ("leaf", which)
Home = tuple[int, Role]  # (iteration, role)
_EQUAL_FIELDS = (
    "name", "phase", "op_type", "flops", "bytes_read", "bytes_written", "is_metadata", "is_elementwise",
    "is_accumulation", "is_recomputed",
)  # fmt: skip


class UnevenError(Exception):
    """The iterations are not equal up to a shift."""


def grow(draft: Draft, raw: RawTrace, batch: int, repeats: Sequence[Repeat]) -> tuple[Draft, int]:
    """Return the draft with all iterations, and the number of its checkpointed regions.

    Args: raw: the trace behind the draft, at ``batch`` samples.
    Raises: UnevenError.
    Cost: linear in the ops of the result, for each repeat.
    """
    homes = _homes(draft, raw)
    num_checkpoints = raw.num_checkpoints
    for number, repeat in enumerate(repeats):
        template = (number, repeat.first_skipped - 1)
        again = {op.region for op in raw.ops if op.is_recomputed and op.repeat == template}
        num_checkpoints += len(again) * (repeat.end_skipped - repeat.first_skipped)
        draft = _Growth(draft, homes, number, repeat, raw, batch).run()
    stand_ins = {v for op in draft.ops if homes.get(op.id) == "stand-in" for v in op.outputs}
    ops = [op for op in draft.ops if homes.get(op.id) != "stand-in"]
    grown = Draft(ops, draft.tensors, draft.notes)
    if any(v in stand_ins for op in ops for v in op.inputs) or not is_ordered(grown):
        raise UnevenError
    return grown, num_checkpoints


def _homes(draft: Draft, raw: RawTrace) -> dict[int, Any]:
    """Map op ids to (repeat, iteration); what no module ran belongs to its latest computed operand."""
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


def _at(a: Any, b: Any, k_a: int, k_b: int, k: int) -> Any:
    """Return what stands in iteration k where ``a`` stands in k_a and ``b`` in k_b. Raises: UnevenError."""
    if a == b and type(a) is type(b):
        return a
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        step, rest = divmod(b - a, k_b - k_a)
        if rest or isinstance(b, bool):
            raise UnevenError
        return a + step * (k - k_a)
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return type(a)(_at(x, y, k_a, k_b, k) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        return {key: _at(a[key], b[key], k_a, k_b, k) for key in a}
    if is_dataclass(a) and not isinstance(a, type) and type(a) is type(b):
        values = {f.name: _at(getattr(a, f.name), getattr(b, f.name), k_a, k_b, k) for f in fields(a)}
        return type(a)(**values)
    raise UnevenError


class _Growth:
    """One repeat of a draft."""

    def __init__(
        self, draft: Draft, homes: dict[int, Any], number: int, repeat: Repeat, raw: RawTrace, batch: int
    ) -> None:
        self.draft, self.repeat, self.raw, self.batch = draft, repeat, raw, batch
        self.traced = repeat.traced
        self.place = {k: place for place, k in enumerate(self.traced)}
        self.template, self.behind = repeat.first_skipped - 1, repeat.end_skipped
        self.skipped = range(repeat.first_skipped, repeat.end_skipped)
        self.home = [self._iteration(homes.get(op.id), number) for op in draft.ops]
        self.stand_ins = {op.outputs[0]: op.inputs[0] for op in draft.ops if homes.get(op.id) == "stand-in"}
        self.dropped = {place for place, op in enumerate(draft.ops) if homes.get(op.id) == "stand-in"}
        self.beside = self._find_beside()
        self._find_stand_ins(homes)
        self.ops: dict[tuple[int, str], list[int]] = {}  # (iteration, phase) -> places of its ops
        self.op_roles: dict[int, Home] = {}  # op id -> its home
        self.values: dict[Home, int] = {}
        self.homes: dict[int, Home] = {}  # value -> its home
        self.owners: dict[int, int] = {}  # storage -> first value in it
        self.lead: dict[int, Any] = {}
        self._find_homes()
        self.lead = self._lead()

    def run(self) -> Draft:
        """Return the grown draft. Raises: UnevenError."""
        phases = [phase for k, phase in self.ops if k == self.template]
        partners = {phase: self._partner(phase) for phase in sorted(phases)}
        if not {"forward", "backward"} <= set(partners):
            raise UnevenError
        for phase, partner in partners.items():
            self._check(phase, partner)
        goes_up = {phase: self._goes_up(phase) for phase in partners}
        next_value, next_op = max(self.draft.tensors) + 1, max(op.id for op in self.draft.ops) + 1
        new_ids: dict[Home, int] = {}
        for k in self.skipped:
            for phase in partners:
                for index, place in enumerate(self.ops[self.template, phase]):
                    new_ids[k, (phase, index)] = next_op
                    next_op += 1
                    for output in range(len(self.draft.ops[place].outputs)):
                        self.values[k, (phase, index, output)] = next_value
                        next_value += 1
        tensors = self._tensors()
        return Draft(self._grown(partners, goes_up, new_ids), tensors, self.draft.notes)

    @staticmethod
    def _iteration(home: Any, number: int) -> int | None:
        return home[1] if isinstance(home, tuple) and home[0] == number else None

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
        """Find what is made of stand-ins alone: it stands for what the template's op of that kind makes."""
        made = {
            (op.op_type, op.inputs, str(op.arguments)): op.outputs
            for place, op in enumerate(self.draft.ops)
            if place in self.beside and self.home[place] == self.template
        }
        for place, op in enumerate(self.draft.ops):
            if self.home[place] is None and any(v in self.stand_ins for v in op.inputs) and place not in self.dropped:
                inputs = tuple(self.stand_ins.get(v, v) for v in op.inputs)
                twin = made.get((op.op_type, inputs, str(op.arguments)))
                if twin is not None:
                    self.stand_ins.update(zip(op.outputs, twin, strict=True))
                    self.dropped.add(place)
                    homes[op.id] = "stand-in"

    def _find_homes(self) -> None:
        by_name: dict[str, int] = {}
        for value, tensor in self.draft.tensors.items():
            self.owners.setdefault(tensor.storage, value)
            if tensor.kind in WEIGHT_KINDS:
                by_name.setdefault(tensor.name, value)
        self.leaf_of: dict[str, Home] = {}
        for reader, names in enumerate(self.repeat.leaves):
            for which, name in enumerate(names):
                if name not in by_name:
                    raise UnevenError
                home: Home = (reader, ("leaf", which))
                self.leaf_of[name] = self.homes[by_name[name]] = home
                self.values[home] = by_name[name]
        for place, (op, iteration) in enumerate(zip(self.draft.ops, self.home, strict=True)):
            if iteration is None:
                continue
            k, phase = iteration, self.beside.get(place, op.phase)
            members = self.ops.setdefault((k, phase), [])
            role = (phase, len(members))
            members.append(place)
            self.op_roles.setdefault(op.id, (k, role))
            for output, value in enumerate(op.outputs):
                self.values[k, (*role, output)] = value
                self.homes[value] = (k, (*role, output))

    def _lead(self) -> dict[int, Any]:
        """Return what the first iteration reads in place of what the one before it makes: value -> source."""
        lead: dict[int, Any] = {}
        mine, first = self.ops.get((self.template, "forward"), []), self.ops.get((0, "forward"), [])
        for a, b in zip(mine, first, strict=False):
            for value, other in zip(self.draft.ops[a].inputs, self.draft.ops[b].inputs, strict=False):
                source = self._source(value, self.template)
                if source[0] == -1 and other not in self.homes and lead.setdefault(other, source) != source:
                    raise UnevenError
        return lead

    def _partner(self, phase: str) -> int:
        """Return the iteration whose ops of a phase the template's must equal."""
        before = self.traced[self.place[self.template] - 1]
        if phase == "forward":
            return self.behind
        try:
            self._check(phase, self.behind)
        except UnevenError:
            return before  # the last iteration is the first that runs backward: what comes to it is not from another
        return self.behind

    def _check(self, phase: str, partner: int) -> None:
        """Raise UnevenError unless the template equals its partner up to the shift."""
        mine, theirs = self.ops.get((self.template, phase), []), self.ops.get((partner, phase), [])
        if len(mine) != len(theirs) or not mine:
            raise UnevenError
        others = [k for k in self.traced if len(self.ops.get((k, phase), ())) == len(mine)]
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            op, other = self.draft.ops[a], self.draft.ops[b]
            if not self._equal_ops(op, other, partner):
                raise UnevenError
            for k in others:
                third = self.draft.ops[self.ops[k, phase][index]]
                if third.op_type == op.op_type:
                    varied = _at(self._varied(op), self._varied(other), self.template, partner, k)
                    if varied != self._varied(third):
                        raise UnevenError

    def _varied(self, op: Op) -> Any:
        """Return what of an op may grow evenly from one iteration to the next."""
        return (op.arguments, op.splits)

    def _equal_ops(self, op: Op, other: Op, partner: int) -> bool:
        if any(getattr(op, name) != getattr(other, name) for name in _EQUAL_FIELDS):
            return False
        if len(op.inputs) != len(other.inputs) or len(op.outputs) != len(other.outputs):
            return False
        if self._module(op.module, self.template, partner) != other.module:
            return False
        mine = [self._source(value, self.template) for value in op.inputs]
        if mine != [self._source(value, partner) for value in other.inputs]:
            return False
        if self._forward_role(op, self.template) != self._forward_role(other, partner):
            return False
        return all(
            self._equal_tensors(self.draft.tensors[a], self.draft.tensors[b], partner)
            for a, b in zip(op.outputs, other.outputs, strict=True)
        )

    def _equal_tensors(self, a: Tensor, b: Tensor, partner: int) -> bool:
        if (a.shape, a.dtype, a.kind, a.is_saved) != (b.shape, b.dtype, b.kind, b.is_saved):
            return False
        owners = self._source(self.owners[a.storage], self.template), self._source(self.owners[b.storage], partner)
        return owners[0] == owners[1] and self._name(a.name, self.template, partner) == b.name

    def _forward_role(self, op: Op, k: int) -> Role | None:
        if op.forward_op is None:
            return None
        home = self.op_roles.get(op.forward_op)
        if home is None:
            return ("outside", op.forward_op)
        if home[0] != k:
            raise UnevenError
        return home[1]

    def _source(self, value: int, k: int) -> Any:
        """Return where a value comes from as iteration ``k`` sees it."""
        home = self.homes.get(value)
        if home is not None:
            if home[0] not in self.place:
                raise UnevenError
            distance = self.place[home[0]] - self.place[k]
            if abs(distance) > 1:
                raise UnevenError
            return (distance, home[1])
        if k == 0 and value in self.lead:
            return self.lead[value]
        return ("outside", value)

    def _module(self, path: str, k: int, new: int) -> str:
        """Return the module of iteration ``new`` that is where ``path`` is in iteration ``k``."""
        paths = self.repeat.paths
        places = [place for place, here in enumerate(paths[k]) if here == path] if paths[k] != paths[new] else []
        found = {paths[new][place] for place in places} or {path}
        if len(found) > 1:
            raise UnevenError
        return found.pop()

    def _name(self, name: str, k: int, new: int) -> str:
        home = self.leaf_of.get(name)
        if not name or home is None:
            return name
        if home[0] != k:
            raise UnevenError
        return self.repeat.leaves[new][home[1][1]]

    def _goes_up(self, phase: str) -> bool:
        """Say whether the iterations come in ascending order.

        Raises: UnevenError unless the template lies in one piece, next to the iteration behind the gap.
        """
        places, behind = self.ops[self.template, phase], self.ops[self.behind, phase]
        if places != list(range(places[0], places[0] + len(places))):
            raise UnevenError
        after, before = places[-1] + 1, places[0] - 1
        while after in self.dropped:
            after += 1
        while before in self.dropped:
            before -= 1
        if after in behind:
            return True
        if before in behind:
            return False
        raise UnevenError

    def _moved(self, value: int, k: int, new: int) -> int:
        """Return what iteration ``new`` reads where iteration ``k`` reads ``value``."""
        home = self.homes.get(value)
        if home is None:
            return value
        if home[0] not in self.place:
            raise UnevenError
        distance = self.place[home[0]] - self.place[k]
        if abs(distance) > 1:
            raise UnevenError
        found = self.values.get((new + distance, home[1]))
        if found is None:
            raise UnevenError
        return found

    def _tensors(self) -> dict[int, Tensor]:
        tensors = dict(self.draft.tensors)
        storages: dict[int, int] = {}  # owner that is new -> its storage

        def storage_of(value: int, k: int, new: int) -> int:
            owner = self._moved(self.owners[self.draft.tensors[value].storage], k, new)
            if owner in self.draft.tensors:
                return self.draft.tensors[owner].storage
            return storages.setdefault(owner, -2 - owner)

        for k in self.traced:  # a view of the last iteration's tensor: that may be a new one
            if k in (self.template, self.behind):
                for value in [v for v, home in self.homes.items() if home[0] == k]:
                    tensors[value] = replace(tensors[value], storage=storage_of(value, k, k))
        template = [(v, role) for v, (k, role) in self.homes.items() if k == self.template and role[0] != "leaf"]
        for k in self.skipped:
            for value, role in template:
                tensor, new = self.draft.tensors[value], self.values[k, role]
                name = self._name(tensor.name, self.template, k)
                storage = storage_of(value, self.template, k)
                tensors[new] = replace(tensor, id=new, name=name, storage=storage)
        return tensors

    def _grown(self, partners: dict[str, int], goes_up: dict[str, bool], new_ids: dict[Home, int]) -> list[Op]:
        before: dict[int, list[Op]] = {}  # place -> copies that come in front of the op there
        for phase, partner in partners.items():
            copies = self._copies(phase, partner, new_ids)
            template = self.ops[self.template, phase]
            order = self.skipped if goes_up[phase] else reversed(self.skipped)
            before[template[-1] + 1 if goes_up[phase] else template[0]] = [op for k in order for op in copies[k]]
        ops: list[Op] = []
        for place, (op, k) in enumerate(zip(self.draft.ops, self.home, strict=True)):
            ops.extend(before.get(place, ()))
            if place in self.dropped:
                ops.append(op)  # until the end
            elif k is None:
                ops.append(self._outer(op))
            elif k in (self.template, self.behind):
                ops.append(replace(op, inputs=tuple(self._moved(v, k, k) for v in op.inputs)))
            else:
                self._check_reads(op, k)
                ops.append(op)
        return ops

    def _check_reads(self, op: Op, k: int) -> None:
        """Raise UnevenError if an op reads over the gap."""
        gap = self.place[self.behind]
        for value in op.inputs:
            home = self.homes.get(value)
            if home is not None and (self.place[home[0]] < gap) != (self.place[k] < gap):
                raise UnevenError

    def _copies(self, phase: str, partner: int, new_ids: dict[Home, int]) -> dict[int, list[Op]]:
        """Return the template's ops of one phase as each skipped iteration has them."""
        members = [self.draft.ops[place] for place in self.ops[self.template, phase]]
        others = [self.draft.ops[place] for place in self.ops[partner, phase]]
        varied = [self._varied(a) != self._varied(b) for a, b in zip(members, others, strict=True)]
        copies: dict[int, list[Op]] = {}
        for k in self.skipped:
            modules: dict[str, str] = {}
            made = copies[k] = []
            for index, (op, other) in enumerate(zip(members, others, strict=True)):
                if op.module not in modules:
                    modules[op.module] = self._module(op.module, self.template, k)
                forward = op.forward_op
                if forward in self.op_roles:
                    forward = new_ids[k, self.op_roles[forward][1]]
                inputs = tuple(self._moved(v, self.template, k) for v in op.inputs)
                changed: dict[str, Any] = {}
                if varied[index]:
                    arguments, splits = _at(self._varied(op), self._varied(other), self.template, partner, k)
                    changed = {"arguments": arguments, "splits": splits}
                outputs = tuple(self.values[k, (phase, index, place)] for place in range(len(op.outputs)))
                made.append(
                    replace(
                        op,
                        id=new_ids[k, (phase, index)],
                        module=modules[op.module],
                        inputs=inputs,
                        outputs=outputs,
                        forward_op=forward,
                        **changed,
                    )
                )
        return copies

    def _outer(self, op: Op) -> Op:
        """Return an op of no iteration; it may read the first and the last one, or all of them in order."""
        ends = (0, self.repeat.count - 1)
        inputs = list(op.inputs)
        read = op.bytes_read
        done: set[int] = set()
        for stand_in in dict.fromkeys(v for v in op.inputs if v in self.stand_ins):
            home = self.homes.get(self.stand_ins[stand_in])
            if home is None:
                continue  # of another repeat
            done.update(self._put(op, inputs, stand_in, home[1]))
            read += self._bytes_of(op, stand_in).scaled(len(self.skipped) - 1)  # a tensor in several places counts once
        for place, value in enumerate(op.inputs):
            home = self.homes.get(value)
            if home is not None and place not in done and home[1][0] != "leaf" and home[0] not in ends:
                raise UnevenError
            if home is not None and home[1][0] == "leaf":
                raise UnevenError
        return replace(op, inputs=tuple(inputs), bytes_read=read) if done else op

    def _bytes_of(self, op: Op, value: int) -> Affine:
        """Return what reading a value costs, as ``pairing`` counts it."""
        tensor = self.draft.tensors[value]
        num_batched = sum(dim.per_sample != 0 for dim in tensor.shape)
        if num_batched > 1 or self.raw.values[value].num_distinct != tensor.num_elements(self.batch):
            raise UnevenError
        if op.is_metadata or find_op(op.op_type) is not None:
            raise UnevenError
        constant = int(tensor.num_bytes(0))
        return Affine(constant, int(tensor.num_bytes(1)) - constant)

    def _put(self, op: Op, inputs: list[int], stand_in: int, role: Role) -> list[int]:
        """Put the results of skipped iterations where a stand-in is; return the places of all iterations."""
        found = {
            k: place
            for place, v in enumerate(op.inputs)
            for k, r in [self.homes.get(v, (-1, ()))]
            if k >= 0 and r == role
        }
        if set(found) != set(self.traced):
            raise UnevenError
        step = found[1] - found[0]
        places = [found[0] + k * step for k in range(self.repeat.count)]
        if any(places[k] != place for k, place in found.items()):
            raise UnevenError
        for k in self.skipped:
            if not 0 <= places[k] < len(inputs) or op.inputs[places[k]] != stand_in:
                raise UnevenError
            inputs[places[k]] = self.values[k, role]
        return places
