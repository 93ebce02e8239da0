"""Raw traces: what one run of a tracing route saw at one batch size, before two runs are paired."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from rostam_py.errors import TracingError
from rostam_py.tracing.custom import find_op
from rostam_py.tracing.flops import count_flops


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a value inside ``RawOp.args`` and ``RawOp.kwargs``."""

    value: int


@dataclass(slots=True)
class RawValue:
    """A tensor of one trace. num_distinct: elements in memory (an expanded dimension counts once)."""

    shape: tuple[int, ...]
    dtype: str
    storage: int
    kind: str = "activation"
    name: str = ""
    producer: int | None = None
    num_distinct: int = 0


@dataclass(slots=True, kw_only=True)
class RawOp:
    """An operator call of one trace; ``outputs`` holds (position in the op's returns, value)."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    phase: str
    module: str | None
    sequence_number: int | None = None
    flops: float = 0.0
    region: int | None = None  # the checkpointed region it belongs to
    is_recomputed: bool = False  # it runs again in backward
    moved: tuple[float, float] | None = None  # bytes read and written, where the op was registered with them
    repeat: Any = None  # (repeat, iteration) it belongs to, where some iterations were left out


@dataclass
class RawTrace:
    """One run: ops in execution order over values, the loss, and the gradients by parameter name."""

    values: list[RawValue] = field(default_factory=list)
    ops: list[RawOp] = field(default_factory=list)
    loss: int = -1
    gradients: dict[str, list[int]] = field(default_factory=dict)
    num_checkpoints: int = 0
    unknown_flops: set[str] = field(default_factory=set)
    _matrices: set[int] = field(default_factory=set)  # parameter matrices, and views and casts of them

    def add_value(self, tensor: torch.Tensor, kind: str = "activation", name: str = "") -> int:
        """Record a tensor and return its id."""
        distinct = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            distinct *= int(size) if stride != 0 else 1
        self.values.append(
            RawValue(
                shape=tuple(int(s) for s in tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                storage=tensor.untyped_storage()._cdata,
                kind=kind,
                name=name,
                num_distinct=distinct,
            )
        )
        value = len(self.values) - 1
        if kind in ("parameter", "frozen") and tensor.dim() > 1:
            self._matrices.add(value)
        return value

    def add_op(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: "Call") -> list[int | None]:
        """Record an op whose tensors in ``args`` and ``kwargs`` are already Refs; return its output ids."""
        index = len(self.ops)
        outputs: list[tuple[int, int]] = []
        ids: list[int | None] = []
        for position, tensor in enumerate(call.outputs):
            if tensor is None:
                ids.append(None)
                continue
            value = self.add_value(tensor)
            self.values[value].producer = index
            outputs.append((position, value))
            ids.append(value)
        leaves = pytree.tree_leaves((args, kwargs))
        inputs = tuple(leaf.value for leaf in leaves if isinstance(leaf, Ref))
        custom = find_op(str(target))
        flops = count_flops(target, call.args, call.kwargs, call.result)
        if flops is None:
            self._check_unknown(target, inputs, call.module)
            self.unknown_flops.add(str(target))
        elif inputs and self._matrices.issuperset(inputs):
            self._matrices.update(value for _, value in outputs)
        self.ops.append(
            RawOp(
                target=target,
                args=args,
                kwargs=kwargs,
                inputs=inputs,
                outputs=tuple(outputs),
                phase=call.phase,
                module=call.module,
                sequence_number=call.sequence_number,
                flops=flops or 0.0,
                region=call.region,
                repeat=call.repeat,
                moved=None if custom is None else custom.count_bytes(call.args, call.kwargs, call.result),
            )
        )
        return ids

    def _check_unknown(self, target: Any, inputs: tuple[int, ...], module: str | None) -> None:
        """Refuse an op without a FLOP formula that reads a parameter matrix (MODEL 30)."""
        read = [self.values[value] for value in inputs if value in self._matrices]
        if read:
            named = next((v.name for v in read if v.name), f"one of shape {read[0].shape}")
            name = "::".join(str(target).split(".")[:2])
            raise TracingError(
                f"op {target} of module {module or '(root)'!r} reads the parameter {named} and has no FLOP formula: "
                f"register its cost by rostam.register_op({name!r}, flops=..., bytes=..., splits=...)"
            )


@dataclass(frozen=True)
class Call:
    """The concrete (fake) call behind a RawOp: real arguments, result, and where it happened."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    phase: str
    module: str | None
    sequence_number: int | None = None
    region: int | None = None
    repeat: Any = None

    @property
    def outputs(self) -> list[torch.Tensor | None]:
        """The result as a flat list; None where the op returned none."""
        if isinstance(self.result, torch.Tensor):
            return [self.result]
        if isinstance(self.result, (list, tuple)):
            return [item if isinstance(item, torch.Tensor) else None for item in self.result]
        return []
