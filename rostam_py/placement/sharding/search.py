"""The forward pass split for least time: a shortest path over its ops, each repeated block solved once (MODEL D13).

A hypothesis holds the states of all live tensors and the seconds so far; hypotheses with equal states merge. An op runs
whole, takes one of its splits, passes partial sums on, or runs whole inside a region: the gradient that reaches
it is then a summand of each member's, as that of a key head is that several members read. Backward is not walked; every
choice is charged its own: products run twice more, and a tensor that enters split work whole has its gradient
all-reduced once for all its readers in a block (Megatron's conjugate operators f and g).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rostam_py.errors import InternalError
from rostam_py.graph import PARTIAL, WHOLE, Op
from rostam_py.graph.likeness import runs_of
from rostam_py.placement.sharding.choices import REGION, Change, Choices, Decision, Hypothesis, Path
from rostam_py.placement.sharding.costs import NotionalCosts
from rostam_py.placement.sharding.facts import ForwardFacts
from rostam_py.placement.sharding.layouts import FREE, Shard, State
from rostam_py.placement.sharding.readers import Readers
from rostam_py.placement.sharding.space import Space

_BEAM = 48  # hypotheses kept, a choice for speed


class _Run(NamedTuple):
    """A run of ops. kind: equal ones have the same. externals: what it reads. outs: tensors that live on behind it."""

    kind: int
    externals: list[int]
    outs: list[int]


class ForwardSearch:
    """Find the decisions of all forward ops on one level. ``run`` returns op id -> Decision.

    Args: whole: ops that may only run whole.
    """

    def __init__(self, space: Space, costs: NotionalCosts, whole: frozenset[int] = frozenset()) -> None:
        self.space, self.costs, self.graph, self.is_whole = space, costs, space.graph, whole
        self.facts = ForwardFacts(space)
        self.ops, self.last_use = self.facts.ops, self.facts.last_use
        self.readers = Readers(space)
        self.readers.ask_pieces()
        self.choices = Choices(space, costs, self.facts, self.readers, whole)
        self._interned: dict[object, int] = {}
        self._split_ids: dict[int, int] = {}
        self._kinds: dict[object, int] = {}
        self._runs: dict[int, _Run] = {}  # by first op
        self._solved: dict[object, list[tuple[float, tuple[Decision, ...], list[State], list[bool]]]] = {}

    def run(self) -> dict[int, Decision]:
        """Return the decisions; a weight enters hypotheses where an op first reads it."""
        front = [Hypothesis(0.0, {})]
        runs = runs_of(self.ops)
        for run in runs:
            behind = [h for start in front for h in self._through(run, start)]
            front = self._pruned([h for h in behind if REGION not in h.states.values()] or behind, run[-1].id)
        path = min(front, key=lambda h: h.cost).path
        found: dict[int, Decision] = {}
        for run in reversed(runs):
            if path is None:
                raise InternalError("the search has fewer decisions than the graph has runs of ops")
            found.update((op.id, d) for op, d in zip(run, path.decisions, strict=True))
            path = path.before
        return found

    # Runs of ops and what is known of equal ones

    def _through(self, run: Sequence[Op], start: Hypothesis) -> list[Hypothesis]:
        """Return the hypotheses behind a run; equal runs from equal states are solved once."""
        about = self._about(run)
        externals, outs = about.externals, about.outs
        begun = {**dict.fromkeys((t for t in externals if t in self.space.origin), FREE), **start.states}
        key = (about.kind, *((begun.get(t, WHOLE), t in start.gathered) for t in externals))
        if key not in self._solved:
            read = {t: begun[t] for t in externals if t in begun}  # no other state matters inside
            begin = Hypothesis(0.0, read, start.gathered)
            self._solved[key] = [
                (h.cost, h.decisions, [h.states.get(t, WHOLE) for t in outs], [t in h.gathered for t in outs])
                for h in self._solve(run, begin)
            ]
        made = []
        for cost, decisions, states, gathered in self._solved[key]:
            new = dict(begun)
            for t in externals:
                if self.last_use[t] <= run[-1].id:
                    new.pop(t, None)
            new.update(zip(outs, states, strict=True))
            whole = start.gathered.difference(externals) | {t for t, g in zip(outs, gathered, strict=True) if g}
            made.append(Hypothesis(start.cost + cost, new, frozenset(whole), path=Path(start.path, decisions)))
        return made

    def _about(self, run: Sequence[Op]) -> _Run:
        """Return what of a run does not depend on the hypothesis it starts from."""
        if run[0].id in self._runs:
            return self._runs[run[0].id]
        local: dict[int, int] = {}
        externals: dict[int, int] = {}
        outside: dict[int, int] = {}
        shape: list[object] = []
        end = run[-1].id
        for op in run:
            refs = []
            for t in op.inputs:
                if t in local:
                    refs.append(local[t])
                    continue
                if t not in externals:
                    externals[t] = len(externals)
                    chain = self.space.origin.get(t)
                    owner = t if chain is None else chain[0]
                    outside.setdefault(owner, len(outside))
                    about = (t in self.facts.needs_gradient, owner in self.space.origin, self.last_use[owner] > end,
                             t in self.facts.from_input, outside[owner], self.space.shape_ids[t],
                             () if chain is None else tuple(self._split_id(o) for o, _ in chain[1]))  # fmt: skip
                    shape.append(about)
                refs.append(-1 - externals[t])
            above = tuple(level.axes[op.id] for level in self.space.above)
            shape.append(
                (
                    op.op_type,
                    self._split_id(op),
                    tuple(refs),
                    op.is_metadata,
                    op.flops,
                    len(op.outputs),
                    above,
                    op.id in self.is_whole,
                )
            )
            for t in op.outputs:
                local[t] = len(local)
        outs = [t for t in outside if self.last_use[t] > end]
        outs += [t for t in local if self.last_use[t] > end]
        shape.append(tuple(local.get(t, -1) for t in outs))
        kind = self._kinds.setdefault(tuple(shape), len(self._kinds))
        found = self._runs[run[0].id] = _Run(kind, list(outside), outs)
        return found

    def _split_id(self, op: Op) -> int:
        if id(op.splits) not in self._split_ids:
            self._split_ids[id(op.splits)] = self._interned.setdefault(op.splits, len(self._interned))
        return self._split_ids[id(op.splits)]

    def _solve(self, run: Sequence[Op], start: Hypothesis) -> list[Hypothesis]:
        front = [start]
        for op in run:
            front = self._pruned(
                [self._changed(h, op, *choice) for h in front for choice in self.choices.of(op, h)], op.id
            )
        return front

    def _changed(self, before: Hypothesis, op: Op, decision: Decision, change: Change) -> Hypothesis:
        states = {**before.states, **change.states}
        for t in op.inputs:
            for dead in (t, self.space.origin[t][0] if t in self.space.origin else t):
                if self.last_use[dead] <= op.id:
                    states.pop(dead, None)
        return Hypothesis(
            before.cost + change.cost, states, before.gathered | change.gathered, before.charged | change.charged,
            before.path, (*before.decisions, decision),
        )  # fmt: skip

    def _pruned(self, front: list[Hypothesis], done: int) -> list[Hypothesis]:
        """Return the best hypothesis of each set of live states, the best of all first, at most _BEAM.

        One that costs no less than the best of all with its states converted is of no use.
        """
        best: dict[object, Hypothesis] = {}
        first: Hypothesis | None = None
        last_use = self.last_use
        for h in sorted(front, key=lambda h: h.cost):
            live = frozenset([(t, s) for t, s in h.states.items() if s is not WHOLE and last_use[t] > done])
            gathered = frozenset([t for t in h.gathered if last_use[t] > done])
            charged = frozenset([t for t in h.charged if last_use[t] > done])
            key = (live, gathered, charged)
            if key in best:
                continue
            if first is None:
                first, of_first = h, key
            elif h.cost >= first.cost + self._distance_s(of_first, key):
                continue
            best[key] = h
            if len(best) == _BEAM:
                break
        return list(best.values())

    def _distance_s(self, have: Any, want: Any) -> float:
        """Return the most it costs to go on from one set of live states as if from another."""
        states, wanted = dict(have[0]), dict(want[0])
        total = 0.0
        for t in {t for t, _ in have[0] ^ want[0]}:
            if t in self.space.origin:
                return math.inf
            a, b, size = states.get(t, WHOLE), wanted.get(t, WHOLE), self.space.bytes[t]
            if a == PARTIAL or b == REGION:
                total += self.costs.collective_s("all_reduce", size)
            if isinstance(a, Shard) or isinstance(b, Shard):
                total += self.costs.collective_s("all_gather", size) * (isinstance(a, Shard) + isinstance(b, Shard))
        total += sum(self.costs.collective_s("all_gather", self.space.bytes[t]) for t in want[1] - have[1])
        return total + sum(self.costs.collective_s("all_reduce", self.space.bytes[t]) for t in want[2] - have[2])
