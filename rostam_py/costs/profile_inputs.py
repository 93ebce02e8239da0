"""Real inputs for a traced op: the ATen call rebuilt from ``Op.arguments`` with random tensors.

Layouts matter: a tensor that the trace reached through views (a transposed weight, a split of the
query-key-value product) is rebuilt by running the same views on a tensor of the owner's shape.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rostam_py.costs.families import MATRIX_FAMILIES, op_family
from rostam_py.costs.profile_neutral import neutral_call
from rostam_py.costs.table import owner_of, view_chain
from rostam_py.errors import ConfigError
from rostam_py.graph import Op, OperatorGraph, Tensor
from rostam_py.graph.vocabulary import FLOATING_DTYPES

_IGNORED_KEYWORDS = ("layout", "pin_memory", "device")
_CAST = {"bf16_mixed": "bfloat16", "fp16_mixed": "float16"}


@dataclass(frozen=True, slots=True)
class RebuiltCall:
    """A call ready to be timed.

    function, args, kwargs: the ATen overload and its arguments. owners: the tensors that own the
        inputs' memory, in ``Op.inputs`` order. is_recent: for each owner, whether the step wrote it
        shortly before this op, so that a cache may still hold it.
    """

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    owners: list[Any]
    is_recent: list[bool]

    def run(self) -> Any:
        """Run the op once and return its outputs."""
        return self.function(*self.args, **self.kwargs)


class CallBuilder:
    """Rebuild calls of one graph at one batch on one device."""

    def __init__(self, graph: OperatorGraph, batch: int, device: str, precision: str = "fp32") -> None:
        import torch

        self._torch = torch
        self._graph = graph
        self._batch = batch
        self._device = device
        self._precision = precision
        self._generator = torch.Generator(device=device).manual_seed(0)

    def build(self, op: Op) -> RebuiltCall:
        """Return ``op`` as a call on fresh random inputs.

        Raises: ConfigError if the op has no recorded arguments or torch does not know it.
        """
        if op.arguments is None:
            raise ConfigError(f"op {op.name!r} ({op.op_type}) has no recorded arguments")
        made: dict[int, tuple[Any, Any]] = {}
        for index in op.inputs:
            if index not in made:
                made[index] = self._tensor(op, self._graph.tensors[index])
        views = [made[index][0] for index in op.inputs]
        args = self._value(op.arguments["args"], views)
        kwargs = self._keywords(op, views)
        if not op.inputs:
            kwargs["device"] = self._device
        recent = [self._is_recent(op, self._graph.tensors[index]) for index in made]
        return RebuiltCall(self._function(op.op_type), args, kwargs, [owner for _, owner in made.values()], recent)

    def _function(self, op_type: str) -> Callable[..., Any]:
        neutral = neutral_call(op_type)
        if neutral is not None:
            return neutral
        namespace, _, rest = op_type.partition(".")
        name, _, overload = rest.partition(".")
        try:
            return getattr(getattr(getattr(self._torch.ops, namespace), name), overload or "default")
        except AttributeError as error:
            raise ConfigError(f"torch {self._torch.__version__} has no op {op_type}") from error

    def _tensor(self, op: Op, tensor: Tensor) -> tuple[Any, Any]:
        """Return (the tensor as the op sees it, the tensor that owns its memory)."""
        chain = view_chain(self._graph, tensor)
        if chain:
            owner = self._fresh(op, self._graph.tensors[chain[-1][0].inputs[0]])
            try:
                view = owner
                for step, place in reversed(chain):
                    view = self._apply_view(step, view, place)
            except RuntimeError:  # the owner was not contiguous in the step (fused attention's output)
                view = None
            if view is not None and tuple(view.shape) == self._shape(tensor):
                return view, owner
        owner = self._fresh(op, tensor)
        return owner, owner

    def _apply_view(self, step: Op, value: Any, place: int) -> Any:
        views = [value] * len(step.inputs)
        result = self._function(step.op_type)(
            *self._value(step.arguments["args"], views), **self._keywords(step, views)
        )
        return result[place] if isinstance(result, (list, tuple)) else result

    def _fresh(self, op: Op, tensor: Tensor) -> Any:
        torch = self._torch
        shape = self._shape(tensor)
        if tensor.dtype == "bool":
            return torch.randint(0, 2, shape, generator=self._generator, device=self._device).bool()
        if tensor.dtype not in FLOATING_DTYPES:
            high = self._index_bound(op)
            dtype = getattr(torch, tensor.dtype)
            return torch.randint(0, high, shape, generator=self._generator, device=self._device, dtype=dtype)
        dtype = getattr(torch, self._dtype_name(op, tensor.dtype))
        if len(shape) <= 1:  # scales, variances and their like must be positive
            return torch.rand(shape, generator=self._generator, device=self._device).add_(0.5).to(dtype)
        return torch.randn(shape, generator=self._generator, device=self._device).to(dtype)

    def _dtype_name(self, op: Op, dtype: str) -> str:
        cast = _CAST.get(self._precision)
        return cast if cast and dtype == "float32" and op_family(op.op_type, op.role) in MATRIX_FAMILIES else dtype

    def _shape(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(round(dim.at(self._batch)) for dim in tensor.shape)

    def _index_bound(self, op: Op) -> int:
        """Return one more than the largest index that every integer input of ``op`` may hold."""
        shapes = [self._shape(self._graph.tensors[t]) for t in op.inputs]
        args = op.arguments["args"]
        if "embedding" in op.op_type and "backward" in op.op_type:
            numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
            return max(1, numbers[0] if numbers else 1)
        if "nll_loss" in op.op_type:
            scores = [s for s in shapes if len(s) >= 2]
            return scores[0][1] if scores else shapes[0][0]
        if "pool" in op.op_type:  # positions in a pooled plane, of the input's two or three last sizes
            plane = max((s for s in shapes if len(s) >= 4), key=lambda s: _product(s[2:]), default=(1,))
            return max(1, _product(plane[2:]))
        if "gather" in op.op_type or "scatter" in op.op_type:
            return max(1, shapes[0][args[1]])
        if "embedding" in op.op_type or "index" in op.op_type:
            return max(1, shapes[0][0])
        return 2

    def _keywords(self, op: Op, views: list[Any]) -> dict[str, Any]:
        kwargs = op.arguments["kwargs"].items()
        return {key: self._value(value, views) for key, value in kwargs if key not in _IGNORED_KEYWORDS}

    def _value(self, value: Any, views: list[Any]) -> Any:
        if isinstance(value, list):
            return [self._value(v, views) for v in value]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return views[value["tensor"]]
        if "affine" in value:
            constant, per_sample = value["affine"]
            return round(constant + per_sample * self._batch)
        if "dtype" in value:
            return getattr(self._torch, value["dtype"])
        if "memory_format" in value:
            return getattr(self._torch, value["memory_format"])
        raise ConfigError(f"argument {value!r} of a traced op cannot be rebuilt")

    def _is_recent(self, op: Op, tensor: Tensor) -> bool:
        """Say whether the step wrote the tensor in the same pass, not long before ``op`` reads it."""
        producer = owner_of(self._graph, tensor).producer
        return producer is not None and self._graph.ops[producer].phase == op.phase


def _product(values: tuple[int, ...]) -> int:
    result = 1
    for value in values:
        result *= value
    return result
