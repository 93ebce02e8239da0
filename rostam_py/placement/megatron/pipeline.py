"""Pipeline cuts: which stage runs every op, and which tensors cross which boundary (MODEL D13).

Model: the forward ops in execution order are cut into ``pp`` runs so that the slowest stage is as fast
as possible, by dynamic programming over candidate cuts: between repeated blocks, or, in a graph without
enough of them, where the fewest live bytes cross. A backward op belongs to the stage of its forward op;
an add that accumulates gradients to the lowest stage among its inputs, so that one tensor flows on.
Views, and what each stage derives for itself from inputs and constants, never cross a boundary.

A device may hold several chunks of layers: then stages here are virtual ones, stage k on device k mod p, or, of two
chunks in a V, on device k and, of the way back, 2 p - 1 - k; cuts move on until no move of a piece makes the slowest
device faster.

``stage_blocks`` cuts by numbers instead: as many repeated blocks in each stage (get_num_layers_to_build in
megatron/core/transformer/transformer_block.py of NVIDIA/Megatron-LM); ``layout`` says the number of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rostam_py.errors import ConfigError, DegreeError, InternalError
from rostam_py.graph import Affine, Op, OperatorGraph
from rostam_py.placement.megatron.chunk_balance import balance_devices, devices_of
from rostam_py.plan.layer_layout import LayerLayout
from rostam_py.plan.program_rules import BALANCED, EVEN_WITH_ENDS

_MAX_CANDIDATES = 512
_CROSSING_STEPS = 16  # of the most bytes that any cut moves
_EARLY = 0.25  # by how much more than the last stage's the first stage's work counts among equally slow pipelines


@dataclass(slots=True)
class StageAssignment:
    """Where everything runs.

    devices: of every stage its device; those of one pipeline hold equally many stages each.
    op_stages: per op its stage; views and locally derived ops hold the stage of their first user.
    is_local: per tensor, available on every stage without communication (inputs, parameters, masks, position tables).
    roots: per tensor the tensor it is a view of, which is what crosses boundaries.
    up, down: per stage the root tensors that leave it for the next (forward) and for the previous stage
        (backward), in the order in which they are computed.
    parameter_stages: parameter name -> stages that hold it.
    tied_gradients: parameter name -> {stage: the gradients that stage contributes}.
    skipped: accumulation ops that the all-reduce of tied gradients replaces.
    """

    devices: tuple[int, ...]
    op_stages: list[int]
    is_local: list[bool]
    roots: list[int]
    up: list[list[int]] = field(default_factory=list)
    down: list[list[int]] = field(default_factory=list)
    parameter_stages: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tied_gradients: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline, virtual ones."""
        return len(self.devices)

    @property
    def num_devices(self) -> int:
        """Devices of the pipeline."""
        return max(self.devices) + 1

    def chunks(self, device: int) -> tuple[int, ...]:
        """Return the stages that a device holds, ascending."""
        return tuple(stage for stage, own in enumerate(self.devices) if own == device)

    def holders(self, parameter: str) -> tuple[int, ...]:
        """Return the devices that hold a parameter, ascending."""
        return tuple(sorted({self.devices[stage] for stage in self.parameter_stages[parameter]}))


def assign_stages(
    graph: OperatorGraph,
    num_devices: int,
    weights: Sequence[float],
    batch: float,
    collected: frozenset[int] = frozenset(),
    num_chunks: int = 1,
    stage_blocks: str = BALANCED,
    is_v: bool = False,
    layout: LayerLayout | None = None,
) -> StageAssignment:
    """Cut the graph into stages.

    Args: num_devices: of the pipeline. weights: seconds of every op on one device. batch: samples of a micro-batch.
        collected: tensors that a collective makes whole; views do not stand in for one another across it.
        num_chunks: stages on each device. stage_blocks: of STAGE_BLOCKS. is_v: the stages lie in a V. layout: how many
        blocks each stage has, in place of stage_blocks.
    Raises: DegreeError if the graph has fewer pieces than stages; ConfigError if they do not divide its blocks.
    """
    is_local, roots = _local_tensors(graph), _view_roots(graph, collected)
    devices = tuple(devices_of(num_devices * num_chunks, num_devices, is_v).tolist())
    result = StageAssignment(devices, [0] * len(graph.ops), is_local, roots)
    if result.num_stages == 1:
        result.up, result.down = [[]], [[]]
        result.parameter_stages = {t.name: (0,) for t in graph.parameters}
        return result
    sequence = _forward_sequence(graph, result)
    if layout is not None:
        bounds = _given_cuts(graph, sequence, layout)
    elif stage_blocks == BALANCED:
        bounds = _balanced_cuts(graph, result, sequence, weights, batch)
    else:
        bounds = _even_cuts(graph, sequence, result, stage_blocks)
    _assign_forward(graph, result, sequence, bounds)
    _assign_backward(graph, result)
    _find_parameter_stages(graph, result)
    _find_tied_gradients(graph, result)
    _find_crossings(graph, result)
    return result


def _local_tensors(graph: OperatorGraph) -> list[bool]:
    """Return per tensor whether every stage has it, or can derive it, without communication.

    Model: what is computed from constants and buffers alone, such as the cosines and sines of positions, is made once
        and held by each stage that reads it; the first of them runs it.
    """
    local = [t.producer is None and t.kind != "gradient" for t in graph.tensors]
    weights = {t.id for t in graph.weights}
    from_parameter = [t.id in weights for t in graph.tensors]
    is_table = [t.producer is None and t.kind in ("constant", "buffer") for t in graph.tensors]
    for op in graph.ops:
        if op.phase != "forward" or not all(local[t] for t in op.inputs):
            continue
        uses_parameter = any(from_parameter[t] for t in op.inputs)
        makes_table = all(is_table[t] for t in op.inputs) and not _is_per_sample(graph, op)
        is_free = not uses_parameter and op.flops == Affine()
        if op.is_metadata or makes_table or is_free:
            for t in op.outputs:
                local[t], from_parameter[t], is_table[t] = True, uses_parameter, makes_table
    return local


def _is_per_sample(graph: OperatorGraph, op: Op) -> bool:
    return any(dim.per_sample for t in op.outputs for dim in graph.tensors[t].shape)


def _view_roots(graph: OperatorGraph, collected: frozenset[int]) -> list[int]:
    """Return per tensor the tensor of the same size that it is a view of."""
    roots = list(range(len(graph.tensors)))
    for source, view in graph.whole_views:
        if view not in collected:
            roots[view] = roots[source]
    return roots


# Forward: cut the op sequence


def _forward_sequence(graph: OperatorGraph, result: StageAssignment) -> list[Op]:
    """Return the forward ops that a stage runs, in order: all but what each derives for itself."""
    forward = (op for op in graph.ops if op.phase == "forward")
    return [op for op in forward if not all(result.is_local[t] for t in op.outputs)]


def _balanced_cuts(
    graph: OperatorGraph, result: StageAssignment, sequence: list[Op], weights: Sequence[float], batch: float
) -> list[int]:
    """Return the positions at which stages begin, but for the first, so that the slowest device is fastest."""
    live = _live_bytes(graph, sequence, result, batch)
    cuts = _candidate_cuts(graph, sequence, live, result)
    seconds = _work_by_forward_op(graph, sequence, weights)
    bounds = _best_cuts(seconds, cuts, [live[c] for c in cuts], result.num_stages)
    if result.num_stages > result.num_devices:
        bounds = balance_devices(seconds, cuts, bounds, np.array(result.devices))
    return bounds


def _assign_forward(graph: OperatorGraph, result: StageAssignment, sequence: list[Op], bounds: list[int]) -> None:
    stage = 0
    for position, op in enumerate(sequence):
        while stage < len(bounds) and position >= bounds[stage]:
            stage += 1
        result.op_stages[op.id] = stage
    run = {op.id for op in sequence}
    for op in reversed(graph.ops):
        if op.phase == "forward" and op.id not in run:
            users = [
                result.op_stages[u] for t in op.outputs for u in graph.consumers[t] if graph.ops[u].phase == "forward"
            ]
            result.op_stages[op.id] = min(users, default=0)


def _even_cuts(graph: OperatorGraph, sequence: list[Op], result: StageAssignment, stage_blocks: str) -> list[int]:
    """Return the positions at which stages of equally many blocks begin, but for the first."""
    begins, behind = _block_places(sequence)
    ends = 1 if stage_blocks == EVEN_WITH_ENDS else 0
    each, left = divmod(len(begins) + 2 * ends, result.num_stages)
    if left or not each or not begins:
        counted = f"{len(begins)} blocks" + (", the model's two ends as one each" if ends and begins else "")
        raise ConfigError(
            f"software.rules.stage_blocks is {stage_blocks!r}, but {graph.name!r} has {counted}, for"
            f" {result.num_stages} stages (strategy.pp x strategy.virtual_stages), which must divide them; {BALANCED!r}"
            " takes any number"
        )
    begins.append(behind)
    return [begins[stage * each - ends] for stage in range(1, result.num_stages)]


def _given_cuts(graph: OperatorGraph, sequence: list[Op], layout: LayerLayout) -> list[int]:
    """Return the positions at which stages of so many blocks begin, but for the first."""
    begins, behind = _block_places(sequence)
    if sum(layout.blocks) != len(begins):
        raise ConfigError(
            f"strategy.placing.layers has {sum(layout.blocks)} blocks in {layout.num_chunks} chunks, but {graph.name!r}"
            f" has {len(begins)} blocks"
        )
    return layout.starts(begins, behind, len(sequence))


def _block_places(sequence: list[Op]) -> tuple[list[int], int]:
    """Return the positions at which repeated blocks begin, and that of what is behind the last one."""
    places = [i for i, op in enumerate(sequence) if op.block >= 0]
    begins = [i for i in places if i == places[0] or sequence[i].block != sequence[i - 1].block]
    return begins, places[-1] + 1 if places else len(sequence)


def _live_bytes(graph: OperatorGraph, sequence: list[Op], result: StageAssignment, batch: float) -> list[float]:
    """Return the bytes alive just before each position of the sequence."""
    place = {op.id: i for i, op in enumerate(sequence)}
    delta = np.zeros(len(sequence) + 1)
    last: dict[int, int] = {}
    for op in sequence:
        for t in op.inputs:
            if not result.is_local[t]:
                last[result.roots[t]] = place[op.id]
    for root, end in last.items():
        producer = graph.tensors[root].producer
        if producer in place:
            size = graph.tensors[root].num_bytes(batch)
            delta[place[producer] + 1] += size
            delta[end + 1 if end < len(sequence) else end] -= size
    return [float(size) for size in np.cumsum(delta)[: len(sequence)]]


def _candidate_cuts(graph: OperatorGraph, sequence: list[Op], live: list[float], result: StageAssignment) -> list[int]:
    """Return the positions before which a stage may begin."""
    num_stages = result.num_stages
    cuts = [i for i in range(1, len(sequence)) if sequence[i].block != sequence[i - 1].block]
    if len(cuts) >= num_stages - 1:
        return cuts
    fine = [
        i
        for i in range(1, len(sequence))
        if not sequence[i].is_metadata and not sequence[i].is_elementwise
        and live[i] <= min(live[i - 1] if i > 1 else np.inf, live[i + 1] if i + 1 < len(live) else np.inf) * 1.000001
    ]  # fmt: skip
    cuts = sorted(set(cuts) | set(fine))
    if len(cuts) < num_stages - 1:
        chunks, most = num_stages // result.num_devices, len(cuts) + 1
        said, allowed = f"strategy.pp is {result.num_devices}", f"it must be in 1 to {most}"
        if chunks > 1:
            said += f", each of strategy.virtual_stages = {chunks} chunks"
            few, shallow = most // result.num_devices, most // chunks
            allowed = f"strategy.virtual_stages must be in 1 to {few}" if few else f"strategy.{allowed}"
            allowed += f", or strategy.pp in 2 to {shallow}" if few and shallow > 1 else ""
        raise DegreeError(f"{said}, but {graph.name!r} can be cut into at most {most} stages; {allowed}")
    if len(cuts) > max(_MAX_CANDIDATES, 2 * num_stages):
        keep = max(_MAX_CANDIDATES, 2 * num_stages)
        cuts = sorted(sorted(cuts, key=lambda i: (live[i], i))[:keep])
    return cuts


def _work_by_forward_op(graph: OperatorGraph, sequence: list[Op], weights: Sequence[float]) -> np.ndarray:
    """Return the seconds of each op of the sequence, its backward ops included."""
    place = {op.id: i for i, op in enumerate(sequence)}
    seconds = np.array([weights[op.id] for op in sequence], dtype=float)
    for op in graph.ops:
        if op.phase == "backward" and op.forward_op in place:
            seconds[place[op.forward_op]] += weights[op.id]
    return seconds


def _best_cuts(seconds: np.ndarray, cuts: list[int], live: list[float], num_stages: int) -> list[int]:
    """Return the cuts that make the slowest stage fastest; among equals, fewest live bytes, then the most even ones.

    Model: live bytes count in sixteenths of the most, so that a mask or two that travel along decide nothing. Even is
        what has the least sum of squares: neighbours that are both near the slowest wait for each other's messages.
        Early stages, where more micro-batches are under way, count up to a quarter more.
    Cost: stages x candidates^2, vectorised over the candidates.
    """
    ends = [0, *cuts, len(seconds)]
    prefix = np.concatenate([[0.0], np.cumsum(seconds)])[ends]
    quantum = max(prefix[-1], 1e-30) * 1e-9  # stages closer than this are equal
    crossing = np.concatenate([[0.0], np.ceil(np.array(live, dtype=float) * _CROSSING_STEPS / max(*live, 1.0)), [0.0]])
    n = len(ends)
    work = np.round((prefix[:, None] - prefix) / quantum)  # by end of a stage, end of the one before
    work[~np.tri(n, k=-1, dtype=bool)] = np.inf
    slowest = np.full(n, np.inf)
    slowest[0] = 0.0
    for _ in range(num_stages):
        slowest = np.maximum(slowest, work).min(axis=1)
    work[work > slowest[-1]] = np.inf
    moved, squares = np.full(n, np.inf), np.full(n, np.inf)
    moved[0] = squares[0] = 0.0
    choice = np.zeros((num_stages + 1, n), dtype=int)
    for k in range(1, num_stages + 1):
        bytes_moved = np.where(np.isfinite(work), moved + crossing[:, None], np.inf)
        moved = bytes_moved.min(axis=1)
        weight = 1 + _EARLY * (num_stages - k) / num_stages
        summed = np.where(bytes_moved == moved[:, None], squares + weight * work**2, np.inf)
        choice[k], squares = summed.argmin(axis=1), summed.min(axis=1)
    path, j = [], n - 1
    for k in range(num_stages, 1, -1):
        j = int(choice[k, j])
        path.append(ends[j])
    return path[::-1]


# Backward


def _assign_backward(graph: OperatorGraph, result: StageAssignment) -> None:
    stages = result.op_stages
    for op in graph.ops:
        if op.phase != "backward":
            continue
        producers = [graph.tensors[t].producer for t in op.inputs if not result.is_local[t]]
        backward = [stages[p] for p in producers if p is not None and graph.ops[p].phase == "backward"]
        forward = [stages[p] for p in producers if p is not None and graph.ops[p].phase == "forward"]
        lowest = min(backward, default=result.num_stages - 1)
        if op.is_accumulation or op.forward_op is None:
            stages[op.id] = lowest if backward else max(forward, default=lowest)
        else:
            stages[op.id] = min(lowest, stages[op.forward_op])


def _find_parameter_stages(graph: OperatorGraph, result: StageAssignment) -> None:
    """Record the stages whose ops read each parameter, through its views."""
    source = {t.id: {t.name} for t in graph.parameters}
    found: dict[str, set[int]] = {t.name: set() for t in graph.parameters}
    for op in graph.ops:
        read = [source[t] for t in op.inputs if t in source] if op.phase == "forward" else ()
        if not read:
            continue
        names = set().union(*read)
        if op.is_metadata:
            for t in op.outputs:
                source[t] = names
            continue
        for name in names:
            found[name].add(result.op_stages[op.id])
    result.parameter_stages = {name: tuple(sorted(s)) or (0,) for name, s in found.items()}


def _find_tied_gradients(graph: OperatorGraph, result: StageAssignment) -> None:
    """Split the gradient sums of parameters that several stages hold into one part a stage."""
    for t in graph.tensors:
        stages = result.parameter_stages.get(t.name, ()) if t.kind == "gradient" else ()
        if len(stages) < 2 or t.producer is None:
            continue
        leaves, adds = _sum_leaves(graph, t.id)
        parts: dict[int, list[int]] = {s: [] for s in stages}
        for leaf in leaves:
            parts.setdefault(_producer_stage(graph, result, leaf), []).append(leaf)
        result.tied_gradients[t.name] = parts
        result.skipped |= adds


def _sum_leaves(graph: OperatorGraph, tensor: int) -> tuple[list[int], set[int]]:
    """Return the summands of a gradient and the ops that add them (views in between included)."""
    pending, leaves = [tensor], list[int]()
    adds: set[int] = set()
    while pending:
        current = pending.pop()
        ops, t = list[Op](), current
        while True:
            producer = graph.tensors[t].producer
            op = None if producer is None else graph.ops[producer]
            if op is None or op.phase != "backward" or not (op.is_metadata or op.is_accumulation):
                break
            if op.is_accumulation:
                adds.update(o.id for o in [*ops, op])
                pending += op.inputs
                break
            ops.append(op)
            t = op.inputs[0]
        if op is None or not op.is_accumulation:
            leaves.append(current)
    return leaves[::-1], adds


def _producer_stage(graph: OperatorGraph, result: StageAssignment, tensor: int) -> int:
    producer = graph.tensors[result.roots[tensor]].producer
    return 0 if producer is None else result.op_stages[producer]


def _find_crossings(graph: OperatorGraph, result: StageAssignment) -> None:
    """List what leaves each stage: upwards in forward, downwards in backward, neighbour to neighbour."""
    reach = _farthest_users(graph, result)
    result.up = [[] for _ in range(result.num_stages)]
    result.down = [[] for _ in range(result.num_stages)]
    crossing = [t for t, target in reach.items() if target != result.op_stages[_producer_of(graph, t)]]
    for root in sorted(crossing, key=lambda t: (_producer_of(graph, t), t)):  # the order in which they are sent
        target = reach[root]
        maker = graph.ops[_producer_of(graph, root)]
        start = result.op_stages[maker.id]
        if maker.phase == "forward":
            for s in range(start, target):
                result.up[s].append(root)
        elif target > start:
            raise InternalError(f"gradient {root} of {maker.name!r} flows up from stage {start} to {target}")
        else:
            for s in range(start, target, -1):
                result.down[s].append(root)


def _producer_of(graph: OperatorGraph, tensor: int) -> int:
    producer = graph.tensors[tensor].producer
    if producer is None:
        raise InternalError(f"tensor {tensor} crosses a boundary, but nothing computes it")
    return producer


def _farthest_users(graph: OperatorGraph, result: StageAssignment) -> dict[int, int]:
    """Return root tensor -> the farthest stage that reads it: upwards in forward, downwards in backward."""
    reach: dict[int, int] = {}
    for op in graph.ops:
        is_view = op.is_metadata and len(op.inputs) == 1 and result.roots[op.outputs[0]] != op.outputs[0]
        if op.id in result.skipped or is_view:
            continue
        target = result.op_stages[op.id]
        for t in op.inputs:
            root = result.roots[t]
            producer = graph.tensors[root].producer
            if result.is_local[t] or producer is None:
                continue
            farther = max if graph.ops[producer].phase == "forward" else min
            reach[root] = farther(reach.get(root, target), target)
    return reach
