"""Grow a trace that left out iterations of repeats (tracing/repeats.py) to the whole trace.

The ops of the last iteration before the gap, the template, are copied into it, once they prove to be what each
iteration is (tracing/evenness.py). Whatever else is seen raises UnevenError, and the caller traces the whole program.
tests/tracing/test_repeats.py compares both.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rostam_py.graph import Affine, Op, Tensor
from rostam_py.tracing.custom import find_op
from rostam_py.tracing.evenness import at, find_partners, varied
from rostam_py.tracing.iterations import CONSTANT, Home, Iterations, Role, UnevenError, is_constant, op_homes
from rostam_py.tracing.pairing import Draft
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.repeats import Repeat
from rostam_py.tracing.replicate import is_ordered
from rostam_py.tracing.stream import STAND_IN


def grow(draft: Draft, raw: RawTrace, batch: int, repeats: Sequence[Repeat]) -> tuple[Draft, int]:
    """Return the draft with all iterations, and the number of its checkpointed regions.

    Args: raw: the trace behind the draft, at ``batch`` samples.
    Raises: UnevenError.
    Cost: linear in the ops of the result, for each repeat.
    """
    homes = op_homes(draft, raw)
    num_checkpoints = raw.num_checkpoints
    for number, repeat in enumerate(repeats):
        template = (number, repeat.first_skipped - 1)
        again = {op.region for op in raw.ops if op.is_recomputed and op.repeat == template}
        num_checkpoints += len(again) * (repeat.end_skipped - repeat.first_skipped)
        draft = _Growth(Iterations(draft, homes, number, repeat), raw, batch).run()
    stand_ins = {v for op in draft.ops if homes.get(op.id) == STAND_IN for v in op.outputs}
    ops = [op for op in draft.ops if homes.get(op.id) != STAND_IN]
    grown = Draft(ops, draft.tensors, draft.notes)
    if any(v in stand_ins for op in ops for v in op.inputs):
        raise UnevenError("a result of a skipped iteration is read")
    if not is_ordered(grown):
        raise UnevenError("an iteration reads what a later one makes")
    return grown, num_checkpoints


class _Growth:
    """One repeat of a draft."""

    def __init__(self, its: Iterations, raw: RawTrace, batch: int) -> None:
        self.its, self.draft, self.repeat = its, its.draft, its.repeat
        self.raw, self.batch = raw, batch

    def run(self) -> Draft:
        """Return the grown draft. Raises: UnevenError."""
        its = self.its
        partners = find_partners(its)
        goes_up = {phase: self._goes_up(phase) for phase in partners}
        next_value, next_op = max(self.draft.tensors) + 1, max(op.id for op in self.draft.ops) + 1
        constants = [role for k, role in its.values if k == its.template and role[0] == "constant"]
        new_ids: dict[Home, int] = {}
        for k in its.skipped:
            for phase in partners:
                for index, place in enumerate(its.ops[its.template, phase]):
                    new_ids[k, (phase, index)] = next_op
                    next_op += 1
                    for output in range(len(self.draft.ops[place].outputs)):
                        its.values[k, (phase, index, output)] = next_value
                        next_value += 1
            for role in constants:
                its.values[k, role] = next_value
                next_value += 1
        tensors = self._tensors()
        self._number_constants(tensors, constants)
        return Draft(self._grown(partners, goes_up, new_ids), tensors, self.draft.notes)

    def _goes_up(self, phase: str) -> bool:
        """Say whether the iterations come in ascending order.

        Raises: UnevenError unless the template lies in one piece, next to the iteration behind the gap.
        """
        its = self.its
        places, behind = its.ops[its.template, phase], its.ops.get((its.behind, phase), ())
        if places != list(range(places[0], places[0] + len(places))):
            raise UnevenError(f"ops of other places stand among those of an iteration, {phase}")
        after, before = places[-1] + 1, places[0] - 1
        while after in its.dropped:
            after += 1
        while before in its.dropped:
            before -= 1
        if after in behind:
            return True
        if before in behind:
            return False
        raise UnevenError(f"other ops stand between two iterations, {phase}")

    def _tensors(self) -> dict[int, Tensor]:
        its = self.its
        tensors = dict(self.draft.tensors)
        storages: dict[int, int] = {}  # owner that is new -> its storage

        def storage_of(value: int, k: int, new: int) -> int:
            owner = its.moved(its.owners[self.draft.tensors[value].storage], k, new)
            if owner in self.draft.tensors:
                return self.draft.tensors[owner].storage
            return storages.setdefault(owner, -2 - owner)

        for k in (its.template, its.behind):  # a view of the last iteration's tensor: that may be a new one
            for value in [v for v, home in its.homes.items() if home[0] == k]:
                tensors[value] = replace(tensors[value], storage=storage_of(value, k, k))
        template = [(v, role) for v, (k, role) in its.homes.items() if k == its.template and role[0] != "leaf"]
        for k in its.skipped:
            for value, role in template:
                tensor, new = self.draft.tensors[value], its.values[k, role]
                name = its.name(tensor.name, its.template, k)
                storage = storage_of(value, its.template, k)
                tensors[new] = replace(tensor, id=new, name=name, storage=storage)
        return tensors

    def _number_constants(self, tensors: dict[int, Tensor], roles: Sequence[Role]) -> None:
        """Name the constants of iterations as the whole trace would, which numbers them as they are made."""
        if not roles:
            return
        its = self.its

        def number(k: int, role: Role) -> int:
            return int(self.draft.tensors[its.values[k, role]].name.removeprefix(CONSTANT))

        before = its.repeat.traced[its.place[its.template] - 1]
        if any((k, role) not in its.values for k in (before, its.behind) for role in roles):
            raise UnevenError("an iteration makes other constants than the next one")
        steps = {number(its.template, role) - number(before, role) for role in roles}
        if steps != {number(its.behind, role) - number(its.template, role) for role in roles} or len(steps) > 1:
            raise UnevenError("the constants of iterations are not made in one order")
        step, first = steps.pop(), min(number(its.behind, role) for role in roles)
        for value, tensor in self.draft.tensors.items():
            if is_constant(tensor) and int(tensor.name.removeprefix(CONSTANT)) >= first:
                name = f"{CONSTANT}{int(tensor.name.removeprefix(CONSTANT)) + step * len(its.skipped)}"
                tensors[value] = replace(tensors[value], name=name)
        for k in its.skipped:
            for role in roles:
                name = f"{CONSTANT}{number(its.template, role) + step * (k - its.template)}"
                tensors[its.values[k, role]] = replace(tensors[its.values[k, role]], name=name)

    def _grown(self, partners: dict[str, int], goes_up: dict[str, bool], new_ids: dict[Home, int]) -> list[Op]:
        its = self.its
        before: dict[int, list[Op]] = {}  # place -> copies that come in front of the op there
        for phase, partner in partners.items():
            copies = self._copies(phase, partner, new_ids)
            template = its.ops[its.template, phase]
            order = its.skipped if goes_up[phase] else reversed(its.skipped)
            before[template[-1] + 1 if goes_up[phase] else template[0]] = [op for k in order for op in copies[k]]
        ops: list[Op] = []
        for place, (op, k) in enumerate(zip(self.draft.ops, its.home, strict=True)):
            ops.extend(before.get(place, ()))
            if place in its.dropped:
                ops.append(op)  # until the end
            elif k is None:
                ops.append(self._outer(op))
            elif k in (its.template, its.behind):
                ops.append(replace(op, inputs=tuple(its.moved(v, k, k) for v in op.inputs)))
            else:
                self._check_reads(op, k)
                ops.append(op)
        return ops

    def _check_reads(self, op: Op, k: int) -> None:
        """Raise UnevenError if an op reads over the gap."""
        its = self.its
        gap = its.place[its.behind]
        for value in op.inputs:
            home = its.homes.get(value)
            if home is not None and (home[0] not in its.place or (its.place[home[0]] < gap) != (its.place[k] < gap)):
                raise UnevenError("an iteration reads what one behind the gap makes, or the other way round")

    def _copies(self, phase: str, partner: int, new_ids: dict[Home, int]) -> dict[int, list[Op]]:
        """Return the template's ops of one phase as each skipped iteration has them."""
        its = self.its
        members = [self.draft.ops[place] for place in its.ops[its.template, phase]]
        others = [self.draft.ops[place] for place in its.ops[partner, phase]]
        is_varied = [varied(a) != varied(b) for a, b in zip(members, others, strict=True)]
        copies: dict[int, list[Op]] = {}
        for k in its.skipped:
            modules: dict[str, str] = {}
            made = copies[k] = []
            for index, (op, other) in enumerate(zip(members, others, strict=True)):
                if op.module not in modules:
                    modules[op.module] = its.module(op.module, its.template, k)
                forward = op.forward_op
                if forward in its.op_roles:
                    forward = new_ids[k, its.op_roles[forward][1]]
                inputs = tuple(its.moved(v, its.template, k) for v in op.inputs)
                changed: dict[str, Any] = {}
                if is_varied[index]:
                    arguments, splits = at(varied(op), varied(other), (its.template, partner), k)
                    changed = {"arguments": arguments, "splits": splits}
                outputs = tuple(its.values[k, (phase, index, place)] for place in range(len(op.outputs)))
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
        its = self.its
        ends = (0, self.repeat.count - 1)
        inputs = list(op.inputs)
        read = op.bytes_read
        done: set[int] = set()
        for stand_in in dict.fromkeys(v for v in op.inputs if v in its.stand_ins):
            home = its.homes.get(its.stand_ins[stand_in])
            if home is None:
                continue  # of another repeat
            done.update(self._put(op, inputs, stand_in, home[1]))
            read += self._bytes_of(op, stand_in).scaled(len(its.skipped) - 1)  # a tensor in several places counts once
        for place, value in enumerate(op.inputs):
            home = its.homes.get(value)
            if home is not None and place not in done and (home[1][0] == "leaf" or home[0] not in ends):
                raise UnevenError(f"{op.op_type} of {op.module} reads an iteration in the middle, or a weight of one")
        return replace(op, inputs=tuple(inputs), bytes_read=read) if done else op

    def _bytes_of(self, op: Op, value: int) -> Affine:
        """Return what reading a value costs, as ``pairing`` counts it."""
        tensor = self.draft.tensors[value]
        num_batched = sum(dim.per_sample != 0 for dim in tensor.shape)
        if num_batched > 1 or self.raw.values[value].num_distinct != tensor.num_elements(self.batch):
            raise UnevenError(f"what {op.op_type} reads of a tensor of all iterations is not known")
        if op.is_metadata or find_op(op.op_type) is not None:
            raise UnevenError(f"what {op.op_type} reads of all iterations is not known")
        constant = int(tensor.num_bytes(0))
        return Affine(constant, int(tensor.num_bytes(1)) - constant)

    def _put(self, op: Op, inputs: list[int], stand_in: int, role: Role) -> list[int]:
        """Put the results of skipped iterations where a stand-in is; return the places of all iterations."""
        its = self.its
        found = {
            k: place
            for place, v in enumerate(op.inputs)
            for k, r in [its.homes.get(v, (-1, ()))]
            if k >= 0 and r == role
        }
        if set(found) != set(self.repeat.traced):
            raise UnevenError(f"{op.op_type} of {op.module} reads some iterations")
        step = found[1] - found[0]
        places = [found[0] + k * step for k in range(self.repeat.count)]
        if any(places[k] != place for k, place in found.items()):
            raise UnevenError(f"{op.op_type} of {op.module} reads iterations in no even order")
        for k in its.skipped:
            if not 0 <= places[k] < len(inputs) or op.inputs[places[k]] != stand_in:
                raise UnevenError(f"{op.op_type} of {op.module} reads iterations in no even order")
            inputs[places[k]] = its.values[k, role]
        return places
