"""BlockWalk: a walk over a graph's ops that visits one of alike blocks and takes its outcome for the others.

Model: what a visit of a block changes follows from its kind (``Likeness``) and from what the walk has left before of
the tensors that it makes and reads. Where both are equal, so are the changes, each at the counterpart of its op or
tensor.
"""

from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from rostam_py.graph import Op, OperatorGraph
from rostam_py.graph.likeness import runs_of

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Store:
    """What a walk fills: a list, or a mapping, by op or by tensor. refers: its values are tensors, one or several."""

    values: Any
    is_of_ops: bool = False
    refers: bool = False

    def copy(self) -> Any:
        """Return its values as they are now."""
        return self.values.copy()

    def taken(self, ids: Sequence[int]) -> tuple[Any, ...]:
        """Return the values of some ops or tensors."""
        if isinstance(self.values, list):
            return tuple(itemgetter(*ids)(self.values)) if len(ids) > 1 else tuple(self.values[i] for i in ids)
        return tuple([self.values.get(i, _MISSING) for i in ids])

    def changed(self, before: Any) -> list[tuple[int, Any]]:
        """Return the ops or tensors whose values are others than before, and their values, _MISSING for none."""
        if isinstance(self.values, list):
            return [(i, b) for i, (a, b) in enumerate(zip(before, self.values, strict=True)) if a is not b]
        gone = [(i, _MISSING) for i in before if i not in self.values]
        return gone + [(i, value) for i, value in self.values.items() if before.get(i, _MISSING) != value]

    def put(self, index: int, value: Any) -> None:
        """Set, or take away, a value."""
        if value is _MISSING:
            self.values.pop(index, None)
        else:
            self.values[index] = value


@dataclass(slots=True)
class _Outcome:
    """What a run of a block's ops has done. read: what it may have read. changes: of each store, by reference."""

    read: tuple[Any, ...]
    changes: list[list[tuple[Any, Any]]] = field(default_factory=list)
    whole: list[dict[Any, Any]] = field(default_factory=list)


class BlockWalk:
    """A walk over ops that fills stores.

    Args:
        kinds: of every block; what else decides its outcome, but not the walk itself, is in them.
        stores: all that visits of ops read and change.
        whole: small mappings by something else, which count as read and changed as a whole.
    """

    def __init__(
        self, graph: OperatorGraph, kinds: Sequence[int], stores: Sequence[Store],
        whole: Sequence[MutableMapping[Any, Any]] = (),
    ) -> None:  # fmt: skip
        self.graph, self.likeness, self.kinds, self.stores, self.whole = graph, graph.likeness, kinds, stores, whole
        self._known: dict[tuple[int, int, int], list[_Outcome]] = {}
        ops, counts = graph.ops, Counter(kinds)
        apart = {op.block for op in ops if op.forward_op is not None and ops[op.forward_op].block != op.block}
        self._repeated = {block for block, kind in enumerate(kinds) if counts[kind] > 1 and block not in apart}
        self._inputs: dict[int, list[int]] = {}

    def run(self, visit: Callable[[Op], None]) -> None:
        """Visit all ops in order, or take what visits of their counterparts have changed."""
        for ops in runs_of(self.graph.ops):
            block = ops[0].block
            if block not in self._repeated:
                for op in ops:
                    visit(op)
            else:
                self._through(block, ops, visit)

    def _through(self, block: int, ops: Sequence[Op], visit: Callable[[Op], None]) -> None:
        """Visit a run of a block's ops, unless an equal one is known."""
        places = self.likeness.op_places
        known = self._known.setdefault((self.kinds[block], places[ops[0].id], places[ops[-1].id]), [])
        read = self._read(block)
        found = next((one for one in known if one.read == read), None)
        if found is not None:
            self._apply(block, found)
            return
        before = [store.copy() for store in self.stores]
        for op in ops:
            visit(op)
        outcome = _Outcome(read, whole=[dict(one) for one in self.whole])
        for store, old in zip(self.stores, before, strict=True):
            outcome.changes.append([self._noted(store, block, *one) for one in store.changed(old)])
        known.append(outcome)

    def _read(self, block: int) -> tuple[Any, ...]:
        """Return what visits of a block's ops may read: of its own ops and tensors, and of its inputs."""
        likeness = self.likeness
        if block not in self._inputs:
            read = dict.fromkeys(t for op in likeness.ops[block] for t in self.graph.ops[op].inputs)
            self._inputs[block] = [t for t in read if likeness.homes[t] != block]
        tensors = (*likeness.tensors[block], *self._inputs[block])
        found: list[Any] = [dict(one) for one in self.whole]
        for store in self.stores:
            taken = store.taken(likeness.ops[block] if store.is_of_ops else tensors)
            found.append([self._named(block, value) for value in taken] if store.refers else taken)
        return tuple(found)

    def _noted(self, store: Store, block: int, index: int, value: Any) -> tuple[Any, Any]:
        """Return a change by references from a block."""
        where = self._op(block, index) if store.is_of_ops else self.likeness.reference(block, index)
        return where, self._named(block, value) if store.refers else value

    def _apply(self, block: int, outcome: _Outcome) -> None:
        """Change what a known outcome has changed, seen from a block."""
        ops, likeness = self.likeness.ops, self.likeness
        for store, changes in zip(self.stores, outcome.changes, strict=True):
            for where, value in changes:
                if not store.is_of_ops:
                    index = likeness.referred(block, where)
                elif isinstance(where, int):
                    index = where
                else:
                    index = ops[block + where[0]][where[1]]
                store.put(index, self._meant(block, value) if store.refers else value)
        for one, left in zip(self.whole, outcome.whole, strict=True):
            one.clear()
            one.update(left)

    def _op(self, block: int, op: int) -> int | tuple[int, int]:
        """Return what names an op from a block: itself outside of all."""
        home = self.graph.ops[op].block
        return op if home < 0 else (home - block, self.likeness.op_places[op])

    def _named(self, block: int, value: Any) -> Any:
        """Return references to one tensor, or to several."""
        if isinstance(value, tuple):
            return tuple(self.likeness.reference(block, t) for t in value)
        return value if value is _MISSING else self.likeness.reference(block, value)

    def _meant(self, block: int, value: Any) -> Any:
        """Return the tensors that references name."""
        if isinstance(value, tuple):
            return tuple(self.likeness.referred(block, one) for one in value)
        return value if value is _MISSING else self.likeness.referred(block, value)
