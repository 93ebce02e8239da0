"""Experts spread over ranks: which work is theirs, which tensors they divide, and what is exchanged for them.

Legend: n experts, e ranks of an expert-parallel group, f = load of the busiest expert over the mean.

Model: ops with an "expert" split, and what lies between them, work on the rows of a rank's n/e experts: as many rows as
the rank itself routes, from all e ranks, as loads are even. Rows that such an op reads are dispatched to the ranks of
their experts, rows that another op reads of theirs are combined back: an all-to-all each, backward likewise. The
weights of rows (a number each) that such an op multiplies by go along, their gradients back. A rank holds a 1/e of the
experts' weights, of their casts and gradients. Of uneven loads the rank with the busiest expert decides when a layer
ends: all ranks compute and exchange its rows, which are (f + (n/e - 1) (n - f)/(n - 1)) e/n times the mean, since the
other experts share the rest evenly. Ignores the counts that ranks tell each other before.

Example:
    experts = spread_experts(graph, degree=4)
    experts.exchanged                          # tensor -> "dispatch" or "combine"
"""

from dataclasses import dataclass, field

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import Op, OperatorGraph, Split
from rostam_py.graph.vocabulary import FLOATING_DTYPES
from rostam_py.placement.experts.rows import ExpertRows
from rostam_py.plan.expert_groups import EXPERTS

DISPATCH, COMBINE = "dispatch", "combine"


@dataclass(frozen=True, kw_only=True)
class SpreadExperts:
    """The experts of all layers, spread over groups of ``degree`` ranks.

    divided: tensors of which a rank holds one ``degree``-th. ops: those that work on the rows of a rank's experts.
    exchanged: tensor -> "dispatch" or "combine", the all-to-all behind its producer. multiplied: of what is dispatched,
    what products read. received: rows that a rank has of all others until they are combined. layers: (module, n) of the
    ops with an expert split. busy: rows of the busiest rank over the mean. per_token: rows for each token, 0 where what
    is dispatched is gathered from no tokens. copied: dispatched rows that views show to all experts alike: a copy goes
    to every rank.
    """

    degree: int = 1
    divided: frozenset[int] = frozenset()
    ops: frozenset[int] = frozenset()
    exchanged: dict[int, str] = field(default_factory=dict)
    multiplied: frozenset[int] = frozenset()
    received: frozenset[int] = frozenset()
    layers: tuple[tuple[str, int], ...] = ()
    busy: float = 1.0
    group: str = EXPERTS
    per_token: float = 0.0
    copied: frozenset[int] = frozenset()

    def share(self, tensor: int) -> float:
        """Return the part of a tensor that one rank of a group holds: of the experts' weights its own."""
        return 1 / self.degree if tensor in self.divided else 1.0

    def work(self, op: Op) -> float:
        """Return an op's work over what the rank would do alone."""
        if op.id in self.ops:
            return self.busy
        return 1 / self.degree if self.divided and all(t in self.divided for t in op.outputs) else 1.0

    def spread(self, op: Op) -> int:
        """Return the ranks over which the experts are spread whose rows an op works on; 1 for another op."""
        return self.degree if op.id in self.ops else 1

    def rows_of(self, op: Op, tensor: int) -> float:
        """Return the rows that an op reads or writes of a tensor over those of even loads."""
        return self.busy if op.id in self.ops and tensor not in self.divided else 1.0

    def gathered(self, op: Op) -> float:
        """Return the bytes of rows that an op reads of a table over those of even loads."""
        return 1.0

    def bundle(self, tensor: int) -> tuple[int, ...]:
        """Return the tensors that go in one all-to-all with this one."""
        return (tensor,)

    def steps(self, tensor: int) -> tuple[tuple[str, str, float], ...]:
        """Return (group, collective, share of the bytes) of what takes an all-to-all's place, one behind the other."""
        return ()

    def ids_per_gradient(self, op: Op) -> float:
        """Return for how many ids an op adds up each gradient that it reads first; 0 of ops that are of no table."""
        return 0.0

    def sorted_ids(self, op: Op) -> tuple[float, int]:
        """Return the ids that are sorted in front of an op, for all tables at once, and how many they tell apart."""
        return 0.0, 0

    def sent(self, tensor: int) -> float:
        """Return what the busiest rank exchanges of a tensor over the tensor."""
        return self.busy * (self.degree if tensor in self.copied else 1)

    def updated(self, num_samples: float) -> dict[str, int]:
        """Return the parameters that an iteration of so many samples on a rank updates, where that is not all."""
        return {}

    def untouched(self, num_samples: float) -> int:
        """Return the parameters of which an iteration of so many samples on a rank makes no gradient."""
        return 0

    def kept_rows(self, tensor: int) -> float:
        """Return the rows of a tensor that a rank keeps over those of even loads: of combined ones its own."""
        return self.busy if tensor in self.received else 1.0

    def notes(self) -> list[str]:
        """Return what a reader of the plan should know."""
        if self.degree == 1:
            return []
        counts = sorted({n for _, n in self.layers})
        each = ", ".join(f"{n // self.degree} of {n}" for n in counts)
        found = [f"experts spread over ep={self.degree}: a rank holds {each} experts of a layer"]
        if self.busy != 1:
            found.append(
                f"uneven experts: every rank counts as the busiest, with {self.busy:.4g} times the mean number of rows"
            )
        return found


def spread_experts(graph: OperatorGraph, degree: int, tp_ways: dict[int, int] | None = None) -> SpreadExperts:
    """Return how a model's experts are spread over groups of ``degree`` ranks.

    Args: tp_ways: op -> ranks of a tp group that have spread its experts already.
    Raises: ConfigError for a model without experts that can be spread; DegreeError for experts that the degree does
        not divide.
    Cost: linear in ops.
    """
    if degree == 1:
        return SpreadExperts()
    finder = _Finder(graph)
    if not finder.splits:
        raise ConfigError(
            f"strategy.ep is {degree}, but {graph.name} has no experts that can be spread: none of its ops can be"
            " split by experts, as the grouped products of all experts can (torch._grouped_mm, Hugging Face's expert"
            " modules, rostam.register_op with a split of kind 'expert'). Set strategy.ep=1"
        )
    for op, split in finder.splits.items():
        count, ways = round(split.size.at(1)), (tp_ways or {}).get(op, 1)
        if count % (degree * ways):
            inside = f" x {ways} ways of strategy.tp" if ways > 1 else ""
            where = graph.ops[op].module or graph.name
            raise DegreeError(f"strategy.ep is {degree}{inside}; it must divide the {count} experts of {where}")
    return finder.run(degree)


def find_experts(graph: OperatorGraph) -> SpreadExperts:
    """Return a model's experts as one rank alone would hold them; no ops where it has none that can be spread."""
    finder = _Finder(graph)
    return finder.run(1) if finder.splits else SpreadExperts()


class _Finder:
    def __init__(self, graph: OperatorGraph) -> None:
        self.graph, self.roots = graph, graph.view_roots
        self.splits: dict[int, Split] = {}
        for op in graph.ops:
            of_experts = [split for split in op.splits if split.kind == "expert"]
            if of_experts:
                self.splits[op.id] = of_experts[0]
        self.rows = ExpertRows(graph, self.splits)
        self.readers: dict[int, list[Op]] = {}
        for op in (op for op in graph.ops if not op.is_metadata):
            for t in dict.fromkeys(self.roots[t] for t in op.inputs):
                self.readers.setdefault(t, []).append(op)

    def run(self, degree: int) -> SpreadExperts:
        region, divided = self.rows.ops, self.rows.weights
        exchanged = self._exchanged(region)
        made = {t for index in region for t in self.graph.ops[index].outputs if self._is_rows(t)}
        multiplied = {
            t
            for t, kind in exchanged.items()
            if kind == DISPATCH and any(op.id in region and op.role == "product" for op in self.readers[self.roots[t]])
        }
        received = {t for t in made | set(exchanged) if exchanged.get(t) != COMBINE}
        layers = {(self.graph.ops[i].module, round(s.size.at(1))): None for i, s in self.splits.items()}
        return SpreadExperts(
            degree=degree,
            divided=frozenset(self._with_copies(region, divided)),
            ops=frozenset(region),
            exchanged=exchanged,
            multiplied=frozenset(multiplied),
            received=frozenset(received),
            layers=tuple(layers),
            busy=self._busy(degree),
            per_token=self._per_token(exchanged),
            copied=self._copied(region, exchanged),
        )

    def _per_token(self, exchanged: dict[int, str]) -> float:
        """Return the rows of forward's dispatch over those that they are gathered from."""
        for t, kind in exchanged.items():
            maker = self._producer(t)
            if kind != DISPATCH or maker is None or maker.phase != "forward":
                continue
            rows = self.graph.tensors[t].shape[0].at(1)
            read = [self.graph.tensors[i] for i in maker.inputs if self._is_rows(i)]
            tokens = [one.shape[0].at(1) for one in read if len(one.shape) == len(self.graph.tensors[t].shape)]
            if tokens and rows > min(tokens):
                return float(rows / min(tokens))
        return 0.0

    def _with_copies(self, region: set[int], divided: set[int]) -> set[int]:
        """Return the weights with their views, casts and gradients."""
        found = set(divided)
        for op in self.graph.ops:
            values = [t for t in op.inputs if self.graph.tensors[t].dtype in FLOATING_DTYPES]
            is_derived = bool(values) and all(t in found for t in values)
            if op.id in region or is_derived:
                found.update(t for t in op.outputs if not self._has_batch(t))
        return found

    def _exchanged(self, region: set[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for index in sorted(region):
            op = self.graph.ops[index]
            for t in op.inputs:
                root, maker = self.roots[t], self._producer(t)
                is_inside = maker is not None and (maker.id in region or maker.phase != op.phase)
                if self._is_rows(root) and not is_inside:
                    found[root] = DISPATCH
            for t in op.outputs:
                outside = [u for u in self.readers.get(t, ()) if u.id not in region and u.phase == op.phase]
                if self._is_rows(t) and outside:
                    found[t] = COMBINE
        return found

    def _copied(self, region: set[int], exchanged: dict[int, str]) -> frozenset[int]:
        """Return what is dispatched and shown to experts by views with more entries."""
        found: set[int] = set()
        for t in (t for index in region for t in self.graph.ops[index].inputs):
            root, sizes = self.roots[t], self.graph.tensors
            is_larger = sizes[t].num_elements(1) > sizes[root].num_elements(1)
            if is_larger and exchanged.get(root) == DISPATCH:
                found.add(root)
        return frozenset(found)

    def _busy(self, degree: int) -> float:
        """Return the rows of the busiest rank over the mean, of the layer where that is most."""
        loads = self.graph.metadata.get("experts", {})
        load = loads.get("imbalance", 1.0) if loads.get("capacity_factor") is None else 1.0
        counts = {round(split.size.at(1)) for split in self.splits.values()}
        if load > min(counts):
            raise ConfigError(
                f"imbalance is {load}; it must be at most {min(counts)}: the busiest of {min(counts)} experts"
                " cannot have more than all rows"
            )
        return max(busiest_rank(n, degree, load) for n in counts)

    def _producer(self, tensor: int) -> Op | None:
        maker = self.graph.tensors[self.roots[tensor]].producer
        return None if maker is None else self.graph.ops[maker]

    def _is_rows(self, tensor: int) -> bool:
        return self._has_batch(tensor) and self.graph.tensors[tensor].dtype in FLOATING_DTYPES

    def _has_batch(self, tensor: int) -> bool:
        return any(dim.per_sample for dim in self.graph.tensors[tensor].shape)


def busiest_rank(num_experts: int, degree: int, imbalance: float) -> float:
    """Return the rows of the rank with the busiest expert over the mean of all ranks.

    Model: that expert has ``imbalance`` times the mean, all others share the rest evenly.
    """
    if num_experts == 1 or degree == 1:
        return 1.0
    own = num_experts // degree
    others = (num_experts - imbalance) / (num_experts - 1)
    return (imbalance + (own - 1) * others) / own
