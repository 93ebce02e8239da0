"""OperatorGraph: the immutable graph of operators that everything behind the tracer works on."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rostam_py.documents import refused
from rostam_py.errors import ConfigError
from rostam_py.graph.checks import check_graph
from rostam_py.graph.likeness import Likeness, likeness_of
from rostam_py.graph.ops import Op, Tensor
from rostam_py.graph.storage import read_graph, save_graph
from rostam_py.graph.vocabulary import WEIGHT_KINDS, WEIGHT_ROLES
from rostam_py.html import html_pairs
from rostam_py.units import format_count, format_size


@dataclass(frozen=True, repr=False)
class OperatorGraph:
    """A traced model: ops in a valid execution order (forward, then backward) over tensors.

    The optimizer step is not traced: costs add it from ``parameters`` and the chosen optimizer.

    name: model name. route: how it was traced, "joint" or "dispatch".
    default_optimizer / default_precision / sequence_length: what the model declares, may be "" / 0.
    block_names: module paths of the repeated blocks, in order (``Op.block`` indexes it).
    notes: remarks for readers (ops without FLOP formula, clean-up counts, fallbacks).
    """

    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    route: str = "joint"
    default_optimizer: str = "sgd"
    default_precision: str = "fp32"
    sequence_length: int = 0
    block_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_graph(self)

    @cached_property
    def parameters(self) -> tuple[Tensor, ...]:
        """The trained parameter tensors, each once (tied weights count once)."""
        return tuple(t for t in self.tensors if t.kind == "parameter")

    @cached_property
    def gradients(self) -> tuple[Tensor, ...]:
        """The final gradients of the parameters."""
        return tuple(t for t in self.tensors if t.kind == "gradient")

    @cached_property
    def gradient_tensors(self) -> frozenset[int]:
        """The tensors that hold summands of final gradients and nothing else: views and sums of them count."""
        found = set[int]()
        finals = {t.id for t in self.gradients}
        for op in reversed(self.ops):
            for t in op.outputs:
                users = [self.ops[user] for user in self.consumers[t]]
                is_passed = all((u.is_metadata or u.is_accumulation) and found.issuperset(u.outputs) for u in users)
                if is_passed and (users or t in finals):
                    found.add(t)
        return frozenset(found)

    @cached_property
    def frozen(self) -> tuple[Tensor, ...]:
        """The weights without a gradient (``requires_grad`` False), each once."""
        return tuple(t for t in self.tensors if t.kind == "frozen")

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """Trained and frozen weights, and buffers that act as one: what parallelism splits as its ops ask."""
        roots = self.view_roots
        operands = {roots[t] for op in self.ops if op.role in WEIGHT_ROLES and op.phase == "forward" for t in op.inputs}
        kinds = ("parameter", "frozen")
        return tuple(t for t in self.tensors if t.kind in kinds or (t.kind == "buffer" and t.id in operands))

    @cached_property
    def kept_inputs(self) -> tuple[Tensor, ...]:
        """The model's inputs that backward reads, themselves or through views: kept as activations are."""
        roots = self.view_roots
        read = {roots[t] for op in self.ops if op.phase == "backward" and not op.is_metadata for t in op.inputs}
        return tuple(t for t in self.tensors if t.kind == "input" and t.id in read)

    @property
    def num_parameters(self) -> int:
        """Number of trainable scalars."""
        return round(sum(t.num_elements(1) for t in self.parameters))

    @property
    def num_frozen_parameters(self) -> int:
        """Number of scalars of the weights that are not trained; buffers are not among them."""
        return round(sum(t.num_elements(1) for t in self.frozen))

    def flops(self, phase: str, batch: float = 1) -> float:
        """Return the FLOPs of a phase (a multiply-add counts as two) at ``batch`` samples.

        Raises: ConfigError for a batch that is not > 0.
        """
        _check_batch(batch)
        return sum(op.flops.at(batch) for op in self.ops if op.phase == phase)

    def forward_flops(self, batch: float = 1) -> float:
        """Return the FLOPs of the forward pass at ``batch`` samples."""
        return self.flops("forward", batch)

    def backward_flops(self, batch: float = 1) -> float:
        """Return the FLOPs of the backward pass at ``batch`` samples."""
        return self.flops("backward", batch)

    def saved_bytes(self, batch: float = 1) -> float:
        """Return the bytes of activations and inputs kept for backward, shared storage counted once.

        Raises: ConfigError for a batch that is not > 0.
        """
        _check_batch(batch)
        seen: dict[int, float] = {}
        for t in (*(t for t in self.tensors if t.is_saved and t.kind not in WEIGHT_KINDS), *self.kept_inputs):
            key = t.storage if t.storage >= 0 else -2 - t.id
            seen[key] = max(seen.get(key, 0.0), t.num_bytes(batch))
        return sum(seen.values())

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the ids of the ops that read it, in order."""
        users: list[list[int]] = [[] for _ in self.tensors]
        for op in self.ops:
            for tensor in dict.fromkeys(op.inputs):
                users[tensor].append(op.id)
        return tuple(tuple(u) for u in users)

    @cached_property
    def likeness(self) -> Likeness:
        """Which of the repeated blocks are alike."""
        return likeness_of(self.ops, self.tensors, self.consumers, self.block_names)

    @cached_property
    def view_roots(self) -> tuple[int, ...]:
        """For each tensor the tensor that a computing op made and of which it is a view, or itself."""
        roots = list(range(len(self.tensors)))
        for op in self.ops:
            if op.is_metadata and op.inputs:
                for output in op.outputs:
                    roots[output] = roots[op.inputs[0]]
        return tuple(roots)

    @cached_property
    def whole_views(self) -> tuple[tuple[int, int], ...]:
        """(source, view) of ops that only see one tensor otherwise, all of it, in order."""
        found = []
        for op in self.ops:
            if op.is_metadata and len(op.inputs) == 1 and len(op.outputs) == 1:
                source, view = self.tensors[op.inputs[0]], self.tensors[op.outputs[0]]
                if abs(source.num_bytes(2) - view.num_bytes(2)) < 1:
                    found.append((source.id, view.id))
        return tuple(found)

    @cached_property
    def regions(self) -> tuple[int, ...]:
        """As ``view_roots``, but a view of a part (slice, split, select) is a region of its own."""
        regions = list(range(len(self.tensors)))
        for op in self.ops:
            if op.is_metadata and op.inputs:
                whole = self.tensors[op.inputs[0]].num_elements(1)
                for output in op.outputs:
                    if self.tensors[output].num_elements(1) >= whole:
                        regions[output] = regions[op.inputs[0]]
        return tuple(regions)

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        """Root tensor -> the computing ops that read it or a view of it, in order."""
        found: dict[int, dict[int, None]] = {}
        for op in self.ops:
            if not op.is_metadata:
                for t in op.inputs:
                    found.setdefault(self.view_roots[t], {})[op.id] = None
        return {root: tuple(ops) for root, ops in found.items()}

    def __repr__(self) -> str:
        return f"OperatorGraph({self.name!r}, {len(self.ops):,} ops, {format_count(self.num_parameters)} parameters)"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: sizes and work of one sample."""
        pairs = {
            "parameters": format_count(self.num_parameters),
            "frozen parameters": format_count(self.num_frozen_parameters) if self.frozen else None,
            "forward": f"{format_count(self.forward_flops())}FLOP a sample",
            "backward": f"{format_count(self.backward_flops())}FLOP a sample",
            "activations": f"{format_size(self.saved_bytes())} kept for backward, one sample",
            "ops": f"{len(self.ops):,} ({self.route} route)",
            "repeated blocks": f"{len(self.block_names):,}" if self.block_names else None,
            "sequence length": f"{self.sequence_length:,} tokens" if self.sequence_length else None,
        }
        return html_pairs(self.name, pairs)

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON (gzip if the path ends in .gz); readable without torch."""
        save_graph(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "OperatorGraph":
        """Read a graph that ``save`` wrote.

        Raises: ConfigError for a damaged file, with the place, or one of an unknown version.
        """
        fields = read_graph(path)
        with refused(f"{path} is a damaged operator graph"):
            return cls(**fields)


def _check_batch(batch: float) -> None:
    if not 0 < batch < math.inf:
        raise ConfigError(f"batch is {batch!r}; it must be a number of samples > 0")
